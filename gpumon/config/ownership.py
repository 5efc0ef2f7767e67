"""Owners of files that say what gpumon runs or sends: its user or root, nobody else, as ssh, sudo and cron ask for."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
import struct
from pathlib import Path
from typing import Final

from gpumon.readings.text import clean
from gpumon.readings.untrusted import Untrusted

UNTYPEABLE: Final = "its name fits into no command: rename it, then look again"
"""Text in place of a command whose argument cannot be typed."""
RUN_COMMANDS: Final = "have {} run commands"
"""Harm that the owner of a config could do; `{}` stands for gpumon's user."""
_ACCESS_LIST: Final = "system.posix_acl_access"
"""Attribute of a file with its access-control list, where it has one."""
_ENTRIES_AT: Final = 4
"""Bytes before its entries."""
_ENTRY: Final = struct.Struct("<HHI")
"""An entry: tag, rights, and the id of a user or a group that is named."""
_NAMED_USER: Final = 2
_NAMED_GROUP: Final = 8
_WRITE_RIGHT: Final = 2


def owner_fault(status: os.stat_result, path: str, harm: str = RUN_COMMANDS) -> str:
    """Why a file is not to be trusted, with the command that mends it; empty where it is.

    `status` is that of the open file; `harm` is what its owner could do. A shell's pipe or a terminal is whoever's who
    gave it.
    """
    if not _stands_in_folder(status):
        return ""
    fault = link_fault(Path(path), status)
    if fault:
        return fault
    if status.st_uid not in (0, os.geteuid()):
        own = user_name(os.geteuid())
        mend = mend_command(f"sudo chown {own}", path)
        return f"belongs to {user_name(status.st_uid)}, who could {harm.format(own)}: {mend}"
    return writable_fault(status, path)


def writable_fault(status: os.stat_result, path: str) -> str:
    """Why others than its owner can write a file, with the command that mends it; empty where they cannot."""
    if not _stands_in_folder(status):
        return ""
    if status.st_mode & stat.S_IWOTH:
        return f"can be written by everybody: {mend_command('chmod o-w', path)}"
    if not status.st_mode & stat.S_IWGRP:  # with an access-control list, none of the rights in it hold either
        return ""
    if not _is_private_group(status):
        return f"can be written by its group: {mend_command('chmod g-w', path)}"
    if _lists_other_writers(path):
        return f"can be written by others by its access-control list: {mend_command('setfacl -b', path)}"
    return ""


def check_made(descriptor: int, path: Path, *, is_shared: bool = False) -> None:
    """Raise PermissionError, and remove a file that was just made, where gpumon would refuse it later: file systems of
    other machines may decide on owners and modes by themselves.

    `is_shared`: what others write into it harms nobody.
    """
    status = os.fstat(descriptor)
    fault = ""
    if status.st_uid != os.geteuid():
        fault = f"gives new files to {user_name(status.st_uid)}, as EFS, CIFS and NFS with root_squash do"
    elif not is_shared and writable_fault(status, str(path)):
        fault = "lets others write new files, as CIFS does without file_mode=0600"
    if fault:
        path.unlink(missing_ok=True)
        raise PermissionError(errno.EPERM, f"its file system {fault}: choose a folder of a local disk", str(path))


def mend_command(words: str, path: str) -> str:
    """A command with a path behind its words; a sentence where others gave it a name that fits into none."""
    argument = Untrusted(path).of_form("argument")
    return f"{words} {argument}" if argument else UNTYPEABLE


def link_fault(path: Path, status: os.stat_result) -> str:
    """Why a file of this status is not the one that a path means: a link of a user who does not own it, as that user
    could have any file read. Empty where it is."""
    link = path.lstat()
    if not stat.S_ISLNK(link.st_mode) or link.st_uid in (0, os.geteuid(), status.st_uid):
        return ""
    return f"is a link of {user_name(link.st_uid)}'s to a file of {user_name(status.st_uid)}'s: name the file itself"


def place_of_new(path: str | Path) -> Path:
    """The path at which a file is to be written, links followed. Raises PermissionError for the link of another user in
    a folder that all may write, such as /tmp: Linux refuses those to whoever opens them (proc_sys_fs(5),
    `protected_symlinks`), and a file that is put into its place is not opened there.
    """
    named = Path(path).absolute()
    for part in (named, *named.parents):
        if not part.is_symlink():
            continue
        owner = part.lstat().st_uid
        folder = part.parent.stat()
        is_for_all = folder.st_mode & stat.S_IWOTH and folder.st_mode & stat.S_ISVTX
        if is_for_all and owner not in (os.geteuid(), folder.st_uid):
            raise PermissionError(errno.EPERM, f"{clean(str(part), 100)} is a link of {user_name(owner)}'s", str(part))
    return Path(os.path.realpath(named))


def open_lock(path: Path) -> int:
    """The descriptor of a file of gpumon's own to be locked, made where it is not there.

    Raises OSError; PermissionError where another user has put it there, or another name leads to it: what a program
    writes into its lock would stand in that file.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags | os.O_EXCL, 0o600)
    except FileExistsError:
        descriptor = os.open(path, flags, 0o600)
    else:
        try:
            check_made(descriptor, path, is_shared=True)
        except OSError:
            os.close(descriptor)
            raise
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_nlink <= 1:
        return descriptor
    os.close(descriptor)
    raise PermissionError(errno.EPERM, "its lock is no file of this user alone: remove it", str(path))


def user_name(uid: int) -> str:
    """The user's name; the number where it has none."""
    try:
        return clean(pwd.getpwuid(uid).pw_name, 32)
    except KeyError:
        return str(uid)


def _stands_in_folder(status: os.stat_result) -> bool:
    """Whether this is a file, or a pipe with a name, which who may write the folder has put there; the pipes of a
    shell's `|` and `<(...)` are in a file system of their own."""
    return stat.S_ISREG(status.st_mode) or is_named_pipe(status)


def is_named_pipe(status: os.stat_result) -> bool:
    """Whether this is a pipe with a name, and none of a shell's `|` and `<(...)`."""
    if not stat.S_ISFIFO(status.st_mode):
        return False
    ends = os.pipe()
    without_names = os.fstat(ends[0]).st_dev
    for end in ends:
        os.close(end)
    return status.st_dev != without_names


def _lists_other_writers(path: str) -> bool:
    """Whether a file's access-control list lets somebody write it who is named there: another user, or a group."""
    try:
        entries = os.getxattr(path, _ACCESS_LIST)[_ENTRIES_AT:]
    except OSError:  # it has none
        return False
    for tag, rights, holder in _ENTRY.iter_unpack(entries):
        if tag == _NAMED_USER and holder in (0, os.geteuid()):
            continue
        if tag in (_NAMED_USER, _NAMED_GROUP) and rights & _WRITE_RIGHT:
            return True
    return False


def _is_private_group(status: os.stat_result) -> bool:
    """Whether nobody but the owner is in the group: many systems give each user a group and a umask of 002."""
    try:
        owner = pwd.getpwuid(status.st_uid)
        group = grp.getgrgid(status.st_gid)
    except KeyError:
        return False
    return owner.pw_gid == status.st_gid and group.gr_name == owner.pw_name and set(group.gr_mem) <= {owner.pw_name}
