"""Xid errors of the NVIDIA driver: what each says, whose fault it is, how urgent, and codes of the next steps.

After NVIDIA's Xid catalogue (docs.nvidia.com/deploy/xid-errors), whose steps are: restart the application, reset the
GPU, restart the machine, or call support.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from gpumon.readings.verdict import Confidence, Level, Team
from gpumon.triage.finding import Remedy
from gpumon.triage.sentences import COUNT_NVLINK_ERRORS, DIAGNOSE_IF_AGAIN, REPLACE_IF_AGAIN, RESET_GPU, RESET_WHEN_FREE

RESET_SPAN: Final = Remedy(
    "reset_span",
    ("drain the jobs that span GPUs, then nvidia-smi --gpu-reset -i {index:count} (reboot where that is refused)"),
    team=Team.HARDWARE,
)
UPDATE_DRIVER: Final = Remedy("update_driver", "update the driver", team=Team.HOST)
REPLACE_IF_REMAP_FAILED: Final = Remedy(
    "replace_if_remap_failed",
    ("nvidia-smi -q -d ROW_REMAPPER -i {index:count}: with a failed remapping replace the GPU (RMA)"),
    team=Team.HARDWARE,
)
DIAGNOSE_WHEN_FREE: Final = Remedy(
    "diagnose_when_free",
    "watch it: dcgmi diag -r 3 when it is free; replace the GPU if uncorrectable ones follow",
    team=Team.HARDWARE,
)
COUNT_SPARE_ROWS: Final = Remedy(
    "count_spare_rows",
    "nvidia-smi -q -d ROW_REMAPPER -i {index:count} shows how many rows are left",
    team=Team.HARDWARE,
)
POWER_CYCLE: Final = Remedy(
    "power_cycle", "drain this server and power-cycle it (a reboot is often not enough)", team=Team.HARDWARE
)
RESEAT_IF_AGAIN: Final = Remedy(
    "reseat_if_again",
    ("if it comes again: reseat the GPU, check its power cables and heat, update firmware, then replace it"),
    team=Team.HARDWARE,
)
RESTART_HIT_PROGRAM: Final = Remedy(
    "restart_hit_program", "restart the program that was hit (dmesg names its pid)", team=Team.OWNER
)
ASK_RECOVERY: Final = Remedy(
    "ask_recovery",
    "nvidia-smi -q -i {index:count} | grep -i recovery says which: none, reset, reboot, drain",
    team=Team.HARDWARE,
)
LOOK_UP_XID: Final = Remedy(
    "look_up_xid",
    ("`dmesg | grep Xid` has its text; look it up in NVIDIA's Xid catalogue (docs.nvidia.com/deploy/xid-errors)"),
    team=Team.HARDWARE,
)
READ_PROGRAM_LOG: Final = Remedy(
    "read_program_log",
    (
        "no hardware action: `dmesg | grep Xid` names the pid; read that program's log, run it under "
        "compute-sanitizer; only if it follows the GPU from program to program: dcgmi diag -r 3"
    ),
    team=Team.OWNER,
)
FIND_KILLER: Final = Remedy(
    "find_killer",
    ("no hardware action: look for the Xid before it, and for who killed the program (dmesg: oom, kill)"),
    team=Team.OWNER,
)


class Xid(msgspec.Struct, frozen=True):
    """A class of Xid."""

    text: str
    level: Level
    actions: tuple[Remedy, ...]
    is_application: bool = False
    """A program caused it, or suffers it; the GPU goes on."""
    confidence: Confidence = Confidence.HIGH


def _program_xid(text: str, level: Level = Level.NOTE, action: Remedy = READ_PROGRAM_LOG) -> Xid:
    """A class of Xid that a program causes."""
    return Xid(text, level, (action,), is_application=True, confidence=Confidence.MEDIUM)


RESET: Final = (RESET_GPU,)
"""Actions against most faults of the hardware; the others are those of groups of Xids."""
_GSP: Final = (RESET_GPU, UPDATE_DRIVER, REPLACE_IF_AGAIN)
_NVLINK: Final = (RESET_SPAN, COUNT_NVLINK_ERRORS)
_ECC_RESET: Final = (RESET_GPU, DIAGNOSE_IF_AGAIN)

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
        action=FIND_KILLER,
    ),
    46: Xid("the GPU stopped processing", Level.CRITICAL, RESET),
    48: Xid("double bit ECC error: data in memory is wrong", Level.CRITICAL, _ECC_RESET),
    61: Xid("internal micro-controller warning", Level.WARN, RESET, confidence=Confidence.MEDIUM),
    62: Xid("internal micro-controller halt", Level.CRITICAL, RESET),
    63: Xid(
        "a memory row was marked for remapping (or a page retired): repaired at the next reset",
        Level.WARN,
        (RESET_WHEN_FREE, COUNT_SPARE_ROWS),
    ),
    64: Xid(
        "a memory row could not be remapped (or a page not retired)",
        Level.CRITICAL,
        (RESET_GPU, REPLACE_IF_REMAP_FAILED),
    ),
    66: _program_xid("illegal access by driver code", Level.WARN),
    68: _program_xid("video decoder exception"),
    69: _program_xid("graphics engine class error: a program's bad command"),
    74: Xid("NVLink error", Level.CRITICAL, _NVLINK),
    79: Xid(
        "fallen off the bus: the machine does not reach it over PCIe",
        Level.CRITICAL,
        (POWER_CYCLE, RESEAT_IF_AGAIN),
    ),
    92: Xid("many single bit ECC errors: corrected, but more than there should be", Level.WARN, (DIAGNOSE_WHEN_FREE,)),
    94: Xid(
        "contained ECC error: one program lost its data, the others are safe",
        Level.WARN,
        (RESTART_HIT_PROGRAM, RESET_WHEN_FREE),
    ),
    95: Xid("uncontained ECC error: any program on it may have wrong data", Level.CRITICAL, _ECC_RESET),
    109: Xid("a context switch did not end in time", Level.WARN, RESET, confidence=Confidence.MEDIUM),
    110: Xid("security fault", Level.CRITICAL, (POWER_CYCLE,)),
    119: Xid("GSP did not answer in time", Level.CRITICAL, _GSP),
    120: Xid("GSP failed", Level.CRITICAL, _GSP),
    121: Xid("corrected error of the link to the CPU (C2C)", Level.WARN, (RESET_WHEN_FREE,)),
    136: Xid("an NVLink could not be trained", Level.CRITICAL, _NVLINK),
    137: _program_xid("NVLink: a program's illegal access to the memory of another GPU"),
    140: Xid("unrecovered ECC error", Level.CRITICAL, _ECC_RESET),
    143: Xid("the GPU could not be initialised", Level.CRITICAL, RESET),
    **{code: Xid("NVLink 5 error", Level.CRITICAL, _NVLINK) for code in range(144, 151)},
    154: Xid("the driver changed the recovery that it advises", Level.WARN, (ASK_RECOVERY,)),
}
"""Xid -> what it is. 31, 43 and 45 are left out by NVIDIA's own device plugin for Kubernetes, as a program's faults."""


def xid_of(code: int) -> Xid:
    """The class of a code; one that is not known says so."""
    return XIDS.get(code) or Xid(
        "not in gpumon's table",
        Level.WARN,
        (LOOK_UP_XID,),
        confidence=Confidence.LOW,
    )
