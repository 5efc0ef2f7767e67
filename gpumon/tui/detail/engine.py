"""An engine's page: what it is, its load and rates, and what it did since gpumon started."""

from __future__ import annotations

from typing import Final

from gpumon.efficiency.service import Service
from gpumon.readings.engine_snapshot import value_of
from gpumon.readings.format import clock_utc, wall_of
from gpumon.readings.frame import Phase
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.snapshot import Engine, Snapshot
from gpumon.tui.detail import values
from gpumon.tui.detail.blocks import (
    CATALOGUE,
    DERIVED,
    ESTIMATED,
    MEASURED,
    Entry,
    Fact,
    Figures,
    Section,
    Sentence,
    applying,
)
from gpumon.tui.detail.checks import checks, own_estimate
from gpumon.tui.detail.efficiency import power, utilisation
from gpumon.tui.detail.latencies import latencies
from gpumon.tui.detail.standing import ranks, standing
from gpumon.tui.detail.things import is_blank
from gpumon.tui.detail.values import known, said
from gpumon.tui.detail.why import Subject, explain
from gpumon.tui.services import WITHOUT, service_of
from gpumon.tui.table import spans
from gpumon.tui.view import View

_SOMETIMES: Final = (
    ("decode, mean", "decode_mean_tokens_per_s", values.token_rate),
    ("trained", "trained_tokens_per_s", values.token_rate),
    ("samples", "samples_per_s", values.rate),
    ("inferences", "inferences_per_s", values.rate),
    ("failures", "failures_per_s", values.rate),
    ("aborts", "aborts_per_s", values.rate),
    ("forward passes", "forward_ratio", values.percent),
    ("scheduler idle", "scheduler_idle_ratio", values.percent),
    ("host alone", "host_ratio", values.percent),
    ("tokens per step", "tokens_per_step", values.mean_tokens),
    ("turned away", "rejections_per_s", values.rate),
    ("KV stored", "kv_stored_bytes_per_s", values.traffic),
    ("KV loaded", "kv_loaded_bytes_per_s", values.traffic),
    ("KV transferred", "kv_transferred_bytes_per_s", values.traffic),
    ("KV transfers failed", "kv_transfer_failures_per_s", values.rate),
)
"""Figures that only some have: those of a training run, of models that are no LLMs, of a KV cache beyond the GPUs, the
shares of a scheduler's time."""
_NOT_THERE: Final = frozenset({Reason.NOT_EXPOSED, Reason.NOT_SUPPORTED})


def sections(engine: Engine, snapshot: Snapshot, view: View) -> list[Section]:
    """All sections, in the order of a narrow screen."""
    service = service_of(engine)
    subject = Subject(is_blank(engine), url=engine.url, gpus_source=engine.hardware.gpus_source, kind=engine.kind)
    subject = subject._replace(trains=service is Service.TRAINING)
    figures = Figures(engine.sources, explain(subject))
    every = [
        _identity(engine, service, figures),
        _load(engine, view, service, figures),
        _rates(engine, figures),
        *latencies(engine, view, figures.explain, WITHOUT[service]),
        *utilisation(engine, service, figures),
        power(engine, service, figures),
        *checks(engine, snapshot),
        *own_estimate(engine, figures),
        *ranks(engine),
        *_totals(engine, service, figures, snapshot.counted_since),
        *standing(engine),
    ]
    return applying(every, WITHOUT[service])


def _identity(engine: Engine, service: Service, figures: Figures) -> Section:
    generates = service is Service.GENERATION
    version = f" {engine.version}" if engine.version else ", version not told"
    entries: list[Entry] = [
        Fact("server", f"{engine.kind.value}{version} at {engine.url}"),
        *([Fact("asleep", engine.asleep)] if engine.asleep else []),
        *(
            [Fact("adapter", "from documentation: never held against a recording of a real one", tone="warn")]
            if engine.from_documentation
            else []
        ),
    ]
    source = engine.dimensions.model_source or ("" if "params" in WITHOUT[service] else engine.sources.get("model", ""))
    if engine.model or service is not Service.TRAINING:
        entries.append(Fact("model", engine.model or "not told", source))
    if engine.phase is not Phase.INFERENCE:
        entries.append(Fact("phase", engine.phase.value))
    if engine.hardware.gpus:
        entries.append(
            Fact(
                "GPUs",
                f"{spans(engine.hardware.gpus)} ({len(engine.hardware.gpus)} in all)",
                f"found by: {engine.hardware.gpus_source or 'not told'}",
            )
        )
    elif engine.hardware.gpu_type:
        count = "" if isinstance(engine.hardware.gpu_count, Missing) else f"{engine.hardware.gpu_count:.0f} x "
        entries.append(
            Fact("GPUs", f"{count}{engine.hardware.gpu_type}", f"found by: {engine.hardware.gpus_source or 'config'}")
        )
    if isinstance(engine.hardware.gpu_count, Missing):
        entries.append(figures("number of GPUs", engine.hardware.gpu_count, values.whole, "gpu_count"))
    if engine.hardware.tp and generates:
        stages = f" x {engine.hardware.pp} pipeline stages" if engine.hardware.pp > 1 else ""
        entries.append(Fact("GPUs per rank", f"{engine.hardware.tp} tensor parallel{stages}"))
    if engine.found_by:
        entries.append(Fact("polled because of", engine.found_by))
    table = CATALOGUE if engine.dimensions.model_source.startswith("catalogue") else DERIVED
    entries += [
        figures("parameters", engine.dimensions.params, values.parameters, "params", table),
        figures("used per token", engine.dimensions.active_params, values.parameters, "active_params", table),
        figures("layers", engine.dimensions.layers, values.whole, "layers", table),
    ]
    formats = [
        ("weights in", engine.dimensions.weight_precision),
        ("KV cache in", engine.dimensions.kv_precision if generates else ""),
    ]
    formats.append(("arithmetic in", engine.efficiency.precision))
    entries += [Fact(name, text) for name, text in formats if text]
    return Section("engine", entries)


def _load(engine: Engine, view: View, service: Service, figures: Figures) -> Section:
    used = ""
    if pair := known(engine.load.kv_usage_ratio, engine.load.kv_pool_tokens):
        used = f"{pair[0] * pair[1]:,.0f} of {pair[1]:,.0f} tokens"
    source = engine.sources.get("context_tokens", "")
    entries: list[Entry] = [
        figures("running", engine.load.running, values.whole, "running"),
        figures("waiting", engine.load.waiting, values.whole, "waiting"),
        *(
            figures(name, reading, values.whole, field)
            for name, field in (("of them deferred", "waiting_deferred"), ("held by its router", "router_queue"))
            if not isinstance(reading := value_of(engine, field), Missing)
        ),
        figures(
            "KV cache in use",
            engine.load.kv_usage_ratio,
            values.percent,
            "kv_usage_ratio",
            formula=used,
            tone=_kv_tone(engine.load.kv_usage_ratio, view),
        ),
        figures("KV cache holds", engine.load.kv_pool_tokens, values.tokens, "kv_pool_tokens"),
        figures(
            "context",
            engine.load.context_tokens,
            values.tokens,
            "context_tokens",
            DERIVED if source.startswith("KV") else ESTIMATED,
        ),
        figures("batch", engine.rates.batch, values.sequences, "batch", DERIVED, _batch(engine)),
    ]
    if service is Service.GENERATION:
        entries.append(Sentence("context: mean tokens of a running sequence; batch: sequences per step of one rank"))
    return Section("load", entries)


def _kv_tone(usage: Reading, view: View) -> str:
    if isinstance(usage, Missing) or usage < view.levels.kv_warn:
        return "text"
    return "critical" if usage >= view.levels.kv_critical else "warn"


def _batch(engine: Engine) -> str:
    numbers = known(engine.rates.decode_tokens_per_s, engine.rates.steps_per_s, engine.rates.batch)
    if numbers is None or numbers[1] <= 0.0 or numbers[2] <= 0.0:
        return ""
    decode, steps, batch = numbers
    each = decode / steps / batch
    formula = f"{said(values.token_rate(decode))} / {said(values.rate(steps))}"
    return formula if abs(each - 1.0) < 0.005 else f"{formula} / {each:.2f} tokens per step and sequence"


def _rates(engine: Engine, figures: Figures) -> Section:
    steps = ESTIMATED if engine.sources.get("steps_per_s", "").startswith("estimated") else MEASURED
    entries: list[Entry] = [
        figures("decode", engine.rates.decode_tokens_per_s, values.token_rate, "decode_tokens_per_s"),
        figures("prefill computed", engine.rates.prefill_tokens_per_s, values.token_rate, "prefill_tokens_per_s"),
        figures("prefill cached", engine.rates.cached_tokens_per_s, values.token_rate, "cached_tokens_per_s"),
        figures("requests", engine.rates.requests_per_s, values.rate, "requests_per_s"),
        figures("steps", engine.rates.steps_per_s, values.rate, "steps_per_s", steps),
        figures("preemptions", engine.rates.preemptions_per_s, values.rate, "preemptions_per_s"),
    ]
    entries += [
        figures(name, reading, write, field)
        for name, field, write in _SOMETIMES
        if not isinstance(reading := value_of(engine, field), Missing) or reading.reason not in _NOT_THERE
    ]
    if (pair := known(engine.rates.prefill_tokens_per_s, engine.rates.cached_tokens_per_s)) and sum(pair) > 0.0:
        share = said(values.percent(pair[1] / sum(pair)))
        entries.append(Sentence(f"the prefix cache saved {share} of the prompt tokens"))
    if (pair := known(engine.rates.preemptions_per_s)) and pair[0] > 0.0:
        entries.append(Sentence("! requests lose their KV cache and are computed anew: it is too small", "warn"))
    return Section("rates", entries)


def _totals(engine: Engine, service: Service, figures: Figures, counted_since: str) -> list[Section]:
    """Tokens, where it makes some; of a training run what it trained, as far as it counts that."""
    of, trains = engine.tokens_total, service is Service.TRAINING
    served = (
        ("decode", of.decode, values.tokens, "decode_tokens_per_s"),
        ("prefill computed", of.prefill_computed, values.tokens, "prefill_tokens_per_s"),
        ("prefill cached", of.prefill_cached, values.tokens, "cached_tokens_per_s"),
    )
    trained = (
        ("tokens", of.trained, values.tokens, "trained_tokens_per_s"),
        ("samples", of.samples, values.whole, "samples_per_s"),
    )
    entries: list[Entry] = [
        figures(name, total, write, field)._replace(source="")
        for name, total, write, field in (trained if trains else served)
        if not (trains and isinstance(total, Missing))
    ]
    if not entries:
        return []
    who = "run" if trains else "engine"
    since = clock_utc(wall_of(counted_since)) if counted_since else "gpumon started"
    entries.append(Sentence(f"counted by the {who} since {since}; restarts of it are handled"))
    return [Section(f"{'trained' if trains else 'tokens'} since {since}", entries, side=1)]
