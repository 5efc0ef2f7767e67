"""Rows that unpack to far more than they are."""

from __future__ import annotations

import zlib
from typing import Final

MEGABYTE: Final = bytes(1_000_000)
ADLER_MODULUS: Final = 65521


def bomb(megabytes: int) -> bytes:
    """Zeros, packed a thousandfold: one packed megabyte over and over, for to pack them all takes a second."""
    stream = zlib.compressobj(1)
    first = stream.compress(MEGABYTE) + stream.flush(zlib.Z_FULL_FLUSH)
    another = stream.compress(MEGABYTE) + stream.flush(zlib.Z_FULL_FLUSH)
    last_block = b"\x03\x00"
    checksum = ((megabytes * len(MEGABYTE)) % ADLER_MODULUS) << 16 | 1
    return first + another * (megabytes - 1) + last_block + checksum.to_bytes(4, "big")
