"""llama.cpp's server: live tokens from /metrics and /slots together.

Names and fields: tools/server/README.md and server-context.cpp of 0c1e570; older builds have fewer. The speed gauges
(`predicted_tokens_seconds`, `prompt_tokens_seconds`) are never used: each reader of the page sets them back for all
others. /slots is needed because no counter of /metrics moves with the answers: `tokens_predicted_total` moves at their
end, and `n_decode_total` counts batches of prompts, too. Ollama starts its llama-server with /slots and without
/metrics.

What the counters count, by `server_metrics` of server-context.cpp (newer builds count the same in server-task.cpp):
- `tokens_predicted_total`: the `n_decoded` of an answer, all of it, when it ends (`on_prediction`).
- `next_token.n_decoded` of /slots: the tokens of the running answer so far. Generated tokens are the ended answers of
  the one and the running answers of the other.
- `prompt_tokens_total`: the computed tokens of a prompt, at its first token (`on_prompt_eval`).
- `n_decode_total`: calls of `llama_decode`, of prompts and of answers (`on_decoded`). `n_busy_slots_per_decode` is a
  mean since the start, of the slots at work at each call: times `n_decode_total` it is their sum, which grows by one
  for each token while only answers run, without drafts.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import PurePosixPath
from statistics import mean
from typing import Any, Final, NamedTuple

from gpumon.readings import quantities as q
from gpumon.readings.frame import SLEEPING, TOKENS_OFF, Advance, EngineKind
from gpumon.sources.engines.adapter import METRICS_PATH, Adapter, EngineRow, FirstAnswer
from gpumon.sources.engines.histograms import only_mean
from gpumon.sources.engines.json_body import finite_number, first_items, mapping, parse_json, positive_count, text
from gpumon.sources.engines.launch_form import HOST_PORT, LaunchForm
from gpumon.sources.engines.page_figures import PageFigures, Rank
from gpumon.sources.engines.tables import CompanionPage, Metric, Tables, rule
from gpumon.specs import hints

_SWITCH: Final = "start it with --metrics"
SLOTS: Final = "/slots"
PROPS: Final = CompanionPage("/props", 60.0)
SLOTS_PAGE: Final = CompanionPage(SLOTS)
SLOTS_PAGE_SELDOM: Final = CompanionPage(SLOTS, 60.0)
"""The page of slots after it was not answered (`--no-slots`): asked once a minute."""
_BUSY: Final = "llamacpp:n_busy_slots_per_decode"
_ENDED: Final = "llamacpp:tokens_predicted_total"
MOST_STEP_ERROR: Final = 10.0
"""Largest rounding error of `n_decode_total`, in steps, with which steps count as exact: with a larger one, a 10 s rate
of a slow server is off by more than about 1%."""
DIGITS: Final = 6
"""Digits that llama.cpp prints: a counter moves in steps of 10 from 1e6 on, of 100 from 1e7 on."""
_MOST_SLOTS: Final = 1024
"""Slots read from one answer: far more than any server has."""
_SEEN_REQUESTS: Final = 64
"""Requests whose mean prompt tells how many there are."""
MOST_UNANSWERED_POLLS: Final = 5
"""Polls in a row without an answer of /slots after which it is asked rarely."""


class RequestSlot(NamedTuple):
    """One place for a request."""

    busy: bool
    """A request runs in it."""
    task: float | None
    """Number of its request."""
    generated: float
    """Tokens of the answer so far; 0 after its end."""
    prompt: float
    """Tokens of the prompt that were computed or found in the cache; 0 after the end of the answer."""
    used: float | None
    """Tokens in its context; they stay there after the end of the answer. None: the server does not say."""
    context: float
    """Tokens that its context holds."""
    speculative: bool
    """Its request is decoded with a draft."""


def is_slots(body: bytes) -> bool:
    """Whether this is an answer of /slots."""
    slots = first_items(parse_json(body), 1)
    return bool(slots) and {"id", "n_ctx", "is_processing"} <= mapping(slots[0]).keys()


def slots_of(body: bytes) -> Sequence[RequestSlot]:
    """All slots. Empty where this is no answer of /slots, or one of them makes no sense, as slots are matched by their
    order. Raises nothing."""
    slots: list[RequestSlot] = []
    for state in first_items(parse_json(body), _MOST_SLOTS):
        slot = _parse_slot(mapping(state))
        if slot is None:
            return ()
        slots.append(slot)
    return slots


def _parse_slot(state: Mapping[str, Any]) -> RequestSlot | None:
    """One slot of /slots; None where it makes no sense."""
    busy = state.get("is_processing")
    context = finite_number(state.get("n_ctx"))
    if not isinstance(busy, bool) or context is None:
        return None
    task = finite_number(state.get("id_task"))
    next_token = state.get("next_token")
    if isinstance(next_token, list):  # as in some builds
        next_token = next(iter(next_token), None)
    generated = 0.0
    if busy:
        decoded_tokens = finite_number(mapping(next_token).get("n_decoded"))
        if decoded_tokens is None or task is None:
            return None
        generated = decoded_tokens
    # In spite of its name, n_prompt_tokens counts the answer, too.
    used = finite_number(state.get("n_prompt_tokens"))
    prompt = sum(
        finite_number(state.get(name)) or 0.0 for name in ("n_prompt_tokens_processed", "n_prompt_tokens_cache")
    )
    return RequestSlot(
        busy=busy,
        task=task,
        generated=generated,
        prompt=prompt,
        used=used,
        context=context,
        speculative=state.get("speculative") is True,
    )


def slot_growth(last_slots: Sequence[RequestSlot], slots: Sequence[RequestSlot]) -> tuple[float, float]:
    """Tokens generated between two polls, by their slots; and all tokens of the answers that ended in between, also the
    earlier ones.

    A request that began and ended in between is not seen at all. Where another request has taken a slot, the end of the
    last one is estimated: the slot has generated as much as the others in their mean.
    """
    # At the first poll, and after one without slots, there are no last ones.
    pairs = list(zip(last_slots, slots, strict=False))
    running = [slot.generated - last.generated for last, slot in pairs if slot.busy and slot.task == last.task]
    mean_growth = max(0.0, sum(running) / len(running)) if running else 0.0
    generated = sum(max(0.0, tokens) for tokens in running)
    ended = 0.0
    for last, slot in pairs:
        if slot.task != last.task:
            # Another request runs here: its tokens are all new, and the last one may have got more before its end.
            generated += max(slot.generated, mean_growth) if last.busy else slot.generated
            ended += last.generated
        elif last.generated and not slot.busy:
            # The last request has ended, and its context still tells how long its answer was.
            answer_tokens = _answer_tokens(last, slot)
            generated += max(0.0, answer_tokens - last.generated)
            ended += max(answer_tokens, last.generated)
    return generated, ended


class EndedRequests:
    """Lengths of the requests that ended: llama.cpp counts their tokens, but no requests.

    /slots tells the mean prompt of those that were seen to end. The tokens of all prompts by that mean are the number
    of all requests, also of those that began and ended between two polls.
    """

    def __init__(self) -> None:
        self._seen_prompts: deque[float] = deque(maxlen=_SEEN_REQUESTS)
        """Tokens of the prompts of the last requests that were seen to end."""
        self._last_prompts = 0.0
        """Tokens of all prompts at the last poll."""
        self._last_answers = 0.0
        """Tokens of all ended answers at the last poll."""
        self.number = 0.0
        self.prompt_tokens = 0.0
        self.answer_tokens = 0.0

    def take(
        self, last_slots: Sequence[RequestSlot], slots: Sequence[RequestSlot], prompts: float, answers: float
    ) -> None:
        """Take one poll in, with the tokens of all prompts and of all ended answers since the server started."""
        for last, slot in zip(last_slots, slots, strict=False):
            if last.busy and last.prompt and not (slot.busy and slot.task == last.task):
                self._seen_prompts.append(last.prompt)
        new_prompts = prompts - self._last_prompts
        new_answers = answers - self._last_answers
        self._last_prompts = prompts
        self._last_answers = answers
        if self._seen_prompts and new_prompts >= 0.0 and new_answers >= 0.0:  # else the server was started anew
            self.number += new_prompts / mean(self._seen_prompts)
            self.prompt_tokens += new_prompts
            self.answer_tokens += new_answers


def _speculates(slots: Iterable[RequestSlot]) -> bool:
    """Whether a request is decoded with a draft."""
    return any(slot.busy and slot.speculative for slot in slots)


def _answer_tokens(last: RequestSlot, slot: RequestSlot) -> float:
    """Tokens of the answer that has ended in this slot; as many as the last poll saw where the slot does not tell."""
    if slot.used is None:
        return last.generated
    # + 1: the last token of an answer is never put into the context.
    return min(slot.used + 1.0 - last.prompt, last.context)


def half_step_of_count(value: float) -> float:
    """Largest rounding error of a count that is printed with `DIGITS` digits: 0 below 1e6, 5 below 1e7 and so on."""
    if value >= 10.0**DIGITS:
        return 10.0 ** (math.floor(math.log10(value)) + 1 - DIGITS) / 2.0
    return 0.0


_rule = partial(rule, prefix="llamacpp:")


class LlamaCppAdapter(Adapter):
    """One llama.cpp server."""

    kind = EngineKind.LLAMA_CPP
    prefixes = ("llamacpp:",)
    companions: tuple[CompanionPage, ...] = (SLOTS_PAGE, PROPS)
    tables = Tables(
        rank_label="rank",
        counters=(
            # Without the cached ones: when the last batch of a prompt is done.
            _rule(q.PREFILL_COMPUTED, "prompt_tokens_total", advance=Advance.PROMPT),
            _rule(q.PREFILL_CACHED, "prompt_tokens_cached_total", advance=Advance.PROMPT),
            _rule(q.DRAFTS, "spec_decode_num_drafts_total"),
            _rule(q.DRAFTED_TOKENS, "spec_decode_num_draft_tokens_total"),
            _rule(q.ACCEPTED_TOKENS, "spec_decode_num_accepted_tokens_total"),
            # Of ended answers, as their tokens: `t_token_generation` of each (`on_prediction`), and of prompts
            # `t_prompt_processing` (`on_prompt_eval`).
            _rule(q.DECODE_SECONDS, "tokens_predicted_seconds_total"),
            _rule(q.PREFILL_SECONDS, "prompt_seconds_total"),
            _rule(q.STEPS, "n_decode_total"),
            _rule(q.DECODE_TOKENS, "tokens_predicted_total", advance=Advance.END),
        ),
        gauges=(_rule(q.RUNNING, "requests_processing"), _rule(q.WAITING, "requests_deferred")),
        extra=(_BUSY,),
    )

    def __init__(self) -> None:
        super().__init__()
        # A server without /slots is asked rarely from the first poll on.
        self._unanswered_polls = MOST_UNANSWERED_POLLS
        """Polls in a row without /slots."""
        self._slots: Sequence[RequestSlot] = ()
        """The slots of the last poll."""
        self._ended = EndedRequests()
        self._printed_total = 0.0
        """Tokens of ended answers, as the last page has them."""
        self._shown_total = 0.0
        """Tokens of ended and running answers, as the last reading has them."""
        self._last_decodes = (0.0, 0.0)
        """Busy slots added up over all decodes, and computed tokens of prompts, at the last poll."""
        self._speculates = False
        """Whether a request was decoded with a draft since gpumon reads this process."""

    @classmethod
    def claims(cls, page: FirstAnswer) -> bool:
        """Whether this is its metrics page, or its slots."""
        if page.path == SLOTS:
            return is_slots(page.body)
        return super().claims(page)

    def refine(self, figures: PageFigures) -> None:
        """Add to the figures what /slots and /props tell."""
        slots = slots_of(figures.bodies.get(SLOTS, b""))
        if slots:
            self._unanswered_polls = 0
        else:
            self._unanswered_polls += 1
        self._choose_companions(figures)
        props = mapping(parse_json(figures.bodies.get(PROPS.path, b"")))
        _take_settings(figures, props)
        _leave_out_drafts(figures)
        if q.DRAFTS in figures.live or _speculates(slots):
            # For good: busy slots of earlier decodes, which are added up, do not tell tokens then.
            self._speculates = True
        if not slots and not figures.ranks:
            return
        rank = figures.ranks.setdefault("0", Rank("0"))
        _add_token_time(rank, figures)
        self._add_lengths(rank, figures, slots)
        self._add_answer_tokens(rank, figures, slots)
        _add_slots(rank, figures, slots)
        total_slots = positive_count(props.get("total_slots"))
        if total_slots:
            figures.put(rank.gauges, q.MOST_RUNNING, float(total_slots), "/props total_slots")
        figures.put_prompts(rank, "llamacpp:prompt_tokens_total + prompt_tokens_cached_total")
        steps = rank.counters.get(q.STEPS)
        is_coarse = steps is None or half_step_of_count(steps) > MOST_STEP_ERROR
        figures.exact_steps = not self._speculates and not is_coarse

    def _add_lengths(self, rank: Rank, figures: PageFigures, slots: Sequence[RequestSlot]) -> None:
        """Add the mean lengths of requests."""
        computed = rank.counters.get(q.PREFILL_COMPUTED)
        answers = rank.counters.get(q.DECODE_TOKENS)
        if computed is None or answers is None:
            return
        self._ended.take(self._slots, slots, computed + rank.counters.get(q.PREFILL_CACHED, 0.0), answers)
        lengths = ((q.PROMPT_LENGTH, self._ended.prompt_tokens), (q.OUTPUT_LENGTH, self._ended.answer_tokens))
        for quantity, tokens in lengths:
            observed = only_mean(tokens, self._ended.number)
            if observed is not None and (slots or self._ended.number):
                rank.histograms[quantity] = observed
                figures.live[quantity] = f"tokens of {_ENDED} and of prompts / requests by {SLOTS}"

    def _choose_companions(self, figures: PageFigures) -> None:
        """Choose the pages to ask beside this one at the next poll."""
        has_metrics = METRICS_PATH in figures.bodies or figures.samples
        if SLOTS in figures.bodies and not has_metrics:
            self.companions = (PROPS,)
            figures.info[TOKENS_OFF] = _SWITCH
        elif self._unanswered_polls < MOST_UNANSWERED_POLLS:
            self.companions = (SLOTS_PAGE, PROPS)
        else:
            self.companions = (SLOTS_PAGE_SELDOM, PROPS)

    def _add_answer_tokens(self, rank: Rank, figures: PageFigures, slots: Sequence[RequestSlot]) -> None:
        """Put the tokens of ended and of running answers into the rank: never fewer than before, but at a restart."""
        printed_total = rank.counters.get(q.DECODE_TOKENS)
        last_slots = self._slots
        self._slots = slots
        if printed_total is None:
            return
        if printed_total < self._printed_total:
            # The server was started anew.
            last_slots = ()
            self._shown_total = 0.0
            self._printed_total = printed_total
        newly_printed = printed_total - self._printed_total
        self._printed_total = printed_total
        if self._unanswered_polls >= MOST_UNANSWERED_POLLS:
            # Nothing tells of running answers.
            self._shown_total = max(printed_total, self._shown_total)
            rank.counters[q.DECODE_TOKENS] = self._shown_total
            return
        generated, ended = slot_growth(last_slots, slots)
        total = printed_total + _tokens_by_slots(ended, newly_printed, slots)
        decoded_tokens = self._decoded_since(rank, figures, slots)
        if decoded_tokens:
            total = max(total, self._shown_total + decoded_tokens)
        if self._shown_total:  # not at the first poll: then there is nothing to grow from
            total = _within_rounding(self._shown_total + generated, total, half_step_of_count(printed_total))
        self._shown_total = max(self._shown_total, total)
        source = f"{_ENDED} + /slots n_decoded of running requests"
        figures.put(rank.counters, q.DECODE_TOKENS, self._shown_total, source, Advance.DERIVED)

    def _decoded_since(self, rank: Rank, figures: PageFigures, slots: Sequence[RequestSlot]) -> float:
        """Tokens since the last poll by the busy slots of all decodes: each decode gives each busy slot one token.

        They are needed where /metrics and /slots disagree on what runs (/slots waits for a batch); 0 where they agree,
        and where decodes also read prompts or drafts.
        """
        steps = rank.counters.get(q.STEPS, 0.0)
        prompts = rank.counters.get(q.PREFILL_COMPUTED, 0.0)
        decodes = figures.total(Metric(_BUSY)) * steps if half_step_of_count(steps) == 0.0 else 0.0
        last_decodes, last_prompts = self._last_decodes
        self._last_decodes = (decodes, prompts)
        if not slots or rank.gauges.get(q.RUNNING) == sum(slot.busy for slot in slots):
            return 0.0
        if prompts != last_prompts or self._speculates:
            return 0.0
        if not decodes or not last_decodes:
            return 0.0
        return decodes - last_decodes


def _tokens_by_slots(ended: float, newly_printed: float, slots: Iterable[RequestSlot]) -> float:
    """Tokens that the counter of /metrics does not have yet.

    They are those of running answers, and of answers that ended after /metrics was asked and before /slots was: these
    are in neither, but the last poll saw them, and they ended without being printed.
    """
    missed = max(0.0, ended - newly_printed)
    return missed + sum(slot.generated for slot in slots)


def _within_rounding(grown_total: float, total: float, error: float) -> float:
    """The total that has grown by the tokens of the slots (`grown_total`), moved to within `error` of `total`.

    `total` is printed coarsely: it stands still, and then jumps.
    """
    return min(max(grown_total, total - error), total + error)


def _take_settings(figures: PageFigures, props: Mapping[str, Any]) -> None:
    """Put the settings of the server by /props into the figures."""
    path = text(props.get("model_path"))
    modalities = [name for name, is_supported in mapping(props.get("modalities")).items() if is_supported is True]
    slot_settings = mapping(props.get("default_generation_settings"))
    info = {
        hints.MODEL_PATH: path,
        hints.WEIGHT_PRECISION: text(props.get("model_ftype")),
        hints.CONTEXT_LEN: str(positive_count(slot_settings.get("n_ctx")) or ""),
        hints.MODALITIES: text(",".join(modalities)),
        "slots": str(positive_count(props.get("total_slots")) or ""),
    }
    if props.get("is_sleeping") is True:
        info[SLEEPING] = "its model is unloaded until the next request (--sleep-idle-seconds)"
    for key, value in info.items():
        if value:
            figures.info[key] = value
    figures.model = text(props.get("model_alias")) or PurePosixPath(path).stem
    figures.version = text(props.get("build_info"))
    figures.model_root = path


def _leave_out_drafts(figures: PageFigures) -> None:
    """Leave out the figures of speculation where no draft was counted: nothing is speculated."""
    if figures.counter_total(q.DRAFTS):
        return
    for quantity in (q.DRAFTS, q.DRAFTED_TOKENS, q.ACCEPTED_TOKENS):
        figures.leave_out(quantity)


def _add_token_time(rank: Rank, figures: PageFigures) -> None:
    """Add the mean time per token of ended answers: their seconds by their tokens, the first of each included."""
    seconds = rank.counters.get(q.DECODE_SECONDS)
    tokens = rank.counters.get(q.DECODE_TOKENS)
    if seconds is None or tokens is None:
        return
    observed = only_mean(seconds, tokens)
    if observed is not None:
        rank.histograms[q.TPOT] = observed
        figures.live[q.TPOT] = f"{figures.live[q.DECODE_SECONDS]} / {_ENDED}"


def _add_slots(rank: Rank, figures: PageFigures, slots: Sequence[RequestSlot]) -> None:
    """Add the KV cache: tokens in the contexts of running requests, and tokens that all slots hold at most."""
    if not slots:
        return
    busy = [slot for slot in slots if slot.busy]
    if q.RUNNING not in rank.gauges:
        figures.put(rank.gauges, q.RUNNING, float(len(busy)), "/slots is_processing")
    figures.put(rank.gauges, q.MOST_RUNNING, float(len(slots)), SLOTS)
    pool = sum(slot.context for slot in slots)
    if not pool:
        return
    figures.put(rank.gauges, q.POOL_TOKENS, pool, "/slots n_ctx of all slots")
    used = [slot.used for slot in busy if slot.used is not None]
    if len(used) == len(busy):
        source = "/slots tokens of the running contexts"
        figures.put(rank.gauges, q.USED_TOKENS, sum(used, 0.0), source)
        figures.put(rank.gauges, q.KV_USAGE, min(1.0, sum(used, 0.0) / pool), f"{source} / n_ctx")


ENGINE: Final = EngineRow(
    "llama.cpp",
    LlamaCppAdapter,
    port=8080,
    paths=(METRICS_PATH, SLOTS),
    names_from="0c1e570",
    switch=_SWITCH,
    json_paths=(SLOTS,),
    forms=(
        LaunchForm(
            EngineKind.LLAMA_CPP,
            "llama.cpp",
            ("llama-server", "llama serve"),
            options={
                **HOST_PORT,
                "model": "--model -m --hf-repo -hf -hfr",
                "served_name": "--alias -a",
                "on": "--metrics",
                "key": "--api-key --api-key-file",
                "tls": "--ssl-key-file",
                "prefix": "--api-prefix",
                "kv_dtype": "--cache-type-k -ctk",
                "gpu_layers": "--gpu-layers --n-gpu-layers -ngl",
                "experts_on_cpu": "--cpu-moe -cmoe --n-cpu-moe -ncmoe",
                "placement": "--override-tensor -ot",
                "embeds": "--embedding --embeddings --rerank --reranking",
                "slots": "--parallel -np",
                "step_tokens": "--batch-size -b",
                "context_of_all": "--ctx-size -c",
                "speculation": "--model-draft -md --spec-type",
                "draft_tokens": "--draft-max --draft -draft-n",
            },
            variables={
                "host": "LLAMA_ARG_HOST",
                "port": "LLAMA_ARG_PORT",
                "model": "LLAMA_ARG_MODEL LLAMA_ARG_HF_REPO",
                "served_name": "LLAMA_ARG_ALIAS",
                "on": "LLAMA_ARG_ENDPOINT_METRICS",
                "key": "LLAMA_API_KEY LLAMA_ARG_API_KEY_FILE",
                "tls": "LLAMA_ARG_SSL_KEY_FILE",
                "prefix": "LLAMA_ARG_API_PREFIX",
                "kv_dtype": "LLAMA_ARG_CACHE_TYPE_K",
                "gpu_layers": "LLAMA_ARG_N_GPU_LAYERS",
                "slots": "LLAMA_ARG_N_PARALLEL",
                "step_tokens": "LLAMA_ARG_BATCH",
                "context_of_all": "LLAMA_ARG_CTX_SIZE",
                "experts_on_cpu": "LLAMA_ARG_CPU_MOE LLAMA_ARG_N_CPU_MOE",
                "placement": "LLAMA_ARG_OVERRIDE_TENSOR",
                "embeds": "LLAMA_ARG_EMBEDDINGS LLAMA_ARG_RERANKING",
            },
            servers_below=(EngineKind.LLAMA_CPP,),
        ),
    ),
)
