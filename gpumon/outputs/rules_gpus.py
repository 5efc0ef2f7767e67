"""GPUs by DCGM's series, what an engine and its GPUs have in common, and the sums per model: all as PromQL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from gpumon.efficiency import promql as p
from gpumon.outputs.rules_engines import KV_USAGE, WAITING
from gpumon.outputs.rules_scope import Rule, Scope, number
from gpumon.readings.dcgm import METRICS

BUSY: Final = "gpumon:gpu_busy:ratio"
TENSOR: Final = "gpumon:gpu_tensor_active:ratio"
DRAM: Final = "gpumon:gpu_dram_active:ratio"
POWER: Final = "gpumon:gpu_power:watts"
MEMORY: Final = "gpumon:gpu_memory_used:ratio"
PRICE: Final = "gpumon:gpu_price:per_hour"
IDLE_COST: Final = "gpumon:gpu_idle_cost:per_hour"
IDLE_COSTS: Final = "gpumon:gpus_idle_cost:per_hour"
IDLE_GPUS: Final = "gpumon:gpus_idle:sum"
PLACE_DECODE: Final = "gpumon:place_decode_tokens:rate"
PLACE_ALONE: Final = "gpumon:place_models:one"
PLACE_POWER: Final = "gpumon:place_power:watts"


def gpu_rules(s: Scope, prices: Mapping[str, tuple[str, ...]], any_price: str) -> list[Rule]:
    """Rules of each GPU. `prices`: price of one hour -> NVML names; `any_price`: of all others, or empty.

    Where neither is known, no price is recorded, and what costs money is absent.
    """
    by = s.by_gpu

    def card(field: str, window: str = "") -> str:
        """One figure per GPU, in the unit of the field: pods that share a GPU repeat it."""
        found = next(metric for metric in METRICS if metric.field == field)
        parts = []
        for name, factor in found.names:
            vector = f"avg_over_time({s.of(name)}[{window}])" if window else s.of(name)
            parts.append(f"{vector} * {number(factor)}" if factor != 1.0 else vector)
        return f"max {by} ({' or '.join(parts)})"

    energy = f"rate({s.of('DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION')}[{s.rate}]) * 0.001"
    counted = f"max {by} ({energy})"
    rules = [
        Rule(BUSY, card("busy_ratio", s.rate), "share of time with a kernel on the GPU"),
        Rule(TENSOR, card("tensor_active_ratio", s.rate), "share of time with work in the tensor cores"),
        Rule(DRAM, card("dram_active_ratio", s.rate), "share of time with traffic to its memory: measured MBU"),
        Rule(POWER, f"({counted} > 0)\nor {card('power_w', s.rate)}", "increase of the energy counter, else the gauge"),
        Rule(
            MEMORY,
            f"{card('vram_used_bytes')} / ({card('vram_used_bytes')} + {card('vram_free_bytes')} > 0)",
            "share of the memory in use",
        ),
        Rule(IDLE_GPUS, f"sum({_all_once(s, f'1 - {BUSY}')})", "GPUs' worth of time in which nothing ran"),
    ]
    priced = _priced(prices, any_price)
    if priced:
        rules += [
            Rule(PRICE, priced, "price of one hour: config [sizing] or --price"),
            Rule(IDLE_COST, f"{PRICE} * (1 - {BUSY})", "money per hour for time in which nothing ran"),
            Rule(IDLE_COSTS, f"sum({_all_once(s, IDLE_COST)})", "of all GPUs"),
        ]
    return rules


PLACE: Final = "(cluster, place)"
"""What tells places apart: two clusters may each have a machine of the same name."""


def _once(s: Scope, vector: str) -> str:
    """Each GPU of a place once: two scrape jobs may have the same exporter."""
    return f"max by (cluster, place, UUID, gpu) ({s.placed(vector)})"


def _all_once(s: Scope, series: str) -> str:
    """Each GPU once, wherever it is: it may be in the places of two pods."""
    nameless = _once(s, f'{series}{{UUID=""}}')
    return f'max by (cluster, UUID) ({series}{{UUID!=""}})\nor {nameless}'


def _priced(prices: Mapping[str, tuple[str, ...]], any_price: str) -> str:
    parts = []
    for price, names in prices.items():
        pattern = "|".join(map(_pattern, sorted(names)))
        parts.append(f'{BUSY}{{modelName=~"(?i:(nvidia )?({pattern}))"}} * 0 + {price}')
    if any_price:
        parts.append(f"{BUSY} * 0 + {any_price}")
    return "\nor ".join(parts)


def _pattern(name: str) -> str:
    """The name as a regular expression in a PromQL string, where a backslash is written twice."""
    return re.sub(r"[^A-Za-z0-9 _\-/]", lambda found: f"[{found[0]}]" if found[0] not in '^\\"]' else ".", name)


def place_rules(s: Scope, priced: bool) -> list[Rule]:
    """Rules of what an engine and its GPUs have in common: the machine, or the label that was chosen.

    Power and money are a model's only where no other model has engines in the same place.
    """
    power, idle = PLACE_POWER, "gpumon:place_idle_cost:per_hour"
    per_joule = "gpumon:place_tokens_per_joule:ratio"
    alone = f"and on {PLACE} {PLACE_ALONE}"
    watts = f"{PLACE_DECODE} * 0 + on {PLACE} group_left () {power} {alone}"
    rules = [
        Rule(
            PLACE_DECODE,
            f"sum by (cluster, place, model_name) ({s.placed(p.DECODE)})",
            "tokens/s of the engines in a place",
        ),
        Rule(PLACE_ALONE, f"count by {PLACE} ({PLACE_DECODE}) == 1", "places with engines of one model only"),
        Rule(power, f"sum by {PLACE} ({_once(s, POWER)})", "power of all GPUs in a place"),
        Rule(
            per_joule,
            f"{PLACE_DECODE} / on {PLACE} group_left () ({power} > 0) {alone}",
            "generated tokens per joule, where one model has the place",
        ),
        Rule("gpumon:model_power:watts", f"sum by (model_name) ({watts})", "power of the places of a model"),
        Rule(
            "gpumon:model_tokens_per_joule:ratio",
            f"sum by (model_name) ({PLACE_DECODE} and on {PLACE} {power} {alone}) / (gpumon:model_power:watts > 0)",
            "generated tokens per joule of GPU energy",
        ),
    ]
    if priced:
        rules += [
            Rule(
                idle,
                f"sum by {PLACE} ({_once(s, IDLE_COST)})",
                "money per hour for idle time of the GPUs in a place",
            ),
            Rule(
                "gpumon:model_idle_cost:per_hour",
                f"sum by (model_name) ({PLACE_DECODE} * 0 + on {PLACE} group_left () {idle} {alone})",
                "the same of a model's places",
            ),
        ]
    return rules


def model_rules() -> list[Rule]:
    """Sums over the engines of a model; MFU and MBU over those whose work and peaks are known."""
    sums = (
        ("decode_tokens:rate", p.DECODE, "generated tokens/s"),
        ("prefill_tokens:rate", p.PREFILL, "computed prompt tokens/s"),
        ("cached_tokens:rate", p.CACHED, "prompt tokens/s from the prefix cache"),
        ("requests_running:sum", p.RUNNING, "requests that run"),
        ("requests_waiting:sum", WAITING, "requests that wait"),
    )
    rules = [Rule(f"gpumon:model_{name}", f"sum by (model_name) ({of})", meaning) for name, of, meaning in sums]
    rules += [
        Rule("gpumon:model_kv_usage:ratio", f"avg by (model_name) ({KV_USAGE})", "KV cache in use, mean of engines"),
        Rule("gpumon:model_kv_usage:max", f"max by (model_name) ({KV_USAGE})", "the fullest of them"),
        Rule("gpumon:model_engines:count", f"count by (model_name) ({p.RUNNING})", "engines that are scraped"),
    ]
    rules += _shares()
    return rules


def _shares() -> Iterable[Rule]:
    for name, part, whole in (
        ("mfu_prefill", "prefill_flops:rate", "peak_flops:sum"),
        ("mfu_decode", "decode_flops:rate", "peak_flops:sum"),
        ("mfu", "flops:rate", "peak_flops:sum"),
        ("mbu", "read_bytes:rate", "peak_bandwidth:sum"),
    ):
        done, most = f"gpumon:engine_{part}", f"gpumon:engine_{whole}"
        expr = f"sum by (model_name) ({done} and {most}) / (sum by (model_name) ({most} and {done}) > 0)"
        yield Rule(f"gpumon:model_{name}:ratio", expr, "of the engines whose work and peak are known")
