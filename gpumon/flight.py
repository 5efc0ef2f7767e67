"""The flight recorder of a run, and the timeline over it."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

from gpumon.config.prices import triage_of
from gpumon.config.schema import Config
from gpumon.efficiency.deriver import Deriver
from gpumon.readings.history import History
from gpumon.recording.course import Make
from gpumon.recording.facts import facts
from gpumon.recording.ring import FlightRecorder
from gpumon.recording.store import write_recording
from gpumon.recording.timeline import PastTimeline
from gpumon.sources.packaged import gpu_catalogue

if TYPE_CHECKING:
    from gpumon.tui.control import Timeline


def maker(config: Config, hardware: object = None) -> Make:
    """What gives derivers and triages, to the collector and to the timelines over what it keeps.

    `hardware` may be a simulated server, which has thresholds of its own.
    """
    gpus = gpu_catalogue(config.gpu)
    of_server = getattr(hardware, "thresholds", None)
    thresholds = config.triage if of_server is None else of_server(config.triage)
    return lambda: (Deriver(gpus), triage_of(config, gpus, thresholds))


def flight(
    config: Config, hardware: object, history: History, *, simulated: bool
) -> tuple[FlightRecorder | None, Timeline | None]:
    """What keeps the last minutes, and goes back in them; none where the config wants none."""
    if not config.recorder.minutes:
        return None, None
    recorder = FlightRecorder(config.recorder.minutes * 60.0, config.recorder.memory_mb * 1e6)

    def write(path: str) -> None:
        write_recording(Path(path), recorder, facts(socket.gethostname(), simulated=simulated))

    return recorder, PastTimeline(recorder, maker(config, hardware), write, history)
