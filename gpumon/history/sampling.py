"""The frames of a part of a past that counters are read from: some hundreds at equal distances of a minute at most, and
all around a change."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.deriver import Deriver
from gpumon.efficiency.restarts import START_TOLERANCE_S
from gpumon.history.frame_store import FrameStore
from gpumon.history.points import GAP_S, first_at_or_after, last_at_or_before, means_of_points
from gpumon.readings.frame import EndpointState, EngineReading, Frame
from gpumon.readings.missing import Missing
from gpumon.readings.snapshot import Snapshot

SAMPLE_S: Final = 60.0
"""Most seconds between two frames that counters are read from: what they counted in between is in the next one."""
_SAMPLES: Final = 600
"""Frames that counters are read from where those of each minute are fewer: the time without a request of ten minutes is
told by the second, as on the screen, and an hour's report takes a second longer."""
_SHORTEST_STEP_S: Final = 0.25
"""The shortest interval that frames are recorded at."""


class SampledFrame(NamedTuple):
    """A frame that counters are read from."""

    frame: Frame
    follows_gap: bool
    """Time before it is not recorded: what was counted there is left out."""


class DerivedSample(NamedTuple):
    """A frame of a recording that counters are read from, and the figures of that moment."""

    frame: Frame
    snapshot: Snapshot
    seconds: float
    """Recorded time since the frame before."""
    follows_gap: bool
    """The growth of counters since the frame before is not known."""


def samples_of_past(
    past: FrameStore, make_deriver: Callable[[], Deriver], from_s: float, to_s: float
) -> Iterator[DerivedSample]:
    """The sampled frames with their figures, both ends included (Unix times). Reads a disk."""
    gaps = means_of_points(past, from_s, to_s).gaps
    return derive_samples(sampled_frames(past, from_s, to_s, gaps), make_deriver)


def derive_samples(samples: Iterable[SampledFrame], make_deriver: Callable[[], Deriver]) -> Iterator[DerivedSample]:
    """Derive the figures of frames, one after another. After a reboot, where the monotonic clock begins anew, so does
    the deriver."""
    deriver = make_deriver()
    last: Frame | None = None
    for frame, follows_gap in samples:
        seconds = 0.0
        # Seconds that the wall clock went through twice, as it was set back. A past has only what was taken when it
        # went through them again: what was counted the first time is lost, as in a gap.
        repeated_s = 0.0
        if last is not None:
            seconds = frame.monotonic_s - last.monotonic_s
            repeated_s = seconds - (frame.wall_s - last.wall_s)
        if seconds < 0.0:
            deriver = make_deriver()
        if seconds < 0.0 or repeated_s > GAP_S:
            follows_gap = True
        if follows_gap:
            seconds = 0.0
        last = frame
        # With the interval that it was taken at, the deriver would take the minute since the last one for an outage.
        snapshot = deriver.derive(msgspec.structs.replace(frame, interval_s=SAMPLE_S)).snapshot
        yield DerivedSample(frame, snapshot, seconds, follows_gap)


def sampled_frames(
    past: FrameStore, from_s: float, to_s: float, gaps: Sequence[tuple[float, float]]
) -> Iterator[SampledFrame]:
    """The first frame, one per minute or more from there on, and the last one; all between two of them with a gap, or
    in which an engine or a GPU came, went or began anew, as what was counted there is in none of the others."""
    last: Frame | None = None
    for frame_s in _sampled_times(past, from_s, to_s):
        frames = past.frames(frame_s, frame_s)
        if not frames:
            continue
        samples = [SampledFrame(frames[-1], follows_gap=False)]
        if last is not None and _has_changed(last, frames[-1], gaps):
            samples = _samples_between(past, last, frame_s)
        for sample in samples:
            last = sample.frame
            yield sample


def _has_changed(last: Frame, frame: Frame, gaps: Sequence[tuple[float, float]]) -> bool:
    """Whether an engine or a GPU came, went or began anew between two frames, or nothing was recorded for a while."""
    if any(begin_s < frame.wall_s and last.wall_s < end_s for begin_s, end_s in gaps):
        return True
    if _things_that_count(frame) != _things_that_count(last):
        return True
    earlier = {reading.key: reading for reading in last.engines}
    return any(
        reading.key in earlier and _may_have_restarted(earlier[reading.key], reading) for reading in frame.engines
    )


def _samples_between(past: FrameStore, last: Frame, to_s: float) -> list[SampledFrame]:
    """All frames after the last one, up to a time."""
    samples = []
    since_s = last.wall_s
    for frame in past.frames(last.wall_s, to_s):
        if frame.seq != last.seq:
            # A frame stands for the interval before it, which is no gap.
            follows_gap = frame.wall_s - since_s > GAP_S + frame.interval_s
            samples.append(SampledFrame(frame, follows_gap))
            since_s = frame.wall_s
    return samples


def _sampled_times(past: FrameStore, from_s: float, to_s: float) -> Iterator[float]:
    """Unix times of the frames that are sampled: the first of each step, and the last of all."""
    step_s = min(SAMPLE_S, max((to_s - from_s) / _SAMPLES, _SHORTEST_STEP_S))
    frame_s = first_at_or_after(past, from_s)
    last_s = last_at_or_before(past, to_s)
    while frame_s is not None and last_s is not None and frame_s <= last_s:
        yield frame_s
        if frame_s == last_s:
            return
        # Blocks of a recording begin with a minute: their first frame is read without others.
        step_end_s = (frame_s // step_s + 1) * step_s
        # Of a step that is no whole number of seconds, rounding may put the end on the frame itself.
        next_s = first_at_or_after(past, max(step_end_s, math.nextafter(frame_s, math.inf)))
        frame_s = last_s if next_s is None or next_s > last_s else next_s


def _things_that_count(frame: Frame) -> frozenset[str]:
    """Keys of the engines that answer, and UUIDs of the GPUs that count their energy.

    An engine that does not answer is in the frame with the counters of its last answer.
    """
    things = {reading.key for reading in frame.engines if reading.ranks and reading.state is EndpointState.OK}
    for gpu in frame.gpus:
        if not isinstance(gpu.energy_j, Missing):
            things.add(gpu.uuid)
    return frozenset(things)


def _may_have_restarted(before: EngineReading, now: EngineReading) -> bool:
    """Whether an engine's process started since, or a counter fell: not every engine tells when it started."""
    if abs(now.started_wall_s - before.started_wall_s) > START_TOLERANCE_S:
        return True
    counters_before = {rank.rank: rank.counters for rank in before.ranks}
    for rank in now.ranks:
        earlier = counters_before.get(rank.rank, {})
        if any(value < earlier.get(counter, value) for counter, value in rank.counters.items()):
            return True
    return False
