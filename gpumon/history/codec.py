"""Frames as bytes: one by one, and a minute of them as one block; what may be secret is struck before."""

from __future__ import annotations

import math
import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Final, NamedTuple

import msgspec

from gpumon.history import version_0_1
from gpumon.history.frame_store import Note, Points
from gpumon.readings.frame import EngineReading, Frame
from gpumon.readings.verdict import Event

QUICK: Final = 1
"""zlib's level for what is rewritten within a minute."""
SMALL: Final = 6
"""zlib's level for what stays: 9 takes 5 times as long for 4 % less."""
MOST_FRAMES: Final = 300
"""Most frames of one block: a minute, four times a second, and some."""
_MOST_ROW_BYTES: Final = 1 << 27
"""Largest unpacked row; a larger one is damaged: a minute of 8 GPUs and 100 engines is two thirds of it."""
_MOST_SHRINKING: Final = 1032
"""zlib packs no bytes into fewer than this many times less (zlib.net/zlib_tech.html)."""
_PIECE_BYTES: Final = 1 << 20
MOST_PACKED_BYTES: Final = 1 << 25
"""Largest block as it lies in the file: a larger one is damaged, and is not read; a minute takes a fifth of it."""
_DAMAGE: Final = (
    *(zlib.error, msgspec.MsgspecError, LookupError, RuntimeError, StopIteration, OverflowError),
    UnicodeDecodeError,  # msgspec passes it on from texts
)
"""Exceptions of decoding for bytes that make no sense."""
_MOST_PARTS: Final = 10_000
"""Most parts of one frame: it and its engines."""
_MOST_SECONDS: Final = 1e5
"""Most seconds between two points: a tick may be an hour."""
_SAME = 0
_NEW = 1

_encode = msgspec.msgpack.Encoder().encode


class TooLargeError(ValueError):
    """A row unpacks to more than any that gpumon writes."""


class PackedFrame(NamedTuple):
    """A frame as msgpack: engines apart, since most of them are as they were in the frame before."""

    head: bytes
    engines: tuple[bytes, ...]


class _Moment(msgspec.Struct, array_like=True):
    """The first fields of a `Frame`."""

    seq: int
    wall_s: float


class _Place(msgspec.Struct, array_like=True):
    """One place in all frames of a block: the head, the first engine, the second, ..."""

    steps: Annotated[bytes, msgspec.Meta(max_length=MOST_FRAMES)]
    """One byte for each frame that has this place: `_NEW` or `_SAME`."""
    lengths: Annotated[list[Annotated[int, msgspec.Meta(gt=0)]], msgspec.Meta(max_length=MOST_FRAMES)]
    """Lengths of the new ones, in bytes."""
    rows: bytes
    """Rows of one length after another: see `_woven`."""


class _Block(msgspec.Struct, array_like=True):
    sizes: Annotated[list[int], msgspec.Meta(max_length=MOST_FRAMES)]
    """Parts of each frame."""
    places: Annotated[list[_Place], msgspec.Meta(max_length=_MOST_PARTS)]


class _Cells(msgspec.Struct, array_like=True):
    keys: list[str]
    cells: list[tuple[float, float, bytes]]
    """Time, seconds, and a float32 for each key; NaN is a gap."""


_FRAME: Final = msgspec.msgpack.Decoder(Frame)
_ENGINE: Final = msgspec.msgpack.Decoder(EngineReading)
_MOMENT: Final = msgspec.msgpack.Decoder(_Moment)
_BLOCK: Final = msgspec.msgpack.Decoder(_Block)
_CELLS: Final = msgspec.msgpack.Decoder(_Cells)
_NOTE: Final = msgspec.msgpack.Decoder(Note)
_EVENTS: Final = msgspec.msgpack.Decoder(list[Event])


class Packer:
    """Packs frames one after another."""

    def __init__(self) -> None:
        self._readings: tuple[EngineReading, ...] = ()
        self._engines: tuple[bytes, ...] = ()

    def pack(self, frame: Frame) -> PackedFrame:
        """The frame as bytes. An engine that is as it was in the frame before shares its bytes with that one."""
        engines = []
        for place, reading in enumerate(frame.engines):
            before = None
            if place < len(self._readings):
                before = self._readings[place]
            engines.append(self._engines[place] if before == reading else _encode(_once(reading, before)))
        self._engines = tuple(engines)
        self._readings = frame.engines
        return PackedFrame(_encode(msgspec.structs.replace(frame, engines=())), self._engines)


def _once(reading: EngineReading, before: EngineReading | None) -> EngineReading:
    """The reading, with the good ones before it only where they were not kept already."""
    if reading.earlier and before is not None and before.earlier == reading.earlier:
        return msgspec.structs.replace(reading, earlier=())
    return reading


def unpacked(packed: Iterable[PackedFrame]) -> list[Frame]:
    """The frames; engines that share their bytes are one object.

    A frame that this gpumon cannot read is left out: a newer one may know more kinds of things.
    """
    decoded: dict[bytes, EngineReading] = {}
    frames = []
    for head, engines in packed:
        try:
            frame = _FRAME.decode(head)
            decoded = {engine: decoded.get(engine) or _engine(engine) for engine in engines}
        except _DAMAGE:
            continue
        frames.append(
            msgspec.structs.replace(frame, engines=tuple(decoded[engine] for engine in engines)) if decoded else frame
        )
    return frames


def _engine(data: bytes) -> EngineReading:
    try:
        return _ENGINE.decode(data)
    except msgspec.ValidationError:
        return version_0_1.engine_reading(data)


def frame_time(packed: PackedFrame) -> tuple[int, float]:
    """A frame's number and time, read without the rest of it. Raises ValueError where it is damaged."""
    try:
        decoded = _MOMENT.decode(packed.head)
        return decoded.seq, decoded.wall_s
    except _DAMAGE as error:
        raise ValueError(f"damaged: {error}") from None


def block(frames: Sequence[PackedFrame], level: int = SMALL) -> bytes:
    """Frames that follow each other as one block: what a frame shares with the one before costs next to nothing."""
    parts = [(frame.head, *frame.engines) for frame in frames]
    sizes = list(map(len, parts))
    places = []
    for index in range(max(sizes, default=0)):
        places.append(_place([part[index] for part in parts if index < len(part)]))
    return zlib.compress(_encode(_Block(sizes, places)), level)


def _place(column: Sequence[bytes]) -> _Place:
    steps = bytearray()
    rows = list[bytes]()
    for row in column:
        same = bool(rows) and rows[-1] == row
        steps.append(_SAME if same else _NEW)
        if not same:
            rows.append(row)
    lengths = list(map(len, rows))
    of_length = ([row for row in rows if len(row) == length] for length in dict.fromkeys(lengths))
    return _Place(bytes(steps), lengths, b"".join(map(_woven, of_length)))


def _woven(rows: Sequence[bytes]) -> bytes:
    """Rows of one length, each XORed with the one before, and transposed: bytes of one meaning stand together.

    Measured on 8 GPUs and 4 engines: 4 % smaller than the rows as they are, and twice as quick to compress as level 9.
    """
    count = len(rows)
    length = len(rows[0])
    woven = bytearray(count * length)
    before = 0
    for offset, row in enumerate(rows):
        number = int.from_bytes(row, "big")
        woven[offset::count] = (number ^ before).to_bytes(length, "big")
        before = number
    return bytes(woven)


def _unwoven(woven: bytes, length: int, count: int) -> list[bytes]:
    rows = []
    before = 0
    for offset in range(count):
        before ^= int.from_bytes(woven[offset::count], "big")
        rows.append(before.to_bytes(length, "big"))
    return rows


def unblocked(data: bytes) -> list[PackedFrame]:
    """The frames of a block. Raises ValueError where it is damaged, in whatever way."""
    try:
        found = _BLOCK.decode(_inflated(data))
        columns = [iter(_column(place)) for place in found.places]
        parts = []
        for size in found.sizes:
            parts.append([next(columns[index]) for index in range(size)])
        return [PackedFrame(part[0], tuple(part[1:])) for part in parts]
    except _DAMAGE as error:
        raise ValueError(f"damaged: {error}") from None


def _column(place: _Place) -> list[bytes]:
    if sum(place.lengths) != len(place.rows):
        raise LookupError("rows are missing, or too many")
    by_length = {}
    at = 0
    for length, count in Counter(place.lengths).items():
        by_length[length] = iter(_unwoven(place.rows[at : at + length * count], length, count))
        at += length * count
    rows = [next(by_length[length]) for length in place.lengths]
    column = []
    newest = -1
    for step in place.steps:
        newest += step
        column.append(rows[newest])
    return column


def _inflated(data: bytes) -> bytes:
    """Unpack zlib data. Raises zlib.error if it is cut off, TooLargeError."""
    if len(data) * _MOST_SHRINKING > _MOST_ROW_BYTES:
        _measure(data)
    stream = zlib.decompressobj()
    inflated = stream.decompress(data, _MOST_ROW_BYTES)
    if not stream.eof:
        raise zlib.error("incomplete or too large")
    return inflated


def _measure(data: bytes) -> None:
    """Unpack in pieces that are dropped: what is too large takes no memory. Raises zlib.error, TooLargeError."""
    stream = zlib.decompressobj()
    size = 0
    while not stream.eof:
        piece = stream.decompress(data, _PIECE_BYTES)
        data = stream.unconsumed_tail
        size += len(piece)
        if size > _MOST_ROW_BYTES:
            raise TooLargeError(f"damaged: more than {_MOST_ROW_BYTES >> 20} MiB when unpacked")
        if not piece and not data:
            raise zlib.error("incomplete")


def pack_cells(points: Sequence[Points]) -> bytes:
    """Points of charts; their values are kept in single precision."""
    keys = list(dict.fromkeys(key for cell in points for key in cell.values))
    rows = []
    for cell in points:
        rows.append(
            (cell.wall_s, cell.seconds, array("f", [cell.values.get(key, float("nan")) for key in keys]).tobytes())
        )
    return zlib.compress(_encode(_Cells(keys, rows)), SMALL)


def unpack_cells(data: bytes) -> list[Points]:
    """Points from the bytes of `pack_cells`. Raises ValueError if they are damaged."""
    try:
        found = _CELLS.decode(_inflated(data))
        if not all(math.isfinite(at) and 0.0 <= seconds <= _MOST_SECONDS for at, seconds, _ in found.cells):
            raise ValueError("damaged: times that cannot be")
        points = []
        for at, seconds, row in found.cells:
            points.append(Points(at, seconds, _values(found.keys, row)))
        return points
    except _DAMAGE as error:
        raise ValueError(f"damaged: {error}") from None


def _values(keys: Sequence[str], row: bytes) -> dict[str, float]:
    values = array("f", row)
    if not math.isnan(sum(values)):
        return dict(zip(keys, values, strict=True))
    result = {}
    for key, value in zip(keys, values, strict=True):
        if not math.isnan(value):
            result[key] = value
    return result


def told(events: Sequence[Event]) -> bytes:
    """Events as bytes."""
    return _encode(events)


def unpack_events(data: bytes) -> list[Event]:
    """Events from the bytes of `told`. Raises ValueError if they are damaged."""
    try:
        try:
            return _EVENTS.decode(data)
        except msgspec.ValidationError:
            return version_0_1.unpack_events_0_1(data)
    except _DAMAGE as error:
        raise ValueError(f"damaged: {error}") from None


def noted(note: Note) -> bytes:
    """An entry of the log of verdicts as bytes."""
    return zlib.compress(_encode(note), QUICK)


def unpack_notes(data: bytes) -> list[Note]:
    """Notes from the bytes of `noted`; none if a gpumon wrote them whose verdicts have another shape. Raises ValueError
    if they are damaged."""
    try:
        return [_NOTE.decode(_inflated(data))]
    except msgspec.ValidationError:
        return []
    except _DAMAGE as error:
        raise ValueError(f"damaged: {error}") from None
