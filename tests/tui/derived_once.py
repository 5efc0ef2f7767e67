"""What the readings of a host lead to is derived and judged once per test process, whichever fleet it is part of.

To start a fleet's screen takes 150 ms of processor time, 100 of them to derive and judge the hosts' moments before the
first one. The tests of the screen begin with the same few hosts a hundred times; the code that derives is the real one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import pytest

import gpumon.fleet.fleet
import gpumon.session.build
import gpumon.session.fleet_host
from gpumon.config.schema import Config
from gpumon.fleet.course import HostCourse, HostMoment
from gpumon.readings.fleet import HostFrame
from gpumon.readings.quantities import ITL, TTFT
from gpumon.triage.fresh import Make

_maker: Final = gpumon.session.build.maker
_makes: Final[dict[str, Make]] = {}


def _maker_once(config: Config, hardware: object = None) -> Make:
    """Take the place of `maker`: configs that differ in nothing that is derived have one."""
    if hardware is not None:
        return _maker(config, hardware)
    key = repr((config.gpu, config.triage, config.goals, config.prices, config.model, config.endpoint))
    if key not in _makes:
        _makes[key] = _maker(config)
    return _makes[key]


class _Taken(NamedTuple):
    """What a course was given."""

    host: HostFrame
    wall_s: float
    interval_s: float


class _Step:
    """A host after some frames, and what it led to."""

    def __init__(self, before: _Step | None = None, taken: _Taken | None = None) -> None:
        self.before = before
        self.taken = taken
        self.after: dict[tuple[int, float, float], _Step] = {}
        """By the identity of the next frame, which `taken` keeps alive, and its times."""
        self.course: HostCourse | None = None
        """The course that stands here; None once it went on."""
        self.moment: HostMoment | None = None
        self.observed: dict[tuple[str, str], object] = {}

    def way(self) -> list[_Taken]:
        """The frames that led here, the oldest first."""
        if self.before is None or self.taken is None:
            return []
        return [*self.before.way(), self.taken]


_first_steps: Final[dict[tuple[Make, bool, bool], _Step]] = {}


class KnownCourse:
    """Takes the place of a `HostCourse`, which it asks for what no other one was asked before."""

    def __init__(self, make: Make, *, charted: bool = True, judged: bool = True) -> None:
        self._make = make
        self._charted = charted
        self._judged = judged
        self._step = _first_steps.setdefault((make, charted, judged), _Step())

    @property
    def deriver(self) -> KnownCourse:
        """What tells of observed latencies."""
        return self

    def observed(self, engine: str, quantity: str) -> object:
        """The observations of an engine's window after the last frame."""
        return self._step.observed.get((engine, quantity))

    def take(self, host: HostFrame, wall_s: float, interval_s: float) -> HostMoment:
        """The host after one more frame."""
        key = (id(host), wall_s, interval_s)
        if key not in self._step.after:
            self._step.after[key] = self._derived(_Taken(host, wall_s, interval_s))
        self._step = self._step.after[key]
        assert self._step.moment is not None
        return self._step.moment

    def _derived(self, taken: _Taken) -> _Step:
        """The next step, by the real course."""
        course = self._course()
        step = _Step(self._step, taken)
        step.course = course
        step.moment = course.take(*taken)
        for engine in step.moment.snapshot.engines:
            for quantity in (TTFT, ITL):
                step.observed[engine.key, quantity] = course.deriver.observed(engine.key, quantity)
        return step

    def _course(self) -> HostCourse:
        """The real course that stands here, or one that is led here again."""
        course = self._step.course
        self._step.course = None
        if course is None:
            course = HostCourse(self._make, charted=self._charted, judged=self._judged)
            for taken in self._step.way():
                course.take(*taken)
        return course


@pytest.fixture(autouse=True, scope="session")
def derived_once() -> Iterator[None]:
    """Keep what was derived of each host for all fleets."""
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(gpumon.session.build, "maker", _maker_once)
        patches.setattr(gpumon.fleet.fleet, "HostCourse", KnownCourse)
        patches.setattr(gpumon.session.fleet_host, "HostCourse", KnownCourse)
        yield
