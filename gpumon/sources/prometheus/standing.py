"""Xids that dcgm-exporters show now, each with the time since when its gauge shows it.

The gauge keeps the last Xid until the GPU is reset. Newer exporters have the code as a label, too: then a new Xid is
a new series, and no series ever changes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.readings.dcgm import DCGM_METRICS, XID
from gpumon.readings.frame import XidEvent
from gpumon.sources.prometheus.answers import Vector
from gpumon.sources.prometheus.queries import join_matchers

(_METRIC,) = (metric for metric in DCGM_METRICS if metric.field == XID)
XID_NAMES: Final = frozenset(name for name, _ in _METRIC.names)
_MOST_XID: Final = 1e4
"""No Xid has a number from here on: the largest are three digits long."""
_CODE: Final = "err_code"
"""Label in which newer exporters repeat the code."""
_CHANGED_LATE_S: Final = 600.0
"""Seconds by which a gauge's last change may be dated later than the first sample of the same Xid."""

Ask = Callable[[str], Awaitable[Sequence[Vector]]]
"""Asks one instant query of the moment."""


class XidDates(NamedTuple):
    """The last day's times of Xids that still stand (Unix time)."""

    first_s: Mapping[tuple[str, str], float]
    """UUID and code as a label, which may be empty -> the first sample with any Xid, to a minute."""
    changed_s: Mapping[str, float]
    """UUID -> the last change of the gauge, to 6 minutes."""

    def since(self, uuid: str, code: int, otherwise_s: float) -> float:
        """Since when a GPU's gauge shows this code; `otherwise_s` where it came within the last minute."""
        first_s = self.first_s.get((uuid, str(code))) or self.first_s.get((uuid, ""), otherwise_s)
        changed_s = self.changed_s.get(uuid, 0.0)
        return changed_s if changed_s > first_s + _CHANGED_LATE_S else first_s


def uuid_of(vector: Vector) -> str:
    """UUID of the GPU that a series is of; dcgm-exporters write the label either way."""
    return vector.series.labels.get("UUID") or vector.series.labels.get("uuid", "")


def standing_codes(gpus: Iterable[Vector]) -> dict[str, int]:
    """UUID of each GPU with a gauge of Xids -> the code that it shows; 0 for none."""
    codes: dict[str, int] = {}
    for vector in gpus:
        if vector.series.name in XID_NAMES and 0.0 <= vector.value < _MOST_XID:
            uuid = uuid_of(vector)
            codes[uuid] = max(int(vector.value), codes.get(uuid, 0))
    codes.pop("", None)
    return codes


def keep_standing(events: Mapping[str, XidEvent], codes: Mapping[str, int]) -> dict[str, XidEvent]:
    """The events whose gauge does not say otherwise: that of a GPU whose exporter is silent stays."""
    return {uuid: event for uuid, event in events.items() if codes.get(uuid, event.code) == event.code}


async def date_xids(codes: Mapping[str, int], match: str, at_s: float, ask: Ask) -> dict[str, XidEvent]:
    """UUID of a GPU -> the Xid that its gauge shows, since when. Two queries. Raises ApiFault."""
    gauges = [f"{name}{{{join_matchers(match)}}}" for name in sorted(XID_NAMES)]
    shown = " or ".join(f"{gauge} > 0" for gauge in gauges)
    changes = " or ".join(f"changes({gauge}[6m]) > 0" for gauge in gauges)
    first = await ask(f"min by (UUID, uuid, {_CODE}) (min_over_time(timestamp({shown})[1d:1m]))")
    changed = await ask(f"max by (UUID, uuid) (max_over_time(timestamp({changes})[1d:5m]))")
    dates = XidDates(
        first_s={(uuid_of(vector), vector.series.labels.get(_CODE, "")): vector.value for vector in first},
        changed_s={uuid_of(vector): vector.value for vector in changed},
    )
    return {uuid: XidEvent(code, dates.since(uuid, code, at_s)) for uuid, code in codes.items() if code}
