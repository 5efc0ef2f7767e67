"""An engine's page: MFU, MBU and energy, each as a formula with the numbers put in."""

from __future__ import annotations

from typing import Final

from gpumon.efficiency.service import Service
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.snapshot import Engine
from gpumon.tui.detail import values
from gpumon.tui.detail.blocks import DERIVED, ESTIMATED, MEASURED, Entry, Figures, Section, Sentence
from gpumon.tui.detail.values import known, said
from gpumon.tui.detail.values import percent as pct

_COUNTED: Final = {Service.GENERATION: "decode tokens only; ", Service.TRAINING: "trained tokens; "}
_SAME: Final = 0.01
"""Relative difference up to which a product is taken to be what it should be."""
_SINGLE: Final = 1.05
"""Sequences per step up to which there is one stream."""
_SPARSE: Final = 0.9
"""Of all weights: a step that reads less leaves experts out."""


def utilisation(engine: Engine, service: Service, figures: Figures) -> list[Section]:
    """MFU and MBU; of a model that is no LLM just why there are none."""
    if service is not Service.OTHER:
        return [_mfu_section(engine, figures), _mbu_section(engine, service, figures)]
    none = (
        figures("MFU", engine.efficiency.mfu_ratio, pct, "mfu_ratio"),
        figures("MBU", engine.efficiency.mbu_ratio, pct, "mbu_ratio"),
    )
    return [Section("MFU, MBU", none, side=1)]


def _mfu_section(engine: Engine, figures: Figures) -> Section:
    """Model FLOPs utilisation: what the tokens needed, of what the GPUs can do."""
    write = values.flops
    entries: list[Entry] = [
        figures("MFU", engine.efficiency.mfu_ratio, pct, "mfu_ratio", DERIVED, _mfu(engine), "mfu"),
        figures("MFU of prefill", engine.efficiency.mfu_prefill_ratio, pct, "mfu_prefill_ratio", DERIVED),
        figures("MFU of decode", engine.efficiency.mfu_decode_ratio, pct, "mfu_decode_ratio", DERIVED),
        figures("FLOP/s", engine.efficiency.flops_per_s, write, "flops_per_s", DERIVED, _trained(engine)),
        figures(
            "prefill FLOP/s",
            engine.efficiency.prefill_flops_per_s,
            write,
            "prefill_flops_per_s",
            DERIVED,
            _prefill(engine),
        ),
        figures(
            "decode FLOP/s", engine.efficiency.decode_flops_per_s, write, "decode_flops_per_s", DERIVED, _decode(engine)
        ),
        figures(
            "FLOPs per token",
            engine.efficiency.flops_per_decode_token,
            values.flop,
            "flops_per_decode_token",
            DERIVED,
            _token(engine),
        ),
        figures(
            "peak FLOP/s", engine.efficiency.peak_flops_per_s, write, "peak_flops_per_s", ESTIMATED, _peak_flops(engine)
        ),
    ]
    if _above(engine.efficiency.mfu_ratio):
        text = "! above 100 %: the dimensions of the model or the peak are wrong, or it runs on more GPUs than these"
        entries.append(Sentence(text, "warn"))
    if engine.efficiency.peak_unverified:
        entries.append(Sentence("? the peak is derived, assumed, or stands on one source only"))
    return Section("MFU: arithmetic", entries, side=1)


def _mfu(engine: Engine) -> str:
    whole = known(engine.efficiency.flops_per_s, engine.efficiency.peak_flops_per_s)
    if whole is None:
        return ""
    done, most = said(values.flops(whole[0])), _peak_flops(engine)
    if (parts := known(engine.efficiency.prefill_flops_per_s, engine.efficiency.decode_flops_per_s)) is None:
        return f"{done} / ({most})"
    prefill, decode = parts
    return f"(prefill {said(values.flops(prefill))} + decode {said(values.flops(decode))}) / ({most})"


def _trained(engine: Engine) -> str:
    """What a training run does: tokens x FLOPs of one, forward and backward."""
    parts = known(engine.rates.trained_tokens_per_s, engine.efficiency.flops_per_s)
    if parts is None or parts[0] <= 0.0:
        return ""
    return f"{said(values.token_rate(parts[0]))} x {said(values.flop(parts[1] / parts[0]))} per token"


def _of_gpus(engine: Engine, peak: float, write: values.Write, after: str = "") -> str:
    """A sum over GPUs as number x peak of one; the sum itself where the number is not known."""
    count = known(engine.hardware.gpu_count)
    if count is None or count[0] <= 0.0:
        return f"{said(write(peak))}{after}"
    return f"{count[0]:.0f} x {said(write(peak / count[0]))}{after}"


def _prefill(engine: Engine) -> str:
    parts = known(engine.rates.prefill_tokens_per_s, engine.efficiency.prefill_flops_per_s)
    if parts is None or parts[0] <= 0.0:
        return ""
    return f"{said(values.token_rate(parts[0]))} x {said(values.flop(parts[1] / parts[0]))} per token on average"


def _decode(engine: Engine) -> str:
    parts = known(engine.rates.decode_tokens_per_s, engine.efficiency.flops_per_decode_token)
    return "" if parts is None else f"{said(values.token_rate(parts[0]))} x {said(values.flop(parts[1]))}"


def _token(engine: Engine) -> str:
    parts = known(engine.efficiency.flops_per_decode_token, engine.dimensions.active_params, engine.load.context_tokens)
    if parts is None:
        return ""
    whole, active, context = parts
    attention = said(values.flop(max(0.0, whole - 2.0 * active)))
    return f"2 x {said(values.parameters(active))} + {attention} attention over {context:,.0f} tokens"


def _peak_flops(engine: Engine) -> str:
    peak = known(engine.efficiency.peak_flops_per_s)
    after = f" {engine.efficiency.precision} dense" if engine.efficiency.precision else ""
    return "" if peak is None else _of_gpus(engine, peak[0], values.flops, after)


def _mbu_section(engine: Engine, service: Service, figures: Figures) -> Section:
    """Memory bandwidth utilisation: what the steps must read, of what the memory can deliver."""
    write = values.traffic
    steps = ESTIMATED if engine.sources.get("steps_per_s", "").startswith("estimated") else DERIVED
    share = figures("MBU", engine.efficiency.mbu_ratio, pct, "mbu_ratio", steps, _mbu(engine), "mbu")
    if service is not Service.GENERATION:
        return Section("MBU: memory bandwidth", [share], side=1)
    entries: list[Entry] = [
        share,
        figures("all B/s", engine.efficiency.bytes_per_s, write, "bytes_per_s", steps),
        figures(
            "weights B/s", engine.efficiency.weight_bytes_per_s, write, "weight_bytes_per_s", steps, _weights(engine)
        ),
        figures("KV cache B/s", engine.efficiency.kv_bytes_per_s, write, "kv_bytes_per_s", steps, _kv(engine)),
        figures("weights of a step", engine.efficiency.weight_bytes, values.size, "weight_bytes", DERIVED),
        figures("KV of a token", engine.dimensions.kv_bytes_per_token, values.size, "kv_bytes_per_token", DERIVED),
        figures(
            "peak B/s",
            engine.efficiency.peak_bandwidth_bytes_per_s,
            write,
            "peak_bandwidth_bytes_per_s",
            _basis_of_peak(engine),
            _peak(engine),
        ),
    ]
    if _above(engine.efficiency.mbu_ratio):
        text = "! above 100 %: steps, the bytes of the model or the peak are wrong, or it runs on more GPUs than these"
        entries.append(Sentence(text, "warn"))
    if engine.efficiency.bandwidth_peak_unverified:
        entries.append(Sentence("? the peak is derived, or stands on one source only"))
    entries += _single_stream(engine, figures)
    return Section("MBU: memory bandwidth", entries, side=1)


def _basis_of_peak(engine: Engine) -> str:
    """Where the bandwidth peaks come from, without what the driver's clock is compared with."""
    source = engine.sources.get("peak_bandwidth_bytes_per_s", "").partition(" from ")[0]
    return ESTIMATED if "catalogue" in source or "config" in source else DERIVED


def _mbu(engine: Engine) -> str:
    parts = known(
        engine.efficiency.weight_bytes_per_s,
        engine.efficiency.kv_bytes_per_s,
        engine.efficiency.peak_bandwidth_bytes_per_s,
    )
    if parts is None:
        return ""
    weights, kv, peak = parts
    whole = _of_gpus(engine, peak, values.traffic)
    return f"(weights {said(values.traffic(weights))} + KV {said(values.traffic(kv))}) / ({whole})"


def _weights(engine: Engine) -> str:
    parts = known(engine.rates.steps_per_s, engine.efficiency.weight_bytes)
    return "" if parts is None else f"{said(values.rate(parts[0]))} x {said(values.size(parts[1]))}"


def _kv(engine: Engine) -> str:
    """Sequences x steps x context x bytes of a token; with the factor by which that is not the whole story."""
    parts = known(
        engine.efficiency.kv_bytes_per_s,
        engine.rates.batch,
        engine.rates.steps_per_s,
        engine.load.context_tokens,
        engine.dimensions.kv_bytes_per_token,
    )
    if parts is None:
        return ""
    whole, batch, steps, context, token = parts
    formula = (
        f"{batch:,.1f} sequences x {said(values.rate(steps))} x {context:,.0f} tokens x {said(values.size(token))}"
    )
    product = batch * steps * context * token
    if product <= 0.0 or abs(whole / product - 1.0) <= _SAME:
        return formula
    factor = whole / product
    why = "copies on the ranks, or the state of linear layers" if factor > 1.0 else "layers with a window read less"
    return f"{formula} x {factor:.3f} ({why})"


def _peak(engine: Engine) -> str:
    peak = known(engine.efficiency.peak_bandwidth_bytes_per_s)
    return "" if peak is None else _of_gpus(engine, peak[0], values.traffic)


def _single_stream(engine: Engine, figures: Figures) -> list[Entry]:
    """The textbook form beside MBU while it holds: sequences of one step share a read of the weights."""
    single, batch = engine.efficiency.mbu_single_stream_ratio, known(engine.rates.batch)
    if batch is not None and batch[0] > _SINGLE:
        return []
    formula, all_bytes = "", 0.0
    parts = known(
        single, engine.dimensions.params, engine.rates.decode_tokens_per_s, engine.efficiency.peak_bandwidth_bytes_per_s
    )
    if parts is not None and parts[1] > 0.0 and parts[2] > 0.0:
        ratio, params, decode, peak = parts
        all_bytes = ratio * peak / decode
        formula = (
            f"{said(values.parameters(params))} x {all_bytes / params:.3f} bytes x {said(values.token_rate(decode))} / "
            f"({_of_gpus(engine, peak, values.traffic)})"
        )
    row = figures("single-stream form", single, values.percent, "mbu_single_stream_ratio", ESTIMATED, formula)
    entries: list[Entry] = [row._replace(unit=row.unit.rstrip("!"), tone="muted")]
    factor = known(single, engine.efficiency.mbu_ratio)
    if factor is not None and factor[1] > 0.0:
        entries.append(Sentence(_beside(engine, factor[0] / factor[1], all_bytes)))
    holds = "exact for one stream of a dense model, without speculation and with a short context"
    entries.append(Sentence(f"the single-stream form is {holds}; MBU by steps holds at any batch"))
    return entries


def _beside(engine: Engine, factor: float, all_bytes: float) -> str:
    """How the textbook form differs from MBU, and why: experts that are not read make it more, the KV cache less."""
    text = f"{factor:.2f} times MBU"
    if factor < 1.0:
        parts = known(engine.efficiency.kv_bytes_per_s, engine.efficiency.bytes_per_s)
        if parts is None or parts[1] <= 0.0 or parts[0] <= 0.0:
            return text
        share = said(values.percent(parts[0] / parts[1]))
        return f"{text}: the textbook form leaves out the KV cache, here {share} of all that is read"
    batch, weights = known(engine.rates.batch), known(engine.efficiency.weight_bytes)
    sparse = batch is not None and weights is not None and weights[0] < _SPARSE * all_bytes
    return f"{text}, as a step reads only the experts that it needs" if sparse else text


def power(engine: Engine, service: Service, figures: Figures) -> Section:
    """Energy: what a joule of its GPUs gives."""
    tokens = engine.rates.trained_tokens_per_s if service is Service.TRAINING else engine.rates.decode_tokens_per_s
    entries: list[Entry] = [
        figures("power", engine.hardware.power_w, values.watts, "power_w", MEASURED),
        figures(
            "tokens per joule",
            engine.efficiency.tokens_per_j,
            values.tokens_per_joule,
            "tokens_per_j",
            DERIVED,
            _per(tokens, values.token_rate, engine.hardware.power_w),
        ),
        figures(
            "FLOPs per joule",
            engine.efficiency.flops_per_j,
            values.flops_per_joule,
            "flops_per_j",
            DERIVED,
            _per(engine.efficiency.flops_per_s, values.flops, engine.hardware.power_w),
        ),
        Sentence(f"{_COUNTED.get(service, '')}power of its GPUs only: CPU, fans and power supplies come on top"),
    ]
    return Section("energy", entries, side=1)


def _per(part: Reading, write: values.Write, power_w: Reading) -> str:
    numbers = known(part, power_w)
    return "" if numbers is None else f"{said(write(numbers[0]))} / {said(values.watts(numbers[1]))}"


def _above(ratio: Reading) -> bool:
    return not isinstance(ratio, Missing) and ratio > 1.0
