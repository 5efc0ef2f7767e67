"""The server of `gpumon web`: one page, a websocket per tab of the browser, and a gpumon process behind each."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from aiohttp import web
from aiohttp.http import HttpProcessingError
from aiohttp.log import server_logger
from textual_serve.app_service import AppService
from textual_serve.server import Server, to_int

from gpumon.deadline import timeout
from gpumon.web.admission import Admission
from gpumon.web.connections import BACKLOG, Connections

MOST_TABS: Final = 8
"""Most tabs that are open at once: each is a process that reads the GPUs and the engines by itself."""
MOST_COLUMNS: Final = 1000
"""Most columns, and most lines, of a screen that a browser may ask for."""
_USUAL_COLUMNS: Final = 80
"""Columns of a screen where the browser does not say how many."""
_USUAL_LINES: Final = 24
"""Lines of such a screen."""
_HEARTBEAT_S: Final = 15.0
"""Seconds between two pings of a browser: a connection that answers none is closed."""
_STOP_S: Final = 4.0
"""Longest wait for a process whose tab has gone; gpumon itself needs a fraction of it."""
_MOST_MESSAGE_BYTES: Final = 1 << 16
"""Bytes of a message from the browser: keys, and what is pasted."""
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end the server; the last one comes where its terminal was closed."""
_FOLDER: Final = Path(__file__).resolve().parent
_ENVIRONMENT: Final = {
    "TEXTUAL_DRIVER": "gpumon.tui.browser:BrowserDriver",
    "TERM": "xterm-256color",
    "COLORTERM": "truecolor",
    "LC_ALL": "C.UTF-8",
}
"""Variables of the process of a tab: its driver, and what xterm.js in the page can do, whatever the server's terminal
can."""
_TERMINAL_VARIABLES: Final = ("STY", "TMUX", "TEXTUAL")
"""Variables of the terminal that the server was started in, which would be wrong of the page."""
_SECURITY_HEADERS: Final = {
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
"""Headers of all answers: no frame of another page, no guessed types, no address told on, no copy kept."""
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; font-src 'self'; img-src 'self' data:;"
    " connect-src 'self' ws://{0} wss://{0}; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
"""Content security policy: nothing from elsewhere, and in no page of somebody else. `{0}`: the host asked for."""
_FULL: Final = f"{MOST_TABS} tabs are open already, and each is a gpumon of its own: close one, and load this again\n"
"""Answer where there is no room for one more tab."""
_GONE: Final = "Transport is closing"
"""Words of asyncio where a file is to be sent over a connection that has ended."""
_NO_KEY: Final = "open the link that gpumon web printed, with its key\n"
"""Answer to a request without the key."""

RouteHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def serve(listening: socket.socket, command: Sequence[str], admission: Admission) -> None:
    """Serve on a socket until SIGINT, SIGTERM or SIGHUP; all processes of tabs end before it returns."""
    asyncio.run(Tabs(command, admission).serve_on(listening))


class Tab(AppService):
    """The process of one tab: its screen goes to the websocket, keys come from there."""

    def __init__(self, command: Sequence[str], websocket: web.WebSocketResponse, server: Server) -> None:
        super().__init__(
            "",
            write_bytes=websocket.send_bytes,
            write_str=websocket.send_str,
            close=_closer(websocket),
            download_manager=server.download_manager,
        )
        self._words = tuple(command)
        self._websocket = websocket
        self._has_shown = False

    def _build_environment(self, width: int = _USUAL_COLUMNS, height: int = _USUAL_LINES) -> dict[str, str]:
        """The environment of the process: the server's, without what is only true of the server's own terminal."""
        inherited = super()._build_environment(_bounded(width), _bounded(height)) | _ENVIRONMENT
        return {name: value for name, value in inherited.items() if name not in _TERMINAL_VARIABLES}

    async def _open_app_process(self, width: int = _USUAL_COLUMNS, height: int = _USUAL_LINES) -> Process:
        """Start the process without a shell, so that nothing on the command line can be taken for a command.

        textual-serve starts it with one.
        """
        environment = self._build_environment(width, height)
        process = await asyncio.create_subprocess_exec(
            *self._words, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment, start_new_session=True
        )
        self._process = process
        self._stdin = process.stdin
        return process

    async def run(self) -> None:
        """Pass on what the process shows, until it ends; then close the websocket."""
        try:
            await super().run()
        finally:
            await self._websocket.close()

    async def on_data(self, payload: bytes) -> None:
        """Send what the screen shows to the page."""
        self._has_shown = True
        await super().on_data(payload)

    async def set_terminal_size(self, width: int, height: int) -> None:
        """Tell the process the size of the screen, in bounds: a browser may say anything."""
        await super().set_terminal_size(_bounded(width), _bounded(height))

    async def stop(self) -> None:
        """Ask the process to end, and kill it where it does not. Calls may be repeated."""
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
        self._open_websockets: set[web.WebSocketResponse] = set()
        self._connections: Connections | None = None
        """The connections of browsers, once it serves."""

    async def serve_on(self, listening: socket.socket) -> None:
        """Serve on a socket until a signal comes; all processes of tabs end before it returns."""
        loop = asyncio.get_running_loop()
        signal_came = asyncio.Event()
        for number in _ENDING:
            loop.add_signal_handler(number, signal_came.set)
        server_logger.addFilter(_is_own_fault)
        runner = web.AppRunner(self.application(), access_log=None, shutdown_timeout=_STOP_S + 1)
        await runner.setup()
        try:
            assert runner.server is not None
            self._connections = Connections(runner.server)
            server = await loop.create_server(self._connections.open, sock=listening, backlog=BACKLOG)
            await signal_came.wait()
            server.close()
        finally:
            await runner.cleanup()

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
        application.on_shutdown.append(self._close_all)
        return application

    @web.middleware
    async def _guard(self, request: web.Request, handler: RouteHandler) -> web.StreamResponse:
        """Refuse requests that the admission refuses, and give every other answer the headers of security."""
        if self._connections is not None:
            self._connections.note_request(request.protocol)
        refusal = self._admission.refusal(request.headers)
        if refusal:
            return web.Response(status=403, text=f"{refusal}\n", headers=_SECURITY_HEADERS)
        response = await handler(request)
        if not response.prepared:  # the headers of a websocket have been sent
            response.headers.update({**_SECURITY_HEADERS, "Content-Security-Policy": _POLICY.format(request.host)})
        return response

    async def _page(self, _: web.Request) -> web.StreamResponse:
        """The page of a tab, if one more may be opened."""
        if len(self._open_websockets) >= MOST_TABS:
            return web.Response(status=503, text=_FULL)
        return web.FileResponse(_FOLDER / "page.html")

    async def _script(self, _: web.Request) -> web.StreamResponse:
        """The script of the page."""
        return web.FileResponse(_FOLDER / "page.js")

    async def _tab(self, request: web.Request) -> web.StreamResponse:
        """The websocket of a tab; returns when the tab or its process has ended."""
        if not self._admission.admits(request.match_info["key"]):
            return web.Response(status=403, text=_NO_KEY)
        if len(self._open_websockets) >= MOST_TABS:
            return web.Response(status=503, text=_FULL)
        websocket = web.WebSocketResponse(heartbeat=_HEARTBEAT_S, max_msg_size=_MOST_MESSAGE_BYTES)
        self._open_websockets.add(websocket)
        if self._connections is not None:
            self._connections.admit(request.protocol)
        try:
            await websocket.prepare(request)
            await self._run_tab(
                websocket,
                width=to_int(request.query.get("width", ""), _USUAL_COLUMNS),
                height=to_int(request.query.get("height", ""), _USUAL_LINES),
            )
        finally:
            self._open_websockets.discard(websocket)
        return websocket

    async def _run_tab(self, websocket: web.WebSocketResponse, *, width: int, height: int) -> None:
        """Start a process, pass the messages of the browser on, and end the process with them."""
        tab = Tab(self._words, websocket, self)
        try:
            await tab.start(width, height)
            await self._process_messages(websocket, tab)
        except (AssertionError, AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError):
            await websocket.close(message=b"not understood")  # no page of ours sent that
        finally:
            await tab.stop()

    async def _close_all(self, _: web.Application) -> None:
        """Close all tabs: the server ends."""
        await asyncio.gather(*(websocket.close() for websocket in self._open_websockets))


def _is_own_fault(record: logging.LogRecord) -> bool:
    """Whether a record of aiohttp's log is about the server itself. Faults of clients are left out: they could fill the
    terminal without the key."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError) and str(error) != _GONE


def _closer(websocket: web.WebSocketResponse) -> Callable[[], Awaitable[None]]:
    """A function that closes the websocket, without the parameters and the result of its own `close`."""

    async def close() -> None:
        await websocket.close()

    return close


def _bounded(cells: int) -> int:
    """A width or height that a screen may have."""
    return min(max(int(cells), 1), MOST_COLUMNS)
