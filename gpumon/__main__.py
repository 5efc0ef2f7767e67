"""`python -m gpumon` and the installed script are the `gpumon` command."""

import signal
import sys

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Ctrl+C ends the process at once until a command runs (`cli._run`): an import that it interrupts would print a
    # traceback, and that of msgspec would lose it and crash at the first decoder.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> int:
    """Run the command of the command line; returns its exit code."""
    from gpumon.cli import main as run_command

    return run_command()


if __name__ == "__main__":
    sys.exit(main())
