"""Engines whose series come with their first request: its latencies and tokens are there within 10 s.

Recorded and documented pages over real HTTP, by the real endpoint source, in virtual time.
"""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from gpumon.readings.missing import Missing, Reading
from gpumon.readings.snapshot import Engine
from tests.accuracy.replay import Replay, watch
from tests.fakes.engine import Recorded
from tests.fakes.http_server import Reply
from tests.virtual_time import Clock, played

PAGES = Path(__file__).parents[1] / "data" / "pages"
SOON_S = 10.0
FIRST_S = 20.0
"""Second at which the written pages have their first request."""
HISTOGRAM = re.compile(rb"^([a-zA-Z_:]+)_(?:bucket|sum|count)\b")
COUNT = re.compile(rb"^([a-zA-Z_:]+)_count\b.* ([0-9.e+]+)$")


def without_zeros(path: str, reply: Reply) -> Reply:
    """The page as a client library writes it that has a histogram from its first observation on."""
    if path != "/metrics" or not isinstance(reply.body, bytes):
        return reply
    lines = reply.body.splitlines(keepends=True)
    counts = [found.groups() for line in lines if (found := COUNT.match(line.rstrip()))]
    observed = {name for name, count in counts if float(count) > 0.0}
    kept = [line for line in lines if not (found := HISTOGRAM.match(line)) or found[1] in observed]
    return reply._replace(body=b"".join(kept))


def metrics_alone(path: str, reply: Reply) -> Reply:
    """No other page."""
    return reply if path == "/metrics" else Reply(404, b"no")


def written(folder: Path, *pages: tuple[float, bytes]) -> Recorded:
    """A recording of pages, each from its second on."""
    folder.mkdir()
    (folder / "meta.json").write_text('{"model": "m"}')
    (folder / "cmdline.txt").write_text("")
    lines = [{"t": t, "lat_s": 0.01, "status": 200, "body": body.decode()} for t, body in pages]
    with gzip.open(folder / "metrics.jsonl.gz", "wt") as file:
        file.write("\n".join(map(json.dumps, [*lines, {**lines[-1], "t": lines[-1]["t"] + 60.0}])))
    return Recorded(folder, change=metrics_alone)


def watched(recorded: Recorded, name: str, seconds: float) -> Replay:
    return played(watch(recorded, name, seconds=seconds), Clock())


def known(reading: Reading) -> bool:
    return not isinstance(reading, Missing)


def first_shown(replay: Replay, part: str) -> float:
    """When the mean of a latency is there for the first time."""
    shown = (tick.t for tick in replay.ticks for engine in tick.engines if known(getattr(engine.latency, part).mean))
    return next(shown, float("inf"))


def last(replay: Replay) -> Engine:
    return replay.ticks[-1].engines[0]


def page(name: str) -> bytes:
    return (PAGES / name).read_bytes()


@pytest.mark.parametrize("name", ["sglang-two-scrapers", "vllm-basic"])
def test_latencies_of_a_recorded_engine_are_there_at_once(name: str):
    """SGLang writes its histograms so; vLLM with several API servers does."""
    recorded = Recorded(name, change=without_zeros)
    first_s = min(request["t_first"] for request in recorded.capture.truth)
    replay = watched(recorded, name, first_s + SOON_S + 5.0)
    assert first_shown(replay, "ttft_s") <= first_s + SOON_S
    assert first_shown(replay, "itl_s") <= first_s + SOON_S
    told = [request for request in recorded.capture.truth if request["t_first"] < replay.ticks[-1].t - 3.0]
    latency = last(replay).latency.ttft_s.mean
    assert not isinstance(latency, Missing)
    seen = [request["t_first"] - request["t_start"] for request in told]
    assert latency == pytest.approx(sum(seen) / len(seen), rel=0.5)


def test_latencies_of_a_dynamo_frontend_are_there_at_once(tmp_path: Path):
    """Before its first request it has nothing of the model but its settings."""
    recorded = written(tmp_path / "dynamo", (0.0, page("dynamo/idle.prom")), (FIRST_S, page("dynamo/frontend-0.prom")))
    replay = watched(recorded, "dynamo", FIRST_S + SOON_S)
    assert first_shown(replay, "ttft_s") <= FIRST_S + SOON_S
    shown = next(engine for engine in replay.ticks[-1].engines if engine.name.endswith("qwen/qwen3-0.6b"))
    assert shown.latency.itl_s.mean == pytest.approx(0.63 / 250)
    assert shown.tokens_total.decode == 300.0


WITH_GAUGES = [("tgi/running", "itl_s", 0.625 / 20), ("tei/embed", "e2e_s", 0.953125 / 61)]


@pytest.mark.parametrize(("case", "part", "mean"), WITH_GAUGES)
def test_latencies_of_an_engine_with_gauges_alone_are_there_at_once(tmp_path: Path, case: str, part: str, mean: float):
    body = page(f"{case}.prom")
    gauges = (b"tgi_queue_size", b"tgi_batch_current_size", b"te_queue_size")
    idle = b"".join(line for line in body.splitlines(keepends=True) if line.startswith(gauges))
    replay = watched(written(tmp_path / "engine", (0.0, idle), (FIRST_S, body)), "engine", FIRST_S + SOON_S)
    assert first_shown(replay, part) <= FIRST_S + SOON_S
    assert getattr(last(replay).latency, part).mean == pytest.approx(mean)


def test_a_histogram_that_was_gone_for_a_while_is_not_taken_for_new(tmp_path: Path):
    """What it counted before is no observation of now."""
    body = page("tgi/running.prom")
    without = b"".join(line for line in body.splitlines(keepends=True) if b"mean_time_per_token" not in line)
    recorded = written(tmp_path / "engine", (0.0, body), (10.0, without), (FIRST_S, body))
    shown = last(watched(recorded, "engine", FIRST_S + SOON_S)).latency.itl_s
    assert not known(shown.mean)


def test_what_only_the_first_answer_lacked_is_not_taken_for_new(tmp_path: Path):
    """It may have counted for days."""
    body = page("tgi/running.prom")
    without = b"".join(line for line in body.splitlines(keepends=True) if b"mean_time_per_token" not in line)
    recorded = written(tmp_path / "engine", (0.0, without), (2.0, body))
    assert not known(last(watched(recorded, "engine", SOON_S)).latency.itl_s.mean)


def test_a_page_that_was_cut_tells_nothing_of_what_it_lacks(tmp_path: Path):
    """A line that is no sample stands where the histogram was."""
    body = page("tgi/running.prom")
    cut = b"".join(line for line in body.splitlines(keepends=True) if b"mean_time_per_token" not in line) + b"tgi_req"
    recorded = written(tmp_path / "engine", (0.0, cut), (FIRST_S, body))
    assert not known(last(watched(recorded, "engine", FIRST_S + SOON_S)).latency.itl_s.mean)
