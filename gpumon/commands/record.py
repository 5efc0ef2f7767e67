"""`gpumon record`: keeps every frame in a file until it is told to stop, and says what goes wrong meanwhile."""

from __future__ import annotations

import argparse
import os
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gpumon.commands.options import add_monitor
from gpumon.commands.scenarios import add_demo
from gpumon.commands.settings import settings
from gpumon.commands.streams import EXIT_NOTHING, NOTHING_HERE, complain, write
from gpumon.commands.watch import watch
from gpumon.specs.units import DAY_S

if TYPE_CHECKING:
    from gpumon.config.schema import Recorder as RecorderSettings
    from gpumon.history.recorder import Recorder
    from gpumon.readings.snapshot import Snapshot


def options(parser: argparse.ArgumentParser) -> None:
    """Add options: the sources, the recording, and for how long it is kept."""
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="recording to continue or create (default: this host's recording)"
    )
    add_monitor(parser)
    add_demo(parser)
    parser.add_argument("--keep-days", metavar="D", help="days to keep (default 7)")
    parser.add_argument("--keep-gb", metavar="GB", help="size limit in 1e9 bytes (default 2)")


def run(chosen: argparse.Namespace) -> int:
    """Record until a signal."""
    loaded, run_options = settings(chosen)
    from gpumon.config.load import file_name
    from gpumon.history.file import recording_facts
    from gpumon.history.recorder import Recorder

    host = socket.gethostname()
    limits = loaded.config.recorder
    path = Path(chosen.file) if chosen.file else _usual_file(host, simulated=run_options.demo)
    recorder = Recorder(
        path,
        recording_facts(host, simulated=run_options.demo),
        keep_s=limits.keep_days * DAY_S,
        keep_bytes=limits.keep_gb * 1e9,
    )
    write(_greeting(recorder, file_name(path), limits, demo=run_options.demo))
    shown_fault = ""

    def tell_fault(_: Snapshot) -> None:
        nonlocal shown_fault
        fault = recorder.fault()
        text = fault.text if fault is not None else ""
        if text != shown_fault:
            write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text or 'recording goes on'}\n")
            shown_fault = text

    try:
        code = watch(loaded.config, run_options, tell_fault, (recorder,))
    finally:
        recorder.close()
    if code == EXIT_NOTHING:
        if recorder.is_new:
            path.unlink(missing_ok=True)
        return complain(NOTHING_HERE, EXIT_NOTHING)
    write(_summary(recorder, path))
    return code


def _greeting(recorder: Recorder, file: str, limits: RecorderSettings, *, demo: bool) -> str:
    """The file of a recording, what is recorded, and how much of it is kept."""
    source = "the simulated server" if demo else "this host"
    direction = "into" if recorder.is_new else "on into"
    days = "day" if limits.keep_days == 1 else "days"
    bounds = f"the last {limits.keep_days:g} {days}, at most {limits.keep_gb:g} GB"
    return f"recording {source} {direction} {file}: {bounds}; Ctrl+C ends it\n"


def _usual_file(host: str, *, simulated: bool) -> Path:
    """The host's own recording, in a folder that is made. Raises ConfigError."""
    from gpumon.config.errors import ConfigError
    from gpumon.config.load import file_name
    from gpumon.history.file import own_file

    path = own_file(os.environ, host, simulated=simulated)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as failure:
        raise ConfigError(f"{file_name(path.parent)}: cannot be made: {failure.strerror}; name a file") from None
    return path


def _summary(recorder: Recorder, path: Path) -> str:
    """The last line: how many frames were recorded, and the size of the file."""
    from gpumon.config.load import file_name
    from gpumon.readings.format import counted

    try:
        size_mb = os.stat(path).st_size / 1e6  # noqa: PTH116 - the file may be gone
    except OSError:
        size_mb = 0.0
    lost = f", {recorder.dropped} were lost" if recorder.dropped else ""
    return f"recorded {counted(recorder.written, 'frame')}{lost}; {file_name(path)} has {size_mb:.2f} MB\n"
