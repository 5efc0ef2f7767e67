"""File systems as processes see them, and where models lie in them: caches of Hugging Face, stores of Ollama."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.sources.checked_open import allowed
from gpumon.sources.family import ancestry, variables_of
from gpumon.sources.reading_user import ReadingUser, reader_at, reader_of

FOLDERS: Final = frozenset(
    ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME", "OLLAMA_MODELS")
)
"""Variables that name the folders where models lie."""


class FileSystemView(NamedTuple):
    """A file system as one process sees it, and where models lie in it."""

    root: str = ""
    """Prefix of its absolute paths in gpumon's own view: `/proc/PID/root`, or empty where both views are the same."""
    cache: Path | None = None
    """Folder of huggingface_hub's cache, whether it exists or not."""
    stores: tuple[Path, ...] = ()
    """Ollama's folders: the configured one; else the user's, and that of its system service."""
    reader: ReadingUser | None = None
    """User with whose rights files are opened; None for gpumon's own."""
    paths: bool = True
    """Whether absolute paths that the engine names mean the same files here."""


def view(
    env: Mapping[str, str], root: str = "", reader: ReadingUser | None = None, *, paths: bool = True
) -> FileSystemView:
    """The view of a process whose environment is `env`, of which the variables in `FOLDERS` are used."""
    return FileSystemView(root, _hub_cache(env), _ollama_stores(env, root), reader, paths)


def _hub_cache(env: Mapping[str, str]) -> Path | None:
    """The cache of the Hugging Face hub, as huggingface_hub finds it; None where no variable tells."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if env.get(name):
            return Path(env[name])
    if env.get("HF_HOME"):
        return Path(f"{env['HF_HOME']}/hub")
    if env.get("XDG_CACHE_HOME"):
        return Path(f"{env['XDG_CACHE_HOME']}/huggingface/hub")
    if env.get("HOME"):
        return Path(f"{env['HOME']}/.cache/huggingface/hub")
    return None


def _ollama_stores(env: Mapping[str, str], root: str) -> tuple[Path, ...]:
    """Folders with Ollama's models: the one that it was told, else those of the user and of its own account."""
    if env.get("OLLAMA_MODELS"):
        return (Path(env["OLLAMA_MODELS"]),)
    service = Path(f"{root}/usr/share/ollama/.ollama/models")
    if env.get("HOME"):
        return (Path(f"{env['HOME']}/.ollama/models"), service)
    return (service,)


def views_of(env: Mapping[str, str], pid: int, url: str, *, own_word: bool = False) -> tuple[FileSystemView, ...]:
    """Views in which the models of the server at `url` may lie: that of its process (0: not known), then gpumon's.

    What the server names is opened with its user's rights; gpumon's own cache, by ids only, with gpumon's. `own_word`:
    the paths are from gpumon's own config. Run it in a thread: Linux may keep the reader of a process waiting that
    hangs in a driver.
    """
    root = root_of(pid) if container_pid(pid) else ""
    if pid:
        reader = reader_of(pid)
        folders = {name: f"{root}{folder}" for name, folder in _folders(pid).items()}
    else:
        reader = reader_at(url)
        folders = {}
    return view(folders, root, reader), view(env, paths=own_word and not root)


def root_of(pid: int) -> str:
    """Prefix of the absolute paths of a process."""
    return f"/proc/{pid}/root"


def container_pid(pid: int) -> int:
    """The pid again, where that process has a file system of its own that this user may look into; else 0."""
    if pid and _mounts(pid) not in ("", _mounts("self")):
        return pid
    return 0


def has_own_root(pid: int) -> bool:
    """Whether `/` is another folder for that process than for gpumon, as in a container: its paths and programs are not
    those of this host. The link `/proc/PID/root` reads `/` there, too. Raises OSError where Linux hides it."""
    return not os.path.samestat(Path(f"/proc/{pid}/root").stat(), Path("/").stat())


def has_no_files(pid: int) -> bool:
    """Whether that process has ended, so that it has no files any more, or Linux hides them from this user."""
    return not _mounts(pid)


def _mounts(pid: int | str) -> str:
    """The mount namespace of a process; empty where Linux hides it from this user."""
    try:
        return str(Path(f"/proc/{pid}/ns/mnt").readlink())
    except OSError:
        return ""


def _folders(pid: int) -> dict[str, str]:
    """Folders with a process's models. A worker that gave itself a title wiped its variables; its parents have them."""
    mounts = _mounts(pid)
    for ancestor in ancestry(pid):
        if _mounts(ancestor.pid) != mounts:  # outside the container: its folders are others
            break
        folders = variables_of(ancestor.pid, FOLDERS)
        if folders:
            return {name: folder for name, folder in folders.items() if folder.startswith("/") and allowed(folder)}
    return {}
