"""Reads what stands before the weights of a GGUF file (versions 2 and 3): metadata and tensor table, bounded.

The layout is that of llama.cpp's ggml/include/gguf.h. Files come from anywhere, so every count and length is checked
before it is used, and no more than `MOST_HEADER_BYTES` of a file is read.
"""

from __future__ import annotations

import re
import struct
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Final

from gpumon.sources.checked_open import open_file
from gpumon.sources.reading_user import ReadingUser
from gpumon.specs.gguf import GgufHeader, Tensor

MAGIC: Final = b"GGUF"
MOST_HEADER_BYTES: Final = 48 * 1024 * 1024
"""Bytes of all headers of a model that are read.

The longest vocabularies take some 16 MB (Llama 4: 202,000 tokens and 440,000 merges)."""
_MOST_MEMORY_BYTES: Final = 16 * 1024 * 1024
"""Memory for the values and tensors of one model: a large one needs 1 MB."""
_VALUE_BYTES = 40
"""Bytes of memory that a value takes, about."""
_TENSOR_BYTES = 400
"""Bytes of memory that a tensor takes, about."""
_MOST_PARTS: Final = 256
"""Files of one split model."""
_MOST_KEYS = 100_000
"""Keys of the metadata of one file."""
_MOST_TENSORS = 500_000
"""Tensors of one file."""
_MOST_ELEMENTS = 4096
"""Elements of the longest array that is kept: per layer there is one number."""
_MOST_TEXT_BYTES = 4096
"""Bytes of the longest text that is kept."""
_MOST_DIMENSIONS = 8
"""Dimensions of a tensor; ggml has 4."""
_MOST_LENGTH = 1 << 40
"""Length of a tensor in one dimension."""
_MOST_DEPTH = 4
"""Levels of arrays inside of arrays."""
_CHUNK_BYTES = 1024 * 1024
"""Read from a file at once."""
_PART = re.compile(r"-(?P<part>\d{5})-of-(?P<parts>\d{5})(?=\.gguf$)")
_SCALARS: Final = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
"""Number of a GGUF value type -> its form in `struct`; 4 is uint32, 10 is uint64."""
_UINT32 = 4
_UINT64 = 10
_TEXT = 8
_ARRAY = 9
"""Numbers of GGUF value types."""
_TOO_LONG: Final = object()
"""A value that is too long to keep."""


def read_gguf(path: Path, reader: ReadingUser | None = None, within: Path | None = None) -> GgufHeader:
    """The header of this file, with the tensors of all its parts where it is one of a split model.

    `reader` and `within` as in `open_file`. Raises ValueError with what is wrong with which file, and OSError where one
    cannot be read.
    """
    allowance = _Allowance()
    match = _PART.search(path.name)
    if match is None or int(match["parts"]) < 2:
        return _read_header(path, allowance, reader, within)
    count = int(match["parts"])
    if count > _MOST_PARTS:
        raise ValueError(f"{path.name}: has {count} parts, more than {_MOST_PARTS}")
    begin = path.name[: match.start()]
    end = path.name[match.end() :]
    names = (f"{begin}-{part:05d}-of-{count:05d}{end}" for part in range(1, count + 1))
    headers = [_read_header(path.with_name(name), allowance, reader, within) for name in names]
    return GgufHeader(headers[0].metadata, tuple(chain.from_iterable(header.tensors for header in headers)))


class _Allowance:
    """Bytes that the parts of a model may still have together: of headers that are read, and of memory."""

    def __init__(self) -> None:
        self.header_bytes = MOST_HEADER_BYTES
        self.memory_bytes = _MOST_MEMORY_BYTES


def _read_header(path: Path, allowance: _Allowance, reader: ReadingUser | None, within: Path | None) -> GgufHeader:
    """The header of one file."""
    with open_file(path, reader, within) as file:
        cursor = _Cursor(file, path.name, allowance)
        if cursor.take(4) != MAGIC:
            raise ValueError(f"{path.name}: is no GGUF file")
        version = cursor.read_scalar(_UINT32)
        if version not in (2, 3):
            raise ValueError(f"{path.name}: is GGUF version {version}; 2 and 3 are read (little endian)")
        tensors = cursor.read_count(_MOST_TENSORS, "tensors")
        keys = cursor.read_count(_MOST_KEYS, "keys")
        metadata: dict[str, object] = {}
        for _ in range(keys):
            key = cursor.read_text()
            value = cursor.read_value(int(cursor.read_scalar(_UINT32)))
            if key is not None and value is not _TOO_LONG:
                metadata[key] = value
        return GgufHeader(metadata, tuple(_read_tensor(cursor) for _ in range(tensors)))


def _read_tensor(cursor: _Cursor) -> Tensor:
    """One row of the tensor table."""
    name = cursor.read_text() or ""
    dimensions = int(cursor.read_scalar(_UINT32))
    if not 1 <= dimensions <= _MOST_DIMENSIONS:
        raise cursor.error(f"tensor {name[:80]!a} has {dimensions} dimensions")
    shape = tuple(int(cursor.read_scalar(_UINT64)) for _ in range(dimensions))
    if not all(0 < length < _MOST_LENGTH for length in shape):
        raise cursor.error(f"tensor {name[:80]!a} has shape {shape}")
    kind = int(cursor.read_scalar(_UINT32))
    cursor.skip(8)  # where its weights begin
    cursor.account(_TENSOR_BYTES)
    return Tensor(name, shape, kind)


class _Cursor:
    """Reads a file from its begin, a chunk at a time. Methods raise ValueError for what cannot be, or is too much."""

    def __init__(self, file: BinaryIO, name: str, allowance: _Allowance) -> None:
        self._file = file
        self._name = name
        self._allowance = allowance
        self._chunk = b""
        """The bytes that were read last."""
        self._position = 0
        """Position of the next byte in the chunk."""

    def error(self, problem: str) -> ValueError:
        """The error of a problem with this file."""
        return ValueError(f"{self._name}: GGUF header {problem}")

    def take(self, length: int) -> bytes:
        """The next bytes; ValueError where the file ends before, or its header is too long."""
        if self._position + length > len(self._chunk):
            self._refill(length)
        data = self._chunk[self._position : self._position + length]
        self._position += length
        return data

    def account(self, count: int) -> None:
        """Count bytes of memory that are about to be kept; ValueError where that is more than any model needs."""
        self._allowance.memory_bytes -= count
        if self._allowance.memory_bytes < 0:
            raise self.error(f"has more than {_MOST_MEMORY_BYTES} bytes of values and tensors")

    def skip(self, length: int) -> None:
        """Go on by so many bytes."""
        while length > _CHUNK_BYTES:
            self.take(_CHUNK_BYTES)
            length -= _CHUNK_BYTES
        self.take(length)

    def _refill(self, length: int) -> None:
        """Read on, so that the next `length` bytes are in the chunk."""
        rest = self._chunk[self._position :]
        needed = length - len(rest)
        if needed > self._allowance.header_bytes:
            raise self.error(f"is longer than {MOST_HEADER_BYTES} bytes")
        data = self._file.read(min(max(_CHUNK_BYTES, needed), self._allowance.header_bytes))
        self._allowance.header_bytes -= len(data)
        if len(data) < needed:
            raise self.error("ends before it is complete: a download that was cut off?")
        self._chunk = rest + data
        self._position = 0

    def read_scalar(self, kind: int) -> int | float | bool:
        """The next number, of a type by its GGUF number."""
        form = _SCALARS[kind]
        value: int | float | bool = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return value

    def read_count(self, most: int, plural: str) -> int:
        """The next number, a count of things."""
        number = int(self.read_scalar(_UINT64))
        if number > most:
            raise self.error(f"has {number} {plural}, more than {most}")
        return number

    def read_text(self) -> str | None:
        """The next text; None for one that is too long to keep."""
        length = int(self.read_scalar(_UINT64))
        if length > MOST_HEADER_BYTES:
            raise self.error(f"has a text of {length} bytes")
        if length > _MOST_TEXT_BYTES:
            self.skip(length)
            return None
        self.account(_VALUE_BYTES + 4 * length)
        return self.take(length).decode("utf-8", "replace")

    def read_value(self, kind: int, depth: int = 0) -> object:
        """The next value, of a type by its GGUF number; `_TOO_LONG` for one that is too long to keep."""
        if kind == _TEXT:
            text = self.read_text()
            if text is None:
                return _TOO_LONG
            return text
        if kind == _ARRAY:
            return self._read_array(depth)
        if kind not in _SCALARS:
            raise self.error(f"has a value of type {kind}, which is not known")
        return self.read_scalar(kind)

    def _read_array(self, depth: int) -> object:
        """The next array as a list; `_TOO_LONG` for one that is too long to keep."""
        kind = int(self.read_scalar(_UINT32))
        length = int(self.read_scalar(_UINT64))
        if length > MOST_HEADER_BYTES or depth >= _MOST_DEPTH:
            raise self.error(f"has an array of {length} elements at depth {depth}")
        if length <= _MOST_ELEMENTS:
            self.account(_VALUE_BYTES * (length + 1))
            return [self.read_value(kind, depth + 1) for _ in range(length)]
        if kind in _SCALARS:
            self.skip(length * struct.calcsize(_SCALARS[kind]))
        elif kind == _TEXT:
            self._skip_texts(length)
        else:
            raise self.error(f"has an array of {length} values of type {kind}")
        return _TOO_LONG

    def _skip_texts(self, count: int) -> None:
        """Go over the texts of a vocabulary, in place: a call for each of 400,000 words would take a second."""
        unpack = struct.Struct("<Q").unpack_from
        while count:
            position = self._position
            chunk = self._chunk
            last = len(self._chunk) - 8  # where a length can begin
            while count and position <= last:
                following = position + 8 + unpack(chunk, position)[0]
                if following > len(chunk):
                    break
                position = following
                count -= 1
            self._position = position
            if count:  # the next text goes beyond the chunk
                length = int(self.read_scalar(_UINT64))
                if length > MOST_HEADER_BYTES:
                    raise self.error(f"has a text of {length} bytes")
                self.skip(length)
                count -= 1
