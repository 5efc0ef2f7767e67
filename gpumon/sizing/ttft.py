"""Time to the first token: prefill and its crowd below the knee, waiting beyond it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from statistics import median
from typing import Final

import msgspec

from gpumon.efficiency.checks import checked, positive
from gpumon.sizing.bands import REACHED, engine_factor
from gpumon.sizing.observed import Point
from gpumon.sizing.roofline import Setting, layers_s, prompt_s
from gpumon.sizing.tails import largest

_LONGEST_S: Final = 86400.0
"""A day until the first token is no measurement."""
_LEAST_LOADS: Final = 3
_LEAST_SPREAD: Final = 2.0
_KNEE: Final = 1.05
"""Offered over running: beyond it, requests wait for admission."""


class TtftLine(msgspec.Struct, frozen=True):
    """Mean TTFT with b in flight: fixed + crowd*sqrt(b) + growth*b, seconds.

    A first token waits for the prompts that came in with it: of b requests that end independently about sqrt(b) do so
    together. Where a client sends all at once it waits for all of them, which only a measurement tells. Waiting for
    admission past the knee is not in it (`queued_ttft_s`). ValueError on terms that are negative or not finite.
    """

    fixed_s: float
    crowd_s: float
    growth_s: float = 0.0

    def __post_init__(self) -> None:
        checked("fixed_s", self.fixed_s)
        checked("crowd_s", self.crowd_s)
        checked("growth_s", self.growth_s)

    def ttft_s(self, running: float) -> float:
        """Mean seconds to the first token beside `running` sequences."""
        beside = max(1.0, checked("running", running))
        return self.fixed_s + self.crowd_s * math.sqrt(beside) + self.growth_s * beside

    def running_at(self, ttft_s: float) -> float:
        """Most sequences whose TTFT is at most `ttft_s`: 0 where one alone is slower, infinite where none ever is."""
        positive("ttft_s", ttft_s)
        return largest(lambda running: self.ttft_s(running) <= ttft_s)

    def scaled(self, factor: float) -> TtftLine:
        """So many times as long at any load."""
        return TtftLine(self.fixed_s * factor, self.crowd_s * factor, self.growth_s * factor)


def line_of(alone_s: float, beside_s: float, factor: float = 1.0) -> TtftLine:
    """The line of prompts that take `alone_s` to compute, in steps whose layers cost `beside_s` beside that.

    Constants and errors are those of measured servers (`bands`): a first token takes some steps beside its prompt
    (admission, scheduling, detokenising), and each prompt of its crowd its own computation and two steps' layers.
    """
    crowd_s = REACHED.ttft_prompt * alone_s + REACHED.ttft_crowd * beside_s
    return TtftLine(factor * REACHED.ttft_steps * beside_s, factor * crowd_s)


def ttft_line(setting: Setting, engine: str = "") -> TtftLine:
    """The line from dimensions and peaks; `engine`: vllm, trtllm, sglang, or not known."""
    return line_of(prompt_s(setting), layers_s(setting), engine_factor(engine))


@lru_cache(maxsize=256)
def calibrated(line: TtftLine | None, points: tuple[Point, ...]) -> TtftLine | None:
    """The line through the points from below the knee; `line` scaled to them where they are too few, itself without.

    From three loads with a spread of 2 on: Theil-Sen over sqrt(b) or over b, whichever is nearer. Points whose offered
    load is more than 5 % above what runs have waited for admission and are left out. Each counts once: weights are
    windows of the same engine, and the latency drifts with load rather than time.
    """
    seen = [(max(1.0, point.running), point.ttft_s) for point in points if point.ttft_s and below_knee(point)]
    loads = {round(running) for running, _ in seen}
    if len(loads) >= _LEAST_LOADS and max(loads) >= _LEAST_SPREAD * min(loads):
        fits = [_through(seen, math.sqrt), _through(seen, lambda running: running)]
        found = [TtftLine(fits[0][0], fits[0][1]), TtftLine(fits[1][0], 0.0, fits[1][1])]
        return min(found, key=lambda each: median(abs(each.ttft_s(b) / ttft_s - 1.0) for b, ttft_s in seen))
    if line is None:
        return TtftLine(median(ttft_s for _, ttft_s in seen), 0.0) if seen else None
    alone_s = line.ttft_s(1.0)
    return line.scaled(median(ttft_s / line.ttft_s(b) for b, ttft_s in seen)) if seen and alone_s > 0.0 else line


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


def _through(seen: Sequence[tuple[float, float]], of: Callable[[float], float]) -> tuple[float, float]:
    """Intercept and slope over a function of the load, both at least 0."""
    line = [(of(running), ttft_s) for running, ttft_s in seen]
    slopes = [(y2 - y1) / (x2 - x1) for i, (x1, y1) in enumerate(line) for x2, y2 in line[i + 1 :] if x2 != x1]
    slope_s = max(0.0, median(slopes))
    fixed_s = median(y - slope_s * x for x, y in line)
    return (fixed_s, slope_s) if fixed_s >= 0.0 else (0.0, median(y / x for x, y in line))
