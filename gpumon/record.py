"""The `record` command: keeps every frame in a file until it is told to stop, and says what goes wrong meanwhile."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from gpumon import wiring
from gpumon.config.errors import ConfigError
from gpumon.config.load import named
from gpumon.config.options import Options
from gpumon.config.schema import Config
from gpumon.readings.format import counted
from gpumon.readings.snapshot import Snapshot
from gpumon.recording.facts import facts
from gpumon.recording.place import own_file
from gpumon.recording.store import Recorder

Write = Callable[[str], None]

DAY_S = 86400.0


def record_command(file: str, config: Config, options: Options, environ: Mapping[str, str], write: Write) -> int:
    """Record into `file`, or into the host's own one, until a signal; returns the exit code. Raises ConfigError."""
    host = socket.gethostname()
    path = Path(file) if file else _own_file(environ, host, simulated=options.demo)
    keep = config.recorder
    recorder = Recorder(
        path, facts(host, simulated=options.demo), keep_s=keep.keep_days * DAY_S, keep_bytes=keep.keep_gb * 1e9
    )
    what = "the simulated server" if options.demo else "this host"
    how = "into" if recorder.is_new else "on into"
    kept = f"the last {keep.keep_days:g} day{'' if keep.keep_days == 1 else 's'}, at most {keep.keep_gb:g} GB"
    write(f"recording {what} {how} {named(path)}: {kept}; Ctrl+C ends it\n")
    said = ""

    def tell(_: Snapshot) -> None:
        nonlocal said
        fault = recorder.fault()
        text = fault.text if fault is not None else ""
        if text != said:
            write(f"{_now()} {text or 'recording goes on'}\n")
            said = text

    try:
        code = wiring.run_watch(config, options, tell, (recorder,))
    finally:
        recorder.close()
    if code == wiring.NOTHING_TO_MONITOR:
        if recorder.is_new:
            path.unlink(missing_ok=True)
        return code
    write(_summary(recorder, path))
    return code


def _own_file(environ: Mapping[str, str], host: str, *, simulated: bool) -> Path:
    """In a folder that is made. Raises ConfigError."""
    path = own_file(environ, host, simulated=simulated)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as failure:
        raise ConfigError(f"{named(path.parent)}: cannot be made: {failure.strerror}; name a file") from None
    return path


def _summary(recorder: Recorder, path: Path) -> str:
    try:
        size_mb = os.stat(path).st_size / 1e6  # noqa: PTH116 - the file may be gone
    except OSError:
        size_mb = 0.0
    lost = f", {recorder.dropped} were lost" if recorder.dropped else ""
    return f"recorded {counted(recorder.written, 'frame')}{lost}; {named(path)} has {size_mb:.2f} MB\n"


def _now() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")
