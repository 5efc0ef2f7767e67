"""Running and waiting requests of an engine with continuous batching, by the rules of vLLM's V1 scheduler.

A step takes the sequences that decode, then the prompts that are not whole yet, then the queue in order, until the
token budget or the KV blocks end. Without room for the next tokens the sequence that was admitted last goes back to the
head of the queue and is computed anew. What a step costs, who may be admitted and what is counted are no matter of this
module: `scheduler.py` plays requests with it, `gpumon/demo/engine_model.py` a server in all its states.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from enum import Enum
from heapq import heappop, heappush
from typing import Final, Generic, TypeVar

BLOCK: Final = 16
"""Tokens of one KV block: vLLM's default (vllm/config/cache.py, `CacheConfig.DEFAULT_BLOCK_SIZE`)."""
_NO_GROWTH_S: Final = 1e-12
"""Growth of a step below which all last as long as the first: the quadratic formula would divide by 0."""


def blocks_of(tokens: int) -> int:
    """Blocks that hold so many tokens."""
    return -(-tokens // BLOCK)


def steps_in(seconds: float, first_s: float, growth_s: float) -> float:
    """Steps that fit in `seconds` when the first lasts `first_s` and each next one `growth_s` longer.

    n steps last n * first_s + growth_s * n * (n - 1) / 2: solved for n.
    """
    linear_s = first_s - growth_s / 2.0
    if growth_s < _NO_GROWTH_S:
        return seconds / linear_s
    return (math.sqrt(linear_s * linear_s + 2.0 * growth_s * seconds) - linear_s) / growth_s


class KvBlocks:
    """Free blocks of a KV pool, and those that the next steps of the decoding sequences take.

    A sequence that holds t tokens after decode step s needs another block for each step before which it holds a
    multiple of `BLOCK`. The number of sequences by that step, modulo `BLOCK`, gives the need of any number of steps
    without a look at each sequence.
    """

    __slots__ = ("_by_step", "_drop_cached", "free", "total")

    def __init__(self, total: int, drop_cached: Callable[[], int] | None = None) -> None:
        """`drop_cached` drops some cached blocks that no sequence uses, and returns how many are free by that."""
        self.total = total
        self.free = total
        self._drop_cached = drop_cached
        self._by_step = [0] * BLOCK
        """Blocks that the sequences need at a decode step, by its number modulo `BLOCK`."""

    @property
    def usage_ratio(self) -> float:
        """Share of the pool in use, as vLLM defines it."""
        return 1.0 - self.free / self.total

    def lose(self, blocks: int) -> None:
        """Let blocks get lost, as far as some are free: they stay in use, and nobody gives them back."""
        self.free -= min(blocks, self.free)

    def make_room(self, blocks: int) -> bool:
        """Drop what is cached and unused until so many blocks are free; returns whether they are."""
        while self.free < blocks:
            dropped = self._drop_cached() if self._drop_cached is not None else 0
            if not dropped:
                return False
            self.free += dropped
        return True

    def join(self, tokens: int, step: int) -> None:
        """Count a sequence in that holds `tokens` and begins to decode after decode step `step`."""
        self._by_step[(step - tokens) % BLOCK] += 1

    def leave(self, tokens: int, step: int) -> None:
        """Count a decoding sequence out that holds `tokens` after decode step `step`."""
        self._by_step[(step - tokens) % BLOCK] -= 1

    def need(self, step: int, tokens: int, decoding: int) -> int:
        """Blocks that `decoding` sequences take for so many tokens each, after decode step `step`."""
        by_step = self._by_step
        first = step % BLOCK
        if tokens == 1:
            return by_step[first]
        rounds, rest = divmod(tokens, BLOCK)  # in a whole round each sequence takes one
        end = first + rest
        return rounds * decoding + sum(by_step[first:end]) + sum(by_step[: max(0, end - BLOCK)])

    def holds(self, step: int, tokens: int, decoding: int) -> bool:
        """Whether there are free blocks for what `need` says."""
        at_most = blocks_of(tokens) * decoding  # rounded up: a bound that needs no look at the sequences
        return at_most <= self.free or self.need(step, tokens, decoding) <= self.free

    def tokens_with_room(self, step: int, most: int, decoding: int) -> int:
        """Tokens of each sequence after decode step `step` for which there are blocks, at most `most`.

        Drops what is cached and unused, as far as that is in the way.
        """
        left = self.free
        for tokens in range(most):
            left -= self._by_step[(step + tokens) % BLOCK]
            if left < 0:
                self.make_room(self.free - left)
                due = self.need(step, tokens + 1, decoding)
                if self.free < due:
                    return tokens
                left = self.free - due
        return most


class BatchedSequence:
    """A request inside an engine."""

    __slots__ = ("blocks", "computed", "end_number", "generated", "joined", "prompt", "shared_blocks", "tokens")

    def __init__(self, prompt: int, computed: int = 0) -> None:
        self.prompt = prompt
        self.tokens = prompt
        """Tokens to compute before the next one comes: the prompt, and after a preemption the answer so far, too."""
        self.computed = computed
        """Number of these that are computed, until all are; cached ones count as computed."""
        self.generated = 0
        """Tokens of the answer when it began to decode; those since then are counted once it stops."""
        self.joined = 0
        """Decode step at which it began to decode."""
        self.blocks = 0
        """Blocks of its own; while it decodes, those when it began to."""
        self.shared_blocks = 0
        """Blocks of its beginning that belong to a prefix cache."""
        self.end_number = 0
        """Number of its end among the planned ones; 0 while it does not decode."""

    @property
    def decodes(self) -> bool:
        """Whether its prompt is whole, and its answer comes token by token."""
        return self.end_number > 0


class Turn(Enum):
    """Outcome for the head of the queue, when it is its turn to be admitted."""

    ADMITTED = "admitted"
    LEFT = "left the queue for another place"
    SKIPPED = "lets those behind it go first"
    WAITS = "waits, and those behind it"


S = TypeVar("S", bound=BatchedSequence)


class Batch(Generic[S]):
    """Running and waiting sequences of one engine. Steps are planned by `plan`, and counted when they are over."""

    __slots__ = (
        *("_ends", "_last_number", "_max_tokens", "_on_preempted"),
        *("blocks", "budget", "chunks", "context_tokens", "decoding", "prefilling", "running", "step", "waiting"),
    )

    def __init__(self, blocks: KvBlocks, max_tokens: int, on_preempted: Callable[[S, bool], None]) -> None:
        """`max_tokens`: most tokens of a step, those of decoding sequences and of prompts together.

        `on_preempted` is told of each sequence that goes back to the queue, and whether it decoded.
        """
        self.blocks = blocks
        self.step = 0
        """Tokens that a sequence would have gained since the start: one a decode step, with speculation more."""
        self.decoding = 0
        """Sequences that decode."""
        self.context_tokens = 0
        """Tokens of context of all sequences that decode."""
        self.running: dict[S, None] = {}
        """Admitted sequences, in the order of their admission."""
        self.prefilling: dict[S, None] = {}
        """Running sequences whose prompt is not whole."""
        self.waiting: deque[S] = deque()
        self.chunks: list[tuple[S, int]] = []
        """Prompts of the present step, and the number of tokens of each in it."""
        self.budget = 0
        """Tokens that the step being planned has room for."""
        self._max_tokens = max_tokens
        self._on_preempted = on_preempted
        self._ends: list[tuple[int, int, S]] = []
        """Heap: decode step with which an answer is whole, number of the end, sequence. One whose sequence has another
        number by now was preempted, or has left."""
        self._last_number = 0

    def make_room_to_decode(self, tokens: int) -> bool:
        """Preempt until there are blocks for so many tokens of each that decodes; returns whether any was preempted."""
        preempted = False
        while not self.blocks.make_room(self.blocks.need(self.step, tokens, self.decoding)):
            self._preempt_last()  # which may need a block itself, so that less is needed
            preempted = True
        return preempted

    def continue_prompts(self) -> bool:
        """Begin the plan of a step with the prompts that are not whole; returns whether one was preempted instead."""
        self.chunks = []
        self.budget = self._max_tokens - self.decoding
        for sequence in self.prefilling:
            tokens = min(self.budget, sequence.tokens - sequence.computed)
            if tokens <= 0:
                break
            if not self.take_blocks(sequence, sequence.computed + tokens):
                self._preempt_last()
                return True
            self._add_chunk(sequence, tokens)
        return False

    def take_blocks(self, sequence: S, tokens: int) -> bool:
        """Let a sequence have the blocks for its first `tokens`; returns False if there is no room for them."""
        blocks = blocks_of(tokens) - sequence.shared_blocks - sequence.blocks
        if blocks > 0:
            if not self.blocks.make_room(blocks):
                return False
            self.blocks.free -= blocks
            sequence.blocks += blocks
        return True

    def admit(self, judge: Callable[[S], Turn]) -> int:
        """Take from the queue what `judge` admits, until the step is full; returns the number of those skipped."""
        skipped: list[S] = []
        while self.waiting and self.budget > 0:
            sequence = self.waiting[0]
            turn = judge(sequence)
            if turn is Turn.WAITS:
                break
            self.waiting.popleft()
            if turn is Turn.SKIPPED:
                skipped.append(sequence)
            elif turn is Turn.ADMITTED:
                self.running[sequence] = None
                self.prefilling[sequence] = None
                self._add_chunk(sequence, min(self.budget, sequence.tokens - sequence.computed))
        self.waiting.extendleft(reversed(skipped))
        return len(skipped)

    def _add_chunk(self, sequence: S, tokens: int) -> None:
        """Have so many tokens of a prompt in the step."""
        self.chunks.append((sequence, tokens))
        self.budget -= tokens

    def decode(self, tokens: int) -> None:
        """Count steps in which each decoding sequence gained so many tokens."""
        self.blocks.free -= self.blocks.need(self.step, tokens, self.decoding)
        self.step += tokens
        self.context_tokens += tokens * self.decoding

    def end_chunks(self) -> list[S]:
        """Count the chunks of the step; returns the sequences whose prompt is whole by that."""
        whole = []
        for sequence, tokens in self.chunks:
            sequence.computed += tokens
            if sequence.computed == sequence.tokens:
                del self.prefilling[sequence]
                whole.append(sequence)
        return whole

    def start_decoding(self, sequence: S, more_tokens: int) -> None:
        """Have a sequence decode whose prompt is whole, until it has so many tokens more."""
        self._last_number += 1
        sequence.end_number = self._last_number
        sequence.joined = self.step
        self.blocks.join(sequence.tokens, self.step)
        self.decoding += 1
        self.context_tokens += sequence.tokens
        heappush(self._ends, (self.step + more_tokens, self._last_number, sequence))

    def tokens_to_next_end(self) -> int:
        """Tokens until the next answer is whole; some sequence has to decode."""
        while self._ends[0][1] != self._ends[0][2].end_number:
            heappop(self._ends)
        return self._ends[0][0] - self.step

    def end_answers(self) -> list[tuple[S, int]]:
        """Take out the sequences whose answers are whole, each with the tokens that it gained beyond its end."""
        ended: list[tuple[S, int]] = []
        while self._ends and self._ends[0][0] <= self.step:
            end_step, number, sequence = heappop(self._ends)
            if number == sequence.end_number:
                self.remove(sequence)
                ended.append((sequence, self.step - end_step))
        return ended

    def remove(self, sequence: S) -> None:
        """Take a running sequence out, whatever it does."""
        del self.running[sequence]
        self._stop(sequence)

    def release(self, sequence: S) -> None:
        """Free a sequence's own blocks."""
        self.blocks.free += sequence.blocks
        sequence.blocks = 0

    def _preempt_last(self) -> None:
        """Send the sequence that was admitted last back to the head of the queue."""
        sequence, _ = self.running.popitem()
        decoded = sequence.decodes
        self._stop(sequence)
        sequence.tokens = sequence.prompt + sequence.generated
        sequence.computed = 0
        self.waiting.appendleft(sequence)
        self._on_preempted(sequence, decoded)

    def _stop(self, sequence: S) -> None:
        """Stop what a sequence does, and free its blocks; the tokens that it gained by decoding are counted."""
        self.prefilling.pop(sequence, None)
        if sequence.end_number:
            gained = self.step - sequence.joined
            held = sequence.tokens + gained
            self.blocks.leave(held, self.step)
            sequence.blocks += blocks_of(held) - blocks_of(sequence.tokens)
            sequence.computed = held
            sequence.generated += gained
            sequence.end_number = 0
            self.decoding -= 1
            self.context_tokens -= held
        self.release(sequence)
