"""The session of one machine, and this host as its source."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gpumon.config.options import Options
from gpumon.config.schema import Config
from gpumon.readings.history import History
from gpumon.readings.snapshot import Engine, Snapshot, Verdict
from gpumon.session.build import build, deriver_maker
from gpumon.session.hardware import Hardware, open_hardware
from gpumon.session.session import Session, SnapshotSource, Take

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from subprocess import Popen

    from gpumon.collector import Collector
    from gpumon.sources.acknowledging import AcknowledgementKeeper
    from gpumon.sources.last_seen.records import EngineOrigin
    from gpumon.sources.source import Source
    from gpumon.tui.control import EngineLog, Playback, Timeline


class HostSource(SnapshotSource[Snapshot], Protocol):
    """Brings the snapshots of one machine, and keeps its past."""

    history: History
    """Series for the charts."""
    timeline: Timeline | None
    """Moments to go back to; None: there are none."""
    playback: Playback | None
    """Set where this is a recording."""
    filling: bool
    """Whether the past of the charts is still being read."""

    def engine_log(self, engine: Engine) -> EngineLog | str:
        """The log of an engine, not read yet; or why there is none here, with what to do."""

    def why_no_acknowledging(self, verdict: Verdict) -> str:
        """Why a verdict cannot be acknowledged from here, with what to do; empty: it can."""

    def acknowledge(self, verdicts: Sequence[Verdict], shown: Snapshot, reason: str, seconds: float) -> None:
        """Acknowledge verdicts of the snapshot that is shown, in the name of this user."""

    def lift(self, ids: Sequence[str]) -> None:
        """Take back what was acknowledged of verdicts with these ids."""


class HostSession(Session[Snapshot]):
    """The snapshots and the past of one machine: this host, a recording, or a host of a fleet."""

    def __init__(self, config: Config, source: HostSource) -> None:
        super().__init__(config, source)
        self._host = source

    @property
    def history(self) -> History:
        """Series for the charts, on the clock of `Snapshot.wall_s`."""
        return self._host.history

    @property
    def timeline(self) -> Timeline | None:
        """The past; None: there is none."""
        return self._host.timeline

    @property
    def playback(self) -> Playback | None:
        """Set where this is a recording."""
        return self._host.playback

    @property
    def filling(self) -> bool:
        """Whether the past of the charts is still being read."""
        return self._host.filling

    @property
    def opening(self) -> bool:
        """Whether its snapshot has the GPUs alone, as the rest is not read yet."""
        return isinstance(self._host, ThisHost) and self._host.opening

    def engine_log(self, engine: Engine) -> EngineLog | str:
        """The log of an engine, not read yet; or why there is none here, with what to do."""
        return self._host.engine_log(engine)

    def why_no_acknowledging(self, verdict: Verdict) -> str:
        """Why a verdict cannot be acknowledged from here, with what to do; empty: it can."""
        return self._host.why_no_acknowledging(verdict)

    def acknowledge(self, verdicts: Sequence[Verdict], shown: Snapshot, reason: str, seconds: float) -> None:
        """Acknowledge verdicts of the snapshot that is shown, in the name of this user."""
        self._host.acknowledge(verdicts, shown, reason, seconds)

    def lift(self, ids: Sequence[str]) -> None:
        """Take back what was acknowledged of verdicts with these ids."""
        self._host.lift(ids)


class ThisHost:
    """This host, or the simulated server: a collector, which is built in a thread once the screen stands."""

    playback: Playback | None = None
    filling = False

    def __init__(self, config: Config, options: Options, worker: Popen[bytes] | None = None) -> None:
        """`worker`: the worker process of the GPUs' driver, where it is started already (`hardware.start_worker`)."""
        self.history = History()
        self.opening = False
        """Whether the GPUs alone were shown so far."""
        self._worker = worker
        self.timeline: Timeline | None = None
        self._config = config
        self._options = options
        self._interval_s = config.general.interval_s
        self._collector: Collector | None = None
        self._logged_origins: dict[str, EngineOrigin] = {}
        """Key of an engine -> where it runs: of engines whose log was looked at and that discovery does not follow."""

    @property
    def interval_s(self) -> float:
        """Seconds between two ticks."""
        if self._collector is None:
            return self._interval_s
        return self._collector.interval_s

    def set_interval(self, seconds: float) -> None:
        """Change the seconds between two ticks."""
        self._interval_s = seconds
        if self._collector is not None:
            self._collector.set_interval(seconds)

    def refresh(self) -> None:
        """Take a tick now."""
        if self._collector is not None:
            self._collector.refresh()

    def engine_log(self, engine: Engine) -> EngineLog | str:
        """The log of an engine that runs, or ran, on this host."""
        from gpumon.sources.engine_log.log import EngineLogReader, serving_origin
        from gpumon.sources.last_seen.keeper import LastSeenKeeper
        from gpumon.sources.last_seen.records import NO_ORIGIN

        if self._options.demo:
            return f"{engine.name} is simulated and writes no log"
        memory = self._collector.memory if self._collector is not None else None
        origins = self._logged_origins

        def find_origin() -> EngineOrigin:
            if isinstance(memory, LastSeenKeeper):
                remembered = memory.origin(engine.key, engine.url)
                if remembered.pid:
                    return remembered
            serving = serving_origin(engine.url)
            if serving.pid:
                origins[engine.key] = serving
            return origins.get(engine.key, NO_ORIGIN)

        return EngineLogReader(find_origin)

    def why_no_acknowledging(self, verdict: Verdict) -> str:  # noqa: ARG002 - as on other hosts
        """Nothing stands in the way here, once the collector is built."""
        return "" if self._acknowledging() is not None else "not yet: gpumon is just starting"

    def acknowledge(self, verdicts: Sequence[Verdict], shown: Snapshot, reason: str, seconds: float) -> None:
        """Acknowledge verdicts of the snapshot that is shown, in the name of this user."""
        from gpumon.sources.acknowledged import this_user
        from gpumon.triage.acknowledgement import acknowledge

        acknowledging = self._acknowledging()
        if acknowledging is None:
            return
        who = this_user()
        acknowledging.acknowledge(
            [acknowledge(verdict, shown.verdicts, who, reason, shown.wall_s, seconds) for verdict in verdicts]
        )
        self.refresh()

    def lift(self, ids: Sequence[str]) -> None:
        """Take back what was acknowledged of verdicts with these ids."""
        acknowledging = self._acknowledging()
        if acknowledging is not None:
            acknowledging.lift(ids)
            self.refresh()

    def _acknowledging(self) -> AcknowledgementKeeper | None:
        """The collector's keeper of acknowledgements; None before there is one."""
        from gpumon.sources.acknowledging import AcknowledgementKeeper

        if self._collector is not None and isinstance(self._collector.acknowledging, AcknowledgementKeeper):
            return self._collector.acknowledging
        return None

    async def begin(self, show: Callable[[Snapshot], None], learn: Take) -> None:
        """Build the collector and start it; the GPUs are shown before that if the driver has answered by then."""
        hardware = await open_hardware(self._config, self._options, with_past=True, worker=self._worker)
        self._worker = None
        if hardware.gpus is not None and not self._options.demo:
            await self._show_gpus(hardware.gpus, show)
        collector = await asyncio.to_thread(self._build, hardware)
        if self._interval_s != collector.interval_s:  # it was changed while the collector was built
            collector.set_interval(self._interval_s)
        self._collector = collector

        def take(snapshot: Snapshot) -> None:
            self.opening = False
            learn(snapshot)
            show(snapshot)

        await collector.relive(learn)
        await collector.start(take, early=True)

    async def _show_gpus(self, gpus: Source, show: Callable[[Snapshot], None]) -> None:
        """Show the GPUs alone: what is read of this host and its engines takes a tenth of a second more, most of it
        imports."""
        from gpumon.session.opening import opening_snapshot

        snapshot = await opening_snapshot(gpus, self._config)
        if snapshot is not None:
            self.opening = True
            show(snapshot)

    def _build(self, hardware: Hardware) -> Collector:
        """Build the collector, with a timeline over the frames that this run keeps in memory."""
        config = self._config
        keepers = []
        if config.recorder.minutes:
            import socket

            from gpumon.history.file import recording_facts
            from gpumon.history.memory import MemoryStore
            from gpumon.history.timeline import DerivedTimeline

            store = MemoryStore(config.recorder.minutes * 60.0, config.recorder.memory_mb * 1e6)
            facts = recording_facts(socket.gethostname(), simulated=self._options.demo)

            def save(path: str) -> None:
                from gpumon.history.recorder import write_recording

                write_recording(Path(path), store, facts)

            self.timeline = DerivedTimeline(store, deriver_maker(config, hardware), save, self.history)
            keepers.append(store)
        push = None
        if config.webhook:
            from gpumon.push.webhooks import webhooks_of

            push = webhooks_of(config, self._options)
        return build(config, self._options, hardware, self.history, keepers, with_past=self._options.demo, push=push)

    async def run(self) -> None:
        """Wait until ticking ends."""
        assert self._collector is not None, "not begun"
        await self._collector.ended()

    async def end(self) -> None:
        """Stop the collector, if it was ever built."""
        if self._collector is not None:
            await self._collector.stop()
