"""Files that come with gpumon: in the installed package, or at the top of the checkout."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent
_PLACES = (_PACKAGE, _PACKAGE.parent)
"""A wheel has the files inside the package; a checkout, an sdist and an editable install have them beside it."""


def resource(name: str) -> Path:
    """Path of a file or folder that comes with gpumon, e.g. `themes/default.toml` or `config.example.toml`.

    `name` is a constant of the code, never text from outside. Raises FileNotFoundError where the installation lacks it.
    """
    for place in _PLACES:
        path = place / name
        if path.exists():
            return path
    raise FileNotFoundError(f"{name} is missing: gpumon is not installed completely")
