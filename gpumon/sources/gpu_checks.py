"""The doctor's look at the driver and the GPUs: what NVML gives here, what it does not, and why."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from gpumon.deadline import timeout
from gpumon.efficiency.peaks import gpu_facts
from gpumon.readings.check import Check, CheckState
from gpumon.readings.dcgm import DCGM
from gpumon.readings.frame import GpuReading, GpuState
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.text import clean
from gpumon.sources.driver.source import AMD, INTEL, NVIDIA, Vendor
from gpumon.sources.offload import in_daemon_thread
from gpumon.sources.source import Contribution
from gpumon.sources.sysfs.checks import sysfs_checks
from gpumon.specs.gpu import GpuSpec
from gpumon.specs.gpus import GpuCatalogue, bandwidth_peak

_PROC: Final = Path("/proc")
MAPS_S: Final = 1.0
"""Longest wait for the list of what the worker has loaded."""

_FIGURES: Final = {
    "busy_ratio": "busy",
    "vram_used_bytes": "VRAM",
    "power_w": "power",
    "power_limit_w": "power limit",
    "energy_j": "energy",
    "temperature_c": "temperature",
    "sm_clock_hz": "SM clock",
    "memory_busy_ratio": "memory busy",
    "pcie_generation": "PCIe link",
    "ecc_uncorrected": "ECC",
    "remap_pending": "row remap",
}
ACTIVITY: Final = {
    "sm_active_ratio": "SM active",
    "tensor_active_ratio": "tensor active",
    "dram_active_ratio": "DRAM active",
}
"""Fields of GpuReading that come from GPM, and the names that the user reads."""

GPM_OFF_FIX: Final = (
    "without it bandwidth is an upper bound, or modelled from the engines; a dcgm-exporter measures it on older GPUs "
    "too: gpumon --dcgm URL"
)
GPM_RIGHT_FIX: Final = (
    "sudo gpumon doctor shows whether it is the permission; to lift it for all users: "
    "options nvidia NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d/, then reload the driver"
)
_DRIVERS: Final = {NVIDIA: "NVML", AMD: "AMD SMI", INTEL: "sysfs"}
_HEALTH: Final = {
    GpuState.OK: CheckState.OK,
    GpuState.INITIALISING: CheckState.WARN,
    GpuState.STALE: CheckState.WARN,
}


async def driver_checks(driver: Contribution, vendor: Vendor = NVIDIA, proc: Path = _PROC) -> list[Check]:
    """Library, driver, permission. `found` is what the driver's source gave at the end of its deadline."""
    state = CheckState.WARN if driver.gpus else CheckState.FAIL
    checks = [Check("driver", _DRIVERS[vendor], state, fault.text) for fault in driver.faults]
    checks += await _library(driver.pids, proc)
    if driver.driver:
        cuda = ""
        if driver.cuda:
            cuda = f", CUDA up to {driver.cuda}"
        tried = CheckState.OK if vendor is NVIDIA else CheckState.WARN
        checks.append(Check("driver", "version", tried, f"{driver.driver}{cuda}"))
        checks += _module(driver.driver, proc)
    if driver.gpus and vendor is NVIDIA:
        checks += _profiling(proc)
    checks += sysfs_checks(driver, vendor)
    return checks


async def _library(pids: Iterable[int], proc: Path) -> list[Check]:
    """The library that the worker has loaded. To tell it takes the worker's memory lock, which the driver may hold."""
    try:
        async with timeout(MAPS_S):
            path = await in_daemon_thread(_loaded, tuple(pids), proc)
    except asyncio.TimeoutError:
        return [Check("driver", "library", CheckState.WARN, "not known: the worker process hangs inside the driver")]
    if path:
        return [Check("driver", "library", CheckState.OK, path)]
    return []


def _loaded(pids: Iterable[int], proc: Path) -> str:
    """Path of the driver library that the worker has loaded; empty where it has none."""
    for pid in pids:
        try:
            maps = (proc / str(pid) / "maps").read_text(errors="replace")
        except OSError:
            continue
        for line in maps.splitlines():
            if "libnvidia-ml.so" in line or "libamd_smi.so" in line:
                return line[line.index("/") :]
    return ""


def _module(driver: str, proc: Path) -> list[Check]:
    """The kernel module's version against the library's: they differ after an update without a reboot."""
    try:
        text = (proc / "driver/nvidia/version").read_text(errors="replace")
    except OSError:
        return []
    versions = re.findall(r"\b\d{3,}\.\d+(?:\.\d+)?\b", text.splitlines()[0] if text else "")
    if not versions or versions[0] == driver:
        return []
    text = f"{versions[0]}, but the library is of {driver}"
    return [Check("driver", "kernel module", CheckState.WARN, text, "reboot, or reload the nvidia kernel modules")]


def _profiling(proc: Path) -> list[Check]:
    try:
        params = (proc / "driver/nvidia/params").read_text(errors="replace")
    except OSError:
        return []
    restricted = re.search(r"^RmProfilingAdminOnly:\s*(\d+)", params, re.MULTILINE)
    if restricted is None:
        return []
    text = "for administrators only (RmProfilingAdminOnly)" if restricted[1] != "0" else "for all users"
    return [Check("driver", "profiling counters", CheckState.OK, text)]


def gpu_checks(gpus: Sequence[GpuReading], catalogue: GpuCatalogue) -> list[Check]:
    """Health, figures, activity and peaks of every GPU; GPUs that are alike share their lines."""
    alike: dict[tuple[Check | None, ...], list[str]] = {}
    for gpu in gpus:
        checks = (_health(gpu), _peaks(gpu, catalogue), _figures(gpu), _activity(gpu))
        alike.setdefault(checks, []).append(gpu_name(gpu))
    named: list[Check] = []
    for checks_of_gpus, names in alike.items():
        for check in checks_of_gpus:
            if check is not None:
                name = f"{gpu_names(names)} {check.name}".rstrip()
                named.append(Check("gpu", name, check.state, check.text, check.fix))
    return named


def gpu_name(gpu: GpuReading) -> str:
    """Its index; of a slice with its profile."""
    if gpu.parent_uuid:
        return f"{gpu.index} {gpu.mig_profile or 'slice'}"
    return str(gpu.index)


def gpu_names(names: Sequence[str]) -> str:
    """`0-2,4-7` for GPUs, `0 3g.40gb x2` for slices."""
    parts = []
    for name, count in Counter(names).items():
        if count == 1:
            parts.append(name)
        else:
            parts.append(f"{name} x{count}")
    runs: list[list[str]] = []
    for part in parts:
        if runs and part.isdigit() and runs[-1][-1].isdigit() and int(part) == int(runs[-1][-1]) + 1:
            runs[-1].append(part)
        else:
            runs.append([part])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(run) for run in runs)


def _health(gpu: GpuReading) -> Check:
    mig = " (MIG: its slices follow)" if gpu.mig else ""
    text = f"{gpu.name or 'unnamed GPU'}{mig}" + ("" if gpu.state is GpuState.OK else f": {gpu.state.value}")
    if gpu.state_text:
        text += f": {gpu.state_text}"
    return Check("gpu", "", _HEALTH.get(gpu.state, CheckState.FAIL), text)


def _peaks(gpu: GpuReading, catalogue: GpuCatalogue) -> Check | None:
    if gpu.state is not GpuState.OK or gpu.mig or gpu.parent_uuid:
        return None
    facts = gpu_facts(gpu)
    spec = catalogue.match(facts)
    bandwidth = bandwidth_peak(facts, spec)
    if spec is None and bandwidth is None:
        text = f"no peak is known for {gpu.name!r:.80}: MFU and MBU are not"
        return Check("gpu", "peaks", CheckState.WARN, text, _own_peaks(gpu.name))
    text = f"{_bandwidth_text(bandwidth)}; dense TFLOP/s: {_dense_peaks(spec)}"
    if spec is None or bandwidth is None or not _has_all_peaks(spec):
        return Check("gpu", "peaks", CheckState.WARN, text, _own_peaks(gpu.name))
    return Check("gpu", "peaks", CheckState.OK if spec.verified else CheckState.WARN, text)


def _has_all_peaks(spec: GpuSpec) -> bool:
    return bool(spec.flops_per_s) and all(spec.flops_per_s.values())


def _bandwidth_text(bandwidth: tuple[float, str] | None) -> str:
    """The peak of the memory and where it is from."""
    if bandwidth is None:
        return "GB/s not known"
    return f"{bandwidth[0] / 1e9:.0f} GB/s ({bandwidth[1]})"


def _dense_peaks(spec: GpuSpec | None) -> str:
    """Peaks in TFLOP/s by precision and where they are from, as `bf16 989, fp8 1979 (NVIDIA)`."""
    if spec is None:
        return "not known (no source)"
    if not spec.flops_per_s:
        return f"not known ({spec.source})"
    peaks = []
    for kind, peak in spec.flops_per_s.items():
        figure = "not known"
        if peak:
            figure = f"{peak / 1e12:.0f}"
        peaks.append(f"{kind.value} {figure}")
    return f"{', '.join(peaks)} ({spec.source})"


def _own_peaks(name: str) -> str:
    """The lines of the config that tell what gpumon does not know."""
    quoted = json.dumps(clean(name, 80), ensure_ascii=False)
    figures = "".join(f"#{key} = \n" for key in ("bf16_tflops", "fp8_tflops", "bandwidth_gbs"))
    return f"if you know its peaks, dense, add to the config:\n[[gpu]]\nname = {quoted}\n{figures}".rstrip("\n")


def _figures(gpu: GpuReading) -> Check | None:
    if gpu.state is not GpuState.OK or gpu.parent_uuid:
        return None
    gone = _gone(gpu, _FIGURES)
    if not gone:
        return Check("gpu", "figures", CheckState.OK, f"all {len(_FIGURES)}: {', '.join(_FIGURES.values())}")
    text = f"{len(_FIGURES) - sum(map(len, gone.values()))} of {len(_FIGURES)}; not there: {_listed(gone)}"
    return Check("gpu", "figures", _worst(gone), text)


def _activity(gpu: GpuReading) -> Check | None:
    if gpu.state is not GpuState.OK or gpu.mig:
        return None
    gone = _gone(gpu, ACTIVITY)
    if gpu.activity_source == DCGM:
        return _dcgm_activity(gpu, gone)
    if not gone:
        return Check("gpu", "activity (GPM)", CheckState.OK, "SM, tensor and DRAM activity are measured")
    if gpu.source == DCGM:
        return Check("gpu", "activity (DCGM)", _worst(gone), f"not there: {_listed(gone)}", "see dcgm profiling above")
    if gpu.source in (AMD.source, INTEL.source):
        text = "not read from GPUs of AMD and Intel: bandwidth is modelled from the engines"
        return Check("gpu", "activity", CheckState.OFF, text)
    reasons = {missing.reason for missing in gone}
    fix = GPM_RIGHT_FIX if Reason.NO_PERMISSION in reasons else GPM_OFF_FIX
    return Check("gpu", "activity (GPM)", _worst(gone), f"not there: {_listed(gone)}", fix)


def _dcgm_activity(gpu: GpuReading, gone: dict[Missing, list[str]]) -> Check:
    measured = ", ".join(word for field, word in ACTIVITY.items() if field in gpu.from_dcgm)
    absent = ""
    if gone:
        absent = f"; not there: {_listed(gone)}"
    return Check("gpu", "activity (DCGM)", CheckState.OK, f"measured: {measured}{absent}")


def _gone(gpu: GpuReading, fields: dict[str, str]) -> dict[Missing, list[str]]:
    gone: dict[Missing, list[str]] = {}
    for field, word in fields.items():
        value = getattr(gpu, field)
        if isinstance(value, Missing):
            gone.setdefault(value, []).append(word)
    return gone


def _listed(gone: dict[Missing, list[str]]) -> str:
    parts = []
    for missing, words in gone.items():
        why = missing.detail or missing.reason.value.replace("_", " ")
        parts.append(f"{', '.join(words)} ({why})")
    return "; ".join(parts)


def _worst(gone: dict[Missing, list[str]]) -> CheckState:
    """The state of a check by what is missing: figures that the hardware lacks need no mending, refused or failed ones
    do."""
    innate = {Reason.NOT_SUPPORTED, Reason.UNDER_MIG, Reason.OFF, Reason.NOT_EXPOSED}
    if {missing.reason for missing in gone} <= innate:
        return CheckState.OFF
    return CheckState.WARN
