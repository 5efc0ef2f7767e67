"""Two spans of hosts that a Prometheus scrapes, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from gpumon.efficiency.before_after import before_after
from gpumon.efficiency.span import TakenSpan
from gpumon.fleet.course import HostCourse
from gpumon.history.derivation import WARM_UP_S
from gpumon.readings.before_after import BeforeAfter
from gpumon.readings.when import Stretch
from gpumon.triage.fresh import Make

if TYPE_CHECKING:
    from gpumon.session.live_fleet import FleetFrames

Progress = Callable[[int, int], None]
"""Looks that are done, and all of them."""
_MOMENTS: Final = 60
"""Moments that are asked for of each span."""
_WARM_UP_MOMENTS: Final = 4
"""Moments before a span that fill the windows of rates."""


def _untold(done: int, of: int) -> None:
    """Progress that nobody waits for."""


async def compared_hosts(
    source: FleetFrames,
    make: Make,
    hosts: Sequence[str],
    scrape_s: float,
    spans: tuple[Stretch, Stretch],
    progress: Progress = _untold,
) -> BeforeAfter:
    """Both spans of these hosts, which are scraped every `scrape_s`. Raises ApiFault.

    `progress` is told before each look how many looks at a host are done, and of how many.
    """
    before, after = spans
    looks = 2 * len(hosts)
    taken_before = await _taken(source, make, hosts, scrape_s, before, lambda done: progress(done, looks))
    taken_after = await _taken(source, make, hosts, scrape_s, after, lambda done: progress(len(hosts) + done, looks))
    progress(looks, looks)
    return before_after(taken_before, taken_after)


async def _taken(
    source: FleetFrames,
    make: Make,
    hosts: Sequence[str],
    scrape_s: float,
    stretch: Stretch,
    progress: Callable[[int], None],
) -> TakenSpan:
    """Everything that the hosts' series have of a span."""
    span = TakenSpan(stretch.begin_s, stretch.end_s)
    step_s = max(scrape_s, stretch.seconds / _MOMENTS)
    begin_s = stretch.begin_s - max(WARM_UP_S, _WARM_UP_MOMENTS * step_s)
    times: set[float] = set()
    for done, host in enumerate(hosts):
        progress(done)
        course = HostCourse(make, charted=False)
        name = ""
        if len(hosts) > 1:
            name = host
        for at_s, frame in await source.past(host, begin_s, stretch.end_s, step_s):
            moment = course.take(frame, at_s, max(frame.interval_s, step_s))
            if at_s >= stretch.begin_s:
                span.take(moment.snapshot, at_s, frame.engines, name)
                times.add(at_s)
    span.moments = len(times)
    return span
