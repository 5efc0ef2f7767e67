"""The messages that reach the screen."""

from __future__ import annotations

from textual.message import Message

from gpumon.fleet.snapshot import FleetSnapshot
from gpumon.readings.snapshot import Snapshot


class SnapshotReady(Message, bubble=False):
    """A new snapshot. A newer one replaces an older one that still waits: the screen never works off a queue."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__()
        self.snapshot = snapshot

    def can_replace(self, message: Message) -> bool:
        """Whether this message takes the place of `message` in the queue."""
        return isinstance(message, SnapshotReady)


class FleetReady(Message, bubble=False):
    """A new snapshot of a fleet; a newer one replaces an older one that still waits."""

    def __init__(self, fleet: FleetSnapshot) -> None:
        super().__init__()
        self.fleet = fleet

    def can_replace(self, message: Message) -> bool:
        """Whether this message takes the place of `message` in the queue."""
        return isinstance(message, FleetReady)
