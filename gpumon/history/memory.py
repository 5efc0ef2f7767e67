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

_CHUNK_S: Final = 60.0
"""Seconds of the clock that one chunk has: a minute."""
_MOST_FRAMES: Final = 120
"""Most frames of one chunk: one that is taken more often than twice a second has several a minute."""
_OVERHEAD_BYTES: Final = 160
"""Bytes that an entry takes beside its contents: a bytes object and its places in lists."""


class _Chunk:
    """Frames of one minute of the clock: one by one while it lasts, then as one block."""

    def __init__(self, run: int) -> None:
        """`run`: how often the clock had gone back before."""
        self.run = run
        self.walls: list[float] = []
        """Unix times of its frames."""
        self.packed: list[codec.PackedFrame] = []
        """Its frames, until they are a block."""
        self.block = b""
        """Its frames, once they are a block."""
        self.points: list[Points] = []
        """Its points, until the frames are a block."""
        self.packed_points = b""
        """Its points, once the frames are a block."""
        self.last_s = 0.0
        """When the last frame was taken, on the monotonic clock."""
        self.events: list[Event] = []
        self.notes: list[bytes] = []
        self.bytes = 0
        """Bytes that all of it takes."""

    def add(self, tick: Tick, packed: codec.PackedFrame) -> int:
        """Take in one frame; returns the bytes that it takes."""
        previous: tuple[bytes, ...] = self.packed[-1].engines if self.packed else ()
        # The others share their bytes with the frame before.
        new_engines = [
            engine
            for place, engine in enumerate(packed.engines)
            if place >= len(previous) or previous[place] is not engine
        ]
        entries = 1 + len(new_engines) + len(tick.events)
        added_bytes = len(packed.head) + sum(map(len, new_engines)) + _OVERHEAD_BYTES * entries
        self.walls.append(tick.frame.wall_s)
        self.last_s = tick.frame.monotonic_s
        self.packed.append(packed)
        self.events += tick.events
        self.bytes += added_bytes
        return added_bytes

    def add_note(self, note: bytes) -> int:
        """Take in an entry of the log of verdicts; returns the bytes that it takes."""
        self.notes.append(note)
        added_bytes = len(note) + _OVERHEAD_BYTES
        self.bytes += added_bytes
        return added_bytes

    def replace_frames(self, block: bytes, packed_points: bytes) -> int:
        """Keep these in place of the frames and points one by one; returns the bytes that this saves."""
        entries = (block, packed_points, *self.notes)
        new_bytes = sum(map(len, entries)) + _OVERHEAD_BYTES * (len(entries) + len(self.events))
        saved_bytes = self.bytes - new_bytes
        self.bytes = new_bytes
        self.block = block
        self.packed = []
        self.packed_points = packed_points
        self.points = []
        return saved_bytes


class MemoryStore:
    """Keeps the last minutes: a `TickKeeper` for the collector and a `FrameStore` for any thread.

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
        """How often the clock has gone back."""
        self._lock = threading.Lock()
        self._full: deque[_Chunk] = deque()
        """Chunks that get no more frames, and wait to be packed tighter."""
        self._squeezer: threading.Thread | None = None

    @property
    def bytes(self) -> int:
        """Bytes kept."""
        return self._bytes

    def keep(self, tick: Tick) -> None:
        """Take one tick; a finished minute is packed tighter in a thread."""
        packed = self._packer.pack(tick.frame)
        wall_s = tick.frame.wall_s
        points = self._cell.take() if self._cell.ends(wall_s) else None
        self._cell.add(wall_s, tick.frame.interval_s, tick.points)
        with self._lock:
            if points is not None and self._chunks:
                self._chunks[-1].points.append(points)
            chunk = self._chunk_for(wall_s)
            self._bytes += chunk.add(tick, packed)
            if tick.verdicts is not None:
                note = self._log.note(wall_s, tick.verdicts)
                if note is not None:
                    self._bytes += chunk.add_note(codec.pack_note(note))
            self._drop_oldest(tick.frame.monotonic_s)
        self._start_squeezer()

    def _chunk_for(self, wall_s: float) -> _Chunk:
        """The chunk that a frame goes into: the last one, or a new one after which the last one is full."""
        if self._chunks:
            last = self._chunks[-1]
            if wall_s <= last.walls[-1]:
                self._turns += 1
            if _is_next_of(wall_s, last):
                return last
            self._full.append(last)
        chunk = _Chunk(self._turns)
        self._chunks.append(chunk)
        self._log.renew()  # whatever minute is dropped, the next one says what stands
        return chunk

    def _start_squeezer(self) -> None:
        """Pack full chunks in a thread, where none does so already."""
        if self._full and (self._squeezer is None or not self._squeezer.is_alive()):
            self._squeezer = threading.Thread(target=self._squeeze, name="flight recorder", daemon=True)
            self._squeezer.start()

    def _drop_oldest(self, now_s: float) -> None:
        """Drop the oldest chunks: what is too long ago, or too much; the newest stays. `now_s` is monotonic."""
        chunks = self._chunks
        while len(chunks) > 1 and (now_s - chunks[0].last_s > self._seconds or self._bytes > self._most_bytes):
            self._bytes -= chunks.popleft().bytes

    def _squeeze(self) -> None:
        """Pack full chunks until none is left; in the thread."""
        while True:
            with self._lock:
                if not self._full:
                    return
                chunk = self._full.popleft()
                packed = chunk.packed
                points = chunk.points
            block = codec.pack_block(packed)
            packed_points = codec.pack_points(points)
            with self._lock:
                saved_bytes = chunk.replace_frames(block, packed_points)
                if chunk in self._chunks:  # it may have been dropped meanwhile, with all its bytes
                    self._bytes -= saved_bytes

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
        for chunk in self._chunks_between(from_s, to_s):
            with self._lock:
                block = chunk.block
                packed = [*chunk.packed]
                repeated = self._repeated_spans(chunk)
            if block:
                packed = codec.unpack_block(block)
            for frame in codec.unpack_frames(packed):
                if from_s <= frame.wall_s <= to_s and not _is_within(frame.wall_s, repeated):
                    frames.append(frame)
        return frames

    def _repeated_spans(self, chunk: _Chunk) -> list[tuple[float, float]]:
        """Spans of time that came again after a chunk: one of each run that the clock began by going back."""
        first_s: dict[int, float] = {}
        last_s: dict[int, float] = {}
        for later in self._chunks:
            if later.run > chunk.run:
                first_s.setdefault(later.run, later.walls[0])
                last_s[later.run] = later.walls[-1]
        return [(first_s[run], last_s[run]) for run in first_s]

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
        for chunk in self._chunks_between(from_s, to_s):
            with self._lock:
                packed_points = chunk.packed_points
                points = [*chunk.points]
            if packed_points:
                points = codec.unpack_points(packed_points)
            inside += [cell for cell in points if from_s <= cell.wall_s <= to_s]
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
        for chunk in self._chunks_between(from_s, to_s):
            with self._lock:
                packed = [*chunk.notes]
                repeated = self._repeated_spans(chunk)
            for data in packed:
                for note in codec.unpack_notes(data):
                    if from_s <= note.wall_s <= to_s and not _is_within(note.wall_s, repeated):
                        notes.append(note)
        return sorted(notes, key=lambda note: note.wall_s)

    def _chunks_between(self, from_s: float, to_s: float) -> list[_Chunk]:
        """Chunks that may have frames of a span."""
        with self._lock:
            return [chunk for chunk in self._chunks if chunk.walls[0] <= to_s and chunk.walls[-1] >= from_s]


def _is_within(wall_s: float, spans: Sequence[tuple[float, float]]) -> bool:
    """Whether a time lies in one of these spans."""
    return any(first_s <= wall_s <= last_s for first_s, last_s in spans)


def _is_next_of(wall_s: float, chunk: _Chunk) -> bool:
    """Whether a frame goes into a chunk: of the same minute, and later than all in it, so that it can be searched."""
    return (
        wall_s > chunk.walls[-1]
        and math.floor(wall_s / _CHUNK_S) == math.floor(chunk.walls[0] / _CHUNK_S)
        and len(chunk.walls) < _MOST_FRAMES
    )
