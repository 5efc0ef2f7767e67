"""A counter worked out poll by poll, where an engine tells its steps and what each yields, but no sum."""

from __future__ import annotations

from gpumon.sources.engines.plan import usable


class Integral:
    """Adds up what a step counter grew by, times a gauge: its mean at the two polls.

    The result never falls, unless the step counter does (the engine started anew): then it begins again at 0.
    """

    __slots__ = ("_each", "_steps", "_total")

    def __init__(self) -> None:
        self._steps: float | None = None
        self._each = 0.0
        self._total = 0.0

    def add(self, steps: float, each: float) -> float:
        """The sum up to a poll that found the step counter at `steps` and the gauge at `each`; 0 at the first."""
        if self._steps is not None:
            total = self._total + (steps - self._steps) * (self._each + each) / 2
            self._total = total if steps >= self._steps and usable(total) else 0.0
        self._steps, self._each = steps, each
        return self._total
