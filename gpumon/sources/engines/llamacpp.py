"""llama.cpp's server: live tokens from /metrics and /slots together; a router's models, from /models.

Names: tools/server/README.md and server-context.cpp of 0c1e570. The speed gauges (`predicted_tokens_seconds`,
`prompt_tokens_seconds`) are never used: each reader of the page sets them back for all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpumon.readings import quantities as q
from gpumon.readings.frame import TOKENS_OFF, Advance, EngineKind
from gpumon.sources.engines.adapter import (
    MOST_PARTS,
    NO_BODIES,
    Adapter,
    Bodies,
    Companion,
    EnginePage,
    Found,
    Metric,
    Page,
    Rule,
    Tables,
    by_name,
    frozen,
    picked,
)
from gpumon.sources.engines.llamacpp_counts import Counts, LiveCounts, Printed, half_step_of_count
from gpumon.sources.engines.llamacpp_server import Server, is_router, router_models, server_of
from gpumon.sources.engines.llamacpp_slots import Slots, is_slots, slots_of
from gpumon.sources.engines.plan import Collected, Rank
from gpumon.sources.exposition import Scan

PREFIX: Final = "llamacpp:"
SWITCH: Final = "start it with --metrics"
METRICS: Final = "/metrics"
SLOTS: Final = "/slots"
MODELS: Final = "/models"
"""A router's list of models: it neither loads one nor keeps one loaded (tools/server/README.md, router mode)."""
PROPS: Final = Companion("/props", 60.0)
ASKED: Final = Companion(SLOTS)
REFUSED: Final = Companion(SLOTS, 60.0)
"""Where it was not answered (`--no-slots`)."""
STEPS: Final = "llamacpp:n_decode_total"
BUSY: Final = "llamacpp:n_busy_slots_per_decode"
ENDED: Final = "llamacpp:tokens_predicted_total"
RUN: Final = "/slots n_decoded of running requests"
COARSE_STEPS: Final = 10.0
"""Printed more coarsely, a 10 s rate of a slow server is off by more than about 1 %."""


def _rule(quantity: str, name: str, advance: Advance = Advance.LIVE) -> Rule:
    return Rule(quantity, (Metric(PREFIX + name, advance=advance),))


TABLES: Final = Tables(
    rank_label="rank",
    counters=(
        # Without the cached ones: when the last batch of a prompt is done.
        _rule(q.PREFILL_COMPUTED, "prompt_tokens_total", Advance.PROMPT),
        _rule(q.PREFILL_CACHED, "prompt_tokens_cached_total", Advance.PROMPT),
        _rule(q.DRAFTS, "spec_decode_num_drafts_total"),
        _rule(q.ACCEPTED_TOKENS, "spec_decode_num_accepted_tokens_total"),
    ),
    gauges=(
        _rule(q.RUNNING, "requests_processing"),
        _rule(q.WAITING, "requests_deferred"),
    ),
    histograms=(),
    extra=(STEPS, BUSY, ENDED),
)


class LlamaCppAdapter(Adapter):
    """One llama.cpp server: one model, or the models that a router has loaded (without figures)."""

    kind = EngineKind.LLAMA_CPP
    tables = TABLES
    prefixes = (PREFIX,)
    companions: tuple[Companion, ...] = (ASKED, PROPS)

    def __init__(self) -> None:
        super().__init__()
        self._counts = LiveCounts()
        self._props_body = b""
        self._server = Server()
        self._speculates = False

    @classmethod
    def claims(cls, page: Page) -> bool:
        """Whether this is its metrics page, or one of the JSON pages that only it has."""
        if page.path == SLOTS:
            return is_slots(page.body)
        if page.path == MODELS:
            return is_router(page.body)
        return super().claims(page)

    def read_all(self, scan: Scan, bodies: Bodies = NO_BODIES) -> tuple[EnginePage, ...]:
        """One page; of a router one for each model that it has loaded."""
        if METRICS not in bodies and SLOTS not in bodies and MODELS in bodies:
            self.companions = ()
            return router_models(bodies[MODELS])[:MOST_PARTS]
        return super().read_all(scan, bodies)

    def read(self, scan: Scan, bodies: Bodies = NO_BODIES) -> EnginePage:
        """The page in canonical quantities; no rank where it is no page of llama.cpp."""
        found = by_name(scan)
        slots = slots_of(bodies.get(SLOTS, b""))
        server = self._asked(bodies)
        taken = self.collect(found)
        printed = _printed(found, taken, slots)
        self._speculates = self._speculates or printed.speculates
        printed = printed._replace(speculates=self._speculates)
        if slots or taken.ranks or printed.steps is not None:
            rank = taken.ranks.setdefault("0", Rank("0"))
            _add_counts(rank, taken, self._counts.read(printed, slots), live=self._counts.has_slots)
            _add_prompts(rank, taken)
            _add_slots(rank, taken, slots)
            if server.slots:
                _put(rank.gauges, taken, q.MOST_RUNNING, float(server.slots), "/props total_slots")
        alone = SLOTS in bodies and METRICS not in bodies and not found
        self.companions = (PROPS,) if alone else (ASKED if self._counts.has_slots else REFUSED, PROPS)
        return EnginePage(
            ranks=frozen(taken.ranks.values()),
            live=taken.live,
            info={**server.info, TOKENS_OFF: SWITCH} if alone else server.info,
            model=server.model,
            started_wall_s=0.0,
            exact_steps=not printed.speculates and _known_steps(taken, slots),
            cut=self._cut,
            advance=taken.advance,
            model_root=server.model_path,
            version=server.version,
        )

    def _asked(self, bodies: Bodies) -> Server:
        body = bodies.get(PROPS.path, b"")
        if body is not self._props_body:
            self._props_body, self._server = body, server_of(body)
        return self._server


def _printed(found: Mapping[str, Found], taken: Collected, slots: Slots) -> Printed:
    """What the page says of tokens and steps. Without speculation the counters of drafts stand at 0: left out."""
    ranks = taken.ranks.values()
    drafts = sum(rank.counters.get(q.DRAFTS, 0.0) for rank in ranks)
    if not drafts:
        for quantity in (q.DRAFTS, q.ACCEPTED_TOKENS):
            taken.live.pop(quantity, None)
            for rank in ranks:
                rank.counters.pop(quantity, None)
    steps, busy = _one(found, STEPS), _one(found, BUSY)
    product = None if steps is None or busy is None or half_step_of_count(steps) else steps * busy
    first = next(iter(ranks), Rank("0"))
    return Printed(
        steps,
        _one(found, ENDED),
        product,
        first.counters.get(q.PREFILL_COMPUTED),
        first.gauges.get(q.RUNNING),
        bool(drafts) or any(slot.busy and slot.speculative for slot in slots),
    )


def _known_steps(taken: Collected, slots: Slots) -> bool:
    """Whether the steps are known well enough for a 10 s rate."""
    steps = next((rank.counters.get(q.STEPS) for rank in taken.ranks.values()), None)
    return steps is not None and (bool(slots) or half_step_of_count(steps) <= COARSE_STEPS)


def _one(found: Mapping[str, Found], name: str) -> float | None:
    return next((value for _, value in picked(found, Metric(name))), None)


def _add_counts(rank: Rank, taken: Collected, counts: Counts, *, live: bool) -> None:
    if counts.steps is not None:
        _put(rank.counters, taken, q.STEPS, counts.steps, _tracked(STEPS, counts.steps, live=live))
    if counts.tokens is not None:
        source, advance = (f"{ENDED} + {RUN}", Advance.DERIVED) if live else (ENDED, Advance.END)
        _put(rank.counters, taken, q.DECODE_TOKENS, counts.tokens, _tracked(source, counts.tokens, live=live), advance)


def _tracked(source: str, count: float, *, live: bool) -> str:
    """The source of a count, which may be printed too coarsely to be all of it."""
    return source + (", between two printed values by /slots" if live and half_step_of_count(count) else "")


def _add_prompts(rank: Rank, taken: Collected) -> None:
    parts = [rank.counters.get(name) for name in (q.PREFILL_COMPUTED, q.PREFILL_CACHED)]
    if parts[0] is not None and parts[1] is not None:
        source = "llamacpp:prompt_tokens_total + prompt_tokens_cached_total"
        _put(rank.counters, taken, q.PROMPT_TOKENS, parts[0] + parts[1], source, Advance.PROMPT)


def _add_slots(rank: Rank, taken: Collected, slots: Slots) -> None:
    """The KV cache: what the requests that run have in their contexts, and what the slots hold together."""
    if not slots:
        return
    busy = [slot for slot in slots if slot.busy]
    if q.RUNNING not in rank.gauges:
        _put(rank.gauges, taken, q.RUNNING, float(len(busy)), "/slots is_processing")
    _put(rank.gauges, taken, q.MOST_RUNNING, float(len(slots)), SLOTS)
    pool = sum(slot.context for slot in slots)
    if not pool:
        return
    _put(rank.gauges, taken, q.POOL_TOKENS, pool, "/slots n_ctx of all slots")
    if all(slot.used >= 0.0 for slot in busy):
        used = sum((slot.used for slot in busy), 0.0)
        _put(rank.gauges, taken, q.USED_TOKENS, used, "/slots tokens of the running contexts")
        _put(rank.gauges, taken, q.KV_USAGE, min(1.0, used / pool), "/slots tokens of the running contexts / n_ctx")


def _put(
    values: dict[str, float],
    taken: Collected,
    quantity: str,
    value: float,
    source: str,
    advance: Advance = Advance.LIVE,
) -> None:
    values[quantity] = value
    taken.live[quantity] = source
    if advance is not Advance.LIVE:
        taken.advance[quantity] = advance
