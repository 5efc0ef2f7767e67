"""`gpumon web`: the real command, spoken to as the page in a browser speaks to it."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp
import psutil
import pyte
import pytest
from textual_serve.app_service import AppService

from gpumon import __version__
from gpumon.commands.command_line import parse_command_line
from gpumon.commands.web import is_loopback, public_url, screen_command
from gpumon.config.errors import ConfigError
from gpumon.deadline import timeout
from gpumon.web.admission import Admission
from gpumon.web.connections import MOST_CONNECTIONS
from gpumon.web.server import MOST_COLUMNS, MOST_TABS, _bounded
from tests.each_row import each_row
from tests.program import Started, run_gpumon, started

WAIT_S: Final = 60.0
SMALL: Final = ("--scenario", "no-gpm")
"""A GPU without an engine: a quarter of the work of the whole demo, in each tab."""
SMALL_FIGURES: Final = r"H100[\s\S]*▸ 0 .* 700W"


def environment(folder: Path, **more: str) -> dict[str, str]:
    usual = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "LANG": "C.UTF-8", "TERM": "dumb"}
    return {**os.environ, **usual, **more}


class Served:
    """The running command, and one visitor with its link."""

    def __init__(self, process: Started, link: str, session: aiohttp.ClientSession) -> None:
        self.process = process
        self.link = link
        self.session = session
        self.url, _, self.key = link.partition("#key=")
        self.server = psutil.Process(process.pid)

    def tab(self, size: str = "width=120&height=40", **headers: str) -> Any:
        """The websocket of a page; an async context manager."""
        return self.session.ws_connect(f"{self.url}ws/{self.key}?{size}", headers=headers)

    async def ended(self, children: int = 0) -> None:
        """Wait until so many processes are left."""
        await until(lambda: len(self.server.children()) == children)


@contextlib.contextmanager
def running(folder: Path, *options: str, **variables: str) -> Iterator[tuple[Started, str]]:
    """The command with a simulated server in each tab, and its link. What it writes after that must be nothing."""
    command = [sys.executable, "-m", "gpumon", "web", "--demo", "--listen", "127.0.0.1:0", *options]
    env = environment(folder, **variables)
    with started(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            assert process.stdout is not None
            link = re.search(r"http://127\.0\.0\.1:\d+/#key=\S+", process.stdout.readline())
            assert link is not None
            assert process.stdout.readline() == "Ctrl+C ends it\n"
            yield process, link[0]
            if process.poll() is None:
                process.terminate()
                assert process.wait(WAIT_S) == 0
            assert process.stdout.read() == ""
        finally:
            process.kill()


@contextlib.asynccontextmanager
async def served(folder: Path, *options: str, **variables: str) -> AsyncIterator[Served]:
    """A server of the test's own, and a visitor."""
    with running(folder, *options, **variables) as (process, address):
        async with aiohttp.ClientSession() as session:
            yield Served(process, address, session)


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Started, str]]:
    """One server for all tests that leave it as it was, and its link."""
    with running(tmp_path_factory.mktemp("web"), *SMALL) as server:
        yield server


@pytest.fixture
async def shared(link: tuple[Started, str]) -> AsyncIterator[Served]:
    """The server of the module, and a visitor of the test's own."""
    process, address = link
    async with aiohttp.ClientSession() as session:
        yield Served(process, address, session)


async def until(true: Callable[[], bool]) -> None:
    end_s = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < end_s, "not in time"
        await asyncio.sleep(0.05)


class Screen:
    """What the terminal in the page shows of a websocket."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, columns: int = 120, lines: int = 40) -> None:
        self._socket = socket
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self.bytes = b""

    async def shows(self, pattern: str) -> str:
        """The screen as soon as the pattern is on it."""
        try:
            async with timeout(WAIT_S):  # of `receive`, a time would begin again with each ping
                while not re.search(pattern, self._text()):
                    self._take(await self._socket.receive())
        except asyncio.TimeoutError:
            pytest.fail(f"{pattern} is not in\n{self._text()}")
        return self._text()

    def _text(self) -> str:
        return "\n".join(self.screen.display)

    def _take(self, message: aiohttp.WSMessage) -> None:
        if message.type == aiohttp.WSMsgType.BINARY:
            self.bytes += message.data
            # pyte knows no sub-parameters and no private queries.
            self._stream.feed(re.sub(rb"\x1b\[\?\d+\$p", b"", message.data))
        else:
            assert message.type == aiohttp.WSMsgType.TEXT, message

    async def type(self, keys: str) -> None:
        await self._socket.send_json(["stdin", keys])

    async def resize(self, columns: int, lines: int) -> None:
        self.screen.resize(lines, columns)
        await self._socket.send_json(["resize", {"width": columns, "height": lines}])


async def test_a_tab_shows_the_screen_answers_keys_follows_its_size_and_ends(tmp_path: Path) -> None:
    """A program that was started where the locale is that of ASCII: the page takes all of Unicode."""
    key = "a-key-of-ones-own-0123"
    options = ("--scenario", "healthy-chat", "--theme", "light", "--interval", "0.25")
    async with served(tmp_path, *options, GPUMON_WEB_KEY=key, LANG="C") as there:
        assert there.key == key
        async with there.tab() as socket:
            screen = Screen(socket)
            first = await screen.shows(r"2x H100[\s\S]*▸ 0 .* \d+W")
            assert b"\x1b[38;2;" in screen.bytes
            assert "⣿" in first
            clock = re.search(r"\d\d:\d\d:\d\d", first)
            assert clock is not None
            await screen.shows(rf"● (?!{clock[0]})\d\d:")
            await screen.type("\x1b[B")
            await screen.shows(r"▸ 1")
            await screen.type("/")
            await screen.shows("filter gpus: ")
            await screen.type("none\r")
            await screen.shows(r'"none"')
            await screen.resize(80, 24)
            await screen.shows(r"gpumon +\S.* · 2x H100[\s\S]*q quit *$")
            (child,) = there.server.children()
            argv = child.cmdline()
            assert argv[3:] == ["demo", "--interval=0.25", "--theme=light", "--scenario=healthy-chat"]
            assert key not in " ".join([*argv, *child.environ(), *child.environ().values()])
            assert "GPUMON_WEB_KEY" not in child.environ()
        await there.ended()


async def test_connections_without_the_key_make_room_for_one_with_it(tmp_path: Path) -> None:
    """Other users of the host reach the port: what they open and leave must not take all files of the server."""
    async with served(tmp_path, *SMALL) as there, contextlib.AsyncExitStack() as stack:
        port = int(there.url.rstrip("/").rpartition(":")[2])
        asked = b"GET /page.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        async with there.tab() as socket:
            await Screen(socket).shows(SMALL_FIGURES)
            for number in range(3 * MOST_CONNECTIONS):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                stack.callback(writer.close)
                writer.write((b"", b"GET / HT", asked)[number % 3])
            async with there.session.get(there.url) as page:
                assert page.status == 200
            await until(lambda: open_connections(there.server) <= MOST_CONNECTIONS + 1)
            async with there.tab() as another:
                await Screen(another).shows(SMALL_FIGURES)
            await socket.send_json(["stdin", "?"])
            assert not socket.closed


async def test_whoever_asks_for_files_and_reads_nothing_keeps_none_open(tmp_path: Path) -> None:
    """More than the buffers of a socket hold: the server waits for its reader, until others take its place."""
    asked = 20 * b"GET /static/js/textual.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    async with served(tmp_path, *SMALL) as there:
        port = int(there.url.rstrip("/").rpartition(":")[2])
        async with there.session.get(there.url) as page:
            assert page.status == 200
        before = there.server.num_fds()
        with contextlib.ExitStack() as stack:
            for _ in range(2 * MOST_CONNECTIONS):
                reader = stack.enter_context(socket.socket())
                reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
                reader.settimeout(5.0)  # a server that is held up accepts nobody
                reader.connect(("127.0.0.1", port))
                reader.sendall(asked)
                await asyncio.sleep(0.005)
            async with there.session.get(there.url) as page:
                assert page.status == 200
        await until(lambda: there.server.num_fds() <= before)


async def test_what_is_no_request_is_not_told_in_the_terminal(tmp_path: Path) -> None:
    """The server writes nothing until it ends, which `running` looks at."""
    async with served(tmp_path, *SMALL) as there:
        port = int(there.url.rstrip("/").rpartition(":")[2])
        for sent in (b"no request\r\n\r\n", b"GET / HTTP/1.1\r\nHost: \0\r\n\r\n", b"GET " + 20_000 * b"a"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.closing(writer):
                writer.write(sent)
                assert b" 400 Bad Request" in await reader.readline()


def open_connections(server: psutil.Process) -> int:
    """Connections that the server holds open."""
    return sum(each.status == psutil.CONN_ESTABLISHED for each in server.net_connections("tcp"))


async def test_what_a_tab_sends_is_bounded_and_a_strange_message_costs_its_own_tab_alone(shared: Served) -> None:
    there = shared
    async with there.tab("width=x&height=-5") as good:
        screen = Screen(good)
        await screen.resize(120, 40)
        await screen.shows(SMALL_FIGURES)
        for bad in (
            '{"not": "a list"}',
            "[]",
            "no JSON",
            '["resize", {}]',
            '["resize", {"width": "1e9x"}]',
            '["resize", {"width": 1e999, "height": 1}]',
            "[" * 50_000,
            '["stdin", 5]',
        ):
            async with there.tab() as socket:
                await socket.send_str(bad)
                await closed(socket)
        await there.ended(1)
        await good.send_json(["resize", {"width": 10**9, "height": 3}])
        await screen.resize(120, 40)
        assert len(await screen.shows(SMALL_FIGURES)) < MOST_COLUMNS * 41
    await there.ended()


@each_row(("cells", "bounded"), [(-5, 1), (0, 1), (80, 80), (1000, 1000), (1001, 1000), (10**9, 1000)])
def test_a_browser_asks_for_a_screen_of_bounded_size(cells: int, bounded: int) -> None:
    assert _bounded(cells) == bounded


SIZED: Final = """
import sys, time
from textual.app import App
from textual.binding import Binding
from gpumon.tui.browser import BrowserDriver

class Slow(BrowserDriver):
    def stop_application_mode(self):
        super().stop_application_mode()
        time.sleep(0.3)  # a busy machine: the reader of keys has ended before the screen has

class Sized(App):
    BINDINGS = [Binding("q", "leave", priority=True)]

    def get_default_screen(self):
        time.sleep(0.3)  # a busy machine: what the page sent is read before the screen starts
        return super().get_default_screen()

    def action_leave(self):
        self.exit(self.size)

print(*Sized(driver_class=Slow).run(), file=sys.stderr)
"""


def test_a_size_that_comes_while_the_screen_starts_is_not_overtaken_by_the_first_one(tmp_path: Path) -> None:
    size = json.dumps({"type": "resize", "width": 120, "height": 40}).encode()
    env = environment(tmp_path, COLUMNS="80", ROWS="1")
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", SIZED], env=env, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        process.stdin.write(AppService.encode_packet(b"M", size) + AppService.encode_packet(b"D", b"q"))
        process.stdin.flush()
        try:
            process.wait(WAIT_S)
        finally:
            process.kill()
        assert process.stderr is not None
        assert process.stderr.read() == b"120 40\n"


async def test_only_pages_of_its_own_with_the_key_may_talk_to_it(shared: Served) -> None:
    there = shared
    async with aiohttp.ClientSession() as stranger:
        own = there.url.rstrip("/")
        refused: tuple[Mapping[str, str], ...] = (
            {"Origin": "https://evil.example"},
            {"Origin": "http://127.0.0.1:1"},
            {"Origin": "null"},
            {"Host": "evil.example"},
            {"Host": "evil.example:8484", "Origin": "http://evil.example:8484"},
            {"Host": "127.0.0.1.evil.example"},
            {"Host": "["},
            {"Host": "127.0.0.1:abc"},
            {"Host": f"evil@{own.rpartition('/')[2]}"},
            {"Host": "127.0.0.1; script-src *"},
        )
        for headers in refused:
            with pytest.raises(aiohttp.WSServerHandshakeError) as error:
                await there.tab(**headers)
            assert error.value.status == 403, headers
        for path in ("ws/", "ws/wrong", "ws/%FF", f"ws/{there.key}x", "ws/none?key=" + there.key, "ws"):
            async with stranger.get(there.url + path, cookies={"key": there.key}) as page:
                assert page.status in (403, 404), path
        assert not there.server.children()
        async with there.tab(Origin=own) as socket:
            await until(lambda: bool(there.server.children()))
            assert not socket.closed
        await there.ended()


async def test_no_cookie_is_set_and_the_key_is_in_nothing_that_is_served(shared: Served) -> None:
    for path in ("", "page.js", "static/js/textual.js", f"?key={shared.key}"):
        async with shared.session.get(shared.url + path) as page:
            assert page.status == 200, path
            assert "Set-Cookie" not in page.headers
            assert shared.key not in await page.text() + str(page.headers)


async def test_a_strange_request_is_answered_and_leaves_no_trace(shared: Served) -> None:
    """The server of the module writes nothing more, which its end shows."""
    host, _, port = shared.url.split("/")[2].partition(":")
    own_host = f"Host: {host}:{port}".encode()
    for headers in (
        (b"Host: 127.0.0.1:abc",),
        (b"Host: 127.0.0.1:99999",),
        (b"Host: evil@127.0.0.1",),
        (own_host, b"Cookie: gpumon-0=\xff"),
    ):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"\r\n".join((b"GET /ws/%FF HTTP/1.1", *headers, b"Connection: close", b"", b"")))
        answer = await asyncio.wait_for(reader.read(), WAIT_S)
        writer.close()
        await writer.wait_closed()
        assert re.match(rb"HTTP/1\.1 4\d\d ", answer), (headers, answer)
        assert b"evil" not in answer


async def test_the_page_asks_nobody_else_and_is_in_no_frame(shared: Served) -> None:
    async with shared.session.get(shared.url) as page:
        text = await page.text()
        headers = page.headers
    assert not re.findall(r"(?:https?:)?//[a-z]", text)
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self';")
    named = re.findall(r'(?:src|href)="([^":]+)"|url\("([^"]+)"\)', text)
    assert len(named) == 4
    for one in named:
        async with shared.session.get(shared.url + "".join(one)) as part:
            assert part.status == 200, one
    async with shared.session.get(shared.url + "static/") as listing:
        assert listing.status in (403, 404)


async def test_tabs_are_counted_and_those_that_go_before_they_show_anything_leave_no_process(shared: Served) -> None:
    there = shared
    async with contextlib.AsyncExitStack() as open_tabs:
        for _ in range(MOST_TABS):
            await open_tabs.enter_async_context(there.tab())
        with pytest.raises(aiohttp.WSServerHandshakeError) as error:
            await there.tab()
        assert error.value.status == 503
        async with there.session.get(there.url) as page:
            assert (page.status, "8 tabs are open" in await page.text()) == (503, True)
        assert len(there.server.children()) == MOST_TABS
    await there.ended()


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
async def test_the_end_of_the_server_ends_its_processes(tmp_path: Path, how: signal.Signals) -> None:
    """Whether the screen is shown already or not."""
    async with served(tmp_path, *SMALL) as there, there.tab() as socket:
        if how in (signal.SIGTERM, signal.SIGKILL):
            await Screen(socket).shows("gpumon")
        await until(lambda: bool(there.server.children()))
        below = there.server.children(recursive=True)
        there.process.send_signal(how)
        code = await asyncio.to_thread(there.process.wait, WAIT_S)
        assert code == (-how if how == signal.SIGKILL else 0)
        await until(lambda: not any(alive(process) for process in below))


def alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


async def test_a_process_that_ends_by_itself_closes_its_tab(shared: Served) -> None:
    there = shared
    async with there.tab() as socket:
        screen = Screen(socket)
        await screen.shows("gpumon")
        await screen.type("q")
        await closed(socket)
    await there.ended()
    async with there.tab() as socket:
        await Screen(socket).shows("gpumon")
        (child,) = there.server.children()
        child.kill()
        await closed(socket)
    await there.ended()


async def closed(socket: aiohttp.ClientWebSocketResponse) -> None:
    async def drained() -> None:
        async for _ in socket:
            pass

    await asyncio.wait_for(drained(), WAIT_S)
    assert socket.closed


def refusal(folder: Path, *options: str, code: str = "", **variables: str) -> str:
    """The one line on stderr of a command that is refused, with nothing served."""
    environ = environment(folder, **variables)
    arguments = ("web", "--demo", *options)
    if code:
        command = [sys.executable, "-c", code, *arguments]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=WAIT_S)
    else:
        done = run_gpumon(*arguments, env=environ)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done
    return done.stderr


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "192.0.2.7:8484", "gpu-07:8484"])
def test_another_address_than_loopbacks_is_refused(tmp_path: Path, address: str) -> None:
    said = refusal(tmp_path, "--listen", address)
    assert said.startswith(f"gpumon: --listen: {address} is no loopback address")
    assert "ssh -L" in said
    assert "--allow-remote" in said


async def test_with_allow_remote_it_warns(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gpumon", "web", "--demo", "--allow-remote", "--listen", "0.0.0.0:0"]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=environment(tmp_path))
    assert process.stdout is not None
    try:
        warning = await asyncio.wait_for(process.stdout.readline(), WAIT_S)
        link = await asyncio.wait_for(process.stdout.readline(), WAIT_S)
    finally:
        process.terminate()
        await process.wait()
    assert warning.startswith(b"warning: 0.0.0.0 is no loopback address, and this is plain HTTP")
    assert re.match(rb"gpumon is at http://[^/]+:\d+/#key=\S{32}\n", link)


MISSING: Final = """
import sys
sys.modules["textual_serve"] = None  # as Python itself marks a module that is not there
from gpumon.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_without_the_extra_it_says_how_to_install_it(tmp_path: Path) -> None:
    said = refusal(tmp_path, "--listen", "127.0.0.1:0", code=MISSING)
    assert "textual-serve, which is not installed: pipx inject gpumon-llm textual-serve (docs/web.md)" in said


def test_what_is_wrong_is_said_before_anything_is_served(tmp_path: Path) -> None:
    for address in ("8484", "foo", "127.0.0.1:x", "127.0.0.1:99999"):
        said = refusal(tmp_path, "--listen", address)
        assert f"{address!r} must be address:port, such as 127.0.0.1:8484 or [::1]:8484" in said
    assert "--public-url: must be the URL" in refusal(tmp_path, "--public-url", "ftp://a")
    short = refusal(tmp_path, GPUMON_WEB_KEY="pass word")
    assert "GPUMON_WEB_KEY: must have at least 16" in short
    assert "pass word" not in short
    assert "no-such-theme" in refusal(tmp_path, "--theme", "no-such-theme")


def test_a_port_that_is_taken_is_named(tmp_path: Path, link: tuple[Started, str]) -> None:
    address = link[1].split("/")[2]
    said = refusal(tmp_path, "--listen", address)
    assert f"--listen: {address} cannot be listened at: Address already in use" in said


def chosen(*words: str) -> argparse.Namespace:
    return parse_command_line(["web", *words])[0]


def test_a_tab_runs_the_options_chosen() -> None:
    words = ("--endpoint", "http://a:1/x;rm -rf /", "--endpoint=b:2", "--prometheus", "http://p:9090", "--no-nvml")
    argv = screen_command(chosen(*words, "--config", "a b.toml", "--listen", "127.0.0.1:1", "--allow-remote"))
    assert argv[0] == sys.executable
    assert set(argv[3:]) == {
        "--endpoint=http://a:1/x;rm -rf /",
        "--endpoint=b:2",
        "--prometheus=http://p:9090",
        "--no-nvml",
        "--config=a b.toml",
    }
    again, command = parse_command_line(argv[3:])
    assert (command, again.endpoint) == ("", ["http://a:1/x;rm -rf /", "b:2"])
    simulated, command = parse_command_line(screen_command(chosen("--demo", "--scenario", "thermal", *words))[3:])
    assert (command, simulated.scenario, hasattr(simulated, "prometheus")) == ("demo", "thermal", False)


def test_a_module_in_the_working_folder_is_not_that_of_a_tab(tmp_path: Path) -> None:
    """As in /tmp, where any user can put one."""
    (tmp_path / "gpumon").mkdir()
    for module in ("gpumon/__init__.py", "gpumon/__main__.py", "argparse.py", "msgspec.py"):
        (tmp_path / module).write_text("print('planted')\n")
    command = [*screen_command(chosen()), "--version"]
    ran = subprocess.run(command, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, check=True)
    assert ran.stdout == f"gpumon {__version__}\n"


def test_loopback_is_what_no_other_host_reaches() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.8.8.8", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "localhost.example", "gpu-07", "")))


def test_names_behind_a_proxy_and_on_the_network() -> None:
    proxied = Admission("k", (), public_url("https://gpu.example.com/gpumon/"))
    assert proxied.public_url == "https://gpu.example.com/gpumon"
    good = ("gpu.example.com", "127.0.0.1:8484", "localhost:9000", "[::1]:8484")
    assert not any(proxied.refusal({"Host": host, "Origin": "https://gpu.example.com"}) for host in good)
    assert proxied.refusal({"Host": "gpu.example.com", "Origin": "https://gpu.example.com.evil"})
    assert proxied.refusal({"Host": "10.0.0.5:8484"})
    remote = Admission("k", ("0.0.0.0", "gpu-07"), "")
    assert not any(remote.refusal({"Host": host}) for host in ("10.0.0.5:8484", "[fd00::7]:8484", "GPU-07:8484"))
    assert remote.refusal({"Host": "evil.example:8484"})
    for wrong in (
        "gpu.example.com",
        "https://u:p@gpu",
        "https://gpu?x",
        "https://gpu x",
        "https://gpu:99999",
        "https://gpu:0",
    ):
        with pytest.raises(ConfigError):
            public_url(wrong)
