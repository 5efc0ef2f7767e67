"""What missed its goal, how fast that spends what may miss it, and the replicas that an autoscaler asks for."""

from __future__ import annotations

import json
from pathlib import Path

from gpumon.outputs.rules import RuleInputs, quoted
from gpumon.readings.goals import Goals
from tests.rules.checked import NAN, SCOPE, check_times

GOALS = Goals(ttft_s=0.7, tpot_s=0.05)
BURN = ("gpumon-served-goals", "gpumon-goal-burn")
TARGET = {"job": "gpumon", "instance": "a:9454"}


def line(name: str, labels: dict[str, str], values: str) -> str:
    """A series of promtool's."""
    braces = "{" + ", ".join(f"{key}={json.dumps(text)}" for key, text in labels.items()) + "}"
    return f"  - {{series: {quoted(name + braces)}, values: {quoted(values)}}}"


def served(model: str, missed: str, counted: str = "0+10x500") -> list[str]:
    """A model on a host with serve-metrics: its requests, 10 a minute unless given, and how many miss their TTFT."""
    labels = {**TARGET, "engine": model, "model": model, "latency": "ttft"}
    return [
        line("gpumon_engine_goal_counted_total", labels, counted),
        line("gpumon_engine_goal_missed_total", labels, missed),
    ]


def firing(alert: str, model: str) -> str:
    """Whether an alert fires for a model."""
    return f'count(ALERTS{{alertname="{alert}", alertstate="firing", model="{model}"}})'


def test_a_goal_that_is_missed_is_told_by_two_windows(tmp_path: Path):
    """Eight of ten miss it all the time; four of ten; four minutes of an outage; one of 25, as promised; the only three
    requests of a night."""
    series = [
        *served("outage", "0+8x500"),
        *served("strained", "0+4x500"),
        *served("blip", "0x410 10 20 30 40 40x90"),
        *served("well", "0+0.4x500"),
        *served("rare", "0x410 1 2 3x90", "0x410 1 2 3x90"),
    ]
    fast, slow = "GpumonGoalBurnFast", "GpumonGoalBurnSlow"
    alarms = {
        firing(fast, "outage"): 1.0,
        firing(slow, "outage"): 1.0,
        firing(slow, "strained"): 1.0,
        firing(fast, "strained"): NAN,
        **{firing(alert, model): NAN for alert in (fast, slow) for model in ("blip", "well", "rare")},
        'gpumon:model_goal_missed:ratio1h{model="strained"}': 0.4,
        'gpumon:model_goal_missed:ratio5m{model="well"}': 0.04,
    }
    ruled = RuleInputs((), SCOPE, scraped=False, served=True)
    during = {
        '(gpumon:model_goal_missed:ratio5m{model="blip"} > bool 0.5)': 1.0,
        firing(fast, "blip"): NAN,
        firing(fast, "rare"): NAN,
    }
    check_times(tmp_path, ruled, series, {"414m": during, "450m": alarms}, every="1m", evaluated="1m", groups=BURN)


def vllm(kind: str, name: str, counts: dict[str, str]) -> list[str]:
    """A histogram of an engine that is scraped itself: bound -> its series."""
    labels = {"job": "vllm", "instance": "b:8000", "model_name": "llama", "engine": "0"}
    lines = [line(f"{kind}:{name}_bucket", {**labels, "le": le}, values) for le, values in counts.items()]
    return [*lines, line(f"{kind}:{name}_count", labels, counts["+Inf"])]


def test_scraped_engines_are_held_against_the_goals_of_the_config(tmp_path: Path):
    """A goal of 0.7 s between the bounds 0.5 and 0.75: what is above 0.75 has missed it for certain."""
    series = [
        *vllm("vllm", "time_to_first_token_seconds", {"0.5": "0+2x100", "0.75": "0+5x100", "+Inf": "0+10x100"}),
        *vllm("vllm", "request_time_per_output_token_seconds", {"0.05": "0+9x100", "+Inf": "0+10x100"}),
        *vllm("vllm", "inter_token_latency_seconds", {"0.05": "0+1x100", "+Inf": "0+100x100"}),
        *vllm("sglang", "inter_token_latency_seconds", {"0.04": "0+40x100", "0.06": "0+80x100", "+Inf": "0+100x100"}),
    ]
    asked = {
        'gpumon:model_goal_missed:ratio5m{model="llama", latency="ttft"}': 0.5,
        'gpumon:model_goal_missed:ratio5m{model="llama", latency="tpot"}': 0.1,
        'gpumon:model_goal_missed:ratio5m{model="llama", latency="itl"}': 0.2,
        'count(gpumon:engine_goal_missed:total{latency="itl"})': 1.0,
    }
    groups = ("gpumon-goals-ttft", "gpumon-goals-tokens", "gpumon-goal-burn")
    ruled = RuleInputs((), SCOPE, goals=GOALS)
    check_times(tmp_path, ruled, series, {"30m": asked}, every="1m", evaluated="1m", groups=groups)


def scaled(host: str, load: str, capacity: str, replicas: int) -> list[str]:
    """A model on one host, as its serve-metrics says."""
    labels = {"job": "gpumon", "instance": host, "model": "llama"}
    return [
        line("gpumon_model_load_requests", labels, load),
        line("gpumon_model_replica_capacity_requests", labels, capacity),
        line("gpumon_model_replicas", labels, f"{replicas}x60"),
        line("gpumon_model_saturation_ratio", labels, "0.5x60"),
    ]


def test_replicas_are_those_of_the_load_of_all_hosts(tmp_path: Path):
    """Two hosts at half a replica each need one and a half, not one each; a load that rises needs what it will be."""
    series = [*scaled("a", "30x60", "40x60", 1), *scaled("b", "30+1x60", "40x60", 1)]
    need = "gpumon:model_needed_replicas"
    asked = {
        f"{need}:mean": 3.0,  # 88 in flight on average of the last 5 minutes
        f"{need}:peak": 3.0,
        f"{need}:forecast": 3.0,
        "gpumon:model_headroom:ratio": 1.0 - 90.0 / 80.0,
        "gpumon:model_saturation:ratio": 0.5,
    }
    early = {f"{need}:mean": 2.0, f"{need}:peak": 2.0, f"{need}:forecast": 2.0}
    ruled = RuleInputs((), SCOPE, scraped=False, served=True)
    at = {"12m": early, "30m": asked}
    check_times(tmp_path, ruled, series, at, every="1m", evaluated="1m", groups=("gpumon-served-models",))
