"""Whose eyes a model's files are looked for with: gpumon's own, or those of the engine: its container, its caches."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.sources.environment import variables_of
from gpumon.sources.family import ancestry
from gpumon.sources.model_files import allowed
from gpumon.sources.seen_by import root_of

FOLDERS: Final = frozenset(
    ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME", "OLLAMA_MODELS")
)
"""Variables that name the folders where models lie."""


class View(NamedTuple):
    """A file system, and where models lie in it."""

    env: Mapping[str, str]
    root: str = ""
    """What stands before its absolute paths here."""
    names_only: bool = False
    """Its absolute paths are not the engine's."""

    def sees(self, name: str) -> bool:
        """Whether a path or id of the engine means the same here."""
        return not (self.names_only and name.startswith("/"))


def container_of(pid: int) -> int:
    """The pid again, where that process has a file system of its own that this user may look into; else 0."""
    return pid if _mounts(pid) not in ("", _mounts("self")) else 0


def another_view(pid: int, env: Mapping[str, str]) -> int:
    """The pid again, where that process sees other files than this one, or keeps its models elsewhere; else 0.

    Run it in a thread: Linux may keep the reader of a process waiting that hangs in a driver.
    """
    folders = _folders(pid)
    differs = folders and folders != {name: env[name] for name in FOLDERS if env.get(name)}
    return pid if differs or container_of(pid) else 0


def has_ended(pid: int) -> bool:
    """Whether that process has no files any more; of one that Linux hides from this user too."""
    return not _mounts(pid)


def views(env: Mapping[str, str], pid: int) -> tuple[View, ...]:
    """This host by its `env`; before it that of an engine's process (0: none), whose paths count if it is contained."""
    if not pid:
        return (View(env),)
    root = root_of(pid) if container_of(pid) else ""
    found = {name: f"{root}{folder}" for name, folder in _folders(pid).items()}
    return View(found, root), View(env, names_only=bool(root))


def _folders(pid: int) -> dict[str, str]:
    """Where a process keeps models. A worker that gave itself a title wiped its variables; its parents have them."""
    mounts = _mounts(pid)
    for one in ancestry(pid):
        if _mounts(one.pid) != mounts:
            break
        if found := variables_of(one.pid, FOLDERS):
            return {name: folder for name, folder in found.items() if folder.startswith("/") and allowed(folder)}
    return {}


def _mounts(pid: int | str) -> str:
    """The mount namespace of a process; empty where Linux hides it from this user."""
    try:
        return str(Path(f"/proc/{pid}/ns/mnt").readlink())
    except OSError:
        return ""
