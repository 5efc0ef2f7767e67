"""Who may talk to `gpumon web`: whoever has the key of its link, from a page of its own, under a name of its own.

The key is in no cookie: a browser sends those to every server of the same host, whatever its port. It is in the link
behind `#`, which browsers send to nobody; the page keeps it, and puts it into the path of its websocket.
A page that somebody else serves can make a browser ask here: under this server's name (then the browser says its own
`Origin`), or under a name of theirs that they point at 127.0.0.1 (then `Host` is theirs). Both are refused.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from gpumon.outputs.http import host_in_header
from gpumon.readings.text import is_address

_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
"""Names of this machine."""


class Admission:
    """Credentials that a request has to bring with it."""

    def __init__(self, key: str, names: tuple[str, ...], public_url: str) -> None:
        """`names`: hosts besides loopback's, where another address is listened at. `public_url`: that of a
        reverse proxy in front; empty: there is none."""
        self.key = key
        self.public_url = public_url
        self._is_remote = bool(names)
        """Whether another address than loopback's is listened at."""
        proxy = urlsplit(public_url)
        self._names = {*_LOOPBACK, *names}
        if proxy.hostname:
            self._names.add(proxy.hostname)
        self._public_origin = f"{proxy.scheme}://{proxy.netloc}".lower()

    def refusal(self, headers: Mapping[str, str]) -> str:
        """Why the names in a request's headers are not taken; empty where they are."""
        host = headers.get("Host", "").lower()
        origin = headers.get("Origin", "").lower()
        if not self._is_served_name(host):
            return "this name is not served here: use the link that gpumon web printed (--public-url for a proxy)"
        if origin and origin not in (f"http://{host}", f"https://{host}", self._public_origin):
            return "a page of another server may not use this one"
        return ""

    def admits(self, key: str) -> bool:
        """Whether it is the key, in a time that does not tell how much of it is right."""
        return hmac.compare_digest(key.encode(errors="backslashreplace"), self.key.encode())

    def _is_served_name(self, host: str) -> bool:
        """Whether a `Host` header names this server; elsewhere than on loopback any address may be its own."""
        name = host_in_header(host)
        return name in self._names or (self._is_remote and is_address(name))
