"""What gpumon learns of an engine while it looks on, against the step that it was not shown.

    python -m tests.accuracy.calibration [--markdown FILE]

An engine is walked up a staircase of concurrency. The real adapter and deriver read its metrics pages, `Calibration`
gathers the points, and the curve through those of the lower steps predicts the ITL of the highest one, which is held
back. Recordings of real engines are replayed from their pages; of the simulated ones the physics' own truth is known.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from gpumon.demo.serving import SimulatedEngine
from gpumon.readings.snapshot import Snapshot
from gpumon.sizing.calibration import Calibration
from gpumon.sizing.fit import Fitted, fit
from gpumon.sizing.latency import Mix
from gpumon.sizing.profile import Observed
from gpumon.sizing.roofline import InstanceSetting, roofline, weight_read_s
from gpumon.sources.packaged import gpu_catalogue, llm_catalogue
from gpumon.specs.llm import LlmSpec
from tests.accuracy.pages import WALL_S, Page, Where, recorded, snapshots
from tests.accuracy.staircase import ACTORS, Staircase
from tests.fakes.engine import Capture
from tests.records import replace

GPU = "H100 SXM 80GB"
STEP_S = 45.0
STAIRS = {
    "llama-70b": (1, 2, 4, 8, 12, 16, 24, 36),
    "qwen-moe": (1, 2, 4, 8, 16, 24, 32, 48),
    "llama-8b": (2, 4, 8, 12, 16, 24, 32, 48),
}
RECORDED = ("vllm-staircase",)
LASTED = 3
"""Windows."""
BUSIER = {"qwen-moe": 4.0}
"""The simulator's agent model sees 1 to 4 requests at a time: three levels, for which the roofline has to help."""


class Outcome(NamedTuple):
    """One prediction of a step that was held back. Seconds."""

    name: str
    steps: tuple[int, ...]
    held: int
    points: int
    fitted: Fitted | str
    running: float
    predicted_s: float
    measured_s: float
    source: str
    """Of what was measured."""

    @property
    def error(self) -> float:
        """As a share of what was measured."""
        return abs(self.predicted_s / self.measured_s - 1.0)


class Watched(NamedTuple):
    """What was seen before a moment, and after it."""

    before: Observed
    after: Observed


def watch(seen: Iterable[Snapshot], split_s: float) -> Watched:
    """Two observers: one that leaves at `split_s` seconds, and one that comes 12 s later, more than a window."""
    first, second = Calibration(), Calibration()
    for snapshot in seen:
        at_s = snapshot.wall_s - WALL_S
        if at_s <= split_s:
            first.take(snapshot)
        elif at_s >= split_s + 12.0:
            second.take(snapshot)
    return Watched(first.observed()[0], second.observed()[0])


def fit_of(observed: Observed, llm: LlmSpec | None) -> Fitted | str:
    """The curve as sizing makes it: with the roofline's shape and floor where model and GPU are known."""
    if llm is None or not observed.gpu or observed.prompt_tokens is None or observed.answer_tokens is None:
        return fit(observed.points, roof=None)
    mix = Mix(observed.prompt_tokens, observed.answer_tokens, observed.prefix_hit_ratio or 0.0)
    setting = InstanceSetting(llm, gpu_catalogue().find(observed.gpu), max(observed.gpus, 1), max(observed.tp, 1), mix)
    return fit(observed.points, roof=roofline(setting), floor_s=0.5 * weight_read_s(setting))


def simulated(name: str, seconds: float = STEP_S, seed: int = 1, clients: Sequence[int] = ()) -> Outcome:
    """One simulated engine, its highest step held back; measured is what the physics did."""
    actor, steps = ACTORS[name], tuple(clients) or STAIRS[name]
    stairs = Staircase(actor, [(seconds, count) for count in steps], seed=seed)
    llm = llm_catalogue().find(actor.model)
    where = Where(llm, GPU, len(actor.ranks[0]))
    watched = watch(snapshots(stairs.pages(), where), seconds * (len(steps) - 1))
    truth = stairs.truth(steps[-1])
    return _outcome(f"simulated {name}", steps, watched, llm, truth.decoding, truth.itl_s, "physics")


def swelling(name: str, seconds: float = 1200.0, seed: int = 1) -> Outcome:
    """One simulated engine under its own open traffic, that swells and ebbs.

    Held back is the level with most running that lasted for three windows: what is above it was met in passing.
    """
    actor = ACTORS[name]
    demand = replace(actor.demand, requests_per_s=actor.demand.requests_per_s * BUSIER.get(name, 1.0), period_s=600.0)
    actor = replace(actor, demand=demand)
    engine = SimulatedEngine(actor, seed, 0.0, WALL_S)
    llm = llm_catalogue().find(actor.model)
    count = sum(map(len, actor.ranks))
    calibration = Calibration()
    for snapshot in snapshots(_polled(engine, seconds), Where(llm, GPU, count)):
        calibration.take(snapshot)
    seen = calibration.observed()[0]
    held = [point for point in seen.points if point.weight >= LASTED][-1]
    lower = tuple(point for point in seen.points if point.running < held.running)
    before = replace(seen, points=lower)
    steps = tuple(dict.fromkeys(round(point.running) for point in (*lower, held)))
    measured_s = held.itl_s or 0.0
    return _outcome(f"{name}, open traffic", steps, Watched(before, seen), llm, held.running, measured_s, "engine")


def _polled(engine: SimulatedEngine, seconds: float) -> Iterator[Page]:
    for at_s in range(0, round(seconds), 2):
        engine.advance(float(at_s))
        yield Page(float(at_s), engine.answer("/metrics").body)


def replayed(name: str) -> Outcome:
    """One recording of a real engine, its highest step held back; measured is what the engine counted meanwhile."""
    phases = [phase for phase in Capture(name).meta["phases"] if phase["kind"] == "c"]
    steps = tuple(phase["conc"] for phase in phases)
    watched = watch(snapshots(recorded(name), Where()), phases[-1]["t0"])
    held = watched.after.points[-1]
    return _outcome(name, steps, watched, None, held.running, held.itl_s or 0.0, "engine")


def _outcome(
    name: str,
    steps: tuple[int, ...],
    watched: Watched,
    llm: LlmSpec | None,
    running: float,
    measured_s: float,
    source: str,
) -> Outcome:
    fitted = fit_of(watched.before, llm)
    predicted_s = float("nan") if isinstance(fitted, str) else fitted.line.itl_s(running)
    points = len(watched.before.points)
    return Outcome(name, steps[:-1], steps[-1], points, fitted, running, predicted_s, measured_s, source)


HEAD = (
    *("engine", "steps seen", "points", "a ms", "c ms", "r2", "held back", "running"),
    *("predicted ms", "measured ms", "by", "error"),
)


def row(outcome: Outcome) -> tuple[str, ...]:
    """One line of the table."""
    fitted = outcome.fitted
    a, c, r2 = ("-", "-", fitted) if isinstance(fitted, str) else _figures(fitted)
    return (
        outcome.name,
        " ".join(map(str, outcome.steps)) if len(outcome.steps) < 10 else f"{outcome.steps[0]} to {outcome.steps[-1]}",
        str(outcome.points),
        a,
        c,
        r2,
        str(outcome.held),
        f"{outcome.running:.1f}",
        f"{outcome.predicted_s * 1e3:.2f}",
        f"{outcome.measured_s * 1e3:.2f}",
        outcome.source,
        f"{outcome.error:.1%}",
    )


def _figures(fitted: Fitted) -> tuple[str, str, str]:
    return f"{fitted.curve.base_s * 1e3:.2f}", f"{fitted.curve.slope_s * 1e3:.3f}", f"{fitted.r2:.3f}"


def table(outcomes: Iterable[Outcome]) -> str:
    """All of them as Markdown."""
    rows = [HEAD, ("---",) * len(HEAD), *map(row, outcomes)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in rows)


def main() -> None:
    """Print the table, and write it where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    works: list[tuple[Callable[[str], Outcome], str]] = [(replayed, name) for name in RECORDED]
    works += [(work, name) for work in (simulated, swelling) for name in STAIRS]
    text = table(work(name) for work, name in works)
    print(text)
    if arguments.markdown:
        arguments.markdown.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
