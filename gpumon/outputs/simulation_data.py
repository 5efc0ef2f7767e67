"""Simulations as JSON by contract, with its schema (`python -m gpumon.outputs.simulation_data`)."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from gpumon.outputs.json import as_object
from gpumon.outputs.schema import document
from gpumon.sizing.simulate.experiment import Simulation

_SCHEMA: Final = 1
"""Version of this contract; it changes when a field changes its meaning or goes away."""


class Simulations(msgspec.Struct, frozen=True):
    """The simulation of each workload."""

    simulations: tuple[Simulation, ...]


def encode(answers: Sequence[Simulation]) -> bytes:
    """All of them as one line of JSON, without a newline: UTF-8, no NaN or Infinity, no control characters."""
    return msgspec.json.encode({"schema": _SCHEMA, **as_object(Simulations(tuple(answers)))})


@functools.cache
def schema() -> dict[str, Any]:
    """The JSON Schema of it (draft 2020-12). Objects may gain keys: a reader ignores those it does not know."""
    definitions: dict[str, Any] = {}
    root = document(Simulations, "gpumon simulation", _SCHEMA, definitions)
    return {**root, "$defs": dict(sorted(definitions.items()))}


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(schema()), indent=2) + b"\n")
