"""Links the packages that a wheel requires, or that building one does, from this interpreter's into a venv: no others.

They are installed for the tests, so that nothing is fetched again. A package that is used and not declared stays out
of the venv, as it would with pip.

Usage: python tests/linked_packages.py (WHEEL | pyproject.toml) VENV
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator
from email import message_from_bytes
from importlib.metadata import Distribution, distribution
from pathlib import Path

import tomli
from packaging.requirements import Requirement


def needed(requirements: list[str], extras: set[str]) -> Iterator[Requirement]:
    """Requirements that hold on this interpreter, without extras or with these."""
    for text in requirements:
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras or {""}):
            yield requirement


def installed(requirement: Requirement) -> Distribution:
    """The installed package of a requirement. Raises SystemExit for another version than the required."""
    package = distribution(requirement.name)
    if not requirement.specifier.contains(package.version, prereleases=True):
        sys.exit(f"{requirement} is required, {package.version} is installed")
    return package


def all_packages(requirements: list[str]) -> dict[str, Distribution]:
    """All packages that these requirements bring along, by name."""
    packages: dict[str, Distribution] = {}
    seen: set[str] = set()
    pending = [*needed(requirements, set())]
    while pending:
        requirement = pending.pop()
        if str(requirement) not in seen:
            seen.add(str(requirement))
            package = installed(requirement)
            packages[package.name] = package
            pending.extend(needed(package.requires or [], requirement.extras))
    return packages


def link(package: Distribution, folder: Path) -> None:
    """Link the folders and modules of a package into a folder of site-packages."""
    tops = {file.parts[0] for file in package.files or () if file.parts[0] not in ("..", "__pycache__")}
    for top in tops:
        target = folder / top
        if not target.exists():
            target.symlink_to(Path(str(package.locate_file(top))).resolve())


def declared(file: str) -> list[str]:
    """What a wheel requires; for `pyproject.toml`, what it takes to build one."""
    if file.endswith(".toml"):
        return ["build", *tomli.loads(Path(file).read_text(encoding="utf-8"))["build-system"]["requires"]]
    with zipfile.ZipFile(file) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(wheel.read(name)).get_all("Requires-Dist") or []


def main(file: str, venv: str) -> None:
    """Link what the file requires."""
    folder = next(Path(venv).glob("lib/python3*/site-packages"))
    for package in all_packages(declared(file)).values():
        link(package, folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
