"""The rules of the scheduler once more, slowly: one step after another, every block counted anew. No prefix cache."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from gpumon.sizing.simulate.batch import BLOCK
from gpumon.sizing.simulate.cost import StepTime
from gpumon.sizing.simulate.requests import PlayedRequest
from gpumon.sizing.simulate.scheduler import EngineLimits


@dataclass
class Job:
    request: PlayedRequest
    todo: int
    computed: int = 0
    made: int = 0
    first_s: float = -1.0

    @property
    def decodes(self) -> bool:
        return self.computed >= self.todo


def blocks(tokens: int) -> int:
    return (tokens + BLOCK - 1) // BLOCK


def served(
    requests: Sequence[PlayedRequest], cost: StepTime, limits: EngineLimits
) -> tuple[dict[float, tuple[float, float]], int]:
    """Arrival -> first token and end, and the preemptions."""
    coming = deque(requests)
    waiting: deque[Job] = deque()
    running: list[Job] = []
    done: dict[float, tuple[float, float]] = {}
    now_s = 0.0
    preemptions = 0
    while coming or waiting or running:
        if not waiting and not running:
            now_s = max(now_s, coming[0].arrival_s)
        while coming and coming[0].arrival_s <= now_s:
            waiting.append(Job(coming[0], coming[0].prompt))
            coming.popleft()

        def free(taken: Sequence[int]) -> int:
            return limits.kv_blocks - sum(taken)

        before = preemptions
        # Decoding sequences first: each takes the block of its next token.
        while True:
            need = [blocks(job.computed + (1 if job.decodes else 0)) for job in running]
            if free(need) >= 0:
                break
            victim = running.pop()
            victim.todo = victim.request.prompt + victim.made
            victim.computed = 0
            waiting.appendleft(victim)
            preemptions += 1
        decoding = [job for job in running if job.decodes]
        budget = limits.max_num_batched_tokens - len(decoding)
        work: list[tuple[Job, int]] = []
        taken = [blocks(job.computed + 1) for job in decoding]
        partial = [job for job in running if not job.decodes]
        for job in partial:
            chunk = min(budget, job.todo - job.computed)
            if chunk <= 0:
                taken.append(blocks(job.computed))
            elif free([*taken, blocks(job.computed + chunk)]) >= 0:
                work.append((job, chunk))
                taken.append(blocks(job.computed + chunk))
                budget -= chunk
            else:
                running.remove(job)
                job.todo = job.request.prompt + job.made
                job.computed = 0
                waiting.appendleft(job)
                preemptions += 1
        if preemptions == before or not (decoding or work):
            while waiting and budget > 0 and len(running) < limits.max_num_seqs:
                job = waiting[0]
                chunk = min(budget, job.todo)
                if free([*taken, blocks(chunk)]) < 0:
                    break
                running.append(waiting.popleft())
                work.append((job, chunk))
                taken.append(blocks(chunk))
                budget -= chunk
        tokens = sum(chunk for _, chunk in work)
        pairs = sum(chunk * (job.computed + chunk / 2.0) for job, chunk in work)
        context = sum(job.computed for job in decoding)
        now_s += cost.base_s + cost.sequence_s * len(decoding) + cost.kv_token_s * context
        now_s += cost.prompt_token_s * tokens + cost.pair_s * pairs
        gave = list(decoding)
        for job in decoding:
            job.computed += 1
            job.todo = job.computed
        for job, chunk in work:
            job.computed += chunk
            if job.decodes:
                gave.append(job)
        for job in gave:
            job.made += 1
            if job.first_s < 0.0:
                job.first_s = now_s
            if job.made == job.request.answer:
                running.remove(job)
                done[job.request.arrival_s] = (job.first_s, now_s)
    return done, preemptions
