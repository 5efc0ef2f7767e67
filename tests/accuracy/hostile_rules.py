"""What must hold of everything that is shown, whatever the pages hold. Each raises AssertionError."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from gpumon.readings import quantities as q
from gpumon.readings.flat import flat_fields, value_of
from gpumon.readings.missing import Missing, Reading, Reason, number
from gpumon.readings.snapshot import Engine, Gpu
from tests.accuracy.hostile import Poll
from tests.accuracy.hostile_chain import Shot

UNSAFE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Categories of characters that a terminal may interpret, or that hide."""
SHOWN_WHOLE: Final = 1.005
"""A share up to this reads 100%."""
TOTALS: Final = {"prefill_computed": q.PREFILL_COMPUTED, "prefill_cached": q.PREFILL_CACHED, "decode": q.DECODE_TOKENS}
BASIS: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "running": ((q.RUNNING,),),
    "running_mean": ((q.RUNNING,),),
    "waiting": ((q.WAITING,),),
    "kv_usage_ratio": ((q.KV_USAGE,),),
    "kv_pool_tokens": ((q.POOL_TOKENS,),),
    "prefill_tokens_per_s": ((q.PREFILL_COMPUTED, q.PREFILL_RATE),),
    "decode_tokens_per_s": ((q.DECODE_TOKENS, q.DECODE_RATE),),
    "decode_mean_tokens_per_s": ((q.DECODE_TOKENS, q.DECODE_RATE),),
    "cached_tokens_per_s": ((q.PREFILL_CACHED,),),
    "cached_ratio": ((q.PREFILL_CACHED,),),
    "requests_per_s": ((q.REQUESTS,),),
    "failures_per_s": ((q.FAILURES,),),
    "inferences_per_s": ((q.INFERENCES,),),
    "preemptions_per_s": ((q.PREEMPTIONS,),),
    "steps_per_s": ((q.STEPS, q.ITL, q.DECODE_TOKENS, q.DECODE_RATE),),
    "itl_mean_s": ((q.ITL,),),
    "prompt_tokens_mean": ((q.PROMPT_LENGTH, q.PROMPT_TOKENS),),
    "answer_tokens_mean": ((q.OUTPUT_LENGTH, q.DECODE_TOKENS),),
    "mfu_ratio": ((q.PREFILL_COMPUTED, q.PREFILL_RATE), (q.DECODE_TOKENS, q.DECODE_RATE, q.INFERENCES, q.REQUESTS)),
    "mfu_prefill_ratio": ((q.PREFILL_COMPUTED, q.PREFILL_RATE),),
    "mfu_decode_ratio": ((q.DECODE_TOKENS, q.DECODE_RATE),),
    "mbu_ratio": ((q.DECODE_TOKENS, q.DECODE_RATE),),
    "mbu_single_stream_ratio": ((q.DECODE_TOKENS, q.DECODE_RATE),),
    "flops_per_s": ((q.PREFILL_COMPUTED, q.PREFILL_RATE),),
    "bytes_per_s": ((q.DECODE_TOKENS, q.DECODE_RATE),),
    "tokens_per_j": ((q.DECODE_TOKENS, q.DECODE_RATE),),
}
"""Figure of an engine -> of each of these groups one quantity must have been read for there to be a number."""
LATENCIES: Final = {"ttft_s": q.TTFT, "itl_s": q.ITL, "queue_s": q.QUEUE, "e2e_s": q.E2E}
SHARES: Final = {"mfu": "mfu_ratio", "mbu": "mbu_ratio", "kv": "kv_usage_ratio", "mfu_prefill": "mfu_prefill_ratio"}
"""Column -> the share that stands in it."""
FROM_THE_FIRST_COUNT: Final = (
    "num_requests_t",
    "num_retracted_requests_t",
    "num_transfer_failed_reqs_t",
    "realtime_tokens_t",
    "cached_tokens_t",
)
"""SGLang writes these totals once there is something to count: until then they stand at 0, though no page has them."""
SIGNS_OF_SGLANG: Final = (b"sglang_num_running_reqs", b"sglang_realtime_tokens", b"sglang_decode_sum_seq_lens")
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_:]{3,}")


def sound(shot: Shot) -> None:
    """No fault of gpumon's own, no number that is none, no character that a terminal interprets."""
    assert not any("gpumon failed" in fault.text for fault in shot.snapshot.faults), shot.snapshot.faults
    assert not any("gpumon failed" in reading.fault for reading in shot.readings)
    assert impossible_numbers(shot.snapshot) == []
    assert impossible_numbers(shot.json) == []
    for name, value in shot.points.items():
        assert math.isnan(value) or 0.0 <= value < math.inf, (name, value)
    shown = {*texts(shot.json), *shot.plain.split("\n"), *(row for rows in shot.rows.values() for row in rows)}
    unsafe = {character for character in set().union(*shown) if unicodedata.category(character) in UNSAFE}
    assert [ascii(text) for text in shown if unsafe.intersection(text)] == []
    assert shot.plain.count("\n") == sum(
        map(len, (shot.snapshot.gpus, shot.snapshot.engines, shot.snapshot.replicas, shot.snapshot.faults))
    )


def impossible_numbers(tree: Any) -> list[str]:
    """Places of numbers below 0, infinite or not a number, in a tree of structs, mappings and sequences."""
    if tree is None or isinstance(tree, (bool, str, bytes)):
        return []
    if isinstance(tree, (int, float)):
        return [] if 0.0 <= tree < math.inf else [f" = {tree}"]
    branches: Iterable[tuple[object, Any]] = ()
    if isinstance(tree, msgspec.Struct):
        branches = ((name, getattr(tree, name)) for name in tree.__struct_fields__)
    elif isinstance(tree, Mapping):
        branches = tree.items()
    elif isinstance(tree, Sequence):
        branches = enumerate(tree)
    places = []
    for name, branch in branches:
        for place in impossible_numbers(branch):
            places.append(f".{name}{place}")
    return places


def texts(of: Any) -> Iterator[str]:
    """Every text in parsed JSON, keys included."""
    if isinstance(of, str):
        yield of
    elif isinstance(of, Mapping):
        for key, value in of.items():
            yield key
            yield from texts(value)
    elif isinstance(of, list):
        for value in of:
            yield from texts(value)


def flagged(shot: Shot) -> None:
    """What is above the physical limit has a mark, on the screen and in the plain lines, or is no figure."""
    said = {line.split()[2]: line for line in shot.plain.splitlines() if line.split()[1] == "gpu"}
    engines = [line for line in shot.plain.splitlines() if line.split()[1] == "engine"]
    for engine, line in zip(shot.snapshot.engines, engines, strict=True):
        for column, field in SHARES.items():
            _marked(value_of(engine, field), shot.cells[engine.key, column], _said(line, column), engine.name, field)
        _possible(engine)
    for gpu in shot.snapshot.gpus:
        line = said[str(gpu.reading.index)]
        _marked(gpu.mfu_ratio, shot.cells[gpu.reading.uuid, "mfu"], _said(line, "mfu"), gpu.reading.uuid, "mfu")
        _marked(gpu.mbu_ratio, shot.cells[gpu.reading.uuid, "mbu"], _said(line, "mbu"), gpu.reading.uuid, "mbu")
        used, most = number(gpu.bandwidth_bytes_per_s), number(gpu.bandwidth_peak_bytes_per_s)
        if used is not None and most:
            # The plain line has no share of the bandwidth: a modelled one is MBU's, with MBU's mark.
            _marked(
                used / most, shot.cells[gpu.reading.uuid, "memory"], _said(line, "mbu"), gpu.reading.uuid, "bandwidth"
            )


def _said(line: str, word: str) -> str:
    found = re.search(rf" {word} +(\S+)", line)
    return found[1] if found else "!"


def _marked(share: Reading, cell: str, said: str, *of: str) -> None:
    if not isinstance(share, Missing) and share > SHOWN_WHOLE:
        assert "!" in cell, (of, share, cell)
        assert "!" in said, (of, share, said)


def _possible(engine: Engine) -> None:
    """Tokens that need more FLOPs than the GPUs have show in MFU: each needs two for each of its parameters at least.

    The LM head is left out, which a prompt needs only once.
    """
    peak, active = number(engine.efficiency.peak_flops_per_s), number(engine.dimensions.active_params)
    if not peak or not active or engine.dimensions.llm is None:
        return
    each = 2.0 * (active - engine.dimensions.llm.vocab * engine.dimensions.llm.hidden)
    for tokens in (engine.rates.decode_tokens_per_s, engine.rates.prefill_tokens_per_s):
        if not isinstance(tokens, Missing) and tokens * each / peak > SHOWN_WHOLE:
            mfu = engine.efficiency.mfu_ratio
            told = mfu.reason is Reason.INVALID if isinstance(mfu, Missing) else mfu > SHOWN_WHOLE
            assert told, (tokens, "tokens/s", tokens * each / peak, "of the peak", mfu)


class Seen:
    """What the pages of one endpoint have told so far: nothing else may be shown as a number."""

    def __init__(self, polls: Sequence[Poll]) -> None:
        bodies = b"\n".join(bytes(one.body) for poll in polls for one in poll.values() if one.body)
        self._bytes = bodies.replace(b":", b"_")
        self._live: dict[str, dict[str, set[str]]] = {}
        self._found: dict[str, bool] = {}

    def based(self, shot: Shot) -> None:
        """Each figure stands on a metric that some page has."""
        for reading, engine in zip(shot.readings, shot.snapshot.engines, strict=True):
            live = self._live.setdefault(reading.key, {})
            for quantity, source in reading.live.items():
                live.setdefault(quantity, set()).add(source)
            for field, groups in BASIS.items():
                if not isinstance(value_of(engine, field), Missing):
                    for group in groups:
                        self._stands(f"{engine.key} {field} {value_of(engine, field)}", group, live)
            for field, quantity in LATENCIES.items():
                if not isinstance(value_of(engine, field).mean, Missing):
                    self._stands(f"{engine.key} {field}", (quantity,), live)
            for field, quantity in TOTALS.items():
                if not isinstance(getattr(engine.tokens_total, field), Missing):
                    self._stands(f"{engine.key} total {field}", (quantity,), live)

    def _stands(self, what: str, group: Sequence[str], live: Mapping[str, set[str]]) -> None:
        sources = [source for quantity in group for source in live.get(quantity, ())]
        assert any(map(self._is_there, sources)), f"{what}: no page has {sources or group}"

    def _is_there(self, source: str) -> bool:
        if source not in self._found:
            words = [word.replace(":", "_").removesuffix("_total").encode() for word in _WORD.findall(source)]
            words += SIGNS_OF_SGLANG if any(name in source for name in FROM_THE_FIRST_COUNT) else ()
            self._found[source] = any(word in self._bytes for word in words)
        return self._found[source]


class Totals:
    """The highest totals so far: they never fall."""

    def __init__(self) -> None:
        self._highest: dict[tuple[str, str], float] = {}

    def rise(self, shot: Shot) -> None:
        """Those of one more poll; some may be missing for a while."""
        keys = {engine.key for engine in shot.snapshot.engines}
        self._highest = {(key, name): total for (key, name), total in self._highest.items() if key in keys}
        for engine in shot.snapshot.engines:
            for name in TOTALS:
                total = number(getattr(engine.tokens_total, name))
                if total is not None:
                    last = self._highest.get((engine.key, name), 0.0)
                    assert total >= last, (engine.key, name, last, total)
                    self._highest[engine.key, name] = total


def figures(of: Engine | Gpu) -> dict[str, Reading]:
    """Every figure by its name."""
    return {name: value_of(of, name) for name, (_, field) in flat_fields(type(of)).items() if field.type == Reading}
