"""Forecasts of triage beside what happened: the time that each named, and that at which its limit was reached.

python -m tests.accuracy.forecast [--seeds 1,2,3] [--markdown docs/accuracy.md] [NAME ...]

Scenarios are played as those of `tests.accuracy.triage`. A forecast is right if its figure reaches the limit between
the earliest and the latest time that it named, each rounded as it is shown; one is false if its figure never does.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import NamedTuple

from gpumon.demo.scenario import Scenario
from gpumon.demo.scenarios import SCENARIOS, scenario
from gpumon.readings.flat import value_of
from gpumon.readings.missing import number
from gpumon.readings.snapshot import Limit, Snapshot, Verdict
from tests.accuracy.triage import frames, judged

RISING = (
    *("kv-fills", "kv-leak", "queue-rises", "vram-leak", "host-memory-leak"),
    *("itl-goal-in-reach", "ttft-goal-in-reach", "kv-transfers-rise"),
)
"""Scenarios with a figure that reaches its limit."""
HEALTHY = (
    *("day-in-minutes", "clients-come", "longer-prompts", "acceptance-varies", "healthy-chat", "batch-client"),
    *("offline-batch", "cold-start", "model-swap", "replica-starts", "slow-weights", "burst", "cold-prefix-cache"),
)
"""Scenarios in which nothing reaches a limit that it would be forecast for."""
FIELDS = {
    "kv_full_soon": "kv_usage_ratio",
    "queue_late_soon": "waiting",
    "kv_transfer_late_soon": "waiting_deferred",
    "itl_goal_missed_soon": "itl_mean_s",
    "ttft_goal_missed_soon": "ttft_s.mean",
    "vram_full_soon": "vram_used_bytes",
    "host_memory_full_soon": "memory_used_bytes",
}
"""Cause of a forecast -> the figure that it is about."""
ROUNDED_S = 15.0
"""Half of what `4 min` leaves open; forecasts of less than 90 s are shown in seconds."""
BEGIN, END = "<!-- forecasts: begin, written by `make triage` -->", "<!-- forecasts: end -->"


class Forecast(NamedTuple):
    """One forecast at one second."""

    place: tuple[str, str]
    """Key of the thing, and cause."""
    at_s: float
    seconds: float
    low_s: float
    high_s: float
    limit: float


class Outcome(NamedTuple):
    """Forecasts of one play."""

    scenario: str
    seed: int
    told: int
    """Seconds in which a forecast stood."""
    lead_s: float | None
    """Time between the first forecast and the event; None where there was none."""
    errors: tuple[float, ...]
    """Time that was named / time that was left, of each second."""
    held: int
    """Seconds in which the event was within the interval."""
    false: int
    """Seconds of a forecast whose figure never reached its limit."""


def outcome(played: Scenario, seed: int, timed: Iterable[tuple[float, Snapshot]]) -> Outcome:
    """Hold the forecasts of a play against what came of them."""
    forecasts: list[Forecast] = []
    figures: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for at_s, snapshot in timed:
        for key, thing in _things(snapshot):
            for cause, field in FIELDS.items():
                value = _figure(thing, field)
                if value is not None:
                    figures.setdefault((key, cause), []).append((at_s, value))
        forecasts += [_forecast(verdict, at_s) for verdict in snapshot.verdicts if _is_forecast(verdict)]
    errors = []
    leads = []
    held = 0
    false = 0
    for one in forecasts:
        left_s = _left_s(figures[one.place], one)
        if left_s is None:
            false += 1
            continue
        leads.append(left_s)
        errors.append(one.seconds / max(left_s, 1.0))
        held += one.low_s - ROUNDED_S <= left_s <= one.high_s + ROUNDED_S
    return Outcome(played.name, seed, len(forecasts), leads[0] if leads else None, tuple(errors), held, false)


def _things(snapshot: Snapshot) -> Iterator[tuple[str, object]]:
    """The things of a snapshot by the keys that verdicts have."""
    for engine in snapshot.engines:
        yield engine.key, engine
    for gpu in snapshot.gpus:
        yield gpu.reading.uuid, gpu
    yield "", snapshot.host


def _figure(thing: object, field: str) -> float | None:
    """A figure of a thing; None where it has no such one."""
    try:
        return number(value_of(thing, field))
    except (AttributeError, LookupError):
        return None


def _is_forecast(verdict: Verdict) -> bool:
    """Whether a verdict is a forecast that was found now."""
    return verdict.code is Limit.FORECAST and not verdict.until


def _forecast(verdict: Verdict, at_s: float) -> Forecast:
    figures = {name: value for name, value in verdict.parameters.items() if isinstance(value, float)}
    return Forecast(
        (verdict.key, verdict.cause), at_s, figures["seconds"], figures["low"], figures["high"], figures["limit"]
    )


def _left_s(values: Sequence[tuple[float, float]], one: Forecast) -> float | None:
    """Seconds from a forecast until its figure reached the limit; None where it never did."""
    for at_s, value in values:
        if at_s >= one.at_s and value >= one.limit:
            return at_s - one.at_s
    return None


def play(name: str, seed: int) -> Outcome:
    """Play a scenario and judge its forecasts."""
    played = scenario(name)
    return outcome(played, seed, judged(played, frames(played, played.length_s, seed)))


def table(outcomes: Sequence[Outcome]) -> str:
    """The outcomes by scenario, as Markdown."""
    lines = [
        "| scenario | first told before | named / true time, median (all seconds) | within the interval | false for |",
        "|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(one.scenario for one in outcomes):
        mine = [one for one in outcomes if one.scenario == name]
        leads = [f"{one.lead_s:.0f} s" for one in mine if one.lead_s is not None]
        errors = sorted(error for one in mine for error in one.errors)
        ratio = f"{median(errors):.2f} ({errors[0]:.2f} to {errors[-1]:.2f})" if errors else "–"
        held = f"{sum(one.held for one in mine) / len(errors):.0%}" if errors else "–"
        false = sum(one.false for one in mine)
        lines.append(f"| `{name}` | {', '.join(leads) or '–'} | {ratio} | {held} | {f'{false} s' if false else '0'} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, and write it into a page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="page to write the table into")
    parser.add_argument("--seeds", metavar="N,N", default="1,2,3", help="of the traffic (default: %(default)s)")
    parser.add_argument(
        "names", metavar="NAME", nargs="*", help="scenarios (default: those with forecasts, and healthy)"
    )
    chosen = parser.parse_args(arguments)
    known = {each.name for each in SCENARIOS}
    names = chosen.names or [name for name in (*RISING, *HEALTHY) if name in known]
    seeds = [int(seed) for seed in chosen.seeds.split(",")]
    with ProcessPoolExecutor() as pool:
        outcomes = list(pool.map(play, [name for name in names for _ in seeds], seeds * len(names)))
    written = table(outcomes)
    print(written)
    if chosen.markdown:
        text = chosen.markdown.read_text(encoding="utf-8")
        head, _, rest = text.partition(BEGIN)
        _, _, tail = rest.partition(END)
        chosen.markdown.write_text(f"{head}{BEGIN}\n\n{written}\n{END}{tail}", encoding="utf-8")
    return 1 if any(one.false for one in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
