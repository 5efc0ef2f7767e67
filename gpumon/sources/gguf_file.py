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

from gpumon.sources.model_files import ReadingUser, open_file
from gpumon.specs.gguf import GgufHeader, Tensor

MAGIC: Final = b"GGUF"
MOST_HEADER_BYTES: Final = 48 * 1024 * 1024
"""The longest vocabularies take some 16 MB (Llama 4: 202,000 tokens and 440,000 merges)."""
_MOST_KEPT_BYTES: Final = 16 * 1024 * 1024
"""Memory that what is kept of one model may take: a large one needs 1 MB."""
_VALUE_BYTES = 40
_TENSOR_BYTES = 400
"""Bytes of memory that a number and a tensor take, about."""
_MOST_PARTS: Final = 256
"""Files of one split model."""
_MOST_KEYS = 100_000
_MOST_TENSORS = 500_000
_MOST_KEPT = 4096
"""Elements of the longest array that is kept: per layer there is one number."""
_MOST_TEXT = 4096
"""Characters of the longest text that is kept."""
_MOST_DIMENSIONS = 8
_MOST_DEPTH = 4
_CHUNK = 1024 * 1024
_PART = re.compile(r"-(?P<part>\d{5})-of-(?P<parts>\d{5})(?=\.gguf$)")
_SCALARS: Final = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_TEXT = 8
_ARRAY = 9
_LEFT_OUT: Final = object()
"""A value that is too long to keep."""


def read_gguf(path: Path, reader: ReadingUser | None = None, within: Path | None = None) -> GgufHeader:
    """The header of this file, with the tensors of all its parts where it is one of a split model.

    `reader` and `within` as in `open_file`.

    ValueError says what is wrong with which file; OSError where one cannot be read.
    """
    allowance = _Allowance()
    named = _PART.search(path.name)
    if named is None or int(named["parts"]) < 2:
        return _read(path, allowance, reader, within)
    count = int(named["parts"])
    if count > _MOST_PARTS:
        raise ValueError(f"{path.name}: has {count} parts, more than {_MOST_PARTS}")
    begin = path.name[: named.start()]
    end = path.name[named.end() :]
    names = (f"{begin}-{part:05d}-of-{count:05d}{end}" for part in range(1, count + 1))
    headers = [_read(path.with_name(name), allowance, reader, within) for name in names]
    return GgufHeader(headers[0].metadata, tuple(chain.from_iterable(header.tensors for header in headers)))


class _Allowance:
    """Memory that the parts of a model may take together."""

    def __init__(self) -> None:
        self.header_bytes = MOST_HEADER_BYTES
        self.kept_bytes = _MOST_KEPT_BYTES


def _read(path: Path, allowance: _Allowance, reader: ReadingUser | None, within: Path | None) -> GgufHeader:
    with open_file(path, reader, within) as file:
        cursor = _Cursor(file, path.name, allowance)
        if cursor.take(4) != MAGIC:
            raise ValueError(f"{path.name}: is no GGUF file")
        version = cursor.scalar(4)
        if version not in (2, 3):
            raise ValueError(f"{path.name}: is GGUF version {version}; 2 and 3 are read (little endian)")
        tensors = cursor.count(_MOST_TENSORS, "tensors")
        keys = cursor.count(_MOST_KEYS, "keys")
        metadata: dict[str, object] = {}
        for _ in range(keys):
            key = cursor.text()
            value = cursor.value(int(cursor.scalar(4)))
            if key is not None and value is not _LEFT_OUT:
                metadata[key] = value
        return GgufHeader(metadata, tuple(_tensor(cursor) for _ in range(tensors)))


def _tensor(cursor: _Cursor) -> Tensor:
    name = cursor.text() or ""
    dimensions = int(cursor.scalar(4))
    if not 1 <= dimensions <= _MOST_DIMENSIONS:
        raise cursor.error(f"tensor {name[:80]!a} has {dimensions} dimensions")
    shape = tuple(int(cursor.scalar(10)) for _ in range(dimensions))
    if not all(0 < length < 1 << 40 for length in shape):
        raise cursor.error(f"tensor {name[:80]!a} has shape {shape}")
    kind = int(cursor.scalar(4))
    cursor.skip(8)
    cursor.keep(_TENSOR_BYTES)
    return Tensor(name, shape, kind)


class _Cursor:
    """Walks through a file from its begin, a chunk at a time."""

    def __init__(self, file: BinaryIO, name: str, allowance: _Allowance) -> None:
        self._file = file
        self._name = name
        self._allowance = allowance
        self._chunk = b""
        self._at = 0

    def error(self, problem: str) -> ValueError:
        return ValueError(f"{self._name}: GGUF header {problem}")

    def take(self, length: int) -> bytes:
        """The next bytes; ValueError where the file ends before, or its header is too long."""
        if self._at + length > len(self._chunk):
            self._refill(length)
        taken = self._chunk[self._at : self._at + length]
        self._at += length
        return taken

    def keep(self, count: int) -> None:
        """So many bytes of memory are about to be kept; ValueError where that is more than any model needs."""
        self._allowance.kept_bytes -= count
        if self._allowance.kept_bytes < 0:
            raise self.error(f"has more than {_MOST_KEPT_BYTES} bytes of values and tensors")

    def skip(self, length: int) -> None:
        while length > _CHUNK:
            self.take(_CHUNK)
            length -= _CHUNK
        self.take(length)

    def _refill(self, length: int) -> None:
        rest = self._chunk[self._at :]
        wanted = max(_CHUNK, length - len(rest))
        if length - len(rest) > self._allowance.header_bytes:
            raise self.error(f"is longer than {MOST_HEADER_BYTES} bytes")
        more = self._file.read(min(wanted, self._allowance.header_bytes))
        self._allowance.header_bytes -= len(more)
        if len(rest) + len(more) < length:
            raise self.error("ends before it is complete: a download that was cut off?")
        self._chunk = rest + more
        self._at = 0

    def scalar(self, kind: int) -> int | float | bool:
        form = _SCALARS[kind]
        value: int | float | bool = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return value

    def count(self, most: int, what: str) -> int:
        number = int(self.scalar(10))
        if number > most:
            raise self.error(f"has {number} {what}, more than {most}")
        return number

    def text(self) -> str | None:
        """None for one that is too long to keep."""
        length = int(self.scalar(10))
        if length > MOST_HEADER_BYTES:
            raise self.error(f"has a text of {length} bytes")
        if length > _MOST_TEXT:
            self.skip(length)
            return None
        self.keep(_VALUE_BYTES + 4 * length)
        return self.take(length).decode("utf-8", "replace")

    def value(self, kind: int, depth: int = 0) -> object:
        if kind == _TEXT:
            text = self.text()
            return _LEFT_OUT if text is None else text
        if kind == _ARRAY:
            return self._array(depth)
        if kind not in _SCALARS:
            raise self.error(f"has a value of type {kind}, which is not known")
        return self.scalar(kind)

    def _array(self, depth: int) -> object:
        kind = int(self.scalar(4))
        length = int(self.scalar(10))
        if length > MOST_HEADER_BYTES or depth >= _MOST_DEPTH:
            raise self.error(f"has an array of {length} elements at depth {depth}")
        if length <= _MOST_KEPT:
            self.keep(_VALUE_BYTES * (length + 1))
            return [self.value(kind, depth + 1) for _ in range(length)]
        if kind in _SCALARS:
            self.skip(length * struct.calcsize(_SCALARS[kind]))
        elif kind == _TEXT:
            self._skip_texts(length)
        else:
            raise self.error(f"has an array of {length} values of type {kind}")
        return _LEFT_OUT

    def _skip_texts(self, count: int) -> None:
        """A vocabulary: walked in place, a call for each of 400,000 words would take a second."""
        unpack = struct.Struct("<Q").unpack_from
        while count:
            position = self._at
            chunk = self._chunk
            end = len(self._chunk) - 8
            while count and position <= end:
                following = position + 8 + unpack(chunk, position)[0]
                if following > end + 8:
                    break
                position = following
                count -= 1
            self._at = position
            if count:
                length = int(self.scalar(10))
                if length > MOST_HEADER_BYTES:
                    raise self.error(f"has a text of {length} bytes")
                self.skip(length)
                count -= 1
