"""A deriver and a triage that know of nothing before: for a host, or a past, whose frames begin anew."""

from __future__ import annotations

from collections.abc import Callable

from gpumon.efficiency.deriver import Deriver
from gpumon.triage.triage import Triage

MakeDeriver = Callable[[], tuple[Deriver, Triage]]
"""Gives a fresh deriver and triage."""
