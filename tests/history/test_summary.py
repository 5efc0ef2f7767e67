"""A recorded stretch summed up, against what its frames counted."""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from gpumon.demo.scenarios import DEMO
from gpumon.efficiency.deriver import Deriver
from gpumon.history.compared import compare_spans
from gpumon.history.frame_store import Tick
from gpumon.history.reader import Recording
from gpumon.history.recorder import Recorder
from gpumon.history.summary import summary_of
from gpumon.readings.frame import EndpointState, Frame, GpuReading, GpuState
from gpumon.readings.goals import Goals
from gpumon.readings.missing import NOT_SUPPORTED, Missing, Reason
from gpumon.readings.period import Period
from gpumon.readings.prices import FREE, NO_ENERGY_PRICE, Prices
from gpumon.readings.quantities import DECODE_TOKENS, RUNNING, TTFT, WAITING
from gpumon.readings.snapshot import Event, EventKind, Level
from gpumon.readings.verdict import Kind
from gpumon.readings.when import Stretch
from gpumon.sources.packaged import gpu_catalogue
from tests.history.frames import FOURTH, WALL_S, served
from tests.history.pasts import make
from tests.records import replace

SECONDS = 130
LATE_S, EARLY_S = 37, 101
"""The last engine is there from the one to the other."""
XID = Event(WALL_S + 50.0, EventKind.XID, "gpu 1", "Xid 79", level=Level.CRITICAL, key="u")
CATALOGUE = gpu_catalogue()
PRICES = Prices({"": 3.0}, 0.3)


class Made(NamedTuple):
    recording: Recording
    frames: list[Frame]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    path: Path = tmp_path_factory.mktemp("summary") / "a.gpumon"
    recorder, deriver = Recorder(path, {"host": "box"}), Deriver(CATALOGUE)
    frames = []
    for at, whole in enumerate(served(SECONDS, cast=(DEMO.cast[1], FOURTH))):
        there = LATE_S <= at < EARLY_S
        frame = whole if there else replace(whole, engines=whole.engines[:-1])
        recorder.keep(Tick(frame, deriver.derive(frame).points, (XID,) if at == 50 else ()))
        frames.append(frame)
        until_written(recorder, at - 30)
    recorder.close()
    return Made(Recording(path), frames)


@pytest.fixture(scope="module")
def unpriced(made: Made) -> Period:
    """All of the recording, for all tests that look at it."""
    return summary_of(made.recording, CATALOGUE, FREE, made.frames[0].wall_s, made.frames[-1].wall_s)


@pytest.fixture(scope="module")
def priced(made: Made) -> Period:
    """The same at PRICES."""
    return summary_of(made.recording, CATALOGUE, PRICES, made.frames[0].wall_s, made.frames[-1].wall_s)


def until_written(recorder: Recorder, frames: int) -> None:
    """Wait for the recorder: its queue is bounded, for a disk has a second for each frame."""
    end_s = time.monotonic() + 60.0
    while recorder.written < frames:
        assert recorder.fault() is None
        assert time.monotonic() < end_s
        time.sleep(0.01)


def counted(frames: list[Frame], key: str) -> float:
    tokens = [
        sum(rank.counters[DECODE_TOKENS] for rank in engine.ranks)
        for frame in frames
        for engine in frame.engines
        if engine.key == key
    ]
    return tokens[-1] - tokens[0]


def test_tokens_and_energy_are_what_the_counters_say_also_of_an_engine_that_came_and_went(
    made: Made, unpriced: Period
) -> None:
    assert len(unpriced.engines) == 2
    for engine in unpriced.engines:
        assert engine.decode_tokens == pytest.approx(counted(made.frames, engine.key), rel=0.02), engine.name
    assert unpriced.decode_tokens == pytest.approx(sum(float(one.decode_tokens) for one in unpriced.engines))
    for at, gpu in enumerate(unpriced.gpus):
        first, last = (frame.gpus[at].energy_j for frame in (made.frames[0], made.frames[-1]))
        assert gpu.energy_j == pytest.approx(last - first)


def test_shares_are_means_over_the_stretch_and_every_second_is_covered(made: Made) -> None:
    begin_s, end_s = made.frames[20].wall_s, made.frames[120].wall_s
    part = summary_of(made.recording, CATALOGUE, FREE, begin_s, end_s)
    busy = [float(gpu.busy_ratio) for frame in made.frames[21:121] for gpu in frame.gpus]
    assert part.busy_ratio == pytest.approx(sum(busy) / len(busy), abs=0.02)
    assert part.covered_s == pytest.approx(100.0, abs=0.1)
    assert (part.gaps, part.simulated, part.host) == (0, True, "box")


def test_busy_is_over_all_gpus_with_idle_spares_as_in_a_comparison(made: Made) -> None:
    begin_s, end_s = made.frames[20].wall_s, made.frames[120].wall_s
    part = summary_of(made.recording, CATALOGUE, FREE, begin_s, end_s)
    idle = [gpu for gpu in part.gpus if float(gpu.busy_ratio) < 0.02]
    assert idle, "without an idle spare this tells nothing"
    middle_s = (begin_s + end_s) / 2.0
    compared = compare_spans(made.recording, make, Stretch(begin_s, middle_s), Stretch(middle_s, end_s))
    (host,) = [thing for thing in compared.things if thing.kind is Kind.HOST]
    (busy,) = [figure for figure in host.figures if figure.code == "busy_ratio"]
    assert part.busy_ratio == pytest.approx((float(busy.before) + float(busy.after)) / 2.0, abs=0.02)


def within_goal(made: Made, goal_s: float) -> tuple[float, float]:
    """Requests that got a first token between the first and the last frame, and those of them within the goal."""
    whole = 0.0
    within = 0.0
    for engine in made.frames[0].engines:
        key = engine.key
        ends = []
        for frame in (made.frames[0], made.frames[-1]):
            (reading,) = [one for one in frame.engines if one.key == key]
            ends.append(reading.ranks[0].histograms[TTFT])
        at = ends[0].bounds.index(goal_s)
        whole += ends[1].counts[-1] - ends[0].counts[-1]
        within += ends[1].counts[at] - ends[0].counts[at]
    return whole, within


def test_goodput_sums_the_requests_and_is_no_mean_of_shares(made: Made, unpriced: Period) -> None:
    ends = made.frames[0].wall_s, made.frames[-1].wall_s
    stays = made.frames[0].engines[0].key
    (engine,) = [one for one in unpriced.engines if one.key == stays]
    requests, within = within_goal(made, 1.0)
    assert requests > 10
    share = engine.goodput.ttft_goal
    assert (share.count, share.within_low, share.within_high) == (requests, within, within)
    assert share.low_ratio == pytest.approx(within / requests)
    assert engine.goodput.ttft_goal_assumed
    for field in ("count", "within_low", "within_high"):
        parts = [getattr(one.goodput.ttft_goal, field) for one in unpriced.engines]
        known = [part for part in parts if not isinstance(part, Missing)]
        assert getattr(unpriced.goodput.ttft_goal, field) == pytest.approx(sum(known)), field
    strict = summary_of(made.recording, CATALOGUE, FREE, *ends, Goals(ttft_s=0.06))
    assert strict.goodput.ttft_goal.goal_s == 0.06
    assert not strict.goodput.ttft_goal_assumed
    assert float(strict.goodput.ttft_goal.within_high) < float(unpriced.goodput.ttft_goal.within_low)


def test_money_is_the_price_of_the_hours_and_idle_the_share_without_a_kernel(priced: Period, unpriced: Period) -> None:
    assert priced.cost == pytest.approx(8 * 3.0 * (SECONDS - 1) / 3600.0, rel=0.02)
    idle = [float(gpu.cost) * (1.0 - float(gpu.busy_ratio)) for gpu in priced.gpus]
    assert priced.idle_cost == pytest.approx(sum(idle))
    assert priced.cost_per_million_tokens == pytest.approx(float(priced.cost) / float(priced.decode_tokens) * 1e6)
    assert unpriced.cost == Missing(Reason.NO_PRICE)
    assert (unpriced.energy_cost, unpriced.unused_cost) == (NO_ENERGY_PRICE, Missing(Reason.NO_PRICE))


def test_energy_and_unused_time_are_priced_and_the_sums_are_those_of_the_gpus(made: Made, priced: Period) -> None:
    assert priced.energy_cost == pytest.approx(float(priced.energy_j) / 3.6e6 * 0.3)
    assert priced.unused_cost == pytest.approx(float(priced.unused_gpu_s) / 3600.0 * 3.0)
    for field, total in (
        ("cost", priced.cost),
        ("energy_cost", priced.energy_cost),
        ("unused_s", priced.unused_gpu_s),
        ("unused_cost", priced.unused_cost),
    ):
        assert total == pytest.approx(sum(float(getattr(gpu, field)) for gpu in priced.gpus)), field
    for gpu in priced.gpus:
        assert 0.0 <= float(gpu.unused_s) <= SECONDS
    held = {uuid for frame in made.frames for engine in frame.engines for uuid in engine.gpus}
    held |= {gpu.uuid for frame in made.frames for gpu in frame.gpus if gpu.processes}
    free = [gpu.unused_s for gpu in priced.gpus if gpu.uuid not in held]
    assert free
    assert free == [pytest.approx(SECONDS - 1, rel=0.02)] * len(free)
    every = [priced.prefill_computed_tokens, priced.prefill_cached_tokens, priced.decode_tokens]
    assert priced.cost_per_million_all_tokens == pytest.approx(float(priced.cost) / sum(map(float, every)) * 1e6)


def test_incidents_are_those_of_the_stretch(made: Made, unpriced: Period) -> None:
    ends = made.frames[0].wall_s, made.frames[-1].wall_s
    assert [one.text for one in unpriced.incidents] == ["Xid 79"]
    assert summary_of(made.recording, CATALOGUE, FREE, ends[0] + 60.0, ends[1]).incidents == ()


def test_one_moment_has_no_length_and_no_figures_over_time(made: Made) -> None:
    at_s = made.frames[60].wall_s
    point = summary_of(made.recording, CATALOGUE, FREE, at_s, at_s)
    assert (point.seconds, point.covered_s) == (0.0, 0.0)
    assert isinstance(point.energy_j, Missing)
    assert isinstance(point.decode_tokens, Missing)


def stretch(tmp_path: Path, frames: list[Frame]) -> Period:
    """These frames recorded and summed up, at a price of 3 an hour."""
    path = tmp_path / "b.gpumon"
    recorder, deriver = Recorder(path, {"host": "box"}), Deriver(CATALOGUE)
    for at, frame in enumerate(frames):
        recorder.keep(Tick(frame, deriver.derive(frame).points, ()))
        until_written(recorder, at - 30)
    recorder.close()
    recording = Recording(path)
    span = recording.span()
    assert span is not None
    return summary_of(recording, CATALOGUE, PRICES, *span)


@pytest.mark.parametrize("ticks", [4, 9])
def test_the_last_seconds_of_a_recording_that_goes_on_are_recorded_too(tmp_path: Path, ticks: int) -> None:
    """Their points are not made yet: they are means of 5 s."""
    recorder, deriver = Recorder(tmp_path / "c.gpumon", {"host": "box"}), Deriver(CATALOGUE)
    for frame in frames_of(ticks):
        recorder.keep(Tick(frame, deriver.derive(frame).points, ()))
    until_written(recorder, ticks)
    recording = Recording(tmp_path / "c.gpumon")
    span = recording.span()
    assert span is not None
    told = summary_of(recording, CATALOGUE, FREE, *span)
    recorder.close()
    assert told.seconds == pytest.approx(ticks - 1, abs=0.1)
    assert told.covered_s == told.seconds


def frames_of(seconds: int) -> list[Frame]:
    """The first seconds of a server with one engine."""
    return list(longest()[:seconds])


@functools.cache
def longest() -> tuple[Frame, ...]:
    """More seconds than any test asks for."""
    return tuple(served(150, cast=DEMO.cast[1:2]))


def test_what_was_counted_in_a_gap_counts_to_nothing_and_costs_nothing(tmp_path: Path) -> None:
    frames = frames_of(150)
    kept = [frame for at, frame in enumerate(frames) if not 40 <= at < 110]
    told = stretch(tmp_path, kept)
    parts = counted(frames[:40], frames[0].engines[0].key) + counted(frames[110:], frames[0].engines[0].key)
    assert told.gaps == 1
    assert told.decode_tokens == pytest.approx(parts, rel=0.03)
    assert told.cost == pytest.approx(8 * 3.0 * 78 / 3600.0, rel=0.03)
    assert told.covered_s == pytest.approx(79, abs=2)
    (engine,) = told.engines
    assert engine.decode_tokens_per_s == pytest.approx(parts / 78, rel=0.04), "the gap is no time without tokens"


def test_requests_that_no_reading_meets_are_use(tmp_path: Path) -> None:
    frames = [brief(frame) for frame in frames_of(120)]
    told = stretch(tmp_path, frames)
    used = [gpu for gpu in told.gpus if gpu.uuid in frames[0].engines[0].gpus]
    assert used
    # Between two polls of two minutes no request was counted at all.
    assert all(gpu.unused_s < 0.02 * told.covered_s for gpu in used)


def brief(frame: Frame) -> Frame:
    """The frame as of an engine whose requests are over before its page is read, and which counts no times."""
    (engine,) = frame.engines
    ranks = [replace(rank, gauges={**rank.gauges, RUNNING: 0.0, WAITING: 0.0}, histograms={}) for rank in engine.ranks]
    return replace(frame, engines=(replace(engine, ranks=tuple(ranks)),))


def test_ticks_that_come_late_are_no_gap_and_no_discount(tmp_path: Path) -> None:
    frames = frames_of(120)[::3]
    told = stretch(tmp_path, frames)
    assert told.gaps == 0
    assert told.covered_s == pytest.approx(117, abs=2)
    assert told.cost == pytest.approx(8 * 3.0 * 117 / 3600.0, rel=0.03)


def test_a_clock_that_was_ahead_makes_no_energy(tmp_path: Path) -> None:
    ahead_s, frames = 3e7, frames_of(120)
    early = [replace(frame, wall_s=frame.wall_s + ahead_s) for frame in frames[:60]]
    told = stretch(tmp_path, [*early, *frames[60:]])
    counted_j = sum(frames[-1].gpus[at].energy_j - frames[60].gpus[at].energy_j for at in range(8))
    assert 0.9 * counted_j <= told.energy_j <= 2.1 * counted_j


def test_a_card_that_took_the_place_of_another_costs_only_its_own_time(tmp_path: Path) -> None:
    frames = frames_of(120)
    changed = [
        replace(frame, gpus=(replace(frame.gpus[0], uuid="GPU-new"), *frame.gpus[1:]), engines=())
        if at >= 60
        else replace(frame, engines=())
        for at, frame in enumerate(frames)
    ]
    told = stretch(tmp_path, changed)
    assert len(told.gpus) == 9
    assert told.cost == pytest.approx(8 * 3.0 * 119 / 3600.0, rel=0.03)
    assert isinstance(told.gpus[0].busy_ratio, Missing)


def losing_a_gpu(frames: Sequence[Frame]) -> list[Frame]:
    """The frames, whose last GPU is lost after 55 of them."""
    return [
        replace(
            frame,
            gpus=(*frame.gpus[:7], GpuReading(7, frame.gpus[7].uuid, "H100", GpuState.LOST, frame.monotonic_s)),
        )
        if at >= 55
        else frame
        for at, frame in enumerate(frames)
    ]


def test_the_energy_of_a_gpu_up_to_its_loss_counts(tmp_path: Path) -> None:
    frames = frames_of(100)
    told = stretch(tmp_path, losing_a_gpu(frames))
    assert told.gpus[7].energy_j == pytest.approx(frames[54].gpus[7].energy_j - frames[0].gpus[7].energy_j)
    assert isinstance(stretch(tmp_path, frames).tokens_per_j, float)
    assert isinstance(told.tokens_per_j, Missing), "the tokens are of all the time"
    assert [type(engine.tokens_per_j) for engine in told.engines] == [float], "its own GPUs tell all of theirs"


def test_time_of_which_no_busy_is_known_is_no_idle_time(tmp_path: Path) -> None:
    """A spare is lost after 55 of 100 s: it was seen idle for those, and nobody knows of the others."""
    spare = stretch(tmp_path, losing_a_gpu(frames_of(100))).gpus[7]
    assert spare.busy_ratio == 0.0
    assert spare.idle_cost == pytest.approx(3.0 * 55 / 3600.0, rel=0.1)
    assert spare.cost > 1.5 * spare.idle_cost


@pytest.mark.parametrize(("state", "is_known"), [(EndpointState.REFUSED, True), (EndpointState.TIMEOUT, False)])
def test_tokens_have_a_price_where_an_engine_does_not_listen_any_more(
    tmp_path: Path, state: EndpointState, is_known: bool
) -> None:
    """A server of another host, of whose process nothing is known, is stopped after 40 of 100 s."""
    frames = frames_of(100)
    stopped = [
        replace(frame, engines=tuple(replace(engine, state=state, ranks=()) for engine in frame.engines))
        if at >= 40
        else frame
        for at, frame in enumerate(frames)
    ]
    told = stretch(tmp_path, stopped)
    prices = [told.cost_per_million_tokens, *(engine.cost_per_million_tokens for engine in told.engines)]
    assert [isinstance(price, float) for price in prices] == [is_known] * 2
    assert [engine.uncounted_s > 0.0 for engine in told.engines] == [not is_known]


def test_power_of_a_short_stretch_is_right_though_energy_is_read_every_ten_seconds(tmp_path: Path) -> None:
    frames = []
    for at, frame in enumerate(frames_of(28)):
        card = replace(frame.gpus[0], power_w=500.0, energy_j=500.0 * (at // 10 * 10))
        frames.append(replace(frame, gpus=(card, *frame.gpus[1:])))
    told = stretch(tmp_path, frames)
    assert told.gpus[0].power_w == pytest.approx(500.0)


def test_power_of_a_gpu_that_reports_none_is_energy_by_time(tmp_path: Path) -> None:
    frames = []
    for at, frame in enumerate(frames_of(28)):
        card = replace(frame.gpus[0], power_w=NOT_SUPPORTED, energy_j=500.0 * at)
        frames.append(replace(frame, gpus=(card, *frame.gpus[1:])))
    told = stretch(tmp_path, frames)
    assert told.gpus[0].power_w == pytest.approx(500.0, rel=0.01)


def test_an_energy_counter_that_one_answer_had_at_zero_is_no_energy_of_years(tmp_path: Path) -> None:
    frames = []
    for at, frame in enumerate(frames_of(60)):
        card = replace(frame.gpus[0], energy_j=0.0 if at == 30 else 5e9 + 500.0 * at)
        frames.append(replace(frame, gpus=(card, *frame.gpus[1:])))
    told = stretch(tmp_path, frames)
    assert told.gpus[0].energy_j == pytest.approx(59 * 500.0, rel=0.1)


def test_slices_of_a_card_are_in_no_sum_of_money(tmp_path: Path) -> None:
    frames = [
        replace(
            frame,
            gpus=(frame.gpus[0], replace(frame.gpus[0], uuid="MIG-1", parent_uuid=frame.gpus[0].uuid)),
            engines=(),
        )
        for frame in frames_of(40)
    ]
    told = stretch(tmp_path, frames)
    assert told.cost == pytest.approx(3.0 * 39 / 3600.0, rel=0.05)
    assert isinstance(told.gpus[1].cost, Missing)
