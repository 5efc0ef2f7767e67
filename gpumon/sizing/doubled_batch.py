"""An engine at twice its batch, by the formulas of sizing: what its steps would then compute, and read."""

from __future__ import annotations

from typing import Final, NamedTuple

from gpumon.efficiency.traffic import weight_read_bytes
from gpumon.readings.missing import number
from gpumon.readings.snapshot import Engine
from gpumon.sizing.latency import NO_SPECULATION, Mix, Speculation
from gpumon.sizing.roofline import InstanceSetting, roofline
from gpumon.specs.gpu import GpuSpec
from gpumon.specs.llm import LlmSpec

_TIMES: Final = 2.0


class DoubledBatch(NamedTuple):
    """An estimate of an engine with twice the sequences in each step, of the same lengths."""

    sequences: float
    """Sequences of a step then, all ranks."""
    tokens_ratio: float
    """Times the tokens/s of now."""
    mfu_ratio: float
    mbu_ratio: float
    kv_room: float | None
    """Times the batch of now that its KV cache holds; None where that is not known."""


def doubled_batch(engine: Engine, gpu: GpuSpec) -> DoubledBatch | str:
    """The engine at twice its batch; or why that is not known.

    Steps become as much longer as the roofline of sizing says, or longer where that would take more than a peak;
    tokens, prompts and reads of the KV cache follow the tokens/s, and reads of weights the steps.
    """
    rates = engine.rates
    efficiency = engine.efficiency
    batch = number(rates.batch)
    llm = engine.dimensions.llm
    mfu = number(efficiency.mfu_ratio)
    mbu = number(efficiency.mbu_ratio)
    weights_per_s = number(efficiency.weight_bytes_per_s)
    kv_per_s = number(efficiency.kv_bytes_per_s)
    if llm is None:
        return "the dimensions of its model are not known"
    if not batch or not mfu or not mbu:
        return "nothing is decoded"
    if not weights_per_s or kv_per_s is None:
        return "what its steps read is not known"
    sequences = batch * max(1, engine.hardware.ranks)
    setting = _setting_of(engine, llm, gpu)
    if isinstance(setting, str):
        return setting
    try:
        curve = roofline(setting)
        step_ratio = curve.itl_s(_TIMES * sequences) / curve.itl_s(sequences)
        tokens_per_step = setting.speculation.verified * batch
        read_ratio = weight_read_bytes(llm, _TIMES * tokens_per_step) / weight_read_bytes(llm, tokens_per_step)
    except ValueError as wrong:
        return str(wrong)
    tokens_ratio = _TIMES / step_ratio
    bytes_ratio = (weights_per_s * read_ratio / step_ratio + kv_per_s * tokens_ratio) / (weights_per_s + kv_per_s)
    # No share of a peak ends above 1, or above what it is now: that is of a wrong peak.
    slower = max(1.0, mfu * tokens_ratio / max(1.0, mfu), mbu * bytes_ratio / max(1.0, mbu))
    usage = number(engine.load.kv_usage_ratio)
    return DoubledBatch(
        sequences=_TIMES * sequences,
        tokens_ratio=tokens_ratio / slower,
        mfu_ratio=mfu * tokens_ratio / slower,
        mbu_ratio=mbu * bytes_ratio / slower,
        kv_room=1.0 / usage if usage else None,
    )


def _setting_of(engine: Engine, llm: LlmSpec, gpu: GpuSpec) -> InstanceSetting | str:
    """The engine as the roofline formulas take it; or why that is not known."""
    hardware = engine.hardware
    load = engine.load
    prompt = number(load.prompt_tokens_mean)
    answer = number(load.answer_tokens_mean)
    if prompt is None or not answer:
        return "the lengths of its requests are not known"
    gpus = round(number(hardware.gpu_count) or len(hardware.gpus))
    ranks = max(1, hardware.ranks)
    pp = max(1, hardware.pp)
    tp = hardware.tp or gpus // (ranks * pp)
    expert_gpus = gpus if ranks > 1 else 0
    try:
        mix = Mix(prompt, answer, number(load.cached_ratio) or 0.0)
        return InstanceSetting(llm, gpu, gpus, tp, mix, expert_gpus, _speculation_of(engine), pp)
    except ValueError as wrong:
        return str(wrong)


def _speculation_of(engine: Engine) -> Speculation:
    """The speculation of an engine; none where its drafts are not known."""
    per_step = number(engine.rates.tokens_per_step)
    acceptance = number(engine.rates.acceptance_ratio)
    if per_step is None or per_step <= 1.0 or not acceptance:
        return NO_SPECULATION
    accepted = per_step - 1.0
    return Speculation(max(accepted, accepted / acceptance), accepted)
