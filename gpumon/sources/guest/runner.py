"""Runs gpumon on a host from an archive that comes on standard input, in a folder that is removed at the end.

This file is sent to the host and run there, by Python 3.10 or newer, as `python -I -c TEXT FOLDER SIZE`: it imports
nothing of gpumon. The end is that of gpumon, a signal, or the end of standard input: then the connection is gone.
"""

import contextlib
import io
import os
import shutil
import signal
import subprocess
import sys
import threading
import types
import zipfile
from typing import NoReturn

_PATIENCE_S = 5.0
"""Longest wait for gpumon to end when it is asked to; then it is killed."""
_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
PR_SET_PDEATHSIG = 1
"""Option of prctl(2): the signal that a process gets when its parent ends."""
COMMAND = ("-m", "gpumon", "watch", "--json", "--fleet")
"""Arguments of the Python that runs gpumon."""


def main(folder: str, size: int) -> int:
    """Unpack the archive and run it; returns the exit code of gpumon."""
    for number in _SIGNALS:
        signal.signal(number, _end)
    try:
        with zipfile.ZipFile(io.BytesIO(_read(size))) as archive:
            archive.extractall(folder)
        return _run(folder)
    finally:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        shutil.rmtree(folder, ignore_errors=True)


def _end(number: int, _: "types.FrameType | None") -> NoReturn:
    """Leave at a signal, by way of all `finally`."""
    sys.exit(128 + number)


def _read(size: int) -> bytes:
    """The archive of so many bytes, from standard input; leaves where that ends before."""
    archive = b""
    while len(archive) < size:
        part = os.read(0, min(size - len(archive), 1 << 20))
        if not part:
            sys.exit("gpumon: the connection ended before the archive was there")
        archive += part
    return archive


def _watch_input() -> None:
    """End this process when standard input ends."""
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    os.kill(os.getpid(), signal.SIGTERM)


def _run(folder: str) -> int:
    """Run gpumon from the folder until it ends, and end it where this process is to end."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["PYTHONPATH"] = folder
    process = subprocess.Popen(
        [sys.executable, *COMMAND],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=_end_with_parent,
    )
    threading.Thread(target=_watch_input, daemon=True).start()
    try:
        code = process.wait()
    finally:
        _stop(process)
    return code if code >= 0 else 128 - code


def _end_with_parent() -> None:
    """Ask Linux to end this process with the one that started it, which SIGKILL may end (prctl(2))."""
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """End gpumon and its process group: first asked, then killed after `_PATIENCE_S`."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE_S)
            return


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
