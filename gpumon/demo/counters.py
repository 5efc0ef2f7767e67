"""The counters and histograms that one rank of a simulated engine keeps."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

from gpumon.demo.speculation import DraftSettings

MOST_DRAFT_TOKENS = 8
"""Longest draft: accepted tokens are counted by their place in it."""


class Histogram:
    """Counts of observations by upper bound, with their sum. Single ones are sorted in when somebody reads them."""

    __slots__ = ("_count", "_counts", "_noted", "_total", "bounds", "note")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._count = 0
        self._total = 0.0
        self._noted: list[float] = []
        self.note = self._noted.append
        """Add one observation. It is a list's own method: a simulated minute has ten thousand of them."""

    def observe(self, value: float, times: int) -> None:
        """Add `times` observations of `value`."""
        self._counts[bisect_left(self.bounds, value)] += times
        self._count += times
        self._total += value * times

    def _sort_in(self) -> None:
        """Put the noted values into the buckets."""
        if not self._noted:
            return
        counts = self._counts
        bounds = self.bounds
        for value in self._noted:
            counts[bisect_left(bounds, value)] += 1
        self._count += len(self._noted)
        self._total += sum(self._noted)
        self._noted.clear()

    @property
    def count(self) -> int:
        """Number of observations."""
        self._sort_in()
        return self._count

    @property
    def total(self) -> float:
        """Sum of all observations."""
        self._sort_in()
        return self._total

    def cumulative(self) -> list[float]:
        """Observations at or below each bound; the last is +Inf."""
        self._sort_in()
        return [float(n) for n in accumulate(self._counts)]


# Bounds of vLLM's histograms, named for what is counted: tokens of a step, seconds, numbers, and bytes.
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
_ANSWERS = (1.0, 2.0, 5.0, 10.0, 20.0)
_PREEMPTIONS = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)
_BYTES = tuple(2.0 ** (10 + exponent) for exponent in range(1, 25, 2))
_TRANSFER = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 5.0)


def _ladder(most: int) -> tuple[float, ...]:
    """1, 2, 5, 10, ... up to `most`: vLLM's bounds for token counts."""
    bounds = [mantissa * 10.0**exponent for exponent in range(7) for mantissa in (1, 2, 5)]
    return tuple(bound for bound in bounds if bound <= most)


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
        self.stopped = 0
        """Requests that ended by themselves."""
        self.cut = 0
        """Requests that ended at their longest answer."""
        self.aborted = 0
        """Requests whose client hung up, as far as the engine counts them."""
        self.failed = 0
        """Requests that ended in an error of the engine."""
        self.corrupted = 0
        """Requests that ended and had a NaN in their logits."""
        self.refused = 0
        """Requests that the API server answered with 400."""
        self.answered = 0
        """Requests that the API server answered with 200, also where the client did not wait for the end."""
        self.fetched_tokens = 0
        """Prompt tokens whose KV came over the link."""
        self.link_queries = 0
        """Prompt tokens that were looked for beyond the link."""
        self.link_hits = 0
        """Prompt tokens that were found there."""
        self.fetches = Histogram(_BYTES)
        """Sizes of transfers over the link, in bytes."""
        self.fetch_s = Histogram(_TRANSFER)
        """Durations of these transfers."""
        self.stored_bytes = 0.0
        """KV written to the host's memory."""
        self.drafts = 0
        self.draft_tokens = 0
        self.accepted_tokens = 0
        self.accepted_at = [0.0] * MOST_DRAFT_TOKENS
        """The accepted tokens by their place in the draft."""
        self.request_prompt_tokens = Histogram(tokens)
        self.request_generation_tokens = Histogram(tokens)
        self.iteration_tokens = Histogram(_ITERATION)
        self.request_max_tokens = Histogram(tokens)
        self.request_n = Histogram(_ANSWERS)
        """Answers that a request asks for (`n`)."""
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
        """Prompt tokens whose KV was neither in the prefix cache nor fetched."""
        return self.prompt_tokens - self.cached_tokens - self.fetched_tokens

    @property
    def known_tokens(self) -> int:
        """Prompt tokens whose KV was in the prefix cache, or fetched."""
        return self.cached_tokens + self.fetched_tokens

    def count_drafts(self, speculation: DraftSettings, drafts: int, accepted: int) -> None:
        """Count verified drafts and their accepted tokens."""
        self.drafts += drafts
        self.draft_tokens += drafts * speculation.draft_tokens
        self.accepted_tokens += accepted
        for position, share in enumerate(speculation.by_position):
            self.accepted_at[position] += share * accepted

    def observe_steps(self, sequences: int, tokens: float, steps: int = 1) -> None:
        """Observe `steps` steps, each of which gave `tokens` tokens in all to `sequences` sequences.

        Each API server observes its own share: with two of them a step counts twice as soon as both have a sequence.
        """
        servers = min(self._api_servers, sequences)
        for _ in range(servers):
            self.iteration_tokens.observe(tokens / servers, steps)
