"""One engine with continuous batching, by the rules of vLLM's V1 scheduler: what each step takes, and who waits.

A step takes the sequences that decode, then the one prompt that is not whole yet, then the queue in order, until the
token budget, the most sequences or the KV blocks end. Without room for the next tokens the sequence that was admitted
last goes back to the head of the queue and is computed anew. Steps in which nothing changes are taken together.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

from gpumon.sizing.simulate.cost import StepTime
from gpumon.sizing.simulate.requests import PlayedRequest

BLOCK: Final = 16
"""Tokens of one KV block: vLLM's default (vllm/config/cache.py, `CacheConfig.DEFAULT_BLOCK_SIZE`)."""
_ROUNDING: Final = 1e-9
"""Part of a step that rounding may add: it must not begin another step."""
_GAP_DIGITS: Final = 3
"""Digits to which gaps between tokens are rounded, so that equal ones are counted together."""


class EngineLimits(NamedTuple):
    """Settings of an engine that bound what a step takes."""

    max_num_seqs: int
    """Most sequences that run together."""
    max_num_batched_tokens: int
    """Most tokens of a step, those of decoding sequences and of prompts together."""
    kv_blocks: int
    """Blocks of `BLOCK` tokens of the KV cache."""


class ServedRequest(NamedTuple):
    """One request that ended, with its times in seconds since the begin of the simulation."""

    request: PlayedRequest
    admitted_s: float
    """Begin of the computation of its prompt."""
    first_s: float
    """First token of the answer."""
    end_s: float
    """Last token of the answer."""

    @property
    def ttft_s(self) -> float:
        """Seconds from its arrival to the first token."""
        return self.first_s - self.request.arrival_s

    @property
    def e2e_s(self) -> float:
        """Seconds from its arrival to the last token."""
        return self.end_s - self.request.arrival_s

    @property
    def mean_gap_s(self) -> float:
        """Mean seconds between the tokens of its answer, which has several."""
        return (self.end_s - self.first_s) / (self.request.answer - 1)


class Log:
    """Record of the replicas of one simulation: requests served, gaps between tokens, preemptions."""

    def __init__(self) -> None:
        self.served: list[ServedRequest] = []
        self.gaps: dict[float, float] = {}
        """Seconds between two tokens of a request, rounded -> number of such gaps."""
        self.preemptions = 0
        self.refused = 0
        """Requests that are longer than the KV cache."""
        self.hit_tokens = 0
        """Prompt tokens that came from the prefix cache."""
        self.prompt_tokens = 0
        self.delay_s = 0.0
        """Seconds between the arrival of a request and its place in the queue."""
        self.counted_from_s = 0.0
        """Gaps that end from this time on, and before `counted_until_s`, are counted."""
        self.counted_until_s = math.inf

    def add_gaps(self, seconds: float, number: float, now_s: float) -> None:
        """Add gaps of so many seconds between tokens that end now."""
        if not self.counted_from_s <= now_s < self.counted_until_s:
            return
        scale = 10.0 ** (_GAP_DIGITS - 1 - math.floor(math.log10(seconds)))
        rounded = round(seconds * scale) / scale
        self.gaps[rounded] = self.gaps.get(rounded, 0.0) + number


class _Sequence:
    """A request inside the engine."""

    __slots__ = (
        "admitted_s",
        "block_step",
        "computed",
        "decode_start",
        "first_s",
        "generated",
        "last_s",
        "planned_end",
        "prefix_blocks",
        "prefix_pieces",
        "request",
        "takes_all_blocks",
        "tokens",
    )

    def __init__(self, request: PlayedRequest) -> None:
        self.request = request
        self.tokens = request.prompt
        """Tokens to compute before the next one comes: the prompt, and after a preemption the answer so far, too."""
        self.computed = 0
        """Number of these that are computed, until all are; cached ones count as computed."""
        self.prefix_blocks = 0
        """Blocks of the shared beginning, which belong to the prefix cache."""
        self.prefix_pieces = 0
        """Pieces of its beginning that it uses in the prefix cache."""
        self.generated = 0
        """Tokens of the answer when it began to decode; those since then are counted once it stops."""
        self.admitted_s = -1.0
        """Time of its first admission; -1 before it."""
        self.first_s = -1.0
        """Time of its first token; -1 before it."""
        self.last_s = 0.0
        """Time of its last token before a preemption."""
        self.decode_start = 0
        """Decode step at which its prompt was whole."""
        self.block_step = 0
        """Decode step (modulo `BLOCK`) at which it needs another block."""
        self.takes_all_blocks = False
        """Whether it was sent back though no other ran: it has no room beside a piece of which it uses a part."""
        self.planned_end: _PlannedEnd | None = None
        """Its entry in the heap of planned ends; None while it does not decode."""


class _PlannedEnd(NamedTuple):
    """The end of a sequence that decodes. It does not come to pass if the sequence is preempted before it."""

    step: int
    """Decode step with which its answer is whole."""
    number: int
    """Orders sequences that end with the same step: by when they began to decode."""
    sequence: _Sequence

    @property
    def is_dropped(self) -> bool:
        """Whether the sequence was preempted since."""
        return self.sequence.planned_end is not self


class _Match(NamedTuple):
    """The beginning of a request as far as a prefix cache has it."""

    pieces: int = 0
    """Pieces of the beginning; the last one may be there in part."""
    blocks: int = 0
    """Blocks that they have in common."""


_NO_MATCH: Final = _Match()


class _PrefixCache:
    """The prefix cache of one replica: pieces of beginnings. Those that no sequence uses make room, the one that was
    left first before the others; of one request the last piece first, as in vLLM."""

    def __init__(self) -> None:
        self.blocks: dict[int, int] = {}
        """Name of a piece -> its blocks."""
        self._users: dict[int, int] = {}
        """Name of a piece -> sequences that use it."""
        self._unused: OrderedDict[int, None] = OrderedDict()
        """Pieces that no sequence uses, the one that was left first in front."""

    def match(self, request: PlayedRequest) -> _Match:
        """The beginning of a request as far as it is here."""
        if not request.prefix:
            return _NO_MATCH
        pieces = 0
        blocks = 0
        for number, name in enumerate(request.prefix):
            cached_blocks = self.blocks.get(name)
            if cached_blocks is None:
                break
            pieces += 1
            own_blocks = _piece_blocks(request, number)
            blocks += min(cached_blocks, own_blocks)
            if cached_blocks < own_blocks:
                break
        return _Match(pieces, blocks)

    def use(self, names: Sequence[int]) -> None:
        """Note that a sequence uses these pieces, which are here."""
        for name in names:
            self._users[name] += 1
            self._unused.pop(name, None)

    def leave(self, names: Sequence[int]) -> None:
        """Note that a sequence no longer uses these pieces."""
        for name in reversed(names):
            self._users[name] -= 1
            if not self._users[name]:
                self._unused[name] = None

    def add(self, name: int, blocks: int) -> None:
        """Add a piece, which the sequence that computed it uses."""
        self.blocks[name] = blocks
        self._users[name] = 1

    def extend(self, name: int, blocks: int) -> None:
        """Lengthen a piece: a sequence that uses it computed more of it than the first one."""
        self.blocks[name] = blocks

    def drop_oldest(self) -> int:
        """Drop the piece that was left first; returns the blocks that this frees, or 0."""
        if not self._unused:
            return 0
        name, _ = self._unused.popitem(last=False)
        del self._users[name]
        return self.blocks.pop(name)


class Replica:
    """One engine, played stretch by stretch: a stretch is one step, or several in which nothing changes.

    A step is a decode step if sequences decode in it, whatever else it does.
    """

    def __init__(self, cost: StepTime, limits: EngineLimits, log: Log) -> None:
        self.end_s = math.inf
        """End of the present stretch; infinite while it has nothing to do."""
        self._cost = cost
        self._bases_s = cost.base_by_tokens()
        self._limits = limits
        self._log = log
        self._start_s = 0.0
        """Begin of the present stretch."""
        self._decode_step = 0
        """Decode steps before the present stretch."""
        self._stretch_steps = 0
        """Steps of the present stretch."""
        self._decoding = 0
        """Sequences that decode."""
        self._context_tokens = 0
        """Tokens of context of all sequences that decode."""
        self._free_blocks = limits.kv_blocks
        """Free blocks of the KV cache."""
        self._blocks_by_step = [0] * BLOCK
        """Blocks that the sequences need at a decode step, by its number modulo `BLOCK`."""
        self._running: dict[_Sequence, None] = {}
        """Admitted sequences, in the order of their admission."""
        self._planned_ends: list[_PlannedEnd] = []
        """Heap of the planned ends, the next one first."""
        self._last_number = 0
        """Number of the planned end that was added last."""
        self._partial_prompt: _Sequence | None = None
        """The prompt that is not whole yet."""
        self._prompt_chunks: list[tuple[_Sequence, int]] = []
        """Prompts of the present step, and the number of tokens of each in it."""
        self._waiting: deque[_Sequence] = deque()
        self._prefixes = _PrefixCache()

    @property
    def in_flight(self) -> int:
        """Requests that run or wait."""
        return len(self._running) + len(self._waiting)

    def cached_pieces(self, request: PlayedRequest) -> int:
        """Pieces of the beginning of a request that its prefix cache has."""
        return self._prefixes.match(request).pieces

    def add(self, request: PlayedRequest, now_s: float) -> None:
        """Queue a request: it may be in the step that follows the one under way."""
        if request.prompt + request.answer > self._limits.kv_blocks * BLOCK:
            self._log.refused += 1
            return
        others_wait = bool(self._waiting)
        self._waiting.append(_Sequence(request))
        if math.isinf(self.end_s):
            self.end_s = now_s  # planned in `advance`, as others may arrive at the same moment
        elif self._stretch_steps > 1 and not others_wait:  # where others wait, the stretch ends when there is room
            self._shorten(now_s)

    def advance(self) -> list[ServedRequest]:
        """End the present stretch and plan the next one; returns the requests that ended with it."""
        now_s = self.end_s
        ended: list[ServedRequest] = []
        if self._decoding:
            self._decode(now_s)
            self._end_answers(now_s, ended)
        for sequence, chunk in self._prompt_chunks:
            sequence.computed += chunk
            if sequence.computed == sequence.tokens:
                self._end_prompt(sequence, now_s, ended)
        self._log.served += ended
        self._plan(now_s)
        return ended

    def _decode(self, now_s: float) -> None:
        """Count the tokens and blocks of the stretch's steps. The blocks of the first one are taken already."""
        steps = self._stretch_steps
        self._decode_step += 1
        if steps > 1:
            self._free_blocks -= self._blocks_due(self._decode_step, steps - 1)
            self._decode_step += steps - 1
            self._make_room(0)  # drops the prefixes whose room was counted on
        tokens = self._decoding * steps
        self._context_tokens += tokens
        self._log.add_gaps((now_s - self._start_s) / steps, tokens, now_s)

    def _end_answers(self, now_s: float, ended: list[ServedRequest]) -> None:
        """End the sequences that have all tokens of their answers."""
        planned_ends = self._planned_ends
        while planned_ends and planned_ends[0].step <= self._decode_step:
            planned_end = heappop(planned_ends)
            if planned_end.is_dropped:
                continue
            self._stop_decoding(planned_end.sequence)
            self._end(planned_end.sequence, now_s, ended)

    def _end_prompt(self, sequence: _Sequence, now_s: float, ended: list[ServedRequest]) -> None:
        """Count the token that comes with the last one of the prompt; from now on the sequence decodes, or it ends."""
        if sequence is self._partial_prompt:
            self._partial_prompt = None
        self._share_prefix(sequence)
        sequence.generated += 1
        if sequence.first_s < 0.0:
            sequence.first_s = now_s
        else:
            self._log.add_gaps(now_s - sequence.last_s, 1.0, now_s)
        if sequence.generated >= sequence.request.answer:
            self._end(sequence, now_s, ended)
            return
        self._start_decoding(sequence)

    def _start_decoding(self, sequence: _Sequence) -> None:
        """Add a sequence whose prompt is whole to those that decode, and plan its end."""
        sequence.decode_start = self._decode_step
        # At that step its tokens (those of now, and one per decode step since) fill whole blocks.
        sequence.block_step = (self._decode_step - sequence.tokens) % BLOCK
        self._blocks_by_step[sequence.block_step] += 1
        self._decoding += 1
        self._context_tokens += sequence.tokens
        self._last_number += 1
        last_step = self._decode_step + sequence.request.answer - sequence.generated
        planned_end = _PlannedEnd(last_step, self._last_number, sequence)
        sequence.planned_end = planned_end
        heappush(self._planned_ends, planned_end)

    def _share_prefix(self, sequence: _Sequence) -> None:
        """Put the beginning of a prompt into the prefix cache, as far as this sequence computed it.

        A piece that another sequence has put there meanwhile stays as it is, and what follows it is this one's alone.
        """
        request = sequence.request
        if not request.prefix or not self._share_partial_piece(sequence):
            return
        for number in range(sequence.prefix_pieces, len(request.prefix)):
            name = request.prefix[number]
            blocks = _piece_blocks(request, number)
            if name in self._prefixes.blocks or not blocks:
                return
            self._prefixes.add(name, blocks)
            sequence.prefix_pieces += 1
            sequence.prefix_blocks += blocks

    def _share_partial_piece(self, sequence: _Sequence) -> bool:
        """Lengthen the last piece that a sequence found by what it computed of it; returns whether it is whole then."""
        if not sequence.prefix_pieces:
            return True
        number = sequence.prefix_pieces - 1
        name = sequence.request.prefix[number]
        blocks_before = sum(_piece_blocks(sequence.request, earlier) for earlier in range(number))
        found_blocks = sequence.prefix_blocks - blocks_before
        own_blocks = _piece_blocks(sequence.request, number)
        cached_blocks = self._prefixes.blocks[name]
        if own_blocks <= found_blocks:
            return True
        if cached_blocks != found_blocks:
            return False
        self._prefixes.extend(name, own_blocks)
        sequence.prefix_blocks += own_blocks - found_blocks
        return True

    def _stop_decoding(self, sequence: _Sequence) -> None:
        """Take a sequence out of those that decode, and count the tokens that it generated since it began to."""
        generated = self._decode_step - sequence.decode_start
        sequence.computed = sequence.tokens + generated
        sequence.generated += generated
        sequence.planned_end = None
        self._blocks_by_step[sequence.block_step] -= 1
        self._decoding -= 1
        self._context_tokens -= sequence.computed

    def _end(self, sequence: _Sequence, now_s: float, ended: list[ServedRequest]) -> None:
        """Free the blocks of a sequence whose answer is whole, and add it to those that ended."""
        del self._running[sequence]
        self._release(sequence)
        ended.append(ServedRequest(sequence.request, sequence.admitted_s, sequence.first_s, now_s))

    def _release(self, sequence: _Sequence) -> None:
        """Free the blocks of a sequence."""
        self._free_blocks += _blocks(sequence.computed) - sequence.prefix_blocks
        if sequence.prefix_pieces:
            self._prefixes.leave(sequence.request.prefix[: sequence.prefix_pieces])
        sequence.prefix_pieces = 0
        sequence.prefix_blocks = 0

    def _make_room(self, blocks: int) -> bool:
        """Drop prefixes that no sequence uses until so many blocks are free; returns whether they are."""
        while self._free_blocks < blocks:
            dropped = self._prefixes.drop_oldest()
            if not dropped:
                return False
            self._free_blocks += dropped
        return True

    def _preempt_last(self, now_s: float) -> None:
        """Send the sequence that was admitted last back to the head of the queue."""
        sequence, _ = self._running.popitem()
        sequence.takes_all_blocks = not self._running
        if sequence.planned_end is not None:
            self._stop_decoding(sequence)
            sequence.last_s = now_s
        if sequence is self._partial_prompt:
            self._partial_prompt = None
        self._release(sequence)
        sequence.tokens = sequence.request.prompt + sequence.generated
        sequence.computed = 0
        self._waiting.appendleft(sequence)
        self._log.preemptions += 1

    def _plan(self, now_s: float) -> None:
        """Decide what the next step takes, or the next stretch of steps in which nothing changes."""
        self._start_s = now_s
        self._prompt_chunks = []
        self._stretch_steps = 0
        if not self._running and not self._waiting:
            self.end_s = math.inf
            return
        preempted = self._make_room_to_decode(now_s)
        if self._continue_prompt(now_s):
            preempted = True
        if not preempted:  # as in vLLM, which admits nobody in a step that sent one back
            self._admit(now_s)
        if not self._decoding and not self._prompt_chunks:
            # The only sequence that ran was sent back: it is admitted in the next step.
            self._admit(now_s)
        if self._prompt_chunks or preempted:
            self._stretch_steps = 1
        else:
            self._stretch_steps = self._steps_until_change()
        self.end_s = now_s + self._seconds(self._stretch_steps)

    def _make_room_to_decode(self, now_s: float) -> bool:
        """Take the blocks that the next decode step needs; returns whether a sequence was preempted for them."""
        preempted = False
        while not self._make_room(self._blocks_by_step[self._decode_step % BLOCK]):
            self._preempt_last(now_s)  # which may need a block itself, so that less is needed
            preempted = True
        self._free_blocks -= self._blocks_by_step[self._decode_step % BLOCK]
        return preempted

    def _continue_prompt(self, now_s: float) -> bool:
        """Compute more of the prompt that is not whole; returns whether its sequence was preempted instead."""
        sequence = self._partial_prompt
        budget = self._limits.max_num_batched_tokens - self._decoding
        if sequence is None or budget <= 0:
            return False
        chunk = min(budget, sequence.tokens - sequence.computed)
        blocks = _blocks(sequence.computed + chunk) - _blocks(sequence.computed)
        if not self._make_room(blocks):
            # It was admitted last, so it is the one that goes.
            self._preempt_last(now_s)
            return True
        self._free_blocks -= blocks
        self._prompt_chunks.append((sequence, chunk))
        return False

    def _admit(self, now_s: float) -> None:
        """Admit requests from the queue, in its order, until tokens, sequences or blocks end."""
        budget = self._limits.max_num_batched_tokens - self._decoding - sum(chunk for _, chunk in self._prompt_chunks)
        while self._waiting and budget > 0 and len(self._running) < self._limits.max_num_seqs:
            chunk = self._admit_first(budget, now_s)
            if not chunk:
                return
            budget -= chunk

    def _admit_first(self, budget: int, now_s: float) -> int:
        """Admit the head of the queue, with at most `budget` tokens of its prompt in this step.

        Returns the number of these tokens; 0 where there are too few blocks, so that it goes on waiting.
        """
        sequence = self._waiting[0]
        match = _NO_MATCH if sequence.takes_all_blocks else self._prefixes.match(sequence.request)
        chunk = self._admit_with(sequence, match, budget, now_s)
        if not chunk and match.pieces and not self._running:
            # The last piece that it found has more blocks than it has use for, and no other sequence will free one.
            chunk = self._admit_with(sequence, _NO_MATCH, budget, now_s)
        return chunk

    def _admit_with(self, sequence: _Sequence, match: _Match, budget: int, now_s: float) -> int:
        """Admit the head of the queue with a beginning that is cached; returns what `_admit_first` does."""
        request = sequence.request
        # The last token is always computed: the next one comes of it.
        cached = min(max(request.cached, match.blocks * BLOCK), sequence.tokens - 1)
        chunk = min(budget, sequence.tokens - cached)
        matched_pieces = request.prefix[: match.pieces]
        self._prefixes.use(matched_pieces)  # before room is made, which would drop them else
        blocks = _blocks(cached + chunk) - match.blocks
        if not self._make_room(blocks):
            self._prefixes.leave(matched_pieces)
            return 0
        self._waiting.popleft()
        self._free_blocks -= blocks
        sequence.prefix_pieces = match.pieces
        sequence.prefix_blocks = match.blocks
        sequence.computed = cached
        if sequence.admitted_s < 0.0:  # else it was preempted, and is counted already
            sequence.admitted_s = now_s
            self._log.prompt_tokens += request.prompt
            self._log.hit_tokens += cached
        self._running[sequence] = None
        self._prompt_chunks.append((sequence, chunk))
        if cached + chunk < sequence.tokens:
            self._partial_prompt = sequence
        return chunk

    def _steps_until_change(self) -> int:
        """Decode steps, the next one included, until a sequence ends or the blocks do."""
        planned_ends = self._planned_ends
        while planned_ends[0].is_dropped:
            heappop(planned_ends)
        steps = planned_ends[0].step - self._decode_step
        further = steps - 1  # the blocks of the next step are taken already
        most_blocks = (further // BLOCK + 1) * self._decoding
        if self._free_blocks >= most_blocks:
            return steps
        return 1 + self._steps_with_room(further)

    def _steps_with_room(self, most: int) -> int:
        """Decode steps after the next one for which there are blocks, at most `most`. May drop prefixes."""
        blocks_left = self._free_blocks
        first = self._decode_step + 1
        for further in range(most):
            blocks_left -= self._blocks_by_step[(first + further) % BLOCK]
            if blocks_left < 0:
                self._make_room(self._free_blocks - blocks_left)
                due = self._blocks_due(first, further + 1)
                if self._free_blocks < due:
                    return further
                blocks_left = self._free_blocks - due
        return most

    def _blocks_due(self, first: int, steps: int) -> int:
        """Blocks that so many decode steps need from decode step `first` on: each sequence one per `BLOCK` steps."""
        rounds, rest = divmod(steps, BLOCK)
        by_step = self._blocks_by_step
        return rounds * self._decoding + sum(by_step[(first + further) % BLOCK] for further in range(rest))

    def _seconds(self, steps: int) -> float:
        """Seconds of the next steps, in each of which every sequence has one token more of context."""
        cost = self._cost
        prompt_tokens = 0
        pairs = 0.0
        for sequence, chunk in self._prompt_chunks:
            prompt_tokens += chunk
            pairs += chunk * (sequence.computed + chunk / 2.0)
        decoding = self._decoding
        tokens = min(decoding + prompt_tokens, len(self._bases_s) - 1)
        first_s = self._bases_s[tokens] + cost.sequence_s * decoding + cost.kv_token_s * self._context_tokens
        first_s += cost.prompt_token_s * prompt_tokens + cost.pair_s * pairs
        return steps * first_s + cost.kv_token_s * decoding * (steps * (steps - 1) // 2)

    def _shorten(self, now_s: float) -> None:
        """End the stretch with the step that is under way.

        Each step takes `growth_s` longer than the one before, so that n steps take n*first_s + growth_s*n*(n - 1)/2:
        solved for the n at which `passed_s` have passed.
        """
        growth_s = self._cost.kv_token_s * self._decoding
        first_s = self._seconds(1)
        passed_s = now_s - self._start_s
        if growth_s > 0.0:
            linear_s = first_s - growth_s / 2.0
            begun_steps = (math.sqrt(linear_s * linear_s + 2.0 * growth_s * passed_s) - linear_s) / growth_s
        else:
            begun_steps = passed_s / first_s
        steps = max(1, math.ceil(begun_steps - _ROUNDING))
        if steps < self._stretch_steps:
            self._stretch_steps = steps
            self.end_s = self._start_s + self._seconds(steps)


def _blocks(tokens: int) -> int:
    """Blocks that hold so many tokens."""
    return -(-tokens // BLOCK)


def _piece_blocks(request: PlayedRequest, number: int) -> int:
    """Blocks of one piece of the beginning of a request."""
    if not request.piece:
        return request.shared // BLOCK
    return min(request.piece, request.shared - number * request.piece) // BLOCK
