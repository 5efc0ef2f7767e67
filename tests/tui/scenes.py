"""Snapshots of servers in every state that the screen must show, made by formula: the same at each run."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable

from gpumon.efficiency.provenance import MEMORY_V2, Spans, engine_sources, gpu_sources
from gpumon.efficiency.service import Service
from gpumon.readings.flat import flat_fields, make_record
from gpumon.readings.frame import EndpointState, EngineKind, GpuProcess, GpuState, HostReading, Phase
from gpumon.readings.history import History
from gpumon.readings.missing import NOT_SUPPORTED, WARMING_UP, Missing, Reason, or_nan
from gpumon.readings.snapshot import (
    BandwidthSource,
    Engine,
    FaultShown,
    Gpu,
    Quantiles,
    Self,
    Snapshot,
    TokensTotal,
)
from tests.records import make_gpu, replace
from tests.tui import verdicts, workers

WALL_S = 1_760_000_002.0
GIB = float(1 << 30)
PEAK = 3.35e12

Points = dict[str, float]


def gpu(index: int, tick: int = 0, **others: object) -> Gpu:
    """A busy H100; `tick` moves its figures a little, as real ones move."""
    wave = math.sin(tick * 0.7 + index) * 0.5 + math.sin(tick * 0.13 + index * 2.1) * 0.5
    values = make_gpu(
        index=index,
        uuid=f"GPU-{index:08d}",
        name="NVIDIA H100 80GB HBM3",
        state=GpuState.OK,
        age_s=0.2,
        busy_ratio=min(1.0, 0.93 + 0.05 * wave),
        sm_active_ratio=0.62 + 0.08 * wave,
        tensor_active_ratio=0.29 + 0.05 * wave,
        vram_used_bytes=(71.2 + 0.05 * index + 0.1 * round(wave)) * GIB,
        vram_total_bytes=79.6 * GIB,
        bandwidth_bytes_per_s=(0.69 + 0.06 * wave) * PEAK,
        bandwidth_source=BandwidthSource.GPM,
        bandwidth_peak_bytes_per_s=PEAK,
        mfu_ratio=0.31 + 0.02 * math.sin(tick * 0.2 + index * 0.3),
        mbu_ratio=0.62 + 0.03 * math.sin(tick * 0.2 + index * 0.3),
        power_w=612.0 + 35.0 * wave,
        power_limit_w=700.0,
        temperature_c=64.0 + round(2 * math.sin(tick * 0.05 + index)),
        sm_clock_hz=1.98e9 - 1.5e7 * round(abs(wave)),
        nvlink_bytes_per_s=123e9 + 3e10 * wave,
        pcie_bytes_per_s=1.8e9 + 5e8 * wave,
        engines=("vllm:8000",) if index < 4 else ("vllm:8001",) if index < 6 else ("vllm:8002",),
        processes=workers.on(index) if index < 8 else (),
        tokens_per_j=0.45 + 0.03 * wave,
        energy_j=2.2e6 + 600.0 * tick,
        busy_mean_ratio=0.91,
        compute_capability="9.0",
        peak_source="catalogue: H100 SXM 80GB",
        flops_peak_per_s=989e12,
        flops_peak_precision="bf16",
        memory_temperature_c=71.0,
        sm_occupancy_ratio=0.22,
        memory_busy_ratio=0.58 + 0.05 * wave,
        sm_clock_max_hz=1.98e9,
        memory_clock_hz=2.62e9,
        memory_clock_max_hz=2.62e9,
        vram_reserved_bytes=0.6 * GIB,
        pcie_tx_bytes_per_s=0.7e9,
        pcie_rx_bytes_per_s=1.1e9 + 5e8 * wave,
        nvlink_tx_bytes_per_s=61e9 + 1.5e10 * wave,
        nvlink_rx_bytes_per_s=62e9 + 1.5e10 * wave,
        pcie_generation=5.0,
        pcie_generation_max=5.0,
        pcie_width=16.0,
        pcie_width_max=16.0,
        ecc_corrected=0.0,
        ecc_uncorrected=0.0,
        remap_pending=0.0,
        remap_failed=0.0,
        persistence_mode=1.0,
        ecc_mode=1.0,
        throttle_s={"sw_power_cap": 41.5, "hw_thermal_slowdown": 0.0},
        sources=gpu_sources(
            bandwidth=BandwidthSource.GPM,
            from_energy=True,
            has_gpm=True,
            memory_call=MEMORY_V2,
            peak_source="catalogue: H100 SXM 80GB",
            flops_source="catalogue",
            precision="bf16",
        ),
    )
    return replace(values, **others)


def engine(number: int, tick: int = 0, **others: object) -> Engine:
    """A vLLM server under load; its figures move every second tick, as an engine is polled."""
    wave = math.sin((tick // 2) * 0.9 + number) * 0.5 + 0.5 * math.sin((tick // 2) * 0.17 + number)
    model = ("meta-llama/Llama-3.3-70B", "Qwen/Qwen3-30B-A3B", "mistralai/Mistral-Small-3.2-24B-Instruct-2506")[
        number % 3
    ]
    values = make_record(
        Engine,
        {
            "name": f"vllm:{8000 + number}",
            "kind": EngineKind.VLLM,
            "phase": Phase.INFERENCE,
            "url": f"http://127.0.0.1:{8000 + number}",
            "state": EndpointState.OK,
            "age_s": 0.4,
            "version": "0.11.2",
            "model": model,
            "gpus": ((0, 1, 2, 3), (4, 5), (6, 7))[number % 3],
            "tp": 4,
            "running": 24.0 + round(3 * wave),
            "waiting": float(max(0, round(2 * wave))),
            "kv_usage_ratio": 0.41 + 0.06 * wave,
            "decode_tokens_per_s": 1100.0 + 160 * wave,
            "prefill_tokens_per_s": 8200.0 + 1900 * wave,
            "cached_tokens_per_s": 2100.0 + 300 * wave,
            "requests_per_s": 4.2 + wave,
            "steps_per_s": 41.0 + 3 * wave,
            "context_tokens": 2310.0 + 100 * wave,
            "ttft_s": Quantiles(
                p50=0.14, p95=0.21 + 0.03 * wave, p99=0.4, mean=0.15, p95_low=0.1, p95_high=0.25, first_bound_s=0.001
            ),
            "itl_s": Quantiles(
                p50=0.021,
                p95=0.024 + 0.002 * wave,
                p99=0.03,
                mean=0.022,
                p95_low=0.01,
                p95_high=0.025,
                first_bound_s=0.01,
            ),
            "queue_s": Quantiles(p95=0.2, p95_low=0.0, p95_high=0.3, mean=0.05, first_bound_s=0.3),
            "e2e_s": Quantiles(p95=5.6 + wave, mean=4.0, first_bound_s=0.3),
            "preemptions_per_s": 0.0,
            "tokens_total": TokensTotal(prefill_computed=3.1e7, prefill_cached=8.4e6, decode=4.2e6),
            "mfu_ratio": 0.31 + 0.02 * wave,
            "mfu_prefill_ratio": 0.26 + 0.02 * wave,
            "mfu_decode_ratio": 0.05,
            "mbu_ratio": 0.62 + 0.03 * wave,
            "mbu_single_stream_ratio": 11.6,
            "flops_per_s": 1.22e15,
            "bytes_per_s": 8.3e12,
            "tokens_per_j": 0.45,
            "flops_per_j": 5e11,
            "precision": "bf16",
            "since": "2025-10-09T05:12:40Z",
            "model_source": "config.json of the served model",
            "gpus_source": "its process tree",
            "gpu_count": 4.0,
            "power_w": 2450.0,
            "params": 70.55e9,
            "active_params": 69.5e9,
            "layers": 80.0,
            "weight_precision": "bf16",
            "kv_precision": "bf16",
            "flops_per_decode_token": 1.4e11,
            "prefill_flops_per_s": 1.03e15,
            "decode_flops_per_s": 1.9e14,
            "peak_flops_per_s": 4 * 989e12,
            "batch": 24.0,
            "weight_bytes": 1.39e11,
            "kv_bytes_per_token": 327680.0,
            "weight_bytes_per_s": 5.7e12,
            "kv_bytes_per_s": 2.6e12,
            "peak_bandwidth_bytes_per_s": 4 * PEAK,
            "kv_pool_tokens": 4.1e5,
            "sources": engine_sources(
                (("running", "vllm:num_requests_running"), ("decode_tokens", "vllm:generation_tokens_total")),
                Spans(),
                (("model", "config.json of the served model"),),
                "bf16",
                ("catalogue", "catalogue: H100 SXM 80GB"),
                Service.GENERATION,
            ),
        },
    )
    return replace(values, **others)


def snapshot(gpus: int = 8, engines: int = 3, tick: int = 0, **others: object) -> Snapshot:
    """A server at one tick."""
    values = Snapshot(
        time="2025-10-09T08:53:22.000Z",
        wall_s=WALL_S + tick,
        simulated=False,
        interval_s=1.0,
        host=HostReading("gpu-07", "580.95.05", "13.0", 0.12, 2.1e11, 2.16e12),
        self_cost=Self(0.011 + 0.001 * (tick % 3), 6.1e7),
        gpus=tuple(gpu(index, tick) for index in range(gpus)),
        engines=tuple(engine(number, tick) for number in range(engines)),
    )
    return replace(values, **others)


def points(of: Snapshot) -> Points:
    """One tick's points for the charts."""
    live = [each for each in of.gpus if each.reading.state is GpuState.OK]
    up = [each for each in of.engines if each.state is EndpointState.OK]

    def total(readings: list[object]) -> float:
        known = [reading for reading in readings if isinstance(reading, float)]
        return math.fsum(known) if known else math.nan

    def mean(readings: list[object]) -> float:
        return total(readings) / max(1, sum(isinstance(reading, float) for reading in readings))

    def share(gpu: Gpu) -> float:
        return or_nan(gpu.reading.vram_used_bytes) / or_nan(gpu.reading.vram_total_bytes)

    made = {
        "busy": mean([each.reading.busy_ratio for each in live]),
        "sm": mean([each.reading.sm_active_ratio for each in live]),
        "mfu": mean([each.mfu_ratio for each in live]),
        "mbu": mean([each.mbu_ratio for each in live]),
        "bandwidth": total([each.bandwidth_bytes_per_s for each in live]),
        "power": total([each.power_w for each in live]),
        "prefill": total([each.rates.prefill_tokens_per_s for each in up]),
        "decode": total([each.rates.decode_tokens_per_s for each in up]),
        "running": total([each.load.running for each in up]),
        "waiting": total([each.load.waiting for each in up]),
        "replicas": float(len(up)) if of.engines else math.nan,
        "temp": max(
            (each.reading.temperature_c for each in live if isinstance(each.reading.temperature_c, float)),
            default=math.nan,
        ),
        "vram": max((share(each) for each in live), default=math.nan),
        "kv": max((or_nan(each.load.kv_usage_ratio) for each in up), default=math.nan),
        "ttft": max((or_nan(each.latency.ttft_s.p95) for each in up), default=math.nan),
        "itl": max((or_nan(each.latency.itl_s.p95) for each in up), default=math.nan),
    }
    made |= {
        f"busy:{each.reading.index}": each.reading.busy_ratio
        for each in live
        if isinstance(each.reading.busy_ratio, float)
    }
    made |= {f"mfu:{each.reading.index}": each.mfu_ratio for each in live if isinstance(each.mfu_ratio, float)}
    for each in up:
        kept = {
            "kv": each.load.kv_usage_ratio,
            "mbu": each.efficiency.mbu_ratio,
            "running": each.load.running,
            "waiting": each.load.waiting,
        }
        made |= {f"{name}@{each.key}": value for name, value in kept.items() if isinstance(value, float)}
    shares = {each.reading.index: each.bandwidth_bytes_per_s for each in live}
    made |= {f"dram:{index}": used / PEAK for index, used in shares.items() if isinstance(used, float)}
    return made | {
        f"temp:{each.reading.index}": each.reading.temperature_c
        for each in live
        if isinstance(each.reading.temperature_c, float)
    }


_Points = tuple[tuple[str, float], ...]


def history(of: Snapshot, seconds: int = 900) -> History:
    """A past with a rise, a plateau, a gap of a minute and a dip, that ends at the snapshot."""
    past = copy.deepcopy(_course(tuple(points(of).items()), of.wall_s, seconds))
    for event in verdicts.past(of.wall_s, of.engines[0], of.gpus[min(1, len(of.gpus) - 1)]) if of.verdicts else ():
        past.add_event(event)
    return past


@functools.lru_cache(maxsize=16)
def _course(now_points: _Points, wall_s: float, seconds: int) -> History:
    """The series of `history`, made once for all tests that show the same: to make them takes longer than to start."""
    past = History()
    now = dict(now_points)
    for ago in range(seconds, -1, -1):
        if 400 < ago < 460:
            continue
        load = (
            min(1.0, (seconds - ago) / 200.0) * (0.8 + 0.2 * math.sin(ago / 37.0)) * (0.35 if 200 < ago < 240 else 1.0)
        )
        then = {key: value * (load if ago else 1.0) for key, value in now.items()}
        then["replicas"] = max(1.0, now["replicas"] - 1.0) if ago > 320 else now["replicas"]
        past.append(wall_s - ago, then)
    return past


NO_ENGINE: dict[str, object] = dict.fromkeys(("mfu_ratio", "mbu_ratio", "tokens_per_j"), Missing(Reason.NO_ENGINE))
LOST = Missing(Reason.LOST)
STALE = Missing(Reason.STALE)


FIGURES = tuple(
    name
    for name in flat_fields(Gpu)
    if name.endswith(("_ratio", "_bytes", "_per_s", "_w", "_hz", "_c", "_per_j", "corrected", "_pending", "_failed"))
    or name.startswith("pcie_")
)
"""All readings of a GPU."""
ENGINE_FIGURES = (
    *("running", "waiting", "batch", "context_tokens"),
    *(name for name in flat_fields(Engine) if name.endswith(("_ratio", "_per_s", "_per_j"))),
)


def dead_gpu(index: int, state: GpuState, age_s: float, why: Missing) -> Gpu:
    """A GPU without figures, as the deriver blanks it."""
    blank = dict.fromkeys(FIGURES, why)
    return gpu(index, state=state, age_s=age_s, bandwidth_source=BandwidthSource.NONE, processes=(), **blank)


def _live() -> Snapshot:
    of = snapshot()
    ok = tuple(map(verdicts.healthy, (*of.engines[1:], *of.gpus)))
    return replace(of, verdicts=(verdicts.bandwidth(of.engines[0]), *ok))


def _triage() -> Snapshot:
    """Every level, a fault, and what cannot be told."""
    of = _wasted()
    full, held, lost = of.engines[1], of.engines[0], of.engines[2]
    of_gpus = tuple(map(verdicts.healthy, of.gpus[:3]))
    said = (verdicts.full_cache(full), verdicts.hot(of.gpus[3]), verdicts.bandwidth(held), verdicts.unknown(lost))
    fault = FaultShown(full.name, "its prefix cache counters went backwards", "2025-10-09T08:52:03Z")
    return replace(of, verdicts=(*said, *of_gpus), faults=(fault,))


def _one_lost() -> Snapshot:
    of = snapshot(engines=4)
    gpus = (*of.gpus[:5], dead_gpu(5, GpuState.LOST, 14.2, LOST), *of.gpus[6:])
    fault = FaultShown(
        "nvml", "GPU 5 has fallen off the bus: drain the node and reset or replace the GPU", "2025-10-09T08:53:08Z"
    )
    return replace(of, gpus=gpus, faults=(fault,))


def _stale() -> Snapshot:
    of = snapshot()
    fault = FaultShown("nvml", "the driver has not answered for 6 s; engines go on", "2025-10-09T08:53:16Z")
    return replace(of, gpus=tuple(dead_gpu(i, GpuState.STALE, 6.0, STALE) for i in range(8)), faults=(fault,))


def down_engine(number: int, state: EndpointState, fault: str) -> Engine:
    """An engine that gives no figures, as the deriver blanks it."""
    nothing = Missing(Reason.UNREACHABLE)
    blank: dict[str, object] = dict.fromkeys(ENGINE_FIGURES, nothing)
    latencies = dict.fromkeys(("ttft_s", "itl_s", "queue_s", "e2e_s"), Quantiles(nothing, nothing, nothing, nothing))
    return engine(number, state=state, fault=fault, since="2025-10-09T08:50:00Z", age_s=202.0, **blank | latencies)


def _engines_down() -> Snapshot:
    of = snapshot()
    down = (
        down_engine(0, EndpointState.REFUSED, "connection refused: no server listens on 127.0.0.1:8000"),
        down_engine(1, EndpointState.UNAUTHORIZED, "401: give its key with api_key_env or api_key_file"),
        down_engine(2, EndpointState.METRICS_OFF, "404: start vLLM without --disable-log-stats"),
        engine(3, mfu_ratio=Missing(Reason.UNKNOWN_MODEL), mbu_ratio=Missing(Reason.UNKNOWN_MODEL)),
    )
    faults = tuple(FaultShown(each.name, each.fault, "2025-10-09T08:50:00Z") for each in down if each.fault)
    return replace(of, engines=down, faults=faults)


def _unauthorised() -> Snapshot:
    """One engine wants a key, on a driver that answers to root only."""
    of = snapshot()
    why = "401: give its key with api_key_env or api_key_file"
    asked = down_engine(1, EndpointState.UNAUTHORIZED, why)
    denied = dead_gpu(3, GpuState.NO_PERMISSION, 202.0, Missing(Reason.NO_PERMISSION))
    faults = (
        FaultShown(asked.name, why, "2025-10-09T08:50:00Z"),
        FaultShown(
            "nvml", "GPU 3: no permission: add the user to the group that owns /dev/nvidia3", "2025-10-09T08:50:00Z"
        ),
    )
    gpus = (*of.gpus[:3], denied, *of.gpus[4:])
    return replace(of, gpus=gpus, engines=(of.engines[0], asked, of.engines[2]), faults=faults)


def _wasted() -> Snapshot:
    """GPU 6 is busy for nothing, 7 is held by a process of no engine; an engine queues; figures are missing."""
    of = snapshot()
    low = {"sm_active_ratio": 0.07, "tensor_active_ratio": 0.01, "mfu_ratio": 0.02, "mbu_ratio": 0.04, "power_w": 190.0}
    idle = {"busy_ratio": 0.0, "sm_active_ratio": 0.0, "tensor_active_ratio": 0.0, "power_w": 118.0}
    slow = engine(1, waiting=31.0, kv_usage_ratio=0.99, ttft_s=Quantiles(p95=8.4, mean=5.1), preemptions_per_s=1.4)
    unknown = dict.fromkeys(("mfu_ratio", "mbu_ratio"), Missing(Reason.UNKNOWN_MODEL))
    none = Missing(Reason.IDLE)
    forgotten = (GpuProcess(7777, "python3", "ann", 71.0 * GIB, command="python3 -m jupyter lab", sm_ratio=none),)
    return replace(
        of,
        gpus=(
            *of.gpus[:6],
            gpu(6, busy_ratio=1.0, **low),
            gpu(7, **idle, **NO_ENGINE, engines=(), processes=forgotten),
        ),
        engines=(of.engines[0], slow, engine(2, model="in-house-7b", model_source="", **unknown)),
    )


def _crowded() -> Snapshot:
    """As much as one server has: 16 GPUs, 12 engines, dozens of processes, faults and a GPU that slows down."""
    of = snapshot(16, 12)
    gpus = tuple(
        replace(each, processes=each.reading.processes + workers.crowd(each.reading.index, 3)) for each in of.gpus
    )
    hot = replace(gpus[9], throttle=("hw_thermal_slowdown",), temperature_c=88.0)
    faults = tuple(
        FaultShown(f"vllm:{8000 + at}", "timeout: no answer within 2 s", "2025-10-09T08:50:00Z") for at in (3, 7, 9)
    )
    return replace(of, gpus=(*gpus[:9], hot, *gpus[10:]), faults=faults)


def _over() -> Snapshot:
    of = snapshot()
    return replace(
        of,
        gpus=tuple(replace(each, mfu_ratio=1.04, mbu_ratio=0.97) for each in of.gpus[:4]) + of.gpus[4:],
        engines=(replace(of.engines[0], mfu_ratio=1.04), *of.engines[1:]),
    )


def _other_kinds() -> Snapshot:
    """What older, smaller and shared GPUs lack, and everything that a state column can say."""
    none = NOT_SUPPORTED
    plain = {"sm_active_ratio": none, "tensor_active_ratio": none, "nvlink_bytes_per_s": none, "tokens_per_j": none}
    no_engine = {"mfu_ratio": Missing(Reason.NO_ENGINE), "mbu_ratio": Missing(Reason.NO_ENGINE), "engines": ()}
    gpus = (
        gpu(0, name="NVIDIA A100-SXM4-80GB", bandwidth_source=BandwidthSource.ENGINE, **plain),
        gpu(1, name="NVIDIA A100-SXM4-80GB", bandwidth_source=BandwidthSource.UPPER_BOUND, **plain | no_engine),
        gpu(2, name="NVIDIA L4", throttle=("sw_power_cap",), power_w=71.6, power_limit_w=72.0, **plain | no_engine),
        gpu(3, name="NVIDIA GB10", vram_shared=True, vram_total_bytes=119.7 * GIB, power_limit_w=none, **plain),
        gpu(4, throttle=("hw_thermal_slowdown", "sw_power_cap"), temperature_c=91.0),
        gpu(5, xid=(31, 79)),
        gpu(6, ecc_uncorrected=3.0),
        gpu(7, remap_pending=1.0),
        gpu(
            8,
            mig_profile="1g.10gb",
            parent_uuid="GPU-1",
            mfu_ratio=Missing(Reason.UNDER_MIG),
            mbu_ratio=Missing(Reason.UNDER_MIG),
        ),
        gpu(9, mfu_ratio=WARMING_UP, mbu_ratio=WARMING_UP, busy_ratio=0.004, sm_active_ratio=0.0, vram_used_bytes=0.0),
        dead_gpu(10, GpuState.RESET_REQUIRED, 3.0, LOST),
        dead_gpu(11, GpuState.NO_PERMISSION, 3.0, Missing(Reason.NO_PERMISSION)),
    )
    engines = (
        engine(0, mfu_ratio=Missing(Reason.NO_GPU), mbu_ratio=Missing(Reason.NO_GPU), gpus=()),
        engine(1, mbu_ratio=Missing(Reason.NO_CONTEXT), ttft_s=Quantiles(p95=Missing(Reason.FEW), mean=0.21)),
        engine(2, itl_s=Quantiles(p95=0.004, mean=0.003, first_bound_s=0.01), prefill_tokens_per_s=0.0, running=0.0),
        engine(3, state=EndpointState.STARTING),
    )
    return replace(snapshot(), gpus=gpus, engines=engines)


def _engines_only() -> Snapshot:
    """GPUs are not read: everything is from the engines, of peaks that stand on one source."""
    of = snapshot(gpus=0)
    engines = tuple(replace(each, peak_unverified=True, bandwidth_peak_unverified=True) for each in of.engines)
    none = dict.fromkeys(("mfu_ratio", "mbu_ratio"), Missing(Reason.NO_GPU))
    return replace(of, engines=(*engines[:2], replace(engines[2], **none)))


def _hostile() -> Snapshot:
    of = snapshot(engines=0)
    names = (
        "[bold red]x[/]:8000",
        "日本語のとても長いエンジン名:8000",
        "x" * 200,
        "e\u0301e\u0301e\u0301:1",
        "\\x1b[31mred",
    )
    engines = tuple(
        engine(at, name=name, model=f"[link=file:///]{name}/{'模型' * 40}", version="v" * 99)
        for at, name in enumerate(names)
    )
    processes = tuple(
        GpuProcess(
            1 + at, name, f"[u]{name}", GIB, f"docker {name}", engine=name, command=f"{name} --key=[/]{'語' * 90}"
        )
        for at, name in enumerate(names)
    )
    gpus = tuple(
        replace(each, name="[b]" + "N" * 300, engines=names, processes=processes if each.reading.index < 3 else ())
        for each in of.gpus
    )
    fault = FaultShown("[red]" * 20, "text " * 100 + "終", "not a time")
    return replace(of, gpus=gpus, engines=engines, faults=(fault,), host=replace(of.host, name="ホスト" * 40))


SCENES: dict[str, Callable[[], Snapshot]] = {
    "live": _live,
    "empty": lambda: snapshot(0, 0),
    "one_lost": _one_lost,
    "stale": _stale,
    "engines_down": _engines_down,
    "unauthorised": _unauthorised,
    "one_gpu": lambda: replace(snapshot(0, 0), gpus=(gpu(0, engines=(), processes=(), **NO_ENGINE),)),
    "wasted": _wasted,
    "triage": _triage,
    "crowded": _crowded,
    "over_100": _over,
    "other_kinds": _other_kinds,
    "sixteen_gpus": lambda: snapshot(16, 3),
    "twelve_engines": lambda: snapshot(8, 12),
    "hostile": _hostile,
    "engines_only": _engines_only,
    "simulated": lambda: snapshot(simulated=True, host=replace(snapshot().host, name="demo")),
}
