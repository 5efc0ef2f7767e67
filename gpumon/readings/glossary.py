"""One name per quantity: headers, charts, detail pages, help and docs/glossary.md take their words from this table."""

from __future__ import annotations

from typing import Final

import msgspec


class Term(msgspec.Struct, frozen=True):
    """One quantity and its words."""

    short: str
    """Header of a narrow column."""
    name: str
    """Name on charts and detail pages, and in sentences."""
    unit: str
    window: str
    """Time that a value covers."""
    meaning: str
    json: tuple[str, ...]
    """Paths in `gpumon snapshot --json` and in the JSON of a fleet; they keep the names of the first edition."""


_NOW: Final = "last refresh"
_NOW_OR_TEN: Final = "last refresh; in rows beside an MBU mean of 10 s"
_TEN: Final = "mean of 10 s"
_MINUTE: Final = "last 60 s"
_MINUTES: Final = "last 2 min"
_MOMENT: Final = "at the refresh"

BUSY: Final = Term(
    "busy",
    "busy",
    "%",
    _NOW_OR_TEN,
    "Share of time in which at least one kernel ran, however small.",
    ("gpus[].busy_ratio",),
)
SM: Final = Term(
    "sm",
    "SM active",
    "%",
    _NOW_OR_TEN,
    "Mean share of the streaming multiprocessors (SMs) that had work.",
    ("gpus[].sm_active_ratio",),
)
OCCUPANCY: Final = Term(
    "occup",
    "SM occupancy",
    "%",
    _NOW,
    "Warps that were resident on the SMs, as a share of the most that fit.",
    ("gpus[].sm_occupancy_ratio",),
)
TENSOR: Final = Term(
    "tensor",
    "tensor active",
    "%",
    _NOW,
    "Share of time in which the tensor cores worked.",
    ("gpus[].tensor_active_ratio",),
)
VRAM: Final = Term(
    "vram",
    "VRAM",
    "GiB",
    _MOMENT,
    "Memory of the GPU in use, of all it has.",
    ("gpus[].vram_used_bytes", "gpus[].vram_total_bytes"),
)
BANDWIDTH: Final = Term(
    "mem bw",
    "memory bandwidth",
    "B/s, % of the peak",
    _TEN,
    "Bytes that the GPU moves from and to its own memory (DRAM): measured, or a bound (≥, ≤); without an MBU beside it "
    "that of now.",
    ("gpus[].bandwidth_bytes_per_s", "gpus[].bandwidth_source"),
)
MFU: Final = Term(
    "mfu",
    "MFU",
    "%",
    _TEN,
    "Model FLOPs utilisation: arithmetic that the served tokens need, as a share of the GPUs' dense peak.",
    ("engines[].mfu_ratio", "gpus[].mfu_ratio"),
)
MBU: Final = Term(
    "mbu",
    "MBU",
    "%",
    _TEN,
    "Model bandwidth utilisation: bytes that the steps must read, as a share of the peak memory bandwidth.",
    ("engines[].mbu_ratio", "gpus[].mbu_ratio"),
)
POWER: Final = Term("power", "power", "W", _NOW_OR_TEN, "Power that the GPU draws.", ("gpus[].power_w",))
POWER_LIMIT: Final = Term(
    "limit", "power limit", "W", _MOMENT, "Power that the driver lets the GPU draw.", ("gpus[].power_limit_w",)
)
ENERGY: Final = Term(
    "energy", "energy", "J", "since the driver's start", "Energy that the GPU has drawn.", ("gpus[].energy_j",)
)
TEMPERATURE: Final = Term("°C", "temperature", "°C", _MOMENT, "Temperature of the GPU.", ("gpus[].temperature_c",))
MEMORY_TEMPERATURE: Final = Term(
    "mem °C", "memory temp.", "°C", _MOMENT, "Temperature of the GPU's memory.", ("gpus[].memory_temperature_c",)
)
FAN: Final = Term("fan", "fan", "%", _MOMENT, "Speed of the fans, as a share of the highest.", ("gpus[].fan_ratio",))
SM_CLOCK: Final = Term("clock", "SM clock", "Hz", _MOMENT, "Clock of the SMs.", ("gpus[].sm_clock_hz",))
NVLINK: Final = Term(
    "nvlink",
    "NVLink",
    "B/s",
    _NOW,
    "Bytes sent and received over all NVLinks of the GPU.",
    ("gpus[].nvlink_bytes_per_s",),
)
PCIE: Final = Term("pcie", "PCIe", "B/s", _NOW, "Bytes sent and received over PCIe.", ("gpus[].pcie_bytes_per_s",))
WASTE: Final = Term(
    "waste",
    "waste",
    "%",
    _TEN,
    "1 - the larger of MFU and MBU; without an engine 1 - SM active, else 1 - busy.",
    (),
)
WASTED_GPUS: Final = Term(
    "waste gpu",
    "wasted GPUs",
    "GPUs",
    _TEN,
    "GPUs of the engine x (1 - the larger of MFU and MBU): what is left of their peaks; `≤` if one share is not known.",
    (),
)
RUNNING: Final = Term(
    "run", "running", "requests", _MOMENT, "Requests that the engine works on.", ("engines[].running",)
)
WAITING: Final = Term("wait", "waiting", "requests", _MOMENT, "Requests in its queue.", ("engines[].waiting",))
KV_CACHE: Final = Term(
    "kv",
    "KV cache",
    "%",
    _MOMENT,
    "Blocks of the engine's KV cache in use, of all it has.",
    ("engines[].kv_usage_ratio",),
)
DECODE: Final = Term(
    "decode", "decode", "tok/s", _TEN, "Tokens generated (output).", ("engines[].decode_tokens_per_s",)
)
PREFILL: Final = Term(
    "prefill",
    "prefill",
    "tok/s",
    "10 s, or the longest prefill",
    "Prompt tokens computed (input), without those from the prefix cache.",
    ("engines[].prefill_tokens_per_s",),
)
CACHED: Final = Term(
    "cached",
    "prefill cached",
    "tok/s",
    _TEN,
    "Prompt tokens taken from the prefix cache.",
    ("engines[].cached_tokens_per_s",),
)
TTFT: Final = Term(
    "ttft p95",
    "TTFT p95",
    "s",
    _MINUTE,
    "Time to first token inside the engine, without HTTP; of 95 % of the requests it is at most this.",
    ("engines[].ttft_s.p95",),
)
ITL: Final = Term(
    "itl p95",
    "ITL p95",
    "s",
    _MINUTE,
    "Inter-token latency: time from one token of a request to its next; 95 % are at most this.",
    ("engines[].itl_s.p95",),
)
TTFT_GOAL: Final = Term(
    "ttft ok",
    "TTFT in goal",
    "%",
    _MINUTES,
    "Share of requests whose time to first token was within the goal (`[goals]`); `?`: 1 s is assumed.",
    ("engines[].ttft_goal",),
)
ITL_GOAL: Final = Term(
    "itl ok",
    "ITL in goal",
    "%",
    _MINUTES,
    "Share of requests whose mean time per token (TPOT) was within the goal, else of tokens; `?`: 50 ms are assumed.",
    ("engines[].tpot_goal", "engines[].itl_goal"),
)
E2E: Final = Term(
    "e2e p95",
    "E2E p95",
    "s",
    _MINUTE,
    "End-to-end latency inside the engine: from the request to its last token; 95 % are at most this.",
    ("engines[].e2e_s.p95",),
)
QUEUE: Final = Term(
    "queue p95",
    "queue p95",
    "s",
    _MINUTE,
    "Time in the queue before the first step; 95 % are at most this.",
    ("engines[].queue_s.p95",),
)
REQUESTS: Final = Term("req/s", "requests", "1/s", _TEN, "Requests that ended.", ("engines[].requests_per_s",))
STEPS: Final = Term(
    "step/s",
    "steps",
    "1/s",
    _TEN,
    "Forward passes; each gives a request in decode one token, or several with speculative decoding.",
    ("engines[].steps_per_s",),
)
BATCH: Final = Term("batch", "batch", "sequences", _TEN, "Sequences in one step of a rank.", ("engines[].batch",))
CONTEXT: Final = Term(
    "context",
    "context",
    "tokens",
    _MOMENT,
    "Mean tokens of a running request: its prompt and what it has generated.",
    ("engines[].context_tokens",),
)
PREEMPTIONS: Final = Term(
    "preempt/s",
    "preemptions",
    "1/s",
    _TEN,
    "Running requests that were thrown out of a full KV cache and are computed again.",
    ("engines[].preemptions_per_s",),
)
TOKENS_PER_JOULE: Final = Term(
    "tok/J",
    "tokens per joule",
    "tok/J",
    _TEN,
    "Decode tokens per joule of the engine's GPUs.",
    ("engines[].tokens_per_j", "gpus[].tokens_per_j"),
)

TERMS: Final = (
    *(BUSY, SM, OCCUPANCY, TENSOR, VRAM, BANDWIDTH, MFU, MBU),
    *(POWER, POWER_LIMIT, ENERGY, TEMPERATURE, MEMORY_TEMPERATURE, FAN, SM_CLOCK, NVLINK, PCIE, WASTE),
    *(WASTED_GPUS, RUNNING, WAITING, KV_CACHE, DECODE, PREFILL, CACHED, TTFT, ITL),
    *(TTFT_GOAL, ITL_GOAL, E2E, QUEUE),
    *(REQUESTS, STEPS, BATCH, CONTEXT, PREEMPTIONS, TOKENS_PER_JOULE),
)
"""All quantities: of GPUs, then of engines."""

_PAGE: Final = """# Glossary

Every quantity has one name. Table headers use the short form; charts, detail pages and sentences use the name. JSON
fields keep their own names ([json.md](json.md)); the last column maps them. [figures.md](figures.md) has the formulas.

"Last refresh" is the time since the previous refresh (1 s by default); "at the refresh" is a state, not a mean. Windows
are at least two refresh intervals long.

| short | name | unit | window | meaning | JSON |
|---|---|---|---|---|---|
{terms}

## Units

| unit | meaning |
|---|---|
| `GiB` | 2^30 bytes: memory that is in use or installed, as the driver and the engines count it |
| `GB`, `TB` | 10^9 and 10^12 bytes: rates (`B/s`), disks, and sizing, as data sheets count |
| `tok/s` | tokens per second: of `decode` where nothing else is said |
| `p50`, `p95`, `p99` | quantiles: 95 % of the requests (or tokens) of the window took at most the p95 |
| `k`, `M`, `G`, `T` | 10^3, 10^6, 10^9, 10^12 |

## Other words

| word | meaning |
|---|---|
| engine | one server process of a model, such as vLLM; its `/metrics` page gives its figures |
| replicas | engines that serve the same model |
| rank | one data-parallel or tensor-parallel part of an engine |
| step | one forward pass of an engine |
| verdict | what limits a GPU or an engine, with the evidence and the first thing to do |
| level | how urgent a verdict is: critical, warning, note, ok |
| roofline | the highest rate that peak FLOP/s and peak memory bandwidth allow |
"""


def glossary_page() -> str:
    """The text of docs/glossary.md."""
    rows = []
    for term in TERMS:
        fields = ", ".join(f"`{path}`" for path in term.json) or "-"
        rows.append(f"| `{term.short}` | {term.name} | {term.unit} | {term.window} | {term.meaning} | {fields} |")
    return _PAGE.format(terms="\n".join(rows))
