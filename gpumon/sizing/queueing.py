"""Queueing: who waits for a slot (Erlang C), and what is in flight (Little's law)."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

from gpumon.efficiency.checks import checked, positive

_EXACT_SLOTS: Final = 100_000
_STEPS: Final = 40


def erlang_c(slots: int, load: float) -> float:
    """Share of requests that wait, with `slots` servers and `load` erlangs offered (rate x time in service).

    Poisson arrivals, one queue: all instances behind one router. Optimistic for engines, which serve slower as they
    fill. 1.0 at or above `slots`, where the queue grows without end. Above 1e5 slots Halfin and Whitt's limit (within
    0.001). ValueError below one slot or on a negative load.
    """
    checked("slots", slots, least=1)
    if checked("load", load) >= slots:
        return 1.0
    if slots > _EXACT_SLOTS:
        return _many_slots(slots, load)
    blocked = _erlang_b(slots, load)
    return min(1.0, blocked / (1.0 - load / slots * (1.0 - blocked)))


@lru_cache(maxsize=4096)
def highest_load(slots: int, wait_ratio: float) -> float:
    """Highest load, as a share of the slots, at which at most `wait_ratio` of the requests wait.

    ValueError where `wait_ratio` is not above 0 and at most 1, or there is no slot.
    """
    if positive("wait_ratio", wait_ratio) > 1.0:
        raise ValueError(f"wait_ratio {wait_ratio!r} is above 1")
    checked("slots", slots, least=1)
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        if erlang_c(slots, middle * slots) <= wait_ratio:
            low = middle
        else:
            high = middle
    return low


def in_flight(users: float, response_s: float, think_s: float) -> float:
    """Requests in flight of `users` who wait for an answer and think before the next question: users * R/(R + think).

    ValueError on negative figures, or where answer and thought both take no time.
    """
    checked("users", users)
    cycle = checked("response_s", response_s) + checked("think_s", think_s)
    return users * (response_s / positive("response_s + think_s", cycle))


def response_s(ttft_s: float, itl_s: float, answer_tokens: float) -> float:
    """Seconds from question to last token: TTFT + ITL * (tokens - 1), ITL being the mean after the first token."""
    checked("ttft_s", ttft_s)
    return ttft_s + checked("itl_s", itl_s) * max(0.0, checked("answer_tokens", answer_tokens) - 1.0)


def _erlang_b(slots: int, load: float) -> float:
    """P(slots busy) of `slots` without a queue: Poisson(load) cut off at `slots`.

    The tail above `slots` is summed, since its terms fall from the first one while load < slots: stable where the
    usual sum of load**k / k! overflows.
    """
    if load == 0.0:
        return 0.0
    at_most = math.exp(slots * math.log(load) - load - math.lgamma(slots + 1.0))
    tail, term, index = 0.0, at_most, slots
    while term > 1e-17 * at_most and term > 0.0:
        index += 1
        term *= load / index
        tail += term
    return at_most / (1.0 - tail)


def _many_slots(slots: int, load: float) -> float:
    spare = (slots - load) / math.sqrt(slots)
    density = math.exp(-spare * spare / 2.0) / math.sqrt(2.0 * math.pi)
    if density == 0.0:
        return 0.0
    return 1.0 / (1.0 + spare * 0.5 * (1.0 + math.erf(spare / math.sqrt(2.0))) / density)
