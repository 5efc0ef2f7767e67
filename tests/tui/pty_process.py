"""A program in a terminal of its own: what it writes, what it costs, what it leaves behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pyte

from tests import program

ROOT = Path(__file__).resolve().parents[2]


class PtyProcess:
    """A child with a pseudo terminal as its controlling terminal."""

    def __init__(self, arguments: list[str], width: int, height: int, *, loaded: bool = False, **environ: str) -> None:
        """`loaded`: a fork of the process that has loaded the commands, where that is the same (tests/program.py)."""
        self.written = b""
        self.started_s = time.monotonic()
        settings = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8", **environ}
        kept = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "LC_ALL", "LC_CTYPE")}
        master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        self.modes = termios.tcgetattr(slave)
        self._fork: program.Process | None = None
        run = program.loaded_run(arguments, kept | settings, ROOT) if loaded else None
        if run is not None:
            self._fork = program.Process(run._replace(in_terminal=True), [slave, slave, slave])
            self.pid = self._fork.pid
        else:
            self.pid = os.fork()
            if self.pid == 0:
                os.close(master)
                os.login_tty(slave) if hasattr(os, "login_tty") else _login(slave)
                os.chdir(ROOT)
                os.execve(arguments[0], arguments, kept | settings)
        os.close(slave)
        self.master = master
        self._glass = pyte.Screen(max(1, width), max(1, height))
        self._stream = pyte.ByteStream(self._glass)
        self._fed = 0

    def read(self, seconds: float, until: Callable[[bytes], bool] | None = None) -> bytes:
        """Take what the program writes for some time, or until a condition holds; returns all that was ever written."""
        end_s = time.monotonic() + seconds
        while (left_s := end_s - time.monotonic()) > 0 and not (until is not None and until(self.written)):
            ready, _, _ = select.select([self.master], [], [], min(left_s, 0.05))
            if ready:
                try:
                    chunk = os.read(self.master, 1 << 16)
                except OSError:
                    break
                if not chunk:
                    break
                self.written += chunk
        return self.written

    def text(self) -> str:
        """The screen as text, at the size that it began with; what was shown once is not parsed again."""
        self._stream.feed(self.written[self._fed :])
        self._fed = len(self.written)
        return "\n".join(self._glass.display)

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self.master, keys)

    def resize(self, width: int, height: int) -> None:
        """Another size; the kernel sends SIGWINCH."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def modes_now(self) -> list[object]:
        """The terminal's line settings at this moment."""
        return termios.tcgetattr(self.master)

    def cpu_s(self) -> float:
        """CPU seconds of all its threads, from the scheduler's own nanosecond counters."""
        total = 0
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            with contextlib.suppress(OSError):
                total += int((task / "schedstat").read_text().split()[0])
        return total / 1e9

    def hang_up(self) -> None:
        """Close the terminal under the program."""
        os.close(self.master)
        self.master = -1

    def wait(self, seconds: float, *, reads: bool = True) -> int | None:
        """Its exit code (negative: the signal that killed it), or None where it still runs after that time; `reads`:
        what it writes is taken meanwhile."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            code = self._exit_code()
            if code is not None:
                self.pid = 0
                if reads and self.master >= 0:
                    self.read(0.1)  # what it wrote last may still lie in the terminal's buffer
                return code
            if reads and self.master >= 0:
                self.read(0.02)
            else:
                time.sleep(0.02)
        return None

    def _exit_code(self) -> int | None:
        """Its exit code, if it has ended."""
        if self._fork is not None:
            return self._fork.poll()
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None

    def close(self) -> None:
        """End it whatever it does."""
        if self._fork is not None:
            self._fork.kill()
            self._fork.wait()
        elif self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        self.pid = 0
        if self.master >= 0:
            os.close(self.master)
            self.master = -1


def _login(slave: int) -> None:
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    for descriptor in (0, 1, 2):
        os.dup2(slave, descriptor)
    if slave > 2:
        os.close(slave)


def screen(width: int, height: int, *arguments: str, **environ: str) -> PtyProcess:
    """The real screen on a made-up feed (tests/tui/screen_driver.py)."""
    command = [sys.executable, "-m", program.SCREEN_DRIVER, *arguments]
    return PtyProcess(command, width, height, loaded=True, **environ)
