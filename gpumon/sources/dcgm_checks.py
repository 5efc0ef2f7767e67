"""The doctor's checks of a dcgm-exporter: whether it answers, which GPUs it has, and which profiling figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gpumon.figures.gpu import GPU
from gpumon.readings.check import Check, CheckState
from gpumon.readings.dcgm import NAME_OF, RATIOS
from gpumon.readings.frame import GpuReading
from gpumon.readings.missing import Missing, Reason
from gpumon.sources.gpu_checks import gpu_name, gpu_names
from gpumon.sources.source import Contribution

COUNTERS_FIX: Final = (
    "add to the exporter's counters file (option -f; /etc/dcgm-exporter/default-counters.csv unless it was told\n"
    "another; in Kubernetes the ConfigMap that it names), and start it anew:"
)
"""Lines of the counters file follow."""
BLANK_FIX: Final = (
    "DCGM measures it on data centre GPUs from Volta on: its container needs --cap-add SYS_ADMIN, and no profiler "
    "(Nsight, another DCGM) may hold the counters"
)
_REASONS_WITHOUT_VALUE: Final = (Reason.NOT_EXPOSED, Reason.NOT_SUPPORTED)
"""Reasons of a figure without a value: some exporters leave out the series of such a GPU, others write DCGM's blank."""


def dcgm_checks(url: str, exporter: Contribution) -> list[Check]:
    """The checks of a dcgm-exporter at `url` after its first poll."""
    state = CheckState.WARN if exporter.gpus else CheckState.FAIL
    # A fault beside GPUs costs a part of the figures only: a warning.
    checks = [Check("dcgm", "exporter", state, f"{url} {fault.text}") for fault in exporter.faults]
    if exporter.gpus:
        checks.append(Check("dcgm", "exporter", CheckState.OK, f"{url} answers: {_count_by_name(exporter.gpus)}"))
        checks += _profiling_checks([gpu for gpu in exporter.gpus if not gpu.mig])
    return checks


def _count_by_name(gpus: Sequence[GpuReading]) -> str:
    """The GPUs by name and host, as `8 x NVIDIA A100-SXM4-80GB on node-7, 3 slices of ... on node-8`."""
    kinds: dict[tuple[str, str], int] = {}
    for gpu in gpus:
        kind = f"slices of {gpu.name}" if gpu.parent_uuid else f"x {gpu.name or 'unnamed GPU'}"
        kinds[kind, gpu.host] = kinds.get((kind, gpu.host), 0) + 1
    parts = []
    for (kind, host), count in kinds.items():
        place = f" on {host}" if host else ""
        parts.append(f"{count} {kind}{place}")
    return ", ".join(parts)


def _profiling_checks(gpus: Sequence[GpuReading]) -> list[Check]:
    """The checks of the profiling figures: which are measured, not on the page, or without a value.

    A GPU with slices is not among `gpus`: its slices have these figures.
    """
    checks = []
    measured = [GPU[field].name for field in RATIOS if _is_measured_everywhere(gpus, field)]
    if measured:
        checks.append(Check("dcgm", "profiling", CheckState.OK, f"measured: {', '.join(measured)}"))
    absent = [field for field in RATIOS if _is_on_no_page(gpus, field)]
    if absent:
        checks.append(_absent_check(absent))
    present = [field for field in RATIOS if field not in absent]
    for place, words in _figures_without_value(gpus, present).items():
        text = f"without a value{place}: {', '.join(words)}"
        checks.append(Check("dcgm", "profiling", CheckState.WARN, text, BLANK_FIX))
    return checks


def _absent_check(fields: Sequence[str]) -> Check:
    """The check of figures that no GPU has, with the lines of the counters file that add them."""
    lines = [f"{NAME_OF[field]}, gauge, {GPU[field].name}." for field in fields]
    text = f"not on its page: {', '.join(GPU[field].name for field in fields)}"
    return Check("dcgm", "profiling", CheckState.WARN, text, "\n".join((COUNTERS_FIX, *lines)))


def _is_measured_everywhere(gpus: Sequence[GpuReading], field: str) -> bool:
    return not any(isinstance(getattr(gpu, field), Missing) for gpu in gpus)


def _is_on_no_page(gpus: Sequence[GpuReading], field: str) -> bool:
    return all(_lacks(gpu, field, Reason.NOT_EXPOSED) for gpu in gpus)


def _figures_without_value(gpus: Sequence[GpuReading], fields: Sequence[str]) -> dict[str, list[str]]:
    """Names of the figures that some GPUs lack, by the words for these GPUs (` for GPU 1,3`; empty for all)."""
    words: dict[str, list[str]] = {}
    for field in fields:
        without = [gpu for gpu in gpus if any(_lacks(gpu, field, reason) for reason in _REASONS_WITHOUT_VALUE)]
        if without:
            words.setdefault(_which_gpus(without, gpus), []).append(GPU[field].name)
    return words


def _which_gpus(chosen: Sequence[GpuReading], gpus: Sequence[GpuReading]) -> str:
    """The chosen ones among the GPUs as ` for GPU 1,3 on node-7`; empty where all are chosen."""
    if len(chosen) == len(gpus):
        return ""
    by_host: dict[str, list[str]] = {}
    for gpu in chosen:
        by_host.setdefault(gpu.host, []).append(gpu_name(gpu))
    several_hosts = len({gpu.host for gpu in gpus}) > 1
    places = []
    for host, names in by_host.items():
        if several_hosts:
            places.append(f"{gpu_names(names)} on {host}")
        else:
            places.append(gpu_names(names))
    return f" for GPU {', '.join(places)}"


def _lacks(gpu: GpuReading, field: str, why: Reason) -> bool:
    """Whether the figure of a GPU is missing for this reason."""
    value = getattr(gpu, field)
    return isinstance(value, Missing) and value.reason is why
