"""The `report` and `export` commands: a stretch of a recording summed up, or moment by moment."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from gpumon.config.errors import ConfigError
from gpumon.config.load import named
from gpumon.config.prices import running_prices
from gpumon.config.schema import Config
from gpumon.flight import maker
from gpumon.outputs import export, period
from gpumon.outputs.json import encode
from gpumon.readings.snapshot import Snapshot
from gpumon.recording.course import Course, in_order
from gpumon.recording.past import Past
from gpumon.recording.place import to_read
from gpumon.recording.reader import Recording
from gpumon.recording.summary import summed_up
from gpumon.recording.when import OutsideError, moment_of
from gpumon.sizing.calibration import Calibration, in_flight, request_rates
from gpumon.sizing.live import from_live, own_models
from gpumon.sizing.peaks import Stretch
from gpumon.sizing.scenario import Scenario
from gpumon.sources.packaged import gpu_catalogue
from gpumon.specs.llm import LlmSpec

Write = Callable[[str], None]

_CHUNK_S: Final = 60.0
"""Frames are read by the minute."""


def report_command(file: str, since: str, until: str, form: str, config: Config, write: Write, width: int) -> int:
    """Sum up a recording (empty: the host's own) from a time to another (empty: its ends) as text, markdown or JSON.

    Raises ConfigError.
    """
    recording, (from_s, to_s) = _opened(file, since, until)
    gpus = gpu_catalogue(config.gpu)
    summed = summed_up(recording, gpus, running_prices(config.sizing, gpus), from_s, to_s)
    if form == "json":
        write(period.encode(summed).decode() + "\n")
    elif form == "markdown":
        write(period.markdown(summed))
    else:
        write(period.report(summed, width))
    return 0


def export_command(file: str, since: str, until: str, every_s: float, form: str, config: Config, write: Write) -> int:
    """Print the moments of a stretch, one per `every_s` (0: all), as `csv` or `jsonl`. Raises ConfigError."""
    recording, (from_s, to_s) = _opened(file, since, until)
    if form == "csv":
        write(export.header())
    for snapshot in _moments(recording, Course(recording, maker(config)), from_s, to_s, every_s):
        write(export.rows(snapshot) if form == "csv" else encode(snapshot).decode() + "\n")
    return 0


def recorded(
    file: str, since: str, until: str, config: Config, base: Scenario
) -> tuple[Scenario, Mapping[str, LlmSpec]]:
    """What the engines of a recording carried at their p95, in the scenario `base`, and their models.

    Raises ConfigError.
    """
    recording, (from_s, to_s) = _opened(file, since, until)
    calibration, stretch = Calibration(), Stretch()
    last: Snapshot | None = None
    for snapshot in _moments(recording, Course(recording, maker(config)), from_s, to_s, 0.0):
        calibration.take(snapshot)
        stretch.take(snapshot.wall_s, in_flight(snapshot), request_rates(snapshot))
        last = snapshot if snapshot.engines or last is None else last
    if last is None or not stretch.found():
        raise ConfigError(f"{named(file)}: no engine was seen in it")
    return from_live(last, calibration.observed(), base, stretch.found()), own_models(last)


def _opened(file: str, since: str, until: str) -> tuple[Recording, tuple[float, float]]:
    path = to_read(file, os.environ, socket.gethostname())
    recording = Recording(path)
    span = recording.span()
    if span is None:
        raise ConfigError(f"{named(path)}: nothing was recorded in it yet")
    from_s = _moment("--from", since, span) if since else span[0]
    to_s = _moment("--to", until, span) if until else span[1]
    if from_s > to_s:
        raise ConfigError(f"--from {since or 'the start'} is after --to {until or 'the end'}")
    return recording, (from_s, to_s)


def _moment(option: str, text: str, span: tuple[float, float]) -> float:
    try:
        return moment_of(text, span)
    except (ValueError, OutsideError) as wrong:
        raise ConfigError(f"{option} {wrong}") from None


def _moments(past: Past, course: Course, from_s: float, to_s: float, every_s: float) -> Iterator[Snapshot]:
    """Every frame is derived, since rates stand on the frames before; of those moments one per `every_s` is given."""
    for _ in course.begin(from_s):
        pass
    next_s = from_s
    chunk_s: float | None = from_s
    while chunk_s is not None and chunk_s <= to_s:
        end_s = min(to_s, chunk_s + _CHUNK_S)
        for frame in in_order(past.frames(chunk_s, end_s)):
            taken = course.take(frame)
            if taken.wall_s >= next_s:
                next_s = taken.wall_s + every_s
                yield taken.snapshot
        chunk_s = past.after(end_s)
