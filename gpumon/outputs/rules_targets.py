"""Targets that once gave figures: what an alert needs to tell that one of them does not any more."""

from __future__ import annotations

from typing import Final, NamedTuple

from gpumon.config.matchers import matched
from gpumon.efficiency import promql as p
from gpumon.outputs.rules_scope import OF_ENGINES, Rule, Scope

ENGINES_KNOWN: Final = "gpumon:engine_target:known"
GPUS_KNOWN: Final = "gpumon:gpu_target:known"
SERVED_KNOWN: Final = "gpumon:serve_metrics_target:known"
BEFORE_S: Final = 240.0
"""Seconds between two looks at the last day: Prometheus takes a series for gone after 5 minutes without a sample."""
DAY: Final = "1d:5m"
"""How far back targets are looked for that were down when the rules were loaded, and how often: at each of these
moments a Prometheus takes what came in the 5 minutes before, so nothing is missed, and few samples are read."""


class Targets(NamedTuple):
    """The rules that remember targets of one kind."""

    now: tuple[Rule, ...]
    before: tuple[Rule, ...]
    """Those that look at the last day, every `BEFORE_S`."""


def exporters(s: Scope) -> tuple[str, ...]:
    """Labels that tell exporters apart and that `up` has, too: those of a pod may be the workload's."""
    return tuple(name for name in ("cluster", "job", "instance", *matched(s.match)) if name not in OF_ENGINES)


def engine_targets(s: Scope) -> Targets:
    """Of engines."""
    signs = (
        s.of("vllm:num_requests_running", 'model_name!=""'),
        s.of("", '__name__=~"sglang:num_running_reqs|llamacpp:requests_processing"'),
    )
    return _kept(ENGINES_KNOWN, (p.RUNNING, " or ".join(signs)), s.target, "model_name", "engines")


def gpus_now(s: Scope) -> str:
    """Series of which a dcgm-exporter with GPUs writes one at least."""
    return s.of("", '__name__=~"DCGM_FI_DEV_(GPU_UTIL|FB_USED|POWER_USAGE)"')


def gpu_targets(s: Scope) -> Targets:
    """Of dcgm-exporters."""
    return _kept(GPUS_KNOWN, (gpus_now(s), gpus_now(s)), exporters(s), "Hostname", "dcgm-exporters")


def served_targets(s: Scope) -> Targets:
    """Of `gpumon serve-metrics`."""
    sign = s.of("gpumon_build_info")
    return _kept(SERVED_KNOWN, (sign, sign), exporters(s), "", "gpumon serve-metrics")


def _kept(record: str, signs: tuple[str, str], target: tuple[str, ...], label: str, what: str) -> Targets:
    """`signs`: what is there while a target answers, now and in the last day. A target is known as long as the
    Prometheus has it, whatever it answers."""
    by, on = f"by ({', '.join((*target, *filter(None, (label,))))})", f"on ({', '.join(target)})"
    (now, then), before = signs, f"{record}_before"
    remembered = f"({record} or {before} unless {on} {record})"  # of the last day only where nothing newer is known
    expr = f"group {by} ({now})\nor {remembered} and {on} up unless {on} {now}"
    return Targets(
        (Rule(record, expr, f"{what} that gave figures, as long as they are targets"),),
        (Rule(before, f"last_over_time((group {by} ({then}))[{DAY}])", f"{what} that gave figures in the last day"),),
    )
