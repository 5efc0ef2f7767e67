"""MFU and MBU of an engine as formulas with the numbers put in, down to the tokens and the bytes of a step."""

from __future__ import annotations

from typing import Final, NamedTuple

from gpumon.efficiency.service import Service
from gpumon.readings.missing import Reading
from gpumon.readings.snapshot import Engine
from gpumon.tui.detail import values
from gpumon.tui.detail.blocks import DERIVED, ESTIMATED, Entry, FigureMaker, Section, Sentence
from gpumon.tui.detail.values import figure_text, formula_text, is_above_one, known_numbers

_NEARLY_EQUAL: Final = 0.01
"""Relative difference up to which a product counts as the figure that it stands under."""
_SINGLE_STREAM_BATCH: Final = 1.05
"""Mean sequences per step up to which there is one stream, and the single-stream form of MBU holds."""
_SPARSE_SHARE: Final = 0.9
"""Share of all weights: a step that reads less leaves experts out."""


class _Row(NamedTuple):
    """A figure of a section, by its field."""

    name: str
    field: str
    write: values.Write
    formula: str = ""
    basis: str = DERIVED
    tone: str = "text"


def mfu_section(engine: Engine, figures: FigureMaker) -> Section:
    """Model FLOPs utilisation: what the tokens needed, of what the GPUs can do."""
    efficiency = engine.efficiency
    rates = engine.rates
    precision = ""
    if efficiency.precision:
        precision = f" {efficiency.precision} dense"
    peak = _peak_formula(engine, efficiency.peak_flops_per_s, values.flop_rate, precision)
    trained = _per_token_formula(rates.trained_tokens_per_s, efficiency.flops_per_s, "per token")
    prefill = _per_token_formula(rates.prefill_tokens_per_s, efficiency.prefill_flops_per_s, "per token on average")
    decode = formula_text(
        "{} x {}",
        (rates.decode_tokens_per_s, values.token_rate),
        (efficiency.flops_per_decode_token, values.flop_count),
    )
    rows = (
        _Row("MFU", "mfu_ratio", values.percent, _mfu_formula(engine, peak), tone="mfu"),
        _Row("MFU of prefill", "mfu_prefill_ratio", values.percent),
        _Row("MFU of decode", "mfu_decode_ratio", values.percent),
        _Row("FLOP/s", "flops_per_s", values.flop_rate, trained),
        _Row("prefill FLOP/s", "prefill_flops_per_s", values.flop_rate, prefill),
        _Row("decode FLOP/s", "decode_flops_per_s", values.flop_rate, decode),
        _Row("FLOPs per token", "flops_per_decode_token", values.flop_count, _flops_of_token_formula(engine)),
        _Row("peak FLOP/s", "peak_flops_per_s", values.flop_rate, peak, basis=ESTIMATED),
    )
    entries: list[Entry] = []
    for row in rows:
        entries.append(figures(row.name, row.field, row.write, row.basis, formula=row.formula, tone=row.tone))
    if is_above_one(efficiency.mfu_ratio):
        text = "! above 100 %: the dimensions of the model or the peak are wrong, or it runs on more GPUs than these"
        entries.append(Sentence(text, "warn"))
    if efficiency.peak_unverified:
        entries.append(Sentence("? the peak is derived, assumed, or rests on one source only"))
    return Section("MFU: arithmetic", entries, side=1)


def _mfu_formula(engine: Engine, peak: str) -> str:
    """FLOP/s of prefill and decode, or of both together, / the peak; empty where one of these is not known."""
    efficiency = engine.efficiency
    all_flops = formula_text("{}", (efficiency.flops_per_s, values.flop_rate))
    if not all_flops or not peak:
        return ""
    parts = formula_text(
        "(prefill {} + decode {})",
        (efficiency.prefill_flops_per_s, values.flop_rate),
        (efficiency.decode_flops_per_s, values.flop_rate),
    )
    return f"{parts or all_flops} / ({peak})"


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
    if numbers is None or numbers[0] <= 0.0:
        return ""
    tokens, flops = numbers
    return f"{figure_text(values.token_rate(tokens))} x {figure_text(values.flop_count(flops / tokens))} {words}"


def mbu_section(engine: Engine, service: Service, figures: FigureMaker) -> Section:
    """Memory bandwidth utilisation: what the steps must read, of what the memory can deliver."""
    efficiency = engine.efficiency
    steps_basis = basis_of_steps(engine, DERIVED)
    peak = _peak_formula(engine, efficiency.peak_bandwidth_bytes_per_s, values.traffic)
    mbu = figures("MBU", "mbu_ratio", values.percent, steps_basis, formula=_mbu_formula(engine, peak), tone="mbu")
    if service is not Service.GENERATION:
        return Section("MBU: memory bandwidth", [mbu], side=1)
    weights = formula_text("{} x {}", (engine.rates.steps_per_s, values.rate), (efficiency.weight_bytes, values.size))
    rows = (
        _Row("all B/s", "bytes_per_s", values.traffic, basis=steps_basis),
        _Row("weights B/s", "weight_bytes_per_s", values.traffic, weights, basis=steps_basis),
        _Row("KV cache B/s", "kv_bytes_per_s", values.traffic, _kv_formula(engine), basis=steps_basis),
        _Row("weights of a step", "weight_bytes", values.size),
        _Row("KV of a token", "kv_bytes_per_token", values.size),
        _Row("peak bandwidth", "peak_bandwidth_bytes_per_s", values.traffic, peak, basis=_peak_basis(engine)),
    )
    entries: list[Entry] = [mbu]
    for row in rows:
        entries.append(figures(row.name, row.field, row.write, row.basis, formula=row.formula, tone=row.tone))
    if is_above_one(efficiency.mbu_ratio):
        text = "! above 100 %: steps, the bytes of the model or the peak are wrong, or it runs on more GPUs than these"
        entries.append(Sentence(text, "warn"))
    if efficiency.bandwidth_peak_unverified:
        entries.append(Sentence("? the peak is derived, or rests on one source only"))
    return Section("MBU: memory bandwidth", [*entries, *_single_stream_entries(engine, figures)], side=1)


def _mbu_formula(engine: Engine, peak: str) -> str:
    """Bytes of weights and of the KV cache, / the peak; empty where one of these is not known."""
    efficiency = engine.efficiency
    bytes_read = formula_text(
        "(weights {} + KV {})",
        (efficiency.weight_bytes_per_s, values.traffic),
        (efficiency.kv_bytes_per_s, values.traffic),
    )
    if not bytes_read or not peak:
        return ""
    return f"{bytes_read} / ({peak})"


def _peak_formula(engine: Engine, peak: Reading, write: values.Write, note: str = "") -> str:
    """Number of GPUs x peak of one; the peak of all where their number is not known; empty without a peak."""
    peaks = known_numbers(peak)
    if peaks is None:
        return ""
    counts = known_numbers(engine.hardware.gpu_count)
    if counts is None or counts[0] <= 0.0:
        return f"{figure_text(write(peaks[0]))}{note}"
    return f"{counts[0]:.0f} x {figure_text(write(peaks[0] / counts[0]))}{note}"


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
    if factor > 1.0:
        why = "copies on the ranks, or the state of linear layers"
    else:
        why = "layers with a window read less"
    return f"{text} x {factor:.3f} ({why})"


def _single_stream_entries(engine: Engine, figures: FigureMaker) -> list[Entry]:
    """The textbook form beside MBU while one sequence runs: with more, they share a read of the weights."""
    efficiency = engine.efficiency
    batch = known_numbers(engine.rates.batch)
    if batch is not None and batch[0] > _SINGLE_STREAM_BATCH:
        return []
    formula = ""
    model_bytes = 0.0
    single = efficiency.mbu_single_stream_ratio
    peak = efficiency.peak_bandwidth_bytes_per_s
    numbers = known_numbers(single, engine.dimensions.params, engine.rates.decode_tokens_per_s, peak)
    if numbers is not None and numbers[1] > 0.0 and numbers[2] > 0.0:
        ratio, params, tokens_per_s, peak_bytes_per_s = numbers
        model_bytes = ratio * peak_bytes_per_s / tokens_per_s
        weights = f"{figure_text(values.parameters(params))} x {model_bytes / params:.3f} bytes"
        tokens = figure_text(values.token_rate(tokens_per_s))
        formula = f"{weights} x {tokens} / ({_peak_formula(engine, peak, values.traffic)})"
    row = figures("single-stream form", "mbu_single_stream_ratio", values.percent, ESTIMATED, formula=formula)
    # It may well be above 100 %, as it counts experts that are not read: no mark, and no tone of a warning.
    entries: list[Entry] = [row._replace(unit=row.unit.rstrip("!"), tone="muted")]
    ratios = known_numbers(single, efficiency.mbu_ratio)
    if ratios is not None and ratios[1] > 0.0:
        entries.append(Sentence(_beside_mbu_text(engine, ratios[0] / ratios[1], model_bytes)))
    holds = "exact for one stream of a dense model, without speculation and with a short context"
    entries.append(Sentence(f"the single-stream form is {holds}; MBU by steps holds at any batch"))
    return entries


def _beside_mbu_text(engine: Engine, factor: float, model_bytes: float) -> str:
    """How many times MBU the textbook form is, and why: experts that are not read make it more, the KV cache less.

    `model_bytes`: bytes of all weights, which the textbook form counts for each token.
    """
    text = f"{factor:.2f} times MBU"
    efficiency = engine.efficiency
    if factor < 1.0:
        numbers = known_numbers(efficiency.kv_bytes_per_s, efficiency.bytes_per_s)
        if numbers is None or numbers[1] <= 0.0 or numbers[0] <= 0.0:
            return text
        share = figure_text(values.percent(numbers[0] / numbers[1]))
        return f"{text}: the textbook form leaves out the KV cache, here {share} of all that is read"
    weights = known_numbers(engine.rates.batch, efficiency.weight_bytes)
    if weights is not None and weights[1] < _SPARSE_SHARE * model_bytes:
        return f"{text}, as a step reads only the experts that it needs"
    return text
