"""The last hour of a thing in slots of 20 s: what its figures were before, for rules that ask what has changed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from gpumon.triage.change import TimedValue, level_before

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
    "decode_tokens_per_s",
    "prefill_tokens_per_s",
    "step_excess",
    "trained_tokens_per_s",
    "samples_per_s",
    "waiting",
    "waiting_deferred",
)
"""Sampled figures of an engine whose means are kept."""
GPU_HOUR_FIELDS: Final = (
    "vram_used_bytes",
    "busy_ratio",
    "sm_clock_hz",
    "power_w",
    "bandwidth_bytes_per_s",
    "nvlink_bytes_per_s",
    "tensor_cycles_per_s",
)
"""The same of a GPU."""
HOST_HOUR_FIELDS: Final = ("memory_used_bytes", "cpu_ratio", "disk_busy_ratio", "network_rx_bytes_per_s")
"""The same of the host."""
JOINED: Final = 1.5
"""Lengths of a slot after which the next one must have ended to follow it without a gap."""

MeanOfField = Callable[[str, float], "float | None"]
"""Mean of a sampled field over the last seconds; None where it was not known."""


class HourSlot(NamedTuple):
    """20 s of a thing."""

    end_s: float
    """Monotonic."""
    means: tuple[float | None, ...]
    """Means of its figures, in the order of `HOUR_FIELDS` of an engine."""
    in_flight: float | None
    """Requests that ran or waited when it ended."""


class Arrived(NamedTuple):
    """Requests that came in one slot."""

    end_s: float
    """Monotonic."""
    requests: float


class Hour:
    """The slots of the last hour; knows no clock."""

    def __init__(self, fields: Sequence[str] = HOUR_FIELDS) -> None:
        self._fields = fields
        """Figures whose means are kept."""
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
        self.slots.append(HourSlot(now_s, tuple([mean(field, SLOT_S) for field in self._fields]), in_flight))

    def values(self, field: str) -> list[float]:
        """The known means of a field, oldest first."""
        return [value for _, value in self.timed_values(field)]

    def timed_values(self, field: str) -> list[TimedValue]:
        """The known means of a field with the ends of their slots, oldest first."""
        index = self._fields.index(field)
        values = []
        for slot in self.slots:
            value = slot.means[index]
            if value is not None:
                values.append((slot.end_s, value))
        return values

    def before_fall(self, field: str, now: float, largest_share: float) -> float | None:
        """The level that a field had before it fell to `largest_share` of it or less; None where it did not fall so."""
        level = level_before(self.values(field), now)
        if level is not None and now <= largest_share * level:
            return level
        return None

    def before_rise(self, field: str, now: float, least_factor: float) -> float | None:
        """The level that a field had before it rose to `least_factor` times of it or more; None where it did not rise
        so."""
        level = level_before([-value for value in self.values(field)], -now)
        if level is not None and now >= least_factor * -level:
            return -level
        return None

    def arrived(self) -> list[Arrived]:
        """Requests that came in each slot since the last gap, oldest first: those that ended, and by how many more are
        in flight than a slot before. Those that ended alone would go on after the last has come."""
        index = self._fields.index("requests_per_s")
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
