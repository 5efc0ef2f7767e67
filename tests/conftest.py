"""Fixtures that several test folders use."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.nvml.driver import FakeDriver


@pytest.fixture
def fake_driver(tmp_path: Path) -> FakeDriver:
    """A fake NVIDIA driver whose calls are logged; the test writes its script."""
    return FakeDriver(tmp_path, log=True)
