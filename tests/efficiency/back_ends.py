"""A GPU of each back end, as its real reader makes it where all is there that the back end can tell."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from gpumon.readings.dcgm import DCGM_METRICS
from gpumon.readings.frame import GpuReading
from gpumon.readings.smi import SMI_FIGURES
from gpumon.sources import amd
from gpumon.sources.dcgm_gpus import ExporterGpus
from gpumon.sources.dcgm_page import WANTED, read_page
from gpumon.sources.driver.calls import Calls, CallTrace
from gpumon.sources.driver.fleet import DriverGpu, Pcie
from gpumon.sources.driver.names import ProcessNames
from gpumon.sources.driver.wire import Timings
from gpumon.sources.exposition import Scanner
from gpumon.sources.guest.smi import INDEX, UUID, parse_smi_gpus
from gpumon.sources.nvml.driver import Nvml
from gpumon.sources.nvml.gpm import GpmRequest
from gpumon.sources.nvml.gpu import NvmlGpu, NvmlSession
from gpumon.sources.sysfs.amdgpu import amdgpu
from gpumon.sources.sysfs.driver import SysfsDriver
from gpumon.sources.sysfs.intel import intel
from tests.fakes.sysfs import Tree
from tests.sources.sysfs import dumps

NOW_S: Final = 1000.0


class Enumerators:
    """The enumerators of a library that is not loaded."""

    def __getattr__(self, name: str) -> str:
        return name


class UnreadableCalls:
    """A library each of whose calls sends what cannot be read, so that all that is asked for has that reason."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def unreadable(*_: object) -> Any:
            raise ValueError(name)

        return unreadable


def first_row(gpu: DriverGpu) -> GpuReading:
    """All that is read of a GPU whose figures are all due."""
    (reading,) = gpu.read(NOW_S, (), Pcie.OFF)
    return reading


def by_nvml(_: Path) -> GpuReading:
    """By NVML."""
    api = Nvml.api._replace(functions=UnreadableCalls())
    session = NvmlSession(api, Timings(), GpmRequest(), ProcessNames(), CallTrace(), own_namespace=False)
    return first_row(NvmlGpu(0, None, "GPU-0", session))


def by_smi(_: Path) -> GpuReading:
    """By nvidia-smi, as on a host without gpumon."""
    columns = (INDEX, UUID, "name", *(column.name for column in SMI_FIGURES))
    line = ", ".join(("0", "GPU-0", "NVIDIA A100", *("1" for _ in SMI_FIGURES)))
    (reading,) = parse_smi_gpus([line], columns, NOW_S, {})
    return reading


def by_dcgm(_: Path) -> GpuReading:
    """By a dcgm-exporter alone."""
    lines = [f'{metric.names[0][0]}{{gpu="0",UUID="GPU-0"}} 1\n' for metric in DCGM_METRICS]
    exporter = ExporterGpus(shortest_s=1.0)
    exporter.follow(read_page(Scanner(WANTED).scan("".join(lines).encode())), now_s=NOW_S, wall_s=1e9)
    (reading,) = exporter.readings
    return reading


@contextmanager
def unreadable_amd_gpu(trace: CallTrace) -> Iterator[amd.AmdGpu]:
    """A GPU of AMD's library, each of whose calls sends what cannot be read."""
    enumerators = Enumerators()
    binding = SimpleNamespace(
        AmdSmiClkType=enumerators, AmdSmiTemperatureType=enumerators, AmdSmiTemperatureMetric=enumerators
    )
    timings = Timings()
    calls = Calls(amd.Amd.api._replace(functions=UnreadableCalls()), timings, trace)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(amd, "amdsmi", binding)
        yield amd.AmdGpu(0, None, "amd-0", calls, timings)


def by_amdsmi(_: Path) -> GpuReading:
    """By AMD's library."""
    with unreadable_amd_gpu(CallTrace()) as gpu:
        return first_row(gpu)


def by_files(driver: SysfsDriver) -> GpuReading:
    """The first card of a driver of the kernel."""
    assert driver.count() == 1
    return first_row(driver.open(0, None, Timings(), CallTrace()))


def by_amdgpu(folder: Path) -> GpuReading:
    """By the files of amdgpu: a Radeon's fan, and the error counts of an Instinct."""
    tree = Tree(folder / "amdgpu")
    errors = {name: text for name, text in dumps.MI300X.items() if "ras" in name}
    tree.card("card0", {**dumps.RX_7900_XTX, **errors})
    return by_files(amdgpu(tree.root))


def by_intel(folder: Path) -> GpuReading:
    """By the files of xe, with those for limits and memory that few cards have."""
    tree = Tree(folder / "intel")
    limits = {f"device/hwmon/hwmon2/power1_{kind}": "190000000\n" for kind in ("max", "rated_max")}
    tree.card(
        "card0", {**dumps.B580, **limits, "lmem_total_bytes": "12884901888\n", "lmem_avail_bytes": "12000000000\n"}
    )
    return by_files(intel(tree.root))


BACK_ENDS: Final = (by_nvml, by_smi, by_dcgm, by_amdsmi, by_amdgpu, by_intel)
