"""An engine's page: who it is, its load, rates, energy and totals; and the page of a front end."""

from __future__ import annotations

from typing import Final

from gpumon.efficiency.service import Service
from gpumon.figures.engine import ENGINE
from gpumon.figures.gpu import SHARES_OF_PEAKS
from gpumon.readings.engine_options import ASSUMED
from gpumon.readings.flat import value_of
from gpumon.readings.format import wall_of
from gpumon.readings.frame import LastFigures, Phase
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.option_words import option_words
from gpumon.readings.snapshot import Engine, Snapshot
from gpumon.readings.text import clean
from gpumon.readings.untrusted import Untrusted, log_command
from gpumon.triage.engine_down import ended_text
from gpumon.tui.detail import served, values
from gpumon.tui.detail.backends import backend_sections
from gpumon.tui.detail.blocks import (
    CATALOGUE,
    DERIVED,
    ESTIMATED,
    MEASURED,
    Entry,
    Fact,
    Figure,
    FigureMaker,
    ReadingRow,
    Section,
    Sentence,
    without_fields,
)
from gpumon.tui.detail.checks import check_sections, own_count_sections, own_memory_sections, second_opinion
from gpumon.tui.detail.costs import cost_section
from gpumon.tui.detail.formulas import basis_of_steps, mbu_section, mfu_section
from gpumon.tui.detail.latencies import latency_sections
from gpumon.tui.detail.things import container_of, is_blank
from gpumon.tui.detail.values import (
    NO_FIGURES,
    duration_text,
    figure_text,
    formula_text,
    known_number,
    known_numbers,
    load_text,
    shown_time,
)
from gpumon.tui.detail.why import Subject, make_explainer
from gpumon.tui.levels import tone_of
from gpumon.tui.services import FIELDS_LACKED, service_shown
from gpumon.tui.table import clock, spans
from gpumon.tui.view import View

_OPTIONAL_LOAD: Final = (
    "waiting_deferred",
    "kv_fetch_waiting",
    "kv_fetch_running",
    "kv_fetch_done",
    "router_queue",
    "lora_slots",
    "lora_loaded",
    "lora_waiting",
    "host_kv_usage_ratio",
    "prefill_token_s",
    "aborted_tokens_mean",
    "preemptions_mean",
    "expert_balance_ratio",
    "rank_imbalance",
    "scheduler_idle_ratio",
    "forward_ratio",
)
"""Figures of the load that only some engines have: no row where they are missing."""
_SINCE_START: Final = ("decode_tokens_per_s", "prefill_tokens_per_s", "requests_per_s", "ttft_s", "itl_s")
"""Means since the process started."""
_ABSENT_REASONS: Final = frozenset({Reason.NOT_EXPOSED, Reason.NOT_SUPPORTED})
"""Reasons of a figure that an engine does not have at all."""
_OPTIONAL_RATES: Final = (
    "decode_mean_tokens_per_s",
    "trained_tokens_per_s",
    "samples_per_s",
    "inferences_per_s",
    "failures_per_s",
    "aborts_per_s",
    "tokens_per_step",
    "acceptance_ratio",
    "rejections_per_s",
    "refused_per_s",
    "corrupted_per_s",
    "kv_stored_bytes_per_s",
    "kv_loaded_bytes_per_s",
    "kv_transferred_bytes_per_s",
    "kv_transfer_failures_per_s",
    "kv_expired_per_s",
    "prefill_retries_per_s",
    "kv_late_reads_per_s",
    "kv_tier_written_bytes_per_s",
    "kv_tier_read_bytes_per_s",
    "kv_copy_failures_per_s",
)
"""The rates that only some engines have: no row where they are not exported."""
_ADVANCE_MEANINGS: Final = {
    "prompt": "the whole prompt is counted when the first token comes",
    "end": "counted when a request ends: no live rate",
    "sampled": "sampled by the engine",
    "derived": "derived from other counters",
}
"""Values of `Engine.advances` in words; live counters need none."""
_NAMES_OF_FIELDS: Final = {row.field: row.name for row in ENGINE.values() if row.name}
"""Names of the fields in `Engine.advances`."""
_MOST_RANKS: Final = 16
"""Ranks that have a line."""
_LONGEST_COMMAND: Final = 512
"""Characters of a command line."""
_TOKENS_COUNTED: Final = {Service.GENERATION: "decode tokens only; ", Service.TRAINING: "trained tokens; "}
"""The tokens that the energy section counts, where a service has any."""
_ONE_TOKEN_TOLERANCE: Final = 0.005
"""Difference from one token per step and sequence that would not show in two decimals."""


def sections(engine: Engine, snapshot: Snapshot, view: View) -> list[Section]:
    """All sections, in the order of a narrow screen."""
    service = service_shown(engine)
    subject = Subject(
        is_blank=is_blank(engine),
        url=engine.url,
        gpus_source=engine.hardware.gpus_source,
        kind=engine.kind,
        is_training=service is Service.TRAINING,
    )
    figures = FigureMaker(engine, ENGINE, engine.sources, make_explainer(subject))
    if service is Service.ROUTING:
        return without_fields(_front_end_sections(engine, snapshot, view, figures), FIELDS_LACKED[service])
    first_sections = [
        *_departure_sections(engine, snapshot),
        *served.sections_since_mark(engine, view.marked, snapshot, figures),
        _load_section(engine, view, service, figures),
        _rates_section(engine, figures),
        _identity_section(engine, snapshot, service, figures),
        *_option_sections(engine),
    ]
    catalogue = [
        *latency_sections(engine, view, figures.explain, FIELDS_LACKED[service]),
        *served.goal_sections(engine, figures),
        *served.outcome_sections(engine, figures),
        *served.length_sections(engine),
        *served.phase_sections(engine),
        *served.speculation_sections(engine),
        *served.cache_sections(engine, figures),
        *_efficiency_sections(engine, service, figures),
        _energy_section(engine, service, figures),
        cost_section(engine, figures),
        *check_sections(engine, snapshot),
        *own_count_sections(engine, figures),
        *own_memory_sections(engine, view, figures),
        *_rank_sections(engine),
        *_total_sections(engine, service, figures, snapshot.counted_since),
        *served.sections_since_start(engine, figures),
        *_mean_sections(engine, figures),
        *_advance_sections(engine),
    ]
    is_folded = service in (Service.GENERATION, Service.ENCODING)  # the pages of others are short
    all_sections = [*first_sections]
    for section in catalogue:
        has_notice = any(isinstance(entry, Sentence) and entry.tone == "warn" for entry in section.entries)
        all_sections.append(section._replace(folded=is_folded and not has_notice))
    return without_fields(all_sections, FIELDS_LACKED[service])


def _efficiency_sections(engine: Engine, service: Service, figures: FigureMaker) -> list[Section]:
    """MFU and MBU with their formulas; without them for an engine whose work is not known."""
    if service is Service.OTHER:
        return [Section("MFU, MBU", figures.table(SHARES_OF_PEAKS), side=1)]
    return [mfu_section(engine, figures), mbu_section(engine, service, figures)]


def _option_sections(engine: Engine) -> list[Section]:
    """Limits, switches and formats that the engine runs with, each with its source; no section where none is known."""
    entries = [
        Fact(label, value, source, "muted" if ASSUMED in source else "text")
        for label, value, source in option_words(engine.options)
    ]
    return [Section("options", entries, side=1)] if entries else []


def _front_end_sections(engine: Engine, snapshot: Snapshot, view: View, figures: FigureMaker) -> list[Section]:
    """The sections of a router or proxy: its requests as its clients see them, and its backends."""
    requests: list[Entry] = [
        *figures.table(("running", "waiting", "backends_known")),
        figures.of_field("backends_ready", name="ready"),
        figures.of_field("requests_per_s"),
        *_optional_rates(engine, figures),
    ]
    identity = _server_entries(engine, Service.ROUTING)
    if engine.found_by:
        identity.append(Fact("found via", engine.found_by))
    identity.append(Sentence("a front end: it has no GPUs, and its requests are those of its backends (never added)"))
    return [
        *_departure_sections(engine, snapshot),
        Section("front end", identity),
        Section("requests", requests),
        *backend_sections(engine),
        *latency_sections(engine, view, figures.explain, FIELDS_LACKED[Service.ROUTING]),
        *served.goal_sections(engine, figures),
        *served.outcome_sections(engine, figures),
        *served.length_sections(engine),
        *_mean_sections(engine, figures),
        *_advance_sections(engine),
    ]


def _departure_sections(engine: Engine, snapshot: Snapshot) -> list[Section]:
    """How an engine ended, and the commands for its log and its start; no section of one that runs."""
    sections = []
    for departure in engine.departure:
        ended = shown_time(departure.wall_s, snapshot.wall_s)
        answered = shown_time(departure.served_wall_s, snapshot.wall_s)
        entries: list[Entry] = [
            Fact("ended", f"{ended.clock}, {duration_text(ended.ago_s)} ago", tone="warn"),
            Fact("how", ended_text(departure)),
            Fact("answered last", f"{answered.clock}, {duration_text(answered.ago_s)} ago"),
        ]
        last = departure.figures
        if last != LastFigures():
            text = load_text(
                "{}",
                decode=last.decode_tokens_per_s,
                running=last.running,
                waiting=last.waiting,
                kv_usage=last.kv_usage_ratio,
            )
            entries.append(Fact("last figures", text or NO_FIGURES))
        log = "not known: it ran in no systemd unit and no container that can be seen"
        if departure.log:
            log = log_command(departure.log) or "at a place that fits into no command"
        entries.append(Fact("log", log))
        start = Untrusted(departure.start).of_form("start_command")
        if start:
            entries.append(Fact("start again", start))
        if departure.command:
            entries.append(Fact("it ran as", clean(departure.command, _LONGEST_COMMAND)))
        sections.append(Section("how it ended", entries))
    return sections


def _identity_section(engine: Engine, snapshot: Snapshot, service: Service, figures: FigureMaker) -> Section:
    """Server, model and GPUs of an engine, its sizes and its number formats."""
    entries = _server_entries(engine, service)
    entries += _gpu_entries(engine, service, figures)
    entries += second_opinion(engine)
    containers = _containers_text(engine, snapshot)
    if containers:
        entries.append(Fact("container", containers))
    if engine.found_by:
        entries.append(Fact("found via", engine.found_by))
    dimensions = engine.dimensions
    basis = CATALOGUE if dimensions.model_source.startswith("catalogue") else DERIVED
    entries += [
        figures.of_field("params", basis, write=values.parameters),
        figures.of_field("active_params", basis, write=values.parameters),
        figures.of_field("layers", basis),
    ]
    if dimensions.weight_precision:
        entries.append(Fact("weights in", dimensions.weight_precision))
    if dimensions.kv_precision and service is Service.GENERATION:
        entries.append(Fact("KV cache in", dimensions.kv_precision))
    if engine.efficiency.precision:
        entries.append(Fact("arithmetic in", engine.efficiency.precision))
    return Section("engine", entries, side=1)


def _server_entries(engine: Engine, service: Service) -> list[Entry]:
    """The server with its version and state, its model, and its phase where it has one of its own."""
    version = f" {engine.version}" if engine.version else ", version not told"
    entries: list[Entry] = [Fact("server", f"{engine.kind.value}{version} at {engine.url}")]
    if engine.asleep:
        entries.append(Fact("asleep", engine.asleep))
    if engine.from_documentation:
        text = "built from documentation, not tried on a real server"
        entries.append(Fact("adapter", text, tone="warn"))
    source = engine.dimensions.model_source
    if not source and "params" not in FIELDS_LACKED[service]:
        source = engine.sources.get("model", "")
    if engine.model or service is not Service.TRAINING:
        entries.append(Fact("model", engine.model or "not told", source))
    if engine.phase is not Phase.INFERENCE:
        entries.append(Fact("phase", engine.phase.value))
    return entries


def _containers_text(engine: Engine, snapshot: Snapshot) -> str:
    """The containers of an engine's processes on GPUs; empty where there are none."""
    names = dict.fromkeys(
        container_of(process)
        for gpu in snapshot.gpus
        for process in gpu.reading.processes
        if process.engine == engine.name and process.container
    )
    return ", ".join(names)


def _gpu_entries(engine: Engine, service: Service, figures: FigureMaker) -> list[Entry]:
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
        entries.append(figures.of_field("gpu_count"))
    if hardware.tp and service is Service.GENERATION:
        stages = f" x {hardware.pp} pipeline stages" if hardware.pp > 1 else ""
        entries.append(Fact("GPUs per rank", f"{hardware.tp} tensor parallel{stages}"))
    return entries


def _load_section(engine: Engine, view: View, service: Service, figures: FigureMaker) -> Section:
    """Requests that run and wait, how full the KV cache is, and how long the running sequences are."""
    entries = figures.table(("running", "waiting"))
    entries += figures.known(_OPTIONAL_LOAD)
    # Counted from the tokens in the KV cache, by sequence.
    context_basis = DERIVED if engine.sources.get("context_tokens", "").startswith("KV") else ESTIMATED
    entries += [
        _kv_usage(engine, view, figures),
        figures.of_field("kv_pool_tokens"),
        figures.of_field("context_tokens", context_basis),
        figures.of_field("batch", DERIVED, formula=_batch_formula(engine)),
    ]
    prompt_rates = known_numbers(engine.rates.prefill_tokens_per_s, engine.rates.cached_tokens_per_s)
    if prompt_rates is not None:
        prefill, cached = prompt_rates
        if prefill + cached > 0.0:
            share = figure_text(values.percent(cached / (prefill + cached)))
            entries.append(Sentence(f"the prefix cache saved {share} of the prompt tokens"))
    if service is Service.GENERATION:
        entries.append(Sentence("context: mean tokens of a running sequence; batch: sequences per step of one rank"))
    return Section("load", entries)


def _kv_usage(engine: Engine, view: View, figures: FigureMaker) -> Figure:
    """The share of the KV cache in use, in the tone of the level that it has reached."""
    usage = engine.load.kv_usage_ratio
    formula = ""
    numbers = known_numbers(usage, engine.load.kv_pool_tokens)
    if numbers is not None:
        used_ratio, pool_tokens = numbers
        formula = f"{used_ratio * pool_tokens:,.0f} of {pool_tokens:,.0f} tokens"
    tone = tone_of(ENGINE["kv_usage_ratio"].level, usage, view)
    return figures.of_field("kv_usage_ratio", formula=formula, tone=tone)


def _batch_formula(engine: Engine) -> str:
    """Decode tokens / steps, and / tokens of a sequence per step where speculation makes these more than one."""
    rates = engine.rates
    numbers = known_numbers(rates.decode_tokens_per_s, rates.steps_per_s, rates.batch)
    if numbers is None:
        return ""
    tokens_per_s, steps_per_s, batch = numbers
    if steps_per_s <= 0.0 or batch <= 0.0:
        return ""
    text = formula_text("{} / {}", (tokens_per_s, values.token_rate), (steps_per_s, values.rate))
    tokens_per_sequence = tokens_per_s / steps_per_s / batch
    if abs(tokens_per_sequence - 1.0) < _ONE_TOKEN_TOLERANCE:
        return text
    return f"{text} / {tokens_per_sequence:.2f} tokens per step and sequence"


def _rates_section(engine: Engine, figures: FigureMaker) -> Section:
    """Tokens, requests and steps per second, and rates that only some engines have."""
    rates = engine.rates
    entries = [
        *figures.table(("decode_tokens_per_s", "prefill_tokens_per_s", "cached_tokens_per_s", "requests_per_s")),
        figures.of_field("steps_per_s", basis_of_steps(engine, MEASURED)),
        figures.of_field("preemptions_per_s"),
        *_optional_rates(engine, figures),
    ]
    preemptions_per_s = known_number(rates.preemptions_per_s)
    if preemptions_per_s is not None and preemptions_per_s > 0.0:
        entries.append(Sentence("! preemptions: the KV cache is too small, requests are computed again", "warn"))
    return Section("rates", entries)


def _optional_rates(engine: Engine, figures: FigureMaker) -> list[Entry]:
    """The rates that only some engines have, where this one does."""
    entries: list[Entry] = []
    for field in _OPTIONAL_RATES:
        reading = value_of(engine, field)
        if not isinstance(reading, Missing) or reading.reason not in _ABSENT_REASONS:
            entries.append(figures.of_field(field))
    return entries


def _energy_section(engine: Engine, service: Service, figures: FigureMaker) -> Section:
    """Power of the engine's GPUs, and their work per joule."""
    watts = (engine.hardware.power_w, values.watts)
    tokens_per_s = (
        engine.rates.trained_tokens_per_s if service is Service.TRAINING else engine.rates.decode_tokens_per_s
    )
    tokens = formula_text("{} / {}", (tokens_per_s, values.token_rate), watts)
    flops = formula_text("{} / {}", (engine.efficiency.flops_per_s, values.flop_rate), watts)
    note = _TOKENS_COUNTED.get(service, "")
    entries: list[Entry] = [
        figures.of_field("power_w"),
        figures.of_field("tokens_per_j", DERIVED, formula=tokens),
        figures.of_field("flops_per_j", DERIVED, formula=flops),
        Sentence(f"{note}power of its GPUs only: CPU, fans and power supplies come on top"),
    ]
    return Section("energy", entries, side=1)


def _rank_sections(engine: Engine) -> list[Section]:
    """The load of each data-parallel rank; no section with one rank."""
    if len(engine.rank_loads) < 2:
        return []
    entries: list[Entry] = []
    for load in engine.rank_loads[:_MOST_RANKS]:
        text = load_text(
            "{}",
            decode=load.decode_tokens_per_s,
            running=load.running,
            waiting=load.waiting,
            kv_usage=load.kv_usage_ratio,
        )
        entries.append(Fact(f"rank {load.rank}", text or NO_FIGURES))
    if len(engine.rank_loads) > _MOST_RANKS:
        entries.append(Sentence(f"and {len(engine.rank_loads) - _MOST_RANKS} more"))
    return [Section("data-parallel ranks", entries, side=1)]


def _total_sections(engine: Engine, service: Service, figures: FigureMaker, counted_since: str) -> list[Section]:
    """Tokens in all; for a training run the tokens and samples that it trained, as far as it counts them.

    `counted_since`: when the counts began (RFC 3339) at a moment of the past; empty now, for the start of gpumon.
    """
    since = clock(wall_of(counted_since)) if counted_since else "gpumon started"
    totals = engine.tokens_total
    if service is Service.TRAINING:
        title = f"trained since {since}"
        counter = "run"
        trained = (
            ReadingRow(totals.trained, "tokens", "trained_tokens_per_s", values.tokens),
            ReadingRow(totals.samples, "samples", "samples_per_s", values.whole),
        )
        rows = [row for row in trained if not isinstance(row.reading, Missing)]
    else:
        title = f"tokens since {since}"
        counter = "engine"
        rows = [
            ReadingRow(totals.decode, "decode", "decode_tokens_per_s", values.tokens),
            ReadingRow(
                totals.prefill_computed, ENGINE["prefill_tokens_per_s"].name, "prefill_tokens_per_s", values.tokens
            ),
            ReadingRow(totals.prefill_cached, ENGINE["cached_tokens_per_s"].name, "cached_tokens_per_s", values.tokens),
        ]
    if not rows:
        return []
    # The source of its field is that of the rate.
    entries: list[Entry] = [
        figures.of_reading(row.reading, row.name, row.field, row.write)._replace(source="") for row in rows
    ]
    entries.append(Sentence(f"counted by the {counter} since {since}; restarts of it are handled"))
    return [Section(title, entries, side=1)]


def _mean_sections(engine: Engine, figures: FigureMaker) -> list[Section]:
    """Means since the process started; no section where that is not known."""
    means = engine.since_start
    if isinstance(means.seconds, Missing):
        return []
    entries = figures.known(f"since_start.{field}" for field in _SINCE_START)
    entries.append(Sentence("from the engine's own counters; no verdict uses them"))
    return [Section(f"mean since start, {duration_text(means.seconds)} ago", entries, side=1)]


def _advance_sections(engine: Engine) -> list[Section]:
    """How the figures that are not live advance; no section where all are live."""
    entries: list[Entry] = []
    for advance, meaning in _ADVANCE_MEANINGS.items():
        names = [
            _NAMES_OF_FIELDS.get(field, field)
            for field, advance_of_field in engine.advances.items()
            if advance_of_field == advance
        ]
        if names:
            entries.append(Sentence(f"{', '.join(names)}: {meaning}"))
    if entries:
        return [Section("how its figures move", entries, side=1)]
    return []
