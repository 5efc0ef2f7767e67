"""Which wheels a host's Python loads, for every Python that gpumon runs on, both C libraries and two architectures."""

from __future__ import annotations

import subprocess
import sys

import msgspec

from gpumon.sources.guest import facts
from gpumon.sources.guest.wheels import PythonThere, python_here, wheel_name
from tests.each_row import each_row

DEBIAN = PythonThere((3, 11), "cpython", False, "x86_64", 64, "glibc", (2, 36))


def like(**changes: object) -> PythonThere:
    return msgspec.structs.replace(DEBIAN, **changes)


FITS = [
    (DEBIAN, "py3-none-any"),
    (DEBIAN, "py2.py3-none-any"),
    (DEBIAN, "py38-none-any"),
    (DEBIAN, "cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64"),
    (DEBIAN, "cp36-abi3-manylinux_2_12_x86_64.manylinux2010_x86_64"),
    (DEBIAN, "cp311-cp311-manylinux_2_36_x86_64"),
    *((like(version=(3, minor)), f"cp3{minor}-cp3{minor}-manylinux_2_28_x86_64") for minor in range(10, 15)),
    *((like(version=(3, minor)), "cp36-abi3-manylinux2014_x86_64") for minor in range(10, 15)),
    (like(version=(3, 14), free_threaded=True), "cp314-cp314t-manylinux_2_28_x86_64"),
    (like(machine="aarch64"), "cp311-cp311-manylinux_2_17_aarch64.manylinux2014_aarch64"),
    (like(libc="musl", libc_version=(1, 2)), "cp311-cp311-musllinux_1_2_x86_64"),
    (like(libc="musl", libc_version=(1, 2)), "cp311-cp311-musllinux_1_1_x86_64"),
]
DOES_NOT_FIT = [
    (DEBIAN, "py2-none-any"),
    (DEBIAN, "py312-none-any"),
    (DEBIAN, "cp310-cp310-manylinux2014_x86_64"),
    (DEBIAN, "cp312-cp312-manylinux2014_x86_64"),
    (DEBIAN, "cp312-abi3-manylinux2014_x86_64"),
    (DEBIAN, "cp311-cp311-manylinux2014_aarch64"),
    (DEBIAN, "cp311-cp311-manylinux_2_37_x86_64"),
    (DEBIAN, "cp311-cp311-musllinux_1_2_x86_64"),
    (DEBIAN, "cp311-cp311-macosx_11_0_arm64"),
    (DEBIAN, "cp311-cp311-win_amd64"),
    (DEBIAN, "pp311-pypy311_pp73-manylinux_2_17_x86_64"),
    (like(implementation="pypy"), "cp311-cp311-manylinux2014_x86_64"),
    (like(bits=32), "cp311-cp311-manylinux2014_x86_64"),
    (like(libc="musl", libc_version=(1, 1)), "cp311-cp311-musllinux_1_2_x86_64"),
    (like(libc="musl", libc_version=(1, 2)), "cp311-cp311-manylinux2014_x86_64"),
    (like(libc="", libc_version=(0, 0)), "cp311-cp311-musllinux_1_2_x86_64"),
    (like(version=(3, 14), free_threaded=True), "cp314-cp314-manylinux_2_28_x86_64"),
    (like(version=(3, 14), free_threaded=True), "cp36-abi3-manylinux2014_x86_64"),
    (like(version=(3, 14)), "cp314-cp314t-manylinux_2_28_x86_64"),
    (like(libc="glibc", libc_version=(2, 5)), "cp36-abi3-manylinux2010_x86_64"),
]


@each_row(("python", "tag"), FITS)
def test_a_wheel_that_its_python_loads(python: PythonThere, tag: str) -> None:
    assert python.loads(tag)


@each_row(("python", "tag"), DOES_NOT_FIT)
def test_a_wheel_that_its_python_does_not_load(python: PythonThere, tag: str) -> None:
    assert not python.loads(tag)


def test_what_was_compiled_here_is_for_a_c_library_that_is_not_older() -> None:
    here = python_here()
    tag = f"cp{here.version[0]}{here.version[1]}-cp{here.version[0]}{here.version[1]}-linux_{here.machine}"
    assert here.loads(tag)
    older = (here.libc_version[0], here.libc_version[1] - 1)
    assert not msgspec.structs.replace(here, libc_version=older).loads(tag)
    assert not msgspec.structs.replace(here, libc="another").loads(tag)


def test_a_python_tells_its_facts_as_a_program() -> None:
    text = (facts.__file__, "-I")
    done = subprocess.run([sys.executable, text[1], text[0]], capture_output=True, text=True, timeout=60, check=True)
    assert msgspec.json.decode(done.stdout, type=PythonThere) == python_here()


@each_row(
    ("name", "project", "version"),
    [
        ("msgspec-0.22.0-cp312-cp312-manylinux_2_17_x86_64.whl", "msgspec", (0, 22, 0)),
        ("nvidia_ml_py-13.580.82-py3-none-any.whl", "nvidia-ml-py", (13, 580, 82)),
        ("typing_extensions-4.15.0-1-py3-none-any.whl", "typing-extensions", (4, 15, 0)),
    ],
)
def test_names_of_wheels(name: str, project: str, version: tuple[int, ...]) -> None:
    wheel = wheel_name(name)
    assert wheel is not None
    assert (wheel.project, wheel.version) == (project, version)


@each_row("name", ["msgspec-0.22.0.tar.gz", "a.whl", "x-1-y.whl", ""])
def test_what_is_no_wheel(name: str) -> None:
    assert wheel_name(name) is None
