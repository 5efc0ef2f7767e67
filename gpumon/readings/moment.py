"""What is shown of a moment of the past."""

from __future__ import annotations

from typing import NamedTuple

from gpumon.readings.history import History
from gpumon.readings.snapshot import Snapshot


class Moment(NamedTuple):
    """What is shown of a moment of the past."""

    snapshot: Snapshot
    history: History
    """Holds the charts up to that moment at least."""
