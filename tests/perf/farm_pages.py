"""Metrics pages of a simulated fleet at any time: vLLM servers and dcgm-exporters, in the shape of recorded pages."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from tests.fakes.engine import Capture

CAPTURE: Final = "vllm-basic"
CAPTURED_S: Final = 40.0
DCGM_PAGE: Final = Path(__file__).parent.parent / "data" / "pages" / "dcgm" / "a100-default.prom"
SPREAD: Final = 0.6
"""Of all lengths and latencies (sigma of a log-normal distribution)."""
SWING: Final = 0.15
"""The load of an engine swings by so much of its mean."""
PERIOD_S: Final = 90.0
PEAK_FLOPS: Final = 989e12
BANDWIDTH: Final = 3.35e12
"""Of an H100 SXM, dense bf16 and HBM3."""


class Model(NamedTuple):
    """What an engine serves, on how many GPUs. Names are those that the catalogue knows."""

    name: str
    tp: int
    params_b: float
    """Used per token, in 1e9."""
    weights_gb: float
    """Of all GPUs together."""
    running: float
    """Requests at once under a usual load."""
    itl_s: float
    prompt: float
    output: float
    kv_bytes: float
    """Of one token, bf16."""

    @property
    def context(self) -> float:
        """Mean tokens in context of a running request."""
        return self.prompt + self.output / 2.0


class Load(NamedTuple):
    """How busy a server is, as factors of the usual load of its model."""

    name: str
    running: float
    slow: float
    """Factor of the latencies."""
    waiting: float
    kv: float


class Figures(NamedTuple):
    """Means of one engine: rates per second, gauges, and the mean of what a histogram counts."""

    running: float
    waiting: float
    kv: float
    decode: float
    prompt: float
    requests: float
    ttft_s: float
    itl_s: float
    queue_s: float
    preemptions: float


def figures(model: Model, load: Load) -> Figures:
    """What one engine of that model does under that load."""
    running, itl_s = model.running * load.running, model.itl_s * load.slow
    decode = running / itl_s
    requests = decode / model.output
    queue_s = load.waiting / requests if requests and load.waiting else 0.002
    prefill_s = 0.02 + 2e9 * model.params_b * model.prompt / (0.5 * PEAK_FLOPS * model.tp)
    ttft_s = queue_s + prefill_s * load.slow
    preemptions = 0.4 if load.kv > 0.9 else 0.0
    return Figures(
        running, load.waiting, load.kv, decode, requests * model.prompt, requests, ttft_s, itl_s, queue_s, preemptions
    )


class EnginePages:
    """The page of one vLLM server at any time: all its counters follow one swinging load."""

    def __init__(self, model: Model, load: Load, *, phase: float, started_s: float) -> None:
        self._phase = phase
        self._began_s = started_s
        self._template, self._moving = _engine_template(model, load, started_s)

    def page(self, now_s: float) -> bytes:
        """The page at a Unix time."""
        angle = (now_s - self._began_s) * math.tau / PERIOD_S + self._phase
        level = 1.0 + SWING * math.sin(angle)
        # The integral of the level since the start: counters and gauges agree with each other at every moment.
        grown = now_s - self._began_s + SWING * PERIOD_S / math.tau * (math.cos(self._phase) - math.cos(angle))
        return self._template % tuple([_value(rate, unit, grown, level) for rate, unit in self._moving])


def _value(rate: float, unit: str, grown: float, level: float) -> float:
    if unit == COUNTER:
        return round(rate * grown, 3)
    return round(min(1.0, rate * level), 5) if unit == "kv" else float(round(rate * level))


STILL: Final = ("python", "process_", "vllm:cache_config", "vllm:engine_sleep_state")
"""Beginnings of the names of what stays as recorded."""


class Line(NamedTuple):
    """A sample of the recorded page whose value moves."""

    name: str
    label: str
    """Of its `le`, `source`, `reason` or `finished_reason` the value."""


@cache
def _recorded() -> str:
    return Capture(CAPTURE).at(CAPTURED_S).body.decode()


@cache
def _shape() -> tuple[tuple[str, Line | None], ...]:
    """Each line of the recorded page up to its value, and what it is where it moves."""
    found: list[tuple[str, Line | None]] = []
    for line in _recorded().splitlines():
        head, _, _ = line.rpartition(" ")
        name = re.split(r"[{ ]", line, maxsplit=1)[0]
        if line.startswith("#") or name.startswith(STILL):
            found.append((line, None))
        elif name.endswith("_created"):
            found.append((head + " STARTED", None))
        else:
            label = re.search(r'(?:le|source|reason)="([^"]*)"', line)
            found.append((head, Line(name, label[1] if label else "")))
    return tuple(found)


@cache
def _engine_template(model: Model, load: Load, started_s: float) -> tuple[bytes, tuple[tuple[float, str], ...]]:
    """A page with a place for each value that moves; of each its rate and COUNTER, or its mean and field."""
    now = figures(model, load)
    text: list[str] = []
    moving: list[tuple[float, str]] = []
    for head, kind in _shape():
        rate = _rate(kind, now, model) if kind else 0.0
        if kind is None or not rate:
            text.append(head.replace("%", "%%") + (" 0.0" if kind else ""))
        else:
            text.append(head.replace("%", "%%") + " %r")
            moving.append((rate, GAUGES.get(kind.name, COUNTER)))
    # A pool of the size at which these requests fill this share of it.
    tokens = now.running * model.context / load.kv if load.kv else 300_000.0
    blocks = int(tokens / 16)
    whole = "\n".join(text) + "\n"
    whole = whole.replace("tiny-llama", model.name).replace("STARTED", f"{started_s:.3f}")
    whole = whole.replace('num_gpu_blocks="4096"', f'num_gpu_blocks="{blocks}"').replace('size="128"', 'size="16"')
    whole = whole.replace('kv_cache_size_tokens="524288"', f'kv_cache_size_tokens="{blocks * 16}"')
    whole = re.sub(r"^(process_start_time_seconds) .*$", rf"\1 {started_s:.2f}", whole, flags=re.MULTILINE)
    return whole.encode(), tuple(moving)


COUNTER: Final = "counter"
GAUGES: Final[Mapping[str, str]] = {
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "vllm:num_requests_waiting_by_reason": "waiting",
    "vllm:kv_cache_usage_perc": "kv",
}
COUNTERS: Final[Mapping[str, str]] = {
    "vllm:prompt_tokens_total": "prompt",
    "vllm:prompt_tokens_by_source_total local_compute": "prompt",
    "vllm:prefix_cache_queries_total": "prompt",
    "vllm:generation_tokens_total": "decode",
    "vllm:request_success_total stop": "requests",
    "vllm:num_preemptions_total": "preemptions",
    "http_requests_total": "requests",
}
"""Name, and where only one of its series moves the label of that -> field of `Figures`."""


def _rate(kind: Line, now: Figures, model: Model) -> float:
    """Per second for a counter, the mean for a gauge; 0 for what does not move."""
    if kind.label == "deferred":
        return 0.0
    field = GAUGES.get(kind.name) or COUNTERS.get(kind.name) or COUNTERS.get(f"{kind.name} {kind.label}")
    if field is not None:
        return float(getattr(now, field))
    family, _, part = kind.name.rpartition("_")
    per_s, mean = _histograms(now, model).get(family, (0.0, 0.0))
    if part == "bucket":
        return per_s * _below(float(kind.label), mean)
    return per_s * mean if part == "sum" else per_s if part == "count" else 0.0


def _histograms(now: Figures, model: Model) -> Mapping[str, tuple[float, float]]:
    """Family -> observations per second, and their mean."""
    each = now.requests
    decode_s = model.output * now.itl_s
    prefill_s = now.ttft_s - now.queue_s
    steps = now.decode / now.running if now.running else 0.0
    return {
        "vllm:request_prompt_tokens": (each, model.prompt),
        "vllm:request_generation_tokens": (each, model.output),
        "vllm:request_max_num_generation_tokens": (each, model.output),
        "vllm:request_params_max_tokens": (each, 1024.0),
        "vllm:request_params_n": (each, 1.0),
        "vllm:request_prefill_kv_computed_tokens": (each, model.prompt),
        "vllm:iteration_tokens_total": (steps, (now.decode + now.prompt) / steps if steps else 0.0),
        "vllm:time_to_first_token_seconds": (each, now.ttft_s),
        "vllm:inter_token_latency_seconds": (now.decode, now.itl_s),
        "vllm:request_time_per_output_token_seconds": (each, now.itl_s),
        "vllm:request_queue_time_seconds": (each, now.queue_s),
        "vllm:request_prefill_time_seconds": (each, prefill_s),
        "vllm:request_decode_time_seconds": (each, decode_s),
        "vllm:request_inference_time_seconds": (each, prefill_s + decode_s),
        "vllm:e2e_request_latency_seconds": (each, now.ttft_s + decode_s),
        "http_request_duration_highr_seconds": (each, now.ttft_s + decode_s),
        "http_request_duration_seconds": (each, now.ttft_s + decode_s),
        "http_request_size_bytes": (each, 4.0 * model.prompt),
    }


def _below(limit: float, mean: float) -> float:
    """Share of a log-normal distribution of that mean below a bucket's limit."""
    if math.isinf(limit):
        return 1.0
    if limit <= 0.0 or mean <= 0.0:
        return 0.0
    return 0.5 * (1.0 + math.erf((math.log(limit / mean) + SPREAD**2 / 2) / (SPREAD * math.sqrt(2.0))))


class Gpu(NamedTuple):
    """One GPU: whose it is, and its means."""

    uuid: str
    used_gb: float
    busy: float
    """Share of time with a kernel."""
    tensor: float
    dram: float
    power_w: float
    pod: str = ""


def gpu_of(model: Model, load: Load, uuid: str, pod: str = "") -> Gpu:
    """A GPU that works for an engine: activity from the FLOPs and bytes of its tokens."""
    now = figures(model, load)
    flops = 2e9 * model.params_b * (now.decode + now.prompt) / model.tp
    steps = now.decode / now.running if now.running else 0.0
    read = steps * (model.weights_gb * 1e9 + now.running * model.context * model.kv_bytes) / model.tp
    busy = min(0.99, 0.97 * load.running**0.15) if load.running else 0.0
    tensor, dram = min(0.9, flops / PEAK_FLOPS), min(0.92, read / BANDWIDTH * 1.05)
    power_w = 72.0 + 120.0 * busy + 400.0 * tensor + 180.0 * dram
    return Gpu(uuid, 72.0, busy, tensor, dram, min(700.0, power_w), pod)


DCGM_VALUES: Final[Mapping[str, str]] = {
    "DCGM_FI_DEV_SM_CLOCK": "clock_mhz",
    "DCGM_FI_DEV_GPU_TEMP": "temperature",
    "DCGM_FI_DEV_MEMORY_TEMP": "memory_temperature",
    "DCGM_FI_DEV_POWER_USAGE": "power",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": "energy",
    "DCGM_FI_DEV_GPU_UTIL": "busy",
    "DCGM_FI_DEV_MEM_COPY_UTIL": "copy",
    "DCGM_FI_DEV_FB_FREE": "free",
    "DCGM_FI_DEV_FB_USED": "used",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "engine",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "tensor",
    "DCGM_FI_PROF_DRAM_ACTIVE": "dram",
    "DCGM_FI_PROF_PCIE_TX_BYTES": "tx",
    "DCGM_FI_PROF_PCIE_RX_BYTES": "rx",
}
TOTAL_MIB: Final = 81559
RESERVED_MIB: Final = 551


class DcgmPages:
    """The page of one host's dcgm-exporter at any time, with its default counters."""

    def __init__(self, host: str, gpus: Sequence[Gpu], *, started_s: float, namespace: str = "") -> None:
        self._gpus = gpus
        self._began_s = started_s
        self._phase = math.tau * (hash_of(host) % 97) / 97
        self._template = _dcgm_template(host, gpus, namespace)

    def page(self, now_s: float) -> bytes:
        """The page at a Unix time."""
        values: dict[bytes, float] = {}
        for number, gpu in enumerate(self._gpus):
            for name, value in self._values(gpu, now_s, number).items():
                values[b"%s %d" % (name.encode(), number)] = value
        return self._template % values

    def _values(self, gpu: Gpu, now_s: float, number: int) -> dict[str, float]:
        since_s, phase = now_s - self._began_s, self._phase + 0.1 * number
        angle = since_s * math.tau / PERIOD_S + phase
        level = 1.0 + 0.04 * math.sin(angle)
        grown = since_s + 0.04 * PERIOD_S / math.tau * (math.cos(phase) - math.cos(angle))
        used = int(gpu.used_gb * 1e9 / 1048576) if gpu.used_gb else 5
        return {
            "clock_mhz": 1980 if gpu.busy else 345,
            "temperature": int(28 + 0.055 * gpu.power_w * level),
            "memory_temperature": int(38 + 0.06 * gpu.power_w * level),
            "power": gpu.power_w * level,
            "energy": int(1000.0 * gpu.power_w * grown),
            "busy": int(min(100.0, 100.0 * gpu.busy * level)),
            "copy": int(min(100.0, 90.0 * gpu.dram * level)),
            "used": used,
            "free": TOTAL_MIB - RESERVED_MIB - used,
            "engine": min(1.0, gpu.busy * level),
            "tensor": min(1.0, gpu.tensor * level),
            "dram": min(1.0, gpu.dram * level),
            "tx": int(2e8 * gpu.busy),
            "rx": int(4e8 * gpu.busy),
        }


def hash_of(text: str) -> int:
    """The same in every process."""
    return sum((place + 1) * ord(letter) for place, letter in enumerate(text))


def _dcgm_template(host: str, gpus: Sequence[Gpu], namespace: str) -> bytes:
    text: list[str] = []
    for line in DCGM_PAGE.read_text().splitlines():
        if line.startswith("#"):
            text.append(line.replace("%", "%%"))
            continue
        name, _, rest = line.partition("{")
        if 'gpu="0"' not in rest:
            continue
        recorded = rest.rpartition(" ")[2]
        for number, gpu in enumerate(gpus):
            pod = f',container="vllm",namespace="{namespace}",pod="{gpu.pod}"' if namespace and gpu.pod else ""
            labels = (
                f'gpu="{number}",UUID="{gpu.uuid}",pci_bus_id="00000000:{16 * (number + 1):02X}:00.0",'
                f'device="nvidia{number}",modelName="NVIDIA H100 80GB HBM3",Hostname="{host}",'
                f'DCGM_FI_DRIVER_VERSION="580.95.05"{pod}'
            )
            field = DCGM_VALUES.get(name)
            form = "f" if "." in recorded else "d"
            fixed = {"DCGM_FI_DEV_FB_RESERVED": str(RESERVED_MIB), "DCGM_FI_DEV_MEM_CLOCK": "2619"}.get(name, recorded)
            text.append(f"{name}{{{labels}}} " + (f"%({field} {number}){form}" if field else fixed))
    return ("\n".join(text) + "\n").encode()
