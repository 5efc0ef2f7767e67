"""The driver of a tab of the browser (`gpumon web`): Textual's, made to end with its server."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Final

from textual import events
from textual.drivers.web_driver import WebDriver
from textual.geometry import Size

_AGAIN_S: Final = 0.1
"""Between two looks whether the screen has a size that came while it started."""


class BrowserDriver(WebDriver):
    """Sends frames down a pipe to the server of the page, and gets keys and sizes up another."""

    _wanted = Size(80, 24)

    def start_application_mode(self) -> None:
        """Textual asks for every motion of the mouse besides, whatever the application wants."""
        super().start_application_mode()
        self.write("\x1b[?1003l")
        self._enable_mouse_support()

    def on_meta(self, packet_type: str, payload: dict[str, object]) -> None:
        """Called from the reader's thread."""
        loop = self._app._loop
        if packet_type != "resize" or loop is None:
            super().on_meta(packet_type, payload)
            return
        self._wanted = Size(int(str(payload["width"])), int(str(payload["height"])))
        loop.call_soon_threadsafe(self._resize)

    def _resize(self) -> None:
        """Until the screen has it: a size that comes while it starts is overtaken by the first one."""
        if self._app.is_running and self._app.size != self._wanted:
            self._size = self._wanted
            self._app.post_message(events.Resize(self._wanted, self._wanted))
            asyncio.get_running_loop().call_later(_AGAIN_S, self._resize)

    def write(self, data: str) -> None:
        """A frame. It waits where the browser takes nothing; a server that has gone ends the screen."""
        packet = data.encode("utf-8", "replace")
        self._send(b"D%s%s" % (len(packet).to_bytes(4, "big"), packet))

    def write_meta(self, data: dict[str, object]) -> None:
        """A message to the server itself."""
        with contextlib.suppress(OSError):
            super().write_meta(data)

    def run_input_thread(self) -> None:
        """Keys until the server closes the pipe, or has gone: then nobody looks any more."""
        super().run_input_thread()
        self._leave()

    def _enable_mouse_support(self) -> None:
        """Buttons and wheel only: every motion would cost a message in and a look at the screen."""
        if self._mouse:
            self.write("\x1b[?1000h\x1b[?1006h")

    def _send(self, packet: bytes) -> None:
        try:
            while packet:
                packet = packet[os.write(self.fileno, packet) :]
        except OSError:
            self._leave()

    def _leave(self) -> None:
        loop = self._app._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._app.exit)
