"""llama.cpp's /slots: what each slot is doing, and how many tokens came of it between two looks.

Fields: tools/server/README.md and server-context.cpp (`server_slot::to_json`); older builds have fewer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from gpumon.sources.engines.json_body import decoded, items, mapping, number

MOST_SLOTS: Final = 1024
RECENT: Final = 0.2
"""Weight of the newest look in the share of looks at which a slot was busy."""


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
    """What happened between two looks at the slots."""

    tokens: float = 0.0
    """Those of requests that were seen, and an estimate of the unseen ends of some of them."""
    steps: float = 0.0
    """The most tokens of one slot: each decode step gives one to each that is busy."""


class Watch:
    """Adds up the growth of all slots. What was generated before the first look is not in it."""

    def __init__(self) -> None:
        self._last: Slots = ()
        self._clock = 0.0
        self._speed = 0.0
        """Tokens of one busy slot from one look to the next."""
        self._busy: list[float] = []
        """Share of the last looks at which each slot was busy."""

    def grown(self, slots: Slots, *, waiting: bool = False) -> Growth:
        """What came since the last look. `waiting`: requests wait for a slot, so none was idle."""
        pairs = list(zip(self._last, slots, strict=False))
        self._see_speed(pairs, slots)
        shares = [*self._busy, *(float(slot.busy) for slot in slots[len(self._busy) :])]
        self._busy = [share + RECENT * (slot.busy - share) for share, slot in zip(shares, slots, strict=False)]
        grown = [
            self._of(last, slot, 1.0 if waiting else share)
            for (last, slot), share in zip(pairs, self._busy, strict=False)
        ]
        self._last = slots
        return Growth(sum(grown), max(grown, default=0.0))

    def _see_speed(self, pairs: Sequence[tuple[Slot, Slot]], slots: Slots) -> None:
        """From requests that went on; where all were shorter, from the numbers of the newest ones.

        A server numbers its requests and its decode steps alike (`server_queue::get_new_id`).
        """
        stayed = [slot.generated - last.generated for last, slot in pairs if slot.busy and slot.task == last.task]
        clock = max((slot.task + slot.generated for slot in slots if slot.busy), default=0.0)
        if stayed:
            self._speed = max(0.0, sum(stayed) / len(stayed))
        elif clock > self._clock > 0.0:
            self._speed = clock - self._clock
        self._clock = clock

    def _of(self, last: Slot, slot: Slot, share: float) -> float:
        """Growth of one slot. One that was taken again was busy for this share of the time that is not known of."""
        if slot.task != last.task:
            unseen = share * max(0.0, self._speed - slot.generated) if last.busy else 0.0
            return slot.generated + unseen
        # The last token of an answer is never put into the context.
        end = slot.generated if slot.busy else slot.used + 1.0 - last.prompt
        if slot.busy or (last.busy and last.prompt and last.generated <= end <= last.context):
            return max(0.0, end - last.generated)
        return self._speed / 2.0 if last.busy else 0.0
