"""Every scenario of the demo in fast time through the real path, and the table of rules against scenarios."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from gpumon.config.schema import Feed
from gpumon.efficiency.deriver import Deriver
from gpumon.readings.frame import EndpointState, EngineKind, EngineReading, Frame, HostReading
from gpumon.readings.snapshot import Event, Level, Limit, Snapshot
from gpumon.sources.attachment import EngineFacts
from gpumon.sources.engines.vllm import VllmAdapter
from gpumon.sources.exposition import Scanner
from gpumon.sources.feeds.described import as_feed, endpoint_of
from gpumon.sources.feeds.generic import row_of
from gpumon.sources.identity import IDENTITY
from gpumon.sources.packaged import gpu_catalogue
from gpumon.sources.simulator.scenario import Scenario
from gpumon.sources.simulator.scenarios import SCENARIOS
from gpumon.sources.simulator.serving import SimulatedEngine
from gpumon.sources.simulator.source import SLICE_S, SimulatedServer, impatient, play
from gpumon.sources.simulator.training import SimulatedRun
from gpumon.triage.thresholds import Thresholds
from gpumon.triage.triage import Triage
from tests.records import replace

WALL_S = 1.8e9
BEGIN_S = 5000.0
"""Monotonic time of simulated time zero."""
POLL_S = 2.0
PRICES = {"H100 SXM 80GB": 2.49, "H100 PCIe 80GB": 1.99}
STANDS = 0.8
"""The expected verdict stands in so much of the window."""
DOCS = Path(__file__).parents[2] / "docs" / "triage.md"
BEGIN, END = "<!-- confusion table: make triage -->", "<!-- end of the confusion table -->"
EASY = (Limit.HEALTHY, Limit.UNDER_USED)
"""What may stand for the other things of any scenario."""


class Seen(NamedTuple):
    """A verdict, and the share of the window in which it stood."""

    scope: str
    limit: Limit
    share: float
    level: Level
    """The last one."""


class Watched(NamedTuple):
    """What a scenario came to."""

    seen: tuple[Seen, ...]
    events: tuple[Event, ...]
    last: Snapshot


class _Poll:
    """One engine or run, polled: its page's bytes read by the real adapter, as the endpoint source does."""

    def __init__(self, act: SimulatedEngine | SimulatedRun, url: str, name: str, feed: Feed | None) -> None:
        self._act = act
        self._feed = feed
        self._adapt()
        blank = EngineReading(name, url, EndpointState.STARTING, BEGIN_S, interval_s=POLL_S, found_by="config")
        self.reading = as_feed(blank, feed, "") if feed else blank

    def _adapt(self) -> None:
        self._adapter = row_of(self._feed, "", named_page=True).adapter() if self._feed else VllmAdapter()
        self._scanner = Scanner(self._adapter.wanted)

    def read(self, monotonic_s: float) -> None:
        """Ask once."""
        if self._act.mute or not self._act.up:
            state = EndpointState.TIMEOUT if self._act.mute else EndpointState.REFUSED
            self._adapt()
            self.reading = replace(self.reading, state=state, fault=state.value)
            return
        answer = self._act.answer("/metrics")
        page = self._adapter.read(self._scanner.scan(answer.body))
        told = ("ranks", "live", "advance", "started_wall_s", "exact_steps", "tp", "pp", "dp")
        self.reading = replace(
            self.reading,
            state=EndpointState.OK,
            fault="",
            monotonic_s=monotonic_s,
            kind=EngineKind.GENERIC if self._feed else VllmAdapter.kind,
            model=page.model,
            model_root=page.model,
            info={**page.info, IDENTITY: "known"},
            **{name: getattr(page, name) for name in told},
        )


class _NoHost:
    def read(self, pids: tuple[int, ...]) -> HostReading:
        return HostReading(name="test")


def frames(scenario: Scenario, to_s: float, seed: int = 1) -> Iterator[tuple[float, Frame]]:
    """A frame a second from the end of the warm-up on, with its simulated time. Nothing listens and nothing waits."""
    now_s = [0.0]
    server = play(scenario, seed, clock=lambda: BEGIN_S + now_s[0], wall_clock=lambda: WALL_S + now_s[0])
    try:
        for at in range(int(scenario.warm_s / SLICE_S)):
            server.advance(-scenario.warm_s + (at + 1) * SLICE_S)
        yield from _frames(server, now_s, to_s)
    finally:
        asyncio.run(server.close())


def _frames(server: SimulatedServer, now_s: list[float], to_s: float) -> Iterator[tuple[float, Frame]]:
    endpoints = [*server.endpoints, *map(endpoint_of, server.feeds)]
    feeds = [None] * len(server.endpoints) + list(server.feeds)
    polls = [
        _Poll(act, endpoint.url, endpoint.name, feed)
        for act, endpoint, feed in zip(server.acts, endpoints, feeds, strict=True)
    ]
    facts = EngineFacts(
        {poll.reading.key: endpoint for poll, endpoint in zip(polls, endpoints, strict=True)}, (), None, {}
    )
    host = server.host_meter(_NoHost())
    for second in range(int(to_s) + 1):
        now_s[0] = at_s = float(second)
        server.advance(at_s)
        gpus = server.readings(BEGIN_S + at_s)
        if second % POLL_S == 0:
            for poll in polls:
                poll.read(BEGIN_S + at_s)
                _look_up(facts, poll)
        engines = tuple(facts.attach(poll.reading, gpus) for poll in polls)
        yield (
            at_s,
            Frame(second + 1, WALL_S + at_s, BEGIN_S + at_s, 1.0, host.read(()), gpus, engines, simulated=True),
        )


def _look_up(facts: EngineFacts, poll: _Poll) -> None:
    """Wait for the thread that finds the model, so that every run is the same."""
    end_s = time.monotonic() + 60.0
    while poll.reading.training is None and facts.attach(poll.reading, ()).llm is None:
        if time.monotonic() > end_s:
            raise TimeoutError(f"no model for {poll.reading.model}")
        time.sleep(0.002)


Timed = tuple[float, Frame]


def recorded(scenario: Scenario) -> list[Timed]:
    """All frames of a scenario."""
    return list(frames(scenario, scenario.to_s))


def watched(scenario: Scenario) -> Watched:
    """Play a scenario."""
    return judged(scenario, frames(scenario, scenario.to_s))


def judged(
    scenario: Scenario, timed: Iterable[Timed], change: Callable[[Frame], Frame] = lambda frame: frame
) -> Watched:
    """What its frames come to; `change` may take signals from them."""
    deriver, triage = Deriver(gpu_catalogue()), Triage(impatient(Thresholds(), scenario.idle_s), PRICES)
    counted: Counter[tuple[str, Limit]] = Counter()
    levels: dict[tuple[str, Limit], Level] = {}
    events: list[Event] = []
    ticks, last = 0, None
    for at_s, frame in timed:
        changed = change(frame)
        last = triage.judge(changed, deriver.derive(changed).snapshot)
        events += last.events
        if at_s >= scenario.from_s:
            ticks += 1
            counted.update({(verdict.scope, verdict.limit) for verdict in last.verdicts})
            levels |= {(verdict.scope, verdict.limit): verdict.level for verdict in last.verdicts}
    assert last is not None
    seen = tuple(Seen(*what, count / ticks, levels[what]) for what, count in sorted(counted.items()))
    return Watched(seen, tuple(events), last)


def wrong(scenario: Scenario, seen: Sequence[Seen]) -> list[str]:
    """The cells of a scenario that are not as they should be, in words."""
    own = {each.limit: each.share for each in seen if each.scope == scenario.scope}
    found = []
    if own.get(scenario.expected, 0.0) < STANDS:
        share = own.get(scenario.expected, 0.0)
        found.append(f"{scenario.scope} is not {scenario.expected.value} (stood {share:.0%} of the window)")
    found += [
        f"{scenario.scope} is {each.limit.value}, level {each.level.value}"
        for each in seen
        if (each.scope, each.limit) == (scenario.scope, scenario.expected) and scenario.level not in (None, each.level)
    ]
    found += [f"{scenario.scope} is {limit.value}" for limit in own if limit is not scenario.expected]
    around = {*EASY, scenario.expected, *scenario.elsewhere}
    found += [
        f"{each.scope} is {each.limit.value}"
        for each in seen
        if each.scope != scenario.scope and each.limit not in around
    ]
    return found


def marks(scenario: Scenario, seen: Sequence[Seen]) -> list[str]:
    """One cell for each limit."""
    own = {each.limit for each in seen if each.scope == scenario.scope and each.share >= STANDS}
    ever = {each.limit for each in seen if each.scope == scenario.scope}
    cells = []
    for limit in Limit:
        if limit is scenario.expected:
            cells.append("**yes**" if limit in own else "MISSED")
        elif limit in ever:
            cells.append("WRONG")
        else:
            cells.append("")
    return cells


def table(results: Sequence[tuple[Scenario, Sequence[Seen]]]) -> str:
    """Markdown: a row for each scenario, a column for each limit."""
    order = {limit: at for at, limit in enumerate(Limit)}
    rows = sorted(results, key=lambda result: order[result[0].expected])
    head = ["scenario", "about", *(limit.value.replace("_", " ") for limit in Limit)]
    lines = ["| " + " | ".join(head) + " |", "|---|---" + "|:-:" * len(Limit) + "|"]
    for scenario, seen in rows:
        cells = [f"`{scenario.name}`", scenario.scope, *marks(scenario, seen)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def written(text: str, new: str) -> str:
    """A page with a new table between its marks."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page lacks the lines {BEGIN} and {END}")
    return f"{head}{BEGIN}\n\n{new}\n{END}{tail}"


def seen_of(scenario: Scenario) -> tuple[Seen, ...]:
    """The verdicts of a scenario."""
    return watched(scenario).seen


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what is wrong, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="page to write the table into")
    parser.add_argument("names", metavar="NAME", nargs="*", help="scenarios (default: all)")
    chosen = parser.parse_args(arguments)
    scenarios = [each for each in SCENARIOS if not chosen.names or each.name in chosen.names]
    with ProcessPoolExecutor(2) as pool:
        results = list(zip(scenarios, pool.map(seen_of, scenarios), strict=True))
    bad = 0
    for scenario, seen in results:
        faults = wrong(scenario, seen)
        bad += bool(faults)
        print(f"{'WRONG' if faults else 'ok':6} {scenario.name:26} {'; '.join(faults)}")
        if chosen.names:
            print(*(f"         {each.scope:16} {each.limit.value:14} {each.share:4.0%}" for each in seen), sep="\n")
    if chosen.markdown:
        page = chosen.markdown.read_text(encoding="utf-8")
        chosen.markdown.write_text(written(page, table(results)), encoding="utf-8")
    print(f"{len(results) - bad} of {len(results)} scenarios are as they should be")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
