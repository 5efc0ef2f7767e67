"""What the tests of discovery share: starting engine-like processes and following what is found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources.discovery.servers import Servers, servers


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[Servers]:
    """Starts engine-like processes."""
    with servers(tmp_path / "engines") as made:
        yield made
