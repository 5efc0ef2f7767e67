"""The command line: finds the command, imports it and no other, and turns every outcome into an exit code."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import Final

from gpumon.commands import command
from gpumon.commands.command_line import parse_command_line
from gpumon.commands.options import UsageError
from gpumon.commands.streams import EXIT_FAILED, EXIT_OK, EXIT_USAGE, Failed, complain, forget_stdout, write

EXIT_INTERRUPTED: Final = 130
"""Exit code of Ctrl+C, as shells have it: 128 + SIGINT."""
_NOT_LINUX: Final = "Linux only, and this is {}: run it on the server, through ssh"
NO_PROC: Final = "Linux only, with /proc, and that is not mounted here"
_LEAST_ADDRESS_BYTES: Final = 600_000 * 1024
"""Address space of a command that watches: some 120 MB are used, the rest is what threads reserve."""
_LEAST_FILES: Final = 64
"""Open files of a command that watches: some 30 without any engine."""
_LEAST_THREADS: Final = 12
"""Threads of a command that watches: the screen of a demo has ten."""
_NO_THREADS: Final = (
    "it may start no more threads: raise `ulimit -v` and `ulimit -u`, or the pids limit of its container"
)
_PRINTS_ALONE: Final = "config"
"""Command that takes the options of those that watch, and only prints what comes of them."""
_LONGEST_TEXT: Final = 200
"""Characters of an exception's text that are printed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. Errors are one line on stderr."""
    _open_streams()
    if not sys.platform.startswith("linux"):
        return complain(_NOT_LINUX.format(sys.platform), EXIT_FAILED)
    if arguments is None:
        arguments = sys.argv[1:]
    try:
        return _run(list(arguments))
    except KeyboardInterrupt:
        _keep_quiet()
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        forget_stdout()
        return EXIT_OK
    except Exception as bug:  # whatever it is, the user has to see it, and no more of it than can be reported
        if isinstance(bug.__context__, KeyboardInterrupt):
            return EXIT_INTERRUPTED  # asyncio fails to close a loop that was interrupted as its work was done
        return _report(bug)


def _open_streams() -> None:
    """Have both output streams, where the caller closed one."""
    if sys.stdout is None:
        # It stays open to the end, and pathlib is not imported for every command.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - as above
    if sys.stderr is None:
        sys.stderr = sys.stdout


def _run(arguments: list[str]) -> int:
    """Run the command that the arguments name; returns its exit code. Its refusals and failures become lines."""
    from gpumon.config.errors import ConfigError

    try:
        try:
            chosen, name = parse_command_line(arguments)
            if not os.path.exists("/proc/self/stat"):  # noqa: PTH110 - pathlib is not imported for every command
                return complain(NO_PROC, EXIT_FAILED)
            if hasattr(chosen, "no_nvml") and name != _PRINTS_ALONE:  # it watches, and imports this anyway
                _prepare_for_limits()
            module = command(name)
            _catch_ctrl_c()
            code = module.run(chosen)
        except SystemExit:  # argparse has printed --help or --version
            code = EXIT_OK
        write(b"")  # a last flush, whose failure is the command's
    except UsageError as refused:
        return complain(str(refused), EXIT_USAGE)
    except ConfigError as refused:
        for line in refused.lines:
            complain(line, EXIT_USAGE)
        return EXIT_USAGE
    except Failed as failure:
        return complain(str(failure), EXIT_FAILED)
    return code


def _catch_ctrl_c() -> None:
    """Have Ctrl+C raise KeyboardInterrupt where it has ended the process so far (`__main__`)."""
    # Commands load msgspec as they run, and that loads datetime without a look at what it raises.
    import datetime  # noqa: F401
    import signal

    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _keep_quiet() -> None:
    """Have nothing printed by what was interrupted half made: a loop without its pipe, work that nobody awaits."""
    import warnings

    sys.unraisablehook = lambda _: None
    warnings.simplefilter("ignore")


def _prepare_for_limits() -> None:
    """Refuse to watch with less than that takes, and have asyncio keep its tracebacks of limits to itself.

    Python spins for good where a coroutine that fails for want of memory gets none for what leads to its handler.
    Raises Failed.
    """
    import logging
    import resource

    from gpumon.sources.arena import share_arena

    addresses, _ = resource.getrlimit(resource.RLIMIT_AS)
    if addresses != resource.RLIM_INFINITY and addresses < _LEAST_ADDRESS_BYTES:
        least_kb = _LEAST_ADDRESS_BYTES // 1024
        raise Failed(
            f"`ulimit -v` leaves it {addresses // 1024} kB of memory, and it needs {least_kb}: raise that limit"
        )
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files < _LEAST_FILES:
        raise Failed(f"`ulimit -n` leaves it {files} open files, and it needs {_LEAST_FILES}: raise that limit")
    share_arena()
    _try_threads()

    def is_of_a_bug(record: logging.LogRecord) -> bool:
        failure = record.exc_info[1] if record.exc_info else None
        return not (isinstance(failure, Exception) and _reached_limit(failure))

    logging.getLogger("asyncio").addFilter(is_of_a_bug)


def _try_threads() -> None:
    """Start as many threads as watching takes, and end them: a screen whose thread of keys fails can not be left.

    Raises Failed where there are too few.
    """
    import threading

    are_all_there = threading.Event()
    threads: list[threading.Thread] = []
    try:
        for _ in range(_LEAST_THREADS):
            thread = threading.Thread(target=are_all_there.wait, daemon=True)
            thread.start()
            threads.append(thread)
    except RuntimeError:
        raise Failed(_NO_THREADS) from None
    finally:
        are_all_there.set()
        for thread in threads:
            thread.join()


def _reached_limit(failure: Exception) -> str:
    """The limit of this process that made it fail, with what raises it; empty where it was none."""
    text = str(failure)
    if isinstance(failure, RuntimeError) and "start new thread" in text:
        return _NO_THREADS
    code = failure.errno if isinstance(failure, OSError) else 0
    if isinstance(failure, MemoryError) or code == errno.ENOMEM or "failed to map segment" in text:
        return "it gets no more memory: raise `ulimit -v`, or the memory limit of its container"
    if code in (errno.EMFILE, errno.ENFILE):
        return "it may open no more files: raise `ulimit -n`"
    if code == errno.EAGAIN:
        return "it may start no more processes: raise `ulimit -u`, or the pids limit of its container"
    return ""


def _report(bug: Exception) -> int:
    """Say what failed and where gpumon last was, in one line."""
    limit = _reached_limit(bug)
    if limit:
        return complain(limit, EXIT_FAILED)
    place = ""
    traceback = bug.__traceback__
    package = os.path.dirname(__file__)  # noqa: PTH120 - pathlib is not imported for every command
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        if file.startswith(package):
            place = f" ({file[len(package) + 1 :]}:{traceback.tb_lineno})"
        traceback = traceback.tb_next
    text = " ".join(str(bug).split())[:_LONGEST_TEXT]
    return complain(f"gpumon failed, please report: {type(bug).__name__}: {text}{place}", EXIT_FAILED, "")
