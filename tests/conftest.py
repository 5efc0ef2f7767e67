"""Fixtures that several test folders use."""

from __future__ import annotations

import gc
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

# The objects of ten thousand tests all stay: to look through them for garbage, again and again, is a third of the
# time that collecting takes.
gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What waits goes first; everything else stays in its order."""
    folder = Path(__file__).parent
    places = {folder / name: place for place, name in enumerate(REAL_TIME)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


def pytest_collection_finish() -> None:
    """From here on garbage is what the tests leave."""
    gc.freeze()
    gc.enable()
