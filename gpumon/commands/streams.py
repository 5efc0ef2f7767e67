"""Output of commands on stdout, errors as single lines on stderr, and the exit codes."""

from __future__ import annotations

import os
import sys
from typing import Final

EXIT_OK = 0
EXIT_FAILED = 1
"""Failed at run time."""
EXIT_USAGE = 2
"""Bad usage or config."""
EXIT_NOTHING = 3
"""Nothing to monitor."""
EXIT_INFEASIBLE = 4
"""No plan meets what was asked."""
NOTHING_HERE: Final = (
    "nothing to monitor: no GPU was found and no endpoint is given (`gpumon doctor` says why; `gpumon demo` shows a "
    "simulated server)"
)
WORKER_FAILED: Final = "nothing is known of the GPUs, and no endpoint is given: "
"""Text before the reason, where the process that reads the driver failed and there is nothing else to monitor."""
_ERASE_LINE: Final = "\x1b[K"
_PIPE_WIDTH: Final = 160
"""Columns that are printed where stdout is no terminal."""
_LEAST_WIDTH: Final = 60
"""Columns that are printed at least, however narrow the terminal is."""
_MOST_WIDTH: Final = 500
"""Columns that are printed at most, however wide the terminal is."""
_UNKNOWN_SIZE: Final = (100, 24)
"""Columns and lines of a terminal that does not tell them."""


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
        raise  # the reader has gone, which is no failure
    except OSError as failure:
        forget_stdout()
        raise Failed(f"cannot write the output: {failure.strerror}") from None


def forget_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's own last flush finds no reader to miss."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def complain(text: str, code: int, name: str = "gpumon: ") -> int:
    """Print one line on stderr, `name` in front; returns the exit code."""
    line = "".join(character if character.isprintable() else "?" for character in text)
    sys.stderr.write(f"{name}{line}\n")
    return code


def note(text: str) -> None:
    """Print one line on stderr about what goes wrong, or right again, while the command goes on."""
    complain(text, EXIT_OK)


def tell_progress(done: int, total: int) -> None:
    """Say on a terminal how many hosts are done, in one line that the next one overwrites; it is erased at the end."""
    if not sys.stderr.isatty():
        return
    if done < total:
        sys.stderr.write(f"\rhost {done + 1} of {total}")
    else:
        sys.stderr.write(f"\r{_ERASE_LINE}")
    sys.stderr.flush()


def colour() -> bool:
    """Whether the terminal or file behind stdout shows colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


def width() -> int:
    """Columns of the terminal; a pipe gets wide lines rather than wrapped ones."""
    import shutil

    if sys.stdout.isatty():
        columns = shutil.get_terminal_size(_UNKNOWN_SIZE).columns
        return min(max(_LEAST_WIDTH, columns), _MOST_WIDTH)
    return _PIPE_WIDTH
