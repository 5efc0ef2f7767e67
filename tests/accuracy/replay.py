"""gpumon against the client's own account of every token: replays of real engines over real HTTP.

    python -m tests.accuracy.replay [CAPTURE ...] [--markdown FILE]

Each capture is served as it was recorded, refusals and hangs included, and polled by the real endpoint source every
2 s of a clock that passes over what is waited for; the real deriver makes the figures. Truth is what the client saw
arrive, over the very span that the polls covered.
With --markdown the tables go between the markers of that document.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from gpumon.config.schema import Endpoint
from gpumon.efficiency.deriver import Deriver
from gpumon.readings.frame import Frame, HostReading
from gpumon.readings.goals import Goals
from gpumon.sources.endpoint import EndpointSource
from gpumon.sources.packaged import gpu_catalogue
from tests.accuracy import accounts, requests
from tests.accuracy.accounts import accounts_of, has_one_engine
from tests.accuracy.judged import POLL_S, Replay, Tick, judge
from tests.accuracy.tables import table, write
from tests.fakes.engine import LoopEngine, Recorded
from tests.fakes.http_server import Reply
from tests.virtual_time import Clock, played

STARTS = {"vllm-lifecycle": 95.0, "prometheus-api": 10.0}
"""Seconds of a capture to begin at, where it begins with a long wait."""
GOALS = {
    "vllm-mfu-queue-prefix-abort": Goals(ttft_s=1.0, itl_s=0.01),
    "vllm-tp2": Goals(ttft_s=0.1, itl_s=0.05),
    "vllm-dp2": Goals(ttft_s=0.25, itl_s=0.02),
    "sglang-basic": Goals(ttft_s=0.2, itl_s=0.02),
}
"""Goals of the captures whose latencies are others than those of most."""
USUAL_GOALS = Goals(ttft_s=0.1, itl_s=0.01)
"""Goals that some requests of a small model on a CPU miss."""
BEGAN_UNIX_S = 1.9e9
"""Later than any recording: an engine that began after the watching is counted from its first token on."""
PHASE_S = 0.5
"""Polls fall half-way between the recorded scrapes, which are 1 s apart."""
NEW_IN_057 = (b"sglang:realtime_tokens_total", b"sglang:prefill_effective_tokens_total", b"sglang:decode_sum_seq_lens")


def without_live_counters(path: str, reply: Reply) -> Reply:
    """What SGLang before 0.5.7 would have answered."""
    if path != "/metrics" or not isinstance(reply.body, bytes):
        return reply
    lines = [line for line in reply.body.splitlines(keepends=True) if not any(name in line for name in NEW_IN_057)]
    return reply._replace(body=b"".join(lines))


def without_slots(path: str, reply: Reply) -> Reply:
    """What llama.cpp with --no-slots answers."""
    return Reply(501, b'{"error":{"code":501}}', "application/json") if path == "/slots" else reply


class Variant(NamedTuple):
    """A capture as another version or configuration would have answered it."""

    capture: str
    change: Callable[[str, Reply], Reply]


VARIANTS: Mapping[str, Variant] = {
    "sglang-basic as before 0.5.7": Variant("sglang-basic", without_live_counters),
    "llamacpp-slots without /slots": Variant("llamacpp-slots", without_slots),
}


def wall() -> float:
    """Unix time, on the same clock."""
    return BEGAN_UNIX_S + time.monotonic()


async def replay(name: str, seconds: float | None = None) -> Replay:
    """Watch one capture, or a variant of one, from its start (or `STARTS`) to its end."""
    variant = VARIANTS.get(name)
    recorded = Recorded(variant.capture if variant else name, change=variant.change if variant else None)
    return await watch(recorded, name, STARTS.get(name, 0.0), seconds)


async def watch(recorded: Recorded, name: str, start_s: float = 0.0, seconds: float | None = None) -> Replay:
    """Watch a server from a second of its recording on."""
    async with LoopEngine(recorded, start_s) as engine:
        await asyncio.sleep(PHASE_S)
        source = EndpointSource(Endpoint(url=engine.url), POLL_S, time.monotonic, wall=wall)
        deriver = Deriver(gpu_catalogue(), GOALS.get(name, USUAL_GOALS))
        offset_s = engine.t - time.monotonic()
        ticks: list[Tick] = []
        await source.start()
        end_s = min(recorded.capture.scrapes[-1].t + POLL_S, start_s + (seconds or 1e9))
        while engine.t < end_s:
            await asyncio.sleep(1.0)
            now_s = time.monotonic()
            readings = (await source.poll(now_s)).engines
            frame = Frame(len(ticks), wall(), now_s, 1.0, HostReading(), (), readings)
            derived = deriver.derive(frame)
            ticks.append(Tick(now_s + offset_s, readings, derived.snapshot.engines, derived.points["decode"]))
        await source.close()
    return Replay(name, recorded.capture, start_s, offset_s, ticks)


@functools.cache
def replay_of(name: str) -> Replay:
    """A capture from its start to its end, played once in a process."""
    return played(replay(name), Clock())


def replays(names: Sequence[str]) -> list[Replay]:
    """Each capture from its start to its end, one after the other."""
    return [replay_of(name) for name in names]


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
    "vllm-tp2",
    "vllm-ngram",
    "vllm-0.9",
    "sglang-two-scrapers",
    "sglang-basic",
    "llamacpp-basic",
    "llamacpp-slots",
    "llamacpp-two-scrapers",
    "llamacpp-lifecycle",
)
"""Engines whose decode tokens are live."""
WITHOUT_TOKENS = ("triton-basic", "triton-two-models")
"""Servers of models that are no LLMs: requests and inferences are compared."""


def main() -> None:
    """Print the tables, and write them where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("capture", nargs="*", default=(*CAPTURES, *VARIANTS, *WITHOUT_TOKENS))
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    every = replays(arguments.capture)
    ways_out = [accounts_of(done, GOALS.get(done.name, USUAL_GOALS)) for done in every if has_one_engine(done)]
    text = f"{table([judge(done) for done in every])}\n\n{requests.table(every)}\n\n{accounts.table(ways_out)}"
    print(text)
    if arguments.markdown:
        write(arguments.markdown, text)


if __name__ == "__main__":
    main()
