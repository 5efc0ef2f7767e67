"""Two spans of a past, read and derived as they were, for `gpumon compare` and the page of the screen."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from gpumon.efficiency.before_after import before_after
from gpumon.efficiency.span import LEAST_PART_S, TakenSpan
from gpumon.history.derivation import CHUNK_S, Derivation, in_order
from gpumon.history.frame_store import FrameStore
from gpumon.readings.before_after import BeforeAfter
from gpumon.readings.format import clock_utc
from gpumon.readings.frame import Frame
from gpumon.readings.when import Stretch
from gpumon.triage.fresh import Make

USUAL_SPAN_S: Final = 300.0
"""Length of a span where only its end is given."""
MOST_MOMENTS: Final = 150
"""Moments of a span that are derived at most: counters say the same over fewer frames."""


_LEAST_SHARE: Final = 0.1
"""Share of its length below which the span that ends with a moment is made longer by what follows."""


class TooShortError(ValueError):
    """Two spans that cannot be held against each other; the text says why."""


def spans_of(before: Stretch, after: Stretch, length_s: float, held: Stretch) -> tuple[Stretch, Stretch]:
    """Both spans, where a moment (a stretch without length) is the end of one of `length_s`.

    A span of a moment is at most half as long as the moments are apart: what happens just after the first one, such as
    a restart, is in neither span. A moment at the beginning of what is kept has hardly
    anything before it: its span is what follows, up to the other span. Raises TooShortError.
    """
    apart_s = abs(after.end_s - before.end_s)
    if before.seconds <= 0.0 or after.seconds <= 0.0:
        length_s = min(length_s, apart_s / 2.0)
    old = _ending(before, length_s, held)
    new = _ending(after, length_s, held)
    if before.seconds <= 0.0:
        old = _following(old, new, length_s)
    if after.seconds <= 0.0:
        new = _following(new, old, length_s)
    for span in (old, new):
        if span.seconds < LEAST_PART_S:
            raise TooShortError(
                f"the span that ends at {clock_utc(span.end_s)} has {max(0, math.floor(span.seconds))} s: "
                f"a comparison needs {LEAST_PART_S:.0f} s on each side, so moments {2 * LEAST_PART_S:.0f} s apart"
            )
    if old.begin_s < new.end_s and new.begin_s < old.end_s:
        raise TooShortError("the two spans overlap: give others, or a shorter --for")
    return old, new


def _ending(moment: Stretch, length_s: float, held: Stretch) -> Stretch:
    """The span that ends with a moment; a stretch as it is."""
    if moment.seconds > 0.0:
        return moment
    return Stretch(max(held.begin_s, moment.end_s - length_s), moment.end_s)


def _following(span: Stretch, other: Stretch, length_s: float) -> Stretch:
    """A span that is far shorter than it should be, made longer by what follows it, up to the other one."""
    end_s = span.begin_s + length_s
    if span.seconds >= _LEAST_SHARE * length_s or other.begin_s < span.end_s:
        return span
    return Stretch(span.begin_s, min(end_s, other.begin_s))


def compare_spans(past: FrameStore, make: Make, before: Stretch, after: Stretch) -> BeforeAfter:
    """Both spans of a past. Reads a disk, and takes up to some seconds."""
    return before_after(_taken(past, make, before), _taken(past, make, after))


def _taken(past: FrameStore, make: Make, stretch: Stretch) -> TakenSpan:
    """Everything that was seen in a span."""
    span = TakenSpan(stretch.begin_s, stretch.end_s)
    derivation = Derivation(past, make)
    for _ in derivation.begin(stretch.begin_s):
        pass
    for frame in _thinned(past, stretch):
        moment = derivation.take(frame)
        span.take(moment.snapshot, frame.wall_s, frame.engines)
        span.moments += 1
    return span


def _thinned(past: FrameStore, stretch: Stretch) -> Iterator[Frame]:
    """The frames of a span, at most about `MOST_MOMENTS` of them, evenly spread."""
    every_s = stretch.seconds / MOST_MOMENTS
    next_s = -math.inf
    chunk_s: float | None = stretch.begin_s
    while chunk_s is not None and chunk_s <= stretch.end_s:
        end_s = min(stretch.end_s, chunk_s + CHUNK_S)
        for frame in in_order(past.frames(chunk_s, end_s)):
            if frame.wall_s >= next_s:
                next_s = max(next_s + every_s, frame.wall_s + every_s / 2.0)
                yield frame
        chunk_s = past.after(end_s)
