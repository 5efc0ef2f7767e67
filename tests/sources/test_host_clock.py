"""A slow host is no host whose clock is wrong: snapshots over an ssh that delays them, or from a clock that is off."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from gpumon.config.schema import Host
from gpumon.outputs.json import encode
from gpumon.sources.host_clock import HostClock
from gpumon.sources.remote import Remote
from tests.outputs import shots
from tests.sources.test_remote import pretend_ssh, run_until

HOST = """
import datetime, json, sys, time
document = json.loads(sys.argv[1])
ahead_s, delay_s = float(sys.argv[2]), float(sys.argv[3])
made = []
while True:
    moment = datetime.datetime.fromtimestamp(time.time() + ahead_s, datetime.timezone.utc)
    made.append((time.monotonic() + delay_s, moment.isoformat().replace("+00:00", "Z")))
    while made and made[0][0] <= time.monotonic():
        document["time"] = made.pop(0)[1]
        print(json.dumps(document), flush=True)
    time.sleep(0.2)
"""
"""What stands for a host: its snapshots, made every 0.2 s by its clock, come out after the delay."""


async def faults_of(folder: Path, monkeypatch: pytest.MonkeyPatch, ahead_s: float, delay_s: float) -> list[str]:
    """The faults of such a host after some snapshots."""
    program = folder / "host.py"
    program.write_text(HOST)
    snapshot = folder / "snapshot.json"
    snapshot.write_bytes(encode(shots.snapshot()))
    pretend_ssh(folder, monkeypatch, f'exec {sys.executable} {program} "$(cat {snapshot})" {ahead_s} {delay_s}')
    remote = Remote(Host(address="gpu-07"), 1.0, time.time)
    await run_until(remote, lambda: remote.lines > 3)
    frame = remote.at(None)
    assert frame is not None
    return [fault.text for fault in frame.faults if "clock" in fault.text or "late" in fault.text]


@pytest.mark.parametrize(
    ("ahead_s", "delay_s", "words"),
    [
        (0.0, 0.0, ""),
        (100.0, 0.0, "its clock is 100 s ahead of this machine's: set both by NTP"),
        (-200.0, 0.0, "its clock is 200 s behind this machine's: set both by NTP"),
        (0.0, 13.0, "answers 13 s late: the host or the connection is slow"),
    ],
)
async def test_delay_is_no_skew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead_s: float, delay_s: float, words: str
) -> None:
    faults = await faults_of(tmp_path, monkeypatch, ahead_s, delay_s)
    assert len(faults) == bool(words)
    for fault in faults:
        known, _, number_behind = words.partition(" s ")
        assert number_behind in fault
        told = float(next(word for word in fault.split() if word.isdigit()))
        assert told == pytest.approx(float(known.split()[-1]), abs=4.0), "a busy machine adds some"


def test_one_snapshot_without_delay_tells_the_clock_of_all() -> None:
    clock = HostClock()
    for arrival in range(10):
        delay_s = 0.2 if arrival == 3 else 20.0
        clock.add(1000.0 + arrival, 1000.0 + arrival + delay_s)
    assert clock.fault(1.0) == "answers 20 s late: the host or the connection is slow"
    clock.add(1010.0, 1010.2)
    assert clock.fault(1.0) == ""


def test_where_all_come_late_and_no_start_is_known_both_may_be() -> None:
    clock = HostClock()
    for arrival in range(10):
        clock.add(1000.0 + arrival, 1012.0 + arrival)
    assert clock.fault(1.0).endswith("slow, or its clock is behind")
    clock.start(2000.0)
    clock.add(1989.5, 2001.5)
    assert clock.fault(1.0) == "its clock is 12 s behind this machine's: set both by NTP"


def test_a_clock_that_was_behind_is_believed_once_it_is_set() -> None:
    clock = HostClock()
    clock.start(1000.0)
    for arrival in range(10):
        clock.add(941.0 + arrival, 1001.1 + arrival)
    assert clock.fault(1.0) == "its clock is 60 s behind this machine's: set both by NTP"
    clock.add(1012.0, 1012.1)
    assert clock.fault(1.0) == ""
    clock.add(1013.0, 1033.0)
    assert clock.fault(1.0) == "answers 20 s late: the host or the connection is slow"


def test_the_last_snapshot_of_a_link_that_stalled_says_nothing_of_the_clock() -> None:
    """It is what is known while the next connection has sent a part of its first snapshot."""
    clock = HostClock()
    clock.start(1000.0)
    clock.add(1000.5, 1001.0)
    clock.start(1090.0)
    clock.add(1000.5, 1001.0)
    assert clock.fault(1.0) == ""
    clock.add(1030.5, 1091.0)
    assert clock.fault(1.0).endswith("set both by NTP"), "made after the start, and a minute older than it"
