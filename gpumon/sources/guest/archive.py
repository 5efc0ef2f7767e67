"""One archive with gpumon and all that it imports on a host, for that host's Python."""

from __future__ import annotations

import io
import os
import re
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final, NamedTuple, get_args

import gpumon
from gpumon.readings.untrusted import Untrusted
from gpumon.sources.checked_open import UntrustedFileError, open_trusted
from gpumon.sources.guest.wheels import LEAST_PYTHON, Machine, PythonThere, wheel_name

_NO_PYTHON: Final = (99, 0)
"""A version that no Python reaches."""


class Dependency(NamedTuple):
    """A project whose modules `gpumon watch --json --fleet` imports."""

    name: str
    unneeded_from: tuple[int, int] = _NO_PYTHON
    """The first Python that has no need of it."""


_DEPENDENCIES: Final = (
    *map(Dependency, ("msgspec", "psutil", "nvidia-ml-py", "tomli")),
    *map(Dependency, ("httpx", "httpcore", "h11", "anyio", "certifi", "idna", "sniffio")),
    Dependency("typing-extensions", unneeded_from=(3, 13)),
    Dependency("exceptiongroup", unneeded_from=(3, 11)),
    Dependency("async-timeout", unneeded_from=(3, 11)),
)
_TOMLLIB: Final = b"from tomllib import TOMLDecodeError as TOMLDecodeError, load as load, loads as loads\n"
STANDARD: Final = {"tomli": ((3, 11), {"tomli/__init__.py": _TOMLLIB})}
"""Projects that the standard library has since a version: what stands for them where no wheel fits."""
LEFT_OUT: Final = frozenset({"tui", "web", "__pycache__"})
"""Folders of gpumon that are of no use there: they need Textual."""
COMPRESSION_LEVEL: Final = 6
"""Level of zlib: higher ones take much longer for little."""
MOST_WHEEL_BYTES: Final = 64_000_000
"""Unpacked size of a wheel that is read."""

FilesByName = Mapping[str, bytes]
"""Content of files by path in the archive."""


class NoWheelsError(Exception):
    """No archive can be made for a host: one line with what is missing, and how to get it."""


class Chosen(NamedTuple):
    """An archive, and the Python that it is for."""

    program: str
    archive: bytes


class Archives:
    """Makes archives, each kind once: most hosts have the same Python. Called in threads."""

    def __init__(self, folder: str = "") -> None:
        """`folder`: where the user keeps wheels; empty: `~/.cache/gpumon/wheels`."""
        if folder:
            self._folder = Path(folder).expanduser()
        else:
            self._folder = default_folder(os.environ)
        self._made: dict[PythonThere, bytes] = {}
        self._turn = threading.Lock()

    def choose(self, pythons: Sequence[tuple[str, PythonThere]]) -> Chosen:
        """The archive for the first of a host's Pythons (program, facts) that one can be made for.

        Raises NoWheelsError.
        """
        new_enough = [(program, python) for program, python in pythons if python.version >= LEAST_PYTHON]
        if not new_enough:
            versions = ", ".join(dict.fromkeys(python.text for _, python in pythons)) or "none"
            raise NoWheelsError(f"no Python 3.10 or newer there ({versions})")
        with self._turn:
            missing: list[tuple[PythonThere, list[str]]] = []
            for program, python in new_enough:
                if python not in self._made:
                    parts, lacks = self._parts(python)
                    if lacks:
                        missing.append((python, lacks))
                        continue
                    self._made[python] = _pack(parts)
                return Chosen(program, self._made[python])
        python, lacks = missing[0]  # the Python that the host's user would take
        raise NoWheelsError(self._fix(python, lacks))

    def _parts(self, python: PythonThere) -> tuple[list[FilesByName], list[str]]:
        """Files of all projects for an archive; or none, and the names of the projects that are found nowhere."""
        parts: list[FilesByName] = []
        lacks: list[str] = []
        for dependency in _DEPENDENCIES:
            if python.version >= dependency.unneeded_from:
                continue
            project = dependency.name
            files = (
                installed_files(project, python)
                or self._wheel_files(project, python)
                or _standard_files(project, python)
            )
            if files:
                parts.append(files)
            else:
                lacks.append(project)
        if lacks:
            return [], lacks
        return [own_files(), *parts], []

    def _wheel_files(self, project: str, python: PythonThere) -> FilesByName:
        """Files of the newest fitting wheel in the user's folder; none where there is no such wheel."""
        fitting: list[tuple[tuple[int, ...], Path]] = []
        paths = self._folder.glob("*.whl") if self._folder.is_dir() else ()
        for path in paths:
            wheel = wheel_name(path.name)
            if wheel is not None and wheel.project == project and python.loads(wheel.tag):
                fitting.append((wheel.version, path))
        if not fitting:
            return {}
        _, newest = max(fitting)
        return wheel_files(newest)

    def _fix(self, python: PythonThere, lacks: Sequence[str]) -> str:
        """The reason and the command that fetches the wheels that a Python lacks."""
        version = f"{python.version[0]}.{python.version[1]}"
        libc = "musllinux_1_2" if python.libc == "musl" else "manylinux2014"
        machine = Untrusted(python.machine).one_of(get_args(Machine))
        folder = Untrusted(str(self._folder)).of_form("argument")
        text = f"no wheels of {', '.join(lacks)} for {python.text}"
        if not (machine and folder):
            return text
        return (
            f"{text}: pip download -d {folder} --no-deps --only-binary=:all: "
            f"--python-version {version} --platform {libc}_{machine} {' '.join(lacks)}"
        )


def _standard_files(project: str, python: PythonThere) -> FilesByName:
    """A module that passes on to the standard library; none where that has no such module."""
    since, files = STANDARD.get(project, (_NO_PYTHON, {}))
    if python.version >= since:
        return files
    return {}


def default_folder(environment: Mapping[str, str]) -> Path:
    """Folder of wheels where the user names none."""
    cache = environment.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser() / "gpumon" / "wheels"


def own_files() -> FilesByName:
    """gpumon itself, without its screen."""
    package = Path(gpumon.__file__).parent
    return {f"gpumon/{path.relative_to(package).as_posix()}": path.read_bytes() for path in _walk_files(package)}


def _walk_files(package: Path) -> Iterator[Path]:
    """All files of a package, without the folders that are of no use on a host."""
    for folder, folders, names in os.walk(package):
        folders[:] = sorted(set(folders) - LEFT_OUT)  # in place: `os.walk` goes into those that are left
        yield from (Path(folder, name) for name in sorted(names))


def installed_files(project: str, python: PythonThere) -> FilesByName:
    """Files of a project as it is installed here; none where it is not, not for this Python, or not as a whole."""
    try:
        distribution = metadata.distribution(project)
    except metadata.PackageNotFoundError:
        return {}
    if not any(map(python.loads, _tags(distribution))) or python.version < _least_python(distribution):
        return {}
    files: dict[str, bytes] = {}
    try:
        for path in distribution.files or ():
            if ".." not in path.parts and path.suffix != ".pyc":
                files[path.as_posix()] = Path(str(path.locate())).read_bytes()
    except OSError:
        return {}
    return files


def _tags(distribution: metadata.Distribution) -> list[str]:
    """Tags of the wheel that a project was installed from."""
    return [
        line.partition(":")[2].strip()
        for line in (distribution.read_text("WHEEL") or "").splitlines()
        if line.startswith("Tag:")
    ]


def _least_python(distribution: metadata.Distribution) -> tuple[int, int]:
    """The oldest Python that a project says that it runs on."""
    least = re.search(r">=\s*3\.([0-9]{1,3})", distribution.metadata["Requires-Python"] or "")
    if least is not None:
        return (3, int(least[1]))
    return (3, 0)


def wheel_files(path: Path) -> FilesByName:
    """Files of a wheel, as pip would put them into site-packages.

    Raises NoWheelsError where it is none, or another user's: every host runs it.
    """
    files: dict[str, bytes] = {}
    try:
        with open_trusted(path) as stream, zipfile.ZipFile(stream) as wheel:
            if sum(entry.file_size for entry in wheel.infolist()) > MOST_WHEEL_BYTES:
                raise NoWheelsError(f"{path.name} has more than {MOST_WHEEL_BYTES // 10**6} MB: it is not read")
            for entry in wheel.infolist():
                name = _installed_path(entry.filename)
                if name and not entry.is_dir():
                    files[name] = wheel.read(entry)
    except UntrustedFileError as fault:
        raise NoWheelsError(f"{path.name} {fault}") from None
    except (OSError, zipfile.BadZipFile) as error:
        raise NoWheelsError(f"{path.name} is no readable wheel ({type(error).__name__}): download it again") from None
    return files


def _installed_path(name: str) -> str:
    """Path of a wheel's file below site-packages; empty: elsewhere (programs, headers)."""
    if ".." in name.split("/") or name.startswith("/"):
        return ""
    folder, _, rest = name.partition("/")
    if not folder.endswith(".data"):
        return name
    kind, _, path = rest.partition("/")
    if kind in ("purelib", "platlib"):
        return path
    return ""


def _pack(parts: Sequence[FilesByName]) -> bytes:
    """The files as a zip."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=COMPRESSION_LEVEL) as archive:
        for files in parts:
            for name, content in files.items():
                archive.writestr(name, content)
    return buffer.getvalue()
