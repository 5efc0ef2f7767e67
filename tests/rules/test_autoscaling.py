"""The autoscaler examples: they hold to their schemas, and over a played hour a real Prometheus gives them the replicas
that the goals need."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gpumon.config.load import load
from gpumon.outputs.openmetrics import MetricsPage
from gpumon.outputs.rules import RuleInputs, rules_yaml
from gpumon.outputs.samples import need_samples
from gpumon.readings.snapshot import Engine, Snapshot
from gpumon.session.autoscaler import Autoscaler
from gpumon.sizing.autoscale import ModelNeed
from tests.fakes.backfill import Scraped, store
from tests.fakes.prometheus import Prometheus, promtool
from tests.outputs.validator import problems
from tests.rules.checked import SCOPE
from tests.sizing.live_scenes import BASE_S, SLOPE_S, at, engine, gpu
from tests.yaml_blocks import documents

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
MODEL = "meta-llama/Llama-3.1-8B-Instruct"


def example(name: str) -> Any:
    """The only document of an example."""
    (document,) = documents((EXAMPLES / f"{name}.yaml").read_text())
    return document


@pytest.mark.parametrize("name", ["keda-scaledobject", "hpa", "prometheus-adapter"])
def test_an_example_holds_to_its_schema(name: str):
    schema = json.loads((ROOT / "tests" / "data" / "kubernetes" / f"{name}.schema.json").read_text())
    assert list(problems(example(name), schema)) == []
    broken = example(name) | {"spek": {}}
    assert list(problems(broken, schema))


def test_both_examples_ask_the_same_and_scale_alike():
    keda, hpa, adapter = example("keda-scaledobject"), example("hpa"), example("prometheus-adapter")
    (trigger,) = keda["spec"]["triggers"]
    (rule,) = adapter["externalRules"]
    (metric,) = hpa["spec"]["metrics"]
    assert rule["metricsQuery"] == trigger["metadata"]["query"]
    assert rule["name"]["as"] == metric["external"]["metric"]["name"]
    assert hpa["spec"]["behavior"] == keda["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert trigger["metadata"]["threshold"] == metric["external"]["target"]["averageValue"] == "1"


# The played hour: requests arrive at a rate that rises, bursts and falls; each replica decodes as the scenes do, in 10
# ms and 0.5 ms for every request that runs, so that the goal of 30 ms holds up to 40 requests on one.
GOAL_S = 0.030
MOST_RUNNING = (GOAL_S - BASE_S) / SLOPE_S
ANSWER_TOKENS = 200.0
STEP_S = 5.0
HOUR_S = 3600.0
SYNC_S = 15.0
"""Seconds between two scrapes, and between two looks of the autoscaler."""
RETENTION = ("--storage.tsdb.retention.time=10y",)
STARTS_IN_S = 90.0
"""Seconds until a new replica serves."""
BEGIN_S = 1_767_000_000.0
MOST_REPLICAS = 16


def arrivals_per_s(time_s: float) -> float:
    """Requests per second: from 4 over a broad peak of 60 back to 4, with a burst of four minutes in the valley."""
    rate = 4.0 + 56.0 * math.sin(math.pi * time_s / HOUR_S) ** 2
    return rate + (12.0 if 300.0 <= time_s < 540.0 else 0.0)


def in_flight_of(rate_per_s: float, replicas: int) -> float:
    """Requests in flight on each replica, by Little's law; more than the goal lets in where they do not suffice."""
    tokens_per_s = rate_per_s / replicas * ANSWER_TOKENS
    if tokens_per_s * SLOPE_S >= 0.9:  # near what a replica can decode at all
        return MOST_RUNNING * 3.0
    return tokens_per_s * BASE_S / (1.0 - tokens_per_s * SLOPE_S)


def replicas_for_goal(rate_per_s: float) -> int:
    """The fewest replicas with which the time between tokens is within the goal."""
    return next(count for count in range(1, 99) if in_flight_of(rate_per_s, count) <= MOST_RUNNING)


class Hpa:
    """Replicas as a HorizontalPodAutoscaler sets them by a metric of which each is worth 1.

    Within 10% nothing is done; up at most twice as many a minute; down by the highest that was asked for in ten
    minutes, one in two minutes.
    """

    def __init__(self, behavior: Mapping[str, Any]) -> None:
        self._down = behavior["scaleDown"]
        self._asked: list[tuple[float, int]] = []
        self._changed_s = -math.inf
        self.replicas = 1

    def sync(self, time_s: float, metric: float | None) -> None:
        """Take the metric in; None: there is none, and nothing is changed."""
        if metric is None:
            return
        wanted = self.replicas if abs(metric / self.replicas - 1.0) <= 0.1 else math.ceil(metric)
        wanted = min(max(1, wanted), MOST_REPLICAS)
        self._asked.append((time_s, wanted))
        window_s = self._down["stabilizationWindowSeconds"]
        stable = max(count for asked_s, count in self._asked if asked_s >= time_s - window_s)
        if wanted > self.replicas and time_s - self._changed_s >= 60.0:
            self.replicas = min(wanted, 2 * self.replicas)
            self._changed_s = time_s
        elif stable < self.replicas and time_s - self._changed_s >= self._down["policies"][0]["periodSeconds"]:
            self.replicas -= 1
            self._changed_s = time_s


class Moment(NamedTuple):
    """One step of the played hour."""

    time_s: float
    needed: int
    serving: int
    page: bytes
    """Empty between two scrapes."""


def replica(number: int, running: float) -> Engine:
    """A replica on a GPU of its own."""
    itl_s = BASE_S + SLOPE_S * running
    return engine(
        running, f"vllm:{8000 + number}", model=MODEL, gpus=(number,), requests_per_s=running / itl_s / ANSWER_TOKENS
    )


def snapshot_at(time_s: float, rate_per_s: float, serving: int) -> Snapshot:
    """All replicas, each with its part of the requests."""
    running = round(in_flight_of(rate_per_s, serving), 1)
    engines = [replica(number, running) for number in range(serving)]
    gpus = tuple(gpu(number, f"vllm:{8000 + number}") for number in range(serving))
    return at(BEGIN_S + time_s, *engines, gpus=gpus)


async def played_hour(folder: Path, behavior: Mapping[str, Any]) -> list[Moment]:
    """The hour with replicas that follow what serve-metrics says, as an autoscaler would set them."""
    file = folder / "config.toml"
    file.write_text(f"[goals]\nitl_mean_ms = {GOAL_S * 1e3}\n")
    autoscaler = Autoscaler(load(str(file), {}, []).config)
    autoscaler.start()
    hpa = Hpa(behavior)
    ready_s = [-math.inf]
    """When each replica begins to serve."""
    moments = []
    for step in range(round(HOUR_S / STEP_S)):
        time_s = step * STEP_S
        rate_per_s = arrivals_per_s(time_s)
        serving = sum(time_s >= begin_s for begin_s in ready_s)
        shot = snapshot_at(time_s, rate_per_s, serving)
        autoscaler.take(shot)
        await asyncio.sleep(0.002)
        page = b""
        if time_s % SYNC_S == 0.0:
            page = page_of(shot, autoscaler.needs)
            hpa.sync(time_s, asked_by(autoscaler.needs))
        moments.append(Moment(BEGIN_S + time_s, replicas_for_goal(rate_per_s), serving, page))
        while len(ready_s) < hpa.replicas:
            ready_s.append(time_s + STARTS_IN_S)
        del ready_s[hpa.replicas :]
    await autoscaler.stop()
    return moments


def page_of(shot: Snapshot, needs: Iterable[ModelNeed]) -> bytes:
    """What serve-metrics answers to a scrape."""
    page = MetricsPage(lambda: 0.0)
    page.count_also(lambda: need_samples(needs))
    page.take(shot)
    return page.page("", "").body


def asked_by(needs: Iterable[ModelNeed]) -> float | None:
    """The replicas that serve-metrics asks for: the larger one of peak and forecast; None where it knows neither."""
    figures = [figure for need in needs for figure in (need.needed_for_peak, need.needed_for_forecast)]
    return max((figure for figure in figures if isinstance(figure, float)), default=None)


@pytest.fixture(scope="module")
def hour(tmp_path_factory: pytest.TempPathFactory) -> list[Moment]:
    behavior = example("hpa")["spec"]["behavior"]
    return asyncio.run(played_hour(tmp_path_factory.mktemp("hour"), behavior))


def backfill_rules(folder: Path, url: str) -> None:
    """The recording rules over the hour, into the storage."""
    end_s = BEGIN_S + HOUR_S
    words = ["tsdb", "create-blocks-from", "rules", f"--start={BEGIN_S:.0f}", f"--end={end_s:.0f}", f"--url={url}"]
    done = promtool(*words, f"--output-dir={folder / 'data'}", "--eval-interval=15s", str(folder / "rules.yml"))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_replicas_of_the_played_hour_are_those_that_the_goals_need(tmp_path: Path, hour: list[Moment]):
    """A real Prometheus with the pages of the hour and the rules of `gpumon rules`, asked by the query of the examples
    every 15 s; a HorizontalPodAutoscaler follows."""
    scraped = hour[:: round(SYNC_S / STEP_S)]
    pages = {moment.time_s: moment.page for moment in scraped}
    labels = {"job": "gpumon", "instance": "a:9454"}
    store(tmp_path, [Scraped(labels, pages.__getitem__, BEGIN_S, scraped[-1].time_s)], SYNC_S)
    rules = rules_yaml(RuleInputs((), SCOPE, scraped=False, served=True))
    (tmp_path / "rules.yml").write_text(rules)
    for _ in range(2):  # rules over what other rules recorded
        with Prometheus(tmp_path, extra=RETENTION) as server:
            backfill_rules(tmp_path, server.url)
    query = example("keda-scaledobject")["spec"]["triggers"][0]["metadata"]["query"]
    hpa = Hpa(example("hpa")["spec"]["behavior"])
    short_s = 0.0
    replica_s = 0.0
    needed_s = 0.0
    with Prometheus(tmp_path, extra=RETENTION) as server:
        for moment in scraped:
            found = server.query(query, moment.time_s)
            hpa.sync(moment.time_s - BEGIN_S, float(found[0]["value"][1]) if found else None)
            short_s += SYNC_S * (hpa.replicas < moment.needed)
            replica_s += SYNC_S * hpa.replicas
            needed_s += SYNC_S * moment.needed
    late_s = sum(STEP_S for moment in hour if moment.serving < moment.needed)
    print(
        f"{short_s:.0f} s short, {replica_s / needed_s:.2f} times the replicas needed, {late_s:.0f} s until they served"
    )
    # A plan comes every 5 minutes: what rises in between is asked for by the one before.
    assert short_s <= 120.0
    assert replica_s / needed_s <= 1.8
    assert late_s <= 240.0
