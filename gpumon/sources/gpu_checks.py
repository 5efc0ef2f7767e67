"""The doctor's checks of the driver and the GPUs: which figures it gives here, which not, and why."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from gpumon.deadline import timeout
from gpumon.efficiency.peaks import gpu_facts
from gpumon.figures.gpu import GPU
from gpumon.readings.check import Check, CheckState
from gpumon.readings.dcgm import DCGM
from gpumon.readings.format import beyond_loss
from gpumon.readings.frame import GpuReading, GpuState
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.untrusted import Untrusted
from gpumon.sources.driver.source import AMD, INTEL, NVIDIA, Vendor
from gpumon.sources.offload import in_daemon_thread
from gpumon.sources.source import Contribution
from gpumon.sources.sysfs.checks import sysfs_checks
from gpumon.specs.gpu import GpuSpec
from gpumon.specs.gpus import GpuCatalogue, bandwidth_peak

_PROC: Final = Path("/proc")
MAPS_S: Final = 1.0
"""Longest wait for the list of what the worker has loaded."""

_FIGURES: Final = (
    *("busy_ratio", "vram_used_bytes", "power_w", "power_limit_w", "energy_j", "temperature_c", "sm_clock_hz"),
    *("memory_busy_ratio", "pcie_generation", "ecc_uncorrected", "remap_pending"),
)
"""Fields of GpuReading that every GPU should have."""
ACTIVITY: Final = ("sm_active_ratio", "tensor_active_ratio", "dram_active_ratio")
"""Fields of GpuReading that come from GPM."""

GPM_OFF_FIX: Final = (
    "without it bandwidth is an upper bound, or modelled from the engines; a dcgm-exporter measures it on older GPUs "
    "too: gpumon --dcgm URL"
)
GPM_RIGHT_FIX: Final = (
    "sudo gpumon doctor shows whether it is the permission; to lift it for all users: "
    "options nvidia NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d/, then reload the driver"
)
_LIBRARIES: Final = {NVIDIA: "NVML", AMD: "AMD SMI", INTEL: "sysfs"}
"""Vendor -> where its figures are from, as checks name it."""
_STATE_OF_CHECK: Final = {
    GpuState.OK: CheckState.OK,
    GpuState.INITIALISING: CheckState.WARN,
    GpuState.STALE: CheckState.WARN,
}
"""State of a GPU -> state of its check; any other state fails."""


async def driver_checks(driver: Contribution, vendor: Vendor = NVIDIA, proc: Path = _PROC) -> list[Check]:
    """The checks of library, driver and permission; `driver` is what its source gave at the end of its deadline."""
    fault_state = CheckState.WARN if driver.gpus else CheckState.FAIL
    checks = [Check("driver", _LIBRARIES[vendor], fault_state, fault.text) for fault in driver.faults]
    checks += await _library_checks(driver.pids, proc)
    if driver.driver:
        cuda = f", CUDA up to {driver.cuda}" if driver.cuda else ""
        # Drivers of AMD and Intel were not tried on hardware.
        state = CheckState.OK if vendor is NVIDIA else CheckState.WARN
        checks.append(Check("driver", "version", state, f"{driver.driver}{cuda}"))
        checks += _module_checks(driver.driver, proc)
    if driver.gpus and vendor is NVIDIA:
        checks += _profiling_checks(proc)
    checks += sysfs_checks(driver, vendor)
    return checks


async def _library_checks(pids: Iterable[int], proc: Path) -> list[Check]:
    """The library that the worker has loaded.

    A thread reads it, within `MAPS_S`: the kernel takes the worker's memory lock for it, which the driver may hold.
    """
    try:
        async with timeout(MAPS_S):
            path = await in_daemon_thread(_loaded_library, tuple(pids), proc)
    except asyncio.TimeoutError:
        return [Check("driver", "library", CheckState.WARN, "not known: the worker process hangs inside the driver")]
    if path:
        return [Check("driver", "library", CheckState.OK, path)]
    return []


def _loaded_library(pids: Iterable[int], proc: Path) -> str:
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


def _module_checks(driver: str, proc: Path) -> list[Check]:
    """A warning where the kernel module's version is not the library's: after an update without a reboot. Else none."""
    try:
        text = (proc / "driver/nvidia/version").read_text(errors="replace")
    except OSError:
        return []
    first_line = text.partition("\n")[0]
    versions = re.findall(r"\b\d{3,}\.\d+(?:\.\d+)?\b", first_line)
    if not versions or versions[0] == driver:
        return []
    text = f"{versions[0]}, but the library is of {driver}"
    return [Check("driver", "kernel module", CheckState.WARN, text, "reboot, or reload the nvidia kernel modules")]


def _profiling_checks(proc: Path) -> list[Check]:
    """Who may read the profiling counters, where the kernel module tells it."""
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
    """Health, peaks, figures and activity of every GPU; GPUs with the same results share their lines."""
    names_by_checks: dict[tuple[Check | None, ...], list[str]] = {}
    for gpu in gpus:
        checks_of_gpu = (_health_check(gpu), _peaks_check(gpu, catalogue), _figures_check(gpu), _activity_check(gpu))
        names_by_checks.setdefault(checks_of_gpu, []).append(gpu_name(gpu))
    named_checks: list[Check] = []
    for checks, names in names_by_checks.items():
        for check in checks:
            if check is not None:
                name = f"{gpu_names(names)} {check.name}".rstrip()
                named_checks.append(Check("gpu", name, check.state, check.text, check.fix))
    return named_checks


def gpu_name(gpu: GpuReading) -> str:
    """The index of a GPU; for a slice, the index of its GPU and its profile."""
    if gpu.parent_uuid:
        return f"{gpu.index} {gpu.mig_profile or 'slice'}"
    return str(gpu.index)


def gpu_names(names: Sequence[str]) -> str:
    """The names as `0-2,4-7` for GPUs, `0 3g.40gb x2` for slices. Runs of three and more are shortened."""
    parts = [name if count == 1 else f"{name} x{count}" for name, count in Counter(names).items()]
    runs: list[list[str]] = []
    for part in parts:
        if runs and part.isdigit() and runs[-1][-1].isdigit() and int(part) == int(runs[-1][-1]) + 1:
            runs[-1].append(part)
        else:
            runs.append([part])
    texts = []
    for run in runs:
        if len(run) > 2:
            texts.append(f"{run[0]}-{run[-1]}")
        else:
            texts += run
    return ",".join(texts)


def _health_check(gpu: GpuReading) -> Check:
    """The name of a GPU, and what is wrong with it."""
    text = gpu.name or "unnamed GPU"
    if gpu.mig:
        text += " (MIG: its slices follow)"
    if gpu.state is not GpuState.OK:
        text += f": {gpu.state.value}"
    reason = beyond_loss(gpu.state_text)
    if reason:
        text += f": {reason}"
    return Check("gpu", "", _STATE_OF_CHECK.get(gpu.state, CheckState.FAIL), text)


def _peaks_check(gpu: GpuReading, catalogue: GpuCatalogue) -> Check | None:
    """The peaks of a GPU, or the lines of the config that tell them; None for a slice."""
    if gpu.state is not GpuState.OK or gpu.mig or gpu.parent_uuid:
        return None
    facts = gpu_facts(gpu)
    spec = catalogue.match(facts)
    bandwidth = bandwidth_peak(facts, spec)
    if spec is None and bandwidth is None:
        text = f"no peak is known for {gpu.name!r:.80}: MFU and MBU are not"
        return Check("gpu", "peaks", CheckState.WARN, text, _peaks_to_add(gpu.name))
    text = f"{_bandwidth_text(bandwidth)}; dense TFLOP/s: {_dense_peaks(spec)}"
    if spec is None or bandwidth is None or not spec.flops_per_s or not all(spec.flops_per_s.values()):
        return Check("gpu", "peaks", CheckState.WARN, text, _peaks_to_add(gpu.name))
    state = CheckState.OK if spec.verified else CheckState.WARN
    return Check("gpu", "peaks", state, text)


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
        figure = f"{peak / 1e12:.0f}" if peak else "not known"
        peaks.append(f"{kind.value} {figure}")
    return f"{', '.join(peaks)} ({spec.source})"


def _peaks_to_add(name: str) -> str:
    """The lines of the config that name a GPU's peaks, for the user to fill in."""
    quoted = Untrusted(name).in_config(80)
    figures = "".join(f"#{key} = \n" for key in ("bf16_tflops", "fp8_tflops", "bandwidth_gbs"))
    return f"if you know its peaks, dense, add to the config:\n[[gpu]]\nname = {quoted}\n{figures}".rstrip("\n")


def _figures_check(gpu: GpuReading) -> Check | None:
    """How many of the usual figures a GPU has, and why the others are missing; None for a slice."""
    if gpu.state is not GpuState.OK or gpu.parent_uuid:
        return None
    missing = _missing_figures(gpu, _FIGURES)
    if not missing:
        return Check(
            "gpu", "figures", CheckState.OK, f"all {len(_FIGURES)}: {', '.join(GPU[field].name for field in _FIGURES)}"
        )
    present = len(_FIGURES) - sum(map(len, missing.values()))
    text = f"{present} of {len(_FIGURES)}; not there: {_list_missing(missing)}"
    return Check("gpu", "figures", _state_of_missing(missing), text)


def _activity_check(gpu: GpuReading) -> Check | None:
    """Which activity of a GPU or slice is measured; None for a GPU with slices, which have it."""
    if gpu.state is not GpuState.OK or gpu.mig:
        return None
    missing = _missing_figures(gpu, ACTIVITY)
    if gpu.activity_source == DCGM:
        return _dcgm_activity_check(gpu, missing)
    if not missing:
        return Check("gpu", "activity (GPM)", CheckState.OK, "SM, tensor and DRAM activity are measured")
    if gpu.source == DCGM:
        return Check(
            "gpu",
            "activity (DCGM)",
            _state_of_missing(missing),
            f"not there: {_list_missing(missing)}",
            "see dcgm profiling above",
        )
    if gpu.source in (AMD.source, INTEL.source):
        text = "not read from GPUs of AMD and Intel: bandwidth is modelled from the engines"
        return Check("gpu", "activity", CheckState.OFF, text)
    reasons = {why.reason for why in missing}
    fix = GPM_RIGHT_FIX if Reason.NO_PERMISSION in reasons else GPM_OFF_FIX
    return Check("gpu", "activity (GPM)", _state_of_missing(missing), f"not there: {_list_missing(missing)}", fix)


def _dcgm_activity_check(gpu: GpuReading, missing: dict[Missing, list[str]]) -> Check:
    """The activity that a dcgm-exporter measures beside the driver."""
    measured = ", ".join(GPU[field].name for field in ACTIVITY if field in gpu.from_dcgm)
    absent = f"; not there: {_list_missing(missing)}" if missing else ""
    return Check("gpu", "activity (DCGM)", CheckState.OK, f"measured: {measured}{absent}")


def _missing_figures(gpu: GpuReading, fields: Iterable[str]) -> dict[Missing, list[str]]:
    """The names of the figures that a GPU lacks, by the reason."""
    missing: dict[Missing, list[str]] = {}
    for field in fields:
        value = getattr(gpu, field)
        if isinstance(value, Missing):
            missing.setdefault(value, []).append(GPU[field].name)
    return missing


def _list_missing(missing: dict[Missing, list[str]]) -> str:
    """The missing figures as `ECC uncorrected, remap pending (not supported); energy (...)`."""
    parts = []
    for why, words in missing.items():
        reason = why.detail or why.reason.value.replace("_", " ")
        parts.append(f"{', '.join(words)} ({reason})")
    return "; ".join(parts)


def _state_of_missing(missing: dict[Missing, list[str]]) -> CheckState:
    """The state of a check by what is missing: figures that were refused or failed are to be mended, others are not."""
    without_mending = {Reason.NOT_SUPPORTED, Reason.UNDER_MIG, Reason.OFF, Reason.NOT_EXPOSED}
    if {why.reason for why in missing} <= without_mending:
        return CheckState.OFF
    return CheckState.WARN
