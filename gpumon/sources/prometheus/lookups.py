"""PromQL that is asked beside a frame's: the dates of pages without `up`, and the targets that a host had."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from gpumon.readings.exported import NAMES
from gpumon.sources.dcgm_page import WANTED as GPU_NAMES
from gpumon.sources.prometheus.answers import Vector
from gpumon.sources.prometheus.hosts import INSTANCE, PODS, host_of, user_of
from gpumon.sources.prometheus.queries import joined, matchers, selector, signs
from gpumon.sources.prometheus.targets import EXPORTED, OF_WORKLOADS, UNKNOWN

CLOCK: Final = "time()"
MOST_ADDRESSES: Final = 200
"""Of a host's targets in the past."""
_GPU_SIGNS: Final = GPU_NAMES & {
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_GPU_TEMP_CELSIUS",
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_GPU_UTIL_RATIO",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_FB_USED_BYTES",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_BOARD_POWER_WATTS",
}
"""Of which a dcgm-exporter writes one at least, unless its list of fields was cut down."""
_OWN_SIGNS: Final = NAMES & {"gpumon_build_info"}
_POD_LABELS: Final = tuple(
    prefix + label for namespace, pod, _ in PODS for label in (namespace, pod) for prefix in ("", EXPORTED)
)


def dated(scraped: str, match: str) -> str:
    """`scraped`, and by their own series when the pages were written that have no `up`: still one query."""
    pages = (
        (UNKNOWN, signs() | _OWN_SIGNS),
        ([name for name in UNKNOWN if name not in OF_WORKLOADS], _GPU_SIGNS),
    )
    return " or ".join((scraped, *(_newest(labels, names, match) for labels, names in pages)))


def _newest(labels: Iterable[str], names: Iterable[str], match: str) -> str:
    # Each name by itself: a function drops it, and two series must not become alike.
    times = " or ".join(f"timestamp({name}{{{joined(match)}}})" for name in sorted(names))
    return f"max by ({', '.join(labels)}) ({times})"


def targets_of_range(match: str, seconds: float) -> str:
    """The targets that there were, by their `up`; to be asked for the end of the time."""
    return f"last_over_time(up{{{joined(match)}}}[{_range(seconds)}])"


def exporters_of_range(names: Iterable[str], match: str, seconds: float) -> str:
    """The exporters that told GPUs of the hosts of these names, and the pods that used them."""
    found = selector(_GPU_SIGNS, matchers(match, "Hostname", names))
    return f"group by (job, instance, {', '.join(_POD_LABELS)}) (last_over_time({found}[{_range(seconds)}]))"


def addresses(
    up: Iterable[Vector], exporters: Iterable[Vector], names: Iterable[str], ladder: Sequence[str]
) -> frozenset[str]:
    """Addresses of a host's targets in the past: placed by their labels, or by the pods that used its GPUs."""
    wanted, told = frozenset(names), [one.series.labels for one in exporters]
    pods = {pod for labels in told for pod in (_pod(labels), _pod(_plain(labels))) if pod is not None}
    found = {labels.get(INSTANCE, ""): None for labels in told}
    for one in up:
        labels = one.series.labels
        if host_of(labels, {}, ladder) in wanted or _pod(labels) in pods:
            found[labels.get(INSTANCE, "")] = None
    return frozenset([address for address in found if address][:MOST_ADDRESSES])


def _pod(labels: Mapping[str, str]) -> tuple[str, str] | None:
    user = user_of(labels, "")
    return (user.pod.namespace, user.pod.name) if user is not None else None


def _plain(labels: Mapping[str, str]) -> dict[str, str]:
    return {name[len(EXPORTED) :]: value for name, value in labels.items() if name.startswith(EXPORTED)}


def _range(seconds: float) -> str:
    return f"{max(1, round(seconds))}s"
