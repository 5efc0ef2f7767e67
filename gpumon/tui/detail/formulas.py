"""MFU and MBU of an engine as formulas with the numbers put in, down to the tokens and the bytes of a step."""

from __future__ import annotations

from typing import Final

from gpumon.efficiency.service import Service
from gpumon.readings.missing import Reading
from gpumon.readings.snapshot import Engine
from gpumon.tui.detail import values
from gpumon.tui.detail.blocks import DERIVED, ESTIMATED, Entry, FigureMaker, Section, Sentence
from gpumon.tui.detail.values import figure_text, formula_text, is_above_one, known_number, known_numbers

_NEARLY_EQUAL: Final = 0.01
"""Relative difference up to which a product counts as the figure that it stands under."""
_SINGLE_STREAM_BATCH: Final = 1.05
"""Mean sequences per step up to which there is one stream, and the single-stream form of MBU holds."""
_SPARSE_SHARE: Final = 0.9
"""Share of all weights: a step that reads less leaves experts out."""


UNVERIFIED_BANDWIDTH: Final = Sentence("? the peak is derived, or rests on one source only")
"""Remark on a peak bandwidth that is not verified."""


def mfu_section(engine: Engine, figures: FigureMaker) -> Section:
    """Model FLOPs utilisation: what the tokens needed, of what the GPUs can do."""
    efficiency = engine.efficiency
    rates = engine.rates
    trained = _per_token_formula(rates.trained_tokens_per_s, efficiency.flops_per_s, "per token")
    prefill = _per_token_formula(rates.prefill_tokens_per_s, efficiency.prefill_flops_per_s, "per token on average")
    decode = formula_text(
        "{} x {}",
        (rates.decode_tokens_per_s, values.token_rate),
        (efficiency.flops_per_decode_token, values.flop_count),
    )
    entries: list[Entry] = [
        figures.of_field("mfu_ratio", DERIVED, formula=mfu_formula(engine), tone="mfu"),
        figures.of_field("mfu_prefill_ratio", DERIVED),
        figures.of_field("mfu_decode_ratio", DERIVED),
        figures.of_field("flops_per_s", DERIVED, formula=trained),
        figures.of_field("prefill_flops_per_s", DERIVED, formula=prefill),
        figures.of_field("decode_flops_per_s", DERIVED, formula=decode),
        figures.of_field(
            "flops_per_decode_token", DERIVED, write=values.flop_count, formula=_flops_of_token_formula(engine)
        ),
        figures.of_field("peak_flops_per_s", ESTIMATED, formula=_flops_peak_formula(engine)),
    ]
    if is_above_one(efficiency.mfu_ratio):
        text = "! above 100%: the dimensions of the model or the peak are wrong, or it runs on more GPUs than these"
        entries.append(Sentence(text, "warn"))
    if efficiency.peak_unverified:
        entries.append(Sentence("? the peak is derived, assumed, or rests on one source only"))
    return Section("MFU: arithmetic", entries, side=1)


def mfu_formula(engine: Engine) -> str:
    """FLOP/s of prefill and decode, or of both together, / the peak; empty where one of these is not known."""
    efficiency = engine.efficiency
    peak = _flops_peak_formula(engine)
    all_flops = formula_text("{}", (efficiency.flops_per_s, values.flop_rate))
    if not all_flops or not peak:
        return ""
    parts = formula_text(
        "(prefill {} + decode {})",
        (efficiency.prefill_flops_per_s, values.flop_rate),
        (efficiency.decode_flops_per_s, values.flop_rate),
    )
    return f"{parts or all_flops} / ({peak})"


def _flops_peak_formula(engine: Engine) -> str:
    """Number of GPUs x FLOP/s peak of one, at the precision that the engine computes in; empty without a peak."""
    efficiency = engine.efficiency
    precision = f" {efficiency.precision} dense" if efficiency.precision else ""
    return _peak_formula(engine, efficiency.peak_flops_per_s, values.flop_rate, precision)


def _flops_of_token_formula(engine: Engine) -> str:
    """Two FLOPs for each parameter in use, plus attention over the context; empty where an operand is missing."""
    params = engine.dimensions.active_params
    numbers = known_numbers(engine.efficiency.flops_per_decode_token, params, engine.load.context_tokens)
    if numbers is None:
        return ""
    flops, active_params, context_tokens = numbers
    attention = figure_text(values.flop_count(max(0.0, flops - 2.0 * active_params)))
    weights = figure_text(values.parameters(active_params))
    return f"2 x {weights} + {attention} attention over {context_tokens:,.0f} tokens"


def _per_token_formula(tokens_per_s: Reading, flops_per_s: Reading, words: str) -> str:
    """Tokens per second x FLOPs of each, and `words` for what these are; empty where one is missing."""
    numbers = known_numbers(tokens_per_s, flops_per_s)
    if numbers is None:
        return ""
    tokens, flops = numbers
    if tokens <= 0.0:
        return ""
    return f"{figure_text(values.token_rate(tokens))} x {figure_text(values.flop_count(flops / tokens))} {words}"


def mbu_section(engine: Engine, service: Service, figures: FigureMaker) -> Section:
    """Memory bandwidth utilisation: what the steps must read, of what the memory can deliver."""
    efficiency = engine.efficiency
    steps_basis = basis_of_steps(engine, DERIVED)
    mbu = figures.of_field("mbu_ratio", steps_basis, formula=mbu_formula(engine), tone="mbu")
    if service is not Service.GENERATION:
        return Section("MBU: memory bandwidth", [mbu], side=1)
    weights = formula_text("{} x {}", (engine.rates.steps_per_s, values.rate), (efficiency.weight_bytes, values.size))
    entries: list[Entry] = [
        mbu,
        figures.of_field("bytes_per_s", steps_basis),
        figures.of_field("weight_bytes_per_s", steps_basis, formula=weights),
        figures.of_field("kv_bytes_per_s", steps_basis, formula=_kv_formula(engine)),
        figures.of_field("weight_bytes", DERIVED),
        figures.of_field("kv_bytes_per_token", DERIVED, write=values.size),
        figures.of_field("peak_bandwidth_bytes_per_s", _peak_basis(engine), formula=_bandwidth_peak_formula(engine)),
    ]
    if is_above_one(efficiency.mbu_ratio):
        text = "! above 100%: steps, the bytes of the model or the peak are wrong, or it runs on more GPUs than these"
        entries.append(Sentence(text, "warn"))
    if efficiency.bandwidth_peak_unverified:
        entries.append(UNVERIFIED_BANDWIDTH)
    return Section("MBU: memory bandwidth", [*entries, *_single_stream_entries(engine, figures)], side=1)


def mbu_formula(engine: Engine) -> str:
    """Bytes of weights and of the KV cache, / the peak; empty where one of these is not known."""
    efficiency = engine.efficiency
    peak = _bandwidth_peak_formula(engine)
    bytes_read = formula_text(
        "(weights {} + KV {})",
        (efficiency.weight_bytes_per_s, values.traffic),
        (efficiency.kv_bytes_per_s, values.traffic),
    )
    if not bytes_read or not peak:
        return ""
    return f"{bytes_read} / ({peak})"


def _bandwidth_peak_formula(engine: Engine) -> str:
    """Number of GPUs x peak bandwidth of one; empty without a peak."""
    return _peak_formula(engine, engine.efficiency.peak_bandwidth_bytes_per_s, values.traffic)


def _peak_formula(engine: Engine, peak: Reading, write: values.Write, note: str = "") -> str:
    """Number of GPUs x peak of one; the peak of all where their number is not known; empty without a peak."""
    peak_of_all = known_number(peak)
    if peak_of_all is None:
        return ""
    gpus = known_number(engine.hardware.gpu_count)
    if gpus is None or gpus <= 0.0:
        return f"{figure_text(write(peak_of_all))}{note}"
    return f"{gpus:.0f} x {figure_text(write(peak_of_all / gpus))}{note}"


def _peak_basis(engine: Engine) -> str:
    """The basis of the peak bandwidth: derived from the driver's clock, else from a table or the config."""
    source = engine.sources.get("peak_bandwidth_bytes_per_s", "")
    origin = source.partition(" from ")[0]  # behind it stands what the driver's clock is compared with
    if "catalogue" in origin or "config" in origin:
        return ESTIMATED
    return DERIVED


def basis_of_steps(engine: Engine, basis: str) -> str:
    """The basis of a figure that rests on the steps per second: estimated where these are, else `basis`."""
    if engine.sources.get("steps_per_s", "").startswith("estimated"):
        return ESTIMATED
    return basis


def _kv_formula(engine: Engine) -> str:
    """Sequences x steps x context x bytes of a token; with the factor by which the bytes are others, and why."""
    rates = engine.rates
    context = engine.load.context_tokens
    token = engine.dimensions.kv_bytes_per_token
    numbers = known_numbers(engine.efficiency.kv_bytes_per_s, rates.batch, rates.steps_per_s, context, token)
    if numbers is None:
        return ""
    bytes_per_s, batch, steps_per_s, tokens, token_bytes = numbers
    steps = figure_text(values.rate(steps_per_s))
    per_token = figure_text(values.size(token_bytes))
    text = f"{batch:,.1f} sequences x {steps} x {tokens:,.0f} tokens x {per_token}"
    product = batch * steps_per_s * tokens * token_bytes
    if product <= 0.0 or abs(bytes_per_s / product - 1.0) <= _NEARLY_EQUAL:
        return text
    factor = bytes_per_s / product
    why = "copies on the ranks, or the state of linear layers" if factor > 1.0 else "layers with a window read less"
    return f"{text} x {factor:.3f} ({why})"


def _single_stream_entries(engine: Engine, figures: FigureMaker) -> list[Entry]:
    """The textbook form beside MBU while one sequence runs: with more, they share a read of the weights."""
    efficiency = engine.efficiency
    batch = known_number(engine.rates.batch)
    if batch is not None and batch > _SINGLE_STREAM_BATCH:
        return []
    single = efficiency.mbu_single_stream_ratio
    model_bytes = _single_stream_bytes(engine)
    formula = _single_stream_formula(engine, model_bytes)
    row = figures.of_field("mbu_single_stream_ratio", ESTIMATED, formula=formula)
    # It may well be above 100%, as it counts experts that are not read: no mark, and no tone of a warning.
    entries: list[Entry] = [row._replace(unit=row.unit.rstrip("!"), tone="muted")]
    single_ratio = known_number(single)
    mbu_ratio = known_number(efficiency.mbu_ratio)
    if single_ratio is not None and mbu_ratio is not None and mbu_ratio > 0.0:
        entries.append(Sentence(_beside_mbu_text(engine, single_ratio / mbu_ratio, model_bytes)))
    holds = "exact for one stream of a dense model, without speculation and with a short context"
    entries.append(Sentence(f"the single-stream form is {holds}; MBU by steps holds at any batch"))
    return entries


def _single_stream_bytes(engine: Engine) -> float:
    """Bytes of all weights, as the single-stream form counts them for each token; 0 where they are not known."""
    efficiency = engine.efficiency
    numbers = known_numbers(
        efficiency.mbu_single_stream_ratio, efficiency.peak_bandwidth_bytes_per_s, engine.rates.decode_tokens_per_s
    )
    if numbers is None:
        return 0.0
    ratio, peak_bytes_per_s, tokens_per_s = numbers
    params = known_number(engine.dimensions.params)
    if params is None or params <= 0.0 or tokens_per_s <= 0.0:
        return 0.0
    return ratio * peak_bytes_per_s / tokens_per_s


def _single_stream_formula(engine: Engine, model_bytes: float) -> str:
    """Parameters x bytes of each x tokens/s / the peak; empty where `model_bytes`, those of all weights, are 0."""
    numbers = known_numbers(engine.dimensions.params, engine.rates.decode_tokens_per_s)
    if numbers is None or not model_bytes:
        return ""
    params, tokens_per_s = numbers
    weights = f"{figure_text(values.parameters(params))} x {model_bytes / params:.3f} bytes"
    tokens = figure_text(values.token_rate(tokens_per_s))
    return f"{weights} x {tokens} / ({_bandwidth_peak_formula(engine)})"


def _beside_mbu_text(engine: Engine, factor: float, model_bytes: float) -> str:
    """How many times MBU the textbook form is, and why: experts that are not read make it more, the KV cache less.

    `model_bytes`: bytes of all weights, which the textbook form counts for each token.
    """
    text = f"{factor:.2f} times MBU"
    efficiency = engine.efficiency
    if factor < 1.0:
        numbers = known_numbers(efficiency.kv_bytes_per_s, efficiency.bytes_per_s)
        if numbers is None:
            return text
        kv_bytes_per_s, bytes_per_s = numbers
        if kv_bytes_per_s <= 0.0 or bytes_per_s <= 0.0:
            return text
        share = figure_text(values.percent(kv_bytes_per_s / bytes_per_s))
        return f"{text}: the textbook form leaves out the KV cache, here {share} of all that is read"
    step_bytes = known_number(efficiency.weight_bytes)
    is_batch_known = known_number(engine.rates.batch) is not None
    if is_batch_known and step_bytes is not None and step_bytes < _SPARSE_SHARE * model_bytes:
        return f"{text}, as a step reads only the experts that it needs"
    return text
