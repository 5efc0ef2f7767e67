"""One rank of a serving engine in all its states, step by step in simulated time.

What runs and what waits goes by the rules of `sizing/simulate/batch.py`; the cost of a step is that of `physics.py`.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from gpumon.demo.counters import Counters
from gpumon.demo.link import KvLink
from gpumon.demo.physics import Cost, EngineStep, ModelCopy
from gpumon.demo.sequence import Sequence
from gpumon.demo.speculation import DraftSettings
from gpumon.demo.traffic import ArrivalQueue, SimulatedRequest
from gpumon.sizing.simulate.batch import BLOCK, Batch, KvBlocks, Turn, blocks_of, steps_in

_MOST_STEPS = 256
"""Decode steps that are done at one go while nothing else happens."""


class SchedulerLimits(msgspec.Struct, frozen=True):
    """Settings of the scheduler."""

    max_num_seqs: int
    max_batched_tokens: int
    max_model_len: int
    kv_pool_blocks: int
    api_servers: int = 1
    most_waiting: int = 0
    """Requests beyond are turned away at the door; 0: none is."""
    max_loras: int = 0
    """LoRA adapters that one batch may use; 0: it serves none."""
    link_bytes_per_s: float = 0.0
    """Speed at which KV comes from another engine or the host's memory; 0: none comes."""
    offloads: bool = False
    """KV comes from the host's memory, to which the engine writes the KV of every prompt."""
    takes_all: bool = False
    """Requests that do not fit into the pool are not cut to it: the first one blocks the queue for good."""
    counts_aborts: bool = False
    """`request_success` counts requests whose client hung up. vLLM 0.32 was seen not to."""


class HostHold(msgspec.Struct, frozen=True):
    """A busy host: it keeps the engine from its next step for the last `held_s` of every `every_s` seconds."""

    every_s: float
    held_s: float

    def free_s(self, at_s: float) -> float:
        """When it may go on: at once, unless the host holds it."""
        if at_s >= self.from_s(at_s):
            return self._period_end_s(at_s)
        return at_s

    def from_s(self, at_s: float) -> float:
        """When the host's hold begins, of the period that a moment is in."""
        return self._period_end_s(at_s) - self.held_s

    def _period_end_s(self, at_s: float) -> float:
        """When the period of `every_s` that a moment is in ends, and the hold with it."""
        return (math.floor(at_s / self.every_s) + 1) * self.every_s


class _Deadline(NamedTuple):
    """When a client gives up; the first of a heap is the next one."""

    at_s: float
    number: int
    """Number of the request: it orders those of the same moment, as sequences have no order."""
    sequence: Sequence


class Meter(msgspec.Struct):
    """Work of a rank's GPUs since the start, summed up over them: the truth that figures are compared with."""

    busy_s: float = 0.0
    kernel_s: float = 0.0
    flops: float = 0.0
    weight_bytes: float = 0.0
    kv_bytes: float = 0.0
    dram_bytes: float = 0.0
    tokens: float = 0.0
    """Tokens through the layers: prefill, decode and recomputed ones."""
    steps: float = 0.0
    link_bytes: float = 0.0
    """KV that came over the link, or was written to the host's memory."""

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


class EngineModel:
    """One data-parallel rank. It has no clock: `advance` says what time it is."""

    def __init__(
        self,
        instance: ModelCopy,
        limits: SchedulerLimits,
        arrivals: ArrivalQueue,
        start_s: float = 0.0,
        held: HostHold | None = None,
        speculation: DraftSettings | None = None,
        hand_over: Callable[[SimulatedRequest], None] | None = None,
    ) -> None:
        """`held`: the host that holds it up at times; `hand_over` takes the requests that another engine decodes.

        With `hand_over` it only prefills.
        """
        self.instance = instance
        """May change between two calls of `advance`: clocks that are held down make it slower."""
        self.speculation = speculation
        """May change between two calls of `advance`, too: other text, another acceptance."""
        self.failing_share = 0.0
        """Share of the requests admitted from now on that end in an error."""
        self.refused_share = 0.0
        """Share of the requests that come from now on and are answered with 400."""
        self.corrupted_share = 0.0
        """Share of the requests admitted from now on that have a NaN in their logits."""
        self.rejected = 0
        """Requests that were turned away."""
        self.shown_running = 0
        """Requests that ran at the end of the last step, as its page has them: those that ended in it have left, and
        those that take their place come with the next one."""
        self.asleep = False
        """Its weights are not on its GPUs; nobody asks it anything."""
        self.link = KvLink(limits.link_bytes_per_s) if limits.link_bytes_per_s else None
        self._hand_over = hand_over
        self._held = held
        self._hung_s = math.inf
        """From when on it makes no step any more."""
        self._paused_s = -math.inf
        """Before when no step begins."""
        self.limits = limits
        self.counters = Counters(limits.max_model_len, limits.api_servers)
        self.blocks = KvBlocks(limits.kv_pool_blocks - 1)  # vLLM keeps one block as the null block
        self._batch: Batch[Sequence] = Batch(self.blocks, limits.max_batched_tokens, self._note_preemption)
        self._arrivals = arrivals
        self._meter = Meter()
        self._now_s = start_s
        self._without_slot = 0
        """Requests in the queue whose LoRA adapter had no slot when the scheduler looked last."""
        self._deadlines: list[_Deadline] = []
        """A heap: the client that gives up next is the first."""
        self._received = 0
        """Number of requests that were accepted."""
        self._due_failures = 0.0
        """Failures that are due, in requests: each admitted one adds `failing_share`, and one fails at each whole."""
        self._due_refusals = 0.0
        """The same of requests that are refused, of those that come."""
        self._due_corruptions = 0.0
        """The same of requests with a NaN in their logits."""
        self._fraction = 0.0
        """Part of a token that is left over from earlier steps: with speculation a step has no whole number of them."""
        self._in_step = False
        """A step is in progress: its chunks are planned, and not counted."""
        self._has_preempted = False
        """The step in progress began with a preemption: it admits nothing, and the one after it looks at the queue."""

    @property
    def awake(self) -> bool:
        """Its weights are on its GPUs."""
        return not self.asleep

    @property
    def running(self) -> int:
        """Requests that the scheduler has admitted."""
        return len(self._batch.running)

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._batch.waiting) + self._fetching

    @property
    def deferred(self) -> int:
        """Requests that wait for KV from elsewhere, or for a slot of their LoRA adapter."""
        return min(self.waiting, self._fetching + self._without_slot)

    @property
    def for_capacity(self) -> int:
        """Requests that wait for a slot or for blocks."""
        return self.waiting - self.deferred

    @property
    def host_hits(self) -> int:
        """Prompt tokens whose KV was in the host's memory."""
        if self.limits.offloads:
            return self.counters.link_hits
        return 0

    @property
    def peer_hits(self) -> int:
        """Prompt tokens whose KV came from another engine."""
        if self.limits.offloads:
            return 0
        return self.counters.link_hits

    @property
    def _fetching(self) -> int:
        """Requests whose KV is on its way."""
        if self.link:
            return len(self.link)
        return 0

    @property
    def running_adapters(self) -> tuple[str, ...]:
        """LoRA adapters of the requests that run, by name."""
        return _adapters_of(self._batch.running)

    @property
    def waiting_adapters(self) -> tuple[str, ...]:
        """LoRA adapters of the requests in the queue, by name."""
        return _adapters_of(self._batch.waiting)

    def advance(self, to_s: float) -> None:
        """Finish every step that ends by `to_s`; one that would end later stays in progress."""
        if to_s > self._hung_s:
            self._receive(to_s)
            return
        while True:
            if not self._in_step and not self._begin_step(to_s):
                return
            has_ended = self._prefill_step(to_s) if self._batch.chunks else self._decode_steps(to_s)
            if not has_ended:
                return

    def _begin_step(self, to_s: float) -> bool:
        """Plan the next step; False if none begins by `to_s`."""
        while True:
            free_s = self._free_s()
            if free_s > to_s:
                self._receive(to_s)
                return False
            self._now_s = max(self._now_s, free_s)
            self._receive(self._now_s)
            if self._batch.running or self._batch.waiting:
                self._schedule()
                if self._batch.chunks or self._batch.decoding:
                    self._in_step = True
                    return True
            # Nothing can run: nobody asks, or all that was asked waits for its KV.
            next_s = min(self._arrivals.next_s(), self._interruption_s())
            if next_s > to_s:
                return False
            self._now_s = max(self._now_s, next_s)

    def _free_s(self) -> float:
        """From when on it may make a step: now, unless its host or a pause keeps it from that."""
        free_s = max(self._now_s, self._paused_s)
        if self._held is None:
            return free_s
        return self._held.free_s(free_s)

    def _interruption_s(self) -> float:
        """When the next KV has come, or the next client gives up: the scheduler then looks anew."""
        fetched_s = self.link.next_s() if self.link else math.inf
        if self._deadlines:
            return min(fetched_s, self._deadlines[0].at_s)
        return fetched_s

    def hang(self, at_s: float) -> None:
        """Make no step any more from `at_s` on; requests still come in."""
        self._hung_s = at_s

    def pause(self, to_s: float) -> None:
        """Begin no step before `to_s`; requests still come in, and those that run wait."""
        self._paused_s = to_s

    def meter(self, at_s: float) -> Meter:
        """The work done by `at_s`, which is no earlier than the last `advance`: a running step counts in part."""
        total = msgspec.structs.replace(self._meter)
        if self._in_step:
            step = self._planned_step()
            cost = self._step_cost(step)
            spent_s = min(at_s, self._hung_s) - self._now_s
            share = min(1.0, max(0.0, spent_s / cost.seconds))
            total.add(cost, step.tokens, share)
        return total

    def _receive(self, by_s: float) -> None:
        """Take in what has come by then: requests, KV from elsewhere, and clients that give up."""
        most_waiting = self.limits.most_waiting or math.inf  # 0: none is turned away
        while self._arrivals.next_s() <= by_s:
            request = self._arrivals.take()
            self._due_refusals += self.refused_share
            if self._due_refusals >= 1.0:
                self._due_refusals -= 1.0
                self.counters.refused += 1
            elif len(self._batch.waiting) < most_waiting:
                self._accept(request)
            else:
                self.rejected += 1
        while self.link and self.link.next_s() <= by_s:
            self._take_fetched(*self.link.take())
        while self._deadlines and self._deadlines[0].at_s <= by_s:
            deadline = heapq.heappop(self._deadlines)
            self._abort(deadline.sequence, by_s)

    def _accept(self, request: SimulatedRequest) -> None:
        """Put a request into the queue, with the moment at which its client gives up."""
        sequence = Sequence(self._fit_request(request))
        self._batch.waiting.append(sequence)
        self._received += 1
        if math.isfinite(request.patience_s):
            deadline_s = request.arrival_s + request.patience_s
            heapq.heappush(self._deadlines, _Deadline(deadline_s, self._received, sequence))

    def _fit_request(self, request: SimulatedRequest) -> SimulatedRequest:
        """The request, cut to what the model's context and the pool can hold at all."""
        if self.limits.takes_all:
            return request
        most_tokens = min(self.limits.max_model_len, self.blocks.total * BLOCK)
        prompt_tokens = min(request.prompt_tokens, most_tokens - 1)
        output_tokens = min(request.output_tokens, most_tokens - prompt_tokens)
        if prompt_tokens == request.prompt_tokens and output_tokens == request.output_tokens:
            return request
        return msgspec.structs.replace(
            request,
            prompt_tokens=prompt_tokens,
            # The last token of a prompt is never taken from the cache: its output is the first token of the answer.
            cached_tokens=min(request.cached_tokens, prompt_tokens - 1),
            output_tokens=output_tokens,
            finish="length",
        )

    def _take_fetched(self, sequence: Sequence, seconds: float) -> None:
        """The KV of a request has come: it is next to be admitted."""
        size_bytes = sequence.fetched * self.instance.shape.kv_bytes
        self._meter.link_bytes += size_bytes
        self.counters.fetches.note(size_bytes)
        self.counters.fetch_s.note(seconds)
        self._batch.waiting.appendleft(sequence)

    # Scheduling: decoding sequences first, then chunks of the admitted prompts, then new ones.

    def _schedule(self) -> None:
        """Plan the next step: preempt what finds no block, admit what finds one."""
        batch = self._batch
        self._has_preempted = batch.make_room_to_decode(self._tokens_in(1))
        batch.continue_prompts()
        self._without_slot = 0
        if not self._has_preempted:
            active_adapters = set(self.running_adapters) if self.limits.max_loras and batch.waiting else set()
            self._without_slot = batch.admit(lambda sequence: self._judge_first(sequence, active_adapters))

    def _judge_first(self, sequence: Sequence, active_adapters: set[str]) -> Turn:
        """Outcome for the head of the queue; `active_adapters` are those of the batch, to which it adds its own.

        One whose adapter has no slot lets others go before it.
        """
        adapter = sequence.request.adapter
        lacks_slot = adapter not in active_adapters and len(active_adapters) >= self.limits.max_loras
        if adapter and lacks_slot:
            return Turn.SKIPPED
        # KV that another engine computed comes over the link before its request is admitted.
        if sequence.fetched and not sequence.blocks and not sequence.preemptions:
            return Turn.LEFT if self._fetch(sequence) else Turn.WAITS
        if not self._admit(sequence):
            return Turn.WAITS
        if adapter:
            active_adapters.add(adapter)
        return Turn.ADMITTED

    def _fetch(self, sequence: Sequence) -> bool:
        """Ask for the KV of a request, into blocks of its own; False if there is no room for it."""
        if self.link is None or not self._reserve(sequence):
            return False
        self.counters.link_queries += sequence.tokens - sequence.cached
        self.counters.link_hits += sequence.fetched
        self.link.begin(sequence, sequence.fetched * self.instance.shape.kv_bytes, self._now_s)
        return True

    def _reserve(self, sequence: Sequence) -> bool:
        """Take the blocks of a request, if the pool holds them with a block to grow for each that runs."""
        if blocks_of(sequence.tokens) > self.blocks.free - len(self._batch.running):
            return False
        return self._batch.take_blocks(sequence, sequence.tokens)

    def _admit(self, sequence: Sequence) -> bool:
        """Count a request in; returns False if no slot is free, or the pool does not hold its whole prompt."""
        if len(self._batch.running) >= self.limits.max_num_seqs:
            return False
        if not sequence.blocks and not self._reserve(sequence):
            return False
        if not sequence.preemptions:  # one that comes back was counted when it came first
            sequence.scheduled_s = self._now_s
            self.counters.cache_queries += sequence.tokens
            self.counters.cache_hits += sequence.cached
            self._due_failures += self.failing_share
            sequence.fails = self._due_failures >= 1.0
            if sequence.fails:
                self._due_failures -= 1.0
            self._due_corruptions += self.corrupted_share
            sequence.corrupted = self._due_corruptions >= 1.0
            if sequence.corrupted:
                self._due_corruptions -= 1.0
        return True

    def _note_preemption(self, sequence: Sequence, decoded: bool) -> None:
        """Count a request that was thrown out of the pool, and computes everything anew."""
        if decoded:
            sequence.last_token_s = self._now_s
        if not sequence.generated:
            # After its first token they are counted already (`_token_after_prefill`), and stay as they were then.
            sequence.cached = 0
            sequence.fetched = 0
        sequence.preemptions += 1
        self.counters.preemptions += 1

    def _abort(self, sequence: Sequence, at_s: float) -> None:
        """The client has hung up: the request goes, wherever it is."""
        if sequence.ended:
            return
        sequence.ended = True
        if sequence in self._batch.running:
            self._batch.remove(sequence)
        else:
            if self.link is None or not self.link.drop(sequence):
                self._batch.waiting.remove(sequence)
            self._batch.release(sequence)
        self.counters.answered += 1
        if self.limits.counts_aborts:
            self.counters.aborted += 1
            self.counters.request_prompt_tokens.note(sequence.request.prompt_tokens)
            self.counters.request_generation_tokens.note(sequence.generated)
            self.counters.e2e.note(at_s - sequence.request.arrival_s)

    # Steps.

    def _planned_step(self) -> EngineStep:
        """The work of the step that is planned: prefill chunks beside what decodes."""
        chunks = self._batch.chunks
        decoding = self._batch.decoding
        step = EngineStep(decoding, float(self._batch.context_tokens + decoding), chunks=len(chunks))
        if self.speculation is not None:
            step.verified = 1 + self.speculation.draft_tokens
        for sequence, tokens in chunks:
            step.chunk_tokens += tokens
            step.chunk_pairs += tokens * (sequence.computed + tokens / 2)
            step.chunk_context_tokens += sequence.computed + tokens
            step.logits += sequence.computed + tokens == sequence.tokens
        return step

    def _step_cost(self, step: EngineStep) -> Cost:
        """Cost of a step, with the time that drafting takes."""
        cost = self.instance.cost(step)
        if self.speculation is not None and step.decoding:
            cost.overhead_s += self.speculation.overhead_s
        return cost

    def _tokens_in(self, steps: int) -> int:
        """Whole tokens that each decoding sequence gets out of so many steps."""
        if self.speculation is None:
            return steps
        return int(self._fraction + steps * self.speculation.mean_tokens)

    def _prefill_step(self, to_s: float) -> bool:
        """One step with prefill chunks in it; False if it does not end by `to_s`."""
        step = self._planned_step()
        cost = self._step_cost(step)
        if self._now_s + cost.seconds > to_s:
            return False
        decoding = self._batch.decoding
        computed_before = self.counters.computed_tokens
        gain = self._tokens_in(1)
        self._commit(cost, step, 1, cost.seconds)
        prefilled = self._batch.end_chunks()
        for sequence in prefilled:
            self._token_after_prefill(sequence)
        if decoding or prefilled:
            # vLLM counts the tokens of a prompt in the step that gives the first token of its answer.
            prompt_tokens = self.counters.computed_tokens - computed_before
            tokens_out = decoding * gain + len(prefilled) + prompt_tokens
            self.counters.observe_steps(decoding + len(prefilled), tokens_out)
        self._finish_ended()
        return True

    def _decode_steps(self, to_s: float) -> bool:
        """As many pure decode steps as end by `to_s` and before anything changes the batch; False if none does."""
        step = self._planned_step()
        cost = self._step_cost(step)
        if self._now_s + cost.seconds > to_s:
            return False
        steps = self._steps_at_one_go(cost, to_s)
        gain = self._tokens_in(steps)
        if gain > 1:  # the mean of all steps: the context grows from the first to the last
            step.context_tokens += self._batch.decoding * (gain - 1) / 2
            cost = self._step_cost(step)
        self._commit(cost, step, steps, steps * cost.seconds)
        decoding = self._batch.decoding
        self.counters.observe_steps(decoding, decoding * gain / steps, steps)
        self._finish_ended()
        return True

    def _steps_at_one_go(self, cost: Cost, to_s: float) -> int:
        """Decode steps until something changes the batch, at least one."""
        growth_s = self.instance.growth_s(self._batch.decoding, cost.memory_bound)
        mean_tokens = 1.0
        if self.speculation is not None:
            mean_tokens = self.speculation.mean_tokens
            growth_s *= mean_tokens
        until_s = min(to_s, self._interruption_s())
        if self._held is not None:
            until_s = min(until_s, self._held.from_s(self._now_s))
        in_time = int(_steps_within(until_s - self._now_s, cost.seconds, growth_s))
        to_end = math.ceil(self._batch.tokens_to_next_end() / mean_tokens)  # until the first answer ends
        steps = min(_MOST_STEPS, to_end, in_time)
        if self._has_preempted:
            steps = 1
        # An arrival behind others changes nothing; one that is alone is admitted after its step.
        if not self._batch.waiting:
            arrival_s = self._arrivals.next_s() - self._now_s
            steps = min(steps, math.ceil(_steps_within(arrival_s, cost.seconds, growth_s)))
        steps = max(1, steps)
        while steps > 1 and not self.blocks.holds(self._batch.step, self._tokens_in(steps), self._batch.decoding):
            steps = max(1, steps // 2)
        return steps

    def _commit(self, cost: Cost, step: EngineStep, steps: int, seconds: float) -> None:
        """Count `steps` steps of mean `cost` as done: every decoding sequence has as many tokens more, or more."""
        self._meter.add(cost, step.tokens, steps)
        self._now_s += seconds
        self._in_step = False
        decoding = self._batch.decoding
        if not decoding:
            return
        gain = self._tokens_in(steps)
        if self.speculation is not None:
            self._fraction += steps * self.speculation.mean_tokens - gain
            self.counters.count_drafts(self.speculation, steps * decoding, (gain - steps) * decoding)
        self._batch.decode(gain)
        self.counters.generation_tokens += gain * decoding
        self.counters.itl.observe(cost.seconds, steps * decoding)

    def _token_after_prefill(self, sequence: Sequence) -> None:
        """The prompt is computed: its next token comes out, and it joins the decoding sequences."""
        request = sequence.request
        counters = self.counters
        sequence.generated += 1
        counters.generation_tokens += 1
        if sequence.generated == 1:
            sequence.first_token_s = self._now_s
            counters.prompt_tokens += request.prompt_tokens
            counters.cached_tokens += sequence.cached
            counters.fetched_tokens += sequence.fetched
            counters.ttft.note(self._now_s - request.arrival_s)
            self._offload(sequence)
        else:
            counters.itl.note(self._now_s - sequence.last_token_s)
        self._batch.start_decoding(sequence, self._answer_tokens(sequence) - sequence.generated)

    def _answer_tokens(self, sequence: Sequence) -> int:
        """Tokens of its answer that this engine gives; none after the first where it fails or hands over."""
        if sequence.fails or self._hand_over is not None:
            return sequence.generated
        return sequence.request.output_tokens

    def _offload(self, sequence: Sequence) -> None:
        """Write the KV of a prompt to the host's memory, where that is set up."""
        if self.limits.offloads:
            computed = sequence.request.prompt_tokens - sequence.cached - sequence.fetched
            size_bytes = computed * self.instance.shape.kv_bytes
            self.counters.stored_bytes += size_bytes
            self._meter.link_bytes += size_bytes

    def _finish_ended(self) -> None:
        """Take out the sequences whose last token has come."""
        for sequence, surplus in self._batch.end_answers():
            # What speculation gave beyond the end of the answer was never sent.
            self.counters.generation_tokens -= surplus
            sequence.generated -= surplus
            sequence.ended = True
            self._count_finished(sequence)
            self._arrivals.answered(self._now_s)
            if self._hand_over is not None:
                self._hand_over(self._as_handed_over(sequence.request))
        self.shown_running = len(self._batch.running)

    def _as_handed_over(self, request: SimulatedRequest) -> SimulatedRequest:
        """The request as it reaches the engine that decodes it: all but its last token's KV is here."""
        return msgspec.structs.replace(
            request, arrival_s=self._now_s, cached_tokens=0, fetched_tokens=request.prompt_tokens - 1
        )

    def _count_finished(self, sequence: Sequence) -> None:
        """Count a request that has ended, and its latencies."""
        request = sequence.request
        counters = self.counters
        now_s = self._now_s
        output_tokens = sequence.generated
        counters.corrupted += sequence.corrupted
        if sequence.fails:
            counters.failed += 1
        elif request.finish == "stop" and self._hand_over is None:
            counters.stopped += 1
            counters.answered += 1
        else:
            # Also those that are handed over: vLLM gives them one token, and the reason `length`.
            counters.cut += 1
            counters.answered += 1
        counters.request_prompt_tokens.note(request.prompt_tokens)
        counters.request_generation_tokens.note(output_tokens)
        counters.request_max_tokens.note(output_tokens)
        counters.request_n.note(1)
        counters.request_max_tokens_param.note(self.limits.max_model_len - request.prompt_tokens)
        counters.request_computed_tokens.note(request.prompt_tokens - sequence.cached - sequence.fetched)
        counters.request_preemptions.note(sequence.preemptions)
        decode_s = now_s - sequence.first_token_s
        counters.e2e.note(now_s - request.arrival_s)
        counters.queue.note(sequence.scheduled_s - request.arrival_s)
        counters.inference.note(now_s - sequence.scheduled_s)
        counters.prefill.note(sequence.first_token_s - sequence.scheduled_s)
        counters.decode.note(decode_s)
        if output_tokens > 1:
            counters.time_per_token.note(decode_s / (output_tokens - 1))


def _adapters_of(sequences: Iterable[Sequence]) -> tuple[str, ...]:
    """LoRA adapters that the requests name, by name."""
    adapters = {sequence.request.adapter for sequence in sequences}
    return tuple(sorted(adapters - {""}))


def _steps_within(seconds: float, first_s: float, growth_s: float) -> float:
    """Steps that fit in `seconds` when the first lasts `first_s` and each next one `growth_s` longer."""
    if seconds <= 0.0:
        return 0.0
    if math.isinf(seconds):
        return _MOST_STEPS
    return steps_in(seconds, first_s, growth_s)
