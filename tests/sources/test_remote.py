"""One host of a fleet that is reached by ssh: how its connection ends, and what is kept of it."""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from gpumon.config.schema import Host
from gpumon.outputs.json import encode
from gpumon.readings.missing import Missing
from gpumon.sources.remote import NEXT_LINE_S, Remote, patience_s
from gpumon.sources.snapshot_json import decoded
from tests.outputs import shots
from tests.records import replace

LINGERS = """\
#!/bin/sh
sleep 600 >/dev/null </dev/null &
echo $! >> {pids}
cat {snapshot}
echo 'gpumon: the driver is gone' >&2
exit 3
"""


async def test_what_ssh_leaves_behind_does_not_hold_its_end_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A master that goes to the background (ControlPersist), or a proxy, keeps stderr open."""
    pids, ssh, snapshot = (tmp_path / name for name in ("pids", "ssh", "snapshot.json"))
    snapshot.write_bytes(encode(shots.snapshot()) + b"\n")
    ssh.write_text(LINGERS.format(pids=pids, snapshot=snapshot))
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    remote = Remote(Host(address="gpu-07"), 1.0, time.time)
    task = asyncio.create_task(remote.run())
    try:
        end_s = time.monotonic() + 60.0
        while not (remote.lines and remote.fault):
            assert time.monotonic() < end_s
            await asyncio.sleep(0.02)
        assert remote.fault == "its gpumon ended, or the connection to it: the driver is gone"
    finally:
        task.cancel()
        for pid in pids.read_text().split():
            os.kill(int(pid), signal.SIGKILL)


def test_a_snapshot_that_is_larger_than_all_that_may_be_kept_is_shown_all_the_same() -> None:
    remote = Remote(Host(address="gpu-07"), 1.0, time.time)
    told = json.loads(encode(shots.snapshot()))
    for _ in range(2):
        remote.take(json.dumps({**told, "noise": os.urandom(3000).hex()}).encode(), 1000.0)
    assert remote.first_s is not None
    assert remote.at(None) is not None


def test_a_host_that_is_read_seldom_is_waited_for() -> None:
    each_minute = replace(shots.snapshot(), interval_s=60.0)
    assert [patience_s(encode(one)) for one in (shots.snapshot(), each_minute)] == [NEXT_LINE_S, 180.0]
    assert patience_s(b"{}") == NEXT_LINE_S


@pytest.mark.parametrize("name", shots.ALL)
def test_every_snapshot_that_is_printed_is_read_back(name: str) -> None:
    told = encode(shots.ALL[name]())
    read = json.loads(encode(decoded(told, 1e9)))
    if name != "hostile":  # whose figures can not be
        assert read["gpus"] == json.loads(told)["gpus"]


@pytest.mark.parametrize("value", [5, "x", "nan", [5], {"a": 5}, True, [[]], 10**40])
def test_what_is_of_another_type_costs_its_own_host_alone(value: Any) -> None:
    told = json.loads(encode(shots.snapshot()))
    places = [(told, key) for key in told]
    places += [(part[0], key) for part in (told["gpus"], told["engines"]) for key in part[0]]
    for place, key in places:
        before, place[key] = place[key], value
        remote = Remote(Host(address="gpu-07"), 1.0, time.time)
        try:
            remote.take(json.dumps(told).encode(), 1e9)
        except ValueError as refused:
            assert "its JSON" in str(refused)  # noqa: PT017 (a refusal is one of two right answers)
        place[key] = before
        host = remote.at(None)
        assert host is not None
        for gpu in host.ready.gpus if host.ready is not None else ():
            assert isinstance(gpu.busy_ratio, Missing) or math.isfinite(gpu.busy_ratio)
