"""Columns that can be hidden, by pane: what `screen.hidden_columns` and the settings page may name."""

from __future__ import annotations

from typing import Final

_GPUS: Final = """
    busy sm vram memory mfu mbu power temperature limit tensor nvlink pcie tok_j clock engines mean occupancy
    memory_temperature fan link energy name history
"""
_ENGINES: Final = """
    model running waiting kv decode prefill ttft itl mfu mbu e2e queue req_s ttft_ok itl_ok cached step_s tok_j
    context gpus precision waste full_model version power batch preempt_s ttft_p50 ttft_p99 itl_p50 itl_p99 flops
    traffic mfu_prefill mfu_decode kv_tokens url
"""
_PROCESSES: Final = "user gpus vram sm engine cpu rss time container pod type command"
COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    pane: tuple(names.split()) for pane, names in (("gpus", _GPUS), ("engines", _ENGINES), ("processes", _PROCESSES))
}
"""In the order in which they stand from left to right. What a row is known by, and a GPU's state, cannot be hidden."""

NAMES: Final = frozenset(f"{pane}.{column}" for pane, columns in COLUMNS.items() for column in columns)
"""As they are written: `gpus.power`."""
