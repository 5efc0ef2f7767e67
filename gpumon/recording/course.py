"""The frames of a past, derived one after another as they were when they were taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from gpumon.efficiency.deriver import Deriver
from gpumon.readings.frame import Frame
from gpumon.readings.snapshot import Snapshot
from gpumon.recording.past import Past
from gpumon.triage.triage import Triage

WARM_UP_S: Final = 130.0
"""How far before a carry frames are taken in for it. Quantiles are of 60 s, what most rules look back at is of 120 s at
most. What is of longer comes from the carry: counts since the start, the means of an hour and of 10 minutes, since when
things are there and as they are, and which verdicts stand.

Only windows that grow beyond it are shorter than they were: those of prompts that take longer than 2 minutes, and of
engines that are polled less often than once a minute."""
DERIVED_EVERY_S: Final = 10.0
"""In the warm-up frames are derived so often, the others only followed: what GPUs and the host read is sampled at every
frame all the same, as are the engines' counts, and their rates are means of 10 s. So evidence that is a mean over up to
3 minutes may differ in its last digits in the first minutes after a jump; the verdict does not."""
EXACT_S: Final = 12.0
"""So long before the carry frames are derived at every poll of an engine, too: most evidence on engines is a mean of
10 s. Where there is no carry they are all derived and judged."""
CARRY_AGE_S: Final = 60.0
"""From an older carry no past goes on: too many frames would have to be judged."""

Make = Callable[[], tuple[Deriver, Triage]]


class Taken(NamedTuple):
    """A moment of the past."""

    wall_s: float
    interval_s: float
    snapshot: Snapshot
    points: Mapping[str, float]


class Course:
    """Goes on from a moment of a past, frame by frame. What does not go on from the frame before starts anew.

    Verdicts stand on every frame since they were given, so all frames since a carry are judged; before it none has to
    be, as the carry tells which stand.
    """

    def __init__(self, past: Past, make: Make) -> None:
        self._past = past
        self._make = make
        self._deriver, self._triage = make()
        self._last: Frame | None = None
        self._shown: Snapshot | None = None
        self._sampled: tuple[Frame, Snapshot] | None = None
        """The frame that was derived last without being judged."""
        self._derived_s = float("-inf")
        self._carried_s: float | None = None
        """When the frame was taken before which the first carry stood."""

    @property
    def last(self) -> Frame | None:
        """The frame taken in last."""
        return self._last

    def begin(self, wall_s: float) -> Iterator[None]:
        """Get ready to take the first frame at or after a time, in small steps."""
        self._renew()
        carried_s = self._newest_carry_s(wall_s)
        from_s = wall_s if carried_s is None else carried_s
        before = self._past.frames(from_s - WARM_UP_S, wall_s)
        frames = unbroken([frame for frame in in_order(before) if frame.wall_s < wall_s])
        if carried_s is not None and carried_s not in (wall_s, *(frame.wall_s for frame in frames)):
            carried_s = None  # it is of another process
        self._carried_s = carried_s
        edge_s = max((frame.wall_s for frame in frames if frame.wall_s < from_s), default=0.0)
        for frame in frames:
            is_due = frame.monotonic_s - self._derived_s >= DERIVED_EVERY_S
            is_near = from_s - frame.wall_s <= EXACT_S
            if self._last is None or frame.wall_s >= from_s or (carried_s is None and (is_near or is_due)):
                self.take(frame)
            elif is_due or frame.wall_s == edge_s or _differ(frame, self._last, figures=is_near):
                self._sample(frame)
            else:
                self._follow(frame)
            yield

    def _newest_carry_s(self, wall_s: float) -> float | None:
        found = self._past.carry(wall_s)
        return found[0] if found is not None and wall_s - found[0] <= CARRY_AGE_S else None

    def take(self, frame: Frame) -> Taken:
        """The moment of the next frame."""
        before = self._last
        restored = self._go_on(frame)
        snapshot, points = self._deriver.derive(frame)
        self._shown = self._triage.judge(frame, snapshot)
        if restored and before is not None and before.wall_s < frame.wall_s:
            # What a carry corrects is no event: those of this moment are told as they were.
            told = [event for event in self._past.events(before.wall_s, frame.wall_s) if event.wall_s > before.wall_s]
            self._shown = msgspec.structs.replace(self._shown, events=tuple(told))
        self._derived_s = frame.monotonic_s
        return Taken(frame.wall_s, frame.interval_s, self._shown, points)

    def _sample(self, frame: Frame) -> None:
        self._go_on(frame)
        self._shown = self._deriver.derive(frame).snapshot
        self._sampled = (frame, self._shown)
        self._triage.follow(frame, self._shown)
        self._derived_s = frame.monotonic_s

    def _follow(self, frame: Frame) -> None:
        self._go_on(frame)
        derived = self._deriver.follow(frame, self._shown)
        if self._shown is not None:
            self._triage.follow(frame, self._shown, derived)

    def _go_on(self, frame: Frame) -> bool:
        """Whether a carry stood before this frame."""
        if self._last is not None and not _follows(frame, self._last):
            self._renew()
        last, self._last = self._last, frame
        if last is None or frame.wall_s == self._carried_s or frame.wall_s // 60.0 != last.wall_s // 60.0:
            at_s, carry = self._past.carry(frame.wall_s) or (None, None)
            if carry is not None and at_s == frame.wall_s:
                self._deriver.restore(carry)
                sampled = self._sampled if self._sampled is not None and self._sampled[0] is last else None
                self._triage.restore(carry, sampled)
                return True
        return False

    def _renew(self) -> None:
        self._deriver, self._triage = self._make()
        self._last = self._shown = self._sampled = None
        self._derived_s = float("-inf")


def _differ(frame: Frame, before: Frame, *, figures: bool) -> bool:
    """Whether other engines are there, or the same with newer figures."""
    if figures:
        return frame.engines != before.engines
    return [engine.key for engine in frame.engines] != [engine.key for engine in before.engines]


def _follows(frame: Frame, before: Frame) -> bool:
    """Whether it was taken after the other by the same process."""
    return frame.seq > before.seq and frame.monotonic_s > before.monotonic_s


def in_order(frames: Iterable[Frame]) -> list[Frame]:
    """Frames of which each is later than the one before: after a clock was set back, the newest of each time."""
    found: list[Frame] = []
    for frame in reversed([*frames]):
        if not found or frame.wall_s < found[-1].wall_s:
            found.append(frame)
    return found[::-1]


def unbroken(frames: Sequence[Frame]) -> Sequence[Frame]:
    """The last frames of one process."""
    start = max((at for at in range(1, len(frames)) if not _follows(frames[at], frames[at - 1])), default=0)
    return frames[start:]
