"""The KV pool of one rank: blocks of tokens, and how many the decoding sequences will need next."""

from __future__ import annotations

BLOCK_TOKENS = 16


def blocks_of(tokens: int) -> int:
    """Blocks that hold `tokens` tokens."""
    return -(-tokens // BLOCK_TOKENS)


class KvBlocks:
    """Free and used blocks.

    All decoding sequences gain one token a step, so a sequence that held t tokens at decode step o crosses into a new
    block whenever (o - (o0 - t)) is a multiple of the block size: counting sequences by that phase gives the need of
    any number of steps without looking at each sequence.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.free = total - 1
        """vLLM keeps one block as the null block."""
        self._phases = [0] * BLOCK_TOKENS

    @property
    def usage_ratio(self) -> float:
        """Share of the pool in use, as vLLM defines it."""
        return 1.0 - self.free / (self.total - 1)

    def join(self, tokens: int, ordinal: int) -> None:
        """A sequence that holds `tokens` begins to decode after decode step `ordinal`."""
        self._phases[(tokens - ordinal) % BLOCK_TOKENS] += 1

    def leave(self, tokens: int, ordinal: int) -> None:
        """A decoding sequence that holds `tokens` after step `ordinal` stops."""
        self._phases[(tokens - ordinal) % BLOCK_TOKENS] -= 1

    def need(self, ordinal: int, steps: int, decoding: int) -> int:
        """Blocks that `steps` more decode steps take, when `ordinal` are done and `decoding` sequences take part."""
        rounds, rest = divmod(steps, BLOCK_TOKENS)
        phases = self._phases
        return rounds * decoding + sum(phases[(-ordinal - i) % BLOCK_TOKENS] for i in range(rest))
