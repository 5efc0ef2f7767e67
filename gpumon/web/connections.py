"""Connections to the server of `gpumon web`: bounded, as whoever reaches the port can open them without a key."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Final

from aiohttp.web_protocol import RequestHandler

MOST_CONNECTIONS: Final = 128
"""Open at once besides those of tabs: a browser has six. One more ends the one that has been quiet for longest."""
BACKLOG: Final = 32
"""Connections that are accepted at once: fewer than may be open, so that none of them ends another that has just come.
"""
_CONNECTED_S: Final = 1.0
"""Seconds after which a handler without a connection has lost it, and is not just about to get it."""


class Connections:
    """The connections that are no tab, by when they last asked for something."""

    def __init__(self, new_handler: Callable[[], RequestHandler]) -> None:
        self._new_handler = new_handler
        self._used_s: dict[RequestHandler, float] = {}
        """When each was opened or has asked last, the earliest first (clock of the event loop)."""

    def open(self) -> RequestHandler:
        """The handler of a new connection, for which there is room."""
        now_s = asyncio.get_running_loop().time()
        self._used_s = {
            handler: used_s
            for handler, used_s in self._used_s.items()
            if handler.transport is not None or now_s - used_s < _CONNECTED_S
        }
        if len(self._used_s) >= MOST_CONNECTIONS:
            quietest = next(iter(self._used_s))
            del self._used_s[quietest]
            _cut_off(quietest)
        handler = self._new_handler()
        self._used_s[handler] = now_s
        return handler

    def note_request(self, handler: RequestHandler) -> None:
        """Count a connection as used just now."""
        if self._used_s.pop(handler, None) is not None:
            self._used_s[handler] = asyncio.get_running_loop().time()

    def admit(self, handler: RequestHandler) -> None:
        """Let a connection be, whatever others come: it is that of a tab."""
        self._used_s.pop(handler, None)


def _cut_off(handler: RequestHandler) -> None:
    """End a connection as if its browser had: what it has not read is dropped, and the handler of its request ends.

    A transport that is closed waits for a browser that reads nothing, and a file that is being sent stays open.
    """
    if handler.transport is not None:
        with contextlib.suppress(OSError):  # it has gone by itself
            handler.transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
