"""Owners of files that say what gpumon runs or sends: its user or root, nobody else, as ssh, sudo and cron ask for."""

from __future__ import annotations

import grp
import os
import pwd
import shlex
import stat


def owner_fault(status: os.stat_result, path: str) -> str:
    """Why a file is not to be trusted, with the command that mends it; empty where it is.

    `status` is that of the open file. A pipe or a terminal is whoever's who gave it.
    """
    if not stat.S_ISREG(status.st_mode):
        return ""
    name = shlex.quote(path)
    if status.st_uid not in (0, os.geteuid()):
        own = _user_name(os.geteuid())
        return f"belongs to {_user_name(status.st_uid)}, who could have {own} run commands: sudo chown {own} {name}"
    if status.st_mode & stat.S_IWOTH:
        return f"can be written by everybody: chmod o-w {name}"
    if status.st_mode & stat.S_IWGRP and not _is_private_group(status):
        return f"can be written by its group: chmod g-w {name}"
    return ""


def _user_name(uid: int) -> str:
    """The name of a user, or its number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _is_private_group(status: os.stat_result) -> bool:
    """Whether nobody but the owner is in the group: many systems give each user a group and a umask of 002."""
    try:
        owner = pwd.getpwuid(status.st_uid)
        group = grp.getgrgid(status.st_gid)
    except KeyError:
        return False
    return owner.pw_gid == status.st_gid and group.gr_name == owner.pw_name and set(group.gr_mem) <= {owner.pw_name}
