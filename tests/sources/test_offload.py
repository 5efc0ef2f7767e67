"""Daemon threads for what may hang: results, errors, and an exit that waits for none of them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
import weakref

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


ARENAS = """
import threading
from gpumon.sources.offload import daemon_thread

HEAP = 64 << 20  # what glibc reserves for the arena of a thread: a part that is used, and one for later
together = threading.Barrier(6)

def take_memory():
    blocks = [bytearray(60_000) for _ in range(20)]
    together.wait()

for call in [daemon_thread(take_memory) for _ in range(together.parties)]:
    call.result(60.0)
maps = [line.split()[:2] for line in open("/proc/self/maps")]
ranges = [(*(int(end, 16) for end in addresses.split("-")), mode) for addresses, mode in maps]
arenas = 0
for (begin, end, mode), (next_begin, next_end, next_mode) in zip(ranges, ranges[1:]):
    arenas += (mode, next_mode) == ("rw-p", "---p") and end == next_begin and next_end - begin == HEAP
print(arenas)
"""


def test_all_threads_take_their_memory_from_one_arena() -> None:
    command = [sys.executable, "-c", ARENAS]
    assert subprocess.run(command, capture_output=True, text=True, timeout=60.0, check=True).stdout == "0\n"


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
