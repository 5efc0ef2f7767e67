"""Panels over the series of `gpumon serve-metrics`: MFU and MBU are in them already."""

from __future__ import annotations

from typing import Final

from gpumon.outputs.dashboard_board import Board, Column, Panel, Variable, kv_cache

_CHOSEN: Final = 'cluster=~"$served_cluster", instance=~"$served_host"'
_ON: Final = "on (cluster, job, instance, engine)"
_MODEL: Final = "{{model}}"
_OF_MODEL: Final = 'model=~"$served_model"'
_P95: Final = 'quantile="0.95"'
_OF_ENGINES: Final = 'kind="engine"'


def _of(name: str, *matchers: str) -> str:
    """A selector of the hosts that are chosen."""
    return f"gpumon_{name}{{{', '.join((*matchers, _CHOSEN))}}}"


_NAMED: Final = (
    f"{_ON} group_left (model) max by (cluster, job, instance, engine, model) ({_of('engine_info', _OF_MODEL)})"
)
"""Times this, a figure of an engine has the name of its model."""


def _each(name: str, *matchers: str) -> str:
    return f"{_of(f'engine_{name}', *matchers)} * {_NAMED}"


def _total(name: str) -> str:
    return f"sum by (model) ({_each(name)})"


def _share(done: str, most: str, *matchers: str) -> str:
    """Of the engines that have both figures."""
    part, whole = _of(f"engine_{done}", *matchers), _of(f"engine_{most}")
    return (
        f"sum by (model) (({part} and {_ON} {whole}) * {_NAMED})"
        f" / (sum by (model) (({whole} and {_ON} {part}) * {_NAMED}) > 0)"
    )


def _latency(title: str, short: str) -> Panel:
    name = f"{short}_seconds"
    return Panel(
        f"{title}, p95",
        "s",
        ((f"max by (model) ({_each(name, _P95)})", f"{_MODEL} slowest engine"),),
        "of the last 60 s; quantiles of several engines cannot be averaged",
    )


_MFU: Final = _share("flops_per_second", "peak_flops_per_second")
_MBU: Final = _share("memory_bytes_per_second", "peak_memory_bytes_per_second")
_PER_JOULE: Final = _share("decode_tokens_per_second", "power_watts")
_PANELS: Final = (
    Panel("MFU", "percentunit", ((_MFU, _MODEL),), "FLOPs of the tokens / dense peak of the GPUs"),
    Panel("MBU", "percentunit", ((_MBU, _MODEL),), "bytes that the steps must read / peak bandwidth of the GPUs"),
    Panel(
        "MFU of prefill and decode",
        "percentunit",
        tuple(
            (_share("part_flops_per_second", "peak_flops_per_second", f'part="{part}"'), f"{_MODEL} {part}")
            for part in ("prefill", "decode")
        ),
    ),
    Panel("Decode tokens/s", "short", ((_total("decode_tokens_per_second"), _MODEL),)),
    Panel(
        "Prefill tokens/s",
        "short",
        ((_total("prefill_tokens_per_second"), _MODEL),),
        "computed, without what the prefix cache had",
    ),
    Panel("Tokens per joule", "short", ((_PER_JOULE, _MODEL),), "generated tokens / energy of the engines' GPUs"),
    kv_cache(_each("kv_cache_used_ratio"), "model"),
    Panel(
        "Running and waiting",
        "short",
        tuple((_total(f"requests_{what}"), f"{_MODEL} {what}") for what in ("running", "waiting")),
    ),
    _latency("Time to first token", "ttft"),
    _latency("Gap between tokens", "itl"),
    Panel(
        "GPUs: busy, tensor and memory active",
        "percentunit",
        (
            (f"avg({_of('gpu_busy_ratio')})", "busy"),
            (f"avg({_of('gpu_tensor_active_ratio')})", "tensor"),
            (
                f"avg({_of('gpu_memory_bandwidth_bytes_per_second')} / on (cluster, job, instance, gpu, uuid)"
                f" {_of('gpu_memory_bandwidth_peak_bytes_per_second')})",
                "memory",
            ),
        ),
        "busy is time with any kernel: high busy with low tensor and memory activity is waste",
    ),
    Panel(
        "GPU memory in use",
        "percentunit",
        (
            (
                f"{_of('gpu_memory_used_bytes')} / on (cluster, job, instance, gpu, uuid)"
                f" {_of('gpu_memory_size_bytes')}",
                "{{instance}} GPU {{gpu}}",
            ),
        ),
    ),
    Panel(
        "What limits the engines",
        "short",
        ((f"count by (code) ({_of('verdict', _OF_ENGINES)})", "{{code}}"),),
        "verdicts of gpumon, by what they name",
    ),
    Panel("Requests thrown out of the KV cache", "reqps", ((_total("preemptions_per_second"), _MODEL),)),
    Panel(
        "Engines with the lowest MFU",
        "percentunit",
        ((f"bottomk(10, {_each('mfu_ratio')})", f"{_MODEL} {{{{engine}}}} {{{{instance}}}}"),),
    ),
)
_COLUMNS: Final = (
    Column("engines", "short", f"count by (model) ({_of('engine_info', _OF_MODEL)})"),
    Column("MFU", "percentunit", _MFU),
    Column("MBU", "percentunit", _MBU),
    Column("prefill tokens/s", "short", _total("prefill_tokens_per_second")),
    Column("decode tokens/s", "short", _total("decode_tokens_per_second")),
    Column("running", "short", _total("requests_running")),
    Column("waiting", "short", _total("requests_waiting")),
    Column("KV", "percentunit", f"avg by (model) ({_each('kv_cache_used_ratio')})"),
    Column("tokens/J", "short", _PER_JOULE),
)


def served() -> Board:
    """Over what every host works out itself."""
    return Board(
        "Hosts with gpumon serve-metrics",
        _PANELS,
        _COLUMNS,
        "model",
        (
            Variable("served_model", "gpumon: model", "label_values(gpumon_engine_info, model)"),
            Variable("served_cluster", "gpumon: cluster", "label_values(gpumon_build_info, cluster)"),
            Variable(
                "served_host",
                "gpumon: host",
                'label_values(gpumon_build_info{cluster=~"$served_cluster"}, instance)',
            ),
        ),
    )
