"""The page of replicas: the sums of the engines that serve one model, and each of these engines."""

from __future__ import annotations

from gpumon.figures.engine import ENGINE
from gpumon.figures.gpu import SHARES_OF_PEAKS
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Engine, Replicas, Snapshot
from gpumon.triage.render import evidence_text
from gpumon.tui.detail import served
from gpumon.tui.detail.blocks import DERIVED, REMARK_INDENT, Entry, Fact, FigureMaker, Section, Sentence
from gpumon.tui.detail.costs import cost_section
from gpumon.tui.detail.latencies import latency_sections
from gpumon.tui.detail.state import engine_word
from gpumon.tui.detail.values import NO_FIGURES, load_text
from gpumon.tui.detail.why import Subject, make_explainer
from gpumon.tui.replica_rows import as_engine, mapped_note
from gpumon.tui.table import spans
from gpumon.tui.view import View


def sections(replicas: Replicas, snapshot: Snapshot, view: View) -> list[Section]:
    """The sums of the engines that serve one model, and each of them."""
    figures = FigureMaker(replicas, ENGINE, {}, make_explainer(Subject()))
    note = mapped_note(replicas)
    gpus_text = f"{note}, as the GPUs of the others are not known" if note else "of all their GPUs together"
    of_all: list[Entry] = [
        *figures.table(("running", "waiting", "decode_tokens_per_s", "prefill_tokens_per_s", "requests_per_s")),
        figures.of_field("kv_usage_ratio", DERIVED),
    ]
    for field in SHARES_OF_PEAKS:
        of_all.append(figures.of_field(field, DERIVED, name=f"{ENGINE[field].name} {note}".rstrip()))
    remark = Sentence(f"sums of the replicas that answer; KV cache: their mean; MFU and MBU: {gpus_text}")
    engines = [engine for engine in snapshot.engines if engine.name in replicas.engines]
    entries = [entry for engine in engines for entry in _replica_entries(engine, snapshot)]
    together = as_engine(replicas, engines)
    return [
        Section("all replicas", [*of_all, remark]),
        *latency_sections(together, view, figures.explain),
        *served.goal_sections(together, figures),
        Section("each replica", entries, side=1),
        cost_section(together, figures),
    ]


def _replica_entries(engine: Engine, snapshot: Snapshot) -> list[Entry]:
    """One of several replicas: its load or why it has none, and how it stands apart from the others."""
    load = engine.load
    if engine.departure:
        word, tone = engine_word(engine, snapshot)
        return [Fact(engine.name, f"{word}, {engine.fault}", tone=tone)]
    if isinstance(load.running, Missing) and load.running.reason in (Reason.UNREACHABLE, Reason.STALE):
        return [Fact(engine.name, engine.fault or engine.state.value, tone="warn")]
    text = load_text(
        "decode {}",
        decode=engine.rates.decode_tokens_per_s,
        running=load.running,
        waiting=load.waiting,
        kv_usage=load.kv_usage_ratio,
    )
    gpus = f"GPU {spans(engine.hardware.gpus)}" if engine.hardware.gpus else ""
    parts = [part for part in (text, gpus) if part]
    deviations = [Sentence(f"! {evidence_text(figure)}", "warn", indent=REMARK_INDENT) for figure in engine.deviates]
    return [Fact(engine.name, " · ".join(parts) or NO_FIGURES), *deviations]
