"""The last resort against a test that hangs: its process ends, and says which test it was in.

pytest-timeout raises an exception in the test after `timeout` seconds. Most tests fail by it, and the next one begins.
Hypothesis takes the exception for a failing example and runs the test again to shrink it, this time without an alarm;
code that catches every exception, or code in C that looks for no signal, goes on as well. `faulthandler` watches from
a thread of its own and ends the process.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Generator
from typing import Final

import pytest

GRACE: Final = 1.2
"""A test may last its `timeout` times this, with the time to take down what it set up, before its process ends."""
STDERR: Final = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Keep the real stderr: while a test runs, pytest puts a file in its place."""
    config.stash[STDERR] = os.dup(2)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """End the process, with the stack of each thread on stderr, when the test lasts too long.

    Under pytest-xdist the report then says `worker 'gw0' crashed while running` and the name of the test, and a new
    worker takes the tests that are left.
    """
    mark = item.get_closest_marker("timeout")
    timeout_s = float(mark.args[0] if mark else item.config.getini("timeout") or 0.0)
    if timeout_s:
        faulthandler.dump_traceback_later(timeout_s * GRACE, exit=True, file=item.config.stash[STDERR])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
