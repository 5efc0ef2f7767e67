"""How many series a host exports without `--detail`, and that alerts, dashboard and fleet rows need no others."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from pathlib import Path

import pytest

from gpumon.config.load import load
from gpumon.config.options import Options
from gpumon.config.prices import goals_of
from gpumon.outputs.dashboard import dashboard
from gpumon.outputs.essential import ESSENTIAL_METRICS
from gpumon.outputs.openmetrics import MetricsPage
from gpumon.outputs.rules import RuleInputs, rules_yaml
from gpumon.outputs.samples import answers, need_samples
from gpumon.readings.exported import EXPORTED_METRICS, ExportedSample
from gpumon.session.autoscaler import Autoscaler
from gpumon.session.build import build
from gpumon.session.hardware import open_hardware
from tests.exporter.served import MODERN, modern
from tests.rules.checked import SCOPE, expressions
from tests.virtual_time import Clock, played

DOCS = Path(__file__).parents[2] / "docs" / "serve-metrics.md"
STEADY_S = 70.0
"""Time in which all engines answer before the page is counted: quantiles are of the last minute."""
MOST_S = 900.0
IDENTITY = ("kind", "thing", "family")
"""Labels that tell verdicts apart."""
EVERY_S = 5.0
"""Time between two snapshots."""
ENGINES = 3
SETTINGS = "[general]\ninterval_s = 5\nengine_interval_s = 5\n[goals]\nttft_p95_ms = 1000\ntpot_p95_ms = 50\n"


async def pages_of_the_demo(folder: Path) -> tuple[list[ExportedSample], list[ExportedSample]]:
    """The page of 8 GPUs and 3 engines after two minutes, without and with every detail."""
    file = folder / "config.toml"
    file.write_text(SETTINGS)
    config = load(str(file), {}, []).config
    options = Options(demo=True)
    goals = goals_of(config.goals)
    pages = (MetricsPage(goals=goals), MetricsPage(goals=goals, detail=True))
    autoscaler = Autoscaler(config)
    autoscaler.start()
    collector = build(config, options, await open_hardware(config, options), keepers=pages)
    try:
        await collector.open()
        await collector.ready(60.0)
        steady_s = 0.0
        for _ in range(int(MOST_S / EVERY_S)):
            snapshot = await collector.tick()
            autoscaler.take(snapshot)
            answering = [engine for engine in snapshot.engines if answers(engine)]
            steady_s = steady_s + EVERY_S if len(answering) == ENGINES else 0.0
            if steady_s >= STEADY_S and all(isinstance(need.headroom_ratio, float) for need in autoscaler.needs):
                break
            await asyncio.sleep(EVERY_S)
        assert steady_s >= STEADY_S
        for page in pages:
            page.count_also(lambda: need_samples(autoscaler.needs))
            page.take(snapshot)
        few, all_series = (modern(page.page(MODERN, "").body) for page in pages)
        return few, all_series
    finally:
        await autoscaler.stop()
        await collector.stop()


def beside_verdicts(page: list[ExportedSample]) -> int:
    """Series that do not come and go with verdicts."""
    return sum(not sample.name.startswith("gpumon_verdict") for sample in page)


def most_of_one_verdict(page: list[ExportedSample]) -> int:
    """Series of the verdict that has the most of them."""
    counts = Counter(
        tuple(sample.labels[name] for name in IDENTITY) for sample in page if sample.name.startswith("gpumon_verdict")
    )
    return max(counts.values())


def test_a_host_exports_few_series_and_the_docs_say_how_many(tmp_path: Path) -> None:
    few, all_series = played(pages_of_the_demo(tmp_path), Clock())
    assert {sample.name for sample in few} <= ESSENTIAL_METRICS
    said = re.search(
        r"8 GPUs and 3 engines: about (\d+) series beside those of verdicts, about (\d+) with `--detail`",
        DOCS.read_text(),
    )
    assert said is not None
    # An engine with few requests has a p95 in one minute and none in the next.
    assert beside_verdicts(few) == pytest.approx(int(said[1]), rel=0.05)
    assert beside_verdicts(all_series) == pytest.approx(int(said[2]), rel=0.05)
    of_a_verdict = re.search(r"Each verdict adds about (\d+), (\d+) at most", DOCS.read_text())
    assert of_a_verdict is not None
    verdicts = sum(sample.name == "gpumon_verdict" for sample in few)
    assert (len(few) - beside_verdicts(few)) / verdicts == pytest.approx(int(of_a_verdict[1]), rel=0.3)
    assert most_of_one_verdict(few) <= int(of_a_verdict[2])


def test_every_essential_series_is_one_that_is_exported() -> None:
    assert {name for metric in EXPORTED_METRICS for name in metric.samples} >= ESSENTIAL_METRICS


def test_alerts_and_panels_need_no_detail() -> None:
    rules = rules_yaml(RuleInputs((), SCOPE, scraped=False, served=True))
    panels = "\n".join(
        expr
        for expr in expressions(dashboard(priced=False, scraped=False, served=True))
        if "distribution_seconds" not in expr  # beside the slowest engine, which is essential
    )
    names = set(re.findall(r"\bgpumon_\w+", rules + panels))
    assert len(names) > 20
    assert names <= ESSENTIAL_METRICS
