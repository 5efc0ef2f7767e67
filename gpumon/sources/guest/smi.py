"""GPUs as `nvidia-smi --query-gpu` prints them (csv, noheader, nounits), for hosts without gpumon."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpumon.readings.frame import GpuProcess, GpuReading, GpuState
from gpumon.readings.missing import NOT_SUPPORTED, Missing, Reading, Reason
from gpumon.readings.smi import SMI, SMI_FIGURES, SmiColumn
from gpumon.readings.text import clean
from gpumon.readings.throttle import throttle_names
from gpumon.sources.driver.bounds import drop_implausible
from gpumon.specs.units import MIB

_NOT_EXPOSED: Final = Missing(Reason.NOT_EXPOSED, "nvidia-smi does not tell it: install gpumon on that host")
_MOST_GPUS: Final = 128
"""GPUs that are taken from one answer."""
_INDEX_DIGITS: Final = 6
"""Digits that are read of a GPU's index."""
_ERROR_LINES: Final = 4
"""Lines of an answer in which a refusal stands."""
INDEX: Final = "index"
UUID: Final = "uuid"
_NAME: Final = "name"
THROTTLE: Final = "clocks_event_reasons.active"
OLDER: Final = {THROTTLE: "clocks_throttle_reasons.active"}
"""Name of a column -> its name in drivers before R535."""
MIG: Final = "mig.mode.current"
CAPABILITY: Final = "compute_cap"
SMI_COLUMNS: Final = (INDEX, UUID, _NAME, MIG, CAPABILITY, THROTTLE, *(column.name for column in SMI_FIGURES))
"""Columns that are asked for, as the newest nvidia-smi names them."""
_REFUSED: Final = re.compile(r'Field "([a-z_.]{1,60})" is not a valid field to query')
"""The line of an nvidia-smi that does not know a column."""
_FIELDS_NOT_EXPOSED: Final = (
    *("sm_active_ratio", "sm_occupancy_ratio", "tensor_active_ratio", "dram_active_ratio"),
    *("pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s", "nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s"),
    *("energy_j", "memory_bus_bits", "sm_count", "remap_pending", "remap_failed"),
    *("persistence_mode", "ecc_mode", "nvlinks", "nvlinks_active", "nvlink_errors", "pcie_replays"),
)
"""Fields of a `GpuReading` that are not asked of nvidia-smi, or that it does not tell."""
_REASONS_BY_WORDS: Final = (
    ("insufficient permissions", Missing(Reason.NO_PERMISSION)),
    ("lost", Missing(Reason.LOST)),
    ("requires reset", Missing(Reason.LOST)),
    ("error", Missing(Reason.ERROR, "nvidia-smi: Unknown Error")),
    ("n/a", NOT_SUPPORTED),
    ("not supported", NOT_SUPPORTED),
)
"""Words of nvidia-smi in the place of a number, in small letters, and the reason that each stands for."""


def refused_column(lines: Sequence[str]) -> str:
    """The column that this nvidia-smi does not know; empty where it knows them all."""
    for line in lines[:_ERROR_LINES]:
        refusal = _REFUSED.search(line)
        if refusal is not None:
            return refusal[1]
    return ""


def without_column(columns: Sequence[str], refused: str) -> tuple[str, ...]:
    """The columns to ask for instead: an older name takes the place of the refused one, where there is one."""
    older_name = OLDER.get(refused, "")
    names = []
    for column in columns:
        if column != refused:
            names.append(column)
        elif older_name:
            names.append(older_name)
    return tuple(names)


def parse_smi_gpus(
    lines: Sequence[str],
    columns: Sequence[str],
    now_s: float,
    processes: Mapping[str, tuple[GpuProcess, ...]],
) -> tuple[GpuReading, ...]:
    """The GPUs of an answer, read at `now_s`; `processes` by UUID. A line that is not of a GPU is left out."""
    gpus: list[GpuReading] = []
    for line in lines:
        cells = [cell.strip() for cell in line.split(",", len(columns))]
        if len(cells) != len(columns) or not cells[0].isdecimal() or len(gpus) >= _MOST_GPUS:
            continue
        row = dict(zip(columns, cells, strict=True))
        gpus.append(_gpu_reading(row, now_s, processes))
    return tuple(gpus)


def _gpu_reading(row: Mapping[str, str], now_s: float, processes: Mapping[str, tuple[GpuProcess, ...]]) -> GpuReading:
    """The reading of one GPU."""
    values: dict[str, Any] = dict.fromkeys(_FIELDS_NOT_EXPOSED, _NOT_EXPOSED)
    for column in SMI_FIGURES:
        values[column.field] = _figure(row, column)
    drop_implausible(values)
    uuid = clean(row[UUID], 80)
    vram_used = values["vram_used_bytes"]
    state = GpuState.LOST if isinstance(vram_used, Missing) and vram_used.reason is Reason.LOST else GpuState.OK
    return GpuReading(
        index=int(row[INDEX][:_INDEX_DIGITS]),
        uuid=uuid,
        name=clean(row[_NAME], 120),
        state=state,
        monotonic_s=now_s,
        compute_capability=_checked_capability(row.get(CAPABILITY, "")),
        throttle=_throttle_reasons(row),
        mig=row.get(MIG) == "Enabled",
        processes=processes.get(uuid, ()),
        source=SMI,
        **values,
    )


def _figure(row: Mapping[str, str], column: SmiColumn) -> Reading:
    """A number in the field's unit, or why there is none."""
    if column.name not in row:
        return Missing(Reason.NOT_SUPPORTED, "that host's nvidia-smi is too old to tell it")
    text = row[column.name]
    if re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,6})?", text):
        return float(text) * column.factor
    words = text.lower()
    for part, missing in _REASONS_BY_WORDS:
        if part in words:
            return missing
    return Missing(Reason.INVALID, clean(f"nvidia-smi: {text}", 60))


def _throttle_reasons(row: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the throttle reasons in the mask of either column."""
    mask = row.get(THROTTLE) or row.get(OLDER[THROTTLE]) or ""
    if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", mask):
        return throttle_names(int(mask, 16))
    return ()


def _checked_capability(capability: str) -> str:
    """A compute capability such as `9.0`; empty for all else, such as `[N/A]`."""
    if re.fullmatch(r"[0-9]{1,2}\.[0-9]", capability):
        return capability
    return ""


def memory_bytes(text: str) -> Reading:
    """Memory of a process in bytes, from its cell in MiB."""
    column = SmiColumn("used_memory", "", MIB)
    return _figure({column.name: text.strip()}, column)
