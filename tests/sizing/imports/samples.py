"""The sample files, and how the tests import them."""

from __future__ import annotations

from pathlib import Path

from gpumon.sizing.imports.profiles import Given, Imported, import_files
from gpumon.sizing.profile import Observed
from gpumon.sources.packaged import gpu_catalogue

FOLDER = Path(__file__).parents[2] / "data" / "sweeps"


def files(*names: str) -> dict[str, bytes]:
    """Name -> content of sample files; a name may be a glob."""
    paths = [path for name in names for path in sorted(FOLDER.glob(name))]
    assert paths, names
    return {str(path.relative_to(FOLDER)): path.read_bytes() for path in paths}


def read(*names: str, given: Given | None = None) -> Imported:
    """All profiles of sample files, and what was said."""
    return import_files(files(*names), given, gpu_catalogue())


def one(*names: str, given: Given | None = None) -> Observed:
    """The only profile of sample files."""
    found = read(*names, given=given).profiles
    assert len(found) == 1, [each.name for each in found]
    return found[0]
