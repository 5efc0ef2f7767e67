"""Writes GGUF files without weights: a header of given metadata and tensors, byte for byte as the format has it."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpumon.specs.gguf import GgufHeader, Tensor

MAGIC = b"GGUF"


def text(value: str) -> bytes:
    """A length and the characters."""
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def value(found: object) -> bytes:
    """A type and a value: bool, 64-bit or 32-bit integer, double, text, or a list of one of these."""
    kind, raw = _plain(found)
    return struct.pack("<I", kind) + raw


def _plain(found: object) -> tuple[int, bytes]:
    if isinstance(found, bool):
        return 7, struct.pack("<?", found)
    if isinstance(found, int):
        return (4, struct.pack("<I", found)) if 0 <= found < 2**32 else (11, struct.pack("<q", found))
    if isinstance(found, float):
        return 12, struct.pack("<d", found)
    if isinstance(found, str):
        return 8, text(found)
    assert isinstance(found, Sequence)
    items = [_plain(each) for each in found]
    kind = items[0][0] if items else 4
    return 9, struct.pack("<IQ", kind, len(items)) + b"".join(raw for _, raw in items)


def head(metadata: Mapping[str, object], tensors: Sequence[Tensor], version: int = 3) -> bytes:
    """All that stands before the weights."""
    out = MAGIC + struct.pack("<IQQ", version, len(tensors), len(metadata))
    out += b"".join(text(key) + value(found) for key, found in metadata.items())
    for tensor in tensors:
        out += (
            text(tensor.name)
            + struct.pack("<I", len(tensor.shape))
            + struct.pack(f"<{len(tensor.shape)}Q", *tensor.shape)
        )
        out += struct.pack("<IQ", tensor.kind, 0)
    return out


def write(path: Path, found: GgufHeader, parts: int = 1) -> Path:
    """The file, or the first of `parts` files that the tensors are spread over; returns that one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if parts == 1:
        path.write_bytes(head(found.metadata, found.tensors))
        return path
    names = [path.with_name(f"{path.stem}-{part + 1:05d}-of-{parts:05d}.gguf") for part in range(parts)]
    for part, name in enumerate(names):
        own = {**(found.metadata if part == 0 else {}), "split.no": part, "split.count": parts}
        name.write_bytes(head(own, found.tensors[part::parts]))
    return names[0]
