"""The worker's process: `python -m gpumon.sources.driver`, with the arguments of `worker.main`."""

from __future__ import annotations

import sys


def run() -> None:
    """Serve until stdin ends."""
    # msgspec asks for this module and does without it: a fifth of what the worker imports, and 1.3 MB.
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # as the documentation of import says it

    from gpumon.sources.driver.worker import main

    main(*sys.argv[1:])


if __name__ == "__main__":
    run()
