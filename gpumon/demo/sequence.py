"""One request on its way through a simulated engine."""

from __future__ import annotations

import math

from gpumon.demo.traffic import SimulatedRequest
from gpumon.sizing.simulate.batch import BatchedSequence


class Sequence(BatchedSequence):
    """A request on its way through the engine."""

    __slots__ = (
        *("cached", "corrupted", "ended", "fails", "fetched", "first_token_s", "last_token_s", "preemptions"),
        *("request", "scheduled_s"),
    )

    def __init__(self, request: SimulatedRequest) -> None:
        super().__init__(request.prompt_tokens, request.cached_tokens + request.fetched_tokens)
        self.request = request
        self.cached = request.cached_tokens
        self.fetched = request.fetched_tokens
        """Tokens of its prompt whose KV comes from the prefill instance, over the link."""
        self.scheduled_s = math.nan
        self.first_token_s = math.nan
        self.last_token_s = math.nan
        self.preemptions = 0
        self.fails = False
        """The engine gives an error instead of its second token."""
        self.corrupted = False
        """Its logits have a NaN."""
        self.ended = False
