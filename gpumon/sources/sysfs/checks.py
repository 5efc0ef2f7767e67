"""The doctor's look at GPUs that are read by the files of the kernel: what their vendor's library would add."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from sys import executable

from gpumon.readings.check import Check, CheckState
from gpumon.readings.sysfs import SYSFS
from gpumon.sources.driver.source import AMD, Vendor
from gpumon.sources.source import Contribution
from gpumon.sources.sysfs import INTEGRATED_VARIABLE, SYS
from gpumon.sources.sysfs.amdgpu import MORE, PACKAGE
from gpumon.sources.sysfs.cards import INTEL_DRIVERS, cards, shows_integrated


def sysfs_checks(driver: Contribution, vendor: Vendor, sys: Path = SYS) -> Iterator[Check]:
    """AMD SMI where it is not used, and the GPU of the CPU where it is left out."""
    if vendor is AMD and any(gpu.source == SYSFS for gpu in driver.gpus):
        yield _without_amd_smi()
    if shows_integrated():
        return
    for card in cards(sys, INTEL_DRIVERS):
        if card.is_integrated:
            text = f"the GPU of the CPU ({card.slot}, {card.driver}) is left out"
            yield Check("driver", "integrated GPU", CheckState.OFF, text, f"{INTEGRATED_VARIABLE}=1 gpumon shows it")


def _without_amd_smi() -> Check:
    """The check that AMD SMI is not used: why, what it would add, and what installs it."""
    if find_spec("amdsmi") is None:
        why = "its Python package amdsmi is not installed"
        fix = f"{shlex.quote(executable)} -m pip install {PACKAGE}, and ROCm's amd-smi-lib if the host lacks it"
    else:
        why = "its library libamd_smi.so cannot be loaded"
        fix = "install ROCm's amd-smi-lib, of the version of the Python package amdsmi"
    text = f"{why}: figures are those of sysfs, without {MORE}"
    return Check("driver", "AMD SMI", CheckState.WARN, text, fix)
