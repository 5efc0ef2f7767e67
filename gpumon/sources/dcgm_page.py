"""A page of a dcgm-exporter to the figures of its GPUs: each GPU and MIG slice once, whoever shares it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from gpumon.readings.dcgm import DCGM_METRICS, ENGINE_ACTIVE, FREE_BYTES, PERCENT, PERCENT_ONCE, XID, DcgmMetric
from gpumon.readings.missing import Missing, Reading, Reason, number
from gpumon.sources.exposition import Scan, Series

MOST_GPUS: Final = 1024
"""GPUs and slices taken from one page."""
UNNUMBERED: Final = 1000
"""Stands for an index that is none; the GPU gets the next free one."""
_LARGEST: Final = 1e18
"""DCGM's blank integers are 2^63 - 16 and the numbers behind it."""
_BLANK: Final = (2.0**47, 2.0**47 + 16)
"""Its blank floats."""

_BY_NAME: Final = {name: (metric, factor) for metric in DCGM_METRICS for name, factor in metric.names}
WANTED: Final = frozenset(_BY_NAME)
"""The sample names that are read."""

NOT_ON_PAGE: Final = Missing(Reason.NOT_EXPOSED, "not on the page of the dcgm-exporter")
NO_VALUE: Final = Missing(Reason.NOT_SUPPORTED, "DCGM has no value of it for this GPU")
NO_NUMBER: Final = Missing(Reason.INVALID, "the dcgm-exporter sent a number that cannot be")
PER_SLICE: Final = Missing(Reason.UNDER_MIG, "exists per slice only")
_WHOLE_GPU: Final = Missing(Reason.UNDER_MIG, "a figure of the whole GPU, not of a slice")


class GpuIdentity(NamedTuple):
    """Identity of a GPU or slice: series that differ in nothing of this are one and the same."""

    host: str
    uuid: str
    instance: str = ""
    """Id of the GPU instance under MIG; empty for a whole GPU."""

    @property
    def gpu(self) -> GpuIdentity:
        """The whole GPU."""
        return GpuIdentity(self.host, self.uuid)


class FoundFigures(NamedTuple):
    """The figures of one GPU or slice on a page. Texts are from outside."""

    gpu_index: int
    name: str
    profile: str
    driver: str
    values: dict[str, Reading]
    """By the field of `readings.dcgm.METRICS`, as far as the page has them."""


class DcgmPage(NamedTuple):
    """All that a page says."""

    found: dict[GpuIdentity, FoundFigures]
    """By host, then by index, each GPU before its slices."""
    sliced: frozenset[GpuIdentity]
    """The GPUs that have slices."""
    cut: bool
    """There are more GPUs or series than are read."""


def read_page(scan: Scan) -> DcgmPage:
    """The GPUs of a page.

    A GPU that pods share stands there once for each of them (time slicing): the first number counts. A sliced GPU has
    an entry of its own too, with what the exporter repeats at each slice.
    """
    in_percent = _is_in_percent(scan)
    gpus: dict[GpuIdentity, FoundFigures] = {}
    cut = scan.cut
    for series, value in scan.values.items():
        key = _key(series)
        if key is None:
            continue
        _add(gpus, key.gpu, series)
        _add(gpus, key, series)
        metric, factor = _BY_NAME[series.name]
        if in_percent and series.name == PERCENT_ONCE:
            factor = PERCENT
        gpu = gpus.get(key.gpu if metric.whole_gpu else key)
        if gpu is None:
            cut = True
        elif number(gpu.values.get(metric.field, NOT_ON_PAGE)) is None:
            gpu.values[metric.field] = _checked(metric, value, factor)
    sliced = frozenset(key.gpu for key in gpus if key.instance)
    return DcgmPage(_numbered(dict(sorted(gpus.items(), key=_order))), sliced, cut)


def _is_in_percent(scan: Scan) -> bool:
    """Whether the figure that is a percentage in some exporters and a ratio in others is a percentage."""
    return any(series.name == PERCENT_ONCE and value > 1.0 for series, value in scan.values.items())


def _add(gpus: dict[GpuIdentity, FoundFigures], key: GpuIdentity, series: Series) -> None:
    """Add the GPU or slice of a series, if there is room."""
    if key not in gpus and len(gpus) < MOST_GPUS:
        gpus[key] = _new(series.labels, sliced=bool(key.instance))


def gpu_fields(page: DcgmPage, key: GpuIdentity) -> dict[str, Any]:
    """The fields of a `GpuReading` that DCGM tells, each with a number or the reason why there is none."""
    filled = _filled(page, key)
    engine = filled.pop(ENGINE_ACTIVE)
    free = filled.pop(FREE_BYTES)
    filled.pop(XID)
    if isinstance(filled["busy_ratio"], Missing) and not isinstance(engine, Missing):
        filled["busy_ratio"] = min(1.0, engine)
    used = number(filled["vram_used_bytes"])
    reserved = number(filled["vram_reserved_bytes"]) or 0.0
    if isinstance(filled["vram_total_bytes"], Missing) and used is not None and not isinstance(free, Missing):
        filled["vram_total_bytes"] = used + free + reserved
    return filled


def _filled(page: DcgmPage, key: GpuIdentity) -> dict[str, Any]:
    """All figures of the exporter, each with a number or the reason why there is none."""
    values = page.found[key].values
    missing_of_gpu = _WHOLE_GPU if key.instance else NOT_ON_PAGE
    missing_of_slice = NOT_ON_PAGE
    if key in page.sliced and not key.instance:
        missing_of_slice = PER_SLICE
    filled: dict[str, Any] = {}
    for metric in DCGM_METRICS:
        missing = missing_of_gpu if metric.whole_gpu else missing_of_slice
        filled[metric.field] = values.get(metric.field, missing)
    return filled


def _key(series: Series) -> GpuIdentity | None:
    """None for a series of something else than a GPU (switch, link, CPU)."""
    labels = series.labels
    uuid = labels.get("UUID") or labels.get("uuid")
    host = labels.get("Hostname") or labels.get("hostname") or ""
    if uuid:
        return GpuIdentity(host, uuid, labels.get("GPU_I_ID", ""))
    return None


def _new(labels: Mapping[str, str], *, sliced: bool) -> FoundFigures:
    digits = labels.get("gpu", "")
    if digits.isascii() and digits.isdigit() and len(digits) < 4:
        index = int(digits)
    else:
        index = UNNUMBERED
    profile = ""
    if sliced:
        profile = labels.get("GPU_I_PROFILE", "")
    return FoundFigures(index, labels.get("modelName", ""), profile, labels.get("DCGM_FI_DRIVER_VERSION", ""), {})


def _numbered(gpus: dict[GpuIdentity, FoundFigures]) -> dict[GpuIdentity, FoundFigures]:
    """No two GPUs of a host with one index; slices have their GPU's."""
    index: dict[GpuIdentity, int] = {}
    last: dict[str, int] = {}
    for key, gpu in gpus.items():
        if not key.instance:
            free = last.get(key.host, -1) + 1
            index[key] = last[key.host] = gpu.gpu_index if free <= gpu.gpu_index < UNNUMBERED else free
    return {key: gpu._replace(gpu_index=index[key.gpu]) for key, gpu in gpus.items()}


def _order(item: tuple[GpuIdentity, FoundFigures]) -> tuple[Any, ...]:
    key, gpu = item
    return key.host, gpu.gpu_index, key.uuid, len(key.instance), key.instance


def _checked(metric: DcgmMetric, value: float, scale: float) -> Reading:
    if value > _LARGEST or _BLANK[0] <= value < _BLANK[1]:
        return NO_VALUE
    scaled = value * scale
    if not 0.0 <= scaled <= metric.most:
        return NO_NUMBER
    return scaled if scaled > metric.above else NO_VALUE
