"""A snapshot as one JSON object by the contract of docs/json.md: what `snapshot --json` and `watch --json` print."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from gpumon.readings import difference
from gpumon.readings.flat import flat_fields, getter
from gpumon.readings.frame import GpuProcess
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.snapshot import SCHEMA, BandwidthSource, Gpu, Snapshot
from gpumon.readings.text import clean
from gpumon.readings.verdict import Action, Event, Evidence, RootShown, Signal, Verdict
from gpumon.sizing.accuracy import NO_BAND
from gpumon.triage import render
from gpumon.triage.roots import shown_roots


class AbsentField(NamedTuple):
    """A field whose type has no place for a `Missing`: which value stands for one, and why it is null then."""

    value: Any
    """The value that stands for a missing one."""
    other_key: str
    """Key whose reason holds for this field, too; empty: none."""
    reason: Reason
    """Reason where that key has none."""


PRINTED_AS: Final = {"self_cost": "self"}
"""Fields whose JSON key is not their name."""
NOT_PRINTED: Final = frozenset(
    {
        "Snapshot.wall_s",  # `time` is the same
        "Gpu.sources",  # the same for all GPUs of a kind
        "Engine.window",  # only sizing needs it, and the next one
        "Engine.llm",
        "Answer.have",  # only the sizing panel shows it, and the next one
        "Packed.layout",
        "Event.verdict",  # `RENDERED` has its code in this place
    }
)
"""Fields that are left out, as `Type.field`."""
ABSENT_FIELDS: Final = {
    "bandwidth_source": AbsentField(BandwidthSource.NONE, "bandwidth_bytes_per_s", Reason.NOT_SUPPORTED),
    "tp": AbsentField(0, "", Reason.NO_GPU),
    "pp": AbsentField(0, "tp", Reason.NOT_EXPOSED),
    "ranks": AbsentField(0, "running", Reason.WARMING_UP),
    "band": AbsentField(NO_BAND, "", Reason.NOT_MEASURED),
    "ttft_band": AbsentField(NO_BAND, "", Reason.NOT_MEASURED),
}
"""Key of a field, of whatever type -> the value for which it is printed as null."""


def _verdict_code(event: Event) -> str:
    """Code of the verdict that an event is about; empty for one that is about none."""
    if event.verdict is None:
        return ""
    return event.verdict.code.value


RENDERED: Final[Mapping[type, Mapping[str, Callable[[Any], str]]]] = {
    Verdict: {"text": render.verdict_text},
    Evidence: {"text": render.evidence_text},
    Action: {"team": lambda action: render.team_of(action).value, "text": render.action_text},
    Signal: {"text": render.signal_text},
    Event: {"verdict": _verdict_code, "text": render.event_text},
}
"""Keys that are worked out from the codes and figures of a type."""
LISTED: Final[Mapping[type, Mapping[str, tuple[type, Callable[[Any], tuple[msgspec.Struct, ...]]]]]] = {
    Snapshot: {"roots": (RootShown, shown_roots)},
}
"""Keys of lists that are worked out from a type -> the type of an item, and what gives the items."""
_KEY_ORDER: Final[Mapping[type, Sequence[str]]] = {
    Gpu: (
        "index", "uuid", "name", "state", "age_s", "state_text", "busy_ratio", "sm_active_ratio",
        "tensor_active_ratio", "vram_used_bytes", "vram_total_bytes", "vram_shared", "bandwidth_bytes_per_s",
        "busy_window_ratio", "sm_active_window_ratio", "tensor_active_window_ratio", "power_window_w",
        "bandwidth_source", "bandwidth_peak_bytes_per_s", "peak_source", "peak_unverified",
        "bandwidth_peak_unverified", "mfu_ratio", "mbu_ratio", "power_w", "power_limit_w", "power_default_w",
        "energy_j", "temperature_c", "sm_clock_hz", "nvlink_bytes_per_s", "pcie_bytes_per_s", "throttle", "xid",
        "ecc_uncorrected", "remap_pending", "engines", "processes", "busy_mean_ratio", "tokens_per_j",
        "parent_uuid", "mig_profile", "compute_capability", "memory_temperature_c", "fan_ratio",
        "sm_occupancy_ratio", "memory_busy_ratio", "sm_clock_max_hz", "memory_clock_hz", "memory_clock_max_hz",
        "vram_reserved_bytes", "flops_peak_per_s", "flops_peak_precision", "pcie_tx_bytes_per_s",
        "pcie_rx_bytes_per_s", "nvlink_tx_bytes_per_s", "nvlink_rx_bytes_per_s", "pcie_generation",
        "pcie_generation_max", "pcie_width", "pcie_width_max", "ecc_corrected", "remap_failed", "throttle_s",
        "gpu_type", "host", "activity_source", "activity_age_s", "achievable_ratio",
        "persistence_mode", "ecc_mode", "bad_pages", "bad_pages_pending", "xgmi_links", "xgmi_links_up",
        "nvlinks", "nvlinks_active", "nvlinks_down", "nvlink_errors", "pcie_replays", "cost_per_hour",
        "unused_s", "unused_cost", "energy_cost",
    ),
    GpuProcess: ("pid", "name", "user", "vram_bytes", "container", "engine", "command"),
}  # fmt: skip
"""Type -> names of its fields in the order in which they are printed; those that are not named follow."""
MOST_CHARACTERS: Final = 1000
"""Longest text printed: names from outside are cut."""

_ENCODER: Final = msgspec.json.Encoder()


def encode(snapshot: Snapshot) -> bytes:
    """The snapshot as one line of JSON, without a newline: UTF-8, no NaN or Infinity, no control characters."""
    return _ENCODER.encode({"schema": SCHEMA, **as_object(snapshot)})


class Differences:
    """The lines of `watch --json --fleet`: a whole snapshot, then what changed since the line before."""

    def __init__(self) -> None:
        self._before: dict[str, Any] | None = None

    def encode(self, snapshot: Snapshot) -> bytes:
        """The next line, without a newline."""
        before = self._before
        self._before = {"schema": SCHEMA, **as_object(snapshot)}
        if before is None:
            return _ENCODER.encode(self._before)
        return _ENCODER.encode({difference.KEY: difference.object_difference(before, self._before)})


def as_object(struct: msgspec.Struct) -> dict[str, Any]:
    """The fields by key; a value that is not there is None, and its reason stands under `missing`."""
    printed: dict[str, Any] = {}
    missing: dict[str, str] = {}
    absent: list[str] = []
    keys, has_readings = _getters(type(struct))
    for get, key in keys:
        # The commonest types come first, as this runs for each field of each tick. An int is printed as it is, unless
        # it stands for a missing one.
        value = get(struct)
        if type(value) is float:
            if not math.isfinite(value):
                value = None
                missing[key] = Reason.INVALID.value
        elif type(value) is Missing:
            missing[key] = value.reason.value
            value = None
        elif key in ABSENT_FIELDS and value == ABSENT_FIELDS[key].value:
            absent.append(key)
            value = None
        elif type(value) is not int:
            value = _json_value(value)
        printed[key] = value
    for key, text_of in RENDERED.get(type(struct), {}).items():
        printed[key] = clean(text_of(struct), MOST_CHARACTERS)
    for key, (_, items_of) in LISTED.get(type(struct), {}).items():
        printed[key] = [as_object(item) for item in items_of(struct)]
    if has_readings:
        printed["missing"] = {**missing, **_reasons_of_absent(absent, missing)}
    return printed


def _reasons_of_absent(absent: Sequence[str], missing: Mapping[str, str]) -> dict[str, str]:
    """Why fields of `ABSENT_FIELDS` are null. `missing`: the reasons of the other fields."""
    reasons: dict[str, str] = {}
    for key in absent:
        field = ABSENT_FIELDS[key]
        # The other key may be of this kind, too: it comes before this one in the struct.
        reasons[key] = reasons.get(field.other_key) or missing.get(field.other_key, field.reason.value)
    return reasons


def _json_value(value: Any) -> Any:
    """A value that is neither a number nor a reading, as JSON has it."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, str):
        return clean(value, MOST_CHARACTERS)
    if isinstance(value, tuple):
        return [_json_value(item) for item in value]
    if isinstance(value, dict):  # figures that are infinite or NaN are left out: no `missing` would say why
        return {
            clean(key, MOST_CHARACTERS): _json_value(item)
            for key, item in value.items()
            if type(item) is not float or math.isfinite(item)
        }
    if isinstance(value, msgspec.Struct):
        return as_object(value)
    return value


@lru_cache(maxsize=64)
def printed_fields(kind: type[msgspec.Struct]) -> dict[str, tuple[str, msgspec.structs.FieldInfo]]:
    """JSON key of each field printed, in order -> its flat name, and the field."""
    fields = flat_fields(kind)
    return {
        PRINTED_AS.get(name, name): (name, fields[name][1])
        for name in (*_KEY_ORDER.get(kind, ()), *fields)
        if f"{kind.__name__}.{name}" not in NOT_PRINTED
    }


@lru_cache(maxsize=64)
def _getters(kind: type[msgspec.Struct]) -> tuple[tuple[tuple[Callable[[msgspec.Struct], Any], str], ...], bool]:
    """Getter and JSON key of each printed field, and whether some are readings, so that there is a `missing`."""
    printed = printed_fields(kind)
    has_readings = any(field.type == Reading for _, field in printed.values())
    return tuple((getter(kind, name), key) for key, (name, _) in printed.items()), has_readings
