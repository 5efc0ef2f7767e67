"""What a detail view prints the arithmetic from: an engine's inputs by hand, throttle time, processes, sources."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from gpumon.config import schema
from gpumon.efficiency.deriver import Derived, Deriver
from gpumon.readings import quantities as q
from gpumon.readings.flat import flat_fields, value_of
from gpumon.readings.frame import EndpointState, GpuProcess, GpuState
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.snapshot import BandwidthSource, Engine, Gpu
from gpumon.sources.packaged import gpu_catalogue
from gpumon.specs.precision import Precision
from tests.efficiency.small_llm import SMALL
from tests.efficiency.test_deriver import H100_BANDWIDTH, H100_FLOPS, LLAMA_8B, engine, frame, gpu
from tests.records import replace


@dataclasses.dataclass
class Batch:
    """Polls of one engine on two GPUs: 4 sequences of 1000 tokens in 100 steps a second."""

    decode: float = 400.0
    steps: float = 100.0
    card: str = "NVIDIA H100 80GB HBM3"

    def after(self, deriver: Deriver, seconds: int = 14, **facts: object) -> Derived:
        for at in range(0, seconds, 2):
            counters = {q.DECODE_TOKENS: self.decode * at, q.STEPS: self.steps * at, q.PREFILL_COMPUTED: 0.0}
            polled = engine(float(at), counters, gpus=("GPU-0", "GPU-1"), **{"llm": SMALL, **facts})
            cards = tuple(replace(gpu(index, float(at)), name=self.card) for index in range(2))
            found = deriver.derive(frame(at, cards, (polled,)))
        return found


@pytest.fixture
def deriver() -> Deriver:
    return Deriver(gpu_catalogue())


def number(reading: Reading) -> float:
    assert not isinstance(reading, Missing), reading
    return reading


def reason(reading: Reading) -> Reason | None:
    return reading.reason if isinstance(reading, Missing) else None


def test_the_inputs_of_mfu_and_mbu_by_hand(deriver: Deriver) -> None:
    shown = Batch().after(deriver).snapshot.engines[0]
    # Per position 4 heads x 8 wide, twice 2 FLOPs; three layers see 1000 tokens, two see their window of 100.
    per_token = 2 * 1000 + 4 * 4 * 8 * (3 * 1000 + 2 * 100)
    # Keys and values of 2 KV heads, 8 wide, 2 bytes each; five layers hold them, and read as much as they see.
    kv_read = 2 * 2 * 8 * 2 * (3 * 1000 + 2 * 100)
    assert {
        "gpu_count": shown.hardware.gpu_count,
        "power_w": shown.hardware.power_w,
        "params": shown.dimensions.params,
        "active_params": shown.dimensions.active_params,
        "layers": shown.dimensions.layers,
        "batch": shown.rates.batch,
        "flops_per_decode_token": shown.efficiency.flops_per_decode_token,
        "decode_flops_per_s": shown.efficiency.decode_flops_per_s,
        "prefill_flops_per_s": shown.efficiency.prefill_flops_per_s,
        "peak_flops_per_s": shown.efficiency.peak_flops_per_s,
        "weight_bytes": shown.efficiency.weight_bytes,
        "weight_bytes_per_s": shown.efficiency.weight_bytes_per_s,
        "kv_bytes_per_token": shown.dimensions.kv_bytes_per_token,
        "kv_bytes_per_s": shown.efficiency.kv_bytes_per_s,
        "peak_bandwidth_bytes_per_s": shown.efficiency.peak_bandwidth_bytes_per_s,
        "kv_pool_tokens": shown.load.kv_pool_tokens,
    } == pytest.approx(
        {
            "gpu_count": 2.0,
            "power_w": 1000.0,
            "params": 1200.0,
            "active_params": 1000.0,
            "layers": 5.0,
            "batch": 4.0,
            "flops_per_decode_token": per_token,
            "decode_flops_per_s": 400 * per_token,
            "prefill_flops_per_s": 0.0,
            "peak_flops_per_s": 2 * H100_FLOPS,
            "weight_bytes": 2000.0,
            "weight_bytes_per_s": 200_000.0,
            "kv_bytes_per_token": 2 * 2 * 8 * 2 * 5,
            "kv_bytes_per_s": 400 * kv_read,
            "peak_bandwidth_bytes_per_s": 2 * H100_BANDWIDTH,
            "kv_pool_tokens": 100_000.0,
        },
        rel=0.002,
    )
    assert (shown.dimensions.weight_precision, shown.dimensions.kv_precision) == ("bf16", "bf16")


def test_an_fp8_cache_halves_a_tokens_bytes(deriver: Deriver) -> None:
    shown = Batch().after(deriver, info={"cache_dtype": "fp8_e4m3"}).snapshot.engines[0]
    assert (shown.dimensions.kv_precision, shown.dimensions.kv_bytes_per_token) == ("fp8", 160.0)


def test_without_a_model_the_rates_stay_and_the_model_is_unknown(deriver: Deriver) -> None:
    shown = Batch().after(deriver, llm=None).snapshot.engines[0]
    assert shown.rates.batch == pytest.approx(4.0)
    assert number(shown.efficiency.peak_bandwidth_bytes_per_s) == pytest.approx(2 * H100_BANDWIDTH)
    for field in ("params", "layers", "weight_bytes", "kv_bytes_per_token", "peak_flops_per_s", "decode_flops_per_s"):
        assert reason(value_of(shown, field)) is Reason.UNKNOWN_MODEL, field
    assert shown.dimensions.weight_precision == shown.dimensions.kv_precision == ""


def test_blocks_that_layers_of_several_kinds_share_are_no_tokens(deriver: Deriver) -> None:
    live = {q.POOL_TOKENS: f"vllm:cache_config_info {q.BLOCK_PRODUCT}"}
    assert reason(Batch().after(deriver, live=live).snapshot.engines[0].load.kv_pool_tokens) is Reason.NOT_MODELLED
    assert (
        Batch().after(Deriver(gpu_catalogue()), live=live, llm=LLAMA_8B).snapshot.engines[0].load.kv_pool_tokens == 1e5
    )


def test_an_engine_that_is_down_keeps_its_model_and_says_since_when(deriver: Deriver) -> None:
    def look(at: int, state: EndpointState) -> Engine:
        polled = engine(float(at), {q.DECODE_TOKENS: 1.0}, llm=SMALL, gpus=("GPU-0", "GPU-1"))
        polled = replace(polled, state=state)
        return deriver.derive(frame(at, (gpu(0, float(at)), gpu(1, float(at))), (polled,))).snapshot.engines[0]

    assert look(0, EndpointState.OK).since == "2001-09-09T01:46:40.000Z"
    assert look(2, EndpointState.OK).since == "2001-09-09T01:46:40.000Z"
    down = look(4, EndpointState.REFUSED)
    assert (down.since, look(6, EndpointState.REFUSED).since) == ("2001-09-09T01:46:44.000Z",) * 2
    assert (down.dimensions.params, down.dimensions.layers, down.hardware.gpu_count) == (1200.0, 5.0, 2.0)
    for field in ("batch", "weight_bytes", "peak_flops_per_s", "kv_pool_tokens", "power_w"):
        assert reason(value_of(down, field)) is Reason.UNREACHABLE, field
    assert look(8, EndpointState.OK).since == "2001-09-09T01:46:48.000Z"


# GPUs.


def throttled(deriver: Deriver, at_s: float, state: GpuState = GpuState.OK, **counted_s: float) -> dict[str, float]:
    reading = replace(gpu(0, at_s, throttle_s=counted_s), state=state)
    return deriver.derive(frame(int(at_s), (reading,))).snapshot.gpus[0].throttle_s


def test_throttle_time_is_the_growth_of_the_drivers_counters(deriver: Deriver) -> None:
    assert throttled(deriver, 0.0, sw_power_cap=5000.0, sync_boost=7.0) == {"sw_power_cap": 0.0, "sync_boost": 0.0}
    assert throttled(deriver, 4.0, sw_power_cap=5003.5, sync_boost=7.0) == {"sw_power_cap": 3.5, "sync_boost": 0.0}
    assert throttled(deriver, 5.0, sw_power_cap=5003.5, sync_boost=7.0) == {"sw_power_cap": 3.5, "sync_boost": 0.0}


@pytest.mark.parametrize("strange_s", [12.0, 0.0, 1.8e10, 5100.0])
def test_a_counter_that_fell_or_outran_the_clock_is_a_new_base_line(deriver: Deriver, strange_s: float) -> None:
    throttled(deriver, 0.0, sw_power_cap=5000.0)
    throttled(deriver, 4.0, sw_power_cap=5002.0)
    assert throttled(deriver, 8.0, sw_power_cap=strange_s) == {"sw_power_cap": 2.0}
    assert throttled(deriver, 12.0, sw_power_cap=strange_s + 1.0) == {"sw_power_cap": 3.0}


def test_the_flops_peak_is_that_of_the_engines_arithmetic(deriver: Deriver) -> None:
    fp8 = replace(SMALL, precision=Precision.FP8)
    shown = Batch().after(deriver, llm=fp8).snapshot
    assert (shown.gpus[0].flops_peak_per_s, shown.gpus[0].flops_peak_precision) == (1978.9e12, "fp8")
    assert "fp8" in shown.gpus[0].sources["flops_peak_per_s"]
    other = engine(14.0, {q.DECODE_TOKENS: 0.0}, llm=SMALL, gpus=("GPU-0",))
    both = (engine(14.0, {}, llm=fp8), replace(other, url="http://127.0.0.1:9000"))
    mixed = deriver.derive(frame(14, (gpu(0, 14.0), gpu(1, 14.0)), both)).snapshot.gpus
    assert reason(mixed[0].flops_peak_per_s) is Reason.NOT_MODELLED
    assert mixed[0].flops_peak_precision == "bf16+fp8"
    assert reason(mixed[1].flops_peak_per_s) is Reason.NO_ENGINE
    unknown = (engine(15.0, {}, llm=None),)
    assert reason(deriver.derive(frame(15, (gpu(0, 15.0),), unknown)).snapshot.gpus[0].flops_peak_per_s) is (
        Reason.UNKNOWN_MODEL
    )
    part = replace(gpu(0, 16.0), parent_uuid="GPU-1")
    assert reason(deriver.derive(frame(16, (part,), unknown)).snapshot.gpus[0].flops_peak_per_s) is Reason.UNDER_MIG


def test_the_share_of_the_peak_that_can_be_had_stands_beside_it_and_changes_no_figure(deriver: Deriver) -> None:
    fp8 = replace(SMALL, precision=Precision.FP8)
    shown = Batch().after(deriver, llm=fp8).snapshot
    assert number(shown.gpus[0].achievable_ratio) == pytest.approx(1402.6 / 1978.9)
    assert "stas00/ml-engineering" in shown.gpus[0].sources["achievable_ratio"]
    done = number(shown.engines[0].efficiency.flops_per_s)
    assert number(shown.engines[0].efficiency.mfu_ratio) == pytest.approx(done / (2 * 1978.9e12)), (
        "against the whole peak"
    )
    alone = deriver.derive(frame(15, (gpu(0, 15.0),))).snapshot.gpus[0]
    assert reason(alone.achievable_ratio) is Reason.NO_ENGINE
    fp16 = replace(SMALL, precision=Precision.FP16)
    half = deriver.derive(frame(16, (gpu(0, 16.0),), (engine(16.0, {}, llm=fp16, gpus=("GPU-0",)),))).snapshot.gpus[0]
    assert half.flops_peak_per_s == 989.4e12
    assert reason(half.achievable_ratio) is Reason.UNKNOWN_GPU, "measured in BF16 and FP8 only"
    assert not half.sources["achievable_ratio"]


def test_an_export_variant_has_no_mfu_until_the_config_tells_its_peaks() -> None:
    name = "NVIDIA H20 NVL16"
    batch, fp8 = Batch(card=name), replace(SMALL, precision=Precision.FP8)
    silent = batch.after(Deriver(gpu_catalogue()), llm=fp8).snapshot
    assert reason(silent.engines[0].efficiency.mfu_ratio) is Reason.UNKNOWN_GPU
    assert number(silent.engines[0].efficiency.mbu_ratio) > 0.0, "the driver tells the bandwidth"
    told = batch.after(Deriver(gpu_catalogue((schema.Gpu(name, fp8_tflops=296.0),))), llm=fp8).snapshot
    assert number(told.engines[0].efficiency.mfu_ratio) == pytest.approx(
        number(told.engines[0].efficiency.flops_per_s) / (2 * 296e12)
    )
    assert told.gpus[0].peak_source.startswith("config (unverified)")
    assert told.gpus[0].gpu_type == "H20 NVL16"


def test_processes_are_safe_and_the_same_objects_while_nothing_changes(deriver: Deriver) -> None:
    wild = GpuProcess(7, "a", "u", 1.0, "c" * 99, 0.5, "mps", "e", "x\x1b[2J" + "y" * 600, "p\u202e")
    first = deriver.derive(frame(0, (gpu(processes=(wild,)),))).snapshot.gpus[0].processes
    (shown,) = first
    assert (shown.pid, shown.sm_ratio, shown.type, shown.engine, shown.pod) == (7, 0.5, "mps", "e", "p\\u202e")
    assert shown.command.startswith("x\\x1b[2Jyyy")
    assert (len(shown.command), len(shown.container)) == (512, 64)
    again = deriver.derive(frame(1, (gpu(at_s=1.0, processes=(replace(wild),)),))).snapshot.gpus[0]
    assert again.processes is first
    renamed = replace(wild, command="z")
    changed = deriver.derive(frame(2, (gpu(at_s=2.0, processes=(renamed,)),))).snapshot.gpus[0].processes
    assert changed[0].command == "z"


# Sources.

_NO_SOURCE = frozenset({"age_s", "index", "samples_per_s", "trained_tokens_per_s"})


def _figures(kind: type[msgspec.Struct]) -> set[str]:
    return {name for name, (_, field) in flat_fields(kind).items() if field.type == Reading} - _NO_SOURCE


def test_every_figure_of_a_gpu_names_its_source(deriver: Deriver) -> None:
    shown = Batch().after(deriver).snapshot.gpus[0]
    assert _figures(Gpu) - {field for field, text in shown.sources.items() if text} == set()
    assert set(shown.sources) <= set(Gpu.__struct_fields__)
    assert shown.bandwidth_source is BandwidthSource.ENGINE
    assert shown.sources["bandwidth_bytes_per_s"].startswith("modelled")
    assert shown.sources["power_w"] == "nvmlDeviceGetPowerUsage"
    assert "field 138" in shown.sources["nvlink_tx_bytes_per_s"]


def test_every_figure_of_an_engine_names_its_source(deriver: Deriver) -> None:
    names = (q.RUNNING, q.WAITING, q.KV_USAGE, q.POOL_TOKENS, q.DECODE_TOKENS, q.PREFILL_COMPUTED, q.PREFILL_CACHED)
    others = (q.ITL, q.PROMPT_LENGTH, q.OUTPUT_LENGTH, q.REQUESTS, q.PREEMPTIONS, q.FAILURES, q.INFERENCES, q.STEPS)
    more = (q.REJECTIONS, q.WAITING_DEFERRED, q.ROUTER_QUEUE, q.KV_STORED_BYTES, q.KV_LOADED_BYTES)
    between = (q.KV_TRANSFERRED_BYTES, q.KV_TRANSFER_FAILURES, q.ABORTS)
    live = dict.fromkeys((*names, *others, *more, *between), "vllm:metric")
    shown = Batch().after(deriver, live=live).snapshot.engines[0]
    told_elsewhere = {"params", "layers", "gpu_count"}
    assert _figures(Engine) - told_elsewhere - {field for field, text in shown.sources.items() if text} == set()
    assert set(shown.sources) <= flat_fields(Engine).keys()
