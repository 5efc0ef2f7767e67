"""The last minutes in memory, packed, within a bound."""

from __future__ import annotations

import math
import threading
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from typing import Final

from gpumon.history import codec
from gpumon.history.frame_store import Note, Points, PointsCell, Tick, VerdictLog
from gpumon.readings.frame import Frame
from gpumon.readings.snapshot import Event

_LONGEST_S: Final = 60.0
"""A chunk is full then, or with the next minute of the clock."""
_MOST_FRAMES: Final = 120
_OVERHEAD_BYTES: Final = 160
"""Size of a bytes object and its places in lists."""


class _Chunk:
    """Frames of one minute of the clock: one by one while it lasts, then as one block."""

    def __init__(self, run: int) -> None:
        """`run`: how often the clock had gone back before."""
        self.run = run
        self.walls: list[float] = []
        self.packed: list[codec.PackedFrame] = []
        self.block = b""
        self.points: list[Points] = []
        self.cells = b""
        """The points, once the frames are a block."""
        self.last_s = 0.0
        """When the last frame was taken, on the monotonic clock."""
        self.events: list[Event] = []
        self.notes: list[bytes] = []
        self.bytes = 0

    def add(self, tick: Tick, packed: codec.PackedFrame) -> int:
        """Take in one frame; returns the bytes that it takes."""
        shared = self.packed[-1].engines if self.packed else ()
        new = []
        for at, engine in enumerate(packed.engines):
            if at >= len(shared) or shared[at] is not engine:
                new.append(engine)
        added = len(packed.head) + sum(map(len, new)) + _OVERHEAD_BYTES * (1 + len(new) + len(tick.events))
        self.walls.append(tick.frame.wall_s)
        self.last_s = tick.frame.monotonic_s
        self.packed.append(packed)
        self.events += tick.events
        self.bytes += added
        return added

    def noted(self, note: bytes) -> int:
        """Take in an entry of the log of verdicts; returns the bytes that it takes."""
        self.notes.append(note)
        added = len(note) + _OVERHEAD_BYTES
        self.bytes += added
        return added

    def squeezed(self, block: bytes, cells: bytes) -> int:
        """Keep these in place of the frames and points one by one; returns the bytes that this saves."""
        notes = sum(map(len, self.notes)) + _OVERHEAD_BYTES * len(self.notes)
        new = len(block) + len(cells) + notes + _OVERHEAD_BYTES * (2 + len(self.events))
        saved = self.bytes - new
        self.bytes = new
        self.block = block
        self.packed = []
        self.cells = cells
        self.points = []
        return saved


class MemoryStore:
    """Keeps the last minutes: a `Keeper` for the collector and a `FrameStore` for any thread.

    `seconds` back at most, and `most_bytes` of frames, points and events; whole minutes are dropped.
    """

    def __init__(self, seconds: float, most_bytes: float) -> None:
        self._seconds = seconds
        self._most_bytes = most_bytes
        self._chunks: deque[_Chunk] = deque()
        self._packer = codec.Packer()
        self._cell = PointsCell()
        self._log = VerdictLog()
        self._bytes = 0
        self._turns = 0
        self._lock = threading.Lock()
        self._full: deque[_Chunk] = deque()
        self._squeezer: threading.Thread | None = None

    @property
    def bytes(self) -> int:
        """Bytes kept."""
        return self._bytes

    def keep(self, tick: Tick) -> None:
        """Take one tick; a finished minute is packed tighter in a thread."""
        packed = self._packer.pack(tick.frame)
        wall_s = tick.frame.wall_s
        points = None
        if self._cell.ends(wall_s):
            points = self._cell.taken()
        self._cell.add(wall_s, tick.frame.interval_s, tick.points)
        with self._lock:
            if points is not None and self._chunks:
                self._chunks[-1].points.append(points)
            chunk = self._chunk_for(wall_s)
            self._bytes += chunk.add(tick, packed)
            if tick.verdicts is not None:
                note = self._log.note(wall_s, tick.verdicts)
                if note is not None:
                    self._bytes += chunk.noted(codec.pack_note(note))
            self._drop(tick.frame.monotonic_s)
        self._squeeze_aside()

    def _chunk_for(self, wall_s: float) -> _Chunk:
        """The chunk that a frame goes into: the last one, or a new one after which the last one is full."""
        if self._chunks:
            last = self._chunks[-1]
            if wall_s <= last.walls[-1]:
                self._turns += 1
            if _belongs(wall_s, last):
                return last
            self._full.append(last)
        chunk = _Chunk(self._turns)
        self._chunks.append(chunk)
        self._log.renew()  # whatever minute is dropped, the next one says what stands
        return chunk

    def _squeeze_aside(self) -> None:
        """Pack full chunks in a thread, where none does so already."""
        if self._full and (self._squeezer is None or not self._squeezer.is_alive()):
            self._squeezer = threading.Thread(target=self._squeeze, name="flight recorder", daemon=True)
            self._squeezer.start()

    def _drop(self, now_s: float) -> None:
        """Let the oldest go: what is too long ago, or too much."""
        chunks = self._chunks
        while len(chunks) > 1 and (now_s - chunks[0].last_s > self._seconds or self._bytes > self._most_bytes):
            self._bytes -= chunks.popleft().bytes

    def _squeeze(self) -> None:
        while True:
            with self._lock:
                if not self._full:
                    return
                chunk = self._full.popleft()
                packed = chunk.packed
                points = chunk.points
            block = codec.pack_block(packed)
            cells = codec.pack_points(points)
            with self._lock:
                saved = chunk.squeezed(block, cells)
                if chunk in self._chunks:
                    self._bytes -= saved

    def settle(self) -> None:
        """Wait until all finished minutes are packed: for measurements and tests."""
        if self._squeezer is not None:
            self._squeezer.join()

    def span(self) -> tuple[float, float] | None:
        """When the first and the last frame was taken; None without frames."""
        with self._lock:
            if not self._chunks:
                return None
            return min(chunk.walls[0] for chunk in self._chunks), max(chunk.walls[-1] for chunk in self._chunks)

    def turns(self) -> int:
        """How often its clock went back."""
        return self._turns

    def frames(self, from_s: float, to_s: float) -> Sequence[Frame]:
        """Frames from a time to another, both included; of a time that came again only those of the newer one."""
        frames: list[Frame] = []
        for chunk in self._between(from_s, to_s):
            with self._lock:
                block = chunk.block
                packed = [*chunk.packed]
                again = self._came_again(chunk)
            if block:
                packed = codec.unpack_block(block)
            for frame in codec.unpack_frames(packed):
                if from_s <= frame.wall_s <= to_s and not _within(frame.wall_s, again):
                    frames.append(frame)
        return frames

    def _came_again(self, chunk: _Chunk) -> list[tuple[float, float]]:
        """Spans of time of the chunks that were taken after the clock was set back behind this one."""
        spans: dict[int, tuple[float, float]] = {}
        for later in self._chunks:
            if later.run > chunk.run:
                first_s, _ = spans.get(later.run, (later.walls[0], 0.0))
                spans[later.run] = (first_s, later.walls[-1])
        return list(spans.values())

    def before(self, wall_s: float) -> float | None:
        """When the last frame before a time was taken."""
        times = []
        with self._lock:
            for chunk in self._chunks:
                place = bisect_left(chunk.walls, wall_s)
                if place > 0:
                    times.append(chunk.walls[place - 1])
        return max(times, default=None)

    def after(self, wall_s: float) -> float | None:
        """When the first frame after a time was taken."""
        times = []
        with self._lock:
            for chunk in self._chunks:
                place = bisect_right(chunk.walls, wall_s)
                if place < len(chunk.walls):
                    times.append(chunk.walls[place])
        return min(times, default=None)

    def points(self, from_s: float, to_s: float) -> Sequence[Points]:
        """Points for charts, oldest first."""
        inside: list[Points] = []
        for chunk in self._between(from_s, to_s):
            with self._lock:
                cells = chunk.cells
                points = [*chunk.points]
            if cells:
                points = codec.unpack_points(cells)
            for cell in points:
                if from_s <= cell.wall_s <= to_s:
                    inside.append(cell)
        return inside

    def events(self, from_s: float, to_s: float) -> Sequence[Event]:
        """Events, oldest first."""
        events = []
        with self._lock:
            for chunk in self._chunks:
                for event in chunk.events:
                    if from_s <= event.wall_s <= to_s:
                        events.append(event)
        return sorted(events, key=lambda event: event.wall_s)

    def notes(self, from_s: float, to_s: float) -> Sequence[Note]:
        """Notes on the verdicts, oldest first; of a time that came again only those of the newer one."""
        notes: list[Note] = []
        for chunk in self._between(from_s, to_s):
            with self._lock:
                packed = [*chunk.notes]
                again = self._came_again(chunk)
            for data in packed:
                for note in codec.unpack_notes(data):
                    if from_s <= note.wall_s <= to_s and not _within(note.wall_s, again):
                        notes.append(note)
        return sorted(notes, key=lambda note: note.wall_s)

    def _between(self, from_s: float, to_s: float) -> list[_Chunk]:
        with self._lock:
            between = []
            for chunk in self._chunks:
                if chunk.walls[0] <= to_s and chunk.walls[-1] >= from_s:
                    between.append(chunk)
            return between


def _within(wall_s: float, spans: Sequence[tuple[float, float]]) -> bool:
    return any(first_s <= wall_s <= last_s for first_s, last_s in spans)


def _belongs(wall_s: float, chunk: _Chunk) -> bool:
    """Whether a frame goes on in a chunk: its times only grow, so that they can be searched."""
    return (
        wall_s > chunk.walls[-1]
        and math.floor(wall_s / _LONGEST_S) == math.floor(chunk.walls[0] / _LONGEST_S)
        and len(chunk.walls) < _MOST_FRAMES
    )
