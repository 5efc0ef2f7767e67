"""Daemon threads for what may hang: results, errors, and an exit that waits for none of them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import pytest

from gpumon.sources.offload import daemon_thread, in_daemon_thread

LEFT_BEHIND = """
import asyncio, time
from gpumon.sources.offload import daemon_thread, in_daemon_thread

async def main():
    for _ in range(40):
        asyncio.ensure_future(in_daemon_thread(time.sleep, 60))
    asyncio.ensure_future(in_daemon_thread(time.sleep, 0.3))
    print(await in_daemon_thread(lambda: "through"), flush=True)

asyncio.run(main())
time.sleep(0.6)
"""


ARENA_BYTES = 64 << 20
"""Address space that glibc reserves for an arena of a thread: a part that is used, and one for later."""
TOGETHER = """
import sys, threading
from gpumon.sources.offload import daemon_thread

together = threading.Barrier(6)

def take_memory():
    blocks = [bytearray(60_000) for _ in range(20)]
    together.wait()

for call in [{start} for _ in range(together.parties)]:
    call.{end}(60.0)
print("through", flush=True)
sys.stdin.read()
"""


def arenas(pid: int) -> int:
    """Arenas of the threads of a process."""
    found = 0
    begin = end = 0
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        addresses, permissions, *_ = line.split()
        low, high = (int(address, 16) for address in addresses.split("-"))
        found += permissions == "---p" and low == end and begin % ARENA_BYTES == 0 and high - begin == ARENA_BYTES
        begin, end = low, high
    return found


def arenas_of(*command: str) -> int:
    """Arenas of a Python program once it has written a line."""
    program = subprocess.Popen([sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert program.stdout is not None
        assert program.stdout.readline()
        return arenas(program.pid)
    finally:
        program.kill()
        program.communicate()


def test_all_threads_take_their_memory_from_one_arena() -> None:
    assert arenas_of("-c", TOGETHER.format(start="daemon_thread(take_memory)", end="result")) == 0
    # It tries how many threads it may start before all else.
    assert arenas_of("-m", "gpumon", "watch", "--no-nvml", "--endpoint", "http://127.0.0.1:9") == 0
    own = "(lambda one: (one.start(), one)[1])(threading.Thread(target=take_memory))"
    assert arenas_of("-c", TOGETHER.format(start=own, end="join")) > 1, "any other program has many"


async def test_results_and_errors_come_back() -> None:
    assert await in_daemon_thread(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await in_daemon_thread(divmod, 7, 0)
    assert daemon_thread(divmod, 7, 2).result(60.0) == (3, 1)
    assert isinstance(daemon_thread(divmod, 7, 0).exception(60.0), ZeroDivisionError)


async def test_a_thread_is_used_again_unless_its_call_hangs() -> None:
    thread = await in_daemon_thread(threading.get_ident)
    assert await in_daemon_thread(threading.get_ident) == thread
    go = threading.Event()
    hanging = [daemon_thread(go.wait) for _ in range(10)]
    assert await in_daemon_thread(divmod, 7, 2) == (3, 1)
    go.set()
    assert all(call.result(60.0) for call in hanging)


def test_nothing_of_a_call_is_kept_after_it() -> None:
    class Large:
        pass

    large = Large()
    gone = weakref.ref(large)
    call = daemon_thread(lambda value: value, large)
    assert call.result(60.0) is large
    del large, call
    end_s = time.monotonic() + 60.0
    while gone() is not None:
        assert time.monotonic() < end_s
        time.sleep(0.005)


async def test_one_who_no_longer_waits_leaves_the_thread_behind() -> None:
    go = threading.Event()
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(in_daemon_thread(go.wait), 0.05)
    go.set()
    assert await in_daemon_thread(go.wait)


def test_the_program_ends_while_calls_hang() -> None:
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", LEFT_BEHIND], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("through\n", "")
    assert time.monotonic() - began < 55.0
