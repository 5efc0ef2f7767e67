"""What a failed HTTP request means: a state and one line with the fix, without a word of what was sent."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Iterator
from typing import Final

from gpumon.readings.frame import EndpointState
from gpumon.readings.text import clean
from gpumon.sources.endpoint_url import EndpointUrl


class FetchError(Exception):
    """No complete answer: `state` and one line with the fix. Its text holds nothing of headers, keys or bodies."""

    def __init__(self, state: EndpointState, text: str) -> None:
        super().__init__(text)
        self.state = state
        self.text = text


class DroppedError(FetchError):
    """The connection ended before an answer."""


CAUSES: Final = (
    (
        ssl.SSLCertVerificationError,
        EndpointState.TLS,
        "{at} has a certificate that does not hold ({reason}): set tls_ca to its authority, or tls_verify = false",
    ),
    (ssl.SSLError, EndpointState.TLS, "no TLS connection to {at}: does it speak plain HTTP only? Try http://"),
    (
        socket.gaierror,
        EndpointState.DNS,
        "{at}: host name not known: check its spelling, the name server or /etc/hosts",
    ),
    (
        ConnectionRefusedError,
        EndpointState.REFUSED,
        "nothing listens on {at}: is the engine up? vLLM opens its port only once the model is loaded",
    ),
    (OSError, EndpointState.ERROR, "no way to {at} ({reason}): check host and network"),
)
"""The innermost cause decides, from the most to the least specific."""
NO_TLS: Final = ("TLS connection", "it may speak plain HTTP only (try http://); else ")
"""A server of plain HTTP may wait for the end of the line that a handshake is not."""


def fault(error: Exception, url: EndpointUrl, connect_s: float, total_s: float, *, begun: bool = False) -> FetchError:
    """The failure behind an exception of httpx or of the system; `begun` where the answer had begun."""
    import httpx

    at = clean(f"{url.host}:{url.port}", 90)
    if isinstance(error, httpx.ConnectTimeout):
        what, why = NO_TLS if url.secure else ("connection", "")
        text = f"no {what} to {at} within {connect_s:g} s: {why}wrong host, a firewall, or the server hangs"
        return FetchError(EndpointState.TIMEOUT, text)
    if isinstance(error, httpx.TimeoutException):
        return timed_out(total_s)
    if isinstance(error, (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)):
        if begun:
            return DroppedError(EndpointState.ERROR, f"{at} broke off in the middle of its answer: see its log")
        hint = "see its log, or try http://" if url.secure else "does it speak TLS only? Try https://"
        return DroppedError(EndpointState.ERROR, f"{at} broke off without a valid HTTP answer: {hint}")
    causes = tuple(_causes(error))
    for kind, state, text in CAUSES:
        for cause in causes:
            if isinstance(cause, kind):
                return FetchError(state, text.format(at=at, reason=_reason(cause)))
    return FetchError(EndpointState.ERROR, f"the request to {at} failed ({type(error).__name__})")


def timed_out(total_s: float) -> FetchError:
    """The whole answer took too long."""
    return FetchError(EndpointState.TIMEOUT, f"no complete answer within {total_s:g} s: the server hangs or is slow")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and everything that it was raised from, groups opened (one error per address tried)."""
    waiting: list[BaseException] = [error]
    for _ in range(50):
        if not waiting:
            return
        one = waiting.pop(0)
        yield one
        waiting += getattr(one, "exceptions", ())
        waiting += [cause for cause in (one.__cause__, one.__context__) if cause is not None]


def _reason(cause: BaseException) -> str:
    if isinstance(cause, ssl.SSLCertVerificationError):
        return clean(cause.verify_message or "not trusted", 100)
    return errno.errorcode.get(getattr(cause, "errno", None) or 0, "network error")
