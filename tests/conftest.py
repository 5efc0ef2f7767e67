"""Fixtures that several test folders use."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

from tests.fakes.nvml.driver import FakeDriver


@pytest.fixture
def fake_driver(tmp_path: Path) -> FakeDriver:
    """A fake NVIDIA driver whose calls are logged; the test writes its script."""
    return FakeDriver(tmp_path, log=True)


# Machines are busy and differ: no property test is judged by the clock.
settings.register_profile("no clock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no clock")

REAL_TIME: Final = (
    "accuracy/test_replay.py",
    "tui/test_slow_line.py",
    "end_to_end/test_terminals.py",
    "end_to_end/test_scenarios.py",
    "recording/test_kill.py",
    "end_to_end/test_time_travel.py",
    "end_to_end/test_screen.py",
    "tui/test_process.py",
)
"""Modules that mostly wait, the longest first: one worker waits for them from the start, while the others compute."""

_PLACES: Final = {Path(__file__).parent / name: place for place, name in enumerate(REAL_TIME)}

BEHIND: Final = 10
"""Niceness of a worker that computes: it yields to the one whose tests keep time."""

# The objects of ten thousand tests all stay: to look through them for garbage, again and again, is a third of the
# time that collecting takes.
gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What waits goes first; everything else stays in its order."""
    items.sort(key=lambda item: _PLACES.get(item.path, len(_PLACES)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A worker that is done with waiting, or never had to, steps back."""
    if item.path not in _PLACES and os.environ.get("PYTEST_XDIST_WORKER") and os.nice(0) < BEHIND:
        os.nice(BEHIND - os.nice(0))


def pytest_collection_finish() -> None:
    """From here on garbage is what the tests leave."""
    gc.freeze()
    gc.enable()
