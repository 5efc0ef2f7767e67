"""Panels over the recorded rules: engines and GPUs that the Prometheus scrapes itself."""

from __future__ import annotations

from typing import Final

from gpumon.efficiency import promql as p
from gpumon.outputs.dashboard_board import Board, Column, Panel, Variable, kv_cache
from gpumon.outputs.rules_engines import KV_USAGE, WAITING
from gpumon.outputs.rules_gpus import BUSY, DRAM, IDLE_COST, PLACE, PLACE_ALONE, PLACE_DECODE, PLACE_POWER, TENSOR

_SHOWN: Final = '{model_name=~"$model", cluster=~"$cluster", instance=~"$engine"}'
_OF_PLACE: Final = '{model_name=~"$model", cluster=~"$cluster"}'
_OF_CLUSTER: Final = '{cluster=~"$cluster"}'
_MODEL: Final = "{{model_name}}"


def _sum(name: str) -> str:
    return f"sum by (model_name) ({name}{_SHOWN})"


def _share(done: str, most: str) -> str:
    """Of the engines whose work and peak are known."""
    one, other = f"gpumon:engine_{done}:rate{_SHOWN}", f"gpumon:engine_peak_{most}:sum{_SHOWN}"
    return f"sum by (model_name) ({one} and {other}) / (sum by (model_name) ({other} and {one}) > 0)"


def _latency(title: str, short: str) -> Panel:
    return Panel(
        f"{title}, p95",
        "s",
        (
            (f'gpumon:model_{short}_seconds:p95{{model_name=~"$model"}}', f"{_MODEL} all engines"),
            (f"max by (model_name) (gpumon:engine_{short}_seconds:p95{_SHOWN})", f"{_MODEL} slowest engine"),
        ),
        "all engines of the model, whatever cluster and engine are chosen; and the slowest of those that are",
    )


_ALONE: Final = f"{PLACE_DECODE}{_OF_PLACE} and on {PLACE} {PLACE_ALONE} and on {PLACE} {PLACE_POWER}"
_PER_JOULE: Final = (
    f"sum by (model_name) ({_ALONE}) / "
    f"(sum by (model_name) (({_ALONE}) * 0 + on {PLACE} group_left () {PLACE_POWER}) > 0)"
)
_IDLE_MONEY: Final = f'sum(max by (cluster, UUID) ({IDLE_COST}{{cluster=~"$cluster", UUID!=""}}))'
_IDLE_GPUS: Final = f'sum(max by (cluster, UUID) (1 - {BUSY}{{cluster=~"$cluster", UUID!=""}}))'


def scraped(*, priced: bool) -> Board:
    """Over the recorded rules; `priced`: they know prices."""
    idle = (
        Panel("Idle money per hour", "short", ((_IDLE_MONEY, "all GPUs"),), "price of a GPU x (1 - busy)")
        if priced
        else Panel("Idle GPUs", "short", ((_IDLE_GPUS, "GPUs' worth of idle time"),), "sum of 1 - busy")
    )
    return Board(
        "Engines and GPUs that the Prometheus scrapes itself",
        (*_SCRAPED, idle),
        _COLUMNS,
        "model_name",
        (
            Variable("model", "Model", f"label_values({p.RUNNING}, model_name)"),
            Variable("cluster", "Cluster", f"label_values({p.RUNNING}, cluster)"),
            Variable(
                "engine",
                "Engine",
                f'label_values({p.RUNNING}{{model_name=~"$model", cluster=~"$cluster"}}, instance)',
            ),
        ),
    )


_SCRAPED: Final = (
    Panel("MFU", "percentunit", ((_share("flops", "flops"), _MODEL),), "FLOPs of the tokens / dense peak of the GPUs"),
    Panel(
        "MBU",
        "percentunit",
        ((_share("read_bytes", "bandwidth"), _MODEL),),
        "bytes that the steps must read / peak bandwidth of the GPUs",
    ),
    Panel(
        "MFU of prefill and decode",
        "percentunit",
        tuple((_share(f"{part}_flops", "flops"), f"{_MODEL} {part}") for part in ("prefill", "decode")),
    ),
    Panel("Decode tokens/s", "short", ((_sum(p.DECODE), _MODEL),)),
    Panel("Prefill tokens/s", "short", ((_sum(p.PREFILL), _MODEL),), "computed, without what the prefix cache had"),
    Panel("Tokens per joule", "short", ((_PER_JOULE, _MODEL),), "where one model has the host (or pod) to itself"),
    kv_cache(f"{KV_USAGE}{_SHOWN}", "model_name"),
    Panel(
        "Running and waiting",
        "short",
        ((_sum(p.RUNNING), f"{_MODEL} running"), (_sum(WAITING), f"{_MODEL} waiting")),
    ),
    _latency("Time to first token", "ttft"),
    _latency("Gap between tokens", "itl"),
    Panel(
        "GPUs: busy, tensor and memory active",
        "percentunit",
        tuple(
            (f"avg({name}{_OF_CLUSTER})", legend)
            for name, legend in ((BUSY, "busy"), (TENSOR, "tensor"), (DRAM, "memory"))
        ),
        "busy is time with any kernel: high busy with low tensor and memory activity is waste",
    ),
    Panel(
        "Engines with the lowest MFU",
        "percentunit",
        ((f"bottomk(10, gpumon:engine_mfu:ratio{_SHOWN})", f"{_MODEL} {{{{instance}}}}"),),
    ),
)
_COLUMNS: Final = (
    Column("engines", "short", f"count by (model_name) ({p.RUNNING}{_SHOWN})"),
    Column("MFU", "percentunit", _share("flops", "flops")),
    Column("MBU", "percentunit", _share("read_bytes", "bandwidth")),
    Column("prefill tokens/s", "short", _sum(p.PREFILL)),
    Column("decode tokens/s", "short", _sum(p.DECODE)),
    Column("running", "short", _sum(p.RUNNING)),
    Column("waiting", "short", _sum(WAITING)),
    Column("KV", "percentunit", f"avg by (model_name) ({KV_USAGE}{_SHOWN})"),
    Column("tokens/J", "short", _PER_JOULE),
)
