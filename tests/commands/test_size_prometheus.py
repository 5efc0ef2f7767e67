"""`gpumon size --from-prometheus`: a real Prometheus that has an hour of two engines, and scrapes them now."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import time
from pathlib import Path

import pytest

from gpumon.commands.past_load import prometheus_loads
from gpumon.config.schema import Config
from gpumon.config.schema import Prometheus as SectionOfPrometheus
from tests.fakes.engine import Capture
from tests.fakes.http_server import LoopbackServer, Reply
from tests.fakes.prometheus import Prometheus, free_port, promtool
from tests.program import run_gpumon, user_environment

PAGE = max(Capture("vllm-poisson").scrapes, key=lambda scrape: len(scrape.body)).body
STEP_S = 15
MINUTES = 60


def size(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    return run_gpumon("size", *arguments, env=user_environment(home), timeout_s=120.0)


def running(host: str, minute: int) -> float:
    """40 of both together, but for the busiest 2 minutes, which are less than a twentieth of it."""
    own = 30.0 if (minute % 20 < 10) == (host == "a") else 10.0
    return own + (500.0 if 20 <= minute < 22 else 0.0)


def past(labels: dict[str, str], end_s: int) -> str:
    """Requests in flight and the requests that ended (2 a second on each) up to a minute ago."""
    lines: dict[str, list[str]] = {"up": [], "vllm:num_requests_running": [], "vllm:request_success_total": []}
    for host, target in labels.items():
        model = f'{target},engine="0",model_name="tiny-llama"'
        for at_s in range(end_s - MINUTES * 60, end_s - 60, STEP_S):
            minute = (at_s - end_s) // 60 + MINUTES
            lines["up"].append(f"up{{{target}}} 1 {at_s}")
            running_now = running(host, minute)
            lines["vllm:num_requests_running"].append(f"vllm:num_requests_running{{{model}}} {running_now} {at_s}")
            done = 2.0 * (at_s - end_s + MINUTES * 60)
            ended = f'vllm:request_success_total{{{model},finished_reason="length"}} {done} {at_s}'
            lines["vllm:request_success_total"].append(ended)
    kinds = {name: "counter" if name.endswith("_total") else "gauge" for name in lines}
    texts = [f"# TYPE {name.removesuffix('_total')} {kinds[name]}\n" + "\n".join(lines[name]) for name in lines]
    return "\n".join(texts) + "\n# EOF\n"


def test_the_p95_of_an_hour_is_that_of_both_machines_together(tmp_path: Path) -> None:
    with LoopbackServer(lambda _: Reply(body=PAGE)) as one, LoopbackServer(lambda _: Reply(body=PAGE)) as other:
        ports = {"a": one.port, "b": other.port}
        labels = {host: f'instance="127.0.0.1:{port}",job="{host}",node="{host}"' for host, port in ports.items()}
        backfill = tmp_path / "past.om"
        backfill.write_text(past(labels, int(time.time())))
        words = ("create-blocks-from", "--max-block-duration=96h", "openmetrics")
        made = promtool("tsdb", *words, str(backfill), str(tmp_path / "data"))
        assert made.returncode == 0, made.stderr
        scrapes = [
            f"- {{job_name: {host}, static_configs: [{{targets: ['127.0.0.1:{port}'], labels: {{node: {host}}}}}]}}"
            for host, port in ports.items()
        ]
        with Prometheus(tmp_path, scrapes, interval=f"{STEP_S}s") as prometheus:
            prometheus.until("vllm:num_requests_running", results=2)
            done = size("--from-prometheus", "--prometheus", prometheus.url, "--from", "-1h", "--json", home=tmp_path)
            text = size("--from-prometheus", "--prometheus", prometheus.url, "--from", "-1h", home=tmp_path).stdout
            loads = asyncio.run(prometheus_loads(Config(prometheus=SectionOfPrometheus(url=prometheus.url))))
    assert {model: (load.peak, load.requests_per_s) for model, load in loads.items()} == {
        "tiny-llama": (pytest.approx(40.0), pytest.approx(4.0, rel=0.05))
    }
    found = json.loads(done.stdout)
    assert {each["model"]: each["target"] for each in found["workloads"]} == {"tiny-llama": 40.0}
    # On a busy machine the first scrapes come late, and the hour has a minute less.
    assert re.search(r"p95 of the last (60|59) min, 40 running \+ waiting \(mean 7", text)
    assert "4 requests/s" in text


def test_a_prometheus_that_does_not_answer_is_one_line(tmp_path: Path) -> None:
    done = size("--from-prometheus", "--prometheus", f"http://127.0.0.1:{free_port()}", home=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "prometheus" in done.stderr
    assert "--prometheus URL" in size("--from-prometheus", home=tmp_path).stderr
