"""Xid errors of the NVIDIA driver: what each says, whose fault it is, how urgent, and codes of the next steps.

After NVIDIA's Xid catalogue (docs.nvidia.com/deploy/xid-errors), whose steps are: restart the application, reset the
GPU, restart the machine, or call support.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from gpumon.readings.verdict import Confidence, Level


class Xid(msgspec.Struct, frozen=True):
    """A class of Xid."""

    text: str
    level: Level
    actions: tuple[str, ...]
    """Codes of `sentences.ACTIONS`."""
    is_application: bool = False
    """A program caused it, or suffers it; the GPU goes on."""
    confidence: Confidence = Confidence.HIGH


def _program_xid(text: str, level: Level = Level.NOTE, action: str = "read_program_log") -> Xid:
    """A class of Xid that a program causes."""
    return Xid(text, level, (action,), is_application=True, confidence=Confidence.MEDIUM)


RESET: Final = ("reset_gpu",)
"""Actions against most faults of the hardware; the others are those of groups of Xids."""
_GSP: Final = ("reset_gpu", "update_driver", "replace_if_again")
_NVLINK: Final = ("reset_span", "count_nvlink_errors")
_ECC_RESET: Final = ("reset_gpu", "diagnose_if_again")

XIDS: Final[Mapping[int, Xid]] = {
    8: _program_xid("the GPU stopped processing a program's work"),
    11: _program_xid("invalid or corrupted command stream"),
    13: _program_xid("graphics engine exception: a program's bad access or instruction"),
    31: _program_xid("GPU memory page fault: a program's illegal address"),
    32: _program_xid("corrupted command buffer", Level.WARN),
    38: Xid("driver firmware error", Level.WARN, RESET, confidence=Confidence.MEDIUM),
    43: _program_xid("a program's channel was reset after its own fault"),
    44: Xid("graphics engine fault in a context switch", Level.WARN, RESET, confidence=Confidence.MEDIUM),
    45: _program_xid(
        "a program's work was removed from the GPU (it was killed, or another Xid came before)",
        action="find_killer",
    ),
    46: Xid("the GPU stopped processing", Level.CRITICAL, RESET),
    48: Xid("double bit ECC error: data in memory is wrong", Level.CRITICAL, _ECC_RESET),
    61: Xid("internal micro-controller warning", Level.WARN, RESET, confidence=Confidence.MEDIUM),
    62: Xid("internal micro-controller halt", Level.CRITICAL, RESET),
    63: Xid(
        "a memory row was marked for remapping (or a page retired): repaired at the next reset",
        Level.WARN,
        ("reset_when_free", "count_spare_rows"),
    ),
    64: Xid(
        "a memory row could not be remapped (or a page not retired)",
        Level.CRITICAL,
        ("reset_gpu", "replace_if_remap_failed"),
    ),
    66: _program_xid("illegal access by driver code", Level.WARN),
    68: _program_xid("video decoder exception"),
    69: _program_xid("graphics engine class error: a program's bad command"),
    74: Xid("NVLink error", Level.CRITICAL, _NVLINK),
    79: Xid(
        "fallen off the bus: the machine does not reach it over PCIe",
        Level.CRITICAL,
        ("power_cycle", "reseat_if_again"),
    ),
    92: Xid(
        "many single bit ECC errors: corrected, but more than there should be", Level.WARN, ("diagnose_when_free",)
    ),
    94: Xid(
        "contained ECC error: one program lost its data, the others are safe",
        Level.WARN,
        ("restart_hit_program", "reset_when_free"),
    ),
    95: Xid("uncontained ECC error: any program on it may have wrong data", Level.CRITICAL, _ECC_RESET),
    109: Xid("a context switch did not end in time", Level.WARN, RESET, confidence=Confidence.MEDIUM),
    110: Xid("security fault", Level.CRITICAL, ("power_cycle",)),
    119: Xid("GSP did not answer in time", Level.CRITICAL, _GSP),
    120: Xid("GSP failed", Level.CRITICAL, _GSP),
    121: Xid("corrected error of the link to the CPU (C2C)", Level.WARN, ("reset_when_free",)),
    136: Xid("an NVLink could not be trained", Level.CRITICAL, _NVLINK),
    137: _program_xid("NVLink: a program's illegal access to the memory of another GPU"),
    140: Xid("unrecovered ECC error", Level.CRITICAL, _ECC_RESET),
    143: Xid("the GPU could not be initialised", Level.CRITICAL, RESET),
    **{code: Xid("NVLink 5 error", Level.CRITICAL, _NVLINK) for code in range(144, 151)},
    154: Xid("the driver changed the recovery that it advises", Level.WARN, ("ask_recovery",)),
}
"""Xid -> what it is. 31, 43 and 45 are left out by NVIDIA's own device plugin for Kubernetes, as a program's faults."""


def xid_of(code: int) -> Xid:
    """The class of a code; one that is not known says so."""
    return XIDS.get(code) or Xid(
        "not in gpumon's table",
        Level.WARN,
        ("look_up_xid",),
        confidence=Confidence.LOW,
    )
