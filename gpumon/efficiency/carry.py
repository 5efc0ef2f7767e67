"""What a Deriver and a Triage hold longer than their windows: a later start with it goes on as if it had been there."""

from __future__ import annotations

import msgspec


class Carry(msgspec.Struct, frozen=True, array_like=True):
    """Counts since gpumon started, and since when things are as they are."""
