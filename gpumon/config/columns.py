"""Columns that can be hidden, by pane: what `screen.hidden_columns` and the settings page may name."""

from __future__ import annotations

from typing import Final

COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "gpus": (
        "busy",
        "sm",
        "vram",
        "memory",
        "mfu",
        "mbu",
        "power",
        "temperature",
        "limit",
        "tensor",
        "nvlink",
        "pcie",
        "tok_j",
        "clock",
        "engines",
        "mean",
        "occupancy",
        "memory_temperature",
        "link",
        "energy",
        "name",
        "history",
    ),
    "engines": (
        "model",
        "running",
        "waiting",
        "kv",
        "decode",
        "prefill",
        "ttft",
        "itl",
        "mfu",
        "mbu",
        "e2e",
        "queue",
        "req_s",
        "version",
        "cached",
        "step_s",
        "tok_j",
        "context",
        "gpus",
        "precision",
        "full_model",
        "power",
        "batch",
        "preempt_s",
        "ttft_p50",
        "ttft_p99",
        "itl_p50",
        "itl_p99",
        "flops",
        "traffic",
        "mfu_prefill",
        "mfu_decode",
        "kv_tokens",
        "url",
    ),
    "processes": ("user", "gpus", "vram", "sm", "engine", "container", "type", "pod", "command"),
}
"""In the order in which they stand from left to right. What a row is known by, and a GPU's state, can not be hidden."""

NAMES: Final = frozenset(f"{pane}.{column}" for pane, columns in COLUMNS.items() for column in columns)
"""As they are written: `gpus.power`."""
