"""The file of acknowledged verdicts: several gpumons at once, rights, damage; and the keeper beside the ticks."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpumon.readings.snapshot import Snapshot
from gpumon.sources.acknowledged import AcknowledgementStore, acknowledged_file, added, this_user, without
from gpumon.sources.acknowledging import AcknowledgementKeeper
from gpumon.triage.acknowledgement import Acknowledgement
from gpumon.triage.marks import ABSENT_S
from tests.push.moments import THROTTLED, moment
from tests.records import replace
from tests.triage.test_acknowledgement import known


@pytest.fixture
def store(tmp_path: Path) -> AcknowledgementStore:
    path = acknowledged_file({"HOME": str(tmp_path)})
    assert path is not None
    return AcknowledgementStore(path)


def record(number: int) -> Acknowledgement:
    one: Acknowledgement = replace(known(), id=f"gpu:GPU-{number}:state")
    return one


def test_it_is_kept_for_this_user_alone(store: AcknowledgementStore) -> None:
    store.change(added([known()]))
    assert store.read() == (known(),)
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700


def test_many_at_once_lose_nothing(store: AcknowledgementStore) -> None:
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda number: AcknowledgementStore(store.path).change(added([record(number)])), range(64)))
    assert len(store.read()) == 64


def test_one_verdict_has_one(store: AcknowledgementStore) -> None:
    store.change(added([known()]))
    renewed = replace(known(), who="ben")
    store.change(added([renewed]))
    assert store.read() == (renewed,)
    store.change(without([known()]))
    assert store.read() == (renewed,), "one that was set anew meanwhile stays"
    store.change(without([renewed]))
    assert store.read() == ()


def test_a_link_and_what_is_no_file_of_ours_are_not_read(store: AcknowledgementStore, tmp_path: Path) -> None:
    store.change(added([known()]))
    elsewhere = tmp_path / "elsewhere.json"
    store.path.rename(elsewhere)
    store.path.symlink_to(elsewhere)
    assert store.read() == ()
    store.path.unlink()
    for text in ("", "{", "[]", '{"version": 1}', "\x00" * 100):
        store.path.write_text(text)
        assert store.read() == (), text
    other_host = json.loads(elsewhere.read_text()) | {"host": "gpu-08"}
    store.path.write_text(json.dumps(other_host))
    assert store.read() == ()


def test_the_folder_of_a_service(tmp_path: Path) -> None:
    folder = str(tmp_path)
    assert acknowledged_file({}) is None
    assert acknowledged_file({"STATE_DIRECTORY": f"{folder}:/other"}).parent == tmp_path  # type: ignore[union-attr]


def test_sudo_does_not_hide_who_it_was() -> None:
    assert this_user({"SUDO_USER": "anna"}) == "anna"
    assert this_user({})


async def settled(keeper: AcknowledgementKeeper, holds: Callable[[Snapshot], bool], snapshot: Snapshot) -> bool:
    """Whether something comes to hold of what the keeper marks."""
    end_s = time.monotonic() + 30.0
    while time.monotonic() < end_s:
        if holds(keeper.mark(snapshot)):
            return True
        await asyncio.sleep(0.01)
    return False


def is_marked(snapshot: Snapshot) -> bool:
    return snapshot.verdicts[0].acknowledged is not None


async def test_another_gpumon_sees_it_and_sees_it_taken_back(store: AcknowledgementStore) -> None:
    shown = moment(1.0, THROTTLED)
    mine = AcknowledgementKeeper(store, look_s=0.01)
    other = AcknowledgementKeeper(AcknowledgementStore(store.path), look_s=0.01)
    for keeper in (mine, other):
        await keeper.start()
        await keeper.ready()
        assert not is_marked(keeper.mark(shown))
    mine.acknowledge([known(THROTTLED)])
    assert is_marked(mine.mark(shown)), "at once"
    assert await settled(other, is_marked, shown)
    other.lift([THROTTLED.id])
    assert not is_marked(other.mark(shown))
    assert await settled(mine, lambda marked: not is_marked(marked), shown)
    await mine.close()
    await other.close()
    assert store.read() == ()


async def test_it_survives_a_restart_and_ends_in_the_file_with_its_verdict(store: AcknowledgementStore) -> None:
    first = AcknowledgementKeeper(store)
    first.acknowledge([known(THROTTLED)])
    await first.close()
    second = AcknowledgementKeeper(store)
    await second.start()
    await second.ready()
    assert is_marked(second.mark(moment(1.0, THROTTLED)))
    for step in range(int(ABSENT_S[THROTTLED.level]) + 2):
        second.mark(moment(2.0 + step))
    await second.close()
    assert store.read() == ()


async def test_a_folder_that_cannot_be_written_is_named_and_the_run_goes_on(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("no folder")
    keeper = AcknowledgementKeeper(AcknowledgementStore(tmp_path / "state" / "acknowledged.json"), look_s=0.01)
    await keeper.start()
    await keeper.ready()
    keeper.acknowledge([known(THROTTLED)])
    shown = moment(1.0, THROTTLED)
    assert await settled(keeper, lambda marked: keeper.fault(0.0) is not None and is_marked(marked), shown)
    fault = keeper.fault(0.0)
    assert fault is not None
    assert "not kept" in fault.text
    for _ in range(20):
        assert is_marked(keeper.mark(shown))
        await asyncio.sleep(0.01)
    (tmp_path / "state").unlink()
    assert await settled(keeper, lambda _: keeper.fault(0.0) is None, shown), "it is tried again"
    store = AcknowledgementStore(tmp_path / "state" / "acknowledged.json")
    assert [record.id for record in store.read()] == [THROTTLED.id]
    store.change(without(store.read()))
    assert await settled(keeper, lambda marked: not is_marked(marked), shown), "and others are heard again"
    await keeper.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="files of others can be made by root alone")
def test_a_file_of_another_user_is_not_read(store: AcknowledgementStore) -> None:
    store.change(added([known()]))
    os.chown(store.path, 12345, -1)
    assert store.read() == ()
