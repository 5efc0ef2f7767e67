"""A page of replicas: the sums of the engines that serve one model, and who of them stands apart."""

from __future__ import annotations

from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Engine, Replicas, Snapshot
from gpumon.tui.detail import values
from gpumon.tui.detail.blocks import DERIVED, Entry, Fact, Figures, Section, Sentence
from gpumon.tui.detail.latencies import latencies
from gpumon.tui.detail.values import said
from gpumon.tui.detail.why import Subject, explain
from gpumon.tui.replica_rows import as_engine, mapped_of
from gpumon.tui.table import spans
from gpumon.tui.view import View


def sections(replicas: Replicas, snapshot: Snapshot, view: View) -> list[Section]:
    """All sections, in the order of a narrow screen."""
    figures = Figures({}, explain(Subject()))
    own = [engine for engine in snapshot.engines if engine.name in replicas.engines]
    partly = mapped_of(replicas)
    whose = f"{partly}, as the GPUs of the others are not known" if partly else "of all their GPUs together"
    entries: list[Entry] = [
        figures("running", replicas.running, values.whole, "running"),
        figures("waiting", replicas.waiting, values.whole, "waiting"),
        figures("KV cache in use", replicas.kv_usage_ratio, values.percent, "kv_usage_ratio", DERIVED),
        figures("decode", replicas.decode_tokens_per_s, values.token_rate, "decode_tokens_per_s"),
        figures("prefill computed", replicas.prefill_tokens_per_s, values.token_rate, "prefill_tokens_per_s"),
        figures("requests", replicas.requests_per_s, values.rate, "requests_per_s"),
        figures(f"MFU {partly}".rstrip(), replicas.mfu_ratio, values.percent, "mfu_ratio", DERIVED),
        figures(f"MBU {partly}".rstrip(), replicas.mbu_ratio, values.percent, "mbu_ratio", DERIVED),
        Sentence(f"sums of the replicas that answer; KV cache: their mean; MFU and MBU: {whose}"),
    ]
    return [
        Section("all replicas", entries),
        *latencies(as_engine(replicas), view, figures.explain),
        Section("each replica", [entry for engine in own for entry in _one(engine)], side=1),
    ]


def _one(engine: Engine) -> list[Entry]:
    if isinstance(engine.load.running, Missing) and engine.load.running.reason in (Reason.UNREACHABLE, Reason.STALE):
        return [Fact(engine.name, engine.fault or engine.state.value, tone="warn")]
    parts = [
        f"decode {said(values.token_rate(engine.rates.decode_tokens_per_s))}"
        if not isinstance(engine.rates.decode_tokens_per_s, Missing)
        else "",
        f"running {engine.load.running:.0f}" if not isinstance(engine.load.running, Missing) else "",
        f"waiting {engine.load.waiting:.0f}" if not isinstance(engine.load.waiting, Missing) else "",
        f"KV {said(values.percent(engine.load.kv_usage_ratio))}"
        if not isinstance(engine.load.kv_usage_ratio, Missing)
        else "",
        f"GPU {spans(engine.hardware.gpus)}" if engine.hardware.gpus else "",
    ]
    entries: list[Entry] = [Fact(engine.name, " · ".join(part for part in parts if part) or "no figures yet")]
    entries += [Sentence(f"! {text}", "warn", indent=4) for text in engine.deviates]
    return entries
