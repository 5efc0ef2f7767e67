"""Threads of a command that watches share one arena of the C library: each of its own would keep the most it held."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ARENA_BYTES = 64 << 20
"""Address space that glibc reserves for an arena of a thread, at a multiple of its size."""
THREADS = "import sys, threading; threading.Thread(target=sys.stdin.read).start(); print(1, flush=True)"


def arenas(pid: int) -> int:
    """Arenas of threads: memory from a multiple of their size on, with the rest of it reserved behind."""
    found = 0
    begin = end = 0
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        addresses, permissions, *_ = line.split()
        low, high = (int(address, 16) for address in addresses.split("-"))
        if permissions == "---p" and low == end and begin % ARENA_BYTES == 0 and high - begin == ARENA_BYTES:
            found += 1
        begin, end = low, high
    return found


def arenas_of(command: list[str]) -> int:
    """Arenas of a program once it has written a line."""
    program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert program.stdout is not None
        assert program.stdout.readline()
        return arenas(program.pid)
    finally:
        program.kill()
        program.communicate()


def test_threads_of_a_command_that_watches_share_one_arena() -> None:
    gpumon = [sys.executable, "-m", "gpumon", "watch", "--no-nvml", "--endpoint", "http://127.0.0.1:9"]
    assert arenas_of(gpumon) == 0
    assert arenas_of([sys.executable, "-c", THREADS]) == 1, "any other program has one for each thread"
