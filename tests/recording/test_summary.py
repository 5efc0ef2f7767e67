"""A recorded stretch summed up, against what its frames counted."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from gpumon.efficiency.deriver import Deriver
from gpumon.readings.frame import Frame
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.quantities import DECODE_TOKENS
from gpumon.readings.snapshot import Event, EventKind, Level
from gpumon.recording.past import Kept
from gpumon.recording.reader import Recording
from gpumon.recording.store import Recorder
from gpumon.recording.summary import summed_up
from gpumon.sources.packaged import gpu_catalogue
from tests.recording.frames import WALL_S, served

SECONDS = 170
LATE_S, EARLY_S = 37, 131
"""The last engine is there from the one to the other."""
XID = Event(WALL_S + 50.0, EventKind.XID, "gpu 1", "Xid 79", Level.CRITICAL, key="u")
CATALOGUE = gpu_catalogue()


class Made(NamedTuple):
    recording: Recording
    frames: list[Frame]
    busy: list[float]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    path: Path = tmp_path_factory.mktemp("summary") / "a.gpumon"
    recorder, deriver = Recorder(path, {"host": "box"}), Deriver(CATALOGUE)
    frames, busy = [], []
    for at, whole in enumerate(served(SECONDS)):
        there = LATE_S <= at < EARLY_S
        frame = whole if there else msgspec.structs.replace(whole, engines=whole.engines[:-1])
        points = deriver.derive(frame).points
        recorder.keep(Kept(frame, points, (XID,) if at == 50 else (), None))
        frames.append(frame)
        busy.append(points["busy"])
        while recorder.written < at - 30:  # the queue is bounded: a disk would have a second for each frame
            assert recorder.fault() is None
    recorder.close()
    return Made(Recording(path), frames, busy)


def counted(frames: list[Frame], key: str) -> float:
    tokens = [
        sum(rank.counters[DECODE_TOKENS] for rank in engine.ranks)
        for frame in frames
        for engine in frame.engines
        if engine.key == key
    ]
    return tokens[-1] - tokens[0]


def test_tokens_and_energy_are_what_the_counters_say_also_of_an_engine_that_came_and_went(made: Made) -> None:
    whole = summed_up(made.recording, CATALOGUE, {}, made.frames[0].wall_s, made.frames[-1].wall_s)
    assert len(whole.engines) == 4
    for engine in whole.engines:
        assert engine.decode_tokens == pytest.approx(counted(made.frames, engine.key), rel=0.02), engine.name
    assert whole.decode_tokens == pytest.approx(sum(float(one.decode_tokens) for one in whole.engines))
    for at, gpu in enumerate(whole.gpus):
        first, last = (frame.gpus[at].energy_j for frame in (made.frames[0], made.frames[-1]))
        assert gpu.energy_j == pytest.approx(last - first)


def test_shares_are_means_over_the_stretch_and_every_second_is_covered(made: Made) -> None:
    begin_s, end_s = made.frames[20].wall_s, made.frames[120].wall_s
    part = summed_up(made.recording, CATALOGUE, {}, begin_s, end_s)
    known = [value for value in made.busy[21:121] if not math.isnan(value)]
    assert part.busy_ratio == pytest.approx(sum(known) / len(known), abs=0.02)
    assert part.covered_s == pytest.approx(100.0, abs=0.1)
    assert (part.gaps, part.simulated, part.host) == (0, True, "box")


def test_money_is_the_price_of_the_hours_and_idle_the_share_without_a_kernel(made: Made) -> None:
    ends = made.frames[0].wall_s, made.frames[-1].wall_s
    whole = summed_up(made.recording, CATALOGUE, {"": 3.0}, *ends)
    assert whole.cost == pytest.approx(8 * 3.0 * (SECONDS - 1) / 3600.0, rel=0.02)
    idle = [float(gpu.cost) * (1.0 - float(gpu.busy_ratio)) for gpu in whole.gpus]
    assert whole.idle_cost == pytest.approx(sum(idle))
    assert whole.cost_per_million_tokens == pytest.approx(float(whole.cost) / float(whole.decode_tokens) * 1e6)
    free = summed_up(made.recording, CATALOGUE, {}, *ends)
    assert free.cost == Missing(Reason.NO_PRICE)


def test_incidents_are_those_of_the_stretch(made: Made) -> None:
    ends = made.frames[0].wall_s, made.frames[-1].wall_s
    assert [one.text for one in summed_up(made.recording, CATALOGUE, {}, *ends).incidents] == ["Xid 79"]
    assert summed_up(made.recording, CATALOGUE, {}, ends[0] + 60.0, ends[1]).incidents == ()


def test_one_moment_has_no_length_and_no_figures_over_time(made: Made) -> None:
    at_s = made.frames[60].wall_s
    point = summed_up(made.recording, CATALOGUE, {}, at_s, at_s)
    assert (point.seconds, point.covered_s) == (0.0, 0.0)
    assert isinstance(point.energy_j, Missing)
    assert isinstance(point.decode_tokens, Missing)
