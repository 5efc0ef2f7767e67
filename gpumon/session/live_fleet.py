"""A fleet as it is asked now: from a Prometheus (`--prometheus`), or from each host's own gpumon (`--host`)."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from gpumon.config.schema import Config
from gpumon.deadline import timeout
from gpumon.fleet.snapshot import NOTHING_YET, FleetSnapshot, HostShown, HostState
from gpumon.readings.fleet import FleetFrame
from gpumon.readings.format import rfc3339
from gpumon.readings.frame import EndpointState, Fault
from gpumon.readings.missing import number
from gpumon.readings.quantities import E2E
from gpumon.readings.verdict import Acknowledged
from gpumon.session.lateness import Lateness
from gpumon.session.session import Take
from gpumon.session.yield_to_loop import YieldToLoop

if TYPE_CHECKING:
    from gpumon.fleet.fleet import Fleet
    from gpumon.readings.fleet import HostFrame, LabelsLine
    from gpumon.readings.snapshot import Snapshot, Verdict
    from gpumon.sources.acknowledging import AcknowledgementKeeper
    from gpumon.triage.fresh import MakeDeriver

_WITH_FIGURES: Final = frozenset({HostState.OK, HostState.PARTIAL})
"""States of a host of which it is known what stands there."""
_LEAST_INTERVAL_S: Final = 1.0
"""Shortest time between two refreshes, in seconds."""
_MOST_END_S: Final = 2.0
"""Seconds that connections may take to close. They wait for nobody: where a machine has no time, they take longer than
some milliseconds."""
_FEWEST_BEFORE: Final = 2
"""Fewest moments that are asked for before the first one: rates need them."""
MOST_BEFORE: Final = 7
"""Most moments that are asked for before the first one: each costs as much as a refresh."""


class FleetFrames(Protocol):
    """A source of the fleet's snapshots."""

    async def frame(self, at_s: float | None = None, hosts: Collection[str] | None = None) -> FleetFrame:
        """The fleet at a Unix time (None: now); what does not work is in the frame.

        Of the past it may have these `hosts` alone.
        """

    async def next_frame(self) -> FleetFrame:
        """The fleet now, as far as a refresh reads it: in a large one hosts have their turn."""

    async def past(self, host: str, start_s: float, end_s: float, step_s: float) -> tuple[tuple[float, HostFrame], ...]:
        """The frames of one host from one Unix time to another, each with its time, the oldest first.

        There is one for each step at which the host is known. Raises ApiFault.
        """

    def look_at(self, host: str) -> None:
        """Ask for everything that this host has, from the next frame on, and of the others for what rows show.

        "": no host is looked at any more.
        """

    def lacks_gpumon(self, host: str) -> bool:
        """Whether gpumon could run on this host from a temporary folder, and was not allowed to so far."""

    def install(self, host: str) -> None:
        """Run gpumon on this host from a temporary folder."""

    async def use_labels(self, lines: Iterable[LabelsLine]) -> None:
        """Name hosts by these lists of labels from the next frame on, which begins anew."""

    def first_s(self, newest_s: float) -> float:
        """Unix time of the oldest moment that can be asked for, where the newest one is of `newest_s`."""

    async def settle(self) -> None:
        """Wait until the source has what a single answer lacks: the day before, or the rates of polled hosts."""

    async def close(self) -> None:
        """Close all connections."""


class LiveFleet:
    """The snapshots of a fleet (`SnapshotSource`), at every refresh; and those of moments of its past."""

    def __init__(self, config: Config, source: Callable[[], FleetFrames] | None = None) -> None:
        """`source` makes the source of the frames; None: the hosts or the Prometheus of the config."""
        self.snapshot: FleetSnapshot = NOTHING_YET
        self.newest: FleetFrame | None = None
        """The newest answer that has hosts; None: there was none yet."""
        self._config = config
        self._make_source = source or (lambda: _source_of_config(config))
        self._source: FleetFrames | None = None
        self._make_deriver: MakeDeriver | None = None
        self._fleet: Fleet | None = None
        if config.host:
            self._interval_s = max(_LEAST_INTERVAL_S, config.general.interval_s)
        else:
            self._interval_s = config.prometheus.interval_s
        self._followers: list[Callable[[FleetFrame], None]] = []
        self._open_questions = 0
        """Number of questions to the source that are not answered yet."""
        self._learned_s = 0.0
        """Unix time of the newest snapshot that sizing learned from."""
        self._acknowledging: AcknowledgementKeeper | None = None
        """Keeper of what is acknowledged here; None before `open`."""
        self._new_labels: list[LabelsLine] = []
        """Lists of labels by which hosts are named from the next refresh on."""
        self._wake = asyncio.Event()
        self._show: Callable[[FleetSnapshot], None] = _ignore_snapshot
        self._learn: Take = _ignore_snapshot
        self._lateness = Lateness(self._mark_late)

    @property
    def interval_s(self) -> float:
        """Seconds between two refreshes."""
        return self._interval_s

    @property
    def silent_s(self) -> float:
        """Seconds since the moment of the newest answer."""
        return self._lateness.silent_s

    @property
    def asking(self) -> bool:
        """Whether a question to the source is open right now."""
        return self._open_questions > 0

    def set_interval(self, seconds: float) -> None:
        """Change the time between two refreshes."""
        self._interval_s = max(_LEAST_INTERVAL_S, seconds)
        if self._fleet is not None:
            self._fleet.interval_s = self._interval_s
        self.refresh()

    def refresh(self) -> None:
        """Ask now."""
        self._wake.set()

    def follow(self, host: str, take: Callable[[FleetFrame], None]) -> None:
        """Give every answer to `take`, which must not block; from now on with everything that this host has."""
        self._followers.append(take)
        if self._source is not None:
            self._source.look_at(host)
        self.refresh()

    def leave(self, take: Callable[[FleetFrame], None]) -> None:
        """Give it no answers any more."""
        with contextlib.suppress(ValueError):
            self._followers.remove(take)
        if not self._followers and self._source is not None:
            self._source.look_at("")

    async def open(self) -> None:
        """Make the source and the fleet, once, in a thread: catalogues are read. Raises ConfigError."""
        if self._source is None:
            self._make_deriver, self._fleet, self._source = await asyncio.to_thread(self._build)
            self._acknowledging = _keeper_of_fleet()
            await self._acknowledging.start()
            await self._acknowledging.ready()

    def _build(self) -> tuple[MakeDeriver, Fleet, FleetFrames]:
        """Build the maker of derivers, the fleet and the source of the frames.

        Imports are here, so that the screen's first paint does not wait for them.
        """
        from gpumon.fleet.fleet import Fleet
        from gpumon.session.build import deriver_maker

        make_deriver = deriver_maker(self._config)
        return make_deriver, Fleet(make_deriver, self._interval_s), self._make_source()

    async def begin(self, show: Callable[[FleetSnapshot], None], learn: Take) -> None:
        """Get ready: `show` gets every snapshot, `learn` each that sizing may learn from."""
        self._show = show
        self._learn = learn

    async def end(self) -> None:
        """Stop asking, and close connections."""
        self._show = _ignore_snapshot
        self._learn = _ignore_snapshot
        self._lateness.stop()
        if self._source is not None:
            with contextlib.suppress(Exception):  # a connection that ends badly has ended
                async with timeout(_MOST_END_S):
                    await self._source.close()
        if self._acknowledging is not None:
            await self._acknowledging.close()

    def span(self) -> tuple[float, float] | None:
        """Unix times of the first and the last moment that can be asked for."""
        if self.newest is None or self._source is None:
            return None
        return self._source.first_s(self.newest.wall_s), self.newest.wall_s

    async def at(self, wall_s: float) -> FleetSnapshot:
        """The fleet as it was at a time, with the rates and the verdicts of the scrapes before it."""
        from gpumon.fleet.fleet import Fleet

        await self.open()
        assert self._make_deriver is not None
        step_s = self.snapshot.interval_s or self._interval_s
        fleet = Fleet(self._make_deriver, step_before(step_s, self._config.triage.hold_s))
        times_s = (*moments_before(wall_s, step_s, self._config.triage.hold_s), wall_s)
        for frame in await asyncio.gather(*map(self._ask, times_s)):
            await _take_frame(fleet, frame)
        if fleet.snapshot.wall_s:
            return fleet.snapshot
        return msgspec.structs.replace(fleet.snapshot, wall_s=wall_s, time=rfc3339(wall_s))

    async def first_after(self, without_hosts_s: float, with_hosts_s: float) -> float:
        """Unix time of the beginning of the fleet's history, to a refresh, found by bisection.

        There is no host at `without_hosts_s`, and some at `with_hosts_s` (Unix times).
        """
        await self.open()
        while with_hosts_s - without_hosts_s > max(_LEAST_INTERVAL_S, self.snapshot.interval_s):
            middle_s = (without_hosts_s + with_hosts_s) / 2.0
            frame = await self._ask(middle_s)
            if frame.hosts:
                with_hosts_s = middle_s
            else:
                without_hosts_s = middle_s
        return with_hosts_s

    @property
    def source(self) -> FleetFrames:
        """Source of the frames; there is none before the first `open`."""
        assert self._source is not None, "nothing was asked yet"
        return self._source

    @property
    def make_deriver(self) -> MakeDeriver:
        """Maker of derivers and triages; there is none before the first `open`."""
        assert self._make_deriver is not None, "nothing was asked yet"
        return self._make_deriver

    def lacks_gpumon(self, host: str) -> bool:
        """Whether gpumon could run on this host from a temporary folder, and was not allowed to so far."""
        return self._source is not None and self._source.lacks_gpumon(host)

    def install(self, host: str) -> None:
        """Run gpumon on this host from a temporary folder; its row follows."""
        if self._source is not None:
            self._source.install(host)
        self.refresh()

    def use_labels(self, line: LabelsLine) -> None:
        """Name hosts by this list of labels from the next refresh on, which is now."""
        self._new_labels.append(line)
        self.refresh()

    def acknowledge(self, host: str, verdicts: Sequence[Verdict], shown: Snapshot, reason: str, seconds: float) -> None:
        """Acknowledge verdicts of a host, as its snapshot is shown, in the name of this user and on this machine."""
        from gpumon.sources.acknowledged import this_user
        from gpumon.triage.acknowledgement import acknowledge

        if self._acknowledging is None:
            return
        who = this_user()
        now_s = time.time()
        self._acknowledging.acknowledge(
            [acknowledge(verdict, shown.verdicts, who, reason, now_s, seconds, host) for verdict in verdicts]
        )
        self._mark_again()

    def lift(self, host: str, ids: Sequence[str]) -> None:
        """Take back what was acknowledged of the verdicts of a host with these ids."""
        if self._acknowledging is not None:
            self._acknowledging.lift(ids, host)
            self._mark_again()

    def begin_maintenance(self, what: str, reason: str, seconds: float) -> None:
        """Silence a host, or all hosts with a label (`rack=B`), on this machine."""
        from gpumon.sources.acknowledged import this_user
        from gpumon.triage.acknowledgement import maintenance

        if self._acknowledging is not None:
            self._acknowledging.acknowledge([maintenance(what, this_user(), reason, time.time(), seconds)])
            self._mark_again()

    def end_maintenance(self, what: str) -> None:
        """Let what is wrong there count again."""
        from gpumon.triage.acknowledgement import MAINTENANCE

        self.lift(what, [MAINTENANCE])

    def with_acknowledged(self, host: str, snapshot: Snapshot) -> Snapshot:
        """The snapshot of a host, with what is acknowledged of it on this machine."""
        from gpumon.triage.acknowledgement import with_acknowledged

        if self._acknowledging is None:
            return snapshot
        return with_acknowledged(snapshot, self._acknowledging.kept_of(host))

    def is_acknowledged_here(self, host: str, verdict: Verdict) -> bool:
        """Whether the acknowledgement that a verdict of a host carries was given on this machine."""
        if self._acknowledging is None:
            return False
        return any(kept.shown == verdict.acknowledged for kept in self._acknowledging.kept_of(host))

    def _mark_again(self) -> None:
        """Show the fleet with what has just been acknowledged, or is not any more; the next answer is asked for now."""
        if self._fleet is not None:
            self.snapshot = self._marked(self._fleet.snapshot)
            self._show(self.snapshot)
        self.refresh()

    def _marked(self, snapshot: FleetSnapshot) -> FleetSnapshot:
        """The fleet with what is acknowledged of its hosts. Of a host without figures nothing is over."""
        if self._acknowledging is None or not snapshot.hosts:
            return snapshot
        from gpumon.triage.acknowledgement import in_maintenance, maintenance_of

        now_s = time.time()
        self._acknowledging.drop_ended_maintenance(now_s)
        hosts = []
        for host in snapshot.hosts:
            if host.state in _WITH_FIGURES and not snapshot.late:
                marked = self._acknowledging.mark(host.snapshot, host.name)
            else:
                marked = self.with_acknowledged(host.name, host.snapshot)
            record = maintenance_of(host.name, host.labels, self._acknowledging.kept, now_s)
            maintenance = _of_scheduler(host) if record is None else record.shown
            if maintenance is not None:
                silenced = in_maintenance(marked, maintenance)
                host = msgspec.structs.replace(host, snapshot=silenced, maintenance=maintenance)
            elif marked is not host.snapshot or host.maintenance is not None:
                host = msgspec.structs.replace(host, snapshot=marked, maintenance=None)
            hosts.append(host)
        return msgspec.structs.replace(snapshot, hosts=tuple(hosts))

    async def ask_once(self) -> FleetSnapshot:
        """Ask once, and return the snapshot; the first one has the moments before it, so that there are rates."""
        await self.open()
        is_first = self.newest is None
        assert self._source is not None
        if is_first:
            await self._source.settle()
        frame = await self._ask(None)
        if is_first and frame.hosts and await self._begin_before(frame):
            self._note_answer(frame)
        else:
            await self._take_answer(frame)
        await self._learn_from(self.snapshot)
        return self.snapshot

    async def run(self) -> None:
        """Ask at every interval, in slots that keep their distance, until it is cancelled."""
        await self.open()
        slot_s = time.monotonic()
        while True:
            self._wake.clear()
            await self._begin_with_new_labels()
            frame = await self._asked(lambda source: source.next_frame(), time.time)
            is_first = bool(frame.hosts) and not frame.turn_s and (self.newest is None or self.newest.unread > 0)
            if frame.turn_s:
                self._hear(frame)
                await self._take_before(frame)
            self._show(await self._take_answer(frame))
            # The same answer again, now with rates.
            if is_first and await self._begin_before(frame):
                self._show(self._note_answer(frame))
            await self._learn_from(self.snapshot)
            if frame.unread:  # each host is read once before the refreshes keep their distance
                await asyncio.sleep(0)
                continue
            now_s = time.monotonic()
            slot_s = max(slot_s + self._interval_s, now_s)  # an answer that took too long moves the slots
            timer = asyncio.get_running_loop().call_later(slot_s - now_s, self._wake.set)
            try:
                await self._wake.wait()
            finally:
                timer.cancel()
            slot_s = min(slot_s, time.monotonic())  # a refresh before its time is the new begin of the slots

    async def _begin_with_new_labels(self) -> None:
        """Begin the fleet anew where hosts are named by other labels from now on. What is shown stays until then."""
        from gpumon.fleet.fleet import Fleet

        if not self._new_labels:
            return
        lines = self._new_labels
        self._new_labels = []
        await self.source.use_labels(lines)
        self._fleet = Fleet(self.make_deriver, self._interval_s)
        self.newest = None

    async def _begin_before(self, frame: FleetFrame) -> bool:
        """Begin the fleet anew, some moments before a frame, and take that in; returns False if the source has none of
        them."""
        from gpumon.fleet.fleet import Fleet

        assert self._make_deriver is not None
        step_s = max(frame.interval_s, self._interval_s)
        fleet = Fleet(self._make_deriver, step_before(step_s, self._config.triage.hold_s))
        times_s = moments_before(frame.wall_s, step_s, self._config.triage.hold_s)
        for earlier in await asyncio.gather(*map(self._ask, times_s)):
            if earlier.hosts:
                await _take_frame(fleet, earlier)
                await self._learn_from(fleet.snapshot)
        if not fleet.snapshot.wall_s:
            return False
        fleet.interval_s = self._interval_s
        await _take_frame(fleet, frame)
        self._fleet = fleet  # not before: what is shown while this takes long is no earlier moment
        return True

    async def _take_before(self, frame: FleetFrame) -> None:
        """Take in the moments before a frame for the hosts that it reads first, so that these have rates at once."""
        assert self._fleet is not None
        fleet = self._fleet
        hosts = [host.name for host in frame.hosts if host.is_read and fleet.lacks(host.name)]
        if not hosts:
            return
        times_s = moments_before(frame.wall_s, max(frame.interval_s, self._interval_s), self._config.triage.hold_s)
        yielding = YieldToLoop()
        for earlier in await asyncio.gather(*(self._ask(at_s, hosts) for at_s in times_s)):
            earlier = msgspec.structs.replace(earlier, turn_s=frame.turn_s)
            for _ in fleet.take_before(earlier):
                await yielding.if_due()

    async def _ask(self, at_s: float | None, hosts: Collection[str] | None = None) -> FleetFrame:
        """Ask the source for one moment (None: now), of the past for these hosts (None: all)."""

        def moment_s() -> float:
            """The moment that was asked for."""
            return time.time() if at_s is None else at_s

        return await self._asked(lambda source: source.frame(at_s, hosts), moment_s)

    async def _asked(
        self, ask: Callable[[FleetFrames], Awaitable[FleetFrame]], moment_s: Callable[[], float]
    ) -> FleetFrame:
        """The source's answer; a bug in it becomes a fault of an unanswered frame, dated `moment_s`."""
        assert self._source is not None
        self._open_questions += 1
        try:
            return await ask(self._source)
        except Exception as error:  # a bug in what asks costs this refresh, not the screen
            wall_s = moment_s()
            text = f"gpumon failed on the answers, please report: {type(error).__name__}: {error}"
            return FleetFrame(wall_s, self._interval_s, faults=(Fault("gpumon", text, wall_s),), answered=False)
        finally:
            self._open_questions -= 1

    async def _take_answer(self, frame: FleetFrame) -> FleetSnapshot:
        """Take an answer in, and return the snapshot after it."""
        assert self._fleet is not None
        await _take_frame(self._fleet, frame)
        return self._note_answer(frame)

    def _note_answer(self, frame: FleetFrame) -> FleetSnapshot:
        """Give an answer that was taken in to those that follow single hosts, and return the snapshot after it."""
        assert self._fleet is not None
        self.snapshot = self._marked(self._fleet.snapshot)
        self._hear(frame)
        if frame.hosts:
            self.newest = frame
        for take in tuple(self._followers):  # one that is given a frame may leave
            take(frame)
        return self.snapshot

    def _hear(self, frame: FleetFrame) -> None:
        """Note that an answer came: the next one is due."""
        if frame.answered:
            self._lateness.hear(frame.wall_s, frame.cost_s, max(self._interval_s, frame.interval_s))

    async def _learn_from(self, snapshot: FleetSnapshot) -> None:
        """Let sizing learn from a snapshot, unless it knows a newer one: moments before the first answer come first."""
        from gpumon.fleet.whole import whole_fleet

        if self._learn is _ignore_snapshot:  # then the fleet need not be put together
            return
        if snapshot.answered and snapshot.wall_s > self._learned_s and snapshot.hosts:
            self._learned_s = snapshot.wall_s
            with contextlib.suppress(ValueError, TypeError, ArithmeticError, LookupError):  # figures of peers
                self._learn(await asyncio.to_thread(whole_fleet, snapshot))

    def _mark_late(self, wall_s: float) -> None:
        """Blank what is shown: there was no answer since `wall_s`, and maybe no failure either, whatever hangs."""
        fault = self._silence_fault(wall_s)
        if self._fleet is not None and not self.snapshot.late:
            self._fleet.mark_late(fault)
            self.snapshot = self._marked(self._fleet.snapshot)
            self._show(self.snapshot)
        for take in tuple(self._followers):
            take(FleetFrame(wall_s, self._interval_s, faults=(fault,), answered=False))

    def _silence_fault(self, wall_s: float) -> Fault:
        """The fault that nothing came since `wall_s` (Unix time), worded for the source that is asked."""
        if self._config.host:
            text = f"no refresh since {rfc3339(wall_s)}: this machine has no time for gpumon, or gpumon hangs"
            return Fault("gpumon", text, wall_s)
        return Fault("prometheus", f"no answer since {rfc3339(wall_s)}: is it up, and is the network?", wall_s)


def _keeper_of_fleet() -> AcknowledgementKeeper:
    """The keeper of what is acknowledged on this machine of hosts of a fleet."""
    from gpumon.sources.acknowledged import AcknowledgementStore, acknowledged_file
    from gpumon.sources.acknowledging import AcknowledgementKeeper

    path = acknowledged_file(os.environ, of_fleet=True)
    return AcknowledgementKeeper(None if path is None else AcknowledgementStore(path))


def _of_scheduler(host: HostShown) -> Acknowledged | None:
    """The maintenance of a host that its scheduler has taken out; None while an engine still answers there or a GPU
    computes, as what goes wrong there is somebody's trouble: a job goes on until its node is drained."""
    if not host.taken_out or any(engine.state is EndpointState.OK for engine in host.snapshot.engines):
        return None
    if any((number(gpu.reading.busy_ratio) or 0.0) > 0.0 for gpu in host.snapshot.gpus):
        return None
    return Acknowledged(who="its scheduler", reason=host.taken_out, until="", since="")


def _ignore_snapshot(snapshot: object) -> None:
    """Take a snapshot that nobody waits for."""


async def _take_frame(fleet: Fleet, frame: FleetFrame) -> None:
    """Take a frame in, a host at a time, so that keys do not wait for long."""
    yielding = YieldToLoop()
    for _ in fleet.steps(frame):
        await yielding.if_due()


def _source_of_config(config: Config) -> FleetFrames:
    """The source of the frames: the hosts of the config, or else its Prometheus."""
    if config.host:
        from gpumon.sources.remote_hosts import RemoteHosts

        return RemoteHosts(config)
    from gpumon.sources.prometheus.queries import FLEET_BUCKETS
    from gpumon.sources.prometheus.source import FleetSource as Prometheus

    buckets = FLEET_BUCKETS | {E2E} if config.goals.e2e_p95_ms is not None else FLEET_BUCKETS
    return Prometheus(config.prometheus, config.model, config.endpoint, buckets=buckets)


def step_before(step_s: float, hold_s: float) -> float:
    """Seconds between the moments that are asked for before the first one.

    That is `step_s`, or more where `MOST_BEFORE` moments would not reach back `hold_s`, after which verdicts stand.
    """
    return max(step_s, hold_s / (MOST_BEFORE - 1))


def moments_before(wall_s: float, step_s: float, hold_s: float) -> list[float]:
    """Unix times before `wall_s`, the oldest first, `step_s` apart or more.

    The first one has no rates; from the second one on verdicts hold, and stand after `hold_s`: at `wall_s`.
    """
    step_s = step_before(step_s, hold_s)
    number = max(_FEWEST_BEFORE, 1 + math.ceil(hold_s / step_s))
    return [wall_s - steps * step_s for steps in range(number, 0, -1)]
