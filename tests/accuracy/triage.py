"""Every verdict that is ever on the screen, scored: each scenario of the demo at live pace in virtual time.

python -m tests.accuracy.triage [--seeds 1,2,3] [--markdown docs/accuracy.md] [NAME ...]

The same frames as live: GPUs every second, engines every two, their pages' bytes through the real adapter, deriver and
rules. Each verdict of each second is right (it had to be named), tolerable (true, or harmless), or false.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from gpumon.config.schema import Feed
from gpumon.demo.scenario import Scenario, Truth
from gpumon.demo.scenarios import SCENARIOS
from gpumon.demo.source import SLICE_S, SimulatedEndpoint, SimulatedServer
from gpumon.efficiency.deriver import Deriver
from gpumon.readings.frame import EndpointState, EngineKind, EngineReading, Frame, HostReading
from gpumon.readings.goals import Goals
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.verdict import Level, Verdict
from gpumon.sources.attachment import EngineResolver
from gpumon.sources.endpoint import BACK_OFF
from gpumon.sources.engines.vllm import VllmAdapter
from gpumon.sources.exposition import Scanner
from gpumon.sources.feed_readings import as_feed, endpoint_of
from gpumon.sources.last_seen.memory.engines import LastSeen
from gpumon.sources.packaged import gpu_catalogue
from gpumon.sources.page_feed import engine_row_of
from gpumon.sources.probe import IDENTITY
from gpumon.triage.thresholds import Thresholds
from gpumon.triage.triage import Triage
from tests.records import replace

WALL_S = 1.8e9
BEGIN_S = 5000.0
"""Monotonic time of simulated time zero."""
POLL_S = 2.0
PRICES = {"H100 SXM 80GB": 2.49, "H100 PCIe 80GB": 1.99}
FADES_S = 60.0
"""A verdict may stand that long after its cause: windows of 10 s have to pass, and then 30 s in which it holds."""
HEALTHY_FADES_S = 45.0
"""The same of a verdict that says that all is well: a window of 10 s, and the 30 s that a new one needs."""
SETTLED_S = 65.0
"""After the last change of a scenario every verdict of what was before has faded."""
WATCHED_S = 20.0
"""A verdict that had to be named is watched for so long: whether it stands, and what is said beside it."""
SHORTEST_S = 40.0
"""The first windows are full and a verdict has held for 30 s."""
STANDS = 0.5
"""Once it is named it stands for so much of the time that its cause lasts."""
WRONG = frozenset({"prefix_caching"})
"""Actions that are done already: the page of a simulated engine says that prefix caching is on, unless a truth names
the action."""
RESTART = "save_stacks_and_restart"
"""What ends the requests that run: only for an engine that gives nothing."""
URGENT = (Level.CRITICAL, Level.WARN)
BEGIN, END = "<!-- triage: begin, written by `make triage` -->", "<!-- triage: end -->"


class Poll:
    """One engine or run, polled: its page's bytes read by the real adapter, as the endpoint source does."""

    def __init__(self, act: SimulatedEndpoint, url: str, name: str, feed: Feed | None, interval_s: float) -> None:
        self._act = act
        self._feed = feed
        self._failures, self._next_s = 0, 0.0
        self._adapt()
        blank = EngineReading(name, url, EndpointState.STARTING, BEGIN_S, interval_s=interval_s, found_by="config")
        self.reading = as_feed(blank, feed, "") if feed else blank
        self.looked_up = ""
        """The model that the thread has found, or empty."""

    def _adapt(self) -> None:
        self._adapter = engine_row_of(self._feed, "", named_page=True).adapter() if self._feed else VllmAdapter()
        self._scanner = Scanner(self._adapter.wanted_names)

    def read(self, monotonic_s: float) -> None:
        """Ask once, unless the pause after failures lasts."""
        if monotonic_s < self._next_s:
            return
        if self._act.mute or not self._act.up:
            state = EndpointState.TIMEOUT if self._act.mute else EndpointState.REFUSED
            self._failures += 1
            self._next_s = monotonic_s + BACK_OFF.pause_s(self._failures)
            self._adapt()
            self.reading = replace(self.reading, state=state, fault=state.value)
            return
        self._failures = 0
        page = self._adapter.read(self._scanner.scan(self._act.answer("/metrics").body))
        moved = ("ranks", "live", "advance", "started_wall_s", "exact_steps", "tp", "pp", "dp")
        self.reading = replace(
            self.reading,
            state=EndpointState.OK,
            fault="",
            monotonic_s=monotonic_s,
            kind=EngineKind.GENERIC if self._feed else VllmAdapter.kind,
            model=page.model,
            model_root=page.model,
            info={**page.info, IDENTITY: "known"},
            **{name: getattr(page, name) for name in moved},
        )


class _NoHost:
    def read(self, pids: tuple[int, ...]) -> HostReading:
        return HostReading(name="test")


def frames(scenario: Scenario, to_s: float, seed: int = 1, every_s: int = 1) -> Iterator[tuple[float, Frame]]:
    """Frames from the end of the warm-up on, with their simulated time. Nothing listens and nothing waits.

    Engines are polled every POLL_S seconds, or for each frame where frames come less often.
    """
    now_s = [0.0]
    server = SimulatedServer(scenario, seed, lambda: BEGIN_S + now_s[0], lambda: WALL_S + now_s[0])
    try:
        for at in range(int(scenario.warm_s / SLICE_S)):
            server.advance(-scenario.warm_s + (at + 1) * SLICE_S)
        yield from _frames(server, now_s, to_s, every_s)
    finally:
        asyncio.run(server.close())


def _frames(server: SimulatedServer, now_s: list[float], to_s: float, every_s: int) -> Iterator[tuple[float, Frame]]:
    endpoints = [*server.endpoints, *map(endpoint_of, server.feeds)]
    feeds = [None] * len(server.endpoints) + list(server.feeds)
    poll_s = max(POLL_S, every_s)
    polls = [
        Poll(act, endpoint.url, endpoint.name, feed, poll_s)
        for act, endpoint, feed in zip(server.ports, endpoints, feeds, strict=True)
    ]
    facts = EngineResolver(
        {poll.reading.key: endpoint for poll, endpoint in zip(polls, endpoints, strict=True)}, (), None, {}
    )
    host = server.host_meter(_NoHost())
    memory = LastSeen()
    for second in range(0, int(to_s) + 1, every_s):
        now_s[0] = at_s = float(second)
        server.advance(at_s)
        gpus = server.readings(BEGIN_S + at_s)
        if second % poll_s == 0:
            for poll in polls:
                poll.read(BEGIN_S + at_s)
                _look_up(facts, poll)
        attached = [facts.attach(poll.reading, gpus) for poll in polls]
        engines = memory.take(attached, gpus, server.process_state(), WALL_S + at_s, BEGIN_S + at_s)
        beside = host.read(())
        yield (
            at_s,
            Frame(second + 1, WALL_S + at_s, BEGIN_S + at_s, float(every_s), beside, gpus, engines, simulated=True),
        )


def _look_up(facts: EngineResolver, poll: Poll) -> None:
    """Wait for the thread that finds the model, so that every run is the same."""
    model = poll.reading.model
    if not model or model == poll.looked_up or poll.reading.training is not None:
        return
    end_s = time.monotonic() + 60.0
    while facts.attach(poll.reading, ()).llm is None:
        if time.monotonic() > end_s:
            raise TimeoutError(f"no model for {model}")
        time.sleep(0.002)
    poll.looked_up = model


def judged(
    scenario: Scenario, timed: Iterable[tuple[float, Frame]], change: Callable[[Frame], Frame] = lambda frame: frame
) -> Iterator[tuple[float, Snapshot]]:
    """The snapshots of frames, with their verdicts; `change` may take signals from them."""
    server = SimulatedServer(scenario)
    goals = server.goals(Goals())
    triage = Triage(server.thresholds(Thresholds()), PRICES, goals)
    asyncio.run(server.close())
    deriver = Deriver(gpu_catalogue(), goals)
    for at_s, frame in timed:
        changed = change(frame)
        yield at_s, triage.judge(changed, deriver.derive(changed).snapshot)


def decisive(scenario: Scenario, timed: Iterable[tuple[float, Snapshot]]) -> Iterator[tuple[float, Snapshot]]:
    """The snapshots up to the moment from which the scenario goes on as it is, and all that had to be named is named.

    What has not been named is waited for to the end of the scenario.
    """
    changes = [at_s for truth in scenario.truth for at_s in (truth.from_s, truth.to_s)]
    last_change_s = max((at_s for at_s in changes if 0.0 < at_s < scenario.length_s), default=-SETTLED_S)
    until_s = max(SHORTEST_S, last_change_s + SETTLED_S)
    unnamed = [truth for truth in scenario.truth if truth.within_s < float("inf")]
    for at_s, snapshot in timed:
        yield at_s, snapshot
        for truth in [truth for truth in unnamed if names(truth, snapshot, at_s)]:
            unnamed.remove(truth)
            until_s = max(until_s, at_s + WATCHED_S)
        if not unnamed and at_s >= until_s:
            return


def names(truth: Truth, snapshot: Snapshot, at_s: float) -> bool:
    """Whether a verdict of this moment is what a truth of this moment says."""
    if not truth.from_s <= at_s < truth.to_s:
        return False
    return any(agrees(truth, one, at_s) for one in all_said(snapshot))


class Said(NamedTuple):
    """A verdict by its codes."""

    thing: str
    code: str
    cause: str
    level: str
    actions: tuple[str, ...]
    root: str = ""
    """Scope of the verdict that it comes of; empty: of none."""

    def __str__(self) -> str:
        cause = f"/{self.cause}" if self.cause else ""
        root = f", of {self.root}" if self.root else ""
        return f"{self.thing}: {self.code}{cause}, {self.level}{root}, to do: {' + '.join(self.actions) or 'nothing'}"


class Span(NamedTuple):
    """A false verdict, from its first second to its last."""

    said: Said
    from_s: float
    to_s: float


class Named(NamedTuple):
    """What had to be named, and when it was."""

    truth: Truth
    after_s: float | None
    """None: never while its cause lasted."""
    share: float
    """Of the rest of that time in which it stood."""

    @property
    def missed(self) -> bool:
        """Too late, or not for long enough."""
        return self.after_s is None or self.after_s > self.truth.within_s or self.share < STANDS


class Score(NamedTuple):
    """What a scenario came to; counts are of verdicts times seconds."""

    scenario: str
    named: tuple[Named, ...]
    false: tuple[Span, ...]
    right: int
    tolerable: int

    @property
    def missed(self) -> list[Named]:
        """What was named too late, or not at all."""
        return [named for named in self.named if named.missed]


def said(verdict: Verdict, root: str = "") -> Said:
    """The codes of a verdict, which comes of the one on `root`."""
    actions = tuple(action.code for action in verdict.actions)
    return Said(verdict.scope, verdict.code.value, verdict.cause, verdict.level.value, actions, root)


def all_said(snapshot: Snapshot) -> list[Said]:
    """The codes of all verdicts, each with the thing that it comes of."""
    scopes = {verdict.id: verdict.scope for verdict in snapshot.verdicts}
    return [said(verdict, scopes.get(verdict.caused_by, "")) for verdict in snapshot.verdicts]


def agrees(truth: Truth, one: Said, at_s: float) -> bool:
    """Whether a verdict is what a truth says, of the same thing, at one of its levels, with none but right actions.

    One that fades, as its cause has ended, may be less urgent.
    """
    order = list(Level)
    worst = min(map(order.index, truth.levels))
    levels = truth.levels if at_s < truth.to_s else order[worst:]
    code, _, cause = truth.code.partition("/")
    return (
        fnmatchcase(one.thing, truth.thing)
        and fnmatchcase(one.code, code)
        and fnmatchcase(one.cause, cause or "*")
        and Level(one.level) in levels
        and fnmatchcase(one.root, truth.root or "*")
        and advises_well(truth, one)
    )


def advises_well(truth: Truth, one: Said) -> bool:
    """Whether the actions mend it, the first one first. Whoever warns has to say what to do."""
    if not one.actions:
        return Level(one.level) not in URGENT
    if WRONG.difference(truth.actions).intersection(one.actions):
        return False
    if RESTART in one.actions and one.code not in ("hung", "unresponsive"):
        return False
    allowed = (*truth.actions, *truth.first) if truth.actions else ("*",)
    first = truth.first or allowed
    return all(_is_one_of(action, allowed) for action in one.actions) and _is_one_of(one.actions[0], first)


def _is_one_of(action: str, codes: Sequence[str]) -> bool:
    return any(fnmatchcase(action, code) for code in codes)


def fades_s(one: Said) -> float:
    """How long a verdict may stand after its cause has ended."""
    return HEALTHY_FADES_S if one.level == Level.OK.value else FADES_S


def score(scenario: Scenario, timed: Iterable[tuple[float, Snapshot]]) -> Score:
    """Every verdict of every second against the truth of that second."""
    right = tolerable = 0
    spans: dict[Said, list[Span]] = {}
    stood: dict[int, list[float]] = {at: [] for at, truth in enumerate(scenario.truth)}
    looks: list[float] = []
    for at_s, snapshot in timed:
        looks.append(at_s)
        for one in dict.fromkeys(all_said(snapshot)):
            fits = [at for at, truth in enumerate(scenario.truth) if agrees(truth, one, at_s)]
            now = [at for at in fits if scenario.truth[at].from_s <= at_s < scenario.truth[at].to_s]
            due = [at for at in now if scenario.truth[at].within_s < float("inf")]
            for at in due:
                if at_s not in stood[at][-1:]:
                    stood[at].append(at_s)
            if due:
                right += 1
            elif one.code == "evaluating" or now or _fading(scenario, fits, one, at_s):
                tolerable += 1
            else:
                mine = spans.setdefault(one, [])
                if mine and at_s - mine[-1].to_s < 1.5:
                    mine[-1] = mine[-1]._replace(to_s=at_s)
                else:
                    mine.append(Span(one, at_s, at_s))
    named = tuple(
        _named(truth, stood[at], looks) for at, truth in enumerate(scenario.truth) if truth.within_s < float("inf")
    )
    false = sorted((span for mine in spans.values() for span in mine), key=lambda span: span.from_s)
    return Score(scenario.name, named, tuple(false), right, tolerable)


def _fading(scenario: Scenario, fits: Sequence[int], one: Said, at_s: float) -> bool:
    """Whether a verdict was right a moment ago."""
    return any(0.0 <= at_s - scenario.truth[at].to_s <= fades_s(one) for at in fits)


def _named(truth: Truth, stood: Sequence[float], looks: Sequence[float]) -> Named:
    if not stood:
        return Named(truth, None, 0.0)
    due = [at_s for at_s in looks if stood[0] <= at_s < truth.to_s]
    return Named(truth, max(0.0, stood[0] - truth.from_s), len(stood) / len(due))


def played(scenario: Scenario, seed: int = 1) -> Score:
    """Play a scenario and score it."""
    return score(scenario, judged(scenario, frames(scenario, scenario.length_s, seed)))


def total(scores: Sequence[Score]) -> str:
    """The counts, in a line."""
    return (
        f"{len(scores)} scenarios. Verdicts times seconds: {sum(each.right for each in scores):,} right, "
        f"{sum(each.tolerable for each in scores):,} tolerable, "
        f"{sum(int(span.to_s - span.from_s) + 1 for each in scores for span in each.false):,} false. "
        f"Of {sum(len(each.named) for each in scores)} that had to be named, "
        f"{sum(len(each.missed) for each in scores)} were missed."
    )


def table(scores: Sequence[Score], others: str = "") -> str:
    """Markdown: a row for each scenario, the totals, what the `others` came to, and the false verdicts."""
    lines = ["| scenario | what has to be named | first named after | false for |", "|---|---|---|---|"]
    for each in scores:
        truths = "<br>".join(f"{named.truth.thing}: {named.truth.code.replace('_', ' ')}" for named in each.named)
        times = "<br>".join(
            ("**never**" if named.after_s is None else f"{named.after_s:.0f} s")
            + (" **missed**" if named.missed and named.after_s is not None else "")
            for named in each.named
        )
        seconds = sum(span.to_s - span.from_s + 1.0 for span in each.false)
        false = f"{seconds:.0f} s" if seconds else "0"
        lines.append(f"| `{each.scenario}` | {truths or 'nothing'} | {times or '–'} | {false} |")
    spans = [
        f"- `{each.scenario}` {span.from_s:.0f} to {span.to_s:.0f} s: {span.said}"
        for each in scores
        for span in each.false
    ]
    below = ["", others] if others else []
    return "\n".join([*lines, "", total(scores), *below, *([""] if spans else []), *spans]) + "\n"


def written(text: str, new: str) -> str:
    """A page with a new table between its marks. Raises ValueError where it lacks them."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks the lines {BEGIN} and {END}")
    return f"{head}{BEGIN}\n\n{new}\n{END}{tail}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what is false or missed, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="page to write the table into")
    parser.add_argument("--seeds", metavar="N,N", default="1", help="of the traffic (default: %(default)s)")
    parser.add_argument("names", metavar="NAME", nargs="*", help="scenarios, or globs of their names (default: all)")
    chosen = parser.parse_args(arguments)
    names = chosen.names or ["*"]
    scenarios = [each for each in SCENARIOS if any(fnmatchcase(each.name, name) for name in names)]
    seeds = [int(seed) for seed in chosen.seeds.split(",")]
    begun_s = time.monotonic()
    by_seed = play_all(scenarios, seeds)
    for seed, scores in by_seed.items():
        print_scores(scores, f" (seed {seed})" if len(seeds) > 1 else "")
    for seed, scores in by_seed.items():
        print(f"seed {seed}: {total(scores)}")
    print(f"{time.monotonic() - begun_s:.0f} s of wall time")
    if chosen.markdown:
        page = written(chosen.markdown.read_text(encoding="utf-8"), table(by_seed[seeds[0]], _other_seeds(by_seed)))
        chosen.markdown.write_text(page, encoding="utf-8")
    wrong = [score for scores in by_seed.values() for score in scores if score.false or score.missed]
    return 1 if wrong else 0


def play_all(scenarios: Sequence[Scenario], seeds: Sequence[int]) -> dict[int, list[Score]]:
    """The scores of all scenarios by seed, on all cores; the longest plays begin first."""
    plays = [(scenario, seed) for seed in seeds for scenario in scenarios]
    longest_first = sorted(plays, key=lambda play: -play[0].length_s * max(1, len(play[0].cast)))
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        running = {(scenario.name, seed): pool.submit(played, scenario, seed) for scenario, seed in longest_first}
        return {seed: [running[scenario.name, seed].result() for scenario in scenarios] for seed in seeds}


def print_scores(scores: Sequence[Score], of_seed: str) -> None:
    """What is false or missed in each scenario."""
    for each in scores:
        print(f"{'ok' if not each.false and not each.missed else 'WRONG':6} {each.scenario}{of_seed}")
        for named in each.missed:
            when = "never" if named.after_s is None else f"after {named.after_s:.0f} s, stood {named.share:.0%}"
            print(f"         missed: {named.truth.thing} {named.truth.code}: {when}")
        for span in each.false:
            print(f"         false:  {span.from_s:4.0f} to {span.to_s:4.0f} s  {span.said}")


def _other_seeds(by_seed: dict[int, list[Score]]) -> str:
    """What the other seeds came to, in a line each; empty where there is one."""
    lines = [f"The same with seed {seed}: {total(scores)}" for seed, scores in list(by_seed.items())[1:]]
    return "\n\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
