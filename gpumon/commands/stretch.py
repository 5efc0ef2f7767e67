"""The recording and the times of a command line: from when to when, and what of it could not be read."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from gpumon.commands.streams import EXIT_OK, complain

if TYPE_CHECKING:
    from pathlib import Path

    from gpumon.history.reader import Recording


def tell_damage(recording: Recording) -> None:
    """Say on stderr how many parts of a recording could not be read, if some could not."""
    if recording.damaged:
        parts = "part is" if recording.damaged == 1 else "parts are"
        complain(f"{recording.damaged} {parts} damaged and left out: a minute each, or a frame", EXIT_OK)


def open_recording(file: str | None, since: str | None, until: str | None) -> tuple[Recording, tuple[float, float]]:
    """A recording (none named: the host's own), and its span from a time to another (none: its ends) as Unix times.

    Raises ConfigError.
    """
    from gpumon.config.errors import ConfigError
    from gpumon.history.file import recording_to_read

    recording, span = open_whole(recording_to_read(file or "", os.environ, socket.gethostname()))
    from_s, to_s = span
    if since:
        from_s = time_of_option("--from", since, span)
    if until:
        to_s = time_of_option("--to", until, span)
    if from_s > to_s:
        raise ConfigError(f"--from {since or 'the start'} is after --to {until or 'the end'}")
    return recording, (from_s, to_s)


def open_whole(path: Path) -> tuple[Recording, tuple[float, float]]:
    """A recording, and its span as Unix times. Raises ConfigError."""
    from gpumon.config.errors import ConfigError
    from gpumon.config.load import file_name
    from gpumon.history.reader import Recording

    recording = Recording(path)
    span = recording.span()
    if span is None:
        raise ConfigError(f"{file_name(path)}: nothing was recorded in it yet")
    return recording, span


def time_of_option(option: str, text: str, span: tuple[float, float]) -> float:
    """The Unix time that an option names, within `span`. Raises ConfigError."""
    from gpumon.config.errors import ConfigError
    from gpumon.readings.when import OutsideError, moment_of

    try:
        return moment_of(text, span)
    except (ValueError, OutsideError) as wrong:
        raise ConfigError(f"{option} {wrong}") from None
