"""FLOPs that the served tokens needed, by the oracle's figures for the model, beside what gpumon shows for them.

    python -m tests.accuracy.served [CAPTURE ...]

The captures are of real engines with small models of other architectures than Llama's; tests/data/oracle/served.csv
has what a token and a pair of tokens cost in their real code (tests/oracle/served.py). Each is served as it was
recorded, with its model's config.json at hand, and watched by gpumon's collector as an engine on an H100, in virtual
time: the MFU that `gpumon watch --json` shows times the peak, over all of the time, is to be what the client's tokens
needed.
"""

from __future__ import annotations

import asyncio
import contextlib
import csv
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from gpumon.collector import Collector
from gpumon.config.schema import Endpoint
from gpumon.efficiency.deriver import Deriver
from gpumon.outputs.json import encode
from gpumon.readings.frame import HostReading
from gpumon.readings.snapshot import Snapshot
from gpumon.sources.attachment import EngineResolver
from gpumon.sources.endpoint import EndpointSource
from gpumon.sources.packaged import gpu_catalogue
from tests.fakes.engine import Capture, LoopEngine, Recorded
from tests.fakes.http_server import Reply
from tests.virtual_time import Clock, played

ORACLE: Final = Path(__file__).parent.parent / "data" / "oracle" / "served.csv"
GPU: Final = "H100 SXM 80GB"
PEAK: Final = 989.4e12
"""Dense bf16 FLOP/s of an H100 SXM (NVIDIA's data sheet)."""
INTERVAL_S: Final = 1.0
POLL_S: Final = 2.0
"""Interval between two polls of an engine, as by default."""
AFTER_S: Final = 3.0


class Cost(NamedTuple):
    """FLOPs of a model: per token, per token whose logits are computed, and per pair of a query and a key."""

    token: float
    head: float
    full_pair: float
    window_pair: float
    window: int
    decode_full_pair: float

    def prefill(self, tokens: int) -> float:
        """Of a prompt from its first token on; its last one gives the first token of the answer."""
        full = tokens * (tokens + 1) / 2
        near = self._near(tokens)
        return tokens * self.token + self.head + self.full_pair * full + self.window_pair * near

    def decode(self, prompt: int, answer: int) -> float:
        """Of the other tokens of an answer."""
        steps, last = answer - 1, prompt + answer - 1
        full = (last * (last + 1) - prompt * (prompt + 1)) / 2
        near = self._near(last) - self._near(prompt)
        return steps * (self.token + self.head) + self.decode_full_pair * full + self.window_pair * near

    def _near(self, tokens: int) -> float:
        """Pairs inside the window, of the first `tokens`."""
        inside = min(tokens, self.window)
        return inside * (inside + 1) / 2 + (tokens - inside) * self.window


class Compared(NamedTuple):
    """FLOPs of one capture."""

    name: str
    model_type: str
    prefill: float
    decode: float
    attention: float
    """Of both."""
    shown: float
    shown_prefill: float
    shown_decode: float
    missing: tuple[str, ...]
    """Why MFU was not shown, where it was not."""

    @property
    def error(self) -> float:
        """Of all, as a share of what the tokens needed."""
        return self.shown / (self.prefill + self.decode) - 1.0


class NoMachine:
    """No figures of the machine itself: those are measured in real time."""

    def read(self, pids: tuple[int, ...]) -> HostReading:
        """A machine with a name."""
        return HostReading("box")


def costs() -> Mapping[str, tuple[str, Cost]]:
    """The oracle's figures: capture -> `model_type` and costs."""
    with ORACLE.open(newline="") as lines:
        return {line["capture"]: (line["model_type"], _cost(line)) for line in csv.DictReader(lines)}


def _cost(line: Mapping[str, str]) -> Cost:
    return Cost(
        float(line["linear_flops"]) + float(line["state_flops"]),
        float(line["head_flops"]),
        float(line["full_pair_flops"]),
        float(line["window_pair_flops"]),
        int(line["window"]),
        float(line["decode_full_pair_flops"]),
    )


def needed(capture: Capture, cost: Cost) -> tuple[float, float]:
    """FLOPs of all prompts and of all answers, by the client's own count of their tokens."""
    done = [(line["prompt_tokens"], line["output_tokens"]) for line in capture.truth]
    return sum(cost.prefill(prompt) for prompt, _ in done), sum(cost.decode(*both) for both in done)


def watched(names: Sequence[str]) -> list[list[dict[str, Any]]]:
    """Each engine as `gpumon watch --json` shows it at each tick; all captures run side by side, in virtual time."""
    captures = [Capture(name) for name in names]
    ticks = [_engines(snapshot) for snapshot in played(_snapshots(captures), Clock())]
    return [[tick[capture.folder.name] for tick in ticks] for capture in captures]


def _engines(snapshot: Snapshot) -> dict[str, Any]:
    """Each engine of a snapshot as JSON, by its name."""
    return {engine["name"]: engine for engine in json.loads(encode(snapshot))["engines"]}


async def _snapshots(captures: Sequence[Capture]) -> list[Snapshot]:
    """The snapshots of a collector that polls a server of each capture from its start to its end."""
    seconds = max(capture.scrapes[-1].t for capture in captures) + AFTER_S
    snapshots: list[Snapshot] = []
    async with contextlib.AsyncExitStack() as running:
        endpoints = []
        for capture in captures:
            recorded = Recorded(capture.folder, str(capture.folder.resolve()), _named(capture))
            served = await running.enter_async_context(LoopEngine(recorded, 0.0))
            endpoints.append(Endpoint(url=served.url, name=capture.folder.name, gpu_type=GPU, gpu_count=1))
        sources = [EndpointSource(endpoint, POLL_S, time.monotonic) for endpoint in endpoints]
        listed = {source.reading.key: source.endpoint for source in sources}
        facts = EngineResolver(listed, (), None, env={}, nvml=False)
        collector = Collector(sources, Deriver(gpu_catalogue()), NoMachine(), facts, interval_s=INTERVAL_S)
        running.push_async_callback(collector.stop)
        await collector.start(snapshots.append)
        await asyncio.sleep(seconds)
    return snapshots


def _named(capture: Capture) -> Any:
    """The pages beside the metrics are of another model's server."""
    name = str(capture.meta["model"]).encode()
    return lambda _path, reply: _renamed(reply, name)


def _renamed(reply: Reply, name: bytes) -> Reply:
    return reply._replace(body=reply.body.replace(b"tiny-llama", name)) if isinstance(reply.body, bytes) else reply


def compare(names: Sequence[str]) -> list[Compared]:
    """What was shown beside what was needed."""
    known = costs()
    return [_compared(Capture(name), *known[name], ticks) for name, ticks in zip(names, watched(names), strict=True)]


def _compared(capture: Capture, model_type: str, cost: Cost, ticks: list[dict[str, Any]]) -> Compared:
    prefill, decode = needed(capture, cost)
    tokens = cost._replace(full_pair=0.0, window_pair=0.0, decode_full_pair=0.0)
    unseen = {tick["missing"]["mfu_ratio"] for tick in ticks if tick["mfu_ratio"] is None}
    return Compared(
        capture.folder.name,
        model_type,
        prefill,
        decode,
        prefill + decode - sum(needed(capture, tokens)),
        _integral(ticks, "mfu_ratio"),
        _integral(ticks, "mfu_prefill_ratio"),
        _integral(ticks, "mfu_decode_ratio"),
        tuple(sorted(unseen)),
    )


def _integral(ticks: list[dict[str, Any]], field: str) -> float:
    return sum((tick[field] or 0.0) * PEAK * INTERVAL_S for tick in ticks)


NAMES: Final = tuple(sorted(costs()) if ORACLE.exists() else ())


def main() -> None:
    """Print them."""
    for each in compare(sys.argv[1:] or NAMES):
        whole = each.prefill + each.decode
        print(
            f"{each.name} ({each.model_type}): {whole:.4g} FLOPs, of these attention {each.attention / whole:.0%}, "
            f"prefill {each.prefill / whole:.0%}; shown {each.shown:.4g} ({each.error:+.2%}), prefill "
            f"{each.shown_prefill / each.prefill - 1:+.2%}, decode {each.shown_decode / each.decode - 1:+.2%}; "
            f"not shown: {', '.join(each.missing) or 'never'}"
        )


if __name__ == "__main__":
    main()
