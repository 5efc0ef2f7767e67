"""Reads an endpoint's API key where the config says, and checks to whom it may be sent. No message contains the key."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.config.opener import open_checked
from gpumon.config.ownership import link_fault, owner_fault, user_name, writable_fault
from gpumon.config.schema import Endpoint
from gpumon.readings.text import MOST_FAULT, clean
from gpumon.sources.checked_open import check_regular
from gpumon.sources.sockets import Peer, PeerState, TcpConnection, find_listeners, peer_of

MOST_KEY_BYTES: Final = 8192
"""Bytes of a key's file that are read: servers refuse headers of that length."""
ACCEPTED_S: Final = 1.0
"""Longest wait for the server to accept a connection: an engine's event loop may be busy for that long. A server with
TCP_DEFER_ACCEPT accepts none before the request."""
LISTED_S: Final = 0.1
"""Longest wait for the kernel to list the other end of a connection to this host: it may do so a moment late."""
LOOK_AGAIN_S: Final = 0.01
"""Seconds between two looks at the other end."""
SENT_UNVERIFIED: Final = (
    "the {secret} is sent unverified: nothing shows who runs this server; https:// with a certificate that holds does"
)


def read_key(endpoint: Endpoint, setting: str = "api_key") -> tuple[str, str]:
    """The key (empty for none), and the fault of its source in one line (empty where it has none).

    `setting` is what the config calls it, before `_env` and `_file`: `api_key` or `password`.
    """
    if endpoint.api_key_env:
        text = os.environ.get(endpoint.api_key_env)
        if text is None:
            return "", f"{setting}_env: {endpoint.api_key_env} is not set: export it before starting gpumon"
    elif endpoint.api_key_file:
        text, fault = _read_file(endpoint.api_key_file, setting)
        if fault:
            return "", fault
    else:
        return "", ""
    key = text.strip()
    word = setting.removeprefix("api_")  # `key` or `password`
    if not key:
        return "", f"the {word} in {_location(endpoint)} is empty: put the bare {word} there"
    if not key.isascii() or not key.isprintable() or " " in key:
        return "", f"the {word} in {_location(endpoint)} is not one word of printable ASCII: put the bare {word} there"
    return key, ""


def _read_file(path: str, setting: str) -> tuple[str, str]:
    """The text of the key's file, and in one line why it cannot be read (empty if it can)."""
    file_name = clean(path, 80)
    try:
        place = Path(path).expanduser()
        with open_checked(place, check_regular) as file:
            status = os.fstat(file.fileno())
            if setting == "url":
                fault = owner_fault(status, str(place), "choose where {} sends messages")
            else:
                fault = link_fault(place, status) or writable_fault(status, str(place))
            if fault:
                return "", f"{setting}_file: {file_name} {clean(fault, MOST_FAULT)}"
            return file.read(MOST_KEY_BYTES).decode("latin-1"), ""
    except FileNotFoundError:
        return "", f"{setting}_file: no such file: {file_name}"
    except (OSError, RuntimeError, ValueError) as error:
        # RuntimeError: `~NAME` of a user who does not exist. ValueError: a NUL in the path.
        why = clean(getattr(error, "strerror", None) or str(error), 80)
        return "", f"{setting}_file: file {file_name} cannot be read ({why}): check path and permission"


class Recipient(NamedTuple):
    """Whether the secret may be sent over a connection."""

    refusal: str = ""
    """Why not, and the fix, in one line; empty if it may."""
    verified: bool = True
    """Whether the server was identified: by its TLS certificate, or as a socket of a user who may know the secret."""


def identify_recipient(endpoint: Endpoint, connection: TcpConnection, setting: str = "api_key") -> Recipient:
    """Whether the secret may be sent over this connection. Blocks for up to `ACCEPTED_S`. Raises ConnectionError.

    On this host a port is anybody's while its server is down. Whoever has the other end must know the secret without
    gpumon: root, gpumon's own user, the owner of its file, or the user that the config names. The owner of the
    connected socket decides: its listener may be gone by now, and on another address the port may be another's.
    Another host cannot be looked into. A server with TLS that is verified shows who it is.
    """
    if endpoint.tls_verify and endpoint.url.lower().startswith("https:"):
        return Recipient()
    peer = _await_accepted(connection)
    if peer.state is PeerState.ENDED:
        raise ConnectionResetError(errno.ECONNRESET, "the server closed the connection at once")
    if peer.state is PeerState.ELSEWHERE:
        return Recipient(verified=False)
    if peer.state is PeerState.HIDDEN:
        if endpoint.trust_other_namespace:
            return Recipient(verified=False)
        return Recipient(
            f"what {_location(endpoint)} holds was not sent: Linux does not tell whose server this is (a container "
            "with a network of its own?); if it may have it, set trust_other_namespace = true"
        )
    if peer.state is PeerState.WAITING:  # whoever may still accept it must know the secret
        uids = _owners_of_listeners(connection)
    else:
        uids = {peer.uid}
    strangers = _strangers(endpoint, uids)
    if not strangers:
        return Recipient()
    return Recipient(
        f"what {_location(endpoint)} holds was not sent: the server on this port belongs to {' and '.join(strangers)}, "
        f'and it is not given for that user; if it is, set {setting}_user = "{strangers[0]}"'
    )


def _await_accepted(connection: TcpConnection) -> Peer:
    """The other end once a process has accepted the connection, or as it is after `ACCEPTED_S`.

    A hidden end is looked at again for `LISTED_S`: a kernel that hands packets from core to core lists it late.
    """
    accepted_end_s = time.monotonic() + ACCEPTED_S
    listed_end_s = time.monotonic() + LISTED_S
    while True:
        peer = peer_of(connection)
        now_s = time.monotonic()
        waits = peer.state is PeerState.WAITING and now_s < accepted_end_s
        is_late = peer.state is PeerState.HIDDEN and now_s < listed_end_s
        if not waits and not is_late:
            return peer
        time.sleep(LOOK_AGAIN_S)


def _owners_of_listeners(connection: TcpConnection) -> set[int]:
    """Owners of the listening sockets in whose queue the connection may wait.

    Raises ConnectionError if it was accepted or closed meanwhile, of which a listener that is gone is a sign: then the
    owner of the connected socket decides, at the next request.
    """
    uids = set()
    for listener in find_listeners():
        hears_address = listener.address == connection.remote or listener.address.is_unspecified
        if hears_address and listener.port == connection.remote_port:
            uids.add(listener.uid)
    if not uids or peer_of(connection).state is not PeerState.WAITING:
        raise ConnectionAbortedError(errno.ECONNABORTED, "the server accepted the connection late")
    return uids


def _strangers(endpoint: Endpoint, uids: set[int]) -> list[str]:
    """Names of the users among these who may not have the secret, sorted."""
    strangers = uids - {0, os.geteuid()}
    if strangers and endpoint.api_key_file:
        with contextlib.suppress(OSError, RuntimeError):
            strangers.discard(Path(endpoint.api_key_file).expanduser().stat().st_uid)
    return sorted({user_name(uid) for uid in strangers} - {endpoint.api_key_user})


def refused_key_text(endpoint: Endpoint, what: str = "the key") -> str:
    """The text of a fault: a key (or another secret, named by `what`) was sent and did not open the page."""
    return f"{what} was refused: check what {_location(endpoint)} holds"


def _location(endpoint: Endpoint) -> str:
    """The source of the key, in words: the name of the variable, or `file PATH`."""
    return endpoint.api_key_env or f"file {clean(endpoint.api_key_file, 80)}"
