"""The driver of a tab of the browser (`gpumon web`): Textual's, made to end with its server."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any, Final

from textual.app import App
from textual.drivers.web_driver import WebDriver

from gpumon.tui.driver import NO_MOTION

_RESIZE_AGAIN_S: Final = 0.1
"""Seconds between two looks whether the screen has a size that came while it started."""


class BrowserDriver(WebDriver):
    """Sends frames down a pipe to the server of the page, and gets keys and sizes up another."""

    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self.screen_app = app
        self.loop = asyncio.get_running_loop()
        self.page_size: dict[str, object] = {}
        """The last size that the page had."""

    def start_application_mode(self) -> None:
        """Buttons and wheel only: every motion would cost a message in and a look at the screen."""
        super().start_application_mode()
        self.write(NO_MOTION)

    def on_meta(self, packet_type: str, payload: dict[str, object]) -> None:
        """Take a message of the page, in the reader's thread."""
        if packet_type != "resize":
            super().on_meta(packet_type, payload)
            return
        self.page_size = payload
        self.loop.call_soon_threadsafe(self.resize_again)

    def resize_again(self) -> None:
        """Give the screen the page's size until it has it: one that comes while it starts is overtaken by the first
        one."""
        size = (self.page_size["width"], self.page_size["height"])
        if self.screen_app.is_running and tuple(self.screen_app.screen.size) != size:
            super().on_meta("resize", self.page_size)
            self.loop.call_later(_RESIZE_AGAIN_S, self.resize_again)

    def write(self, data: str) -> None:
        """Send a frame. It waits where the browser takes nothing; a server that has gone ends the screen."""
        packet = data.encode("utf-8", "replace")
        self._send(b"D%s%s" % (len(packet).to_bytes(4, "big"), packet))

    def write_meta(self, data: dict[str, object]) -> None:
        """Send a message to the server itself."""
        with contextlib.suppress(OSError):
            super().write_meta(data)

    def run_input_thread(self) -> None:
        """Read keys until the server closes the pipe, or has gone: then nobody looks any more."""
        super().run_input_thread()
        self._leave()

    def _send(self, packet: bytes) -> None:
        """Write all of a packet into the pipe; end the screen where the server has gone."""
        try:
            while packet:
                packet = packet[os.write(self.fileno, packet) :]
        except OSError:
            self._leave()

    def _leave(self) -> None:
        """End the screen, from any thread."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.screen_app.exit)
