"""The driver of a tab of the browser (`gpumon web`): Textual's, made to end with its server."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any, Final

from textual.app import App
from textual.drivers.web_driver import WebDriver

from gpumon.tui.driver import DRAGS_ONLY

_PACKET_HEAD: Final = b"D%s"
"""Before a frame in the pipe, as Textual's server reads it: `D` for data, then four bytes of the frame's length."""
_LENGTH_BYTES: Final = 4


class BrowserDriver(WebDriver):
    """Sends frames to the server of the page through one pipe, and gets keys and sizes through another."""

    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self._screen_app = app
        self._screen_loop = asyncio.get_running_loop()
        """The loop that the screen runs in: messages of the page come in another thread."""

    def start_application_mode(self) -> None:
        """Start the screen with the mouse's buttons, wheel and drags alone: each motion would cost a message and a look
        at the screen."""
        super().start_application_mode()
        self.write(DRAGS_ONLY)

    def on_meta(self, packet_type: str, payload: dict[str, object]) -> None:
        """Take a message of the page, in the reader's thread."""
        if packet_type != "resize":
            super().on_meta(packet_type, payload)
            return
        asyncio.run_coroutine_threadsafe(self._resize(payload), self._screen_loop)

    async def _resize(self, payload: dict[str, object]) -> None:
        """Give the screen a size of the page (`width` and `height` in cells), in a task of its own.

        Textual posts the size that it starts with from such a task too, which was made before the page's messages are
        read. Posted in any faster way, a size of the page could be overtaken by that first one.
        """
        super().on_meta("resize", payload)

    def write(self, data: str) -> None:
        """Send a frame, the whole of it: Textual writes once, and a pipe may take a part. A server that has gone ends
        the screen.

        This waits, in the event loop, while the browser takes nothing. The process is this tab's alone: until the frame
        is taken it has nothing else to do.
        """
        frame = data.encode("utf-8", "replace")
        self._send(_PACKET_HEAD % len(frame).to_bytes(_LENGTH_BYTES, "big") + frame)

    def write_meta(self, data: dict[str, object]) -> None:
        """Send a message to the server itself, which is so short that a pipe takes it whole. Nothing happens where the
        server has gone: `write` ends the screen then."""
        with contextlib.suppress(OSError):
            super().write_meta(data)

    def run_input_thread(self) -> None:
        """Read keys until the server closes the pipe or has gone, and end the screen then: nobody looks any more.

        One that has ended by itself keeps its result.
        """
        super().run_input_thread()
        if not self.exit_event.is_set():
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
        with contextlib.suppress(RuntimeError):  # the loop is closed: the screen has ended
            self._screen_loop.call_soon_threadsafe(self._screen_app.exit)
