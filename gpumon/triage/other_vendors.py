"""Actions on GPUs that are not NVIDIA's: the same advice with the commands of AMD's `amd-smi` (ROCm 6.3 and newer)."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from gpumon.readings.amd import AMDSMI
from gpumon.readings.frame import GpuReading
from gpumon.readings.sysfs import SYSFS
from gpumon.readings.verdict import Action, Team
from gpumon.triage.finding import Remedy

_SOURCES: Final = (AMDSMI, SYSFS)
"""`GpuReading.source` of GPUs that NVIDIA's commands do not reach."""
OF_AMD: Final = MappingProxyType(
    {
        "check_cooling": "check_cooling_amd",
        "check_cooling_and_power": "check_cooling_amd",
        "diagnose_if_again": "replace_if_again",
        "diagnose_when_free": "replace_if_again",
        "end_holders": "end_holders_amd",
        "find_hidden_process": "find_hidden_process_amd",
        "inspect_gpu": "inspect_gpu_amd",
        "lower_power_limit": "lower_power_limit_amd",
        "nvlink_gpus": "xgmi_gpus",
        "reset_gpu": "reset_gpu_amd",
        "reset_mute_gpu": "reset_mute_gpu_amd",
        "reset_when_free": "reset_when_free_amd",
        "restore_power_limit": "restore_power_limit_amd",
    }
)
"""Code of an action with a command of NVIDIA's -> that of the same action with AMD's."""


CHECK_COOLING_AMD: Final = Remedy(
    "check_cooling_amd",
    ("check fans, airflow, inlet temperature, dust and power supply: amd-smi metric --gpu {index:count}"),
    team=Team.HARDWARE,
)
FIND_HIDDEN_PROCESS_AMD: Final = Remedy(
    "find_hidden_process_amd",
    ("start gpumon with --pid=host (Kubernetes: hostPID: true) to see it, or look with amd-smi process on the host"),
    team=Team.HOST,
)
INSPECT_GPU_AMD: Final = Remedy(
    "inspect_gpu_amd",
    ("look at gpu {index:count}: clocks (amd-smi metric --gpu {index:count}), heat, link, other processes on it"),
    team=Team.HARDWARE,
)
LOWER_POWER_LIMIT_AMD: Final = Remedy(
    "lower_power_limit_amd",
    (
        "until then a lower power limit keeps the clocks steady: sudo amd-smi set --gpu "
        "{index:count} --power-cap {watts:count}, and --power-cap {limit_w:count} takes it back"
    ),
    team=Team.HOST,
)
END_HOLDERS_AMD: Final = Remedy(
    "end_holders_amd",
    (
        "drain it, then end what holds it: sudo fuser -v /dev/kfd lists what has any of the GPUs "
        "open, monitors, too; a process that does not end (state D) ends with a reboot only"
    ),
    team=Team.HARDWARE,
)
RESET_MUTE_GPU_AMD: Final = Remedy(
    "reset_mute_gpu_amd",
    (
        "once nothing holds it: sudo amd-smi reset --gpureset --gpu {index:count}; where that is "
        "refused, or hangs, as amd-smi may at this GPU: drain the node and reboot it"
    ),
    team=Team.HARDWARE,
)
RESET_GPU_AMD: Final = Remedy(
    "reset_gpu_amd",
    ("drain it, then sudo amd-smi reset --gpureset --gpu {index:count} (reboot where that is refused)"),
    team=Team.HARDWARE,
)
RESET_WHEN_FREE_AMD: Final = Remedy(
    "reset_when_free_amd",
    "reset it when it is free: sudo amd-smi reset --gpureset --gpu {index:count}",
    team=Team.HARDWARE,
)
RESTORE_POWER_LIMIT_AMD: Final = Remedy(
    "restore_power_limit_amd",
    (
        "[sudo amd-smi set --gpu {index:count} --power-cap {watts:count} sets the default|normal for "
        "a card with a small power limit under dense work; where it was lowered: amd-smi static "
        "--gpu {index:count} shows the limits]"
    ),
    team=Team.HOST,
)
XGMI_GPUS: Final = Remedy("xgmi_gpus", "GPUs that XGMI links join (gpumon topo)", team=Team.SCHEDULER)


def fitting_actions(actions: tuple[Action, ...], gpus: Sequence[GpuReading]) -> tuple[Action, ...]:
    """The actions for the GPUs of this host, which are all of one maker."""
    if not any(gpu.source in _SOURCES for gpu in gpus):
        return actions
    fitting = [Action(OF_AMD.get(action.code, action.code), action.parameters) for action in actions]
    return tuple(fitting)
