"""Runs of the `gpumon` command in processes of its own, without the third of a second that loading it takes.

`run_gpumon` and `Process` ask a process that has loaded the commands to fork one for each run: with its own arguments,
environment, folder, stdin, stdout and stderr, in a terminal of its own if that is asked for, and with the exit code and
the last words that an interpreter has. A test of the start itself, or of what is read from a command line, starts the
program.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import importlib
import io
import json
import os
import pkgutil
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, NamedTuple, NoReturn, TypeAlias

import psutil

NOT_LOADED: Final = ("gpumon.__main__", "gpumon.sources.amd", "gpumon.web.server")
"""Modules that a run imports for itself: the first one runs a command, the second one needs AMD's library, the third
one takes 0.2 s and is needed by `gpumon web` alone.
"""
LOADED: Final = (
    "anyio._backends._asyncio",
    "certifi",
    "concurrent.futures.thread",
    "encodings.idna",
    "httpcore",
    "httpx",
    "importlib.readers",
    "psutil",
)
"""Modules of others that commands import as they run. They are loaded before the first run, besides all of gpumon."""
COMMANDS: Final = "gpumon.cli"
"""Module whose `main` runs a command."""
SCREEN_DRIVER: Final = "tests.tui.screen_driver"
"""Module whose `main` runs the screen on a made-up feed."""
DRIVER_PROGRAM: Final = "tests.fakes.nvml.forked"
"""Module whose `main` runs a program on the driver library, or a driver's worker."""
LOADED_FOR: Final = {COMMANDS: (), SCREEN_DRIVER: ("tests.tui.scenes", "tests.tui.feed"), DRIVER_PROGRAM: ()}
"""Modules that can be run, and what each of them imports when it runs."""
MOST_BYTES: Final = 1 << 20
"""Largest request: arguments and environment."""
AT_START: Final = ("LD_PRELOAD", "MALLOC_", "PYTHONIOENCODING", "PYTHONPATH", "PYTHONUTF8")
"""Beginnings of variables that a process reads as it starts. LD_LIBRARY_PATH is for the driver's worker, which is
started by the run.
"""
LOCALE: Final = ("LC_ALL", "LC_CTYPE", "LANG")
"""Variables of the locale, of which the first that is set decides."""
UTF_8: Final = ("", "c.utf-8", "en_us.utf-8")
"""Locales in which a fork has the same encodings as an interpreter that starts."""

LOST_OUTPUT: Final = 120
"""Exit code of an interpreter that could not write the rest of its output."""

PEER: Final = struct.Struct("3i")
"""Process, user and group at the other end of a connection."""

_spent_s = 0.0


class Run(NamedTuple):
    """One run that is asked for."""

    arguments: list[str]
    environ: dict[str, str]
    folder: str
    module: str = COMMANDS
    """Its `main` is called."""
    in_terminal: bool = False
    """stdin is the controlling terminal of a session of its own."""
    in_session: bool = False
    """It is in a session of its own, without a terminal."""


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
    if differs_at_start(environ):
        return _run_program(arguments, environ, text, stdout, cwd, timeout_s)
    return completed(Run(list(arguments), environ, str(cwd or Path.cwd())), text, stdout, timeout_s)


def run_here(*arguments: str, env: Mapping[str, str], text: str = "", cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command to its end in this process, `text` on its stdin: where its process is not what is tested."""
    commands = importlib.import_module(COMMANDS)
    files = [io.TextIOWrapper(io.BytesIO(said), encoding="utf-8") for said in (text.encode(), b"", b"")]
    _, out, err = files
    folder = Path.cwd()
    environ = dict(os.environ)
    standard = (sys.stdin, sys.stdout, sys.stderr)
    try:
        _enter(env, cwd)
        sys.stdin, sys.stdout, sys.stderr = files
        code = commands.main(arguments)
    finally:
        sys.stdin, sys.stdout, sys.stderr = standard
        _enter(environ, folder)
    return subprocess.CompletedProcess(list(arguments), code, _said(out), _said(err))


def _enter(environ: Mapping[str, str], folder: Path) -> None:
    """Take over a folder and an environment."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)


def _said(stream: io.TextIOWrapper) -> str:
    """All that was written to a stream in memory."""
    stream.flush()
    stream.seek(0)
    return stream.read()


def completed(
    run: Run, text: str = "", stdout: int | None = None, timeout_s: float = 60.0
) -> subprocess.CompletedProcess[str]:
    """A run at its end, `text` on its stdin; `stdout` is a descriptor. Raises TimeoutExpired."""
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        stdin, out, err = files
        stdin.write(text.encode())
        stdin.seek(0)
        descriptors = [stdin.fileno(), out.fileno() if stdout is None else stdout, err.fileno()]
        with Process(run, descriptors) as process:
            code = _exit_code(process, timeout_s)
        return subprocess.CompletedProcess(run.arguments, code, _read(out), _read(err))


def _exit_code(process: Process, timeout_s: float) -> int:
    """Its exit code. On a busy machine it may take longer than `timeout_s`, as long as it computes: raises
    TimeoutExpired where it used less than a second of a processor in `timeout_s`, or more than `timeout_s` in all."""
    used_s = 0.0
    while True:
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:  # noqa: PERF203
            times = psutil.Process(process.pid).cpu_times()
            before_s = used_s
            used_s = times.user + times.system
            if used_s - before_s < 1.0 or used_s > timeout_s:
                raise


def loaded_run(command: Sequence[str], environ: Mapping[str, str], folder: object = None) -> Run | None:
    """The run that a fork can make of a command line; None if the program has to start."""
    program, *words = command
    module = ""
    if Path(program) == Path(sys.executable).with_name("gpumon"):
        module = COMMANDS
    elif program == sys.executable and words[:2] == ["-m", "gpumon"]:
        module = COMMANDS
        words = words[2:]
    elif program == sys.executable and words[:2] == ["-m", SCREEN_DRIVER]:
        module = SCREEN_DRIVER
        words = words[2:]
    locale = next((environ[name] for name in LOCALE if environ.get(name)), "")
    if not module or differs_at_start(environ) or locale.lower() not in UTF_8:
        return None
    return Run(words, dict(environ), str(folder or Path.cwd()), module)


def user_environment(home: Path, **more: str) -> dict[str, str]:
    """Environment of a user at home in an empty folder: no config, no profiles, no setting of the caller."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GPUMON_", "XDG_"))}
    return {**kept, "HOME": str(home), **more}


def started(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    stdin: int | None = subprocess.DEVNULL,
    stdout: int | IO[Any] | None = None,
    stderr: int | IO[Any] | None = None,
) -> Started:
    """A command line as `Popen` starts it, by a fork where that is the same; its pipes are text."""
    environ = dict(os.environ if env is None else env)
    run = loaded_run(command, environ)
    if run is None:
        return subprocess.Popen(command, env=environ, stdin=stdin, stdout=stdout, stderr=stderr, text=True)
    pipes: list[IO[str] | None] = []
    theirs: list[int] = []
    closed: list[int] = []
    for number, wanted in enumerate((stdin, stdout, stderr)):
        pipe = None
        if wanted is None:
            theirs.append(number)
        elif wanted == subprocess.STDOUT:
            theirs.append(theirs[1])
        elif wanted == subprocess.DEVNULL:
            theirs.append(os.open(os.devnull, os.O_RDWR))
            closed.append(theirs[-1])
        elif wanted == subprocess.PIPE:
            assert number, "a command that reads a pipe is no case of the tests"
            ours, end = os.pipe()
            pipe = open(ours, encoding="utf-8")  # noqa: PTH123, SIM115
            theirs.append(end)
            closed.append(end)
        else:
            theirs.append(wanted if isinstance(wanted, int) else wanted.fileno())
        pipes.append(pipe)
    process = Process(run, theirs, stdout=pipes[1], stderr=pipes[2])
    for descriptor in closed:
        os.close(descriptor)
    return process


Started: TypeAlias = "Process | subprocess.Popen[str]"


def differs_at_start(environ: Mapping[str, str]) -> bool:
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


class Process:
    """A run that goes on, with the methods of `Popen`."""

    def __init__(
        self,
        run: Run,
        descriptors: Sequence[int],
        *,
        stdin: IO[bytes] | None = None,
        stdout: IO[Any] | None = None,
        stderr: IO[Any] | None = None,
    ) -> None:
        """`descriptors`: its stdin, stdout and stderr. `stdin`, `stdout`, `stderr`: the other ends of their pipes."""
        self.args = run.arguments
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
        self.returncode: int | None = None
        self._report, theirs = os.pipe()
        self.pid = _loaded().start(run, [*descriptors, theirs])
        os.close(theirs)

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, place: TracebackType | None
    ) -> None:
        self.kill()
        self.wait()
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe is not None:
                pipe.close()

    def poll(self) -> int | None:
        """Its exit code (negative: the number of the signal that ended it); None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0.0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended. Raises TimeoutExpired."""
        global _spent_s
        if self.returncode is not None:
            return self.returncode
        ready, _, _ = select.select([self._report], [], [], timeout)
        if not ready:
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        code, processor_s = json.loads(os.read(self._report, 256))
        os.close(self._report)
        _spent_s += processor_s
        self.returncode = int(code)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended, and that is not told yet
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What is left to read of its pipes, once it has ended. Raises TimeoutExpired."""
        read = ["", ""]
        readers = []
        for number, pipe in enumerate((self.stdout, self.stderr)):
            if pipe is not None:
                readers.append(threading.Thread(target=_read_all, args=(pipe, read, number)))
        for reader in readers:
            reader.start()
        self.wait(timeout)
        for reader in readers:
            reader.join()
        out, err = read
        return out, err


def _read_all(pipe: IO[str], read: list[str], number: int) -> None:
    """Put what a pipe has into its place, and close it."""
    with pipe:
        read[number] = pipe.read()


class Server:
    """The process that has loaded the commands; it forks one for each process of the tests that connects to it.

    It ends when its stdin is closed, by `close` or with the process of the tests that has started it.
    """

    def __init__(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
            listening.bind("")
            listening.listen()
            self.address: bytes = listening.getsockname()
            descriptor = listening.fileno()
            command = [sys.executable, "-m", "tests.program", str(descriptor)]
            self._process = subprocess.Popen(command, pass_fds=[descriptor], stdin=subprocess.PIPE)

    def close(self) -> None:
        """End it."""
        self._process.communicate(timeout=60.0)


class Loaded:
    """The process that has loaded the commands, as one process of the tests asks it."""

    def __init__(self, address: bytes) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MOST_BYTES)
        self._socket.connect(address)
        self._one_at_a_time = threading.Lock()

    def start(self, run: Run, descriptors: list[int]) -> int:
        """Process of a run; the last descriptor gets its exit code and its processor seconds, once it has ended."""
        with self._one_at_a_time:
            socket.send_fds(self._socket, [json.dumps(run).encode()], descriptors)
            return int(self._socket.recv(64))

    def close(self) -> None:
        """End all that runs."""
        with self._socket:
            self._socket.shutdown(socket.SHUT_WR)
            self._socket.settimeout(60.0)
            self._socket.recv(1)


_SERVERS: list[Server] = []
"""The server of this process, unless it shares one."""
_ADDRESSES: list[bytes] = []
"""Where the server listens."""
_LOADED: list[Loaded] = []


def share(address: bytes) -> None:
    """Ask the server that listens there, and start none."""
    _ADDRESSES[:] = [address]


def address() -> bytes:
    """Where the server listens; it is started if there is none."""
    if not _ADDRESSES:
        _SERVERS.append(Server())
        share(_SERVERS[0].address)
    return _ADDRESSES[0]


def _loaded() -> Loaded:
    if not _LOADED:
        _LOADED.append(Loaded(address()))
    return _LOADED[0]


def close() -> None:
    """End what this process has run, and its server."""
    while _LOADED:
        _LOADED.pop().close()
    while _SERVERS:
        _SERVERS.pop().close()
        _ADDRESSES.clear()


def load(names: Sequence[str]) -> None:
    """Import modules, to stay as they are in all forks."""
    for name in names:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


def all_of_gpumon() -> list[str]:
    """Names of the modules of gpumon that any command may need."""
    package = importlib.import_module("gpumon")
    names = [module.name for module in pkgutil.walk_packages(package.__path__, "gpumon.")]
    return [name for name in names if name not in NOT_LOADED]


class Child(NamedTuple):
    """A process that runs, and where its exit code is told."""

    pid: int
    report: int


def accept(listening: socket.socket) -> socket.socket | None:
    """Fork a process for each that connects. Returns the connection in that process, None at the end."""
    while True:
        ready, _, _ = select.select([listening, sys.stdin], [], [])
        if sys.stdin in ready:
            wait_for_all()
            return None
        asked, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, peer(asked)))
            return asked
        asked.close()


def wait_for_all() -> None:
    """Take all forks, so that what they spent counts as spent by who waits for this process."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def peer(asked: socket.socket) -> int:
    """Process at the other end of a connection."""
    credentials = asked.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size)
    pid, _, _ = PEER.unpack(credentials)
    return int(pid)


def serve(asked: socket.socket) -> Run | None:
    """Fork a process for each run that is asked for. Returns the run in that process, None at the end."""
    running: dict[int, Child] = {}
    seen = {COMMANDS}
    while True:
        ready, _, _ = select.select([asked.fileno(), *running], [], [])
        for descriptor in ready:
            if descriptor in running:
                os.close(descriptor)
                tell_end(running.pop(descriptor))
        if asked.fileno() not in ready:
            continue
        message, descriptors, _, _ = socket.recv_fds(asked, MOST_BYTES, 4)
        if not message:
            end(running)
            return None
        run = Run(*json.loads(message))
        if run.module not in seen:
            seen.add(run.module)
            load([run.module, *LOADED_FOR[run.module]])
        *standard, report = descriptors
        pid = os.fork()
        if pid == 0:
            asked.close()
            for descriptor, child in running.items():
                os.close(descriptor)
                os.close(child.report)
            os.close(report)
            become(run, standard)
            return run
        running[os.pidfd_open(pid)] = Child(pid, report)
        asked.send(str(pid).encode())
        for descriptor in standard:
            os.close(descriptor)


def tell_end(child: Child) -> None:
    """Take a process that has ended, and tell its exit code and its processor seconds."""
    _, status, usage = os.wait4(child.pid, 0)
    code = os.waitstatus_to_exitcode(status)
    with contextlib.suppress(BrokenPipeError):
        os.write(child.report, json.dumps([code, usage.ru_utime + usage.ru_stime]).encode())
    os.close(child.report)


def end(running: Mapping[int, Child]) -> None:
    """End all that runs."""
    for child in running.values():
        os.kill(child.pid, signal.SIGKILL)
        tell_end(child)


def become(run: Run, descriptors: Sequence[int]) -> None:
    """Take over folder, environment, and standard files of a run."""
    if run.in_terminal or run.in_session:
        os.setsid()
    if run.in_terminal:
        fcntl.ioctl(descriptors[0], termios.TIOCSCTTY, 0)
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
    sys.__stdin__ = sys.stdin  # type: ignore[misc, assignment]  # Textual takes its terminal from these
    sys.__stdout__ = sys.stdout  # type: ignore[misc, assignment]
    sys.__stderr__ = sys.stderr  # type: ignore[misc, assignment]


def _text(descriptor: int, errors: str) -> Any:
    """A standard file of text, as the interpreter opens it."""
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    buffering = 1 if unbuffered else -1
    return open(descriptor, "w", buffering, encoding="utf-8", errors=errors, closefd=False)


def leave(work: Callable[[], object]) -> NoReturn:
    """Do the work of a run, and end as the interpreter ends, but for taking all modules apart.

    To take them apart is nine tenths of what a short command costs in a fork: it copies the memory of every module.
    Garbage is collected as the interpreter does at its end: what an object says of being left open is on stderr.
    """
    try:
        code = work()
    except SystemExit as ended:
        code = ended.code
    if code is not None and not isinstance(code, int):
        sys.exit(str(code))
    status = int(code or 0)
    threading._shutdown()  # type: ignore[attr-defined]  # as Py_Finalize calls it: it waits for threads
    atexit._run_exitfuncs()
    gc.collect()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        status = LOST_OUTPUT
    os._exit(status)


def main() -> None:
    """Serve runs on the listening socket whose descriptor is the argument."""
    listening = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(listening.fileno(), False)
    load([*LOADED, *all_of_gpumon()])
    asked = accept(listening)
    if asked is None:
        return
    run = serve(asked)
    if run is None:
        os._exit(0)
    leave(importlib.import_module(run.module).main)


if __name__ == "__main__":
    main()
