"""Real processes that look like serving engines: their command lines, their workers' titles, and a page over HTTP."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpumon.readings.frame import GpuProcess, GpuReading, GpuState
from tests.fakes.ports import free_port as free_port  # for the tests that start servers

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = '''
import http.server, json, os, signal, subprocess, sys, threading

told = json.loads(os.environ["TEST_SERVER"])
words = sys.argv[1:]

def option(name, default):
    for at, word in enumerate(words):
        if word == name:
            return words[at + 1]
    return default

class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        with open(told["log"], "a") as log:
            log.write(self.path + "\\n")
        answer = told["pages"].get(self.path, [404, "no"])
        if told["key"] and self.headers.get("Authorization") != "Bearer " + told["key"]:
            answer = [401, "no"]
        body = answer[1].encode()
        self.send_response(answer[0])
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

def worker(title):
    """A shell that waits for its parent's end, with this title; as setproctitle does, it has lost its environment."""
    quiet = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "env": {}}
    return subprocess.Popen([title], executable="/bin/bash", **quiet)

opened = []

def drain():
    """As uvicorn does after SIGTERM: takes no new connection, and ends a little later."""
    signal.sigwait({signal.SIGTERM})
    for each in opened:
        each.shutdown()  # to wait at a closed socket never blocks, and takes all of a processor
        each.socket.close()
    threading.Timer(told["drain_s"], os._exit, (0,)).start()

if told["drain_s"]:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Thread(target=drain, daemon=True).start()

named = [told["port"] or int(option("--port", 0))]

def serve():
    server = http.server.ThreadingHTTPServer((told["address"], named.pop() if named else 0), Page)
    opened.append(server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]

def replay():
    sys.path.insert(0, told["root"])
    from tests.fakes.engine import FakeEngine
    engine = FakeEngine(told["replay"], port=int(option("--port", 0)), start_s=20.0).start()
    return engine.server.port

def play():
    sys.path.insert(0, told["root"])
    from tests.fakes.played import PlayedEngine
    return PlayedEngine(told["play"], int(option("--port", 0))).start()

if told["comm"]:
    with open("/proc/self/comm", "w") as comm:
        comm.write(told["comm"])
workers = [worker(title) for title in told["workers"]]
listen = play if told["play"] else replay if told["replay"] else serve
if told["router"] and not os.fork():
    serve()
    sys.stdin.read()
    os._exit(0)
port = 0 if told["late"] else int(option("--port", 0)) if told["router"] else listen()
print(json.dumps({"server": os.getpid(), "workers": [each.pid for each in workers], "port": port}), flush=True)
for line in sys.stdin:
    if line.startswith("worker "):
        workers.append(worker(line[7:].strip()))
        print(json.dumps({"worker": workers[-1].pid}), flush=True)
        continue
    print(json.dumps({"port": listen()}), flush=True)
'''
"""Opens its port at once, or when a line comes in (`late`), and another one with each further line; ends with its
standard input."""


class Server:
    """A running one."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        assert process.stdout is not None
        self.process = process
        self._log = log
        told = json.loads(process.stdout.readline())
        self.pid: int = told["server"]
        self.workers: list[int] = told["workers"]
        self.port: int = told["port"]

    @property
    def url(self) -> str:
        """Where it listens on loopback."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def asked(self) -> list[str]:
        """The paths that were asked for, in order."""
        return self._log.read_text().splitlines() if self._log.exists() else []

    def open(self) -> None:
        """Open the port of one that was started `late`."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("open\n")
        self.process.stdin.flush()
        self.port = json.loads(self.process.stdout.readline())["port"]

    def add_worker(self, title: str) -> None:
        """Start another worker."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"worker {title}\n")
        self.process.stdin.flush()
        self.workers.append(json.loads(self.process.stdout.readline())["worker"])

    def kill(self) -> None:
        """End it and its workers at once."""
        self.process.kill()
        self.process.communicate()


class Servers:
    """Starts them, under the file names that their real programs have."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[Server] = []

    def start(
        self,
        command: str,
        *options: str,
        workers: Sequence[str] = (),
        pages: dict[str, Any] | None = None,
        replay: str = "",
        play: dict[str, Any] | None = None,
        key: str = "",
        address: str = "127.0.0.1",
        port: int = 0,
        late: bool = False,
        router: bool = False,
        comm: str = "",
        inside: Sequence[str] = (),
        env: dict[str, str] | None = None,
        drain_s: float = 0.0,
    ) -> Server:
        """A console script `command`, or a module where it begins with `-m `; `inside` stands before it.

        `late`: it opens its port when it is told to. `router`: a child listens for it. `play`: arguments of
        `tests.fakes.played`.
        """
        log = self._folder / f"asked-{len(self._running)}"
        told = {"pages": pages or {}, "replay": replay, "key": key, "address": address, "port": port, "late": late}
        told |= {
            "comm": comm,
            "play": play,
            "router": router,
            "drain_s": drain_s,
            "workers": list(workers),
            "log": str(log),
            "root": str(ROOT),
        }
        process = subprocess.Popen(
            [*inside, sys.executable, *self._program(command), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "TEST_SERVER": json.dumps(told), "PYTHONPATH": str(self._folder), **(env or {})},
        )
        self._running.append(Server(process, log))
        return self._running[-1]

    def close(self) -> None:
        """End them all."""
        for server in self._running:
            server.kill()

    def _program(self, command: str) -> list[str]:
        if command.startswith("-m "):
            module = command[3:]
            path = self._folder / f"{module.replace('.', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(PROGRAM)
            return ["-m", module]
        path = self._folder / "bin" / command
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PROGRAM)
        return [str(path)]


@contextmanager
def servers(folder: Path) -> Iterator[Servers]:
    """A starter of servers whose processes all end with the test."""
    made = Servers(folder)
    try:
        yield made
    finally:
        made.close()


def gpus(*pids_of: Sequence[int], kind: str = "compute") -> tuple[GpuReading, ...]:
    """A reading per GPU, with these processes."""
    return tuple(
        GpuReading(i, f"GPU-{i}", "H100", GpuState.OK, 0.0, processes=tuple(GpuProcess(pid, type=kind) for pid in pids))
        for i, pids in enumerate(pids_of)
    )
