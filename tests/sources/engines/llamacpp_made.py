"""A llama.cpp server on paper: slots that decode in step, and what its pages say of them at any age of the server.

Printed as the real one prints: six significant digits, whole answers counted at their end (server-context.cpp).
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import NamedTuple

PROMPT = 100


class Load(NamedTuple):
    """Clients in a closed loop on some slots."""

    clients: int
    slots: int
    speed: float
    """Decode steps per second."""
    answer: float
    """Mean tokens of an answer, exponentially distributed."""
    think_s: float = 0.0
    """Mean pause of a client between two requests."""


class Look(NamedTuple):
    """One poll: the pages, and the tokens and steps that there really were."""

    t: float
    metrics: bytes
    slots: bytes
    tokens: int
    steps: int


class Request:
    """One answer being generated, or the last one of a slot that is idle."""

    def __init__(self, number: int, length: int, client: int) -> None:
        self.number, self.length, self.client, self.generated = number, length, client, 0


class MadeServer:
    """Serves `load`, after it has generated `before` tokens."""

    def __init__(self, load: Load, before: int, seed: int = 1) -> None:
        self.load = load
        self._random = random.Random(seed)
        self._back_s = [self._random.uniform(0.0, load.think_s) for _ in range(load.clients)]
        self._waiting: list[int] = []
        self._running: list[Request | None] = [None] * load.slots
        self._rested: list[Request | None] = [None] * load.slots
        self._requests = self._numbers = 0
        self._busy = self._ended = before
        self._steps = round(before / 1.3)
        self.tokens = self.steps = 0

    def looks(self, seconds: float, every_s: float = 2.0) -> Iterator[Look]:
        """A poll every few seconds."""
        t = due_s = 0.0
        while t < seconds:
            self._admit(t)
            self._step(t)
            t += 1.0 / self.load.speed
            if t >= due_s:
                due_s += every_s
                yield Look(t, self._metrics(), self._slots(), self.tokens, self.steps)

    def _admit(self, t: float) -> None:
        for client, back_s in enumerate(self._back_s):
            if back_s <= t:
                self._back_s[client] = float("inf")
                self._waiting.append(client)
        for at, request in enumerate(self._running):
            if request is None and self._waiting:
                self._requests += 1
                self._numbers += 1
                length = max(1, round(self._random.expovariate(1.0 / self.load.answer)))
                self._running[at] = Request(self._numbers, length, self._waiting.pop(0))

    def _step(self, t: float) -> None:
        busy = [(at, request) for at, request in enumerate(self._running) if request is not None]
        if not busy:
            return
        self._numbers += 1  # steps and requests are numbered alike
        self._steps += 1
        self.steps += 1
        self._busy += len(busy)
        self.tokens += len(busy)
        for at, request in busy:
            request.generated += 1
            if request.generated >= request.length:
                self._ended += request.generated
                self._rested[at], self._running[at] = request, None
                pause_s = self._random.expovariate(1.0 / self.load.think_s) if self.load.think_s else 0.0
                self._back_s[request.client] = t + pause_s

    def _metrics(self) -> bytes:
        running = sum(request is not None for request in self._running)
        values = {
            "prompt_tokens_total": float(PROMPT * self._requests),
            "tokens_predicted_total": float(self._ended),
            "n_decode_total": float(self._steps),
            "requests_processing": float(running),
            "requests_deferred": float(len(self._waiting)),
            "n_busy_slots_per_decode": self._busy / max(1, self._steps),
        }
        return "".join(f"llamacpp:{name} {value:.6g}\n" for name, value in values.items()).encode()

    def _slots(self) -> bytes:
        return json.dumps([self._slot(at) for at in range(self.load.slots)]).encode()

    def _slot(self, at: int) -> dict[str, object]:
        running, rested = self._running[at], self._rested[at]
        slot: dict[str, object] = {"id": at, "n_ctx": 8192, "speculative": False, "is_processing": running is not None}
        if running is not None:
            said = (PROMPT + running.generated, PROMPT, running.generated)
        elif rested is not None:
            said = (PROMPT + rested.generated - 1, 0, 0)
        else:
            return slot
        slot["id_task"] = (running or rested).number  # type: ignore[union-attr]
        slot |= {"n_prompt_tokens": said[0], "n_prompt_tokens_processed": said[1], "n_prompt_tokens_cache": 0}
        return slot | {"next_token": [{"n_decoded": said[2], "n_remain": -1, "has_next_token": running is not None}]}
