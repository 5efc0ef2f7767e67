"""A stretch of a recording as text, Markdown or JSON: what `gpumon report` prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

import msgspec

from gpumon.figures.engine import ENGINE
from gpumon.figures.gpu import GPU, USE
from gpumon.outputs import markdown as md
from gpumon.outputs.figure_column import cell_writer, figure_column
from gpumon.outputs.goodput import goodput_text
from gpumon.outputs.json import as_object
from gpumon.outputs.report_document import ReportDocument, ReportSection, as_markdown, as_text
from gpumon.outputs.tables import ColumnSpec, PrintedColumn, columns_of, with_figures
from gpumon.outputs.units import FORMAT_BY_UNIT, NONE, join_known, money_text
from gpumon.readings import format as human
from gpumon.readings.fleet_period import FleetIncident
from gpumon.readings.missing import Missing, Reading, number
from gpumon.readings.period import REPORT_SCHEMA, EnginePeriod, GpuPeriod, Incident, Period, SpanTotals, known_s_field
from gpumon.readings.prices import KWH_J, NO_PRICE
from gpumon.readings.text import clean

COVERED_THROUGHOUT: Final = 0.98
"""Share of the recorded time from which on a mean is one over all of it."""
_TOKEN_FIELDS: Final = {
    "prefill": "prefill_computed_tokens",
    "prefill cached": "prefill_cached_tokens",
    "decode": "decode_tokens",
    "trained on": "trained_tokens",
}
"""Kinds of tokens, and their fields."""
_tokens_per_joule: Final = cell_writer(ENGINE["tokens_per_j"])


def encode(period: Period) -> bytes:
    """One line of JSON, without a newline; the keys and `missing` as in docs/json.md."""
    return msgspec.json.encode({"schema": REPORT_SCHEMA, **as_object(period)})


def report(period: Period, width: int = 100) -> str:
    """The stretch, its means and totals, tables of GPUs and engines, incidents; in at most `width` cells."""
    return as_text(_document(period), width)


def markdown(period: Period) -> str:
    """The same as tables to paste into a ticket."""
    return as_markdown(_document(period))


def _document(period: Period) -> ReportDocument:
    """Totals, GPUs, engines and incidents."""
    gpus = ReportSection(
        columns=columns_of(period.gpus, _GPU_COLUMNS) + with_figures(columns_of(period.gpus, _PRICE_COLUMNS)),
        closing="" if period.gpus else "no GPU",
    )
    engines = ReportSection(
        columns=columns_of(period.engines, _ENGINE_COLUMNS)
        + with_figures(columns_of(period.engines, (_ENGINE_COST_COLUMN,))),
        closing="" if period.engines else "no engine",
    )
    return ReportDocument(_title(period), tuple(_facts(period)), (gpus, engines, _incident_section(period)))


def incident_table(incidents: Sequence[Incident]) -> Iterator[str]:
    """The incidents alone, in Markdown."""
    return md.markdown_table(_incident_columns(incidents))


def _title(period: Period) -> str:
    """Host and time of a report."""
    begin = local_time(period.begin)
    end = local_time(period.end)
    until = f"{end:%H:%M:%S}" if begin.date() == end.date() else f"{end:%Y-%m-%d %H:%M:%S}"
    simulated = "  SIMULATED" if period.simulated else ""
    return f"{period.host or 'recording'}  {begin:%Y-%m-%d %H:%M:%S} to {until} {end.tzname() or ''}{simulated}".strip()


def _facts(period: Period) -> Iterator[tuple[str, str]]:
    """Labels and texts of the lines on the whole recording."""
    gaps = f", {human.counted(period.gaps, 'gap')}" if period.gaps else ""
    yield "recorded", f"{duration_text(period.covered_s)} of {duration_text(period.seconds)}{gaps}"
    yield "use", ", ".join(f"{GPU[field].name} {_use_text(period, field)}" for field in USE)
    yield "tokens", tokens_text(period) + _uncounted_text(period)
    served = goodput_text(period.goodput)
    if served:
        yield "goodput", served
    yield "energy", _energy_text(period)
    cost = _cost_text(period)
    if cost:
        yield "cost", cost


def _uncounted_text(period: Period) -> str:
    """Engines of whose tokens some are not known: `; not known: those of llama-8b in 40 s without an answer`."""
    parts = []
    for engine in period.engines:
        seconds = number(engine.uncounted_s)
        if seconds:
            parts.append(f"those of {clean(engine.name, 28)} in {duration_text(seconds)} without an answer")
    if parts:
        return f"; not known: {', '.join(parts)}"
    return ""


def tokens_text(totals: SpanTotals) -> str:
    """The kinds of tokens that are counted: `1.2M prefill, 300k decode`."""
    counts = []
    for kind, field in _TOKEN_FIELDS.items():
        count = FORMAT_BY_UNIT["number"](getattr(totals, field))
        if count != NONE:
            counts.append(f"{count} {kind}")
    return ", ".join(counts) or NONE


def _cost_text(period: Period) -> str:
    """The cost, or which price is missing; empty where there is nothing to price."""
    if not isinstance(period.cost, Missing):
        idle = f"of which idle {money_text(period.idle_cost)}"
        return join_known((money_text(period.cost), idle, unused_cost_text(period.unused_cost), *token_prices(period)))
    if period.cost != NO_PRICE:
        return ""
    scope = " of every GPU" if any(not isinstance(gpu.cost, Missing) for gpu in period.gpus) else ""
    return f"no price{scope}: set gpu_hour of [prices]"


def unused_cost_text(cost: Reading) -> str:
    """Price of unused time; empty where it is not known."""
    return "" if isinstance(cost, Missing) else f"unused {money_text(cost)}"


def token_prices(totals: SpanTotals) -> Iterator[str]:
    """Prices of tokens, of those that are known."""
    if not isinstance(totals.cost_per_million_tokens, Missing):
        yield f"{money_text(totals.cost_per_million_tokens)} per million decode tokens"
    if not isinstance(totals.cost_per_million_all_tokens, Missing):
        yield f"{money_text(totals.cost_per_million_all_tokens)} per million prompt and decode tokens"


def energy_cost_text(totals: SpanTotals) -> str:
    """`, cost 12.30`, behind an energy; empty where it is not known."""
    return "" if isinstance(totals.energy_cost, Missing) else f", cost {money_text(totals.energy_cost)}"


def _use_text(period: Period, field: str) -> str:
    """A mean over GPUs and time, with how many of them and how much of it were known, where that is not all; busy is
    over idle spares, too, and says so."""
    mean = FORMAT_BY_UNIT["ratio"](getattr(period, field))
    cards = 0
    known_cards = 0
    for gpu in period.gpus:
        if not _is_slice(gpu):
            cards += 1
            known_cards += not isinstance(getattr(gpu, field), Missing)
    known_s = getattr(period, known_s_field(field))
    limits = []
    if 0 < known_cards < cards:
        limits.append(f"{known_cards} of {cards} GPUs")
    elif field == "busy_ratio" and cards > 1:
        limits.append(f"all {cards} GPUs")
    if 0.0 < known_s < COVERED_THROUGHOUT * period.covered_s:
        limits.append(f"known for {duration_text(known_s)}")
    if limits and mean != NONE:
        return f"{mean} ({', '.join(limits)})"
    return mean


def _is_slice(gpu: GpuPeriod) -> bool:
    """Whether it is a MIG slice: NVML begins their UUIDs so (nvmlDeviceGetUUID)."""
    return gpu.uuid.startswith("MIG-")


def _energy_text(period: Period) -> str:
    """Energy of all GPUs, tokens per joule, and the cost."""
    joules = period.energy_j
    if isinstance(joules, Missing):
        return NONE
    per_joule = f"{_tokens_per_joule(period.tokens_per_j)} tok/J"
    return f"{FORMAT_BY_UNIT['j'](joules)} ({joules / KWH_J:.3g} kWh), {per_joule}{energy_cost_text(period)}"


_GPU_COLUMNS: Final[tuple[ColumnSpec[GpuPeriod], ...]] = (
    ColumnSpec("gpu", lambda gpu: str(gpu.index), right=True),
    ColumnSpec("name", lambda gpu: clean(gpu.name.removeprefix("NVIDIA "), 32), keep=1),
    figure_column(GPU["busy_ratio"]),
    figure_column(GPU["mfu_ratio"]),
    figure_column(GPU["mbu_ratio"]),
    figure_column(GPU["power_w"], keep=3),
    figure_column(GPU["energy_j"], keep=4),
)
"""Columns of a GPU."""
_PRICE_COLUMNS: Final[tuple[ColumnSpec[GpuPeriod], ...]] = (
    ColumnSpec("cost", lambda gpu: money_text(gpu.cost), right=True, keep=2),
    ColumnSpec("idle cost", lambda gpu: money_text(gpu.idle_cost), right=True, keep=5),
    ColumnSpec("unused cost", lambda gpu: money_text(gpu.unused_cost), right=True, keep=6),
    ColumnSpec("energy cost", lambda gpu: money_text(gpu.energy_cost), right=True, keep=7),
)
"""Columns of GPUs that are there once a price is known."""


def output_tokens(totals: SpanTotals) -> str:
    """Tokens that were made; those that were trained on where none are served."""
    if isinstance(totals.decode_tokens, Missing):
        return FORMAT_BY_UNIT["number"](totals.trained_tokens)
    return FORMAT_BY_UNIT["number"](totals.decode_tokens)


_ENGINE_COLUMNS: Final[tuple[ColumnSpec[EnginePeriod], ...]] = (
    ColumnSpec("engine", lambda engine: clean(engine.name, 28)),
    ColumnSpec("model", lambda engine: human.model_name(engine.model, 24), keep=2),
    figure_column(ENGINE["running"], keep=6, text=lambda engine: FORMAT_BY_UNIT["rate"](engine.running_mean)),
    figure_column(ENGINE["waiting"], keep=6, text=lambda engine: FORMAT_BY_UNIT["rate"](engine.waiting_mean)),
    figure_column(ENGINE["kv_usage_ratio"], keep=5),
    ColumnSpec("decode tokens", output_tokens, right=True),
    ColumnSpec("prefill", lambda engine: FORMAT_BY_UNIT["number"](engine.prefill_computed_tokens), right=True, keep=4),
    ColumnSpec("cached", lambda engine: FORMAT_BY_UNIT["number"](engine.prefill_cached_tokens), right=True, keep=1),
    figure_column(ENGINE["decode_tokens_per_s"], keep=7),
    figure_column(ENGINE["mfu_ratio"]),
    figure_column(ENGINE["mbu_ratio"]),
    figure_column(ENGINE["tokens_per_j"], keep=3),
)
"""Columns of an engine."""
_ENGINE_COST_COLUMN: Final[ColumnSpec[EnginePeriod]] = ColumnSpec(
    "$/1M out", lambda engine: money_text(engine.cost_per_million_tokens), right=True, keep=3
)
"""Column of engines that is there once a price is known."""


def _incident_section(period: Period) -> ReportSection:
    """The incidents, and how many are left out."""
    if not period.incidents:
        return ReportSection(closing="no incidents")
    consequences = sum(bool(incident.caused_by) for incident in period.incidents)
    roots = len(period.incidents) - consequences + period.incidents_left_out
    also = f", and {consequences} that came of them" if consequences else ""
    return ReportSection(
        title=f"incidents ({roots}{also})",
        columns=_incident_columns(period.incidents),
        closing=f"and {period.incidents_left_out} more" if period.incidents_left_out else "",
    )


def _incident_columns(incidents: Sequence[Incident]) -> list[PrintedColumn]:
    """The columns of incidents; the day stands there if there are several."""
    days = {local_time(incident.begin).date() for incident in incidents}
    form = "%m-%d %H:%M:%S" if len(days) > 1 else "%H:%M:%S"
    begin: ColumnSpec[Incident] = ColumnSpec("since", lambda incident: local_time(incident.begin).strftime(form))
    return columns_of(incidents, (begin, *_INCIDENT_COLUMNS))


def incident_duration(incident: Incident | FleetIncident) -> str:
    """`4m`; `4m+` where it still stood at the end; NONE for an event, which has no end."""
    if not incident.end:
        return NONE
    if incident.ended:
        return human.age(incident.seconds)
    return human.age(incident.seconds) + "+"


_INCIDENT_COLUMNS: Final[tuple[ColumnSpec[Incident], ...]] = (
    ColumnSpec("for", incident_duration, right=True),
    ColumnSpec("level", lambda incident: incident.level.value, keep=3),
    ColumnSpec("where", lambda incident: f"{'└ ' if incident.caused_by else ''}{clean(incident.scope, 28)}"),
    ColumnSpec("what", lambda incident: clean(incident.text, 200)),
)
"""Columns of an incident behind the time at which it began."""


def duration_text(seconds: float) -> str:
    """`14 s`, `3 min 5 s`, `2 h 4 min`, `3 d 2 h`."""
    whole_s = round(seconds)
    parts = ((whole_s // 86400, "d"), (whole_s // 3600 % 24, "h"), (whole_s // 60 % 60, "min"), (whole_s % 60, "s"))
    words = [f"{amount} {unit}" for amount, unit in parts if amount]
    return " ".join(words[:2]) or "0 s"  # the two largest units


def local_time(rfc3339: str) -> datetime:
    """The time in the zone of this machine."""
    return datetime.fromisoformat(rfc3339.replace("Z", "+00:00")).astimezone()
