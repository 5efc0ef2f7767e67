"""Place of engines below the roof: what one of its GPUs achieves over the FLOP/byte of its work.

Both axes are logarithmic, as in the classic roofline (Williams, Waterman, Patterson 2009). Below the ridge the peak
bandwidth is the roof, a slope; beyond it the peak FLOP/s of the precision in use. The bytes are those that decode steps
must read: what prefill itself reads is not in them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from gpumon.efficiency.ratio import divide
from gpumon.readings.missing import Missing, Reading, Reason
from gpumon.readings.snapshot import Engine

_IDLE = Missing(Reason.IDLE)
_LEAST_SHARE: Final = 1e-6
"""Share of a peak up to which nothing is done: a logarithmic axis has no place for it."""
_MOST_SHARE: Final = 1e3
"""Share of a peak from which on the peak is not this GPU's."""


class Roof(NamedTuple):
    """The peaks of one GPU."""

    bandwidth_bytes_per_s: float
    flops_per_s: float
    """The peak of the precision in use."""
    precision: str

    @property
    def ridge(self) -> float:
        """FLOP/byte at which both peaks are reached at once."""
        return self.flops_per_s / self.bandwidth_bytes_per_s


class Place(NamedTuple):
    """A place in the picture."""

    intensity: float
    """FLOP/byte."""
    flops_per_s: float
    """Achieved by each GPU."""


class RooflinePoint(NamedTuple):
    """An engine below its roof."""

    mbu: Reading
    """Share of the peak bandwidth."""
    mfu: Reading
    """Share of the peak FLOP/s."""
    mfu_decode: Reading
    """Part of the MFU that decode has; the rest is prefill."""
    ridge: Reading
    """FLOP/byte at which its GPUs, in its precision, reach both peaks at once."""
    roof: Roof | Missing
    """The roof over each of its GPUs."""

    @property
    def intensity(self) -> Reading:
        """FLOP/byte of what it does; missing where it has no place, too."""
        place = self.place(self.mbu, self.mfu)
        if place is not None:
            return place.intensity
        for part in (self.mfu, self.mbu, self.roof):
            if isinstance(part, Missing):
                return part
        return _IDLE

    @property
    def missing(self) -> Missing | None:
        """Why it has no place; None where it has one."""
        intensity = self.intensity
        if isinstance(intensity, Missing):
            return intensity
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

    def place(self, mbu: Reading, mfu: Reading) -> Place | None:
        """The place of two shares of its peaks; None where one is not known, or nothing is done."""
        if isinstance(self.roof, Missing) or isinstance(mbu, Missing) or isinstance(mfu, Missing):
            return None
        if not _LEAST_SHARE < mbu < _MOST_SHARE or not _LEAST_SHARE < mfu < _MOST_SHARE:  # a gap (NaN) neither
            return None
        return Place(mfu / mbu * self.roof.ridge, mfu * self.roof.flops_per_s)


def roofline_point(engine: Engine) -> RooflinePoint:
    """The place of an engine, all its GPUs together."""
    efficiency = engine.efficiency
    ridge = divide(efficiency.peak_flops_per_s, efficiency.peak_bandwidth_bytes_per_s)
    return RooflinePoint(
        mbu=efficiency.mbu_ratio,
        mfu=efficiency.mfu_ratio,
        mfu_decode=efficiency.mfu_decode_ratio,
        ridge=ridge,
        roof=_roof_of(engine),
    )


def _roof_of(engine: Engine) -> Roof | Missing:
    """The roof over each GPU of an engine; the reason where a peak or the number of GPUs is not known."""
    efficiency = engine.efficiency
    gpus: Reading = engine.hardware.gpu_count
    if isinstance(gpus, Missing) and engine.hardware.gpus:
        gpus = float(len(engine.hardware.gpus))
    bandwidth = divide(efficiency.peak_bandwidth_bytes_per_s, gpus)
    if isinstance(bandwidth, Missing):
        return bandwidth
    flops_per_s = divide(efficiency.peak_flops_per_s, gpus)
    if isinstance(flops_per_s, Missing):
        return flops_per_s
    return Roof(bandwidth, flops_per_s, efficiency.precision)
