"""Reads the page of a dcgm-exporter into figures of GPUs: each GPU and MIG slice once, whoever shares it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from gpumon.readings.dcgm import (
    DCGM_METRICS,
    ENGINE_ACTIVE,
    FREE_BYTES,
    NOT_OF_GPU,
    NOT_ON_PAGE,
    PERCENT_ONCE,
    XID,
    DcgmMetric,
)
from gpumon.readings.missing import Missing, Reading, Reason, number
from gpumon.sources.exposition import Scan, Series
from gpumon.specs.units import PERCENT

MOST_GPUS: Final = 1024
"""GPUs and slices taken from one page."""
UNNUMBERED: Final = 1000
"""Index of a GPU whose label is no number; it gets the next free index."""
_BLANK_INTEGERS_FROM: Final = 1e18
"""DCGM's blank integers are 2^63 - 16 and the numbers above it; nothing that is measured comes near them."""
_BLANK_FLOATS: Final = (2.0**47, 2.0**47 + 16)
"""DCGM's blank floats: from the first to below the second."""

_BY_NAME: Final = {name: (metric, factor) for metric in DCGM_METRICS for name, factor in metric.names}
"""Name of a series -> its metric, and the factor to the unit of the field."""
WANTED: Final = frozenset(_BY_NAME)
"""The sample names that are read."""

NO_VALUE: Final = Missing(Reason.NOT_SUPPORTED, "DCGM has no value of it for this GPU")
NO_NUMBER: Final = Missing(Reason.INVALID, "the dcgm-exporter sent a number that cannot be")
PER_SLICE: Final = Missing(Reason.UNDER_MIG, "exists per slice only")
_WHOLE_GPU: Final = Missing(Reason.UNDER_MIG, "a figure of the whole GPU, not of a slice")


class GpuIdentity(NamedTuple):
    """Identity of a GPU or slice: series with the same three values are of the same one."""

    host: str
    uuid: str
    instance: str = ""
    """Id of the GPU instance under MIG; empty for a whole GPU."""

    @property
    def gpu(self) -> GpuIdentity:
        """The whole GPU."""
        return GpuIdentity(self.host, self.uuid)


class GpuFigures(NamedTuple):
    """The figures of one GPU or slice on a page. Its texts are untrusted."""

    gpu_index: int
    name: str
    profile: str
    driver: str
    values: dict[str, Reading]
    """By the field of `readings.dcgm.METRICS`, as far as the page has them."""


class DcgmPage(NamedTuple):
    """The contents of a page."""

    gpus: dict[GpuIdentity, GpuFigures]
    """By host, then by index, each GPU before its slices."""
    sliced: frozenset[GpuIdentity]
    """The GPUs that have slices."""
    fields: frozenset[str]
    """The fields that it has of any GPU."""
    cut: bool
    """Whether there are more GPUs or series than are read."""


def read_page(scan: Scan) -> DcgmPage:
    """The GPUs of a page.

    A GPU that pods share stands there once for each of them (time slicing): the first number counts. A sliced GPU has
    an entry of its own too, with what the exporter repeats at each slice.
    """
    in_percent = _is_in_percent(scan)
    gpus: dict[GpuIdentity, GpuFigures] = {}
    cut = scan.cut
    for series, value in scan.values.items():
        key = _gpu_identity(series)
        # A proxy of a Prometheus may answer with more than was asked for.
        if key is None or series.name not in WANTED:
            continue
        _ensure_gpu(gpus, key.gpu, series)
        _ensure_gpu(gpus, key, series)
        metric, factor = _BY_NAME[series.name]
        if in_percent and series.name == PERCENT_ONCE:
            factor = PERCENT
        owner = key.gpu if metric.whole_gpu else key
        figures = gpus.get(owner)
        if figures is None:  # `_ensure_gpu` had no room for it
            cut = True
        elif number(figures.values.get(metric.field, NOT_ON_PAGE)) is None:  # the first number counts
            figures.values[metric.field] = _checked_value(metric, value, factor)
    sliced = frozenset(key.gpu for key in gpus if key.instance)
    fields = frozenset(field for figures in gpus.values() for field in figures.values)
    in_order = dict(sorted(gpus.items(), key=_sort_key))
    return DcgmPage(_with_unique_indices(in_order), sliced, fields, cut)


def _is_in_percent(scan: Scan) -> bool:
    """Whether the figure that is a percentage in some exporters and a ratio in others is a percentage."""
    return any(series.name == PERCENT_ONCE and value > 1.0 for series, value in scan.values.items())


def _ensure_gpu(gpus: dict[GpuIdentity, GpuFigures], key: GpuIdentity, series: Series) -> None:
    """Add an entry for the GPU or slice of a series, if it has none and there is room."""
    if key not in gpus and len(gpus) < MOST_GPUS:
        gpus[key] = _empty_figures(series.labels, sliced=bool(key.instance))


def gpu_fields(page: DcgmPage, key: GpuIdentity) -> dict[str, Any]:
    """The fields of a `GpuReading` that DCGM tells, each with a number or the reason why there is none.

    Exporters may lack the busy share or the total memory: then the activity of the graphics engine, and the sum of
    used, free and reserved memory, take their places.
    """
    values = page.gpus[key].values
    fields: dict[str, Any] = {
        metric.field: values.get(metric.field, _why_missing(page, key, metric)) for metric in DCGM_METRICS
    }
    engine = fields.pop(ENGINE_ACTIVE)
    free = fields.pop(FREE_BYTES)
    fields.pop(XID)
    if isinstance(fields["busy_ratio"], Missing) and not isinstance(engine, Missing):
        fields["busy_ratio"] = min(1.0, engine)
    used = number(fields["vram_used_bytes"])
    reserved = number(fields["vram_reserved_bytes"]) or 0.0
    if isinstance(fields["vram_total_bytes"], Missing) and used is not None and not isinstance(free, Missing):
        fields["vram_total_bytes"] = used + free + reserved
    return fields


def _why_missing(page: DcgmPage, key: GpuIdentity, metric: DcgmMetric) -> Missing:
    """The reason why a GPU or slice has no number of this metric on the page."""
    if key.instance and metric.whole_gpu:
        return _WHOLE_GPU
    if not key.instance and not metric.whole_gpu and key in page.sliced:
        return PER_SLICE
    if metric.field in page.fields:
        return NOT_OF_GPU
    return NOT_ON_PAGE


def _gpu_identity(series: Series) -> GpuIdentity | None:
    """The GPU or slice of a series; None for a switch, link or CPU."""
    labels = series.labels
    uuid = labels.get("UUID") or labels.get("uuid")
    host = labels.get("Hostname") or labels.get("hostname") or ""
    if uuid:
        return GpuIdentity(host, uuid, labels.get("GPU_I_ID", ""))
    return None


def _empty_figures(labels: Mapping[str, str], *, sliced: bool) -> GpuFigures:
    """A GPU or slice by the labels of its first series, without figures yet."""
    digits = labels.get("gpu", "")
    if digits.isascii() and digits.isdigit() and len(digits) < 4:  # below UNNUMBERED
        index = int(digits)
    else:
        index = UNNUMBERED
    profile = labels.get("GPU_I_PROFILE", "") if sliced else ""
    return GpuFigures(index, labels.get("modelName", ""), profile, labels.get("DCGM_FI_DRIVER_VERSION", ""), {})


def _with_unique_indices(gpus: dict[GpuIdentity, GpuFigures]) -> dict[GpuIdentity, GpuFigures]:
    """Give each GPU of a host an index of its own; slices get their GPU's."""
    indices: dict[GpuIdentity, int] = {}
    last_index: dict[str, int] = {}
    """By host. GPUs come in the order of their indices, so that an index below the next one is taken."""
    for key, gpu in gpus.items():
        if key.instance:
            continue
        index = gpu.gpu_index
        next_index = last_index.get(key.host, -1) + 1
        if index < next_index or index >= UNNUMBERED:
            index = next_index
        indices[key] = index
        last_index[key.host] = index
    return {key: gpu._replace(gpu_index=indices[key.gpu]) for key, gpu in gpus.items()}


def _sort_key(item: tuple[GpuIdentity, GpuFigures]) -> tuple[Any, ...]:
    """Key that sorts by host, then by index, each GPU before its slices, slice 2 before slice 10."""
    key, gpu = item
    return key.host, gpu.gpu_index, key.uuid, len(key.instance), key.instance


def _checked_value(metric: DcgmMetric, value: float, factor: float) -> Reading:
    """The value in the unit of the field, unless it is one of DCGM's blanks or cannot be."""
    if value > _BLANK_INTEGERS_FROM or _BLANK_FLOATS[0] <= value < _BLANK_FLOATS[1]:
        return NO_VALUE
    scaled = value * factor
    if not 0.0 <= scaled <= metric.most:
        return NO_NUMBER
    if scaled <= metric.above:  # some GPUs print 0 for a temperature that they do not have
        return NO_VALUE
    return scaled
