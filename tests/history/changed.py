"""Plays of the simulator in which one thing is set differently in the middle, recorded in virtual time.

python -m tests.history.changed

How many figures are called changes in plays of steady load, of all that are judged: five seeds of each play.
"""

from __future__ import annotations

from typing import Final

from gpumon.demo.scenario import Actor, EngineEffect, GpuEffect, Scenario
from gpumon.demo.scenarios import ENGINES, demand
from gpumon.demo.scenarios import scenario as named_scenario
from gpumon.demo.traffic import Surge
from gpumon.history.compared import compare_spans
from gpumon.history.memory import MemoryStore
from gpumon.readings.before_after import BeforeAfter, Judgement, ThingChange
from gpumon.readings.verdict import Kind
from gpumon.readings.when import Stretch
from tests.accuracy.triage import WALL_S, frames
from tests.history.pasts import lived, make
from tests.records import replace

CHANGE_S: Final = 100.0
BEFORE: Final = Stretch(WALL_S + 5.0, WALL_S + 95.0)
AFTER: Final = Stretch(WALL_S + 150.0, WALL_S + 240.0)
EVERY_S: Final = 4
"""Seconds between two frames, and two polls of an engine."""
RATE: Final = 5.0
CHAT: Final[Actor] = replace(ENGINES["llama-8b"], demand=demand(RATE, 1800, 240))


def play(name: str, **parts: object) -> Scenario:
    """A play of `CHAT` alone on one of two GPUs, unless `parts` say otherwise."""
    return Scenario(name=name, about="", truth=(), **{"cast": (CHAT,), **parts})


STEADY: Final = play("steady")
DOUBLED: Final = play(
    "doubled", cast=(replace(CHAT, demand=replace(CHAT.demand, surges=(Surge(CHANGE_S, 1e9, 2.0),))),)
)
LOCKED: Final = play("locked", gpu_effects=(GpuEffect(gpus=(0,), clock_share=0.5, from_s=CHANGE_S),))
LOWERED: Final = play("lowered", gpu_effects=(GpuEffect(gpus=(0,), power_limit_w=600.0, from_s=CHANGE_S),))


def restarted(before: Actor, after: Actor, name: str = "restarted") -> Scenario:
    """One server, stopped at the change and started with other options 15 s later."""
    later = replace(after, name=f"{before.name}-later", port_of=before.name)
    effects = (
        EngineEffect(engine=before.name, down=True, from_s=CHANGE_S),
        EngineEffect(engine=later.name, down=True, from_s=-1000.0, to_s=CHANGE_S + 15.0),
    )
    return play(name, cast=(before, later), engine_effects=effects)


MORE_SLOTS: Final = restarted(replace(CHAT, max_num_seqs=12), replace(CHAT, max_num_seqs=64), "more slots")
RESTARTED: Final = restarted(CHAT, CHAT)


def store_of(scenario: Scenario, seed: int = 1) -> MemoryStore:
    """The play as the collector keeps it."""
    store = MemoryStore(3600.0, 1e9)
    lived((frame for _, frame in frames(scenario, 240.0, seed, EVERY_S)), store)
    return store


def answer_of(scenario: Scenario, seed: int = 1) -> BeforeAfter:
    """Both sides of the change."""
    return compare_spans(store_of(scenario, seed), make, BEFORE, AFTER)


def named(answer: BeforeAfter) -> dict[str, dict[str, tuple[str, str]]]:
    """Thing -> code or option of what was set differently -> both values."""
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for thing in answer.things:
        for change in thing.changes:
            found.setdefault(thing.name, {})[change.name or change.code] = (change.before, change.after)
    return found


def changed(answer: BeforeAfter, kind: Kind) -> set[str]:
    """Codes of the figures of all things of a kind that are called changes."""
    codes = set()
    for thing in answer.things:
        if thing.kind is kind:
            codes.update(figure.code for figure in thing.figures if figure.judgement is Judgement.CHANGED)
    return codes


def only(answer: BeforeAfter, kind: Kind) -> ThingChange:
    """The first thing of a kind."""
    return next(thing for thing in answer.things if thing.kind is kind)


def main() -> None:
    """Print a line for each play."""
    for scenario in (STEADY, *map(named_scenario, ("decode-bound", "tp-over-nvlink", "training"))):
        judged = 0
        called: list[str] = []
        for seed in range(1, 6):
            for thing in answer_of(scenario, seed).things:
                for figure in thing.figures:
                    judged += figure.judgement is not Judgement.NOT_JUDGED
                    if figure.judgement is Judgement.CHANGED:
                        called.append(f"{thing.name} {figure.code}")
        print(
            f"{scenario.name:16} {judged} figures judged, {len(called)} called changes {', '.join(called)}", flush=True
        )


if __name__ == "__main__":
    main()
