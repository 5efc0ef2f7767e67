"""A value, or the reason why there is none: the type of every figure that gpumon handles."""

from __future__ import annotations

import math
from enum import Enum
from typing import Final

import msgspec


class Reason(str, Enum):
    """Why a value is not there. The value of each member is what `--json` prints in `missing`."""

    NOT_SUPPORTED = "not_supported"
    """The hardware or driver says that it has no such figure."""
    NO_PERMISSION = "no_permission"
    """The driver refuses it to this user."""
    LOST = "lost"
    """The GPU does not answer any more."""
    WARMING_UP = "warming_up"
    """A rate needs two readings, a quantile a filled window."""
    UNDER_MIG = "under_mig"
    """Defined per slice only, and the slice's share is not known."""
    NOT_EXPOSED = "not_exposed"
    """The engine does not export it."""
    STALE = "stale"
    """The last reading is older than 3 intervals."""
    NOT_LIVE = "not_live"
    """The engine counts it only when a request ends: there is a mean over minutes, and no rate of now."""
    OFF = "off"
    """The source or the engine's own switch for it is off."""
    NO_ENGINE = "no_engine"
    """No engine is attributed to this GPU."""
    UNMAPPED = "unmapped"
    """An engine of this host answers whose GPUs are not known: it may run here."""
    NO_GPU = "no_gpu"
    """It is not known on which GPUs this engine runs."""
    UNKNOWN_MODEL = "unknown_model"
    """The model's dimensions are not known: see `gpumon doctor` for the config line to add."""
    NOT_MODELLED = "not_modelled"
    """The model's architecture has parts that the formulas do not cover, or weights are partly on the CPU."""
    UNKNOWN_GPU = "unknown_gpu"
    """No peak is known for this GPU at this precision."""
    NO_CONTEXT = "no_context"
    """The mean context length cannot be had, so the KV reads are unknown."""
    IDLE = "idle"
    """Nothing was observed in the window: no request, no token."""
    FEW = "few_observations"
    """Fewer observations than a quantile needs; the mean is given."""
    RESET = "reset"
    """The counter fell or the engine restarted inside the window."""
    UNREACHABLE = "unreachable"
    """The endpoint gave no usable answer: its `state` says how."""
    INVALID = "invalid"
    """The source sent something that is not a number in range."""
    ERROR = "error"
    """The driver failed on this call; it is tried again."""
    NOT_GIVEN = "not_given"
    """Sizing: neither typed nor measured, and not to be worked out from what is."""
    NOT_MEASURED = "not_measured"
    """Sizing: no error band, as the figure was typed, or no published server is like this one; a note says which."""
    NO_PRICE = "no_price"
    """No price of this GPU is configured."""
    NO_ENERGY_PRICE = "no_energy_price"
    """No price of a kWh is configured."""
    INFEASIBLE = "infeasible"
    """Sizing: no number of instances would do; the problem says why."""


class Missing(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Stands where a number would be, and says why it is not there. It has no truth value: ask for its type."""

    reason: Reason
    detail: str = ""

    def __bool__(self) -> bool:
        raise TypeError("a missing reading is neither true nor false: use isinstance(reading, Missing)")


Reading = float | Missing
"""A number in the unit that the field's name carries, or `Missing`."""

WARMING_UP = Missing(Reason.WARMING_UP)
NOT_SUPPORTED = Missing(Reason.NOT_SUPPORTED)
# Figures of a GPU that is no NVIDIA's: what to do about NVIDIA's is of no use there.
NOT_IN_AMDSMI = Missing(Reason.NOT_SUPPORTED, "AMD SMI has no such figure of this GPU")
MAY_BE_IN_AMDSMI = Missing(Reason.NOT_SUPPORTED, "the kernel has no file with this figure; AMD SMI may have it")
NOT_IN_SYSFS = Missing(Reason.NOT_SUPPORTED, "the kernel has no file with this figure of this GPU")

REMOTE_POWER = Missing(Reason.NOT_SUPPORTED, "the power of a remote GPU is not read")
NOT_EXPOSED = Missing(Reason.NOT_EXPOSED)
NO_UPPER_BOUND: Final = Missing(Reason.INVALID)
"""Upper bound of the last bucket of a histogram."""
SILENT_REASONS: Final = frozenset({Reason.LOST, Reason.STALE, Reason.UNREACHABLE})
"""Why a thing has no figure at all: it does not answer any more. Any other reason is of a thing that answers."""


def number(reading: Reading) -> float | None:
    """The reading's number, or None where it is missing."""
    if isinstance(reading, Missing):
        return None
    return reading


def or_nan(reading: Reading) -> float:
    """The reading's number, or NaN (a gap in a history) where it is missing."""
    if isinstance(reading, Missing):
        return math.nan
    return reading
