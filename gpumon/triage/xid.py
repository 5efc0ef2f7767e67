"""Xid errors of the NVIDIA driver: what each says, whose fault it is, how urgent, and the next step.

After NVIDIA's Xid catalogue (docs.nvidia.com/deploy/xid-errors), whose steps are: restart the application, reset the
GPU, restart the machine, or call support.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from gpumon.readings.snapshot import Confidence, Level

RESET_IT: Final = "nvidia-smi --gpu-reset -i {index} (reboot where that is refused)"
RESET: Final = "drain it, then " + RESET_IT
APPLICATION: Final = (
    "no hardware action: `dmesg | grep Xid` names the pid; read that program's log, run it under compute-sanitizer; "
    "only if it follows the GPU from program to program: dcgmi diag -r 3"
)


class Xid(NamedTuple):
    """A class of Xid. `{index}` in `action` is the GPU's."""

    text: str
    level: Level
    action: str
    is_application: bool = False
    """A program caused it, or suffers it; the GPU goes on."""
    confidence: Confidence = Confidence.HIGH


def _app(text: str, level: Level = Level.NOTE, action: str = APPLICATION) -> Xid:
    return Xid(text, level, action, is_application=True, confidence=Confidence.MEDIUM)


_GSP: Final = (
    "its firmware processor (GSP) does not answer: new jobs hang; "
    + RESET
    + "; update the driver; if it comes again on "
    "this GPU only, replace it"
)
_NVLINK: Final = (
    "drain the jobs that span GPUs, then " + RESET_IT + "; nvidia-smi nvlink -e -i {index} counts the errors of each "
    "link; if they grow again: reseat or replace GPU, bridge or switch"
)
_ECC_RESET: Final = RESET + "; if it comes again: dcgmi diag -r 3, then replace the GPU"

XIDS: Final[Mapping[int, Xid]] = {
    8: _app("the GPU stopped processing a program's work"),
    11: _app("invalid or corrupted command stream"),
    13: _app("graphics engine exception: a program's bad access or instruction"),
    31: _app("GPU memory page fault: a program's illegal address"),
    32: _app("corrupted command buffer", Level.WARN),
    38: Xid("driver firmware error", Level.WARN, RESET, confidence=Confidence.MEDIUM),
    43: _app("a program's channel was reset after its own fault"),
    44: Xid("graphics engine fault in a context switch", Level.WARN, RESET, confidence=Confidence.MEDIUM),
    45: _app(
        "a program's work was removed from the GPU (it was killed, or another Xid came before)",
        action="no hardware action: look for the Xid before it, and for who killed the program (dmesg: oom, kill)",
    ),
    46: Xid("the GPU stopped processing", Level.CRITICAL, RESET),
    48: Xid("double bit ECC error: data in memory is wrong", Level.CRITICAL, _ECC_RESET),
    61: Xid("internal micro-controller warning", Level.WARN, RESET, confidence=Confidence.MEDIUM),
    62: Xid("internal micro-controller halt", Level.CRITICAL, RESET),
    63: Xid(
        "a memory row was marked for remapping (or a page retired): repaired at the next reset",
        Level.WARN,
        "go on until there is time, then drain it and nvidia-smi --gpu-reset -i {index}; "
        "nvidia-smi -q -d ROW_REMAPPER -i {index} tells how many rows are left",
    ),
    64: Xid(
        "a memory row could not be remapped (or a page not retired)",
        Level.CRITICAL,
        RESET + "; nvidia-smi -q -d ROW_REMAPPER -i {index}: with a failed remapping replace the GPU (RMA)",
    ),
    66: _app("illegal access by driver code", Level.WARN),
    68: _app("video decoder exception"),
    69: _app("graphics engine class error: a program's bad command"),
    74: Xid("NVLink error", Level.CRITICAL, _NVLINK),
    79: Xid(
        "fallen off the bus: the machine does not reach it over PCIe",
        Level.CRITICAL,
        "drain this server and power-cycle it (a reboot is often not enough); if it comes again: reseat the GPU, check "
        "its power cables and heat, update firmware, then replace it",
    ),
    92: Xid(
        "many single bit ECC errors: corrected, but more than there should be",
        Level.WARN,
        "watch it: dcgmi diag -r 3 when it is free; replace the GPU if uncorrectable ones follow",
    ),
    94: Xid(
        "contained ECC error: one program lost its data, the others are safe",
        Level.WARN,
        "restart the program that was hit (dmesg names its pid); reset the GPU when it is free: "
        "nvidia-smi --gpu-reset -i {index}",
    ),
    95: Xid("uncontained ECC error: any program on it may have wrong data", Level.CRITICAL, _ECC_RESET),
    109: Xid("a context switch did not end in time", Level.WARN, RESET, confidence=Confidence.MEDIUM),
    110: Xid("security fault", Level.CRITICAL, "power-cycle this server; call NVIDIA support if it comes again"),
    119: Xid("GSP did not answer in time", Level.CRITICAL, _GSP),
    120: Xid("GSP failed", Level.CRITICAL, _GSP),
    121: Xid(
        "corrected error of the link to the CPU (C2C)",
        Level.WARN,
        "watch it: it repairs itself; reset the GPU when it is free: nvidia-smi --gpu-reset -i {index}",
    ),
    136: Xid("an NVLink could not be trained", Level.CRITICAL, _NVLINK),
    137: _app("NVLink: a program's illegal access to the memory of another GPU"),
    140: Xid("unrecovered ECC error", Level.CRITICAL, _ECC_RESET),
    143: Xid("the GPU could not be initialised", Level.CRITICAL, RESET),
    **{code: Xid("NVLink 5 error", Level.CRITICAL, _NVLINK) for code in range(144, 151)},
    154: Xid(
        "the driver changed the recovery that it advises",
        Level.WARN,
        "nvidia-smi -q -i {index} | grep -i recovery says which: none, reset, reboot, drain",
    ),
}
"""Xid -> what it is. 31, 43 and 45 are left out by NVIDIA's own device plugin for Kubernetes, as a program's faults."""


def xid_of(code: int) -> Xid:
    """The class of a code; one that is not known says so."""
    return XIDS.get(code) or Xid(
        "not in gpumon's table",
        Level.WARN,
        "`dmesg | grep Xid` has its text; look it up in NVIDIA's Xid catalogue (docs.nvidia.com/deploy/xid-errors)",
        confidence=Confidence.LOW,
    )
