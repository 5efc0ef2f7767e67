"""An engine's page: how its ranks share the work, and when each of its figures moves."""

from __future__ import annotations

from typing import Final

from gpumon.readings.missing import Missing
from gpumon.readings.snapshot import Engine, RankLoad
from gpumon.tui.detail import values
from gpumon.tui.detail.blocks import Entry, Fact, Section, Sentence
from gpumon.tui.detail.values import said

MOVES: Final = {
    "prompt": "a whole prompt at once, at its first token",
    "end": "only when a request ends: no rate of now",
    "sampled": "the engine's own figure of a moment",
    "derived": "worked out from other counters",
}
"""What `Engine.advances` says, in words; what is live needs none."""
_NAMES: Final = {
    "decode_tokens_per_s": "decode",
    "prefill_tokens_per_s": "prefill computed",
    "cached_tokens_per_s": "prefill cached",
    "requests_per_s": "requests",
    "steps_per_s": "steps",
    "preemptions_per_s": "preemptions",
    "failures_per_s": "failures",
    "aborts_per_s": "aborts",
    "inferences_per_s": "inferences",
    "trained_tokens_per_s": "trained",
    "samples_per_s": "samples",
    "rejections_per_s": "turned away",
    "kv_stored_bytes_per_s": "KV stored",
    "kv_loaded_bytes_per_s": "KV loaded",
    "kv_transferred_bytes_per_s": "KV transferred",
    "kv_transfer_failures_per_s": "KV transfers failed",
    "mfu_ratio": "MFU",
    "mfu_prefill_ratio": "MFU of prefill",
    "mfu_decode_ratio": "MFU of decode",
    "flops_per_s": "FLOP/s",
    "mbu_ratio": "MBU",
    "bytes_per_s": "all B/s",
}
"""What the page calls them."""
MOST_RANKS: Final = 16


def ranks(engine: Engine) -> list[Section]:
    """Each data-parallel rank; no section with one rank."""
    if len(engine.rank_loads) < 2:
        return []
    entries: list[Entry] = [Fact(f"rank {load.rank}", _load(load)) for load in engine.rank_loads[:MOST_RANKS]]
    if len(engine.rank_loads) > MOST_RANKS:
        entries.append(Sentence(f"and {len(engine.rank_loads) - MOST_RANKS} more"))
    return [Section("data-parallel ranks", entries, side=1)]


def _load(load: RankLoad) -> str:
    parts = [
        None if isinstance(load.decode_tokens_per_s, Missing) else said(values.token_rate(load.decode_tokens_per_s)),
        None if isinstance(load.running, Missing) else f"running {load.running:.0f}",
        None if isinstance(load.waiting, Missing) else f"waiting {load.waiting:.0f}",
        None if isinstance(load.kv_usage_ratio, Missing) else f"KV {said(values.percent(load.kv_usage_ratio))}",
    ]
    return " · ".join(part for part in parts if part) or "no figures yet"


def standing(engine: Engine) -> list[Section]:
    """Which figures are not live; no section where all are."""
    entries: list[Entry] = []
    for how, meaning in MOVES.items():
        names = [_NAMES.get(name, name) for name, moves in engine.advances.items() if moves == how]
        if names:
            entries.append(Sentence(f"{', '.join(names)}: {meaning}"))
    return [Section("how its figures move", entries, side=1)] if entries else []
