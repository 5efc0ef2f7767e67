"""Healthy traffic for a long time: what gpumon warns of, and how often what it says changes.

python -m tests.accuracy.healthy [--seeds 1,2,3] [--minutes 20] [--markdown docs/accuracy.md] [NAME ...]
python -m tests.accuracy.healthy --real-minutes 60 [--markdown docs/accuracy.md]

The kinds are the engines of the scenario `healthy-traffic`, all with room to spare: whatever is urgent is false. In
virtual time, at live pace, each kind is played alone. In real time `gpumon watch` sees all of them at once.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.demo.scenario import Actor, Scenario
from gpumon.demo.scenarios import scenario
from gpumon.readings.format import wall_of
from gpumon.readings.verdict import Level
from tests.accuracy.tables import write
from tests.accuracy.triage import URGENT, Said, frames, judged, said
from tests.records import replace

SETTLED_S: Final = 90.0
"""Seconds from which on changes count: before it windows fill, and a verdict takes half a minute to stand."""
WINDOW_S: Final = 600.0
MOST_CHANGES: Final = 2
"""Changes of a note in 10 minutes up to which somebody still reads it."""
CALM: Final = "calm"
"""Stands in the place of a note for verdicts that all is well."""
_MOST_WRITTEN: Final = 40
"""Changes of a thing that are printed."""
BEGIN: Final = "<!-- healthy: begin, written by `make triage` -->"
END: Final = "<!-- healthy: end -->"
REAL_BEGIN: Final = "<!-- healthy hour: begin, written by `python -m tests.accuracy.healthy --real-minutes 60` -->"
REAL_END: Final = "<!-- healthy hour: end -->"
GPUMON: Final = str(Path(sys.executable).with_name("gpumon"))
HOST: Final = "host"
"""Stands in the place of a kind for what is none of its engines and GPUs."""


SCENARIO: Final = scenario("healthy-traffic")
"""All engines of all kinds, on one server."""


def _kinds() -> dict[str, tuple[Actor, ...]]:
    """Kind of traffic -> engines that it goes to: their names begin with it."""
    kinds: dict[str, tuple[Actor, ...]] = {}
    for actor in SCENARIO.cast:
        kind = actor.name.partition("-")[0]
        kinds[kind] = (*kinds.get(kind, ()), actor)
    return kinds


KINDS: Final = _kinds()


class Turn(NamedTuple):
    """A change of what is said of a thing."""

    at_s: float
    words: str
    """Said of it from then on."""


class Told(NamedTuple):
    """What was said of one kind of traffic."""

    kind: str
    seed: int
    urgent: tuple[str, ...]
    """Each urgent verdict, with the seconds for which it stood."""
    changes: int
    """Most changes in any 10 minutes of one note of a thing, or of what is calm about it."""
    changed: str
    """The thing and the note that this is true of, and what was said in turn."""


def scenario_of(kind: str, length_s: float) -> Scenario:
    """A server with the engines of a kind alone, on its first GPUs, and nothing wrong."""
    first = min(gpu for actor in KINDS[kind] for gpu in actor.gpus)
    cast = []
    gpus = 0
    for actor in KINDS[kind]:
        ranks = tuple(tuple(gpu - first for gpu in rank) for rank in actor.ranks)
        cast.append(replace(actor, ranks=ranks))
        gpus += len(actor.gpus)
    return Scenario(f"healthy-{kind}", "", (), cast=tuple(cast), gpus=gpus, length_s=length_s)


def told(kind: str, seed: int, shown: Iterable[tuple[float, Sequence[Said]]]) -> Told:
    """What the verdicts of each moment (in seconds since the first) say of a kind."""
    urgent: dict[str, int] = {}
    before: dict[str, frozenset[Said]] = {}
    turns: dict[tuple[str, str], list[Turn]] = {}
    for at_s, verdicts in shown:
        now: dict[str, frozenset[Said]] = {}
        for one in verdicts:
            if one.level in URGENT:
                name = f"{one.thing}: {one.code}/{one.cause} {one.level}"
                urgent[name] = urgent.get(name, 0) + 1
            now[one.thing] = now.get(one.thing, frozenset()) | {one._replace(actions=())}
        for thing in sorted(before.keys() | now.keys()):
            old = before.get(thing, frozenset())
            new = now.get(thing, frozenset())
            if at_s < SETTLED_S or old == new:
                continue
            words = " + ".join(sorted(f"{one.code}/{one.cause}" for one in new)) or "nothing"
            for place in _changed(old, new):
                turns.setdefault((thing, place), []).append(Turn(at_s, words))
        before = now
    worst = max(turns, key=lambda place: _most_in_window(turns[place]), default=("", ""))
    history = turns.get(worst, [])
    seconds = tuple(f"{name} for {count} s" for name, count in sorted(urgent.items()))
    words = " -> ".join(f"{turn.words} ({turn.at_s:.0f} s)" for turn in history[:_MOST_WRITTEN])
    return Told(kind, seed, seconds, _most_in_window(history), f"{' '.join(worst)}: {words}")


def _changed(old: frozenset[Said], new: frozenset[Said]) -> set[str]:
    """The notes that came, went or are another; or that one calm verdict took the place of another."""
    differing = old ^ new
    notes = {f"{one.code}/{one.cause}" for one in differing if one.level != Level.OK}
    return notes or ({CALM} if old and new else set())


def _most_in_window(history: Sequence[Turn]) -> int:
    """Most changes in any ten minutes."""
    times_s = [turn.at_s for turn in history]
    return max((bisect_left(times_s, at_s + WINDOW_S) - place for place, at_s in enumerate(times_s)), default=0)


def play(kind: str, seed: int, length_s: float, every_s: int = 1) -> Told:
    """Play a kind of traffic in virtual time."""
    alone = scenario_of(kind, length_s)
    shown = judged(alone, frames(alone, length_s, seed, every_s))
    return told(kind, seed, ((at_s, [said(verdict) for verdict in snapshot.verdicts]) for at_s, snapshot in shown))


def watch(minutes: float) -> list[Told]:
    """All kinds at once in real time, as the installed command sees them."""
    command = [GPUMON, "watch", "--demo", "--scenario", SCENARIO.name, "--json", "--duration", f"{60.0 * minutes:g}"]
    moments: dict[str, list[tuple[float, list[Said]]]] = {kind: [] for kind in (*KINDS, HOST)}
    begun_s = None
    with subprocess.Popen(command, stdout=subprocess.PIPE) as gpumon:
        assert gpumon.stdout is not None
        for line in gpumon.stdout:
            shown = json.loads(line)
            wall_s = wall_of(shown["time"])
            begun_s = wall_s if begun_s is None else begun_s
            by_kind: dict[str, list[Said]] = {kind: [] for kind in moments}
            for verdict in shown["verdicts"]:
                actions = tuple(action["code"] for action in verdict["actions"])
                one = Said(verdict["scope"], verdict["code"], verdict["cause"], verdict["level"], actions)
                by_kind[kind_of(one.thing)].append(one)
            for kind, verdicts in by_kind.items():
                moments[kind].append((wall_s - begun_s, verdicts))
    return [told(kind, 1, shown) for kind, shown in moments.items()]


def kind_of(thing: str) -> str:
    """The kind of traffic that a thing (`Verdict.scope`) has to do with."""
    for kind, cast in KINDS.items():
        for actor in cast:
            if thing == actor.name or thing in {f"gpu {gpu}" for gpu in actor.gpus}:
                return kind
    return HOST


def table(heard: Sequence[Told], how_long: str) -> str:
    """As Markdown: per kind, over all seeds."""
    lines = [
        how_long,
        "",
        "| traffic | urgent verdicts | most changes of a note in 10 min |",
        "|---|---|---|",
    ]
    for kind in dict.fromkeys(one.kind for one in heard):
        mine = [one for one in heard if one.kind == kind]
        urgent = sum(len(one.urgent) for one in mine)
        lines.append(f"| {kind} | {urgent or 'none'} | {max(one.changes for one in mine)} |")
    return "\n".join(lines)


def main() -> int:
    """The table; 0 where nothing is urgent and nothing flaps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="NAME", help=f"some of {', '.join(KINDS)}")
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--real-minutes", type=float, metavar="MINUTES")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    arguments = parser.parse_args()
    if arguments.real_minutes:
        heard = watch(arguments.real_minutes)
        how_long = f"{arguments.real_minutes:g} real minutes of all kinds at once, by the installed command:"
        begin = REAL_BEGIN
        end = REAL_END
    else:
        heard = _played(arguments.kinds or list(KINDS), arguments.seeds, 60.0 * arguments.minutes)
        seeds = len({one.seed for one in heard})
        how_long = f"{arguments.minutes:g} virtual minutes of each kind, {seeds} seeds:"
        begin = BEGIN
        end = END
    for one in heard:
        for urgent in one.urgent:
            print(f"{one.kind}, seed {one.seed}: FALSE {urgent}")
        if one.changes > MOST_CHANGES:
            print(f"{one.kind}, seed {one.seed}: {one.changes} changes in 10 min: {one.changed}")
    text = table(heard, how_long)
    print(text)
    if arguments.markdown:
        write(arguments.markdown, text, begin, end)
    return int(any(one.urgent or one.changes > MOST_CHANGES for one in heard))


def _played(kinds: Sequence[str], seeds: str, length_s: float) -> list[Told]:
    """Each kind with each seed, on all cores."""
    pairs = list(product(kinds, map(int, seeds.split(","))))
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        plays = [pool.submit(play, kind, seed, length_s) for kind, seed in pairs]
        return [one.result() for one in plays]


if __name__ == "__main__":
    sys.exit(main())
