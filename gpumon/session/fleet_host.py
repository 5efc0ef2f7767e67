"""One host of a fleet for the screen of one machine: charts of its past at first, then what each refresh brings."""

from __future__ import annotations

import asyncio
import shlex
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from gpumon.efficiency.deriver import shown_fault
from gpumon.fleet.blank import without_figures
from gpumon.fleet.pipeline import HostPipeline
from gpumon.readings.fleet import FleetFrame, HostFrame
from gpumon.readings.format import rfc3339
from gpumon.readings.frame import Fault
from gpumon.readings.history import History
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Engine, FaultShown, Snapshot, Verdict
from gpumon.readings.untrusted import Untrusted, log_command, ssh_host
from gpumon.session.fleet_host_past import (
    CHART_S,
    FleetHostPast,
    append_moment,
    chart_step_s,
    with_fleet_name,
)
from gpumon.session.yield_to_loop import YieldToLoop
from gpumon.sources.prometheus.api import ApiFault
from gpumon.sources.prometheus.past import gather_queries
from gpumon.triage.render import acknowledged_text

if TYPE_CHECKING:
    from gpumon.session.live_fleet import LiveFleet
    from gpumon.tui.control import EngineLog, Playback, Timeline

_GONE_TEXT: Final = "the Prometheus has nothing of this host any more: are its targets still scraped?"
_SAME_S: Final = 0.1
"""Seconds: two moments that are nearer to each other are one."""
_MOST_WAITING: Final = 8
"""Refreshes that are kept while the past is read."""
_UNREACHABLE: Final = Missing(Reason.UNREACHABLE)
_STALE: Final = Missing(Reason.STALE)
CHART_STEPS: Final = 120
"""Moments in `CHART_S`: a chart is hardly wider, and each costs some milliseconds while somebody waits."""
FINE_STEPS: Final = 60
"""Newest scrapes that are taken one by one: windows and verdicts of now stand on them."""


class QuerySpan(NamedTuple):
    """The span of one range query, in Unix times, and the seconds between its moments."""

    start_s: float
    end_s: float
    step_s: float


def chart_spans(start_s: float, end_s: float, scrape_s: float) -> list[QuerySpan]:
    """Spans that fill the charts: the newest scrapes one by one, older ones as coarsely as charts show them."""
    step_s = max(scrape_s, CHART_S / CHART_STEPS)
    fine_s = max(start_s, end_s - FINE_STEPS * scrape_s)
    if fine_s - step_s > start_s and step_s > scrape_s:
        return [QuerySpan(start_s, fine_s - step_s, step_s), QuerySpan(fine_s, end_s, scrape_s)]
    return [QuerySpan(start_s, end_s, scrape_s)]


class HostOfFleet:
    """The snapshots of one host (`HostSource`). It may be begun again: what it has of the past it keeps."""

    playback: Playback | None = None

    def __init__(self, name: str, fleet: LiveFleet, last_shown: Snapshot | None) -> None:
        """`last_shown`: the host as it was shown last, for where the newest answer and its past have nothing of it."""
        self.history = History()
        self.timeline: Timeline | None = FleetHostPast(name, fleet, last_shown)
        self.filling = False
        self._name = name
        self._fleet = fleet
        self._source = fleet.source
        self._pipeline = HostPipeline(fleet.make_deriver)
        self._waiting: deque[FleetFrame] = deque(maxlen=_MOST_WAITING)
        """Answers that are not derived yet, the oldest first."""
        self._wake = asyncio.Event()
        self._last: Snapshot | None = None
        """The newest snapshot, as it was derived."""
        self._last_shown = last_shown
        self._show: Callable[[Snapshot], None] = _ignore_snapshot
        self._learn: Callable[[Snapshot], None] = _ignore_snapshot
        self._taken_s = float("-inf")
        """Unix time of the newest moment that was derived."""
        self._charted_s = float("-inf")
        """Unix time of the newest snapshot in the history. It is no scrape's if the host's own gpumon made it."""
        self._past_fault: Fault | None = None
        """Why the past could not be had."""

    @property
    def interval_s(self) -> float:
        """Seconds between two refreshes of the fleet."""
        return self._fleet.interval_s

    def set_interval(self, seconds: float) -> None:
        """Change the seconds between two refreshes of the whole fleet."""
        self._fleet.set_interval(seconds)

    def refresh(self) -> None:
        """Refresh the whole fleet now."""
        self._fleet.refresh()

    def engine_log(self, engine: Engine) -> EngineLog | str:
        """The log of an engine if the fleet's host is this machine; else the command that shows it there."""
        if self._name.partition(".")[0] == socket.gethostname().partition(".")[0]:
            from gpumon.sources.engine_log.log import EngineLogReader, serving_origin

            return EngineLogReader(lambda: serving_origin(engine.url))
        host = ssh_host(self._name)
        command = log_command(engine.departure[0].log) if engine.departure else ""
        if command.startswith("kubectl"):
            return f"the log of {engine.name} is shown by: {command}"
        if command:
            words = shlex.quote(command) if "'" in command else command  # the shell there reads it a second time
            return f"the log of {engine.name} is on another host: ssh {host} {words}"
        return f"the log of {engine.name} is on another host: ssh -t {host} gpumon, then its log there"

    def why_no_acknowledging(self, verdict: Verdict) -> str:
        """The command for the host, where somebody acknowledged it there, or that its scheduler knows; empty for all
        else, kept on this machine."""
        if verdict.acknowledged is not None and not verdict.acknowledged.until:
            return f"{acknowledged_text(verdict.acknowledged)}: it counts again once the host is taken in"
        is_own = verdict.acknowledged is not None and not self._fleet.is_acknowledged_here(self._name, verdict)
        if not is_own:
            return ""
        text = "it is acknowledged on its host, and taken back there"
        identity = Untrusted(verdict.id).of_form("argument")
        if not identity:
            return text
        host = ssh_host(self._name)
        command = shlex.quote(f"gpumon ack --remove {identity}")
        return f"{text}: ssh {host} {command}"

    def acknowledge(self, verdicts: Sequence[Verdict], shown: Snapshot, reason: str, seconds: float) -> None:
        """Acknowledge verdicts of this host on the machine that looks at it: nothing is changed on another host."""
        self._fleet.acknowledge(self._name, verdicts, shown, reason, seconds)

    def lift(self, ids: Sequence[str]) -> None:
        """Take back what was acknowledged here."""
        self._fleet.lift(self._name, ids)

    async def begin(self, show: Callable[[Snapshot], None], learn: Callable[[Snapshot], None]) -> None:
        """Follow the host, and show at once what is known of it."""
        self._show = show
        self._learn = learn
        self._past_fault = None
        self.filling = True
        self._waiting.clear()
        self._fleet.follow(self._name, self._offer)
        shown = self._fleet.snapshot.host(self._name)
        if shown is not None:
            self._last = shown.snapshot
            show(self._as_shown_now(self._last))
        elif self._last_shown is not None:
            self._last = _gone_snapshot(self._last_shown, self._fleet.snapshot.wall_s, self._last_shown.wall_s)
            show(self._as_shown_now(self._last))

    async def end(self) -> None:
        """Follow the host no more."""
        self._show = _ignore_snapshot
        self._fleet.leave(self._offer)

    def _offer(self, frame: FleetFrame) -> None:
        """Queue an answer until the past is read; show a failure at once, as reading the past may hang, too."""
        if frame.answered:
            self._waiting.append(frame)
            self._wake.set()
        elif self._last is not None:
            self._show(self._as_shown_now(self._last))

    async def run(self) -> None:
        """Show the host with its past, then as refreshes come."""
        newest = self._fleet.newest
        if newest is not None:
            await self._read_past(newest.wall_s)
            self._waiting.appendleft(newest)
            self._wake.set()
        self.filling = False  # without any answer there is no past to ask for: the charts begin with the first one
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                snapshot = self._take(self._waiting.popleft())
                if snapshot is not None:
                    self._show(self._as_shown_now(snapshot))

    async def _read_past(self, end_s: float) -> None:
        """Fill the charts, the windows, and what verdicts stand on."""
        yielding = YieldToLoop()
        spans = chart_spans(max(end_s - CHART_S, self._taken_s), end_s, chart_step_s(self._fleet, self._name))
        try:
            pasts = await gather_queries(*(self._source.past(self._name, *span) for span in spans))
        except ApiFault as fault:
            self._past_fault = Fault("past", f"the charts begin now: {fault.text}", end_s)
            return
        for span, frames in zip(spans, pasts, strict=True):
            for at_s, host in frames:
                self._derive(host, at_s, span.step_s)
                await yielding.if_due()

    def _take(self, frame: FleetFrame) -> Snapshot | None:
        """The snapshot after an answer; None where nothing is new in it."""
        if frame.wall_s < self._taken_s:
            return None
        host = frame.host(self._name)
        if host is not None and not host.is_read:
            return None
        if host is not None:
            self._derive(host, frame.wall_s, self._fleet.interval_s)
        elif self._last is not None:
            was_answered = self._taken_s > 0.0
            since_s = self._taken_s if was_answered else frame.wall_s
            self._last = _gone_snapshot(self._last, frame.wall_s, since_s)
        return self._last

    def _derive(self, host: HostFrame, wall_s: float, interval_s: float) -> None:
        """Derive one moment of the host and chart it; moments that are not newer than the last one are skipped."""
        if wall_s <= self._taken_s + _SAME_S:  # the past ends with the newest answer, and has more of it
            return
        self._taken_s = wall_s
        moment = self._pipeline.take(host, wall_s, max(host.interval_s, interval_s))
        self._last = moment.snapshot
        if moment.points and moment.snapshot.wall_s > self._charted_s:
            self._charted_s = moment.snapshot.wall_s
            append_moment(self.history, moment, max(host.interval_s, interval_s))
        self._learn(moment.snapshot)

    def _as_shown_now(self, last: Snapshot) -> Snapshot:
        """A snapshot of the host as it may be shown now: with the faults of the fleet and of its past beside its own,
        and without figures once the Prometheus was silent for too long."""
        fleet = self._fleet.snapshot
        fleet_faults: tuple[FaultShown, ...] = fleet.faults if not fleet.answered else ()
        own_faults = last.faults
        past = self._past_fault
        if past is not None:
            own_faults = (*own_faults, shown_fault(past.source, past.text, past.since_wall_s))
        shown = with_fleet_name(last, self._name)
        if fleet.late:
            shown = without_figures(shown, _STALE, self._fleet.silent_s)
        shown = self._fleet.with_acknowledged(self._name, shown)
        return msgspec.structs.replace(shown, faults=(*fleet_faults, *own_faults))


def _ignore_snapshot(snapshot: Snapshot) -> None:
    """Take a snapshot that nobody waits for."""


def _gone_snapshot(last: Snapshot, wall_s: float, since_s: float) -> Snapshot:
    """The snapshot of a host that the Prometheus has nothing of at `wall_s`, and had something of until `since_s`."""
    return msgspec.structs.replace(
        without_figures(last, _UNREACHABLE),
        wall_s=wall_s,
        time=rfc3339(wall_s),
        faults=(shown_fault("prometheus", _GONE_TEXT, since_s),),
    )
