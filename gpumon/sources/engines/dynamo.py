"""The frontend of NVIDIA Dynamo: what users see of each model. Its workers are engines with endpoints of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EngineKind
from gpumon.sources.engines.adapter import (
    MOST_PARTS,
    NO_BODIES,
    Adapter,
    Bodies,
    EnginePage,
    Metric,
    Rule,
    Tables,
    by_name,
    frozen,
    started_wall_s,
)
from gpumon.sources.engines.plan import Collected
from gpumon.sources.engines.remainder import Remainder
from gpumon.sources.exposition import Scan, Series

PREFIX: Final = "dynamo_frontend_"
CONTEXT: Final = "dynamo_frontend_model_context_length"
OUTPUT: Final = "dynamo_frontend_output_tokens_total"
LABEL: Final = "model"
FRONTEND: Final = {"frontend": "yes"}
"""Stands in `info`: its tokens are those of its workers, and it runs on no GPU. Never add the two."""


def _rule(quantity: str, *names: str, advance: Advance = Advance.LIVE) -> Rule:
    return Rule(quantity, tuple(Metric(PREFIX + name, advance=advance) for name in names))


TABLES: Final = Tables(
    rank_label="",
    part_label=LABEL,
    counters=(
        _rule(q.DECODE_TOKENS, "output_tokens_total"),
        _rule(q.PROMPT_TOKENS, "input_sequence_tokens_sum", advance=Advance.END),
        _rule(q.PREFILL_CACHED, "cached_tokens_sum", advance=Advance.END),
        _rule(q.REQUESTS, "requests_total"),
        Rule(q.FAILURES, (Metric(PREFIX + "requests_total", label="status", value="error"),)),
    ),
    gauges=(
        # What is bound for an engine; the second counts from the HTTP request on.
        _rule(q.RUNNING, "inflight_requests", "active_requests"),
        # Until its first token: queueing and prefill alike.
        _rule(q.WAITING, "queued_requests"),
    ),
    histograms=(
        _rule(q.TTFT, "time_to_first_token_seconds"),
        _rule(q.ITL, "inter_token_latency_seconds"),
        _rule(q.E2E, "request_duration_seconds"),
        _rule(q.PROMPT_LENGTH, "input_sequence_tokens"),
        _rule(q.OUTPUT_LENGTH, "output_sequence_tokens"),
    ),
    extra=(CONTEXT,),
)


class DynamoAdapter(Adapter):
    """One frontend, a page for each model that it serves."""

    kind = EngineKind.DYNAMO
    tables = TABLES
    prefixes = (PREFIX,)
    from_documentation = True

    def __init__(self) -> None:
        super().__init__()
        self._computed = Remainder()

    def read_all(self, scan: Scan, bodies: Bodies = NO_BODIES) -> tuple[EnginePage, ...]:
        """A page for each model. Its traffic stands under the name in lower case, its settings under the true one.

        A name with neither settings nor output is one that somebody asked for and nobody serves.
        """
        served: dict[str, str] = {}
        by_model: dict[str, dict[Series, float]] = {}
        for series, value in scan.values.items():
            if model := series.labels.get(LABEL, ""):
                folded = model.casefold()
                by_model.setdefault(folded, {})[series] = value
                if series.name == CONTEXT or (series.name == OUTPUT and folded not in served):
                    served[folded] = model
        names = sorted(served)[:MOST_PARTS]
        self._parts = {name: self._parts.get(name) or type(self)() for name in names}
        cut = len(served) > MOST_PARTS
        pages = (
            self._parts[name]
            .read(scan._replace(values=by_model[name]), bodies)
            ._replace(part=name, model=served[name], cut=cut)
            for name in names
        )
        started = started_wall_s(by_name(scan))
        return tuple(page._replace(started_wall_s=started) for page in pages if page.ranks)

    def read(self, scan: Scan, bodies: Bodies = NO_BODIES) -> EnginePage:  # noqa: ARG002
        """The page of one model; no rank where none of its requests was seen."""
        found = by_name(scan)
        taken = self.collect(found)
        self._work_out(taken)
        context = next((value for _, value in found.get(CONTEXT, ()) if value >= 1.0), 0.0)
        return EnginePage(
            ranks=frozen(taken.ranks.values()),
            live=taken.live,
            info={**FRONTEND, **({"context_len": f"{context:.0f}"} if context else {})},
            model="",
            started_wall_s=0.0,
            exact_steps=False,
            advance=taken.advance,
        )

    def _work_out(self, taken: Collected) -> None:
        """Running requests are those in flight that have their first token; computed prefill is input - cached."""
        live, advance = taken.live, taken.advance
        for rank in taken.ranks.values():
            if q.RUNNING in rank.gauges and q.WAITING in rank.gauges:
                rank.gauges[q.RUNNING] = max(0.0, rank.gauges[q.RUNNING] - rank.gauges[q.WAITING])
            prompt, cached = (rank.counters.get(name) for name in (q.PROMPT_TOKENS, q.PREFILL_CACHED))
            if prompt is not None and cached is not None:
                rank.counters[q.PREFILL_COMPUTED] = self._computed.of(rank.name, prompt, cached)
        if {q.RUNNING, q.WAITING} <= live.keys():
            live[q.RUNNING] = f"{live[q.RUNNING]} - {_short(live, q.WAITING)}"
            advance[q.RUNNING] = Advance.DERIVED
        if {q.PROMPT_TOKENS, q.PREFILL_CACHED} <= live.keys():
            live[q.PREFILL_COMPUTED] = f"{live[q.PROMPT_TOKENS]} - {_short(live, q.PREFILL_CACHED)}"
            advance[q.PREFILL_COMPUTED] = Advance.END


def _short(live: Mapping[str, str], quantity: str) -> str:
    return live[quantity].removeprefix(PREFIX)
