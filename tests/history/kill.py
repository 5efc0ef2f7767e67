"""Records at speed until it is killed: `python -m tests.history.kill --kills 200`, or `--write FILE` for one writer.

Every process writes its frames with `Recorder`, a simulated second every few milliseconds, and says on a pipe what it
has handed over and what it was told is written. It is killed after a random delay; then the file must open, and hold an
unbroken row of frames up to what was written, and up to what had been handed over a second before.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import random
import select
import signal
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path
from typing import NamedTuple

from gpumon.history.reader import Recording
from gpumon.history.recorder import Recorder
from tests.history.ticks import FACTS, tick

EVERY_S = 0.01
SHORT_S, LONG_S = (0.0, 0.3), (1.0, 1.2)
"""To a writer's end: of most from its first frame, of the few that show what is lost of the last second from the frame
with which a minute is finished, however long a busy machine takes to get there."""
MINUTE_FRAMES = 64
LONG_EVERY = 3
"""One in so many of those that have begun is such a one."""
EARLY_SHARE, EARLY_S = 0.1, 0.2
"""So many are killed within that time of their start: some have not made their file yet."""
TOGETHER = 4
LOSS_S = 1.0
_SAID = struct.Struct("dqq")


class Killed(NamedTuple):
    """What became of one writer."""

    handed: int
    """Frames handed over by the time of the kill."""
    written: int
    """Frames that it was told are written."""
    a_second_before: int
    """Frames handed over a second before the kill."""
    found: int
    """Frames in the file: unbroken, from the first on."""


def write(path: Path, pipe: int) -> None:
    """Record until killed."""
    recorder = Recorder(path, FACTS)
    number = 0
    while True:
        dropped = recorder.dropped
        recorder.keep(tick(number))
        if recorder.dropped == dropped:  # on a busy machine this loop outruns the disk: the same tick again then
            number += 1
        os.write(pipe, _SAID.pack(time.monotonic(), number, recorder.written))
        time.sleep(EVERY_S)


def started(path: Path) -> tuple[int, int]:
    """A writer's pid, and the pipe that it speaks on."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    try:
        os.close(reading)
        write(path, writing)
    finally:
        os._exit(1)


def frames_said(pipe: int) -> int:
    """Frames that a writer has handed over, without taking its words from the pipe."""
    unread = bytearray(4)
    fcntl.ioctl(pipe, termios.FIONREAD, unread)
    return int.from_bytes(unread, sys.byteorder) // _SAID.size


def killed(pid: int, pipe: int, path: Path) -> Killed | None:
    """Kill one and look at its file; None where it had not made it yet."""
    os.kill(pid, signal.SIGKILL)
    at_s = time.monotonic()
    os.waitpid(pid, 0)
    with open(pipe, "rb") as stream:
        said = list(_SAID.iter_unpack(stream.read()))
    if not path.exists():
        assert not said, "it wrote, and there is no file"
        return None
    past = Recording(path)
    found = [frame.seq for frame in past.frames(0.0, 4e9)]
    past.close()
    assert found == list(range(len(found))), "frames are missing in the middle"
    assert past.damaged == 0
    earlier = max((number for said_s, number, _ in said if said_s < at_s - LOSS_S), default=0)
    handed, written = max(((number, done) for _, number, done in said), default=(0, 0))
    return Killed(handed, written, earlier, len(found))


def kills(count: int, seed: int = 1) -> list[Killed]:
    """Start and kill that many writers, several at a time. Raises AssertionError where a file is not as it must be."""
    chance, done = random.Random(seed), list[Killed]()
    tick(0)  # the frames are made here once: what is forked has them
    waiting: dict[int, tuple[int, Path]] = {}
    due_s: dict[int, float] = {}
    long: set[int] = set()
    begun = 0
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"{number}.sqlite") for number in range(count)]
        while paths or waiting or due_s:
            while paths and len(waiting) < TOGETHER:
                path = paths.pop()
                pid, pipe = started(path)
                waiting[pipe] = pid, path
                if chance.random() < EARLY_SHARE:
                    due_s[pipe] = time.monotonic() + chance.uniform(0.0, EARLY_S)
            unheard = [pipe for pipe in waiting if pipe not in due_s and pipe not in long]
            for pipe in select.select(unheard, [], [], 0.002)[0]:
                begun += 1
                if begun % LONG_EVERY == 0:
                    long.add(pipe)
                else:
                    due_s[pipe] = time.monotonic() + chance.uniform(*SHORT_S)
            for pipe in [pipe for pipe in long if frames_said(pipe) > MINUTE_FRAMES]:
                long.remove(pipe)
                due_s[pipe] = time.monotonic() + chance.uniform(*LONG_S)
            for pipe in [pipe for pipe, at_s in due_s.items() if at_s <= time.monotonic()]:
                del due_s[pipe]
                if (one := killed(waiting[pipe][0], pipe, waiting[pipe][1])) is not None:
                    done.append(one)
                del waiting[pipe]
    return done


def main() -> None:
    """Print what was lost; ends with 1 where it is more than a second's."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--kills", type=int, default=200)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--write", type=Path)
    given = arguments.parse_args()
    if given.write is not None:
        write(given.write, os.open(os.devnull, os.O_WRONLY))
    began_s = time.monotonic()
    done = kills(given.kills, given.seed)
    lost = [one.handed - one.found for one in done]
    print(f"{given.kills} kills in {time.monotonic() - began_s:.0f} s: {len(done)} files, all open and unbroken")
    print(
        f"frames at the kill: up to {max(one.handed for one in done)}; lost: up to {max(lost)} of {EVERY_S * 1e3:g} ms"
    )
    sys.exit(any(one.found < max(one.written, one.a_second_before) for one in done))


if __name__ == "__main__":
    main()
