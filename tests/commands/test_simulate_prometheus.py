"""`gpumon simulate --from-prometheus`: arrivals and lengths of an hour that a real Prometheus has of two engines."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.fakes.engine import Capture
from tests.fakes.http_server import LoopbackServer, Reply
from tests.fakes.prometheus import Prometheus, promtool
from tests.program import run_gpumon, user_environment

PAGE = max(Capture("vllm-poisson").scrapes, key=lambda scrape: len(scrape.body)).body
STEP_S = 15
MINUTES = 60
RATE = 0.5
"""Requests per second that each engine ends."""
BOUNDS = (100.0, 1000.0, 2000.0)
MODEL = "Qwen/Qwen3-32B"


def past(labels: dict[str, str], end_s: int) -> str:
    """Each engine ends a request every other second, a quarter of them with a long prompt, up to a minute ago."""
    names = ("up", "vllm:num_requests_running", "vllm:request_success_total")
    lines: dict[str, list[str]] = {name: [] for name in names}
    lengths: list[str] = []
    for target in labels.values():
        model = f'{target},engine="0",model_name="{MODEL}"'
        for at_s in range(end_s - MINUTES * 60, end_s - 60, STEP_S):
            ended = RATE * (at_s - end_s + MINUTES * 60)
            lines["up"].append(f"up{{{target}}} 1 {at_s}")
            lines["vllm:num_requests_running"].append(f"vllm:num_requests_running{{{model}}} 20 {at_s}")
            success = f'vllm:request_success_total{{{model},finished_reason="length"}} {ended} {at_s}'
            lines["vllm:request_success_total"].append(success)
    for name, below, mean in (("prompt", (0.0, 0.75, 1.0), 900.0), ("generation", (1.0, 1.0, 1.0), 60.0)):
        base = f"vllm:request_{name}_tokens"
        lengths.append(f"# TYPE {base} histogram")
        for target in labels.values():
            model = f'{target},engine="0",model_name="{MODEL}"'
            for at_s in range(end_s - MINUTES * 60, end_s - 60, STEP_S):
                ended = RATE * (at_s - end_s + MINUTES * 60)
                for bound, share in zip(BOUNDS, below, strict=True):
                    lengths.append(f'{base}_bucket{{{model},le="{bound}"}} {share * ended} {at_s}')
                lengths.append(f'{base}_bucket{{{model},le="+Inf"}} {ended} {at_s}')
                lengths.append(f"{base}_sum{{{model}}} {mean * ended} {at_s}")
                lengths.append(f"{base}_count{{{model}}} {ended} {at_s}")
    kinds = {name: "counter" if name.endswith("_total") else "gauge" for name in lines}
    texts = [f"# TYPE {name.removesuffix('_total')} {kinds[name]}\n" + "\n".join(lines[name]) for name in lines]
    return "\n".join([*texts, *lengths]) + "\n# EOF\n"


def test_the_traffic_of_an_hour_is_played(tmp_path: Path) -> None:
    with LoopbackServer(lambda _: Reply(body=PAGE.replace(b"tiny-llama", MODEL.encode()))) as one:
        labels = {host: f'instance="127.0.0.1:{one.port}",job="{host}",node="{host}"' for host in ("a", "b")}
        backfill = tmp_path / "past.om"
        backfill.write_text(past(labels, int(time.time())))
        words = ("create-blocks-from", "--max-block-duration=96h", "openmetrics")
        made = promtool("tsdb", *words, str(backfill), str(tmp_path / "data"))
        assert made.returncode == 0, made.stderr
        scrapes = [
            f"- {{job_name: {host}, static_configs: [{{targets: ['127.0.0.1:{one.port}'], labels: {{node: {host}}}}}]}}"
            for host in labels
        ]
        with Prometheus(tmp_path, scrapes, interval=f"{STEP_S}s") as prometheus:
            prometheus.until("vllm:num_requests_running", results=2)
            words = ("--from", "-1h", "--gpu", "H100 SXM 80GB", "--tp", "2", "--replicas", "2", "--json")
            arguments = ("simulate", "--from-prometheus", "--prometheus", prometheus.url, *words)
            done = run_gpumon(*arguments, env=user_environment(tmp_path), timeout_s=120.0)
    assert done.stderr == ""
    (answer,) = json.loads(done.stdout)["simulations"]
    assert answer["problem"] == ""
    (figures,) = answer["figures"]
    assert figures["requests"] == pytest.approx(2.0 * RATE * 3600, rel=0.08)
    assert figures["tokens_per_s"] / figures["requests_per_s"] == pytest.approx(60.0, rel=0.05)
    assert figures["e2e_s"]["p99"] > figures["e2e_s"]["p50"]
    assert any("the engine's histograms" in note for note in answer["notes"])
