"""Place of engines below the roof: MFU over MBU, and the ridge at which compute and bandwidth meet.

The classic roofline has FLOP/byte on its x axis and FLOP/s on its y axis (Williams, Waterman, Patterson 2009). With
both axes as shares of the peaks the roof is a box: MBU = 100% and MFU = 100%. An engine moves on a straight line
through the origin while its FLOP/byte stays the same; the line through the corner is the ridge, peak FLOP/s / peak
bytes/s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from gpumon.efficiency.ratio import divide
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.snapshot import Engine

_IDLE = Missing(Reason.IDLE)


class RooflinePoint(NamedTuple):
    """An engine below its roof."""

    mbu: Reading
    """Share of the peak bandwidth."""
    mfu: Reading
    """Share of the peak FLOP/s."""
    mfu_decode: Reading
    """Part of the MFU that decode has; the rest is prefill."""
    intensity: Reading
    """FLOP/byte of what it does."""
    ridge: Reading
    """FLOP/byte at which its GPUs, in its precision, reach both peaks at once."""

    @property
    def missing(self) -> Missing | None:
        """Why it has no place; None where it has one."""
        if isinstance(self.mfu, Missing):
            return self.mfu
        if isinstance(self.mbu, Missing):
            return self.mbu
        return None

    @property
    def headroom(self) -> Reading:
        """How many times as much the engine could do at the same FLOP/byte until it reaches the roof."""
        if isinstance(self.mbu, Missing):
            return self.mbu
        if isinstance(self.mfu, Missing):
            return self.mfu
        return divide(1.0, max(self.mbu, self.mfu), _IDLE)

    @property
    def meets_bandwidth(self) -> bool | None:
        """Whether bandwidth is the side of the roof that it reaches first; None where that is not known."""
        if isinstance(self.mbu, Missing) or isinstance(self.mfu, Missing):
            return None
        return self.mbu >= self.mfu


def roofline_point(engine: Engine) -> RooflinePoint:
    """The place of an engine, all its GPUs together."""
    efficiency = engine.efficiency
    return RooflinePoint(
        mbu=efficiency.mbu_ratio,
        mfu=efficiency.mfu_ratio,
        mfu_decode=efficiency.mfu_decode_ratio,
        intensity=divide(efficiency.flops_per_s, efficiency.bytes_per_s, _IDLE),
        ridge=divide(efficiency.peak_flops_per_s, efficiency.peak_bandwidth_bytes_per_s),
    )


def trail(mbu: Sequence[float], mfu: Sequence[float]) -> list[tuple[float, float]]:
    """Past places (MBU, MFU) of an engine, oldest first, at the times at which both are known (NaN is a gap)."""
    places = []
    for bandwidth_share, flops_share in zip(mbu, mfu, strict=True):
        if not math.isnan(bandwidth_share) and not math.isnan(flops_share):
            places.append((bandwidth_share, flops_share))
    return places
