"""TensorRT-LLM's JSON records, one of each iteration: added up exactly, since each is given only once.

Fields: tensorrt_llm/_torch/pyexecutor/py_executor.py (_update_iter_stats) of NVIDIA/TensorRT-LLM.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, RankReading
from gpumon.sources.engines import json_body
from gpumon.sources.engines.adapter import MOST_RANKS, EnginePage, frozen
from gpumon.sources.engines.plan import Rank

MOST_RECORDS: Final = 100_000
"""Records taken from one answer."""
MOST_TOKENS: Final = 1e9
"""More in one iteration is no count."""
SIGN: Final = "iterLatencyMS"
"""Stands in every record."""
STILL: Final = 2
"""Answers in a row without a record after which the engine counts as idle: one long prefill may outlast a poll."""
LIVE: Final = {
    q.DECODE_TOKENS: "numGenRequests x tokens of an iteration + numCompletedRequests, of all iterations",
    q.PREFILL_COMPUTED: "numCtxTokens of all iterations",
    q.ACCEPTED_TOKENS: "specDecodingStats.numAcceptedTokens of all iterations",
    q.STEPS: "iterations with requests in them",
    q.REQUESTS: "numCompletedRequests of all iterations",
    q.RUNNING: "numActiveRequests",
    q.WAITING: "numQueuedRequests",
    q.MOST_RUNNING: "maxNumActiveRequests",
    q.KV_USAGE: "kvCacheStats.usedNumBlocks / maxNumBlocks",
    q.POOL_TOKENS: f"kvCacheStats.maxNumBlocks x tokensPerBlock: {q.BLOCK_PRODUCT}",
    q.MEAN_ACCEPTED: "specDecodingStats.acceptanceLength",
}
SCHEDULED: Final = "inflightBatchingStats.numScheduledRequests"


def are_records(body: bytes) -> bool:
    """Whether an answer is a list of iteration records; an empty one is, too."""
    found = json_body.decoded(body) if body[:64].lstrip()[:1] == b"[" else None
    return found == [] or (isinstance(found, list) and SIGN in json_body.mapping(found[0]))


class Records:
    """What all records seen so far add up to, for each rank with attention data parallelism."""

    def __init__(self) -> None:
        self._ranks: dict[str, Rank] = {}
        self._still = 0

    def read(self, body: bytes) -> EnginePage | None:
        """The sums after one more answer; None where it is no list."""
        found = json_body.decoded(body)
        if not isinstance(found, list):
            return None
        self._still = 0 if found else self._still + 1
        records = [record for one in json_body.items(found, MOST_RECORDS) if SIGN in (record := json_body.mapping(one))]
        ranks = [self._rank(str(json_body.count(record.get("attentionDpRank")))) for record in records]
        if not self._ranks:
            # It has no figures yet: without `enable_iter_perf_stats` no record ever comes, however busy the engine is.
            self._rank("0")
        told = [self._add(rank, record) for rank, record in zip(ranks, records, strict=True) if rank is not None]
        running = LIVE[q.RUNNING]
        if len(self._ranks) > 1:
            # Each rank's record repeats the first one's number of active requests.
            running = SCHEDULED
        if self._still >= STILL:
            for rank in self._ranks.values():
                rank.gauges.update({name: 0.0 for name in (q.RUNNING, q.WAITING) if name in rank.gauges})
        return self._page(running, [each for each in told if each])

    def _page(self, running: str, told: Sequence[Collection[str]]) -> EnginePage:
        """`told`: the counters that each of the newest records is of; what one of them lacks is no sum."""
        ranks = tuple(
            RankReading(
                rank.rank,
                {name: rank.counters[name] for name in rank.counters if all(name in each for each in told)},
                rank.gauges,
                {},
            )
            for rank in frozen(self._ranks.values())
        )
        seen = {name for rank in ranks for name in (*rank.counters, *rank.gauges)}
        live = {name: source for name, source in {**LIVE, q.RUNNING: running}.items() if name in seen}
        return EnginePage(
            ranks=ranks,
            live=live,
            info={},
            model="",
            started_wall_s=0.0,
            exact_steps=q.STEPS in live,
            advance={q.DECODE_TOKENS: Advance.DERIVED} if q.DECODE_TOKENS in live else {},
        )

    def _rank(self, name: str) -> Rank | None:
        if name not in self._ranks and len(self._ranks) < MOST_RANKS:
            self._ranks[name] = Rank(name)
        return self._ranks.get(name)

    def _add(self, rank: Rank, record: dict[str, Any]) -> Collection[str]:
        """Take in one record, and say which counters it is of; what makes no sense is left out."""
        batch = json_body.mapping(record.get("inflightBatchingStats"))
        drafts = json_body.mapping(record.get("specDecodingStats"))
        context, generating, prompt = (
            _tokens(batch, key) for key in ("numContextRequests", "numGenRequests", "numCtxTokens")
        )
        accepted, ended = _tokens(drafts, "numAcceptedTokens"), _tokens(record, "numCompletedRequests")
        each = _tokens(batch, "avgNumDecodedTokensPerIter")
        grown: dict[str, float] = {}
        if prompt is not None:
            grown[q.PREFILL_COMPUTED] = prompt
        if ended is not None:
            grown[q.REQUESTS] = ended
        if generating is not None and context is not None:
            grown[q.STEPS] = float(context + generating > 0.0)
        if generating is not None and ended is not None:
            # The PyTorch executor leaves `each` at 0 and counts accepted drafts instead. A request's first token comes
            # from its prefill: it is added when the request ends.
            grown[q.DECODE_TOKENS] = (generating * each if each else generating + (accepted or 0.0)) + ended
        if accepted is not None:
            grown[q.ACCEPTED_TOKENS] = accepted
        for quantity, value in grown.items():
            rank.counters[quantity] = rank.counters.get(quantity, 0.0) + value
        self._see(rank, record, (context or 0.0) + (generating or 0.0))
        return grown.keys()

    def _see(self, rank: Rank, record: dict[str, Any], scheduled: float) -> None:
        """Gauges as the newest record has them."""
        cache = json_body.mapping(record.get("kvCacheStats"))
        drafts = json_body.mapping(record.get("specDecodingStats"))
        blocks, used, size = (
            json_body.number(cache.get(key)) for key in ("maxNumBlocks", "usedNumBlocks", "tokensPerBlock")
        )
        length = json_body.number(drafts.get("acceptanceLength"))
        seen = {
            q.RUNNING: scheduled if len(self._ranks) > 1 else json_body.number(record.get("numActiveRequests")),
            q.WAITING: json_body.number(record.get("numQueuedRequests")),
            q.MOST_RUNNING: json_body.number(record.get("maxNumActiveRequests")),
            q.KV_USAGE: used / blocks if blocks and used is not None else None,
            q.POOL_TOKENS: blocks * size if blocks and size else None,
            q.MEAN_ACCEPTED: length if length is not None and length >= 1.0 else None,
        }
        rank.gauges.update({name: value for name, value in seen.items() if value is not None})


def _tokens(of: dict[str, Any], key: str) -> float | None:
    """A count of one iteration; None where it is none."""
    value = json_body.number(of.get(key))
    return value if value is not None and value <= MOST_TOKENS else None
