"""What must hold of polls of which something is missing, beside the same polls whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from gpumon.readings import quantities as q
from gpumon.readings.flat import value_of
from gpumon.readings.frame import Advance, EndpointState, EngineKind, EngineReading
from gpumon.readings.missing import Missing, Reason, number
from gpumon.readings.snapshot import Engine
from tests.accuracy.hostile_chain import Shot
from tests.accuracy.hostile_rules import TOTALS, figures

COUNTED: Final = {
    "prefill_tokens_per_s": q.PREFILL_COMPUTED,
    "decode_tokens_per_s": q.DECODE_TOKENS,
    "cached_tokens_per_s": q.PREFILL_CACHED,
    "requests_per_s": q.REQUESTS,
    "failures_per_s": q.FAILURES,
    "inferences_per_s": q.INFERENCES,
    "preemptions_per_s": q.PREEMPTIONS,
}
"""Rate -> its counter."""
_PREFILL, _DECODE = ("prefill_tokens_per_s",), ("decode_tokens_per_s",)
FOLLOWS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("mfu_prefill_ratio", "prefill_flops_per_s"), _PREFILL),
    **dict.fromkeys(("bytes_per_s", "mbu_ratio", "tokens_per_j"), _DECODE),
    **dict.fromkeys(("mbu_single_stream_ratio", "weight_bytes_per_s"), _DECODE),
    **dict.fromkeys(("mfu_ratio", "flops_per_s", "flops_per_j"), (*_PREFILL, *_DECODE)),
}
"""Figure -> the rates that are 0 where it is."""
RESTING: Final = frozenset(
    {"cached_ratio", "steps_per_s", "kv_bytes_per_s", "batch", "running_mean", "mfu_decode_ratio", "decode_flops_per_s"}
)
"""Made of several counters or samples: 0 where one of them stood still, or the only ones that were told are; decode's
FLOPs where every token is the first of its answer."""
ESTIMATED: Final = 0.1
FEW: Final = 8.0
"""Share, and number of tokens, by which a worked-out total may depend on what of its inputs was there."""
ROUNDING: Final = 1e-6
HALF: Final = 0.5
"""A counter with less of its last value left has begun anew, for all that anybody can tell without a start time."""


class Beside:
    """What is missing takes figures away; it makes none of them 0, and no total higher."""

    def __init__(self, *, late: bool) -> None:
        """`late`: an older answer comes again; its gauges are what they were."""
        self._late = late
        self._known: set[tuple[str, str]] = set()
        self._sightings: dict[tuple[str, str], list[Mapping[str, float]]] = {}
        self._highest: dict[tuple[str, str, str], float] = {}
        self._anew: set[str] = set()
        """Engines that begin anew, as far as their pages tell."""
        self._records: set[str] = set()
        """Those whose gauges are those of the newest record that has them."""
        self._from_zero: set[str] = set()
        """Those that do not write what they have not counted yet: a line that is missing says 0."""

    def check(self, whole: Shot, broken: Shot) -> None:
        """One more poll of both."""
        there = {reading.key: (reading, engine) for reading, engine in _pairs(whole)}
        for reading, engine in _pairs(broken):
            if reading.key in there:
                self._begin(reading)
                self._sight(there[reading.key][0], reading, engine)
                self._totals(there[reading.key][1], reading, engine)
                if not self._late:
                    self._zeros(there[reading.key][1], reading.key, engine)

    def _begin(self, reading: EngineReading) -> None:
        if "sglang" in " ".join(reading.live.values()):
            self._from_zero.add(reading.key)
        # Each record of TensorRT-LLM's is given once, and what they add up to begins anew after an outage.
        outage = reading.state is not EndpointState.OK
        if (outage or self._late) and reading.kind is EngineKind.TENSORRT_LLM:
            self._anew.add(reading.key)
        if outage:
            # What comes after it may be another process: nothing is known of that.
            self._known = {(key, name) for key, name in self._known if key != reading.key}
        if reading.kind is EngineKind.TENSORRT_LLM:
            self._records.add(reading.key)
        for quantity in TOTALS.values():
            for rank, told in _counters(reading, quantity).items():
                at = reading.key, rank, quantity
                highest = self._highest.get(at, 0.0)
                if self._late and told < HALF * highest and not reading.started_wall_s:
                    self._anew.add(reading.key)
                self._highest[at] = max(told, highest)

    def _sight(self, whole: EngineReading, reading: EngineReading, engine: Engine) -> None:
        """Remember the counters that this poll truly told."""
        for field, quantity in COUNTED.items():
            seen = self._sightings.setdefault((reading.key, field), [])
            value = value_of(engine, field)
            if isinstance(value, Missing) and value.reason is Reason.RESET:
                seen.clear()
            told, true = _counters(reading, quantity), _counters(whole, quantity)
            same = told == true and reading.live.get(quantity) == whole.live.get(quantity)
            if told and (same or reading.advance.get(quantity) is Advance.DERIVED):
                seen.append(told)

    def _zeros(self, whole: Engine, key: str, engine: Engine) -> None:
        """No figure that was known is 0 for what is missing; a rate is 0 only of a counter that stood still."""
        before, now = figures(whole), figures(engine)
        for name, value in now.items():
            if isinstance(value, Missing):
                continue
            if name in FOLLOWS:
                parts = [now[part] for part in FOLLOWS[name]]
                assert value or all(part == 0.0 for part in parts), (key, name, parts)
            elif value:
                self._known.add((key, name))
            elif name in COUNTED:
                seen = self._sightings[key, name]
                stood = len(seen) > 1 and seen[0] == seen[-1]
                told = any(any(each.values()) for each in seen) if key in self._from_zero else bool(seen)
                known = (told or (key, name) in self._known) and key not in self._anew
                assert stood or not (known and number(before[name])), (key, name, before[name], seen)
            elif name not in RESTING and key not in self._records:
                assert (key, name) not in self._known or not number(before[name]), (key, name, before[name])

    def _totals(self, whole: Engine, reading: EngineReading, engine: Engine) -> None:
        """No total is higher than with everything there."""
        if reading.key in self._anew | self._from_zero:
            return
        for name, quantity in TOTALS.items():
            total, most = (number(getattr(each.tokens_total, name)) for each in (engine, whole))
            derived = reading.advance.get(quantity) is Advance.DERIVED
            if total is not None and most is not None and not (derived and self._late):
                slack = (ESTIMATED * most + FEW) if derived else ROUNDING * (most + 1.0)
                assert total <= most + slack, (reading.key, name, most, total)


def _pairs(shot: Shot) -> Sequence[tuple[EngineReading, Engine]]:
    return list(zip(shot.readings, shot.snapshot.engines, strict=True))


def _counters(reading: EngineReading, quantity: str) -> dict[str, float]:
    return {rank.rank: rank.counters[quantity] for rank in reading.ranks if quantity in rank.counters}
