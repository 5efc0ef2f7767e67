"""Runs of the `gpumon` command in processes of its own, without the third of a second that loading it takes.

`run_gpumon` asks a process that has loaded the commands to fork one for each run: with its own arguments, environment,
folder, stdin, stdout and stderr, and with the exit that an interpreter makes. A test of the start itself, of signals,
or of a terminal starts the program.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any, Final, NamedTuple

LOADED: Final = ("gpumon.cli", "gpumon.session", "gpumon.tui.terminal", "gpumon.sources.fetch")
"""Modules that are loaded before the first run, besides all commands."""
MOST_BYTES: Final = 1 << 20
"""Largest request: arguments and environment."""
AT_START: Final = ("LD_PRELOAD", "MALLOC_", "PYTHONIOENCODING", "PYTHONPATH", "PYTHONUTF8")
"""Beginnings of variables that a process reads as it starts. LD_LIBRARY_PATH is for the driver's worker, which is
started by the run.
"""

_spent_s = 0.0


class Run(NamedTuple):
    """One run that is asked for."""

    arguments: list[str]
    environ: dict[str, str]
    folder: str


def spent_s() -> float:
    """Processor seconds of all runs so far."""
    return _spent_s


def run_gpumon(
    *arguments: str,
    env: Mapping[str, str] | None = None,
    text: str = "",
    stdout: int | None = None,
    cwd: object = None,
    timeout_s: float = 60.0,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, `text` on its stdin; `stdout` is a descriptor. Raises TimeoutExpired."""
    environ = dict(os.environ if env is None else env)
    if _differs_at_start(environ):
        return _run_program(arguments, environ, text, stdout, cwd, timeout_s)
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        stdin, out, err = files
        stdin.write(text.encode())
        stdin.seek(0)
        descriptors = [stdin.fileno(), out.fileno() if stdout is None else stdout, err.fileno()]
        run = Run(list(arguments), environ, str(cwd or os.getcwd()))  # noqa: PTH109
        code = _loaded().run(run, descriptors, timeout_s)
        return subprocess.CompletedProcess(list(arguments), code, _read(out), _read(err))


def _differs_at_start(environ: Mapping[str, str]) -> bool:
    """Whether a variable differs that a process reads as it starts: a fork would not see it."""
    names = {name for name in (*environ, *os.environ) if name.startswith(AT_START)}
    return any(environ.get(name) != os.environ.get(name) for name in names)


def _run_program(
    arguments: Sequence[str],
    environ: Mapping[str, str],
    text: str,
    stdout: int | None,
    cwd: object,
    timeout_s: float,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpumon", *arguments],
        env=environ,
        input=text,
        stdout=subprocess.PIPE if stdout is None else stdout,
        stderr=subprocess.PIPE,
        cwd=None if cwd is None else str(cwd),
        text=True,
        timeout=timeout_s,
        check=False,
    )


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    # As in text mode of `subprocess`.
    return file.read().decode().replace("\r\n", "\n")


class Loaded:
    """The process that has loaded the commands."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MOST_BYTES)
        command = [sys.executable, "-m", "tests.program", str(theirs.fileno())]
        self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        theirs.close()

    def run(self, run: Run, descriptors: list[int], timeout_s: float) -> int:
        """Exit code of a run; negative: the number of the signal that ended it."""
        global _spent_s
        socket.send_fds(self._socket, [json.dumps(run).encode()], descriptors)
        pid = int(self._socket.recv(64))
        self._socket.settimeout(timeout_s)
        try:
            answer = self._socket.recv(256)
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            self._socket.settimeout(None)
            self._socket.recv(256)
            raise subprocess.TimeoutExpired(run.arguments, timeout_s) from None
        self._socket.settimeout(None)
        code, processor_s = json.loads(answer)
        _spent_s += processor_s
        return int(code)

    def close(self) -> None:
        """End the process."""
        self._socket.close()
        self._process.wait(60.0)


_LOADED: list[Loaded] = []


def _loaded() -> Loaded:
    if not _LOADED:
        _LOADED.append(Loaded())
    return _LOADED[0]


def close() -> None:
    """End the process that has the commands, where there is one."""
    while _LOADED:
        _LOADED.pop().close()


def load() -> None:
    """Import what the commands import."""
    commands = importlib.import_module("gpumon.commands")
    names = [module.name for module in pkgutil.iter_modules(commands.__path__, "gpumon.commands.")]
    for name in (*LOADED, *names):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


def serve(asked: socket.socket) -> list[str] | None:
    """Fork a process for each run that is asked for. Returns its arguments in that process, None at the end."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(asked, MOST_BYTES, 3)
        if not message:
            return None
        run = Run(*json.loads(message))
        pid = os.fork()
        if pid == 0:
            asked.close()
            become(run, descriptors)
            return run.arguments
        asked.send(str(pid).encode())
        for descriptor in descriptors:
            os.close(descriptor)
        _, status, usage = os.wait4(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        asked.send(json.dumps([code, usage.ru_utime + usage.ru_stime]).encode())


def become(run: Run, descriptors: Sequence[int]) -> None:
    """Take over folder, environment, and standard files of a run."""
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(run.folder)
    os.environ.clear()
    os.environ.update(run.environ)
    time.tzset()
    sys.argv = ["gpumon", *run.arguments]
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = _text(1, "strict")
    sys.stderr = _text(2, "backslashreplace")


def _text(descriptor: int, errors: str) -> Any:
    """A standard file of text, as the interpreter opens it."""
    return open(descriptor, "w", encoding="utf-8", errors=errors, closefd=False)


def main() -> None:
    """Serve runs on the socket whose descriptor is the argument."""
    asked = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(asked.fileno(), False)
    load()
    arguments = serve(asked)
    if arguments is not None:
        from gpumon.cli import main as run_command

        sys.exit(run_command())


if __name__ == "__main__":
    main()
