"""The timeline's thread does not outlive the program."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import asyncio, atexit, threading

def left():
    print([thread.name for thread in threading.enumerate() if thread is not threading.main_thread()])

atexit.register(left)  # runs last: what is registered first
from gpumon.history.worker import Worker

worker = Worker(lambda: True)  # there is always something to do ahead
print(asyncio.run(worker.call(lambda: "asked")))
"""


def test_a_program_that_ends_while_it_works_ahead_leaves_no_thread_behind() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "asked\n[]\n", "")
