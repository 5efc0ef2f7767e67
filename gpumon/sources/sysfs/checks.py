"""The doctor's look at GPUs that are read by the files of the kernel: what their vendor's library would add."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from gpumon.readings.check import Check, CheckState
from gpumon.sources.driver.source import AMD, Vendor
from gpumon.sources.source import Contribution
from gpumon.sources.sysfs.amdgpu import INSTALL, MORE
from gpumon.sources.sysfs.cards import INTEGRATED_VARIABLE, INTEL_DRIVERS, SYS, cards, shows_integrated
from gpumon.sources.sysfs.gpu import SOURCE


def sysfs_checks(driver: Contribution, vendor: Vendor, sys: Path = SYS) -> Iterator[Check]:
    """AMD SMI where it is not used, and the GPU of the CPU where it is left out."""
    if vendor is AMD and any(gpu.source == SOURCE for gpu in driver.gpus):
        text = f"{_why_without()}: figures are those of sysfs, without {MORE}"
        yield Check("driver", "AMD SMI", CheckState.WARN, text, INSTALL)
    if shows_integrated():
        return
    for card in cards(sys, INTEL_DRIVERS):
        if card.is_integrated:
            text = f"the GPU of the CPU ({card.slot}, {card.driver}) is left out"
            yield Check("driver", "integrated GPU", CheckState.OFF, text, f"{INTEGRATED_VARIABLE}=1 gpumon shows it")


def _why_without() -> str:
    if find_spec("amdsmi") is None:
        return "its Python package amdsmi is not installed"
    return "its library libamd_smi.so cannot be loaded"
