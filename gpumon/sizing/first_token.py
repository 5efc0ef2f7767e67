"""Time to first token: the line over the load, how far it may be trusted, and whether a goal may decide GPUs by it.

No formula without a measurement is good enough to decide a number of GPUs: at low load TTFT hardly rises with the
requests in flight, so that an error of 30% in TTFT is one of several times in the load that meets a goal. So a goal
counts where TTFT was measured on the engine that is sized, and else it is printed beside its estimate.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final, NamedTuple

from gpumon.sizing.accuracy import NO_BAND, Band, band_of
from gpumon.sizing.fit import are_two_apart, calibrated_ttft, loads_below_knee, points_below_knee, span_a_line
from gpumon.sizing.latency import TtftLine
from gpumon.sizing.profile import Point
from gpumon.sizing.roofline import InstanceSetting

ONE_LOAD_ENGINE: Final = "vllm"
"""Engine whose formula, scaled to one measured load, gave the capacity at the others within a factor of two in 93% of
its sweeps; of TensorRT-LLM and SGLang in about half of them."""
_REPEATED_ERROR: Final = 0.15
"""Share by which repeated measurements of one server differ: no band of a fit is narrower. A choice: of the rows of
`tests/data/silicon.csv` that repeat another, whatever the engine's version, 9 of 10 have a TTFT within 12% of their
median."""
_LARGEST_LOW: Final = 0.9
"""Share below the line that a band reaches at most: a latency is above 0."""
_ENGINES: Final = (("sglang", "sglang"), ("tensorrt", "trtllm"), ("trtllm", "trtllm"), ("vllm", "vllm"))
"""Part of a tool's name -> the engine, as `measured_errors` names it."""


class FirstToken(NamedTuple):
    """TTFT of one instance over the requests in flight, with what it stands on."""

    line: TtftLine | None = None
    """Mean TTFT of requests that do not wait for admission; None where nothing tells it."""
    band: Band = NO_BAND
    """Errors of the line; both sides 0 where it was typed or is not known."""
    decides: bool = False
    """A goal may decide the number of GPUs by it: it was measured on this engine, or typed."""
    basis: str = ""
    """Basis of the TTFT, as a note says it: `fit of 4 loads`, `estimate`; empty where it is not known."""


def engine_of(tool: str) -> str:
    """The engine that the name of a tool tells: vllm, sglang or trtllm; empty where it tells none."""
    lowered = tool.lower()
    for word, engine in _ENGINES:
        if word in lowered:
            return engine
    return ""


def estimated_first_token(
    line: TtftLine | None, setting: InstanceSetting | None, engine: str, basis: str = "estimate"
) -> FirstToken:
    """TTFT from a formula, or moved from another server: it decides nothing.

    Its errors are larger for an engine that is not known (`engine` is empty).
    """
    if line is None:
        return FirstToken()
    if setting is None:
        return FirstToken(line, basis=basis)
    figure = "ttft" if engine else "ttft any"
    return FirstToken(line, band_of(figure, setting.tp, bool(setting.llm.experts)), basis=basis)


def measured_first_token(
    formula: TtftLine | None, points: Sequence[Point], setting: InstanceSetting | None, engine: str
) -> FirstToken:
    """TTFT of an instance that is what was seen: a fit from three loads on, a line through two that are far apart, else
    the formula scaled to the points."""
    line = calibrated_ttft(formula, points)
    if line is None:
        return FirstToken()
    loads = loads_below_knee(points)
    if span_a_line(loads):
        band = _scatter(line, points_below_knee(points))
        return FirstToken(line, band, decides=True, basis=f"fit of {len(loads)} loads")
    if not loads:
        return estimated_first_token(line, setting, engine)
    is_moe = setting is not None and bool(setting.llm.experts)
    if are_two_apart(loads):
        band = band_of("ttft one load", 1, is_moe)
        return FirstToken(line, band, decides=True, basis="line through 2 loads")
    loads_text = f"{len(loads)} loads" if len(loads) > 1 else "one load"
    if engine == ONE_LOAD_ENGINE and formula is not None:
        band = band_of("ttft one load", 1, is_moe)
        return FirstToken(line, band, decides=True, basis=f"formula scaled to {loads_text}")
    return estimated_first_token(line, setting, engine, f"formula scaled to {loads_text}")


def _scatter(line: TtftLine, points: Sequence[Point]) -> Band:
    """Band of a fit: twice the median error of its points, at least what repeated measurements differ by."""
    errors = [abs(point.ttft_s / line.ttft_s(point.running) - 1.0) for point in points if point.ttft_s]
    width = max(_REPEATED_ERROR, 2.0 * median(errors))
    return Band(-min(width, _LARGEST_LOW), width, rows=0)
