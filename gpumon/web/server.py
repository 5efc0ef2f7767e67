"""The server of `gpumon web`: one page, a websocket per tab of the browser, and a gpumon process behind each."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from aiohttp import web
from aiohttp.web_runner import GracefulExit
from textual_serve.app_service import AppService
from textual_serve.server import Server, to_int

from gpumon.deadline import timeout
from gpumon.web.admission import Admission

MOST_TABS: Final = 8
"""Each is a process that reads the GPUs and the engines by itself."""
MOST_COLUMNS: Final = 1000
_STOP_S: Final = 4.0
"""Longest wait for a process whose tab has gone; gpumon itself needs a fraction of it."""
_MOST_MESSAGE: Final = 1 << 16
"""Bytes of a message from the browser: keys, and what is pasted."""
_HERE: Final = Path(__file__).resolve().parent
_ENVIRONMENT: Final = {
    "TEXTUAL_DRIVER": "gpumon.tui.browser:BrowserDriver",
    "TERM": "xterm-256color",
    "COLORTERM": "truecolor",
    "LC_ALL": "C.UTF-8",
}
"""Abilities of xterm.js in the page, whatever the terminal of the server has."""
_NOT_OURS: Final = ("STY", "TMUX", "TEXTUAL")
_HEADERS: Final = {
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; font-src 'self'; img-src 'self' data:;"
    " connect-src 'self' ws://{0} wss://{0}; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
"""Nothing from elsewhere, and in no page of somebody else."""
_FULL: Final = f"{MOST_TABS} tabs are open already, and each is a gpumon of its own: close one, and load this again\n"
_NO_KEY: Final = "open the link that gpumon web printed, with its key\n"

RouteHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def serve(listening: socket.socket, command: Sequence[str], admission: Admission) -> None:
    """Serve on a socket until SIGINT, SIGTERM or SIGHUP; all processes of tabs end before it returns."""
    web.run_app(
        Tabs(command, admission).application(),
        sock=listening,
        print=None,
        access_log=None,
        shutdown_timeout=_STOP_S + 1,
    )


class Tab(AppService):
    """The process of one tab: its screen goes to the websocket, keys come from there."""

    def __init__(self, command: Sequence[str], websocket: web.WebSocketResponse, server: Server) -> None:
        super().__init__(
            "",
            write_bytes=websocket.send_bytes,
            write_str=websocket.send_str,
            close=_closing(websocket),
            download_manager=server.download_manager,
        )
        self._words = tuple(command)
        self._websocket = websocket
        self._has_shown = False

    def _build_environment(self, width: int = 80, height: int = 24) -> dict[str, str]:
        environment = super()._build_environment(_bounded(width), _bounded(height)) | _ENVIRONMENT
        result = {}
        for name, value in environment.items():
            if name not in _NOT_OURS:
                result[name] = value
        return result

    async def _open_app_process(self, width: int = 80, height: int = 24) -> Process:
        """Without a shell (textual-serve: with one), so that nothing on the command line can be taken for a command."""
        environment = self._build_environment(width, height)
        process = await asyncio.create_subprocess_exec(
            *self._words, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment, start_new_session=True
        )
        self._process = process
        self._stdin = process.stdin
        return process

    async def run(self) -> None:
        """Until the process ends; then the tab is told."""
        try:
            await super().run()
        finally:
            await self._websocket.close()

    async def on_data(self, payload: bytes) -> None:
        """Send what the screen shows to the page."""
        self._has_shown = True
        await super().on_data(payload)

    async def set_terminal_size(self, width: int, height: int) -> None:
        """The size of the screen, in bounds: a browser may say anything."""
        await super().set_terminal_size(_bounded(width), _bounded(height))

    async def stop(self) -> None:
        """End the process: it is asked, and killed where it does not listen."""
        if self._has_shown:
            with contextlib.suppress(asyncio.TimeoutError):
                async with timeout(_STOP_S):
                    await super().stop()
        else:
            await self._give_up_start()
        process = self._process
        if process is None:
            return
        try:
            async with timeout(_STOP_S / 2):
                await process.wait()
        except asyncio.TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    async def _give_up_start(self) -> None:
        """Terminate a process that has shown nothing yet: it would only hear that it is asked to end once it runs."""
        task = self._task
        self._task = None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)


class Tabs(Server):
    """The application: textual-serve's, with an admission, a page that asks nobody else, and bounds."""

    def __init__(self, command: Sequence[str], admission: Admission) -> None:
        super().__init__("", title="gpumon")
        self._words = tuple(command)
        self._admission = admission
        self._open: set[web.WebSocketResponse] = set()

    def application(self) -> web.Application:
        """The web application with all its routes."""
        application = web.Application(middlewares=[self._guard])
        application.add_routes(
            [
                web.get("/", self._page),
                web.get("/ws/{key}", self._tab),
                web.get("/page.js", self._script),
                web.static("/static", self.statics_path),
            ]
        )
        application.on_startup.append(_end_on_hang_up)
        application.on_shutdown.append(self._close_all)
        return application

    @web.middleware
    async def _guard(self, request: web.Request, handler: RouteHandler) -> web.StreamResponse:
        refused = self._admission.refusal(request.headers)
        if refused:
            return web.Response(status=403, text=f"{refused}\n", headers=_HEADERS)
        response = await handler(request)
        if not response.prepared:
            response.headers.update({**_HEADERS, "Content-Security-Policy": _POLICY.format(request.host)})
        return response

    async def _page(self, _: web.Request) -> web.StreamResponse:
        if len(self._open) >= MOST_TABS:
            return web.Response(status=503, text=_FULL)
        return web.FileResponse(_HERE / "page.html")

    async def _script(self, _: web.Request) -> web.StreamResponse:
        return web.FileResponse(_HERE / "page.js")

    async def _tab(self, request: web.Request) -> web.StreamResponse:
        if not self._admission.admits(request.match_info["key"]):
            return web.Response(status=403, text=_NO_KEY)
        if len(self._open) >= MOST_TABS:
            return web.Response(status=503, text=_FULL)
        websocket = web.WebSocketResponse(heartbeat=15, max_msg_size=_MOST_MESSAGE)
        self._open.add(websocket)
        try:
            await websocket.prepare(request)
            await self._run(
                websocket, to_int(request.query.get("width", ""), 80), to_int(request.query.get("height", ""), 24)
            )
        finally:
            self._open.discard(websocket)
        return websocket

    async def _run(self, websocket: web.WebSocketResponse, width: int, height: int) -> None:
        tab = Tab(self._words, websocket, self)
        try:
            await tab.start(width, height)
            await self._process_messages(websocket, tab)
        except (AssertionError, AttributeError, LookupError, TypeError, ValueError):
            await websocket.close(message=b"not understood")  # no page of ours sent that
        finally:
            await tab.stop()

    async def _close_all(self, _: web.Application) -> None:
        await asyncio.gather(*(websocket.close() for websocket in self._open))


async def _end_on_hang_up(_: web.Application) -> None:
    def end() -> None:
        raise GracefulExit

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, end)


def _closing(websocket: web.WebSocketResponse) -> Callable[[], Awaitable[None]]:
    async def close() -> None:
        await websocket.close()

    return close


def _bounded(cells: int) -> int:
    return min(max(int(cells), 1), MOST_COLUMNS)
