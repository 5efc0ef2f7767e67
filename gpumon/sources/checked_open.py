"""Opens files by paths that come from servers and command lines, which may be another user's.

A file is opened only where the user of the engine could open it, and if it is a regular file of a real file system.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final, cast

from gpumon.config.opener import open_checked
from gpumon.config.ownership import RUN_COMMANDS, owner_fault
from gpumon.readings.text import MOST_FAULT, clean
from gpumon.sources.reading_user import PASS_BIT, READ_BIT, ReadingUser

MOST_LINKS: Final = 40
"""Links that are followed for one path (Linux: MAXSYMLINKS)."""
MOST_PATH_PARTS: Final = 256
"""Folders and links of one path: each is a file descriptor until its end is reached."""
_MOST_NAME_CHARACTERS = 4096
"""Characters of a path or id from a server."""
_SYSTEM: Final = ("proc", "sys", "dev")
"""Folders below the root that hold no models: to open what lies there may do something."""
_KERNEL_FILE_SYSTEMS: Final = frozenset(
    (
        *("proc", "sysfs", "devtmpfs", "devpts", "cgroup", "cgroup2", "debugfs", "tracefs", "securityfs", "configfs"),
        *("pstore", "bpf", "efivarfs", "mqueue", "binfmt_misc", "fusectl", "nsfs", "selinuxfs"),
    )
)
"""File systems in which reading a file may change something."""
_HUB_BLOB = re.compile(r"/models--[^/]+/blobs/[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
"""File of a repository in the Hugging Face cache, by the Git or SHA-256 digest of its content."""
_LEADS_OUT: Final = "is a link out of the model's folder"


class NotTheModelsError(PermissionError):
    """A path leads to what is no file of the model: so its name tells nothing about what the engine runs."""

    def __init__(self, why: str, path: Path) -> None:
        super().__init__(errno.EACCES, why, str(path))


def allowed(name: str) -> bool:
    """Whether a path or id from a server may be opened: no `..`, no system folder, not absurdly long."""
    if not name or len(name) > _MOST_NAME_CHARACTERS or "\0" in name or ".." in name:
        return False
    return not name.startswith("/") or Path(name).parts[1:2] not in [(folder,) for folder in _SYSTEM]


def check_regular(descriptor: int, path: Path) -> None:
    """Raise OSError for a pipe, a device or a folder."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise OSError(f"{path.name} is no regular file")


class UntrustedFileError(Exception):
    """Others than root and gpumon's user could choose what is in a file. Its text says who, and how to mend that."""


def open_trusted(path: Path, harm: str = RUN_COMMANDS) -> BinaryIO:
    """Open a regular file that nobody but root and gpumon's user can have written; `harm`: what others could do by it,
    with `{}` for that user. Raises OSError, UntrustedFileError."""
    return open_checked(path, check_regular, partial(_check_owner, harm=harm))


def _check_owner(descriptor: int, path: Path, harm: str) -> None:
    """Raise UntrustedFileError for a file that others can have written."""
    fault = owner_fault(os.fstat(descriptor), str(path), harm)
    if fault:
        raise UntrustedFileError(clean(fault, MOST_FAULT))


def path_of_open(file: BinaryIO) -> str:
    """A path at which this very file is read again from its begin, as long as it is open."""
    return f"/proc/self/fd/{file.fileno()}"


def open_file(path: Path, reader: ReadingUser | None = None, within: Path | None = None) -> BinaryIO:
    """Open a file with the rights of `reader`; `within`: links must not lead out of that folder. Raises OSError.

    A path below `/proc/PID/root` is one of that process: links in it lead where they lead that process. Each part is
    opened below the one before it, so that no link that is exchanged meanwhile leads elsewhere.
    """
    try:
        return _open_checked(path, reader, within)
    except NotTheModelsError:
        raise
    except PermissionError:
        if within is not None and _names_another_folder(path, reader, within):
            raise NotTheModelsError(_LEADS_OUT, path) from None
        raise


def _open_checked(path: Path, reader: ReadingUser | None, within: Path | None) -> BinaryIO:
    """Open a file once its kind, its place and the rights of the reader are checked. Raises OSError."""
    with ExitStack() as opened:
        folders = _walk(path, reader, opened)
        status = os.fstat(folders[-1])
        if not stat.S_ISREG(status.st_mode) or status.st_dev in kernel_devices(path):
            raise NotTheModelsError("is no regular file", path)
        if within is not None:
            root = os.fstat(_walk(within, reader, opened)[-1])
            is_inside = any(os.path.samestat(root, os.fstat(folder)) for folder in folders)
            if not is_inside and not _is_hub_blob(path, reader, folders[-1]):
                raise NotTheModelsError(_LEADS_OUT, path)
        _permit(reader, status, READ_BIT, path)
        descriptor = os.open(f"/proc/self/fd/{folders[-1]}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    return cast("BinaryIO", os.fdopen(descriptor, "rb"))


def _names_another_folder(path: Path, reader: ReadingUser | None, within: Path) -> bool:
    """Whether a path is a link whose text leads out of `within`, wherever it ends."""
    try:
        target = _link_text(path, reader)
    except OSError:
        return False
    return bool(target) and not Path(os.path.normpath(path.parent / target)).is_relative_to(within)


def _link_text(path: Path, reader: ReadingUser | None) -> str:
    """Target of the link at a path; empty if it is none. Raises OSError."""
    with resolved(path.parent, reader) as folder:
        if not stat.S_ISLNK(os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode):
            return ""
        return os.readlink(path.name, dir_fd=folder)


def _is_hub_blob(path: Path, reader: ReadingUser | None, descriptor: int) -> bool:
    """Whether a link leads to a file of the Hugging Face cache of the same owner.

    `hf download --local-dir` made such links up to huggingface_hub 0.22. Who makes a link cannot own a file of
    another user, so that nobody has files read that are not his.
    """
    place = str(Path(f"/proc/self/fd/{descriptor}").readlink())
    if _HUB_BLOB.search(place) is None:
        return False
    with resolved(path.parent, reader) as folder:
        link = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    return stat.S_ISLNK(link.st_mode) and link.st_uid == os.fstat(descriptor).st_uid


def is_file(path: Path, reader: ReadingUser | None = None) -> bool:
    """Whether this is a regular file, or one that the reader may not look for; False where that cannot be told."""
    try:
        return _leads_to_file(path, reader)
    except NotTheModelsError:
        return False
    except PermissionError:
        return reader is not None
    except (OSError, ValueError):
        return False


def _leads_to_file(path: Path, reader: ReadingUser | None) -> bool:
    """Whether this is a regular file. Raises OSError, ValueError."""
    with resolved(path, reader) as descriptor:
        return stat.S_ISREG(os.fstat(descriptor).st_mode)


def is_worth_opening(path: Path, reader: ReadingUser | None) -> bool:
    """Whether opening a file gives its content, or an error that the user should read: it may be none of a model's."""
    try:
        return _leads_to_file(path, reader)
    except NotTheModelsError:
        return True
    except PermissionError:
        return reader is not None
    except (OSError, ValueError):
        return False


def entries(folder: Path, most: int, reader: ReadingUser | None = None) -> list[Path]:
    """Entries of a folder, in no order; empty where that cannot be told."""
    try:
        with resolved(folder, reader) as descriptor:
            _permit(reader, os.fstat(descriptor), READ_BIT, folder)
            with os.scandir(f"/proc/self/fd/{descriptor}") as listing:
                return [folder / entry.name for entry in islice(listing, most)]
    except (OSError, ValueError):
        return []


@contextmanager
def resolved(path: Path, reader: ReadingUser | None) -> Iterator[int]:
    """The descriptor of what a path leads to, for `fstat` and the like only; open inside the block. Raises OSError."""
    with ExitStack() as opened:
        yield _walk(path, reader, opened)[-1]


def _walk(path: Path, reader: ReadingUser | None, opened: ExitStack) -> list[int]:
    """Descriptors of the folders that a path leads through, links resolved, and of its end; closed with `opened`.

    Each part is opened below the one before it: a link that is exchanged meanwhile leads nowhere else.
    """
    root, parts = _root_and_parts(path)
    folders = [_open_entry(opened, root, flags=os.O_DIRECTORY)]
    parts_ahead = parts[::-1]  # the next one is the last: it is popped
    links = 0
    for _ in range(MOST_PATH_PARTS):
        if not parts_ahead:
            return folders
        part = parts_ahead.pop()
        if part == "..":
            folders = folders[:-1] or folders  # the root's parent is the root
            continue
        if len(folders) == 1 and part in _SYSTEM:
            raise NotTheModelsError(f"/{part} holds no models", path)
        _permit(reader, os.fstat(folders[-1]), PASS_BIT, path)
        entry = _open_entry(opened, part, folders[-1])
        target = _target_of(entry)
        if target is None:
            folders.append(entry)
            continue
        links += 1
        if links > MOST_LINKS:
            break
        if target.is_absolute():
            folders = folders[:1]
        parts_ahead += [part for part in target.parts if part != target.anchor][::-1]
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def _target_of(descriptor: int) -> Path | None:
    """Target of the link that is open here; None if it is no link. Raises OSError."""
    if stat.S_ISLNK(os.fstat(descriptor).st_mode):
        return Path(os.readlink("", dir_fd=descriptor))
    return None


def _root_and_parts(path: Path) -> tuple[str, list[str]]:
    """The root to which absolute links of a path lead, and the parts of the path below it."""
    root_parts = 4 if _process_of(path) else 1  # /, proc, PID, root
    return str(Path(*path.parts[:root_parts])), list(path.parts[root_parts:])


def _open_entry(opened: ExitStack, name: str, folder: int | None = None, flags: int = os.O_NOFOLLOW) -> int:
    """The descriptor of an entry of a folder, for `fstat` and the like only; closed with `opened`. Raises OSError."""
    descriptor = os.open(name, os.O_PATH | os.O_CLOEXEC | flags, dir_fd=folder)
    opened.callback(os.close, descriptor)
    return descriptor


def _permit(reader: ReadingUser | None, status: os.stat_result, wanted: int, path: Path) -> None:
    """Raise PermissionError unless the reader has the `wanted` mode bits (`READ_BIT`, `PASS_BIT`)."""
    if reader is not None and not reader.may(status, wanted):
        why = f"{reader.name} may not read it: where it is yours, set model = its path for this endpoint in the config"
        raise PermissionError(errno.EACCES, why, str(path))


def _process_of(path: Path) -> str:
    """The pid of a path below `/proc/PID/root`; empty for others."""
    parts = path.parts[1:4]
    if len(parts) == 3 and parts[::2] == ("proc", "root") and parts[1].isdecimal():
        return parts[1]
    return ""


def kernel_devices(path: Path) -> frozenset[int]:
    """Device numbers of the kernel's own file systems in the mount namespace of a path (proc_pid_mountinfo(5))."""
    lines = Path(f"/proc/{_process_of(path) or 'self'}/mountinfo").read_text(errors="replace").splitlines()
    devices = set()
    for line in lines:
        number = line.split(" ", 3)[2]
        kind = line.partition(" - ")[2].split(" ")[0]
        if kind in _KERNEL_FILE_SYSTEMS:
            major, minor = number.split(":")
            devices.add(os.makedev(int(major), int(minor)))
    return frozenset(devices)
