"""llama.cpp's server: live tokens from /metrics and /slots together; a router's models, from /models.

Names and fields: tools/server/README.md and server-context.cpp of 0c1e570; older builds have fewer. The speed gauges
(`predicted_tokens_seconds`, `prompt_tokens_seconds`) are never used: each reader of the page sets them back for all
others. /slots stays because no counter of /metrics moves with the answers: `tokens_predicted_total` moves at their end,
and `n_decode_total` x `n_busy_slots_per_decode` counts tokens only while no prompt is read (a busy slot is counted in
each batch of its prompt, too, and in embeddings). Ollama starts its llama-server with /slots and without /metrics.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from gpumon.readings import quantities as q
from gpumon.readings.frame import SLEEPING, TOKENS_OFF, Advance, EngineKind, EngineReading
from gpumon.sources.engines.adapter import (
    MOST_PARTS,
    NO_BODIES,
    PATIENT,
    Adapter,
    Bodies,
    Companion,
    Figures,
    Found,
    Metric,
    Page,
    Rank,
    Rule,
    Tables,
    by_name,
    picked,
)
from gpumon.sources.engines.json_body import count, decoded, items, mapping, number, text
from gpumon.sources.exposition import Scan
from gpumon.specs import hints

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
DIGITS: Final = 6
"""With which a figure is printed: a counter moves in steps of 10 from 1e6 on, of 100 from 1e7 on."""
MOST_SLOTS: Final = 1024
ROUTER: Final = "router"
"""What stands where no model is loaded."""
LOADED: Final = ("loaded", "sleeping")
"""A router's models that have a process."""
UNLOADED: Final = "its model is unloaded until the next request (--sleep-idle-seconds)"
WHY_NOTHING: Final = (
    "a router: asking a model for its metrics keeps it loaded, so gpumon does not; "
    "give the port of the model's own process as an endpoint to watch it"
)
OPTIONS: Final = {
    "--port": "port",
    "--parallel": "slots",
    "--model": hints.MODEL_PATH,
    "--cache-type-k": hints.KV_DTYPE,
}
"""Option of a router's child, as the router writes it -> key in `info`."""
META: Final = {
    "n_params": hints.PARAMS,
    "size": hints.WEIGHT_BYTES,
    "n_vocab": hints.VOCAB,
    "n_embd": hints.HIDDEN,
    "n_ctx": hints.CONTEXT_LEN,
    "ftype": hints.WEIGHT_PRECISION,
}
"""Fact of a loaded model -> key in `info`."""


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


class Slot(NamedTuple):
    """One place for a request."""

    busy: bool
    task: int
    """Number of its request; -1: none yet."""
    generated: float
    """Tokens of the answer so far; 0 after its end."""
    prompt: float
    """Tokens of the prompt that were computed or found in the cache; 0 after the end of the answer."""
    used: float
    """Tokens in its context; they stay there after the end of the answer. -1: the server does not say."""
    context: float
    """Tokens that its context holds."""
    speculative: bool


Slots = Sequence[Slot]


def is_slots(body: bytes) -> bool:
    """Whether this is an answer of /slots."""
    found = items(decoded(body), 1)
    return bool(found) and {"id", "n_ctx", "is_processing"} <= mapping(found[0]).keys()


def slots_of(body: bytes) -> Slots:
    """All slots, empty where this is no answer of /slots, or one of them makes no sense: they are told apart by their
    places. Raises nothing."""
    found = [_slot(mapping(one)) for one in items(decoded(body), MOST_SLOTS)]
    readable = [one for one in found if one is not None]
    return readable if len(readable) == len(found) else ()


def _slot(said: Mapping[str, Any]) -> Slot | None:
    busy, context = said.get("is_processing"), number(said.get("n_ctx"))
    if not isinstance(busy, bool) or context is None:
        return None
    next_token = said.get("next_token")
    token = mapping(next_token) or mapping(next(iter(items(next_token, 1)), None))
    so_far, task = number(token.get("n_decoded")), number(said.get("id_task"))
    if busy and (so_far is None or task is None):
        return None
    generated = (so_far or 0.0) if busy else 0.0
    prompt = sum(number(said.get(name)) or 0.0 for name in ("n_prompt_tokens_processed", "n_prompt_tokens_cache"))
    # n_prompt_tokens counts the answer, too.
    whole = number(said.get("n_prompt_tokens"))
    told = whole is not None or number(said.get("n_prompt_tokens_processed")) is not None
    used = max(whole or 0.0, prompt + generated) if told else -1.0
    return Slot(
        busy, -1 if task is None else int(task), generated, prompt, used, context, said.get("speculative") is True
    )


class Growth(NamedTuple):
    """What happened between two looks at the slots, as far as they tell."""

    tokens: float = 0.0
    steps: float = 0.0
    """The most tokens of one slot: each decode step gives one to each that is busy."""
    ended: float = 0.0
    """Tokens of the answers that ended, at least."""


def growth(before: Slots, slots: Slots) -> Growth:
    """What the slots' requests have generated since the look before. Of a request that began and ended in between
    nothing is seen; the end of one whose slot was taken again is estimated by what the others generated."""
    pairs = list(zip(before, slots, strict=False))
    stayed = [slot.generated - last.generated for last, slot in pairs if slot.busy and slot.task == last.task]
    pace = max(0.0, sum(stayed) / len(stayed)) if stayed else 0.0
    grown, ended = [], 0.0
    for last, slot in pairs:
        end = last.generated
        if slot.task == last.task and not slot.busy and last.generated:
            # The last token of an answer is never put into the context.
            end = min(max(end, slot.used + 1.0 - last.prompt), last.context)
        if slot.task != last.task:
            grown.append(slot.generated + max(0.0, pace - slot.generated) * last.busy)
        else:
            grown.append(max(0.0, (slot.generated if slot.busy else end) - last.generated))
        if slot.task != last.task or not slot.busy:
            ended += end
    return Growth(sum(grown), max(grown, default=0.0), ended)


class Printed(NamedTuple):
    """What a metrics page says; None where it does not."""

    steps: float | None = None
    """n_decode_total"""
    ended: float | None = None
    """tokens_predicted_total"""
    product: float | None = None
    """n_decode_total x n_busy_slots_per_decode"""
    prompt: float | None = None
    """prompt_tokens_total"""
    running: float | None = None
    """requests_processing"""
    speculates: bool = False


class Counts(NamedTuple):
    """Tokens and steps so far; None: not known."""

    tokens: float | None = None
    steps: float | None = None


def half_step_of_count(value: float) -> float:
    """How far a count may be from what was printed of it with six digits: it is exact below 1e6."""
    return 10.0 ** (math.floor(math.log10(value)) + 1 - DIGITS) / 2.0 if value >= 10.0**DIGITS else 0.0


class LiveCounts:
    """Follows one server. The counts never fall unless the server's own do (a restart)."""

    def __init__(self) -> None:
        self._unanswered = PATIENT
        """Looks in a row without /slots."""
        self._start()

    def _start(self) -> None:
        self._slots: Slots = ()
        self._printed = Printed()
        self._tokens = self._steps = -1.0

    @property
    def has_slots(self) -> bool:
        """Whether /slots answers, but for a few looks."""
        return self._unanswered < PATIENT

    def read(self, printed: Printed, slots: Slots) -> Counts:
        """The counts at one more page. `slots` is empty where /slots does not answer.

        It is asked after /metrics: an answer that ended in between is in neither, but was seen by the look before.
        Where the two disagree on what runs and no prompt was read, the busy slots of all decodes are the tokens.
        """
        self._unanswered = 0 if slots else self._unanswered + 1
        if _fell(self._printed.steps, printed.steps) or _fell(self._printed.ended, printed.ended):
            self._start()
        steps, ended, last = printed.steps, printed.ended, self._printed
        grown = growth(self._slots, slots)
        self._slots, self._printed = slots, printed
        if steps is not None:
            # With speculation a request gets several tokens in one step.
            more = 0.0 if printed.speculates else grown.steps
            self._steps = _between(self._steps, more, steps, self._error(steps))
        if ended is not None:
            unbooked = 0.0 if last.ended is None else max(0.0, grown.ended - (ended - last.ended))
            known = ended + unbooked + sum(slot.generated for slot in slots)
            disagree = bool(slots) and printed.running != sum(slot.busy for slot in slots)
            plain = not printed.speculates and printed.prompt == last.prompt
            if disagree and plain and printed.product and last.product:
                known = max(known, self._tokens + printed.product - last.product)
            self._tokens = _between(self._tokens, grown.tokens, known, self._error(ended))
        return Counts(None if ended is None else self._tokens, None if steps is None else self._steps)

    def _error(self, count: float) -> float:
        """How far the count may be from what was printed; without /slots nothing is known but what was printed."""
        return half_step_of_count(count) if self.has_slots else 0.0


def _fell(before: float | None, after: float | None) -> bool:
    return before is not None and after is not None and after < before


def _between(last: float, grown: float, printed: float, error: float) -> float:
    """The last value and what it grew by, as far as what was printed allows it; never less than the last."""
    if last < 0.0:
        return max(0.0, printed)
    return max(last, min(max(last + grown, printed - error), printed + error))


class Server(NamedTuple):
    """The settings of one server; empty and 0: it does not say."""

    info: Mapping[str, str] = MappingProxyType({})
    model: str = ""
    model_path: str = ""
    version: str = ""
    slots: int = 0


def server_of(body: bytes) -> Server:
    """The answer of /props; empty where it is none. Raises nothing."""
    said = mapping(decoded(body))
    path = text(said.get("model_path"))
    context = count(mapping(said.get("default_generation_settings")).get("n_ctx"))
    modalities = [name for name, there in mapping(said.get("modalities")).items() if there is True]
    info = {
        hints.MODEL_PATH: path,
        hints.WEIGHT_PRECISION: text(said.get("model_ftype")),
        hints.CONTEXT_LEN: str(context or ""),
        hints.MODALITIES: text(",".join(modalities)),
        "slots": str(count(said.get("total_slots")) or ""),
        SLEEPING: UNLOADED if said.get("is_sleeping") is True else "",
    }
    return Server(
        info={key: value for key, value in info.items() if value},
        model=text(said.get("model_alias")) or PurePosixPath(path).stem,
        model_path=path,
        version=text(said.get("build_info")),
        slots=count(said.get("total_slots")),
    )


def is_router(body: bytes) -> bool:
    """Whether this is the model list of a router: it tells the state of each."""
    return any(_state(mapping(card)) for card in items(mapping(decoded(body)).get("data"), 8))


def _state(card: Mapping[str, Any]) -> str:
    value = mapping(card.get("status")).get("value")
    return value if isinstance(value, str) else ""


def _settings(card: Mapping[str, Any]) -> dict[str, str]:
    """What a router's list says of one model: its state, the options of its process, the facts of its file."""
    state, meta = _state(card), mapping(card.get("meta"))
    info = {"state": state, "figures": WHY_NOTHING, **({SLEEPING: UNLOADED} if state == SLEEPING else {})}
    words = [text(word) for word in items(mapping(card.get("status")).get("args"), 256)]
    info |= {OPTIONS[word]: value for word, value in pairwise(words) if word in OPTIONS and value != "0"}
    return info | {key: value for name, key in META.items() if (value := text(meta.get(name)))}


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

    def read_all(self, scan: Scan, bodies: Bodies = NO_BODIES) -> tuple[EngineReading, ...]:
        """One page; of a router one for each model that it has loaded."""
        if METRICS not in bodies and SLOTS not in bodies and MODELS in bodies:
            self.companions = ()
            return self._router(bodies[MODELS])
        return super().read_all(scan, bodies)

    def read(self, scan: Scan, bodies: Bodies = NO_BODIES) -> EngineReading:
        """The page in canonical quantities; no rank where it is no page of llama.cpp."""
        found = by_name(scan)
        slots = slots_of(bodies.get(SLOTS, b""))
        server = self._asked(bodies)
        figures = self.collect(found)
        printed = _printed(found, figures, slots)
        self._speculates = self._speculates or printed.speculates
        printed = printed._replace(speculates=self._speculates)
        if slots or figures.ranks or printed.steps is not None:
            rank = figures.ranks.setdefault("0", Rank("0"))
            _add_counts(rank, figures, self._counts.read(printed, slots), live=self._counts.has_slots)
            _add_prompts(rank, figures)
            _add_slots(rank, figures, slots)
            if server.slots:
                _put(rank.gauges, figures, q.MOST_RUNNING, float(server.slots), "/props total_slots")
        alone = SLOTS in bodies and METRICS not in bodies and not found
        self.companions = (PROPS,) if alone else (ASKED if self._counts.has_slots else REFUSED, PROPS)
        figures.info.update(server.info, **({TOKENS_OFF: SWITCH} if alone else {}))
        return self.reading(
            figures,
            model=server.model,
            model_root=server.model_path,
            version=server.version,
            exact_steps=not printed.speculates and _known_steps(figures, slots),
        )

    def _router(self, body: bytes) -> tuple[EngineReading, ...]:
        """A reading without figures for each model that is loaded; one without a model where none is."""
        cards = [mapping(card) for card in items(mapping(decoded(body)).get("data"))]
        if not any(map(_state, cards)):
            return ()
        loaded = {text(card.get("id")): card for card in cards if _state(card) in LOADED and text(card.get("id"))}
        if not loaded:
            return (self._bare("", {"models": "none is loaded", "figures": WHY_NOTHING}, ROUTER),)
        return tuple(self._bare(name, _settings(card), name) for name, card in [*loaded.items()][:MOST_PARTS])

    def _bare(self, model: str, info: dict[str, str], part: str) -> EngineReading:
        figures = Figures({"0": Rank("0")}, {}, {}, info)
        reading = self.reading(figures, model=model, model_root=info.get(hints.MODEL_PATH, ""))
        return msgspec.structs.replace(reading, part=part)

    def _asked(self, bodies: Bodies) -> Server:
        body = bodies.get(PROPS.path, b"")
        if body is not self._props_body:
            self._props_body, self._server = body, server_of(body)
        return self._server


def _printed(found: Mapping[str, Found], figures: Figures, slots: Slots) -> Printed:
    """What the page says of tokens and steps. Without speculation the counters of drafts stand at 0: left out."""
    ranks = figures.ranks.values()
    drafts = sum(rank.counters.get(q.DRAFTS, 0.0) for rank in ranks)
    if not drafts:
        for quantity in (q.DRAFTS, q.ACCEPTED_TOKENS):
            figures.live.pop(quantity, None)
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


def _known_steps(figures: Figures, slots: Slots) -> bool:
    """Whether the steps are known well enough for a 10 s rate."""
    steps = next((rank.counters.get(q.STEPS) for rank in figures.ranks.values()), None)
    return steps is not None and (bool(slots) or half_step_of_count(steps) <= COARSE_STEPS)


def _one(found: Mapping[str, Found], name: str) -> float | None:
    return next((value for _, value in picked(found, Metric(name))), None)


def _add_counts(rank: Rank, figures: Figures, counts: Counts, *, live: bool) -> None:
    if counts.steps is not None:
        _put(rank.counters, figures, q.STEPS, counts.steps, _tracked(STEPS, counts.steps, live=live))
    if counts.tokens is not None:
        source, advance = (f"{ENDED} + {RUN}", Advance.DERIVED) if live else (ENDED, Advance.END)
        source = _tracked(source, counts.tokens, live=live)
        _put(rank.counters, figures, q.DECODE_TOKENS, counts.tokens, source, advance)


def _tracked(source: str, count: float, *, live: bool) -> str:
    """The source of a count, which may be printed too coarsely to be all of it."""
    return source + (", between two printed values by /slots" if live and half_step_of_count(count) else "")


def _add_prompts(rank: Rank, figures: Figures) -> None:
    parts = [rank.counters.get(name) for name in (q.PREFILL_COMPUTED, q.PREFILL_CACHED)]
    if parts[0] is not None and parts[1] is not None:
        source = "llamacpp:prompt_tokens_total + prompt_tokens_cached_total"
        _put(rank.counters, figures, q.PROMPT_TOKENS, parts[0] + parts[1], source, Advance.PROMPT)


def _add_slots(rank: Rank, figures: Figures, slots: Slots) -> None:
    """The KV cache: what the requests that run have in their contexts, and what the slots hold together."""
    if not slots:
        return
    busy = [slot for slot in slots if slot.busy]
    if q.RUNNING not in rank.gauges:
        _put(rank.gauges, figures, q.RUNNING, float(len(busy)), "/slots is_processing")
    _put(rank.gauges, figures, q.MOST_RUNNING, float(len(slots)), SLOTS)
    pool = sum(slot.context for slot in slots)
    if not pool:
        return
    _put(rank.gauges, figures, q.POOL_TOKENS, pool, "/slots n_ctx of all slots")
    if all(slot.used >= 0.0 for slot in busy):
        used = sum((slot.used for slot in busy), 0.0)
        _put(rank.gauges, figures, q.USED_TOKENS, used, "/slots tokens of the running contexts")
        _put(rank.gauges, figures, q.KV_USAGE, min(1.0, used / pool), "/slots tokens of the running contexts / n_ctx")


def _put(
    values: dict[str, float],
    figures: Figures,
    quantity: str,
    value: float,
    source: str,
    advance: Advance = Advance.LIVE,
) -> None:
    values[quantity] = value
    figures.live[quantity] = source
    if advance is not Advance.LIVE:
        figures.advance[quantity] = advance
