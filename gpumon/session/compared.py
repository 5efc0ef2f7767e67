"""Two spans of time of hosts that a Prometheus scrapes, side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from gpumon.efficiency.before_after import before_after
from gpumon.efficiency.span import TakenSpan
from gpumon.fleet.period import MOST_STEPS_APART
from gpumon.fleet.pipeline import HostPipeline
from gpumon.history.derivation import WARM_UP_S
from gpumon.readings.before_after import BeforeAfter
from gpumon.readings.when import Stretch
from gpumon.triage.fresh import MakeDeriver

if TYPE_CHECKING:
    from gpumon.session.live_fleet import FleetFrames

Progress = Callable[[int, int], None]
"""Takes the number of looks that are done, and that of all looks; a look is one host in one span."""
_SPAN_MOMENTS: Final = 60
"""Moments that are asked for of each span, at most."""
_WARM_UP_MOMENTS: Final = 4
"""Fewest moments before a span, to fill the windows of rates."""


def _ignore_progress(done: int, total: int) -> None:
    """Take progress that nobody is shown."""


async def compare_hosts(
    source: FleetFrames,
    make_deriver: MakeDeriver,
    hosts: Sequence[str],
    scrape_s: float,
    spans: tuple[Stretch, Stretch],
    progress: Progress = _ignore_progress,
) -> BeforeAfter:
    """Read both spans of these hosts, which are scraped every `scrape_s`, and compare them. Raises ApiFault.

    `progress` is called before each look.
    """
    before, after = spans
    looks = 2 * len(hosts)
    span_before = await _read_span(
        source, make_deriver, hosts, scrape_s, before, lambda hosts_done: progress(hosts_done, looks)
    )
    span_after = await _read_span(
        source, make_deriver, hosts, scrape_s, after, lambda hosts_done: progress(len(hosts) + hosts_done, looks)
    )
    progress(looks, looks)
    return before_after(span_before, span_after)


async def _read_span(
    source: FleetFrames,
    make_deriver: MakeDeriver,
    hosts: Sequence[str],
    scrape_s: float,
    stretch: Stretch,
    progress: Callable[[int], None],
) -> TakenSpan:
    """Read one span of all hosts. `progress` is called before each host with the number of hosts that are done."""
    span = TakenSpan(stretch.begin_s, stretch.end_s)
    step_s = max(scrape_s, stretch.seconds / _SPAN_MOMENTS)
    begin_s = stretch.begin_s - max(WARM_UP_S, _WARM_UP_MOMENTS * step_s)
    times: set[float] = set()
    for hosts_done, host in enumerate(hosts):
        progress(hosts_done)
        pipeline = HostPipeline(make_deriver, charted=False)
        # With one host alone, engines and GPUs are named without it.
        name = host if len(hosts) > 1 else ""
        last_s = stretch.begin_s
        for at_s, frame in await source.past(host, begin_s, stretch.end_s, step_s):
            moment = pipeline.take(frame, at_s, max(frame.interval_s, step_s))
            if at_s >= stretch.begin_s:
                follows_gap = at_s - last_s > MOST_STEPS_APART * step_s
                last_s = at_s
                span.take(moment.snapshot, at_s, frame.engines, name, follows_gap=follows_gap)
                times.add(at_s)
    span.moments = len(times)
    return span
