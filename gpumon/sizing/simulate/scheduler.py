"""One engine with continuous batching, by the rules of vLLM's V1 scheduler: what each step takes, and who waits.

`batch.py` has the rules. Here: a prefix cache, chunk by chunk admission, a time of each step, and steps in which
nothing changes are taken together.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.sizing.simulate.batch import BLOCK, Batch, BatchedSequence, KvBlocks, Turn, steps_in
from gpumon.sizing.simulate.cost import StepTime
from gpumon.sizing.simulate.requests import PlayedRequest

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


class _Sequence(BatchedSequence):
    """A request inside the engine."""

    __slots__ = ("admitted_s", "first_s", "last_s", "prefix_pieces", "request", "takes_all_blocks")

    def __init__(self, request: PlayedRequest) -> None:
        super().__init__(request.prompt)
        self.request = request
        self.prefix_pieces = 0
        """Pieces of its beginning that it uses in the prefix cache."""
        self.admitted_s = -1.0
        """Time of its first admission; -1 before it."""
        self.first_s = -1.0
        """Time of its first token; -1 before it."""
        self.last_s = 0.0
        """Time of its last token before a preemption."""
        self.takes_all_blocks = False
        """Whether it was sent back though no other ran: it has no room beside a piece of which it uses a part."""


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
        self._stretch_steps = 0
        """Steps of the present stretch."""
        self._taken_ahead = 0
        """Blocks of the next decode step, which are taken when it is planned."""
        self._prefixes = _PrefixCache()
        blocks = KvBlocks(limits.kv_blocks, self._prefixes.drop_oldest)
        self._batch: Batch[_Sequence] = Batch(blocks, limits.max_num_batched_tokens, self._note_preemption)

    @property
    def in_flight(self) -> int:
        """Requests that run or wait."""
        return len(self._batch.running) + len(self._batch.waiting)

    def cached_pieces(self, request: PlayedRequest) -> int:
        """Pieces of the beginning of a request that its prefix cache has."""
        return self._prefixes.match(request).pieces

    def add(self, request: PlayedRequest, now_s: float) -> None:
        """Queue a request: it may be in the step that follows the one under way."""
        if request.prompt + request.answer > self._limits.kv_blocks * BLOCK:
            self._log.refused += 1
            return
        others_wait = bool(self._batch.waiting)
        self._batch.waiting.append(_Sequence(request))
        if math.isinf(self.end_s):
            self.end_s = now_s  # planned in `advance`, as others may arrive at the same moment
        elif self._stretch_steps > 1 and not others_wait:  # where others wait, the stretch ends when there is room
            self._shorten(now_s)

    def advance(self) -> list[ServedRequest]:
        """End the present stretch and plan the next one; returns the requests that ended with it."""
        now_s = self.end_s
        ended: list[ServedRequest] = []
        if self._batch.decoding:
            self._decode(now_s)
            for sequence, _ in self._batch.end_answers():
                self._note_end(sequence, now_s, ended)
        for sequence in self._batch.end_chunks():
            self._end_prompt(sequence, now_s, ended)
        self._log.served += ended
        self._plan(now_s)
        return ended

    def _decode(self, now_s: float) -> None:
        """Count the tokens and blocks of the stretch's steps."""
        batch = self._batch
        steps = self._stretch_steps
        batch.blocks.free += self._taken_ahead
        batch.decode(steps)
        if steps > 1:
            batch.blocks.make_room(0)  # drops the prefixes whose room was counted on
        self._log.add_gaps((now_s - self._start_s) / steps, batch.decoding * steps, now_s)

    def _end_prompt(self, sequence: _Sequence, now_s: float, ended: list[ServedRequest]) -> None:
        """Count the token that comes with the last one of the prompt; from now on the sequence decodes, or it ends."""
        self._share_prefix(sequence)
        sequence.generated += 1
        if sequence.first_s < 0.0:
            sequence.first_s = now_s
        else:
            self._log.add_gaps(now_s - sequence.last_s, 1.0, now_s)
        if sequence.generated < sequence.request.answer:
            self._batch.start_decoding(sequence, sequence.request.answer - sequence.generated)
            return
        self._batch.remove(sequence)
        self._note_end(sequence, now_s, ended)

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
            _give_blocks(sequence, blocks)

    def _share_partial_piece(self, sequence: _Sequence) -> bool:
        """Lengthen the last piece that a sequence found by what it computed of it; returns whether it is whole then."""
        if not sequence.prefix_pieces:
            return True
        number = sequence.prefix_pieces - 1
        name = sequence.request.prefix[number]
        blocks_before = sum(_piece_blocks(sequence.request, earlier) for earlier in range(number))
        found_blocks = sequence.shared_blocks - blocks_before
        own_blocks = _piece_blocks(sequence.request, number)
        cached_blocks = self._prefixes.blocks[name]
        if own_blocks <= found_blocks:
            return True
        if cached_blocks != found_blocks:
            return False
        self._prefixes.extend(name, own_blocks)
        _give_blocks(sequence, own_blocks - found_blocks)
        return True

    def _note_end(self, sequence: _Sequence, now_s: float, ended: list[ServedRequest]) -> None:
        """Add a sequence whose answer is whole to those that ended."""
        self._leave_prefix(sequence)
        ended.append(ServedRequest(sequence.request, sequence.admitted_s, sequence.first_s, now_s))

    def _note_preemption(self, sequence: _Sequence, decoded: bool) -> None:
        """Count a sequence that went back to the head of the queue at the begin of this stretch."""
        self._leave_prefix(sequence)
        sequence.takes_all_blocks = not self._batch.running
        if decoded:
            sequence.last_s = self._start_s
        self._log.preemptions += 1

    def _leave_prefix(self, sequence: _Sequence) -> None:
        """Note that a sequence has left the engine, or gone back to its queue, and uses no prefix any more."""
        if sequence.prefix_pieces:
            self._prefixes.leave(sequence.request.prefix[: sequence.prefix_pieces])
        sequence.prefix_pieces = 0
        sequence.shared_blocks = 0

    def _plan(self, now_s: float) -> None:
        """Decide what the next step takes, or the next stretch of steps in which nothing changes."""
        self._start_s = now_s
        self._stretch_steps = 0
        batch = self._batch
        if not batch.running and not batch.waiting:
            batch.chunks = []
            self.end_s = math.inf
            return
        preempted = batch.make_room_to_decode(1)
        self._taken_ahead = batch.blocks.need(batch.step, 1, batch.decoding)
        batch.blocks.free -= self._taken_ahead
        if batch.continue_prompts():
            preempted = True
        if not preempted:  # as in vLLM, which admits nobody in a step that sent one back
            batch.admit(self._admit_first)
        if not batch.decoding and not batch.chunks:
            # The only sequence that ran was sent back: it is admitted in the next step.
            batch.admit(self._admit_first)
        if batch.chunks or preempted:
            self._stretch_steps = 1
        else:
            self._stretch_steps = self._steps_until_change()
        self.end_s = now_s + self._seconds(self._stretch_steps)

    def _admit_first(self, sequence: _Sequence) -> Turn:
        """Admit the head of the queue if a place is free, and blocks for what the step computes of it."""
        if len(self._batch.running) >= self._limits.max_num_seqs:
            return Turn.WAITS
        match = _NO_MATCH if sequence.takes_all_blocks else self._prefixes.match(sequence.request)
        turn = self._admit_with(sequence, match)
        if turn is Turn.WAITS and match.pieces and not self._batch.running:
            # The last piece that it found has more blocks than it has use for, and no other sequence will free one.
            turn = self._admit_with(sequence, _NO_MATCH)
        return turn

    def _admit_with(self, sequence: _Sequence, match: _Match) -> Turn:
        """Admit the head of the queue with a beginning that is cached, if there are blocks for the rest."""
        request = sequence.request
        # The last token is always computed: the next one comes of it.
        cached = min(max(request.cached, match.blocks * BLOCK), sequence.tokens - 1)
        chunk = min(self._batch.budget, sequence.tokens - cached)
        matched_pieces = request.prefix[: match.pieces]
        self._prefixes.use(matched_pieces)  # before room is made, which would drop them else
        sequence.shared_blocks = match.blocks
        if not self._batch.take_blocks(sequence, cached + chunk):
            self._prefixes.leave(matched_pieces)
            sequence.shared_blocks = 0
            return Turn.WAITS
        sequence.prefix_pieces = match.pieces
        sequence.computed = cached
        if sequence.admitted_s < 0.0:  # else it was preempted, and is counted already
            sequence.admitted_s = self._start_s
            self._log.prompt_tokens += request.prompt
            self._log.hit_tokens += cached
        return Turn.ADMITTED

    def _steps_until_change(self) -> int:
        """Decode steps, the next one included, until a sequence ends or the blocks do."""
        batch = self._batch
        steps = batch.tokens_to_next_end()
        further = steps - 1  # the blocks of the next step are taken already
        most_blocks = (further // BLOCK + 1) * batch.decoding
        if batch.blocks.free >= most_blocks:
            return steps
        return 1 + batch.blocks.tokens_with_room(batch.step + 1, further, batch.decoding)

    def _seconds(self, steps: int) -> float:
        """Seconds of the next steps, in each of which every sequence has one token more of context."""
        cost = self._cost
        prompt_tokens = 0
        pairs = 0.0
        for sequence, chunk in self._batch.chunks:
            prompt_tokens += chunk
            pairs += chunk * (sequence.computed + chunk / 2.0)
        decoding = self._batch.decoding
        tokens = min(decoding + prompt_tokens, len(self._bases_s) - 1)
        first_s = self._bases_s[tokens] + cost.sequence_s * decoding + cost.kv_token_s * self._batch.context_tokens
        first_s += cost.prompt_token_s * prompt_tokens + cost.pair_s * pairs
        return steps * first_s + cost.kv_token_s * decoding * (steps * (steps - 1) // 2)

    def _shorten(self, now_s: float) -> None:
        """End the stretch with the step that is under way."""
        growth_s = self._cost.kv_token_s * self._batch.decoding  # of each step over the one before
        begun_steps = steps_in(now_s - self._start_s, self._seconds(1), growth_s)
        steps = max(1, math.ceil(begun_steps - _ROUNDING))
        if steps < self._stretch_steps:
            self._stretch_steps = steps
            self.end_s = self._start_s + self._seconds(steps)


def _give_blocks(sequence: _Sequence, blocks: int) -> None:
    """Give so many of a sequence's own blocks to the prefix cache."""
    sequence.blocks -= blocks
    sequence.shared_blocks += blocks


def _piece_blocks(request: PlayedRequest, number: int) -> int:
    """Blocks of one piece of the beginning of a request."""
    if not request.piece:
        return request.shared // BLOCK
    return min(request.piece, request.shared - number * request.piece) // BLOCK
