"""The frontend of NVIDIA Dynamo: what users see of each model. Its workers are engines with endpoints of their own;
what a worker writes beside its engine's metrics is read by that engine's adapter, with the names that stand here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineKind, EngineReading
from gpumon.sources.engines.adapter import (
    MOST_PARTS,
    NO_BODIES,
    Adapter,
    Bodies,
    Figures,
    Found,
    Metric,
    Page,
    Rule,
    Tables,
    by_name,
    labels_of,
    picked,
    started_wall_s,
)
from gpumon.sources.engines.derived import Remainder
from gpumon.sources.exposition import Scan, Series

PREFIX: Final = "dynamo_frontend_"
"""Unless `--metrics-prefix` or DYN_METRICS_PREFIX says otherwise."""
STEMS: Final = (
    *("disconnected_clients", "inflight_requests", "queued_requests", "output_tokens_total"),
    *("input_sequence_tokens_count", "output_sequence_tokens_count", "model_context_length", "model_migration_limit"),
    *("model_kv_cache_block_size", "model_total_kv_blocks", "worker_active_decode_blocks"),
)
"""How names of a frontend end, whatever their prefix."""
LEAST_STEMS: Final = 4
"""Of one prefix by which a page is taken for a frontend's: other servers have some such names."""
CONTEXT: Final = "model_context_length"
OUTPUT: Final = "output_tokens_total"
LABEL: Final = "model"
FRONTEND: Final = {"frontend": "yes"}
"""Stands in `info`: its tokens are those of its workers, and it runs on no GPU. Never add the two."""

WORKER_REQUESTS: Final = "dynamo_component_requests_total"
WORKER_KV_USAGE: Final = (
    "dynamo_component_gpu_cache_usage_percent",
    "dynamo_component_kvstats_gpu_cache_usage_percent",
)
"""Share of the KV cache in use, 0 to 1 in spite of the names; the second until Dynamo 0.8."""
WORKER_PLACE: Final = ("dynamo_namespace", "dynamo_component")
"""Labels that say which part of a deployment a worker is, such as `backend` or `prefill`."""


def worker_place(found: Mapping[str, Found]) -> dict[str, str]:
    """The worker's place in its deployment, for `info`; empty where this is no Dynamo worker."""
    labels = labels_of(found, WORKER_REQUESTS)
    return {name: labels[name] for name in WORKER_PLACE if labels.get(name)}


@lru_cache(maxsize=16)
def tables(prefix: str) -> Tables:
    """The names of a frontend under a prefix."""

    def rule(quantity: str, *names: str, advance: Advance = Advance.LIVE) -> Rule:
        return Rule(quantity, tuple(Metric(prefix + name, advance=advance) for name in names))

    return Tables(
        rank_label="",
        part_label=LABEL,
        counters=(
            rule(q.DECODE_TOKENS, "output_tokens_total"),
            # Observed with the first token (lib/llm/src/http/service/metrics.rs, `observe_response`).
            rule(q.PROMPT_TOKENS, "input_sequence_tokens_sum", advance=Advance.PROMPT),
            # Observed once the worker tells, as late as at the end.
            rule(q.PREFILL_CACHED, "cached_tokens_sum", advance=Advance.END),
            rule(q.REQUESTS, "requests_total"),
            Rule(q.FAILURES, (Metric(prefix + "requests_total", label="status", value="error"),)),
            rule(q.REJECTIONS, "model_rejection_total"),
        ),
        gauges=(
            # What is bound for an engine; the second counts from the HTTP request on.
            rule(q.RUNNING, "inflight_requests", "active_requests"),
            # Until its first token: queueing and prefill alike.
            rule(q.WAITING, "queued_requests"),
            # By kind of worker and class of policy; with a label `model` in newer versions only.
            Rule(q.ROUTER_QUEUE, (Metric(prefix + "router_queue_pending_requests"),), added=True),
        ),
        histograms=(
            rule(q.TTFT, "time_to_first_token_seconds"),
            rule(q.ITL, "inter_token_latency_seconds"),
            rule(q.E2E, "request_duration_seconds"),
            rule(q.PROMPT_LENGTH, "input_sequence_tokens"),
            rule(q.OUTPUT_LENGTH, "output_sequence_tokens"),
        ),
        extra=(prefix + CONTEXT, prefix + "cached_tokens_count"),
    )


class DynamoAdapter(Adapter):
    """One frontend, a page for each model that it serves."""

    kind = EngineKind.DYNAMO
    prefixes = (PREFIX,)
    prefix = PREFIX
    tables = tables(PREFIX)
    from_documentation = True

    def __init__(self) -> None:
        super().__init__()
        self._computed = Remainder()

    @classmethod
    def claims(cls, page: Page) -> bool:
        """A frontend's names under whatever prefix."""
        return super().claims(page) or bool(_prefix(page))

    @classmethod
    def of(cls, page: Page) -> type[Adapter]:
        """One for the prefix of this page."""
        prefix = "" if super().claims(page) else _prefix(page)
        return _with(prefix) if prefix else cls

    def read_all(self, scan: Scan, bodies: Bodies = NO_BODIES) -> tuple[EngineReading, ...]:
        """A page for each model. Its traffic stands under the name in lower case, its settings under the true one.

        A name with neither settings nor output is one that somebody asked for and nobody serves.
        """
        served: dict[str, str] = {}
        by_model: dict[str, dict[Series, float]] = {}
        for series, value in scan.values.items():
            if model := series.labels.get(LABEL, ""):
                folded = model.casefold()
                by_model.setdefault(folded, {})[series] = value
                name = series.name.removeprefix(self.prefix)
                if name == CONTEXT or (name == OUTPUT and folded not in served):
                    served[folded] = model
        names = sorted(served)[:MOST_PARTS]
        self._parts = {name: self._parts.get(name) or type(self)() for name in names}
        self.cut = len(served) > MOST_PARTS
        started = started_wall_s(by_name(scan))
        readings = (
            msgspec.structs.replace(
                self._parts[name].read(scan._replace(values=by_model[name]), bodies),
                part=name,
                model=served[name],
                started_wall_s=started,
            )
            for name in names
        )
        return tuple(reading for reading in readings if reading.ranks)

    def read(self, scan: Scan, bodies: Bodies = NO_BODIES) -> EngineReading:  # noqa: ARG002
        """The page of one model; no rank where none of its requests was seen."""
        found = by_name(scan)
        figures = self.collect(found)
        told = sum(value for _, value in picked(found, Metric(f"{self.prefix}cached_tokens_count")))
        self._work_out(figures, told)
        context = next((value for _, value in found.get(self.prefix + CONTEXT, ()) if value >= 1.0), 0.0)
        figures.info.update(FRONTEND, **({"context_len": f"{context:.0f}"} if context else {}))
        return self.reading(figures)

    def _work_out(self, figures: Figures, told: float) -> None:
        """Running requests are those in flight that have their first token; computed prefill is input - cached.

        Cached tokens are known of `told` requests only, the others (yet to be told) are taken to have as many.
        """
        live, advance = figures.live, figures.advance
        for rank in figures.ranks.values():
            if q.RUNNING in rank.gauges and q.WAITING in rank.gauges:
                rank.gauges[q.RUNNING] = max(0.0, rank.gauges[q.RUNNING] - rank.gauges[q.WAITING])
            prompt, cached = (rank.counters.get(name) for name in (q.PROMPT_TOKENS, q.PREFILL_CACHED))
            prompts = rank.histograms.get(q.PROMPT_LENGTH)
            if prompt is not None and cached is not None and prompts is not None and told > 0.0:
                whole = cached * prompts.count / told
                rank.counters[q.PREFILL_COMPUTED] = self._computed.of(rank.name, prompt, whole)
                more = f" x {self._short(live, q.PROMPT_LENGTH)}_count / cached_tokens_count"
                live[q.PREFILL_COMPUTED] = f"{live[q.PROMPT_TOKENS]} - {self._short(live, q.PREFILL_CACHED)}{more}"
                advance[q.PREFILL_COMPUTED] = Advance.PROMPT
        if {q.RUNNING, q.WAITING} <= live.keys():
            live[q.RUNNING] = f"{live[q.RUNNING]} - {self._short(live, q.WAITING)}"
            advance[q.RUNNING] = Advance.DERIVED

    def _short(self, live: Mapping[str, str], quantity: str) -> str:
        return live[quantity].removeprefix(self.prefix)


@lru_cache(maxsize=16)
def _with(prefix: str) -> type[DynamoAdapter]:
    """The adapter of frontends with another prefix."""
    return type("PrefixedDynamoAdapter", (DynamoAdapter,), {"prefix": prefix, "tables": tables(prefix)})


def _prefix(page: Page) -> str:
    """The prefix of a frontend's names; empty where this is no page of one."""
    ends = Counter(name.removesuffix(stem) for name in page.names for stem in STEMS if name.endswith(f"_{stem}"))
    return next((prefix for prefix, count in ends.most_common(1) if count >= LEAST_STEMS), "")
