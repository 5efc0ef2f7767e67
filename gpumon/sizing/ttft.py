"""Time to the first token: prefill and dispatch below the knee, waiting beyond it."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import median
from typing import Final

import msgspec

from gpumon.efficiency.checks import checked, positive
from gpumon.sizing.bands import efficiency, engine_factor
from gpumon.sizing.curve import Curve
from gpumon.sizing.observed import Point
from gpumon.sizing.roofline import Setting, prompt_s
from gpumon.sizing.tails import largest

_LONGEST_S: Final = 86400.0
"""A day until the first token is no measurement."""
_LEAST_LOADS: Final = 3
_KNEE: Final = 1.05
"""Offered over running: beyond it, requests wait for admission."""


class TtftLine(msgspec.Struct, frozen=True):
    """Mean TTFT with b in flight: factor*(steps*ITL(b) + crowd*prefill_s*sqrt(b)) + growth_s*b.

    A first token takes some steps of decoding beside its prompt (admission, scheduling, the step under way), and waits
    for the prompts that came in with it: of b requests that end independently about sqrt(b) do so together. Constants
    and errors are those of measured servers (`bands`). The growth is what measured engines add to it. Waiting for
    admission past the knee is not in it (`queued_ttft_s`). ValueError on inputs that are negative or not finite.
    """

    prefill_s: float
    """One prompt's computed part, alone."""
    curve: Curve | None = None
    """ITL beside it, without speculative decoding; None where it is not known."""
    factor: float = 1.0
    """Of the engine, and observed / model where it was measured."""
    growth_s: float = 0.0
    """Per running sequence."""

    def __post_init__(self) -> None:
        checked("prefill_s", self.prefill_s)
        positive("factor", self.factor)
        checked("growth_s", self.growth_s)

    def ttft_s(self, running: float) -> float:
        """Mean seconds to the first token beside `running` sequences."""
        beside = max(1.0, checked("running", running))
        at = efficiency()
        steps_s = at.ttft_steps * self.curve.itl_s(beside) if self.curve is not None else 0.0
        return self.factor * (steps_s + at.ttft_crowd * self.prefill_s * math.sqrt(beside)) + self.growth_s * running

    def running_at(self, ttft_s: float) -> float:
        """Most sequences whose TTFT is at most `ttft_s`: 0 where one alone is slower, infinite where none ever is."""
        positive("ttft_s", ttft_s)
        return largest(lambda running: self.ttft_s(running) <= ttft_s)


def ttft_line(setting: Setting, curve: Curve, engine: str = "") -> TtftLine:
    """The line from dimensions and peaks, beside the ITL of `curve`; `engine`: vllm, trtllm, sglang, or not known."""
    return TtftLine(prompt_s(setting), curve, engine_factor(engine))


@lru_cache(maxsize=256)
def calibrated(line: TtftLine, points: tuple[Point, ...]) -> TtftLine:
    """`line` moved to the points from below the knee; itself where there are none.

    The factor is the median of observed / model. Over at least three loads with a spread of 2 the growth is fitted too,
    by Theil-Sen of observed/model against b/model; it replaces that of `line`. Points whose offered load is more than
    5 % above what runs have waited for admission and are left out. Each counts once: weights are windows of the same
    engine, and the ratio drifts with load rather than time. The same points are asked about at every keystroke.
    """
    bare = TtftLine(line.prefill_s, line.curve, line.factor)
    if bare.ttft_s(1.0) == 0.0:
        return line
    seen = [(max(1.0, point.running), point.ttft_s) for point in points if point.ttft_s and below_knee(point)]
    if not seen:
        return line
    scaled = [(running / bare.ttft_s(running), ttft_s / bare.ttft_s(running)) for running, ttft_s in seen]
    loads = {round(running) for running, _ in seen}
    growth = _growth(scaled) if len(loads) >= _LEAST_LOADS and max(loads) >= 2 * min(loads) else 0.0
    factor = median(ratio - growth * load for load, ratio in scaled)
    if growth == 0.0 or factor <= 0.0:
        growth, factor = 0.0, median(ratio for _, ratio in scaled)
    return TtftLine(line.prefill_s, line.curve, line.factor * factor, growth)


def queued_ttft_s(offered: float, requests_per_s: float, answer_tokens: float, itl_s: float) -> float:
    """Mean TTFT where `offered` requests in flight are more than are let run: C/X - (OSL - 1)*ITL, seconds.

    Little's law: a request is in the system for C/X and decodes for (OSL - 1)*ITL of it. ValueError where decoding
    alone takes longer than C/X: the figures do not belong together.
    """
    whole = positive("offered", offered) / positive("requests_per_s", requests_per_s)
    decode = max(0.0, positive("answer_tokens", answer_tokens) - 1.0) * positive("itl_s", itl_s)
    if decode > whole:
        raise ValueError(f"decoding takes {decode:g} s of the {whole:g} s that offered / requests_per_s leaves")
    return whole - decode


def below_knee(point: Point) -> bool:
    """A figure from below the knee: what the client holds open really runs."""
    if not (point.ttft_s and 0.0 < point.ttft_s < _LONGEST_S and 0.0 < point.running < math.inf):
        return False
    return point.offered is None or point.offered <= _KNEE * point.running


def _growth(scaled: list[tuple[float, float]]) -> float:
    """Median slope between all pairs, at least 0."""
    slopes = [(y2 - y1) / (x2 - x1) for i, (x1, y1) in enumerate(scaled) for x2, y2 in scaled[i + 1 :] if x2 != x1]
    return max(0.0, median(slopes)) if slopes else 0.0
