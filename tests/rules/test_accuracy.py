"""The rules in a real Prometheus beside gpumon itself: both watch the same replays of real engines, as recorded."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from gpumon.config.schema import Endpoint, Model
from gpumon.efficiency.deriver import Deriver
from gpumon.outputs.dashboard import dashboard
from gpumon.readings.flat import value_of
from gpumon.readings.frame import Frame, HostReading
from gpumon.readings.missing import Missing
from gpumon.sources.attachment import EngineResolver
from gpumon.sources.endpoint import EndpointSource
from gpumon.sources.packaged import gpu_catalogue
from tests.fakes.engine import FakeEngine
from tests.fakes.prometheus import Prometheus

STARTS = {
    "vllm-basic": 24.0,
    "vllm-ngram": 13.0,
    "sglang-basic": 24.0,
    "llamacpp-slots": 17.0,
}
"""Second of each capture to begin at: from 2 s later on its load is steady, until after the end of the comparison."""
FROM_S = 12.0
TO_S = 20.0
"""Compared after the start: when the windows of 10 s are full of that load."""
MODEL = Model(match="tiny-llama", params_b=8.0, layers=32, hidden=4096, heads=32, kv_heads=8, vocab=128256)
CONFIG = """
[[model]]
match = "tiny-llama"
params_b = 8.0
layers = 32
hidden = 4096
heads = 32
kv_heads = 8
vocab = 128256
"""
GPU = "H100 SXM 80GB"
RECORDS = {
    "mfu_ratio": "gpumon:engine_mfu:ratio",
    "mbu_ratio": "gpumon:engine_mbu:ratio",
    "mfu_decode_ratio": "gpumon:engine_mfu_decode:ratio",
    "decode_tokens_per_s": "gpumon:engine_decode_tokens:rate",
    "prefill_tokens_per_s": "gpumon:engine_prefill_tokens:rate",
    "steps_per_s": "gpumon:engine_steps:rate",
}


NEAR = 0.12
"""Prompts come in lumps, some each 5 s, and so do the long steps of n-gram speculation: a window that is a second off
has one more or less, a tenth of the mean. On a quiet machine both agree within 0.03; a scrape that is late moves one of
them. That formulas are the same to a millionth is tested with promtool.
"""


class Compared(NamedTuple):
    """Means of one figure over the same seconds."""

    rules: float
    gpumon: float
    moments: tuple[int, int]


Seen = dict[tuple[str, str], list[tuple[float, float]]]
"""Capture and figure -> Unix time and value."""


def compared(folder: Path) -> tuple[dict[tuple[str, str], Compared], set[str]]:
    """Each figure of each capture, when both have watched it for 20 s; and the panels that are empty then."""
    with contextlib.ExitStack() as stack:
        engines = {name: stack.enter_context(Held(name, start)) for name, start in STARTS.items()}
        scrapes = [
            f"  - {{job_name: {name}, static_configs: [{{targets: ['127.0.0.1:{engine.server.port}'], "
            "labels: {model_name: tiny-llama}}]}"
            for name, engine in engines.items()
        ]
        (folder / "rules.yml").write_text("groups: []")
        with Prometheus(folder, scrapes, rules=[folder / "rules.yml"]) as server:
            load_rules(folder, server)
            began_s = time.time()
            seen = asyncio.run(both(engines, began_s + TO_S))
            figures = {
                key: Compared(*means(server, key, points, began_s)) for key, points in seen.items() if key[1] in RECORDS
            }
            return figures, empty_panels(server)


def empty_panels(server: Prometheus) -> set[str]:
    """Titles of the panels with a query that has no result, all variables at All."""
    return {
        panel["title"]
        for panel in dashboard(priced=True)["panels"]
        for target in panel["targets"]
        if not server.query(re.sub(r"[$]\w+", ".*", target["expr"]))
    }


class Held(FakeEngine):
    """A replay that stands still at its start until `go`."""

    def __init__(self, name: str, start_s: float) -> None:
        super().__init__(name, start_s=start_s, speed=1e-9)

    def go(self) -> None:
        """From now on at recorded speed."""
        self._speed, self._began_s = 1.0, time.monotonic()


async def both(engines: dict[str, Held], end_s: float) -> Seen:
    """Start the replays and watch them until `end_s` (Unix time)."""
    for engine in engines.values():
        engine.go()
    found = await asyncio.gather(*(watched(name, engine, end_s) for name, engine in engines.items()))
    return {key: points for one in found for key, points in one.items()}


def load_rules(folder: Path, server: Prometheus) -> None:
    """As a user does it: print them from what the Prometheus has, and have it read them."""
    for name in ("vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing"):
        server.until(name)
    config = folder / "gpumon.toml"
    config.write_text(CONFIG)
    words = ["--config", config, "--prometheus", server.url, "--gpu", GPU, "--interval", "0.5", "--context", "300"]
    printed = subprocess.run(
        [sys.executable, "-m", "gpumon", "rules", *map(str, words)], capture_output=True, check=True, timeout=60
    )
    (folder / "rules.yml").write_bytes(printed.stdout)
    os.kill(server.pid, signal.SIGHUP)
    server.until("gpumon:engine_requests_running:sum", results=len(STARTS))


async def watched(name: str, engine: FakeEngine, end_s: float) -> Seen:
    """What gpumon itself shows of one engine, second by second."""
    endpoint = Endpoint(url=engine.url, model="tiny-llama", gpu_type=GPU, gpu_count=1)
    source, deriver = EndpointSource(endpoint, 1.0), Deriver(gpu_catalogue())
    facts = EngineResolver({source.url.base: endpoint, engine.url: endpoint}, [MODEL], None)
    seen: Seen = {}
    await source.start()
    while time.time() < end_s:
        await asyncio.sleep(0.5)
        now_s = time.monotonic()
        readings = tuple(facts.attach(reading, ()) for reading in (await source.poll(now_s)).engines)
        shown = deriver.derive(Frame(0, time.time(), now_s, 0.5, HostReading(), (), readings)).snapshot.engines
        for figure in RECORDS if shown else ():
            value = value_of(shown[0], figure)
            if not isinstance(value, Missing):
                seen.setdefault((name, figure), []).append((time.time(), value))
    await source.close()
    return seen


def means(
    server: Prometheus, key: tuple[str, str], points: list[tuple[float, float]], began_s: float
) -> tuple[float, float, tuple[int, int]]:
    start_s, end_s = began_s + FROM_S, began_s + TO_S
    mine = [value for at_s, value in points if start_s <= at_s <= end_s]
    selector = f'{RECORDS[key[1]]}{{job="{key[0]}"}}[{round(TO_S - FROM_S)}s]'
    found = server.query(selector, end_s)
    assert len(found) == 1, f"{selector}: {len(found)} series"
    theirs = [float(value) for _, value in found[0]["values"]]  # type: ignore[attr-defined]
    return sum(theirs) / len(theirs), sum(mine) / len(mine), (len(theirs), len(mine))


def test_the_rules_say_what_gpumon_says(tmp_path: Path):
    """One test for all: the replays run once, whichever worker has it."""
    found, empty = compared(tmp_path)
    assert set(found) == {(capture, figure) for capture in STARTS for figure in RECORDS}
    assert all(min(one.moments) >= 6 and one.gpumon > 0.0 for one in found.values()), found
    apart = {
        (capture, figure): (one.rules, one.gpumon)
        for (capture, figure), one in found.items()
        if one.rules != pytest.approx(one.gpumon, rel=NEAR)
    }
    assert apart == {}
    of_gpus = {"GPUs: busy, tensor and memory active", "Tokens per joule", "Idle money per hour"}
    assert empty == of_gpus | {"Models"}, "there is no dcgm-exporter; the table has tokens per joule"
