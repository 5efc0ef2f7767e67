"""Prints the model types that are neither modelled nor listed in `specs/not_modelled.py` (`make architectures`).

Its input: the lines of `tests.oracle.architectures`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from gpumon.specs.architectures import ARCHITECTURES
from gpumon.specs.not_modelled import NOT_MODELLED


def missing(lines: Iterable[str]) -> Iterator[str]:
    """The names whose text part no row and no reason speaks of."""
    for line in lines:
        if line.startswith("#"):
            continue
        name, text = line.rstrip("\n").split("\t")
        if not {name, text} & (ARCHITECTURES.keys() | NOT_MODELLED.keys()):
            yield name if name == text else f"{name} ({text})"


if __name__ == "__main__":
    lines = sys.stdin.readlines()
    print(lines[0].strip())
    names = list(missing(lines))
    print("\n".join(names) if names else "all are modelled, or listed in gpumon/specs/not_modelled.py with the reason")
    sys.exit(bool(names))
