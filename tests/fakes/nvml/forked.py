"""Programs on the driver library in forks of `tests.program`, which has loaded the binding and the worker already."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import Final

from gpumon.sources.driver import worker
from gpumon.sources.nvml import driver

LIBRARY: Final = "libnvidia-ml.so.1"
LOADED: Final = driver.DRIVER
"""Loaded before the first fork, as it is in every one of them."""
TEXT: Final = "-c"
"""First argument before the text of a program; without it, the arguments are those of a worker."""


def load_library(search_path: str) -> None:
    """Load the driver library that an interpreter started with this LD_LIBRARY_PATH would find.

    The loader reads the variable when a process starts. A library that is loaded already is found by its own name.
    """
    for folder in search_path.split(os.pathsep):
        library = Path(folder, LIBRARY)
        if folder and library.is_file():
            ctypes.CDLL(str(library))
            return


def main() -> None:
    """Run the program or the worker that the arguments name."""
    load_library(os.environ.get("LD_LIBRARY_PATH", ""))
    first, *arguments = sys.argv[1:]
    if first == TEXT:
        exec(compile(arguments[0], "<program>", "exec"), {"__name__": "__main__"})
    else:
        worker.main(first, *arguments)
