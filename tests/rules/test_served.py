"""Alerts and a dashboard over `gpumon serve-metrics`: a real Prometheus scrapes it and evaluates them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gpumon import cli
from gpumon.outputs.dashboard import dashboard
from gpumon.outputs.openmetrics import MetricsPage
from gpumon.outputs.rules import RuleInputs, quoted, rules_yaml
from gpumon.readings.exported import EXPORTED_METRICS
from gpumon.readings.frame import EndpointState, GpuState
from gpumon.readings.snapshot import Confidence, Family, Kind, Limit, Snapshot, Verdict
from tests.exporter.served import MODERN, Served, modern, quiet
from tests.fakes.prometheus import Prometheus, promtool
from tests.outputs import shots
from tests.records import replace
from tests.rules.checked import NAN, SCOPE, check, expressions

SERVED = rules_yaml(RuleInputs((), SCOPE, scraped=False, served=True))
ALERTS = {
    name: re.sub(r"\n\s*", " ", expr.strip())
    for name, expr in re.findall(r"- alert: (\w+)\n\s*expr: \|-\n((?: {10}.*\n)+)", SERVED)
}
RECORDED = re.findall(r"- record: (\S+)", SERVED)
FULL = {"GpumonKvCacheFull", "GpumonPreemptions"}
"""Alerts that the simulated server raises."""


@pytest.fixture(autouse=True)
def _own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "gpumon.toml").write_text("")
    monkeypatch.setenv("GPUMON_CONFIG", str(tmp_path / "gpumon.toml"))


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory):
    """It scrapes a server whose KV cache is full, and nothing else."""
    folder = tmp_path_factory.mktemp("served")
    with Served(quiet(folder), "--demo", "--scenario", "kv-cache-full", "--detail") as gpumon:
        port = gpumon.url.rpartition(":")[2]
        scrape = f"  - {{job_name: gpumon, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}"
        with Prometheus(folder, [scrape]) as server:
            server.until('gpumon_engine_mfu_ratio and on (engine) gpumon_engine_ttft_seconds{quantile="0.95"}')
            server.until('gpumon_verdict{kind="engine"}')
            server.until("gpumon_gpu_tensor_active_ratio")
            yield server


def made(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(["rules", *words]) == 0
    text, said = capsys.readouterr()
    assert said == ""
    return text


def test_a_prometheus_that_has_nothing_else_gets_rules(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], prometheus: Prometheus
):
    (tmp_path / "rules.yml").write_text(made(capsys, "--prometheus", prometheus.url))
    result = promtool("check", "rules", str(tmp_path / "rules.yml"))
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"{len(ALERTS) + len(RECORDED)} rules found" in result.stdout


def test_every_alert_is_a_query_of_what_is_wrong(prometheus: Prometheus):
    raised = {name for name, expr in ALERTS.items() if prometheus.query(expr)}
    assert raised == FULL


def test_every_panel_shows_something(capsys: pytest.CaptureFixture[str], prometheus: Prometheus):
    board = json.loads(made(capsys, "--prometheus", prometheus.url, "--dashboard"))
    names = {one["name"] for one in board["templating"]["list"]}
    assert names == {"datasource", "served_model", "served_cluster", "served_host"}
    for panel in board["panels"]:
        for target in panel["targets"]:
            assert {name[1:] for name in re.findall(r"[$]\w+", target["expr"])} <= names
            asked = re.sub(r"[$]\w+", ".*", target["expr"])
            assert prometheus.query(asked), (panel["title"], asked)


def test_a_choice_cuts_every_panel_down(prometheus: Prometheus):
    for expr in expressions(dashboard(priced=False, scraped=False, served=True)):
        asked = expr.replace("$served_host", "other").replace("$served_model", ".*").replace("$served_cluster", ".*")
        assert not prometheus.query(asked), asked


def test_every_series_is_one_that_is_exported():
    asked = [*ALERTS.values(), *expressions(dashboard(priced=False, scraped=False, served=True))]
    names = set(re.findall(r"gpumon_\w+", " ".join(asked)))
    assert len(names) > 20
    assert names <= {name for metric in EXPORTED_METRICS for name in metric.samples}


def verdict(limit: Limit, kind: Kind, family: Family = Family.USE) -> Snapshot:
    since = "2026-01-02T14:00:00Z"
    found = Verdict("it", limit, "so it is", since, confidence=Confidence.HIGH, kind=kind, key="it", family=family)
    return shots.snapshot(verdicts=(found,))


def with_engine_on_it(limit: Limit, of_engine: Limit) -> Snapshot:
    """A GPU with a trouble, and an engine that suffers from it."""
    snapshot = verdict(limit, Kind.GPU, Family.STATE)
    (root,) = snapshot.verdicts
    engine = replace(root, scope="vllm:8000", code=of_engine, kind=Kind.ENGINE, key="vllm:8000", caused_by=root.id)
    return replace(snapshot, verdicts=(root, engine))


def of_engine(**changed: object) -> Snapshot:
    return shots.snapshot(engines=(shots.engine(**changed),))


CASES = {
    "nothing": shots.snapshot(),
    "starting": of_engine(state=EndpointState.STARTING),
    "GpumonServeMetricsDown": shots.snapshot(),
    "GpumonEngineDown": of_engine(state=EndpointState.REFUSED),
    "GpumonGpusSilent": shots.snapshot(gpus=(shots.gpu(state=GpuState.LOST),)),
    "GpumonXid": shots.snapshot(gpus=(shots.gpu(xid=(79,)),)),
    "GpumonKvCacheFull": of_engine(kv_usage_ratio=0.97, waiting=5.0),
    "GpumonPreemptions": of_engine(preemptions_per_s=0.5),
    "GpumonLowEfficiency": verdict(Limit.LOW_EFFICIENCY, Kind.ENGINE),
    "GpumonGpuIdleVramHeld": verdict(Limit.IDLE_VRAM_HELD, Kind.GPU),
    "GpumonThrottled": with_engine_on_it(Limit.THROTTLED, Limit.THROTTLED),
    "GpumonVramFull": verdict(Limit.MEMORY_FULL, Kind.GPU),
    "GpumonEngineHung": verdict(Limit.HUNG, Kind.ENGINE, Family.STATE),
    "GpumonHardware": with_engine_on_it(Limit.HARDWARE_FAULT, Limit.HUNG),
}
"""Alert -> what raises it and no other."""


def series(snapshot: Snapshot, *, wrong: str) -> list[str]:
    """The page of a host of that name, as series that stay as they are from 15 minutes on, or end there."""
    page = MetricsPage()
    page.take(shots.snapshot(gpus=(), engines=()))
    page.take(snapshot)
    ends = wrong == "GpumonServeMetricsDown"
    target = {"job": "gpumon", "instance": f"{wrong}:9454"}
    found = [(one.name, one.labels, str(one.value)) for one in modern(page.page(MODERN, "").body)]
    values = {"up": "1x60 0x200" if ends else "1x260"}
    lines = [(name, labels, f"{value}x60 stale" if ends else f"{value}x260") for name, labels, value in found]
    xids = "0x200 1x60" if wrong == "GpumonXid" else "0x260"
    lines = [
        (name, labels, xids if name == "gpumon_events_total" and labels["kind"] == "xid" else text)
        for name, labels, text in lines
    ]
    lines += [(name, {}, text) for name, text in values.items()]
    return [
        f"  - {{series: {quoted(name + braces({**target, **labels}))}, values: {quoted(text)}}}"
        for name, labels, text in lines
    ]


def braces(labels: dict[str, str]) -> str:
    return "{" + ", ".join(f"{name}={json.dumps(value)}" for name, value in labels.items()) + "}"


def test_an_alert_is_raised_by_what_it_names_and_by_nothing_else(tmp_path: Path):
    """A host for each of them."""
    lines: list[str] = []
    asked: dict[str, float] = {}
    for wrong, snapshot in CASES.items():
        lines += series(snapshot, wrong=wrong)
        for name in ALERTS:
            firing = f'ALERTS{{alertname="{name}", alertstate="firing", instance="{wrong}:9454"}}'
            asked[f"count({firing})"] = 1.0 if name == wrong else NAN
    ruled = RuleInputs((), SCOPE, scraped=False, served=True)
    check(tmp_path, ruled, lines, asked, "60m", evaluated="4m")
