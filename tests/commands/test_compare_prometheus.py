"""`gpumon compare --prometheus`: a real Prometheus that has an hour of two engines, of which one got twice the load."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.engine import Capture
from tests.fakes.http_server import LoopbackServer, Reply
from tests.fakes.prometheus import Prometheus, promtool
from tests.program import run_gpumon, user_environment

PAGE = max(Capture("vllm-poisson").scrapes, key=lambda scrape: len(scrape.body)).body
STEP_S = 15
PAST_S = 3600
CHANGE_S = 1800
TTFT = "vllm:time_to_first_token_seconds"
BOUNDS = ("0.1", "0.5", "1.0", "+Inf")
BEFORE_S, AFTER_S = 0.3, 0.8
"""Every request's TTFT, before and after the change, on the host whose load doubled."""


def series(host: str, target: str, end_s: int) -> dict[str, list[str]]:
    """An hour of one engine: 2 requests/s, and 4 requests/s of longer TTFT in the second half on host `a`."""
    labels = f'{target},engine="0",model_name="tiny-llama"'
    lines: dict[str, list[str]] = {}
    early = 0.0
    late = 0.0
    for at_s in range(end_s - PAST_S, end_s - 60, STEP_S):
        doubled = host == "a" and at_s >= end_s - CHANGE_S
        if doubled:
            late += 4.0 * STEP_S
        else:
            early += 2.0 * STEP_S
        counts = (0.0, early, early + late, early + late)
        lines.setdefault("up", []).append(f"up{{{target}}} 1 {at_s}")
        gauge = lines.setdefault("vllm:num_requests_running", [])
        gauge.append(f"vllm:num_requests_running{{{labels}}} {8 if doubled else 4} {at_s}")
        ended = lines.setdefault("vllm:request_success_total", [])
        ended.append(f'vllm:request_success_total{{{labels},finished_reason="length"}} {early + late} {at_s}')
        for bound, count in zip(BOUNDS, counts, strict=True):
            bucket = lines.setdefault(f"{TTFT}_bucket {bound}", [])
            bucket.append(f'{TTFT}_bucket{{{labels},le="{bound}"}} {count} {at_s}')
        total = early * BEFORE_S + late * AFTER_S
        lines.setdefault(f"{TTFT}_sum", []).append(f"{TTFT}_sum{{{labels}}} {total} {at_s}")
        lines.setdefault(f"{TTFT}_count", []).append(f"{TTFT}_count{{{labels}}} {early + late} {at_s}")
    return lines


def past(labels: dict[str, str], end_s: int) -> str:
    """Both engines, family by family, as OpenMetrics wants it."""
    by_host = [series(host, target, end_s) for host, target in labels.items()]
    texts = []
    for family, kind in (
        ("up", "gauge"),
        ("vllm:num_requests_running", "gauge"),
        ("vllm:request_success", "counter"),
        (TTFT, "histogram"),
    ):
        texts.append(f"# TYPE {family} {kind}")
        for lines in by_host:
            for name, samples in lines.items():
                if name.startswith(family):
                    texts += samples
    return "\n".join(texts) + "\n# EOF\n"


def test_the_host_whose_load_doubled_is_named_and_the_other_is_not(tmp_path: Path) -> None:
    with LoopbackServer(lambda _: Reply(body=PAGE)) as one, LoopbackServer(lambda _: Reply(body=PAGE)) as other:
        ports = {"a": one.port, "b": other.port}
        labels = {host: f'instance="127.0.0.1:{port}",job="{host}",node="{host}"' for host, port in ports.items()}
        backfill = tmp_path / "past.om"
        backfill.write_text(past(labels, int(time.time())))
        made = promtool("tsdb", "create-blocks-from", "openmetrics", str(backfill), str(tmp_path / "data"))
        assert made.returncode == 0, made.stderr
        scrapes = [
            f"- {{job_name: {host}, static_configs: [{{targets: ['127.0.0.1:{port}'], labels: {{node: {host}}}}}]}}"
            for host, port in ports.items()
        ]
        with Prometheus(tmp_path, scrapes, interval=f"{STEP_S}s") as prometheus:
            prometheus.until("vllm:num_requests_running", results=2)
            env = user_environment(tmp_path)
            arguments = ("-32m", "-5m", "--prometheus", prometheus.url, "--for", "10m")
            done = run_gpumon("compare", *arguments, "--json", env=env, timeout_s=120.0)
            printed = run_gpumon("compare", *arguments, env=env, timeout_s=120.0)
            pasted = run_gpumon("compare", *arguments, "--markdown", env=env, timeout_s=120.0)
    assert done.returncode == 0, done.stderr
    engines = {thing["name"]: thing for thing in json.loads(done.stdout)["things"] if thing["kind"] == "engine"}
    (doubled,) = (thing for name, thing in engines.items() if name.startswith("a/"))
    (steady,) = (thing for name, thing in engines.items() if name.startswith("b/"))
    assert doubled["load_ratio"] == pytest.approx(2.0, rel=0.05)
    assert not doubled["is_comparable"]
    assert figures(doubled)["requests_per_s"][:2] == (pytest.approx(2.0, rel=0.05), pytest.approx(4.0, rel=0.05))
    assert figures(doubled)["ttft_mean_s"] == (pytest.approx(BEFORE_S), pytest.approx(AFTER_S), "changed")
    before, after, judgement = figures(doubled)["ttft_p95_s"]
    assert (0.1 < before <= 0.5 < after <= 1.0, judgement) == (True, "changed"), "each in its own bucket"
    assert steady["load_ratio"] == pytest.approx(1.0, rel=0.05)
    assert {judged for _, _, judged in figures(steady).values()} <= {"within_noise", "not_judged"}
    assert doubled["changes"] == steady["changes"] == []
    for text in (printed.stdout, pasted.stdout):
        assert "engine a/" in text
        assert "engine b/" not in text, "it is in the JSON, and only counted here"
        assert "1 engine: no change" in text.splitlines()


def figures(thing: dict[str, Any]) -> dict[str, tuple[Any, Any, str]]:
    """Both sides of each figure, and how they were judged."""
    return {figure["code"]: (figure["before"], figure["after"], figure["judgement"]) for figure in thing["figures"]}
