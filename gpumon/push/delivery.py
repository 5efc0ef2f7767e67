"""One request to a receiver, and what its answer means: delivered, to be tried again, or refused for good."""

from __future__ import annotations

import asyncio
import contextlib
import time
from datetime import timezone
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Final, NamedTuple

from gpumon.config.schema import Webhook
from gpumon.push.bodies import BodyContext, encode_body
from gpumon.push.records import DeliveryOutcome, Message
from gpumon.push.target import UnreadableSecretError, WebhookTarget, target_of
from gpumon.readings.text import clean
from gpumon.sources.fetch import MAY_LOAD, Fetcher, FetchError, Limits
from gpumon.sources.offload import in_daemon_thread

_REFUSED_STATUSES: Final = frozenset({400, 413, 422})
"""Statuses of the answer of a receiver that does not take this message, however often it comes."""
_ADVICE: Final = {
    401: "check the key or the token",
    403: "check the URL and the key",
    404: "check the URL",
    410: "the receiver was removed: check the URL",
    429: "too many messages: it is tried again later",
}
"""Status of an answer -> what to do."""
MOST_ANSWER: Final = 120
"""Characters of an answer's body that are said."""
_MOST_ANSWER_BYTES: Final = 1 << 20
"""Bytes of an answer that are read."""
_MOST_SAID_OF_BYTES: Final = 4096
"""Bytes of an answer that are searched for secrets and for what may be said: of 1 MiB that takes 20 s."""
_LONGEST_FAILURE: Final = 256
"""Characters of the reason why there is no answer."""
MOST_WAIT_S: Final = 3600.0
"""Longest wait that a receiver may ask for."""
NOT_RUNNING: Final = "it does not run, or the address is wrong"
"""Words for a receiver that does not listen."""
_CONNECT_S: Final = 5.0
"""Longest wait for a connection."""
REPEAT_S: Final = 14400.0
"""Seconds between two repeats, unless the config says otherwise."""
ALERTMANAGER_REPEAT_S: Final = 60.0
"""Seconds between two repeats to an Alertmanager, which takes an alert for over that is not sent again for minutes."""
_MOST_RETRY_AFTER_DIGITS: Final = 9
"""Digits of a `Retry-After` that are read: above `MOST_WAIT_S` the others change nothing."""


class DeliveryResult(str, Enum):
    """Outcome of an attempt."""

    DELIVERED = "delivered"
    AGAIN = "again"
    """It did not arrive, and is tried again."""
    REFUSED = "refused"
    """The receiver takes this message never: it is given up."""


class Attempt(NamedTuple):
    """The outcome of one request."""

    result: DeliveryResult
    text: str
    """Answer, or why there is none and what to do, in one line without secrets."""
    wait_s: float = 0.0
    """Seconds after which the receiver wants to be asked again; 0: it does not say."""
    sent: bytes = b""
    """The body without secrets."""
    shown_url: str = ""
    """The URL that it was sent to, as it may be shown."""
    unverified: bool = False
    """Whether a secret went to a server that could not be identified."""

    def outcome(self, wall_s: float) -> DeliveryOutcome:
        """The attempt, made at a Unix time, as it is kept on disk."""
        return DeliveryOutcome(wall_s, self.result is DeliveryResult.DELIVERED, self.text)


def repeat_interval_s(webhook: Webhook) -> float:
    """Seconds after which what still stands is sent again; 0: never."""
    if webhook.repeat_s is not None:
        return webhook.repeat_s
    if webhook.kind == "alertmanager":
        return ALERTMANAGER_REPEAT_S
    return REPEAT_S


class Receiver:
    """The connection to one receiver. Its URL and key are read for each message, so that a mended file takes effect."""

    def __init__(self, webhook: Webhook, name: str) -> None:
        self._webhook = webhook
        self._name = name
        self._fetcher: Fetcher | None = None
        self._target: WebhookTarget | None = None
        self._reading: asyncio.Task[WebhookTarget] | None = None
        """The read of URL and key that is under way."""

    async def send(self, message: Message) -> Attempt:
        """Send a message once."""
        try:
            target = await self._read_target()
        except UnreadableSecretError as unreadable:
            return Attempt(DeliveryResult.AGAIN, clean(str(unreadable)))
        except asyncio.TimeoutError:
            text = "the file of its URL or key cannot be read: its file system does not answer"
            return Attempt(DeliveryResult.AGAIN, text)
        fetcher = await self._fetcher_of(target)
        now_s = time.time()
        context = BodyContext(self._name, target.key, now_s, repeat_interval_s(self._webhook))
        content = encode_body(self._webhook.kind, message, context)
        shown = target.without_secrets(content.decode()).encode()
        try:
            answer = await fetcher.send("POST", target.url, target.headers, content, _MOST_ANSWER_BYTES)
        except FetchError as failure:
            why = failure.text.replace(MAY_LOAD, NOT_RUNNING)
            return Attempt(DeliveryResult.AGAIN, _safe_text(target, why), sent=shown, shown_url=target.shown_url)
        said = answer.body.strip()[:_MOST_SAID_OF_BYTES].decode("utf-8", "replace")
        text = _safe_text(target, said, MOST_ANSWER)
        answer_text = f"HTTP {answer.status}"
        if text:
            answer_text += f": {text}"
        result = _result_of_status(answer.status)
        if result is DeliveryResult.AGAIN:
            answer_text = f"it answers {answer_text} ({_advice(answer.status)})"
        elif result is DeliveryResult.REFUSED:
            answer_text = f"it refuses the message with {answer_text}"
        wait_s = retry_after_s(answer.retry_after, now_s)
        return Attempt(
            result=result,
            text=answer_text,
            wait_s=wait_s,
            sent=shown,
            shown_url=target.shown_url,
            unverified=fetcher.unverified,
        )

    async def _read_target(self) -> WebhookTarget:
        """The URL and key of now. Raises UnreadableSecretError, and asyncio.TimeoutError.

        A read that hangs is waited for again, so that no second thread hangs beside it.
        """
        if self._reading is None:
            self._reading = asyncio.create_task(in_daemon_thread(target_of, self._webhook))
        await asyncio.wait({self._reading}, timeout=self._webhook.timeout_s)
        if not self._reading.done():
            raise asyncio.TimeoutError
        reading = self._reading
        self._reading = None
        return reading.result()

    async def close(self) -> None:
        """Let go of a read that hangs, and close the connection."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
            self._reading = None
        await self._disconnect()

    async def _disconnect(self) -> None:
        """Close the connection, if there is one."""
        if self._fetcher is not None:
            await self._fetcher.close()
            self._fetcher = None

    async def _fetcher_of(self, target: WebhookTarget) -> Fetcher:
        """The connection to a receiver; a new one where the receiver has changed."""
        if self._fetcher is None or self._target != target:
            await self._disconnect()
            self._fetcher = Fetcher(
                target.address,
                tls_ca=self._webhook.tls_ca,
                tls_verify=self._webhook.tls_verify,
                limits=Limits(min(_CONNECT_S, self._webhook.timeout_s), self._webhook.timeout_s, _MOST_ANSWER_BYTES),
                clock=time.monotonic,
                secret=target.server,
                always_checked=target.is_secret or bool(target.key),
            )
            self._target = target
        return self._fetcher


def _safe_text(target: WebhookTarget, text: str, most: int = _LONGEST_FAILURE) -> str:
    """A text of the receiver or the system, cut and without secrets."""
    return clean(target.answer_without_secrets(text), most)


def _result_of_status(status: int) -> DeliveryResult:
    """Result of an attempt by the status of the answer."""
    if 200 <= status < 300:
        return DeliveryResult.DELIVERED
    if status in _REFUSED_STATUSES:
        return DeliveryResult.REFUSED
    return DeliveryResult.AGAIN


def _advice(status: int) -> str:
    """Advice for a status that is no success."""
    if 300 <= status < 400:
        return "a redirect, which is not followed: give the final URL"
    return _ADVICE.get(status, "see its log")


def retry_after_s(retry_after: str, now_s: float) -> float:
    """Seconds that a `Retry-After` asks for, as a number or as a date; 0 where it says nothing, at most an hour."""
    text = retry_after.strip()
    seconds = 0.0
    if text.isascii() and text.isdigit():
        seconds = float(text[:_MOST_RETRY_AFTER_DIGITS])
    elif text:
        with contextlib.suppress(ValueError, TypeError, OverflowError):
            date = parsedate_to_datetime(text)
            if date.tzinfo is None:
                date = date.replace(tzinfo=timezone.utc)
            seconds = date.timestamp() - now_s
    return min(max(seconds, 0.0), MOST_WAIT_S)
