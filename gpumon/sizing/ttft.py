"""Time to the first token: prefill and dispatch below the knee, waiting beyond it."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import median
from typing import Final

import msgspec

from gpumon.efficiency.checks import checked, positive
from gpumon.sizing.observed import Point
from gpumon.sizing.roofline import Setting, prefill_tokens_per_s

_DISPATCH_S: Final = 0.0008
"""Per layer."""
_DOUBLED_AT: Final = 8.0
"""log2 of the running sequences at which prefill takes twice as long, the most."""
_LONGEST_S: Final = 86400.0
"""A day until the first token is no measurement."""
_CROWDED: Final = 2.0**_DOUBLED_AT
_STEPS: Final = 60
_LEAST_LOADS: Final = 3
_KNEE: Final = 1.05
"""Offered over running: beyond it, requests wait for admission."""


class TtftLine(msgspec.Struct, frozen=True):
    """Mean TTFT with b running: factor*(prefill_s*(1 + log2(b)/8, at most 2) + 0.8 ms*layers) + growth_s*b.

    The first part is aiconfigurator's model of vLLM; its own note: 26 % mean error before and 18 % after tuning, b = 1
    to 64. The growth is what measured engines add to it: prompts wait for one another. Waiting for admission past the
    knee is not in it (`queued_ttft_s`). ValueError on inputs that are negative or not finite.
    """

    prefill_s: float
    """One prompt's computed part, alone."""
    layers: int
    factor: float = 1.0
    """Observed / model."""
    growth_s: float = 0.0
    """Per running sequence."""

    def __post_init__(self) -> None:
        checked("prefill_s", self.prefill_s)
        checked("layers", self.layers)
        positive("factor", self.factor)
        checked("growth_s", self.growth_s)

    def ttft_s(self, running: float) -> float:
        """Mean seconds to the first token beside `running` sequences."""
        crowd = min(1.0, math.log2(max(1.0, checked("running", running))) / _DOUBLED_AT)
        alone = self.prefill_s * (1.0 + crowd) + _DISPATCH_S * self.layers
        return self.factor * alone + self.growth_s * running

    def running_at(self, ttft_s: float) -> float:
        """Most sequences whose TTFT is at most `ttft_s`: 0 where one alone is slower, infinite where none ever is.

        Newton from below up to 256, where the logarithm ends; a line beyond.
        """
        if self.ttft_s(1.0) > positive("ttft_s", ttft_s):
            return 0.0
        beyond = ttft_s - self.ttft_s(_CROWDED)
        if beyond >= 0.0:
            return _CROWDED + beyond / self.growth_s if self.growth_s > 0.0 else math.inf
        running = 1.0
        for _ in range(_STEPS):
            rise = self.factor * self.prefill_s / (_DOUBLED_AT * math.log(2.0) * running) + self.growth_s
            step = (ttft_s - self.ttft_s(running)) / rise
            running = min(_CROWDED, max(1.0, running + step))
            if abs(step) <= 1e-12 * running:
                break
        return running


def ttft_line(setting: Setting) -> TtftLine:
    """The line from dimensions and peaks; a prompt passes pipeline stages one after the other, so only tp speeds it."""
    alone = prefill_tokens_per_s(setting) * setting.tp / setting.gpus
    return TtftLine(prefill_s=setting.mix.new_tokens / alone, layers=setting.llm.layers)


@lru_cache(maxsize=256)
def calibrated(line: TtftLine, points: tuple[Point, ...]) -> TtftLine:
    """`line` moved to the points from below the knee; itself where there are none.

    The factor is the median of observed / model. Over at least three loads with a spread of 2 the growth is fitted too,
    by Theil-Sen of observed/model against b/model; it replaces that of `line`. Points whose offered load is more than
    5 % above what runs have waited for admission and are left out. Each counts once: weights are windows of the same
    engine, and the ratio drifts with load rather than time. The same points are asked about at every keystroke.
    """
    bare = TtftLine(line.prefill_s, line.layers, line.factor)
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
    return TtftLine(line.prefill_s, line.layers, line.factor * factor, growth)


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
