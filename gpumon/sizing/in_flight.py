"""Requests in flight of each model over the last minutes: mean and peak, which a plan is for."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

STEP_S: Final = 10.0
"""A peak is a mean of so long: one instant is none."""
KEPT_STEPS: Final = 30
LEAST_TICKS: Final = 2
"""Of a step; fewer are an instant, too."""
MOST_MODELS: Final = 64


class InFlight(NamedTuple):
    """Requests in flight of one model, all its engines."""

    peak: float
    """Highest mean of 10 s."""
    mean: float
    seconds: float
    """That it was looked at, at most 5 minutes."""


class _Step:
    __slots__ = ("at", "count", "total")

    def __init__(self, at: int) -> None:
        self.at = at
        self.total = 0.0
        self.count = 0

    @property
    def mean(self) -> float:
        return self.total / self.count


class Peaks:
    """Steps of 10 s for each model, of the last 5 minutes, at most 64 models: 150 kB at the very most."""

    def __init__(self) -> None:
        self._now = -1
        self._steps: dict[str, deque[_Step]] = {}

    def take(self, time_s: float, counts: Mapping[str, float]) -> None:
        """Take one tick in: served model name -> requests in flight. All starts anew where the clock was set back."""
        if not math.isfinite(time_s):
            return
        now = int(time_s // STEP_S)
        if now < self._now:
            self._steps.clear()
        if now != self._now:
            self._now = now
            self._forget()
        for model, count in counts.items():
            steps = self._steps.get(model)
            if steps is None:
                if len(self._steps) >= MOST_MODELS:
                    continue
                steps = self._steps[model] = deque(maxlen=KEPT_STEPS + 1)
            if not steps or steps[-1].at != now:
                steps.append(_Step(now))
            steps[-1].total += count
            steps[-1].count += 1

    def found(self) -> dict[str, InFlight]:
        """Of every model that was seen for one whole step at least; the step under way is not looked at."""
        found = {}
        for model, steps in self._steps.items():
            whole = [step for step in steps if step.at != self._now and step.count >= LEAST_TICKS][-KEPT_STEPS:]
            if whole:
                total, count = sum(step.total for step in whole), sum(step.count for step in whole)
                # A step that was hardly looked at is an instant again.
                ticks = max(step.count for step in whole)
                most = max(step.mean for step in whole if 2 * step.count >= ticks)
                found[model] = InFlight(most, total / count, STEP_S * len(whole))
        return found

    def _forget(self) -> None:
        for model, steps in list(self._steps.items()):
            while steps and steps[0].at < self._now - KEPT_STEPS:
                steps.popleft()
            if not steps:
                del self._steps[model]
