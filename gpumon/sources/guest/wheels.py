"""Which wheels a host's Python loads, by their tags (PEP 425, 600 and 656)."""

from __future__ import annotations

import re
from functools import cache
from typing import Annotated, Final, Literal

import msgspec

from gpumon.sources.guest.facts import python_facts

LEAST_PYTHON: Final = (3, 10)
"""The oldest Python that runs gpumon."""
_MOST_DIGITS: Final = 9
"""Digits of a number in a version that are read: names of files come from outside."""
_OLD_MANYLINUX: Final = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}
"""Names of before PEP 600, and the glibc that each stands for."""
_LIBC: Final = {"manylinux": "glibc", "musllinux": "musl"}
"""Name of a platform tag -> the C library that it stands for."""
_PYTHON_TAG: Final = re.compile(r"(?P<implementation>py|cp)(?P<major>[0-9])(?P<minor>[0-9]*)")
"""The first part of a wheel's tag, such as `py3` or `cp312`."""
_WHEEL: Final = re.compile(r"(?P<name>[A-Za-z0-9_.]+)-(?P<version>[^-]+)(-[0-9][^-]*)?-(?P<tag>[^-]+-[^-]+-[^-]+)\.whl")


Machine = Literal["x86_64", "aarch64", "ppc64le", "s390x", "riscv64", "loongarch64", "i686", "i386", "armv7l", "armv8l"]
"""An architecture, as `platform.machine()` names it: what Linux and NVIDIA's driver, or a small computer, run on."""
_Number = Annotated[int, msgspec.Meta(ge=0, le=9_999)]


class PythonThere(msgspec.Struct, frozen=True):
    """A Python of a host, as `python_facts` tells of it there.

    Texts are enumerations: what a host says of itself goes into a command that is shown, and hosts may lie.
    """

    version: tuple[_Number, _Number]
    """Major and minor version."""
    implementation: Literal["cpython", "pypy", "graalpy"]
    """As `sys.implementation.name`, such as `cpython`."""
    free_threaded: bool
    machine: Machine
    bits: Literal[32, 64]
    libc: Literal["glibc", "musl", ""]
    """Empty where it is neither."""
    libc_version: tuple[_Number, _Number]

    @property
    def text(self) -> str:
        """Version, architecture and C library in a few words."""
        build = "t" if self.free_threaded else ""
        libc = f"{self.libc} {self.libc_version[0]}.{self.libc_version[1]}" if self.libc else "no known C library"
        return f"Python {self.version[0]}.{self.version[1]}{build}, {self.machine}, {libc}"

    def loads(self, tag: str) -> bool:
        """Whether it loads a wheel with this tag, such as `cp312-cp312-manylinux_2_17_x86_64`.

        Each part may be several, with dots between them.
        """
        interpreters, abis, platforms = tag.split("-")
        if not any(map(self._has_platform, platforms.split("."))):
            return False
        for python in interpreters.split("."):
            for abi in abis.split("."):
                if self._has_abi(python, abi):
                    return True
        return False

    def _has_abi(self, python: str, abi: str) -> bool:
        """Whether a wheel of this Python tag and ABI tag can be loaded."""
        major, minor = self.version
        match = _PYTHON_TAG.fullmatch(python)
        if match is None or int(match["major"]) != major:
            return False
        tag_minor = int(match["minor"] or 0)
        is_any_python = match["implementation"] == "py"
        if abi == "none":  # no compiled code: `py311` runs on later ones, too, `cp311` on that one only
            if is_any_python:
                return tag_minor <= minor
            return tag_minor == minor
        if is_any_python or self.implementation != "cpython":
            return False
        return self._has_compiled_abi(abi, tag_minor)

    def _has_compiled_abi(self, abi: str, tag_minor: int) -> bool:
        """Whether code compiled for this ABI of a CPython can be loaded; of abi3 that of later ones, too."""
        major, minor = self.version
        if abi == "abi3":
            return tag_minor <= minor and not self.free_threaded
        build = "t" if self.free_threaded else ""
        return abi == f"cp{major}{minor}{build}" and tag_minor == minor

    def _has_platform(self, platform: str) -> bool:
        """Whether a wheel of this platform tag can be loaded."""
        if platform == "any":
            return True
        if not platform.endswith(f"_{self.machine}") or self.bits != 64:
            return False
        name = platform.removesuffix(f"_{self.machine}")
        if name == "linux":  # compiled on this machine: it may need what the C library here has
            here = python_here()
            return self.libc == here.libc and self.libc_version >= here.libc_version
        if name in _OLD_MANYLINUX:
            return self.libc == "glibc" and self.libc_version >= _OLD_MANYLINUX[name]
        match = re.fullmatch(r"(manylinux|musllinux)_([0-9]{1,4})_([0-9]{1,4})", name)
        if match is None:
            return False
        return self.libc == _LIBC[match[1]] and self.libc_version >= (int(match[2]), int(match[3]))


@cache
def python_here() -> PythonThere:
    """The Python that runs this."""
    return msgspec.convert(python_facts(), PythonThere)


class WheelName(msgspec.Struct, frozen=True):
    """Project, version and tag in the file name of a wheel."""

    project: str
    """The one spelling that all spellings of its name stand for (PEP 503)."""
    version: tuple[int, ...]
    tag: str


def wheel_name(file_name: str) -> WheelName | None:
    """The parts of a file name; None where it is no wheel's."""
    match = _WHEEL.fullmatch(file_name)
    if match is None:
        return None
    version = tuple(int(number[:_MOST_DIGITS]) for number in re.findall(r"[0-9]+", match["version"]))
    project = re.sub(r"[-_.]+", "-", match["name"]).lower()
    return WheelName(project, version, match["tag"])
