"""Output of commands on stdout, errors as single lines on stderr, and the exit codes."""

from __future__ import annotations

import os
import sys
from typing import Final

EXIT_OK = 0
EXIT_FAILED = 1
USAGE = 2
EXIT_NOTHING = 3
EXIT_INFEASIBLE = 4
"""Exit codes: done; failed at run time; bad usage or config; nothing to monitor; no plan meets what was asked."""
NOTHING_HERE: Final = (
    "nothing to monitor: no GPU was found and no endpoint is given (`gpumon doctor` says why; `gpumon demo` shows a "
    "simulated server)"
)


WORKER_FAILED: Final = "nothing is known of the GPUs, and no endpoint is given: "


class Failed(Exception):  # noqa: N818 - no failure of gpumon itself
    """The command could not do its work; the text says why, in one line."""


def write(output: str | bytes) -> None:
    """Print and flush. Raises BrokenPipeError where the reader has gone, Failed where nothing can be written."""
    if isinstance(output, bytes):
        data = output
    else:
        data = output.encode(sys.stdout.encoding or "utf-8", "backslashreplace")
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as failure:
        forget_stdout()
        raise Failed(f"cannot write the output: {failure.strerror}") from None


def forget_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's own last flush finds no reader to miss."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def complain(text: str, code: int, name: str = "gpumon: ") -> int:
    """One line on stderr; returns the exit code."""
    line = "".join(character if character.isprintable() else "?" for character in text)
    sys.stderr.write(f"{name}{line}\n")
    return code


def note(text: str) -> None:
    """One line on stderr about what goes wrong, or right again, while the command goes on."""
    complain(text, EXIT_OK)


def tell_progress(done: int, of: int) -> None:
    """How many hosts are done, in one line on a terminal that the next one overwrites."""
    if not sys.stderr.isatty():
        return
    if done < of:
        sys.stderr.write(f"\rhost {done + 1} of {of}")
    else:
        sys.stderr.write("\r\x1b[K")
    sys.stderr.flush()


def colour() -> bool:
    """Whether the terminal or file behind stdout shows colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def width() -> int:
    """Columns of the terminal; a pipe gets wide lines rather than wrapped ones."""
    import shutil

    if sys.stdout.isatty():
        return min(max(60, shutil.get_terminal_size((100, 24)).columns), 500)
    return 160
