"""`gpumon replay`: a recording on the same screen, played as if it happened now. Nothing is polled."""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from gpumon.commands.options import add_config, add_recording, add_screen, number_option
from gpumon.commands.screen import refuse_terminal, show
from gpumon.commands.settings import settings
from gpumon.commands.stretch import open_whole, time_of_option
from gpumon.config.schema import Config
from gpumon.history.file import recording_to_read
from gpumon.history.player import Player
from gpumon.history.reader import Recording
from gpumon.history.recorder import write_recording
from gpumon.history.timeline import DerivedTimeline
from gpumon.readings.format import counted
from gpumon.readings.history import History
from gpumon.readings.snapshot import Engine, FaultShown, Snapshot, Verdict
from gpumon.readings.untrusted import log_command
from gpumon.session.build import deriver_maker
from gpumon.session.host import HostSession
from gpumon.session.session import Take

if TYPE_CHECKING:
    from gpumon.tui.control import EngineLog, Playback, Timeline

_SPEEDS: Final = (0.1, 100.0)
"""Least and most seconds of a recording per second."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add options: the recording, from when on, how fast, and how to draw it."""
    add_recording(parser)
    add_config(parser)
    parser.add_argument("--at", metavar="TIME", help="start at 03:10, 2026-11-22T03:10Z, or -10m (default: start)")
    parser.add_argument(
        "--speed", metavar="N", type=number_option(*_SPEEDS), default=1.0, help="speed factor (0.1 to 100)"
    )
    add_screen(parser)


def run(chosen: argparse.Namespace) -> int:
    """Play the recording until the screen is left."""
    loaded = settings(chosen).loaded
    replay = open_player(chosen.file or "", chosen.at or "", chosen.speed, loaded.config)
    refuse_terminal(recording=True)
    return show(HostSession(loaded.config, replay), loaded)


class Replay:
    """A recording that plays as if it happened now: a source of snapshots, and its own `Playback`."""

    filling = False
    """A recording is whole from the start: no past is filled in while it is shown."""

    def __init__(self, recording: Recording, file: str, config: Config, at_s: float, speed: float = 1.0) -> None:
        """It plays from the Unix time `at_s` on, once it is begun."""
        self.history = History()
        self.file = file
        self.playback: Playback | None = self
        make = deriver_maker(config)
        self.timeline: Timeline | None = DerivedTimeline(
            recording, make, lambda path: write_recording(Path(path), recording, recording.facts)
        )
        self._recording = recording
        self._player = Player(recording, make, self.history, self._take)
        self._player.speed = speed
        self._player.go_on(at_s)
        self._interval_s = config.general.interval_s
        self._show: Take = _ignore_snapshot
        self._learn: Take = _ignore_snapshot
        """Takes the snapshots that sizing learns from: without the fault that `show` gets."""

    @property
    def interval_s(self) -> float:
        """Seconds between two snapshots of the recording."""
        return self._interval_s

    @property
    def speed(self) -> float:
        """Seconds of the recording per second."""
        return self._player.speed

    def set_speed(self, speed: float) -> None:
        """Play faster or slower from now on."""
        self._player.speed = min(max(speed, _SPEEDS[0]), _SPEEDS[1])

    def pause(self) -> None:
        """Send no more moments until `go_on`."""
        self._player.pause()

    def go_on(self, wall_s: float) -> None:
        """Play from that moment on."""
        self._player.go_on(wall_s)

    def set_interval(self, seconds: float) -> None:
        """A recording has the interval that it was made with."""

    def refresh(self) -> None:
        """Nothing is read anew."""

    def engine_log(self, engine: Engine) -> EngineLog | str:
        """Why there is no log: a recording has none."""
        reason = f"a recording holds no log of {engine.name}"
        command = log_command(engine.departure[0].log) if engine.departure else ""
        if command:
            return f"{reason}: on its host {command} shows it"
        return reason

    def why_no_acknowledging(self, verdict: Verdict) -> str:  # noqa: ARG002 - as on other hosts
        """A recording is the past."""
        return "this is a recording: what stands now is acknowledged on its host"

    def acknowledge(self, verdicts: Sequence[Verdict], shown: Snapshot, reason: str, seconds: float) -> None:
        """Nothing is acknowledged in a recording."""

    def lift(self, ids: Sequence[str]) -> None:
        """Nothing is acknowledged in a recording."""

    async def begin(self, show: Take, learn: Take) -> None:
        """Take note of who gets the moments."""
        self._show = show
        self._learn = learn

    async def run(self) -> None:
        """Play."""
        await self._player.play()

    async def end(self) -> None:
        """Nothing has to be let go of."""

    def _take(self, snapshot: Snapshot) -> None:
        """Pass a moment on, to sizing as it is, to the screen with what of the recording could not be read."""
        self._interval_s = snapshot.interval_s
        self._learn(snapshot)
        damaged = self._recording.damaged
        if damaged:
            fault = FaultShown("recording", f"damaged: {counted(damaged, 'part')} left out so far", snapshot.time)
            snapshot = msgspec.structs.replace(snapshot, faults=(*snapshot.faults, fault))
        self._show(snapshot)


def _ignore_snapshot(snapshot: Snapshot) -> None:
    """Receiver of moments until `begin` names one."""


def open_player(file: str, at: str, speed: float, config: Config) -> Replay:
    """A recording (empty: the host's own), ready to play from a time in it (empty: its start).

    Raises ConfigError in one line.
    """
    path = recording_to_read(file, os.environ, socket.gethostname())
    recording, span = open_whole(path)
    at_s = time_of_option("--at", at, span) if at else span[0]
    return Replay(recording, path.name, config, at_s, speed)
