"""Fixtures that several test folders use."""

from __future__ import annotations

from pathlib import Path

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
