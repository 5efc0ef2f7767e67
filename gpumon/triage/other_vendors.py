"""Actions on GPUs that are not NVIDIA's: the same advice with the commands of AMD's `amd-smi` (ROCm 6.3 and newer)."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from gpumon.readings.frame import GpuReading
from gpumon.readings.verdict import Action

_SOURCES: Final = ("amdsmi", "sysfs")
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


def fitting_actions(actions: tuple[Action, ...], gpus: Sequence[GpuReading]) -> tuple[Action, ...]:
    """The actions for the GPUs of this host, which are all of one maker."""
    if not any(gpu.source in _SOURCES for gpu in gpus):
        return actions
    fitting = []
    for action in actions:
        fitting.append(Action(OF_AMD.get(action.code, action.code), action.parameters))
    return tuple(fitting)
