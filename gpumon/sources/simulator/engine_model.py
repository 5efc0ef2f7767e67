"""One rank of a serving engine: admission, chunked prefill, decode, preemption, step by step in simulated time."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections import deque
from itertools import accumulate

import msgspec

from gpumon.sources.simulator.physics import Cost, Instance, Step
from gpumon.sources.simulator.traffic import Arrivals, Request

MOST_STEPS = 256
"""Decode steps that are done at one go while nothing else happens."""

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


class Histogram:
    """Counts of observations by upper bound, with their sum."""

    __slots__ = ("bounds", "count", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.count = 0
        self.total = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Add `times` observations of `value`."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.count += times
        self.total += value * times

    def cumulative(self) -> list[float]:
        """Observations at or below each bound; the last is +Inf."""
        return [float(n) for n in accumulate(self.counts)]


_ITERATION = (1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0)
_TTFT = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_ITL = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
_REQUEST = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
_FEW = (1.0, 2.0, 5.0, 10.0, 20.0)
_PREEMPTIONS = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)


def _ladder(most: int) -> tuple[float, ...]:
    """1, 2, 5, 10, ... up to `most`: vLLM's bounds for token counts."""
    steps = (mantissa * 10.0**exponent for exponent in range(7) for mantissa in (1, 2, 5))
    return tuple(step for step in steps if step <= most)


class Counters:
    """The counters and histograms of one rank. `api_servers` processes share its output (data parallel: several)."""

    def __init__(self, max_model_len: int, api_servers: int) -> None:
        self._api_servers = api_servers
        tokens = _ladder(max_model_len)
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.generation_tokens = 0
        self.preemptions = 0
        self.cache_queries = 0
        self.cache_hits = 0
        self.stopped = self.cut = 0
        """Requests that ended by themselves, and at their longest answer."""
        self.request_prompt_tokens = Histogram(tokens)
        self.request_generation_tokens = Histogram(tokens)
        self.iteration_tokens = Histogram(_ITERATION)
        self.request_max_tokens = Histogram(tokens)
        self.request_n = Histogram(_FEW)
        self.request_max_tokens_param = Histogram(tokens)
        self.ttft = Histogram(_TTFT)
        self.itl = Histogram(_ITL)
        self.time_per_token = Histogram(_ITL)
        self.e2e = Histogram(_REQUEST)
        self.queue = Histogram(_REQUEST)
        self.inference = Histogram(_REQUEST)
        self.prefill = Histogram(_REQUEST)
        self.decode = Histogram(_REQUEST)
        self.request_preemptions = Histogram(_PREEMPTIONS)
        self.request_computed_tokens = Histogram(tokens)

    @property
    def computed_tokens(self) -> int:
        """Prompt tokens that were not in the prefix cache."""
        return self.prompt_tokens - self.cached_tokens

    def step_output(self, sequences: int, tokens: float, steps: int = 1) -> None:
        """`steps` steps gave `tokens` tokens each to `sequences` sequences.

        Each API server observes its own share: with two of them a step counts twice as soon as both have a sequence.
        """
        servers = min(self._api_servers, sequences)
        for _ in range(servers):
            self.iteration_tokens.observe(tokens / servers, steps)


class Limits(msgspec.Struct, frozen=True):
    """Settings of the scheduler."""

    max_num_seqs: int
    max_batched_tokens: int
    max_model_len: int
    kv_pool_blocks: int
    api_servers: int = 1
    most_waiting: int = 0
    """Requests beyond are turned away at the door; 0: none is."""


class Held(msgspec.Struct, frozen=True):
    """The host keeps the engine from its next step for the last `held_s` of every `every_s` seconds."""

    every_s: float
    held_s: float

    def free_s(self, at_s: float) -> float:
        """When it may go on: at once, unless the host holds it."""
        end_s = (math.floor(at_s / self.every_s) + 1) * self.every_s
        return end_s if at_s >= end_s - self.held_s else at_s

    def from_s(self, at_s: float) -> float:
        """When the host holds it next, seen from a moment at which it is free."""
        return (math.floor(at_s / self.every_s) + 1) * self.every_s - self.held_s


class Meter(msgspec.Struct):
    """What the rank's GPUs have done since the start, all of them together: the truth."""

    busy_s: float = 0.0
    kernel_s: float = 0.0
    flops: float = 0.0
    weight_bytes: float = 0.0
    kv_bytes: float = 0.0
    dram_bytes: float = 0.0
    tokens: float = 0.0
    """Tokens through the layers: prefill, decode and recomputed ones."""
    steps: float = 0.0

    def add(self, cost: Cost, tokens: float, times: float) -> None:
        """Add `times` steps that cost `cost` each."""
        self.busy_s += times * cost.seconds
        self.kernel_s += times * cost.kernel_s
        self.flops += times * cost.flops
        self.weight_bytes += times * cost.weight_bytes
        self.kv_bytes += times * cost.kv_bytes
        self.dram_bytes += times * cost.dram_bytes
        self.tokens += times * tokens
        self.steps += times


class Sequence:
    """A request on its way through the engine."""

    __slots__ = (
        *("cached", "computed", "decoding", "ends", "first_token_s", "generated", "joined", "last_token_s"),
        *("preemptions", "request", "scheduled_s", "target"),
    )

    def __init__(self, request: Request) -> None:
        self.request = request
        self.cached = request.cached_tokens
        self.target = request.prompt_tokens
        """Tokens whose KV must be there before the next token comes out."""
        self.computed = self.cached
        self.generated = 0
        """Tokens given out when it joined the decoding ones; later ones follow from the decode step."""
        self.joined = 0
        self.ends = 0
        self.decoding = False
        self.scheduled_s = math.nan
        self.first_token_s = math.nan
        self.last_token_s = math.nan
        self.preemptions = 0

    def held(self, ordinal: int) -> int:
        """Tokens in the KV pool after decode step `ordinal`, once it decodes."""
        return self.target + ordinal - self.joined


class EngineModel:
    """One data-parallel rank. It has no clock: `advance` says what time it is."""

    def __init__(
        self,
        instance: Instance,
        limits: Limits,
        arrivals: Arrivals,
        start_s: float = 0.0,
        held: Held | None = None,
    ) -> None:
        self.instance = instance
        """May change between two calls of `advance`: clocks that are held down make it slower."""
        self.rejected = 0
        """Requests that were turned away."""
        self.asleep = False
        """Its weights are not on its GPUs; nobody asks it anything."""
        self._held = held
        self._hung_s = math.inf
        self.limits = limits
        self.counters = Counters(limits.max_model_len, limits.api_servers)
        self.blocks = KvBlocks(limits.kv_pool_blocks)
        self._arrivals = arrivals
        self._meter = Meter()
        self._now_s = start_s
        self._waiting: deque[Sequence] = deque()
        self._running: dict[Sequence, None] = {}
        self._prefilling: dict[Sequence, None] = {}
        self._ends: list[tuple[int, int, Sequence]] = []
        self._ends_made = 0
        self._decoding = 0
        self._context = 0
        """Tokens held by the decoding sequences."""
        self._ordinal = 0
        """Decode steps done."""
        self._plan: list[tuple[Sequence, int]] | None = None
        """Chunks of the step in progress; None between steps."""
        self._most_steps = MOST_STEPS
        """1 after a preemption: the next step may take the queue up again."""

    @property
    def awake(self) -> bool:
        """Its weights are on its GPUs."""
        return not self.asleep

    @property
    def running(self) -> int:
        """Requests that the scheduler has admitted."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    def advance(self, to_s: float) -> None:
        """Finish every step that ends by `to_s`; the one in progress then stays in progress."""
        if to_s > self._hung_s:
            self._receive(to_s)
            return
        while True:
            if self._plan is None:
                if self._held is not None and (free_s := self._held.free_s(self._now_s)) > self._now_s:
                    if free_s > to_s:
                        return
                    self._now_s = free_s
                self._receive(self._now_s)
                if not self._running and not self._waiting:
                    if self._arrivals.next_s() > to_s:
                        return
                    self._now_s = self._arrivals.next_s()
                    continue
                self._plan = self._schedule()
            if not (self._prefill_step(self._plan, to_s) if self._plan else self._decode_steps(to_s)):
                return

    def hang(self, at_s: float) -> None:
        """Make no step any more from `at_s` on; requests still come in."""
        self._hung_s = at_s

    def meter(self, at_s: float) -> Meter:
        """What was done by `at_s`, which is no earlier than the last `advance`: a running step counts in part."""
        total = msgspec.structs.replace(self._meter)
        if self._plan is not None:
            step = self._step(self._plan)
            cost = self.instance.cost(step)
            share = min(1.0, max(0.0, (min(at_s, self._hung_s) - self._now_s) / cost.seconds))
            total.add(cost, step.decoding + step.chunk_tokens, share)
        return total

    def _receive(self, by_s: float) -> None:
        most = self.limits.most_waiting or math.inf
        while self._arrivals.next_s() <= by_s:
            request = self._arrivals.take()
            if len(self._waiting) < most:
                self._waiting.append(Sequence(self._fitted(request)))
            else:
                self.rejected += 1

    def _fitted(self, request: Request) -> Request:
        """The request, cut to what the model's context and the pool can hold at all."""
        most = min(self.limits.max_model_len, (self.blocks.total - 1) * 16)
        prompt = min(request.prompt_tokens, most - 1)
        output = min(request.output_tokens, most - prompt)
        if (prompt, output) == (request.prompt_tokens, request.output_tokens):
            return request
        cached = min(request.cached_tokens, prompt - 1)
        return Request(request.arrival_s, prompt, cached, output, "length")

    # Scheduling: decoding sequences first, then chunks of the admitted prompts, then new ones.

    def _schedule(self) -> list[tuple[Sequence, int]]:
        self._most_steps = MOST_STEPS
        while self.blocks.need(self._ordinal, 1, self._decoding) > self.blocks.free:
            self._preempt()
            self._most_steps = 1
        budget = self.limits.max_batched_tokens - self._decoding
        chunks: list[tuple[Sequence, int]] = []
        for sequence in self._prefilling:
            budget = self._chunk(sequence, budget, chunks)
        while self._waiting and budget > 0 and self._most_steps > 1 and self._admit(self._waiting[0]):
            budget = self._chunk(self._waiting.popleft(), budget, chunks)
        return chunks

    @staticmethod
    def _chunk(sequence: Sequence, budget: int, chunks: list[tuple[Sequence, int]]) -> int:
        tokens = max(0, min(sequence.target - sequence.computed, budget))
        if tokens:
            chunks.append((sequence, tokens))
        return budget - tokens

    def _admit(self, sequence: Sequence) -> bool:
        """Take a request in if a slot is free and the pool holds its whole prompt, with a block to grow for each."""
        blocks = blocks_of(sequence.target)
        room = self.blocks.free - len(self._running)
        if blocks > room or len(self._running) >= self.limits.max_num_seqs:
            return False
        self.blocks.free -= blocks
        self._running[sequence] = self._prefilling[sequence] = None
        if not sequence.preemptions:
            sequence.scheduled_s = self._now_s
            self.counters.cache_queries += sequence.target
            self.counters.cache_hits += sequence.cached
        return True

    def _preempt(self) -> None:
        """Throw the newest request out of the pool; it goes to the head of the queue and computes everything anew."""
        sequence, _ = self._running.popitem()
        if sequence.decoding:
            held = sequence.held(self._ordinal)
            self._drop(sequence, held)
            sequence.generated += self._ordinal - sequence.joined
            sequence.last_token_s = self._now_s
            self._ends = [entry for entry in self._ends if entry[2] is not sequence]
            heapq.heapify(self._ends)
            sequence.target = sequence.request.prompt_tokens + sequence.generated
        else:
            self.blocks.free += blocks_of(sequence.target)
            del self._prefilling[sequence]
        if not sequence.generated:
            sequence.cached = 0
        sequence.computed = 0
        sequence.preemptions += 1
        self.counters.preemptions += 1
        self._waiting.appendleft(sequence)

    def _drop(self, sequence: Sequence, held: int) -> None:
        """Take a decoding sequence that holds `held` tokens out of the batch."""
        self.blocks.leave(held, self._ordinal)
        self.blocks.free += blocks_of(held)
        self._context -= held
        self._decoding -= 1
        sequence.decoding = False

    # Steps.

    def _step(self, chunks: list[tuple[Sequence, int]]) -> Step:
        step = Step(self._decoding, float(self._context + self._decoding), chunks=len(chunks))
        for sequence, tokens in chunks:
            step.chunk_tokens += tokens
            step.chunk_pairs += tokens * (sequence.computed + tokens / 2)
            step.chunk_context_tokens += sequence.computed + tokens
            step.logits += sequence.computed + tokens == sequence.target
        return step

    def _prefill_step(self, chunks: list[tuple[Sequence, int]], to_s: float) -> bool:
        """One step with prefill chunks in it; False if it does not end by `to_s`."""
        step = self._step(chunks)
        cost = self.instance.cost(step)
        if self._now_s + cost.seconds > to_s:
            return False
        decoding, computed_before = self._decoding, self.counters.computed_tokens
        self._commit(cost, step, 1, cost.seconds)
        ended = [sequence for sequence, tokens in chunks if self._computed(sequence, tokens)]
        for sequence in ended:
            self._token_after_prefill(sequence)
        if decoding or ended:
            computed = self.counters.computed_tokens - computed_before
            self.counters.step_output(decoding + len(ended), decoding + len(ended) + computed)
        self._finish_ended()
        return True

    @staticmethod
    def _computed(sequence: Sequence, tokens: int) -> bool:
        sequence.computed += tokens
        return sequence.computed == sequence.target

    def _decode_steps(self, to_s: float) -> bool:
        """As many pure decode steps as end by `to_s` and before anything changes the batch; False if none does."""
        step = self._step([])
        cost = self.instance.cost(step)
        if self._now_s + cost.seconds > to_s:
            return False
        growth_s = self.instance.growth_s(self._decoding, cost.memory_bound)
        until_s = to_s if self._held is None else min(to_s, self._held.from_s(self._now_s))
        in_time = int(_steps_in(until_s - self._now_s, cost.seconds, growth_s))
        steps = min(self._most_steps, self._ends[0][0] - self._ordinal, in_time)
        if not self._waiting:
            steps = min(steps, math.ceil(_steps_in(self._arrivals.next_s() - self._now_s, cost.seconds, growth_s)))
        steps = max(1, steps)
        while self.blocks.need(self._ordinal, steps, self._decoding) > self.blocks.free:
            steps = max(1, steps // 2)
        if steps > 1:
            step.context_tokens += self._decoding * (steps - 1) / 2
            cost = self.instance.cost(step)
        self._commit(cost, step, steps, steps * cost.seconds)
        self.counters.step_output(self._decoding, self._decoding, steps)
        self._finish_ended()
        return True

    def _commit(self, cost: Cost, step: Step, steps: int, seconds: float) -> None:
        """`steps` steps of mean `cost` are done: every decoding sequence has as many tokens more."""
        self._meter.add(cost, step.decoding + step.chunk_tokens, steps)
        self._now_s += seconds
        self._plan = None
        if self._decoding:
            self.blocks.free -= self.blocks.need(self._ordinal, steps, self._decoding)
            self._ordinal += steps
            self._context += steps * self._decoding
            self.counters.generation_tokens += steps * self._decoding
            self.counters.itl.observe(cost.seconds, steps * self._decoding)

    def _token_after_prefill(self, sequence: Sequence) -> None:
        """The prompt is computed: its next token comes out, and it joins the decoding sequences."""
        del self._prefilling[sequence]
        request, counters = sequence.request, self.counters
        sequence.generated += 1
        counters.generation_tokens += 1
        if sequence.generated == 1:
            sequence.first_token_s = self._now_s
            counters.prompt_tokens += request.prompt_tokens
            counters.cached_tokens += sequence.cached
            counters.ttft.observe(self._now_s - request.arrival_s)
        else:
            counters.itl.observe(self._now_s - sequence.last_token_s)
        sequence.joined = self._ordinal
        sequence.decoding = True
        sequence.ends = self._ordinal + request.output_tokens - sequence.generated
        self._ends_made += 1
        heapq.heappush(self._ends, (sequence.ends, self._ends_made, sequence))
        self.blocks.join(sequence.target, self._ordinal)
        self._decoding += 1
        self._context += sequence.target

    def _finish_ended(self) -> None:
        while self._ends and self._ends[0][0] <= self._ordinal:
            sequence = heapq.heappop(self._ends)[2]
            self._drop(sequence, sequence.held(self._ordinal))
            del self._running[sequence]
            self._count_finished(sequence)

    def _count_finished(self, sequence: Sequence) -> None:
        request, counters, now_s = sequence.request, self.counters, self._now_s
        if request.finish == "stop":
            counters.stopped += 1
        else:
            counters.cut += 1
        counters.request_prompt_tokens.observe(request.prompt_tokens)
        counters.request_generation_tokens.observe(request.output_tokens)
        counters.request_max_tokens.observe(request.output_tokens)
        counters.request_n.observe(1)
        counters.request_max_tokens_param.observe(self.limits.max_model_len - request.prompt_tokens)
        counters.request_computed_tokens.observe(request.prompt_tokens - sequence.cached)
        counters.request_preemptions.observe(sequence.preemptions)
        decode_s = now_s - sequence.first_token_s
        counters.e2e.observe(now_s - request.arrival_s)
        counters.queue.observe(sequence.scheduled_s - request.arrival_s)
        counters.inference.observe(now_s - sequence.scheduled_s)
        counters.prefill.observe(sequence.first_token_s - sequence.scheduled_s)
        counters.decode.observe(decode_s)
        if request.output_tokens > 1:
            counters.time_per_token.observe(decode_s / (request.output_tokens - 1))


def _steps_in(seconds: float, first_s: float, growth_s: float) -> float:
    """Steps that fit in `seconds` when the first lasts `first_s` and each next one `growth_s` longer."""
    if math.isinf(seconds) or seconds <= 0.0:
        return MOST_STEPS if seconds > 0.0 else 0.0
    linear = first_s - growth_s / 2
    if growth_s < 1e-12:
        return seconds / linear
    return (math.sqrt(linear * linear + 2 * growth_s * seconds) - linear) / growth_s
