"""gpumon against the client's own account of every token: replays of real engines over real HTTP at recorded speed.

    python -m tests.accuracy.replay [CAPTURE ...] [--markdown FILE]

Each capture is served as it was recorded, refusals and hangs included, and polled by the real endpoint source every
2 s; the real deriver makes the figures. Truth is what the client saw arrive, over the very span that the polls covered.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gpumon.config.schema import Endpoint
from gpumon.efficiency.deriver import Deriver
from gpumon.readings.frame import EndpointState, EngineReading, Frame, HostReading
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.snapshot import Engine
from gpumon.sources.endpoint import EndpointSource
from gpumon.sources.packaged import gpu_catalogue
from tests.fakes.engine import Capture, FakeEngine

WINDOW_S = 10.0
POLL_S = 2.0
STARTS = {"vllm-lifecycle": 95.0, "prometheus-api": 10.0}
"""Seconds of a capture to begin at, where it begins with a long wait."""
PHASE_S = 0.5
"""Polls fall half-way between the recorded scrapes, which are 1 s apart."""


class Tick(NamedTuple):
    """One moment of a replay: what was polled, and what gpumon showed. `t` is on the capture's clock."""

    t: float
    reading: EngineReading
    engine: Engine
    decode_tick: float


class Replay(NamedTuple):
    """A whole replay."""

    capture: Capture
    start_s: float
    offset_s: float
    """Capture clock minus monotonic clock."""
    ticks: list[Tick]


async def replay(name: str, seconds: float | None = None) -> Replay:
    """Watch one capture from its start (or `STARTS`) to its end."""
    capture = Capture(name)
    start_s = STARTS.get(name, 0.0)
    with FakeEngine(name, start_s=start_s) as fake:
        await asyncio.sleep(PHASE_S)
        source = EndpointSource(Endpoint(url=fake.url), POLL_S)
        deriver = Deriver(gpu_catalogue())
        offset_s = fake.t - time.monotonic()
        ticks: list[Tick] = []
        await source.start()
        end_s = min(capture.scrapes[-1].t + POLL_S, start_s + (seconds or 1e9))
        while fake.t < end_s:
            await asyncio.sleep(1.0)
            now_s = time.monotonic()
            reading = (await source.poll(now_s)).engines[0]
            frame = Frame(len(ticks), time.time(), now_s, 1.0, HostReading(), (), (reading,))
            derived = deriver.derive(frame)
            ticks.append(Tick(now_s + offset_s, reading, derived.snapshot.engines[0], derived.points["decode"]))
        await source.close()
    return Replay(capture, start_s, offset_s, ticks)


class Truth:
    """The client's tokens, by the moment that they arrived."""

    def __init__(self, capture: Capture) -> None:
        self.decode: list[tuple[float, float]] = []
        self.prompt: list[tuple[float, float]] = []
        for request in capture.truth:
            events: list[list[float]] = request.get("events") or []
            if not events and request.get("output_tokens"):
                events = [[request["t_end"], request["output_tokens"]]]
            self.decode += [(at, tokens) for at, tokens in events]
            if request.get("t_first") is not None and request.get("prompt_tokens"):
                self.prompt.append((request["t_first"], request["prompt_tokens"]))

    def tokens(self, of: str, since_s: float, until_s: float) -> float:
        """Tokens that arrived in (since, until]."""
        return sum(tokens for at, tokens in getattr(self, of) if since_s < at <= until_s)


class Result(NamedTuple):
    """How far gpumon was from the truth on one capture; shares of the truth."""

    name: str
    decode: float
    decode_truth: float
    prompt: float
    prompt_truth: float
    rate_errors: tuple[float, ...]
    highest_rate: float
    highest_truth: float
    negative: bool

    @property
    def decode_error(self) -> float:
        """Of the total of generated tokens."""
        return abs(self.decode - self.decode_truth) / self.decode_truth if self.decode_truth else 0.0

    @property
    def prompt_error(self) -> float:
        """Of the total of prompt tokens, cached ones included."""
        return abs(self.prompt - self.prompt_truth) / self.prompt_truth if self.prompt_truth else 0.0

    @property
    def rate_error(self) -> float:
        """The worst 10 s rate of all steady phases."""
        return max(self.rate_errors, default=0.0)


def judge(done: Replay) -> Result:
    """Compare a replay with its truth."""
    truth = Truth(done.capture)
    last = done.ticks[-1].engine.tokens_total
    prompt = sum(_number(part) for part in (last.prefill_computed, last.prefill_cached))
    seen = _lives(done)
    rates = [value for tick in done.ticks if (value := _number(tick.engine.decode_tokens_per_s)) or True]
    # Shown at 1 s ticks from polls 2 s apart: the truth's highest rate is taken over spans of that length.
    spans = [truth.tokens("decode", at / 2, at / 2 + POLL_S) / POLL_S for at in range(2 * int(done.ticks[-1].t))]
    return Result(
        done.capture.folder.name,
        _number(last.decode),
        sum(truth.tokens("decode", *life) for life in seen),
        prompt,
        sum(truth.tokens("prompt", *life) for life in seen),
        tuple(_rate_errors(done, truth)),
        max((tick.decode_tick for tick in done.ticks if tick.decode_tick == tick.decode_tick), default=0.0),
        max(spans, default=0.0),
        any(rate < 0 for rate in rates) or any(tick.decode_tick < 0 for tick in done.ticks),
    )


def _number(reading: Reading) -> float:
    return 0.0 if isinstance(reading, Missing) else reading


def _served(done: Replay, monotonic_s: float) -> float:
    """Moment of the recorded scrape that a poll got."""
    return done.capture.at(monotonic_s + done.offset_s).t


def _lives(done: Replay) -> list[tuple[float, float]]:
    """Spans of the capture that the polls covered: from the first (or the engine's start) to the last good one."""
    lives: list[tuple[float, float]] = []
    since_s: float | None = None
    until_s = 0.0
    known = 0.0
    for tick in done.ticks:
        if tick.reading.state is not EndpointState.OK:
            if tick.reading.state is EndpointState.REFUSED and since_s is not None:
                lives.append((since_s, until_s))
                since_s = None
                known = tick.t
            continue
        at_s = _served(done, tick.reading.monotonic_s)
        if since_s is None:
            since_s = known or at_s
        until_s = at_s
    return [*lives, (since_s, until_s)] if since_s is not None else lives


def _rate_errors(done: Replay, truth: Truth) -> list[float]:
    """Errors of the shown 10 s decode rate at every tick whose window lies inside one phase of load."""
    errors = []
    polls = sorted({tick.reading.monotonic_s for tick in done.ticks if tick.reading.state is EndpointState.OK})
    for tick in done.ticks:
        rate = tick.engine.decode_tokens_per_s
        if isinstance(rate, Missing) or tick.reading.monotonic_s not in polls:
            continue
        newest_s = tick.reading.monotonic_s
        inside = [at for at in polls if newest_s - WINDOW_S - POLL_S / 2 <= at <= newest_s]
        since_s, until_s = _served(done, inside[0]), _served(done, newest_s)
        if until_s - since_s < WINDOW_S - 1.5 or not _steady(done.capture, since_s, until_s):
            continue
        expected = truth.tokens("decode", since_s, until_s) / (newest_s - inside[0])
        errors.append(abs(rate - expected) / expected)
    return errors


def _steady(capture: Capture, since_s: float, until_s: float) -> bool:
    events: Sequence[Any] = capture.meta.get("events") or ()
    if any(since_s - 1 <= event["t"] <= until_s for event in events):
        return False
    return any(
        phase["kind"] != "idle" and phase["t0"] <= since_s and until_s <= phase["t0"] + phase["dur"]
        for phase in capture.meta["phases"]
    )


def row(result: Result) -> tuple[str, ...]:
    """One line of the table."""
    errors = result.rate_errors
    return (
        result.name,
        f"{result.decode:,.0f}",
        f"{result.decode_truth:,.0f}",
        f"{result.decode_error:.2%}",
        f"{result.prompt:,.0f}",
        f"{result.prompt_truth:,.0f}",
        f"{result.prompt_error:.2%}",
        f"{statistics.mean(errors):.2%}" if errors else "–",
        f"{result.rate_error:.2%}" if errors else "–",
        str(len(errors)),
    )


HEAD = (
    "capture",
    "decode tokens",
    "truth",
    "error",
    "prompt tokens",
    "truth",
    "error",
    "10 s rate: mean error",
    "worst",
    "ticks",
)


def table(results: Sequence[Result]) -> str:
    """All results as Markdown."""
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    return "\n".join([*lines, *("| " + " | ".join(row(result)) + " |" for result in results)])


CAPTURES = (
    "vllm-basic",
    "vllm-poisson",
    "vllm-mfu-queue-prefix-abort",
    "vllm-apikey",
    "vllm-dp2",
    "vllm-hang-and-dead-engine",
    "vllm-lifecycle",
    "vllm-starved-host",
    "prometheus-api",
)


async def results(names: Sequence[str]) -> list[Result]:
    """All captures side by side, each at recorded speed."""
    return [judge(done) for done in await asyncio.gather(*(replay(name) for name in names))]


def main() -> None:
    """Print the table, and write it where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("capture", nargs="*", default=CAPTURES)
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    text = table(asyncio.run(results(arguments.capture)))
    print(text)
    if arguments.markdown:
        arguments.markdown.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
