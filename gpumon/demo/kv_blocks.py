"""The KV pool of a simulated engine: how many blocks are free, and how many the next decode steps take."""

from __future__ import annotations

BLOCK_TOKENS = 16
"""Tokens of a KV block: vLLM's default."""


def blocks_of(tokens: int) -> int:
    """Blocks that hold `tokens` tokens."""
    return -(-tokens // BLOCK_TOKENS)


class KvBlocks:
    """Free and used blocks of one pool.

    All decoding sequences gain one token a step. A sequence that held t tokens after step o0 needs a new block after
    each step o at which t + o - o0 is a multiple of the block size: sequences with the same (t - o0) modulo the block
    size (their phase) need theirs together. The number of sequences by phase gives the need of any number of steps
    without a look at each sequence. Steps are counted as `ordinal`s.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.free = total - 1
        """vLLM keeps one block as the null block."""
        self._phases = [0] * BLOCK_TOKENS
        """Number of decoding sequences by phase."""

    def lose(self, blocks: int) -> None:
        """Let blocks get lost, as far as some are free: they stay in use, and nobody gives them back."""
        self.free -= min(blocks, self.free)

    @property
    def usage_ratio(self) -> float:
        """Share of the pool in use, as vLLM defines it."""
        return 1.0 - self.free / (self.total - 1)

    def join(self, tokens: int, ordinal: int) -> None:
        """Count a sequence in that holds `tokens` and begins to decode after decode step `ordinal`."""
        self._phases[(tokens - ordinal) % BLOCK_TOKENS] += 1

    def leave(self, tokens: int, ordinal: int) -> None:
        """Count a decoding sequence out that holds `tokens` after decode step `ordinal`."""
        self._phases[(tokens - ordinal) % BLOCK_TOKENS] -= 1

    def need(self, ordinal: int, steps: int, decoding: int) -> int:
        """Blocks that `steps` more decode steps take, when `ordinal` are done and `decoding` sequences take part."""
        rounds, rest = divmod(steps, BLOCK_TOKENS)
        # Every whole round takes one block for each sequence. The steps of the rest take those of their phases, which
        # lie one after another in two laps of the list, and end with the phase of the next step.
        end = -ordinal % BLOCK_TOKENS + BLOCK_TOKENS + 1
        laps = self._phases + self._phases
        return rounds * decoding + sum(laps[end - rest : end])

    def holds(self, ordinal: int, steps: int, decoding: int) -> bool:
        """Whether `steps` more decode steps find the blocks that they take."""
        at_most = -(-steps // BLOCK_TOKENS) * decoding  # rounded up: a bound that needs no look at the phases
        return at_most <= self.free or self.need(ordinal, steps, decoding) <= self.free
