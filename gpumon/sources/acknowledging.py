"""Keeps the acknowledgements for a collector: marks its verdicts, and reads and writes their file beside the ticks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Final

from gpumon.readings.frame import Fault
from gpumon.readings.snapshot import Snapshot
from gpumon.sources.acknowledged import AcknowledgementStore, Change, added, one_after_the_other, without
from gpumon.sources.offload import daemon_thread, finished
from gpumon.triage.acknowledgement import MAINTENANCE, Acknowledgement, Acknowledgements

LOOK_S: Final = 1.0
"""Seconds between two looks at the file."""
_READY_S: Final = 1.0
"""Longest wait for the file: a home folder may be on a mount that hangs."""
_CLOSE_S: Final = 0.2
"""Longest wait at the end for a write that is under way."""

_Stamp = tuple[int, int, int]


class AcknowledgementKeeper:
    """A collector's access to the acknowledgements. Without a store they are those of this run alone."""

    def __init__(self, store: AcknowledgementStore | None, *, look_s: float = LOOK_S) -> None:
        self._store = store
        self._look_s = look_s
        self._acknowledgements: dict[str, Acknowledgements] = {}
        """Name of a host (empty: this one) -> which acknowledgements cover its verdicts."""
        self._kept: tuple[Acknowledgement, ...] = ()
        self._stamp: _Stamp | None = None
        """`AcknowledgementStore.stamp` of what is known; None: nothing was read yet."""
        self._looking: Future[tuple[_Stamp, tuple[Acknowledgement, ...]] | None] | None = None
        """The look that is under way."""
        self._looked_s = 0.0
        """Monotonic time at which the last look began."""
        self._is_overtaken = False
        """Whether something was changed since that look began."""
        self._writing: list[tuple[Future[tuple[Acknowledgement, ...]], Sequence[Change]]] = []
        """Changes of the file that are under way."""
        self._unwritten: list[Change] = []
        """Changes that could not be written: they are tried again in the place of the next look."""
        self._failure = ""
        """Why the last change was not written; empty: it was."""
        self._failed_wall_s = 0.0

    async def start(self) -> None:
        """Begin to read the file."""
        self._look()

    async def ready(self) -> None:
        """Wait for the file."""
        if self._looking is not None:
            await finished(self._looking, _READY_S)

    def mark(self, snapshot: Snapshot, host: str = "") -> Snapshot:
        """The snapshot of this host, or of a host of a fleet, whose verdicts say who knows of them."""
        self._take_in()
        if time.monotonic() - self._looked_s >= self._look_s:
            self._look()
        acknowledgements = self._acknowledgements.setdefault(host, Acknowledgements())
        of_verdicts = [kept for kept in self.kept_of(host) if kept.id != MAINTENANCE]
        marked = acknowledgements.mark(snapshot, of_verdicts)
        if marked.over:
            self._change(without(marked.over))
        return marked.snapshot

    def acknowledge(self, acknowledgements: Sequence[Acknowledgement]) -> None:
        """Add acknowledgements."""
        self._change(added(acknowledgements))

    def drop_ended_maintenance(self, now_s: float) -> None:
        """Forget maintenance that is over."""
        ended = [kept for kept in self._kept if kept.id == MAINTENANCE and now_s >= kept.until_s]
        if ended:
            self._change(without(ended))

    def lift(self, ids: Sequence[str], host: str = "") -> None:
        """Take back the acknowledgements of these verdicts of a host."""
        self._change(without([kept for kept in self.kept_of(host) if kept.id in ids]))

    @property
    def kept(self) -> Sequence[Acknowledgement]:
        """All acknowledgements that are known."""
        return self._kept

    def kept_of(self, host: str) -> Sequence[Acknowledgement]:
        """The acknowledgements of a host of a fleet, or of this host (empty)."""
        return [kept for kept in self._kept if kept.host == host]

    def fault(self, wall_s: float) -> Fault | None:  # noqa: ARG002 - asked as all troubles are
        """Why acknowledgements are those of this run alone, where they should outlive it."""
        if not self._failure or self._store is None:
            return None
        text = f"acknowledgements are not kept ({self._failure}): {self._store.path}"
        return Fault("gpumon", text, self._failed_wall_s)

    async def close(self) -> None:
        """Wait a moment for what is being written."""
        for writing, _ in self._writing:
            await finished(writing, _CLOSE_S)

    def _change(self, change: Change) -> None:
        """Change what is known at once, and the file in a thread."""
        self._kept = tuple(change(self._kept))
        self._is_overtaken = True
        self._write([change])

    def _write(self, changes: Sequence[Change]) -> None:
        """Begin to change the file."""
        if self._store is not None:
            writing = daemon_thread(self._store.change, one_after_the_other(changes))
            self._writing.append((writing, changes))

    def _look(self) -> None:
        """Begin a look at the file, unless one or a change is under way: it may hang."""
        if self._store is None or self._looking is not None or self._writing:
            return
        self._looked_s = time.monotonic()
        if self._unwritten:
            unwritten = self._unwritten
            self._unwritten = []
            self._write(unwritten)
            return
        self._is_overtaken = False
        self._looking = daemon_thread(_read_if_changed, self._store, self._stamp)

    def _take_in(self) -> None:
        """Take in what was read, unless this gpumon is changing it."""
        for item in [item for item in self._writing if item[0].done()]:
            self._writing.remove(item)
            writing, changes = item
            error = writing.exception()
            if error is None:
                self._failure = ""
                continue
            if not self._failure:
                self._failed_wall_s = time.time()
            self._failure = getattr(error, "strerror", None) or type(error).__name__
            self._unwritten += changes
        if self._looking is None or not self._looking.done():
            return
        looked = self._looking
        self._looking = None
        if looked.exception() is not None or self._is_overtaken or self._failure:
            return
        seen = looked.result()
        if seen is not None:
            self._stamp, self._kept = seen


def _read_if_changed(
    store: AcknowledgementStore, known: _Stamp | None
) -> tuple[_Stamp, tuple[Acknowledgement, ...]] | None:
    """The file with its stamp; None where it is the one that is known."""
    stamp = store.stamp()
    if stamp == known:
        return None
    return stamp, store.read()
