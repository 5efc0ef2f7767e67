"""Free capacity of a fleet, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gpumon.figures.engine import ENGINE
from gpumon.fleet.capacity import Capacity, ModelSpare, TypeCapacity, VersionSkew
from gpumon.fleet.common_faults import hosts_text
from gpumon.fleet.free import Domain, Use
from gpumon.outputs.figure_column import figure_column
from gpumon.outputs.json import MOST_CHARACTERS
from gpumon.outputs.tables import ColumnSpec, columns_of, table
from gpumon.outputs.units import FORMAT_BY_UNIT, NONE, as_line, as_word
from gpumon.readings.format import spans
from gpumon.readings.missing import Missing, Reading, number
from gpumon.readings.text import clean

_MOST_DOMAINS: Final = 12
"""Hosts with free GPUs that are listed."""
_LONGEST_NAME: Final = 48


def capacity_lines(capacity: Capacity, width: int) -> Iterator[str]:
    """Tables of GPUs by type and of models, hosts with free GPUs, and programs with several versions."""
    if capacity.types:
        yield ""
        yield from table(columns_of(capacity.types, _TYPE_COLUMNS), width)
    with_free = [domain for domain in capacity.domains if domain.free]
    if with_free:
        yield ""
        yield from table(columns_of(with_free[:_MOST_DOMAINS], _DOMAIN_COLUMNS), width)
        if len(with_free) > _MOST_DOMAINS:
            yield f"+{len(with_free) - _MOST_DOMAINS} more hosts with free GPUs"
    if capacity.models:
        yield ""
        yield from table(columns_of(capacity.models, _MODEL_COLUMNS), width)
    for label, values in capacity.groups.items():
        groups = ", ".join(f"{as_word(value) or NONE} {free}/{gpus}" for value, (free, gpus) in values.items())
        yield ""
        yield f"free GPUs by {as_word(label)}: {groups}"
    for skew in capacity.skews:
        yield ""
        yield f"{as_word(skew.program)}: {versions_text(skew)}"


def versions_text(skew: VersionSkew) -> str:
    """`580.95 on 120 hosts, 575.64 on gpu03 gpu07`."""
    texts = []
    for place, (version, hosts) in enumerate(skew.versions):
        where = hosts_text([as_word(host) for host in hosts])
        if place == 0 and len(hosts) > 1:  # of the usual version the hosts are not named
            where = f"{len(hosts)} hosts"
        texts.append(f"{as_word(version)} on {where}")
    return ", ".join(texts)


def fits_text(fits: Mapping[int, int]) -> str:
    """Instances that fit by their size: `TP1 14, TP2 6, TP4 2, TP8 1`."""
    return ", ".join(f"TP{size} {count}" for size, count in fits.items())


def count_text(reading: Reading) -> str:
    """A whole number; a dash where it is not known."""
    return NONE if isinstance(reading, Missing) else f"{reading:,.0f}"


def use_column(use: Use) -> ColumnSpec[TypeCapacity]:
    """The column with the GPUs of one use."""
    return ColumnSpec(use.value, lambda found: str(found.uses.get(use.value, 0)), right=True, keep=7)


def largest_text(found: TypeCapacity) -> str:
    """`TP8 on gpu03 gpu07 +2`; a dash where nothing is free."""
    if not found.largest_tp:
        return NONE
    return f"TP{found.largest_tp} on {hosts_text([as_word(host) for host in found.largest_on], 2)}"


_TYPE_COLUMNS: Final[tuple[ColumnSpec[TypeCapacity], ...]] = (
    ColumnSpec("GPUs", lambda found: clean(found.gpu_type, _LONGEST_NAME)),
    ColumnSpec("all", lambda found: str(found.gpus), right=True),
    ColumnSpec(Use.FREE.value, lambda found: str(found.uses.get(Use.FREE.value, 0)), right=True),
    *(use_column(use) for use in Use if use is not Use.FREE),
    ColumnSpec("largest", largest_text, keep=6),
    ColumnSpec("fits", lambda found: fits_text(found.fits), keep=5),
    ColumnSpec("fragmented", lambda found: FORMAT_BY_UNIT["ratio"](found.fragmented_ratio), right=True, keep=4),
)
_DOMAIN_COLUMNS: Final[tuple[ColumnSpec[Domain], ...]] = (
    ColumnSpec("free on", lambda domain: clean(domain.host, _LONGEST_NAME)),
    ColumnSpec("GPUs", lambda domain: clean(domain.gpu_type, _LONGEST_NAME), keep=6),
    ColumnSpec("free", lambda domain: f"{len(domain.free)} of {domain.gpus}", right=True),
    ColumnSpec("which", lambda domain: spans(domain.free)),
    ColumnSpec("link", lambda domain: domain.link or NONE, keep=5),
)
_MODEL_COLUMNS: Final[tuple[ColumnSpec[ModelSpare], ...]] = (
    ColumnSpec("room for", lambda spare: clean(spare.model, _LONGEST_NAME)),
    ColumnSpec("replicas", lambda spare: str(spare.replicas), right=True),
    ColumnSpec("GPUs each", lambda spare: count_text(spare.gpus_each), right=True),
    ColumnSpec("more fit", lambda spare: count_text(spare.more), right=True),
    figure_column(ENGINE["running"], keep=6),
    figure_column(ENGINE["waiting"], keep=6),
    figure_column(ENGINE["kv_usage_ratio"], keep=6),
    ColumnSpec("on", lambda spare: as_line(spare.gpu_type) or NONE, keep=5),
)


def capacity_object(capacity: Capacity) -> dict[str, Any]:
    """The same as a JSON value; a figure that is not known is null."""
    return {
        "types": [_type_object(found) for found in capacity.types],
        "domains": [_domain_object(domain) for domain in capacity.domains],
        "models": [_spare_object(spare) for spare in capacity.models],
        "groups": {
            clean(label): {clean(value): {"free": free, "gpus": gpus} for value, (free, gpus) in values.items()}
            for label, values in capacity.groups.items()
        },
        "versions": [_skew_object(skew) for skew in capacity.skews],
    }


def _type_object(found: TypeCapacity) -> dict[str, Any]:
    """All GPUs of one type."""
    return {
        "gpu_type": clean(found.gpu_type),
        "gpus": found.gpus,
        "uses": dict(found.uses),
        "largest_tp": found.largest_tp,
        "largest_on": _names(found.largest_on),
        "fits": {str(size): count for size, count in found.fits.items()},
        "fragmented_ratio": number(found.fragmented_ratio),
    }


def _domain_object(domain: Domain) -> dict[str, Any]:
    """GPUs of one type on one host."""
    return {
        "host": clean(domain.host, MOST_CHARACTERS),
        "gpu_type": clean(domain.gpu_type),
        "link": domain.link,
        "gpus": domain.gpus,
        "uses": dict(domain.uses),
        "free": list(domain.free),
        "largest_tp": domain.largest_tp,
    }


def _spare_object(spare: ModelSpare) -> dict[str, Any]:
    """Room for one model."""
    return {
        "model": clean(spare.model, MOST_CHARACTERS),
        "replicas": spare.replicas,
        "gpu_type": clean(spare.gpu_type),
        "gpus_each": number(spare.gpus_each),
        "more": number(spare.more),
        "running": number(spare.running),
        "waiting": number(spare.waiting),
        "kv_usage_ratio": number(spare.kv_usage_ratio),
    }


def _skew_object(skew: VersionSkew) -> dict[str, Any]:
    """Versions of one program."""
    return {
        "program": clean(skew.program),
        "versions": [{"version": clean(version), "hosts": _names(hosts)} for version, hosts in skew.versions],
    }


def _names(names: Sequence[str]) -> list[str]:
    """Names from outside, escaped."""
    return [clean(name, MOST_CHARACTERS) for name in names]
