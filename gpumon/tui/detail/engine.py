"""An engine's page, and that of replicas: load, rates, MFU and MBU as formulas with the numbers put in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.efficiency.quantiles import ttft_exceeds_e2e
from gpumon.efficiency.service import Service
from gpumon.readings import glossary
from gpumon.readings.flat import value_of
from gpumon.readings.format import left, right, short, wall_of
from gpumon.readings.frame import LastFigures, Phase
from gpumon.readings.missing import NOT_EXPOSED, NOT_SUPPORTED, Missing, Reading, Reason
from gpumon.readings.snapshot import BandwidthSource, Engine, Gpu, Quantiles, Replicas, Snapshot
from gpumon.readings.text import clean
from gpumon.triage.engine_down import ended_text
from gpumon.triage.render import evidence_text
from gpumon.tui.detail import served, values
from gpumon.tui.detail.backends import backend_sections
from gpumon.tui.detail.blocks import (
    CATALOGUE,
    DERIVED,
    ESTIMATED,
    MEASURED,
    Entry,
    Explain,
    Fact,
    FigureMaker,
    ReadyLine,
    Section,
    Sentence,
    Why,
    without_fields,
)
from gpumon.tui.detail.costs import engine_cost_section
from gpumon.tui.detail.state import engine_word
from gpumon.tui.detail.things import container_of, is_blank
from gpumon.tui.detail.values import duration_text, figure_text, formula_text, is_above_one, known_numbers
from gpumon.tui.detail.why import Subject, explain
from gpumon.tui.line import Piece
from gpumon.tui.replica_rows import as_engine, mapped_note
from gpumon.tui.services import WITHOUT, service_shown
from gpumon.tui.table import clock, spans
from gpumon.tui.view import View

_NOT_THERE: Final = frozenset({Reason.NOT_EXPOSED, Reason.NOT_SUPPORTED})
_SOMETIMES: Final = (
    ("decode, mean", "decode_mean_tokens_per_s", values.token_rate),
    ("trained", "trained_tokens_per_s", values.token_rate),
    ("samples", "samples_per_s", values.rate),
    ("inferences", "inferences_per_s", values.rate),
    ("failures", "failures_per_s", values.rate),
    ("aborts", "aborts_per_s", values.rate),
    ("tokens per step", "tokens_per_step", values.mean_tokens),
    ("drafts accepted", "acceptance_ratio", values.percent),
    ("turned away", "rejections_per_s", values.rate),
    ("KV stored", "kv_stored_bytes_per_s", values.traffic),
    ("KV loaded", "kv_loaded_bytes_per_s", values.traffic),
    ("KV transferred", "kv_transferred_bytes_per_s", values.traffic),
    ("KV transfer fails", "kv_transfer_failures_per_s", values.rate),
    ("KV not fetched", "kv_expired_per_s", values.rate),
    ("KV read too late", "kv_late_reads_per_s", values.rate),
    ("KV tiers written", "kv_tier_written_bytes_per_s", values.traffic),
    ("KV tiers read", "kv_tier_read_bytes_per_s", values.traffic),
    ("KV copies failed", "kv_copy_failures_per_s", values.rate),
)
"""Rates that only some engines have: no row where they are not exported."""
_ADVANCES: Final = {
    "prompt": "the whole prompt is counted when the first token comes",
    "end": "counted when a request ends: no live rate",
    "sampled": "sampled by the engine",
    "derived": "derived from other counters",
}
"""`Engine.advances` in words; live counters need none."""
_NAMES: Final = {
    **{field: name for name, field, _ in _SOMETIMES},
    "decode_tokens_per_s": "decode",
    "prefill_tokens_per_s": glossary.PREFILL.name,
    "cached_tokens_per_s": glossary.CACHED.name,
    "requests_per_s": "requests",
    "steps_per_s": "steps",
    "preemptions_per_s": "preemptions",
    "mfu_ratio": "MFU",
    "mfu_prefill_ratio": "MFU of prefill",
    "mfu_decode_ratio": "MFU of decode",
    "flops_per_s": "FLOP/s",
    "mbu_ratio": "MBU",
    "bytes_per_s": "all B/s",
}
_MOST_RANKS: Final = 16
_COUNTED: Final = {Service.GENERATION: "decode tokens only; ", Service.TRAINING: "trained tokens; "}
_SAME: Final = 0.01
"""Relative difference up to which a product counts as the figure that it stands under."""
_SINGLE: Final = 1.05
"""Sequences per step up to which there is one stream."""
_SPARSE: Final = 0.9
"""Share of all weights: a step that reads less leaves experts out."""
_SLACK: Final = 1.25
"""A modelled share may be that much above the measured one: the load changes, and an engine is polled less often."""
_AGREES: Final = 2.0
"""A measured share may be that many times the modelled one, which leaves out writes, activations and prefill."""
_MEASURED: Final = (BandwidthSource.GPM, BandwidthSource.DCGM)

_LATENCIES: Final = (("TTFT", "ttft_s"), ("ITL", "itl_s"), ("queue", "queue_s"), ("E2E", "e2e_s"), ("TPOT", "tpot_s"))
_SOME: Final = frozenset({"tpot_s"})
"""Latencies that have no row where an engine does not export them."""
_LATENCY_NAME: Final = 8
_LATENCY_CELL: Final = 11
_GOALS: Final = {"ttft_s": "ttft_p95_ms", "itl_s": "itl_p95_ms", "e2e_s": "e2e_p95_ms"}
_EXACT: Final = 0.5
"""Width of a bucket as a share of its quantile from which on the bucket is called coarse."""


def sections(engine: Engine, snapshot: Snapshot, view: View) -> list[Section]:
    """All sections, in the order of a narrow screen."""
    service = service_shown(engine)
    subject = Subject(is_blank(engine), url=engine.url, gpus_source=engine.hardware.gpus_source, kind=engine.kind)
    figures = FigureMaker(engine, engine.sources, explain(subject._replace(trains=service is Service.TRAINING)))
    if service is Service.ROUTING:
        return without_fields(_of_front_end(engine, snapshot, view, figures), WITHOUT[service])
    every = [
        *_end(engine, snapshot),
        *served.sections_since_mark(engine, view.marked, snapshot, figures),
        _identity(engine, snapshot, service, figures),
        _load(engine, view, service, figures),
        _rates(engine, figures),
        *latency_sections(engine, view, figures.explain, WITHOUT[service]),
        *served.goal_sections(engine, figures),
        *served.outcome_sections(engine, figures),
        *served.length_sections(engine),
        *served.phase_sections(engine),
        *served.speculation_sections(engine),
        *served.cache_sections(engine, figures),
    ]
    if service is Service.OTHER:
        shares = (("MFU", "mfu_ratio", values.percent), ("MBU", "mbu_ratio", values.percent))
        every.append(Section("MFU, MBU", figures.table(shares), side=1))
    else:
        every += [_mfu(engine, figures), _mbu(engine, service, figures)]
    every += [
        _energy(engine, service, figures),
        engine_cost_section(engine, figures),
        *_checks(engine, snapshot),
        *_own_estimate(engine, figures),
        *_ranks(engine),
        *_totals(engine, service, figures, snapshot.counted_since),
        *served.sections_since_start(engine, figures),
        *_since_start(engine, figures),
        *_advances(engine),
    ]
    return without_fields(every, WITHOUT[service])


def _of_front_end(engine: Engine, snapshot: Snapshot, view: View, figures: FigureMaker) -> list[Section]:
    """The sections of a router or proxy: its requests as its clients see them, and its backends."""
    load: list[Entry] = [
        figures("running", "running", values.whole),
        figures("waiting", "waiting", values.whole),
        figures("backends", "backends_known", values.whole),
        figures("ready", "backends_ready", values.whole),
        figures("requests", "requests_per_s", values.rate),
        *_sometimes(engine, figures),
    ]
    entries = [*_server_and_model(engine, Service.ROUTING)]
    if engine.found_by:
        entries.append(Fact("found via", engine.found_by))
    entries.append(Sentence("a front end: it has no GPUs, and its requests are those of its backends (never added)"))
    return [
        *_end(engine, snapshot),
        Section("front end", entries),
        Section("requests", load),
        *backend_sections(engine),
        *latency_sections(engine, view, figures.explain, WITHOUT[Service.ROUTING]),
        *served.goal_sections(engine, figures),
        *served.outcome_sections(engine, figures),
        *served.length_sections(engine),
        *_since_start(engine, figures),
        *_advances(engine),
    ]


def replicas_sections(replicas: Replicas, snapshot: Snapshot, view: View) -> list[Section]:
    """The sums of the engines that serve one model, and each of them."""
    figures = FigureMaker(replicas, {}, explain(Subject()))
    partly = mapped_note(replicas)
    whose = "of all their GPUs together"
    if partly:
        whose = f"{partly}, as the GPUs of the others are not known"
    sums = (
        ("running", "running", values.whole),
        ("waiting", "waiting", values.whole),
        ("decode", "decode_tokens_per_s", values.token_rate),
        (glossary.PREFILL.name, "prefill_tokens_per_s", values.token_rate),
        ("requests", "requests_per_s", values.rate),
    )
    shares = (
        (glossary.KV_CACHE.name, "kv_usage_ratio", values.percent),
        (f"MFU {partly}".rstrip(), "mfu_ratio", values.percent),
        (f"MBU {partly}".rstrip(), "mbu_ratio", values.percent),
    )
    note = Sentence(f"sums of the replicas that answer; KV cache: their mean; MFU and MBU: {whose}")
    own = []
    for engine in snapshot.engines:
        if engine.name in replicas.engines:
            own.append(engine)
    together = as_engine(replicas, own)
    return [
        Section("all replicas", [*figures.table(sums), *figures.table(shares, DERIVED), note]),
        *latency_sections(together, view, figures.explain),
        *served.goal_sections(together, figures),
        Section("each replica", [entry for engine in own for entry in _replica(engine, snapshot)], side=1),
        engine_cost_section(together, figures),
    ]


def _replica(engine: Engine, snapshot: Snapshot) -> list[Entry]:
    load = engine.load
    if engine.departure:
        word, tone = engine_word(engine, snapshot)
        return [Fact(engine.name, f"{word}, {engine.fault}", tone=tone)]
    if isinstance(load.running, Missing) and load.running.reason in (Reason.UNREACHABLE, Reason.STALE):
        return [Fact(engine.name, engine.fault or engine.state.value, tone="warn")]
    gpus = ""
    if engine.hardware.gpus:
        gpus = f"GPU {spans(engine.hardware.gpus)}"
    text = _in_brief("decode ", engine.rates.decode_tokens_per_s, load.running, load.waiting, load.kv_usage_ratio, gpus)
    apart: list[Entry] = []
    for figure in engine.deviates:
        apart.append(Sentence(f"! {evidence_text(figure)}", "warn", indent=4))
    return [Fact(engine.name, text), *apart]


def _in_brief(before: str, decode: Reading, running: Reading, waiting: Reading, kv: Reading, more: str = "") -> str:
    parts = (
        formula_text(before + "{}", (decode, values.token_rate)),
        formula_text("running {}", (running, values.whole)),
        formula_text("waiting {}", (waiting, values.whole)),
        formula_text("KV {}", (kv, values.percent)),
        more,
    )
    return " · ".join(part for part in parts if part) or "no figures yet"


def _end(engine: Engine, snapshot: Snapshot) -> list[Section]:
    """How it ended, and the commands for its log and its start; nothing of one that runs."""
    sections = []
    for departure in engine.departure:
        ended = values.shown_time(departure.wall_s, snapshot.wall_s)
        served = values.shown_time(departure.served_wall_s, snapshot.wall_s)
        entries: list[Entry] = [
            Fact("ended", f"{ended.clock}, {values.duration_text(ended.ago_s)} ago", tone="warn"),
            Fact("how", ended_text(departure)),
            Fact("answered last", f"{served.clock}, {values.duration_text(served.ago_s)} ago"),
            Fact("log", departure.log or "not known: it ran in no systemd unit and no container that can be seen"),
        ]
        if departure.figures != LastFigures():
            last = departure.figures
            did = _in_brief("", last.decode_tokens_per_s, last.running, last.waiting, last.kv_usage_ratio)
            entries.insert(3, Fact("last figures", did))
        if departure.start:
            entries.append(Fact("start again", departure.start))
        if departure.command:
            entries.append(Fact("it ran as", clean(departure.command, 512)))
        sections.append(Section("how it ended", entries))
    return sections


def _identity(engine: Engine, snapshot: Snapshot, service: Service, figures: FigureMaker) -> Section:
    entries = _server_and_model(engine, service)
    entries += _hardware(engine, service, figures)
    containers = _containers(engine, snapshot)
    if containers:
        entries.append(Fact("container", containers))
    if engine.found_by:
        entries.append(Fact("found via", engine.found_by))
    dimensions = engine.dimensions
    sizes = (
        ("parameters", "params", values.parameters),
        ("used per token", "active_params", values.parameters),
        ("layers", "layers", values.whole),
    )
    entries += figures.table(sizes, CATALOGUE if dimensions.model_source.startswith("catalogue") else DERIVED)
    formats = (
        ("weights in", dimensions.weight_precision),
        ("KV cache in", dimensions.kv_precision if service is Service.GENERATION else ""),
        ("arithmetic in", engine.efficiency.precision),
    )
    entries += [Fact(name, text) for name, text in formats if text]
    return Section("engine", entries)


def _server_and_model(engine: Engine, service: Service) -> list[Entry]:
    """The server with its version and state, its model, and its phase where it has one of its own."""
    version = ", version not told"
    if engine.version:
        version = f" {engine.version}"
    entries: list[Entry] = [Fact("server", f"{engine.kind.value}{version} at {engine.url}")]
    if engine.asleep:
        entries.append(Fact("asleep", engine.asleep))
    if engine.from_documentation:
        text = "built from documentation, not tried on a real server"
        entries.append(Fact("adapter", text, tone="warn"))
    source = engine.dimensions.model_source
    if not source and "params" not in WITHOUT[service]:
        source = engine.sources.get("model", "")
    if engine.model or service is not Service.TRAINING:
        entries.append(Fact("model", engine.model or "not told", source))
    if engine.phase is not Phase.INFERENCE:
        entries.append(Fact("phase", engine.phase.value))
    return entries


def _containers(engine: Engine, snapshot: Snapshot) -> str:
    """The containers of an engine's processes on GPUs; empty where there are none."""
    names: dict[str, None] = {}
    for gpu in snapshot.gpus:
        for process in gpu.processes:
            if process.engine == engine.name and process.container:
                names[container_of(process)] = None
    return ", ".join(names)


def _hardware(engine: Engine, service: Service, figures: FigureMaker) -> list[Entry]:
    """The GPUs of an engine, how they were found, and how many make a rank."""
    hardware = engine.hardware
    entries: list[Entry] = []
    if hardware.gpus:
        source = f"found via: {hardware.gpus_source or 'unknown'}"
        entries.append(Fact("GPUs", f"{spans(hardware.gpus)} ({len(hardware.gpus)} in all)", source))
    elif hardware.gpu_type:
        source = f"found via: {hardware.gpus_source or 'config'}"
        count = formula_text("{} x ", (hardware.gpu_count, values.whole))
        entries.append(Fact("GPUs", f"{count}{hardware.gpu_type}", source))
    if isinstance(hardware.gpu_count, Missing):
        entries.append(figures("number of GPUs", "gpu_count", values.whole))
    if hardware.tp and service is Service.GENERATION:
        stages = ""
        if hardware.pp > 1:
            stages = f" x {hardware.pp} pipeline stages"
        entries.append(Fact("GPUs per rank", f"{hardware.tp} tensor parallel{stages}"))
    return entries


def _load(engine: Engine, view: View, service: Service, figures: FigureMaker) -> Section:
    load = engine.load
    used = ""
    tone = "text"
    pair = known_numbers(load.kv_usage_ratio, load.kv_pool_tokens)
    if pair:
        used = f"{pair[0] * pair[1]:,.0f} of {pair[1]:,.0f} tokens"
    if not isinstance(load.kv_usage_ratio, Missing) and load.kv_usage_ratio >= view.levels.kv_warn:
        tone = "critical" if load.kv_usage_ratio >= view.levels.kv_critical else "warn"
    from_kv = engine.sources.get("context_tokens", "").startswith("KV")
    queues = (
        *(("deferred", "waiting_deferred"), ("held by its router", "router_queue")),
        *(("LoRA slots", "lora_slots"), ("LoRA loaded", "lora_loaded"), ("LoRA waiting", "lora_waiting")),
    )
    entries: list[Entry] = [
        figures("running", "running", values.whole),
        figures("waiting", "waiting", values.whole),
        *(figures(*row, values.whole) for row in queues if not isinstance(value_of(engine, row[1]), Missing)),
        figures(glossary.KV_CACHE.name, "kv_usage_ratio", values.percent, formula=used, tone=tone),
        figures("KV cache holds", "kv_pool_tokens", values.tokens),
        figures("context", "context_tokens", values.tokens, DERIVED if from_kv else ESTIMATED),
        figures("batch", "batch", values.sequences, DERIVED, _batch(engine)),
    ]
    if service is Service.GENERATION:
        entries.append(Sentence("context: mean tokens of a running sequence; batch: sequences per step of one rank"))
    return Section("load", entries)


def _batch(engine: Engine) -> str:
    rates = engine.rates
    numbers = known_numbers(rates.decode_tokens_per_s, rates.steps_per_s, rates.batch)
    if numbers is None or numbers[1] <= 0.0 or numbers[2] <= 0.0:
        return ""
    per_sequence = numbers[0] / numbers[1] / numbers[2]
    text = formula_text("{} / {}", (rates.decode_tokens_per_s, values.token_rate), (rates.steps_per_s, values.rate))
    if abs(per_sequence - 1.0) < 0.005:
        return text
    return f"{text} / {per_sequence:.2f} tokens per step and sequence"


def _steps_basis(engine: Engine, exact: str) -> str:
    if engine.sources.get("steps_per_s", "").startswith("estimated"):
        return ESTIMATED
    return exact


def _rates(engine: Engine, figures: FigureMaker) -> Section:
    rates = engine.rates
    always = (
        ("decode", "decode_tokens_per_s", values.token_rate),
        (glossary.PREFILL.name, "prefill_tokens_per_s", values.token_rate),
        (glossary.CACHED.name, "cached_tokens_per_s", values.token_rate),
        ("requests", "requests_per_s", values.rate),
    )
    entries: list[Entry] = [
        *figures.table(always),
        figures("steps", "steps_per_s", values.rate, _steps_basis(engine, MEASURED)),
        figures("preemptions", "preemptions_per_s", values.rate),
    ]
    entries += _sometimes(engine, figures)
    pair = known_numbers(rates.prefill_tokens_per_s, rates.cached_tokens_per_s)
    if pair and sum(pair) > 0.0:
        share = figure_text(values.percent(pair[1] / sum(pair)))
        entries.append(Sentence(f"the prefix cache saved {share} of the prompt tokens"))
    pair = known_numbers(rates.preemptions_per_s)
    if pair and pair[0] > 0.0:
        entries.append(Sentence("! preemptions: the KV cache is too small, requests are computed again", "warn"))
    return Section("rates", entries)


def _sometimes(engine: Engine, figures: FigureMaker) -> list[Entry]:
    """The rates that only some engines have, where this one does."""
    entries: list[Entry] = []
    for name, field, write in _SOMETIMES:
        reading = value_of(engine, field)
        if not isinstance(reading, Missing) or reading.reason not in _NOT_THERE:
            entries.append(figures(name, field, write))
    return entries


def latency_sections(
    engine: Engine, view: View, explain: Explain, without: frozenset[str] = frozenset()
) -> list[Section]:
    """A table of mean and quantiles, with the buckets and the metric below each row; no section without rows.

    A latency among the fields `without` has no row where it is missing.
    """
    rows = _latencies(engine, without | _SOME)
    if not rows:
        return []
    titles = "".join(right(title, _LATENCY_CELL) for title in ("mean", "p50", "p95", "p99"))
    entries: list[Entry] = [ReadyLine(((" " * (2 + _LATENCY_NAME) + titles, "muted"),))]
    missing: list[tuple[str, Why]] = []
    for name, field, quantiles in rows:
        entries += _latency_entries(engine, view, name, field, quantiles)
        missing += [(f"{name} {part}".rstrip(), explain(value, field)) for part, value in _missing_parts(quantiles)]
    entries.append(
        Sentence("mean: sum / count, exact; quantiles are interpolated: the true value lies anywhere in the bucket")
    )
    if ttft_exceeds_e2e(engine.latency):
        entries.append(
            Sentence(
                "TTFT above E2E: E2E is of requests that ended, TTFT of later ones, which wait longer and end later"
            )
        )
    if any(_coarse(quantiles) for _, _, quantiles in rows):
        entries.append(Sentence("coarse buckets: quantiles can be off by 50 % and more"))
    return [Section("latencies", entries, missing=missing)]


def _latencies(engine: Engine, without: frozenset[str]) -> list[tuple[str, str, Quantiles]]:
    """Name, field and quantiles of each latency, but those of fields that are `without` and missing."""
    rows = []
    for name, field in _LATENCIES:
        quantiles: Quantiles = value_of(engine, field)
        if field not in without or not _has_none(quantiles):
            rows.append((name, field, quantiles))
    return rows


def _latency_entries(engine: Engine, view: View, name: str, field: str, quantiles: Quantiles) -> list[Entry]:
    """One latency: its row, then its buckets and its metric."""
    entries: list[Entry] = [ReadyLine(_row(name, quantiles, _goal_s(view, field)))]
    buckets = _buckets(quantiles)
    if buckets:
        entries.append(Sentence(f"buckets {buckets}", indent=4))
    source = engine.sources.get(field, "")
    if source:
        entries.append(Sentence(source, indent=4))
    return entries


def _goal_s(view: View, field: str) -> float | None:
    """The goal of a latency in seconds; None where it has none."""
    if field not in _GOALS:
        return None
    goal_ms: float | None = getattr(view.goals, _GOALS[field])
    if goal_ms is None:
        return None
    return goal_ms / 1e3


def _missing_parts(quantiles: Quantiles) -> list[tuple[str, Missing]]:
    """Names of the mean and quantiles that are missing; one nameless entry where all are."""
    if isinstance(quantiles.mean, Missing) and _has_none(quantiles):
        return [("", quantiles.mean)]
    parts = [("mean", quantiles.mean), *((name, value) for name, value, *_ in _parts(quantiles))]
    result = []
    for name, value in parts:
        if isinstance(value, Missing):
            result.append((name, value))
    return result


def _has_none(quantiles: Quantiles) -> bool:
    return all(
        isinstance(reading, Missing) for reading in (quantiles.mean, quantiles.p50, quantiles.p95, quantiles.p99)
    )


def _row(name: str, quantiles: Quantiles, goal_s: float | None) -> tuple[Piece, ...]:
    pieces: list[Piece] = [("  " + left(name, _LATENCY_NAME), "muted"), _cell(quantiles.mean)]
    for part, value, _, high in _parts(quantiles):
        pieces.append(_cell(value, high, quantiles.first_bound_s, goal_s if part == "p95" else None))
    if goal_s is not None:
        pieces.append((f"  goal {figure_text(values.seconds(goal_s))}", "muted"))
    return tuple(pieces)


def _parts(quantiles: Quantiles) -> tuple[tuple[str, Reading, Reading, Reading], ...]:
    """Name and value of each quantile, and the bounds of the bucket that it fell in."""
    return (
        ("p50", quantiles.p50, quantiles.p50_low, quantiles.p50_high),
        ("p95", quantiles.p95, quantiles.p95_low, quantiles.p95_high),
        ("p99", quantiles.p99, quantiles.p99_low, quantiles.p99_high),
    )


def _cell(
    reading: Reading, high: Reading = NOT_EXPOSED, first_bound_s: Reading = NOT_EXPOSED, goal_s: float | None = None
) -> Piece:
    """A mean, or a quantile: where it fell in the first or the last bucket only a bound of it is known."""
    if isinstance(reading, Missing):
        return right(short(reading, 5), _LATENCY_CELL), "muted"
    text = figure_text(values.seconds(reading))
    over = goal_s is not None and reading > goal_s
    if _is_open(high):
        text = f">{_bound(reading)}"
        over = goal_s is not None and reading >= goal_s
    elif (first := known_numbers(first_bound_s)) and reading <= first[0]:
        text = f"<{_bound(first[0])}"
    return right(text, _LATENCY_CELL), "warn" if over else "text"


def _is_open(high: Reading) -> bool:
    """Whether a quantile fell in the last bucket: then it is its lower bound, and truly somewhere above."""
    return isinstance(high, Missing) and high.reason is Reason.INVALID


def _buckets(quantiles: Quantiles) -> str:
    """Between which bounds each quantile lies: `p50 10–25 ms · p95 50–75 ms`."""
    there = (
        (part, bucket_text(low, high)) for part, value, low, high in _parts(quantiles) if not isinstance(value, Missing)
    )
    return " · ".join(f"{part} {text}" for part, text in there if text)


def bucket_text(low: Reading, high: Reading) -> str:
    """The bounds of a bucket in seconds; the last one is open, and the first begins at 0."""
    if isinstance(low, Missing):
        return ""
    if isinstance(high, Missing):
        if _is_open(high):
            return f"above {_bound(low)}"
        return ""
    if low <= 0.0:
        return f"below {_bound(high)}"
    if high < 1.0:
        return f"{low * 1e3:g}–{_bound(high)}"
    return f"{low:g}–{_bound(high)}"


def _bound(value: float) -> str:
    if value < 1.0:
        return f"{value * 1e3:g} ms"
    return f"{value:g} s"


def _coarse(quantiles: Quantiles) -> bool:
    numbers = known_numbers(quantiles.p95, quantiles.p95_low, quantiles.p95_high)
    return numbers is not None and numbers[2] - numbers[1] > _EXACT * numbers[0]


def _mfu(engine: Engine, figures: FigureMaker) -> Section:
    """Model FLOPs utilisation: what the tokens needed, of what the GPUs can do."""
    efficiency = engine.efficiency
    rates = engine.rates
    flops = values.flop_rate
    precision = ""
    if efficiency.precision:
        precision = f" {efficiency.precision} dense"
    peak = _of_gpus(engine, efficiency.peak_flops_per_s, flops, precision)
    whole = ""
    if peak:
        done = formula_text("{}", (efficiency.flops_per_s, flops))
        parts = formula_text(
            "(prefill {} + decode {})", (efficiency.prefill_flops_per_s, flops), (efficiency.decode_flops_per_s, flops)
        )
        whole = ""
        if done:
            whole = f"{parts or done} / ({peak})"
    flops_of_token = _flops_of_token_formula(engine)
    decode = (rates.decode_tokens_per_s, values.token_rate), (efficiency.flops_per_decode_token, values.flop_count)
    trained = _per_token(rates.trained_tokens_per_s, efficiency.flops_per_s, "per token")
    prefill = _per_token(rates.prefill_tokens_per_s, efficiency.prefill_flops_per_s, "per token on average")
    entries: list[Entry] = [
        figures("MFU", "mfu_ratio", values.percent, DERIVED, whole, "mfu"),
        figures("MFU of prefill", "mfu_prefill_ratio", values.percent, DERIVED),
        figures("MFU of decode", "mfu_decode_ratio", values.percent, DERIVED),
        figures("FLOP/s", "flops_per_s", flops, DERIVED, trained),
        figures("prefill FLOP/s", "prefill_flops_per_s", flops, DERIVED, prefill),
        figures("decode FLOP/s", "decode_flops_per_s", flops, DERIVED, formula_text("{} x {}", *decode)),
        figures("FLOPs per token", "flops_per_decode_token", values.flop_count, DERIVED, flops_of_token),
        figures("peak FLOP/s", "peak_flops_per_s", flops, ESTIMATED, peak),
    ]
    if is_above_one(efficiency.mfu_ratio):
        text = "! above 100 %: the dimensions of the model or the peak are wrong, or it runs on more GPUs than these"
        entries.append(Sentence(text, "warn"))
    if efficiency.peak_unverified:
        entries.append(Sentence("? the peak is derived, assumed, or rests on one source only"))
    return Section("MFU: arithmetic", entries, side=1)


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


def _per_token(tokens_per_s: Reading, flops_per_s: Reading, words: str) -> str:
    parts = known_numbers(tokens_per_s, flops_per_s)
    if parts is None or parts[0] <= 0.0:
        return ""
    return f"{figure_text(values.token_rate(parts[0]))} x {figure_text(values.flop_count(parts[1] / parts[0]))} {words}"


def _of_gpus(engine: Engine, peak: Reading, write: values.Write, after: str = "") -> str:
    """A peak as number of GPUs x peak of one; the sum itself where the number is not known."""
    sum_ = known_numbers(peak)
    if sum_ is None:
        return ""
    count = known_numbers(engine.hardware.gpu_count)
    if count is None or count[0] <= 0.0:
        return f"{figure_text(write(sum_[0]))}{after}"
    return f"{count[0]:.0f} x {figure_text(write(sum_[0] / count[0]))}{after}"


def _mbu(engine: Engine, service: Service, figures: FigureMaker) -> Section:
    """Memory bandwidth utilisation: what the steps must read, of what the memory can deliver."""
    efficiency = engine.efficiency
    traffic = values.traffic
    steps = _steps_basis(engine, DERIVED)
    peak = _of_gpus(engine, efficiency.peak_bandwidth_bytes_per_s, traffic)
    whole = formula_text(
        "(weights {} + KV {})", (efficiency.weight_bytes_per_s, traffic), (efficiency.kv_bytes_per_s, traffic)
    )
    division = ""
    if whole and peak:
        division = f"{whole} / ({peak})"
    share = figures("MBU", "mbu_ratio", values.percent, steps, division, "mbu")
    if service is not Service.GENERATION:
        return Section("MBU: memory bandwidth", [share], side=1)
    weights = formula_text("{} x {}", (engine.rates.steps_per_s, values.rate), (efficiency.weight_bytes, values.size))
    # Where the peaks come from, without what the driver's clock is compared with.
    source = engine.sources.get("peak_bandwidth_bytes_per_s", "").partition(" from ")[0]
    if "catalogue" in source or "config" in source:
        basis = ESTIMATED
    else:
        basis = DERIVED
    entries: list[Entry] = [
        share,
        figures("all B/s", "bytes_per_s", traffic, steps),
        figures("weights B/s", "weight_bytes_per_s", traffic, steps, weights),
        figures("KV cache B/s", "kv_bytes_per_s", traffic, steps, _kv(engine)),
        figures("weights of a step", "weight_bytes", values.size, DERIVED),
        figures("KV of a token", "kv_bytes_per_token", values.size, DERIVED),
        figures("peak bandwidth", "peak_bandwidth_bytes_per_s", traffic, basis, peak),
    ]
    if is_above_one(efficiency.mbu_ratio):
        text = "! above 100 %: steps, the bytes of the model or the peak are wrong, or it runs on more GPUs than these"
        entries.append(Sentence(text, "warn"))
    if efficiency.bandwidth_peak_unverified:
        entries.append(Sentence("? the peak is derived, or rests on one source only"))
    return Section("MBU: memory bandwidth", [*entries, *_single_stream(engine, figures)], side=1)


def _kv(engine: Engine) -> str:
    """Sequences x steps x context x bytes of a token; with the factor by which that is not the whole story."""
    rates = engine.rates
    context = engine.load.context_tokens
    token = engine.dimensions.kv_bytes_per_token
    numbers = known_numbers(engine.efficiency.kv_bytes_per_s, rates.batch, rates.steps_per_s, context, token)
    if numbers is None:
        return ""
    whole, batch, steps, tokens, token_bytes = numbers
    per_token = figure_text(values.size(token_bytes))
    text = f"{batch:,.1f} sequences x {figure_text(values.rate(steps))} x {tokens:,.0f} tokens x {per_token}"
    product = batch * steps * tokens * token_bytes
    if product <= 0.0 or abs(whole / product - 1.0) <= _SAME:
        return text
    factor = whole / product
    if factor > 1.0:
        why = "copies on the ranks, or the state of linear layers"
    else:
        why = "layers with a window read less"
    return f"{text} x {factor:.3f} ({why})"


def _single_stream(engine: Engine, figures: FigureMaker) -> list[Entry]:
    """The textbook form beside MBU while it holds: sequences of one step share a read of the weights."""
    efficiency = engine.efficiency
    batch = known_numbers(engine.rates.batch)
    if batch is not None and batch[0] > _SINGLE:
        return []
    text = ""
    all_bytes = 0.0
    single = efficiency.mbu_single_stream_ratio
    peak = efficiency.peak_bandwidth_bytes_per_s
    numbers = known_numbers(single, engine.dimensions.params, engine.rates.decode_tokens_per_s, peak)
    if numbers is not None and numbers[1] > 0.0 and numbers[2] > 0.0:
        ratio, params, decode, most = numbers
        all_bytes = ratio * most / decode
        weights = f"{figure_text(values.parameters(params))} x {all_bytes / params:.3f} bytes"
        text = f"{weights} x {figure_text(values.token_rate(decode))} / ({_of_gpus(engine, peak, values.traffic)})"
    row = figures("single-stream form", "mbu_single_stream_ratio", values.percent, ESTIMATED, text)
    entries: list[Entry] = [row._replace(unit=row.unit.rstrip("!"), tone="muted")]
    factor = known_numbers(single, efficiency.mbu_ratio)
    if factor is not None and factor[1] > 0.0:
        entries.append(Sentence(_beside_mbu(engine, factor[0] / factor[1], all_bytes)))
    holds = "exact for one stream of a dense model, without speculation and with a short context"
    entries.append(Sentence(f"the single-stream form is {holds}; MBU by steps holds at any batch"))
    return entries


def _beside_mbu(engine: Engine, factor: float, all_bytes: float) -> str:
    """How the textbook form differs from MBU, and why: experts that are not read make it more, the KV cache less."""
    text = f"{factor:.2f} times MBU"
    efficiency = engine.efficiency
    if factor < 1.0:
        parts = known_numbers(efficiency.kv_bytes_per_s, efficiency.bytes_per_s)
        if parts is None or parts[1] <= 0.0 or parts[0] <= 0.0:
            return text
        share = figure_text(values.percent(parts[0] / parts[1]))
        return f"{text}: the textbook form leaves out the KV cache, here {share} of all that is read"
    weights = known_numbers(engine.rates.batch, efficiency.weight_bytes)
    sparse = weights is not None and weights[1] < _SPARSE * all_bytes
    if sparse:
        return f"{text}, as a step reads only the experts that it needs"
    return text


def _energy(engine: Engine, service: Service, figures: FigureMaker) -> Section:
    """Work per joule of its GPUs."""
    watts = (engine.hardware.power_w, values.watts)
    rates = engine.rates
    tokens = rates.trained_tokens_per_s if service is Service.TRAINING else rates.decode_tokens_per_s
    per_token = formula_text("{} / {}", (tokens, values.token_rate), watts)
    per_flop = formula_text("{} / {}", (engine.efficiency.flops_per_s, values.flop_rate), watts)
    entries: list[Entry] = [
        figures("power", "power_w", values.watts),
        figures(glossary.TOKENS_PER_JOULE.name, "tokens_per_j", values.tokens_per_joule, DERIVED, per_token),
        figures("FLOPs per joule", "flops_per_j", values.flops_per_joule, DERIVED, per_flop),
        Sentence(f"{_COUNTED.get(service, '')}power of its GPUs only: CPU, fans and power supplies come on top"),
    ]
    return Section("energy", entries, side=1)


def _checks(engine: Engine, snapshot: Snapshot) -> list[Section]:
    """Bounds that MBU and MFU must not exceed; no section where its GPUs measure nothing."""
    own = []
    for gpu in snapshot.gpus:
        if gpu.index in engine.hardware.gpus and not gpu.parent_uuid:
            own.append(gpu)
    entries: list[Entry] = []
    if engine.hardware.gpus and len(own) == len(engine.hardware.gpus):
        entries += _bandwidth_check(engine, own)
        measured = _mean([gpu.tensor_active_ratio for gpu in own])
        if not isinstance(engine.efficiency.mfu_ratio, Missing) and measured is not None:
            mfu = figure_text(values.percent(engine.efficiency.mfu_ratio))
            now = figure_text(values.percent(measured))
            text = f"MFU {mfu} over its window; tensor pipes active {now} now"
            entries.append(Sentence(f"{text}: MFU may be above it, as other units compute, too"))
    if entries:
        return [Section("cross-check", entries, side=1)]
    return []


def _bandwidth_check(engine: Engine, own: Sequence[Gpu]) -> list[Entry]:
    measured = _mean([_measured_share(gpu) for gpu in own])
    together = _mbu_of_all(own)
    modelled: Reading = engine.efficiency.mbu_ratio
    whose = ""
    if together is not None:
        modelled = together
        whose = " of all engines on its GPUs"
    if isinstance(modelled, Missing) or measured is None:
        return []
    model = figure_text(values.percent(modelled))
    share = figure_text(values.percent(measured))
    text = f"MBU{whose} {model}, and its GPUs measure {share} of their peak memory bandwidth"
    if modelled * _AGREES < measured:
        return [Sentence(f"{text}: only an upper bound, as what else uses them is in it: MBU may be right, or too low")]
    if modelled <= measured:
        return [Sentence(f"✓ {text}: not less, as it must be (MBU counts weights and KV only)")]
    if modelled <= measured * _SLACK:
        return [Sentence(f"{text}: about the same (their 10 s are not quite the same)")]
    if together is None and not engine.contradicts:
        return [Sentence(f"{text}: caches may explain that, or a load that changes; if nothing does, the top says so")]
    text += ", which cannot be less: the model's dimensions, its precision or its GPUs are wrong"
    return [Sentence(f"! {text}", "warn")]


def _mbu_of_all(gpus: Sequence[Gpu]) -> float | None:
    """Mean MBU of the GPUs where several engines share one of them; None where none is shared."""
    if not any(len(gpu.engines) > 1 for gpu in gpus):
        return None
    return _mean([gpu.mbu_ratio for gpu in gpus])


def _measured_share(gpu: Gpu) -> Reading:
    used = gpu.bandwidth_bytes_per_s
    peak = gpu.bandwidth_peak_bytes_per_s
    if isinstance(used, Missing) or isinstance(peak, Missing) or gpu.bandwidth_source not in _MEASURED or peak <= 0.0:
        return NOT_SUPPORTED
    return used / peak


def _mean(readings: Sequence[Reading]) -> float | None:
    numbers = known_numbers(*readings)
    if numbers:
        return sum(numbers) / len(numbers)
    return None


def _own_estimate(engine: Engine, figures: FigureMaker) -> list[Section]:
    """The engine's own counts of FLOPs and bytes, beside gpumon's; no section where it counts none."""
    own = engine.efficiency.own
    rows = (
        (own.flops_per_s, "its FLOP/s", "own_flops", values.flop_rate, own.flops_ratio),
        (own.read_bytes_per_s, "its bytes read", "own_read_bytes", values.traffic, own.read_bytes_ratio),
        (own.write_bytes_per_s, "its bytes written", "own_write_bytes", values.traffic, NOT_SUPPORTED),
    )
    if all(isinstance(row[0], Missing) and row[0].reason is Reason.NOT_EXPOSED for row in rows):
        return []
    entries: list[Entry] = []
    for reading, name, field, write, ratio in rows:
        if isinstance(ratio, Missing):
            beside = ""
        else:
            beside = f"{ratio:.2f} x gpumon's"
        entries.append(figures.of_reading(reading, name, field, write, ESTIMATED, beside))
    text = "cross-check only, not used for MFU and MBU above; known differences: docs/accuracy.md"
    return [Section("the engine's own count", [*entries, Sentence(text)], side=1)]


def _ranks(engine: Engine) -> list[Section]:
    """Each data-parallel rank; no section with one rank."""
    if len(engine.rank_loads) < 2:
        return []
    entries: list[Entry] = []
    for load in engine.rank_loads[:_MOST_RANKS]:
        entries.append(
            Fact(
                f"rank {load.rank}",
                _in_brief("", load.decode_tokens_per_s, load.running, load.waiting, load.kv_usage_ratio),
            )
        )
    if len(engine.rank_loads) > _MOST_RANKS:
        entries.append(Sentence(f"and {len(engine.rank_loads) - _MOST_RANKS} more"))
    return [Section("data-parallel ranks", entries, side=1)]


def _totals(engine: Engine, service: Service, figures: FigureMaker, counted_since: str) -> list[Section]:
    """Tokens since the start; for a training run the tokens and samples that it trained, as far as it counts them."""
    totals = engine.tokens_total
    trains = service is Service.TRAINING
    rows = [
        (totals.decode, "decode", "decode_tokens_per_s", values.tokens),
        (totals.prefill_computed, glossary.PREFILL.name, "prefill_tokens_per_s", values.tokens),
        (totals.prefill_cached, glossary.CACHED.name, "cached_tokens_per_s", values.tokens),
    ]
    if trains:
        trained = (
            (totals.trained, "tokens", "trained_tokens_per_s", values.tokens),
            (totals.samples, "samples", "samples_per_s", values.whole),
        )
        rows = [row for row in trained if not isinstance(row[0], Missing)]
    if not rows:
        return []
    who = "run" if trains else "engine"
    since = "gpumon started"
    if counted_since:
        since = clock(wall_of(counted_since))
    entries: list[Entry] = [figures.of_reading(*row)._replace(source="") for row in rows]
    entries.append(Sentence(f"counted by the {who} since {since}; restarts of it are handled"))
    return [Section(f"{'trained' if trains else 'tokens'} since {since}", entries, side=1)]


def _since_start(engine: Engine, figures: FigureMaker) -> list[Section]:
    """Means since the process started; no section where that is not known."""
    means = engine.since_start
    if isinstance(means.seconds, Missing):
        return []
    rows = (
        (means.decode_tokens_per_s, "decode", "decode_tokens_per_s", values.token_rate),
        (means.prefill_tokens_per_s, glossary.PREFILL.name, "prefill_tokens_per_s", values.token_rate),
        (means.requests_per_s, "requests", "requests_per_s", values.rate),
        (means.ttft_s, "TTFT, mean", "ttft_s", values.seconds),
        (means.itl_s, "ITL, mean", "itl_s", values.seconds),
    )
    entries: list[Entry] = []
    for row in rows:
        if not isinstance(row[0], Missing):
            entries.append(figures.of_reading(*row)._replace(source=""))
    entries.append(Sentence("from the engine's own counters; no verdict uses them"))
    return [Section(f"mean since start, {duration_text(means.seconds)} ago", entries, side=1)]


def _advances(engine: Engine) -> list[Section]:
    """Which figures are not live; no section where all are."""
    entries: list[Entry] = []
    for how, meaning in _ADVANCES.items():
        names = []
        for name, moves in engine.advances.items():
            if moves == how:
                names.append(_NAMES.get(name, name))
        if names:
            entries.append(Sentence(f"{', '.join(names)}: {meaning}"))
    if entries:
        return [Section("how its figures move", entries, side=1)]
    return []
