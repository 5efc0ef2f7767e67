"""Columns that can be hidden, by pane: what `screen.hidden_columns` and the settings page may name."""

from __future__ import annotations

from typing import Final

from gpumon.readings.columns import ENGINE_COLUMNS, GPU_COLUMNS, PROCESS_COLUMNS

HIDEABLE_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    GPU_COLUMNS.pane: tuple(GPU_COLUMNS.can_be_hidden()),
    ENGINE_COLUMNS.pane: tuple(ENGINE_COLUMNS.can_be_hidden()),
    PROCESS_COLUMNS.pane: tuple(PROCESS_COLUMNS.can_be_hidden()),
}
"""In the order in which they stand from left to right. What a row is known by, and a GPU's state, cannot be hidden."""

HIDEABLE_NAMES: Final = frozenset(
    f"{pane}.{column}" for pane, columns in HIDEABLE_COLUMNS.items() for column in columns
)
"""As they are written: `gpus.power`."""
