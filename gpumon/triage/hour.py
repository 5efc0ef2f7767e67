"""An engine's last hour in slots of 20 s: what its figures were before, for rules that ask what has changed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median
from typing import Final, NamedTuple

SLOT_S: Final = 20.0
"""Length of a slot: three of them are the minute over which rates of requests are judged."""
_MOST_SLOTS: Final = 180
"""Slots of an hour."""
HOUR_FIELDS: Final = (
    "requests_per_s",
    "acceptance_ratio",
    "cached_ratio",
    "itl_mean_s",
    "ttft_s.mean",
    "kv_usage_ratio",
    "running",
)
"""Sampled fields of an engine whose means are kept."""
LEAST_BEFORE: Final = 3
"""Slots before a change that make a level: a minute."""
EXTREME: Final = 0.9
"""Quantile that stands for the level of before while it is not known yet which slots are of before."""
SWINGS: Final = 0.25
"""Share of the slots of before that may lie as far off as now: with more of them the figure always swings so."""
JOINED: Final = 1.5
"""Lengths of a slot after which the next one must have ended to follow it without a gap."""

MeanOfField = Callable[[str, float], "float | None"]
"""Mean of a sampled field over the last seconds; None where it was not known."""


class HourSlot(NamedTuple):
    """20 s of an engine."""

    end_s: float
    """Monotonic."""
    means: tuple[float | None, ...]
    """Means of `HOUR_FIELDS`, in their order."""
    in_flight: float | None
    """Requests that ran or waited when it ended."""


class Arrived(NamedTuple):
    """Requests that came in one slot."""

    end_s: float
    """Monotonic."""
    requests: float


class Hour:
    """The slots of the last hour; knows no clock."""

    def __init__(self) -> None:
        self.slots: deque[HourSlot] = deque(maxlen=_MOST_SLOTS)
        self._began_s: float | None = None
        """When the slot of now began (monotonic); None before the first sample."""

    def is_due(self, now_s: float) -> bool:
        """Whether a slot has ended by now."""
        if self._began_s is None:
            self._began_s = now_s
        return now_s - self._began_s >= SLOT_S

    def add(self, now_s: float, mean: MeanOfField, in_flight: float | None) -> None:
        """Take in the slot that ends now."""
        self._began_s = now_s
        self.slots.append(HourSlot(now_s, tuple([mean(field, SLOT_S) for field in HOUR_FIELDS]), in_flight))

    def values(self, field: str) -> list[float]:
        """The known means of a field, oldest first."""
        index = HOUR_FIELDS.index(field)
        values = []
        for slot in self.slots:
            value = slot.means[index]
            if value is not None:
                values.append(value)
        return values

    def before_fall(self, field: str, now: float, largest_share: float) -> float | None:
        """The level that a field had before it fell to `largest_share` of it or less; None where it did not fall so."""
        level = _level_before(self.values(field), now)
        if level is not None and now <= largest_share * level:
            return level
        return None

    def before_rise(self, field: str, now: float, least_factor: float) -> float | None:
        """The level that a field had before it rose to `least_factor` times of it or more; None where it did not rise
        so."""
        level = _level_before([-value for value in self.values(field)], -now)
        if level is not None and now >= least_factor * -level:
            return -level
        return None

    def arrived(self) -> list[Arrived]:
        """Requests that came in each slot whose begin is known, oldest first: those that ended, and what is in flight
        more than before. Prompts are answered late, so that ended requests alone go on after the last has come."""
        index = HOUR_FIELDS.index("requests_per_s")
        arrivals: list[Arrived] = []
        for before, slot in pairwise(self.slots):
            per_s = slot.means[index]
            length_s = slot.end_s - before.end_s
            if per_s is None or before.in_flight is None or slot.in_flight is None or length_s > JOINED * SLOT_S:
                arrivals.clear()
                continue
            requests = per_s * length_s + slot.in_flight - before.in_flight
            arrivals.append(Arrived(slot.end_s, max(0.0, requests)))
        return arrivals


def begin_of_now(values: Sequence[float], now: float, looked_back: int = _MOST_SLOTS) -> int:
    """Index from which on all values lie nearer to `now` than to the high ones of the last `looked_back` values."""
    sorted_values = sorted(values[-looked_back:])
    if not sorted_values:
        return 0
    high = sorted_values[int(EXTREME * (len(sorted_values) - 1))]
    middle = (high + now) / 2.0
    begin = len(values)
    while begin and values[begin - 1] < middle:
        begin -= 1
    return begin


def _level_before(values: Sequence[float], now: float) -> float | None:
    """The median of the values before the last ones that lie at the height of now, which is below it.

    None without enough of them, and where they have gone as low as now all along.
    """
    before = values[: begin_of_now(values, now)]
    if len(before) < LEAST_BEFORE:
        return None
    level = median(before)
    swings = []
    for value in before:
        if value < (level + now) / 2.0:
            swings.append(value)
    if level > now and len(swings) <= SWINGS * len(before):
        return level
    return None
