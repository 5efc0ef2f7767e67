"""One request on its way through a simulated engine."""

from __future__ import annotations

import math

from gpumon.demo.traffic import SimulatedRequest


class Sequence:
    """A request on its way through the engine."""

    __slots__ = (
        *("cached", "computed", "decoding", "ends", "first_token_s", "generated", "joined", "last_token_s"),
        *("corrupted", "ended", "fails", "fetched", "preemptions", "request", "reserved", "scheduled_s", "target"),
    )

    def __init__(self, request: SimulatedRequest) -> None:
        self.request = request
        self.cached = request.cached_tokens
        self.target = request.prompt_tokens
        """Tokens whose KV must be there before the next token comes out."""
        self.fetched = request.fetched_tokens
        """Tokens of it whose KV comes from the prefill instance, over the link."""
        self.computed = self.cached + self.fetched
        self.generated = 0
        """Tokens given out when it joined the decoding ones; later ones follow from the decode step."""
        self.joined = 0
        """Decode step at which it joined."""
        self.ends = 0
        """Decode step after which it has all its tokens."""
        self.decoding = False
        self.scheduled_s = math.nan
        self.first_token_s = math.nan
        self.last_token_s = math.nan
        self.preemptions = 0
        self.reserved = False
        """Its KV is on the way, or has come: its blocks are taken."""
        self.fails = False
        """The engine gives an error instead of its second token."""
        self.corrupted = False
        """Its logits have a NaN."""
        self.ended = False

    def held(self, ordinal: int) -> int:
        """Tokens in the KV pool after decode step `ordinal`, once it decodes."""
        return self.target + ordinal - self.joined
