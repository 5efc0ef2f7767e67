"""llama.cpp's /slots: what each slot is doing, and how many tokens came of it between two looks.

Fields: tools/server/README.md and server-context.cpp (`server_slot::to_json`); older builds have fewer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from gpumon.sources.engines.json_body import decoded, items, mapping, number

MOST_SLOTS: Final = 1024


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
