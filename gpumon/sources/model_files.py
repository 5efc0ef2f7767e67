"""A model's own files on this machine: with whose rights they are opened, where they lie, and what they hold.

Paths and ids come from servers and command lines, which may be another user's: a file is opened only where the user of
the engine could open it, if it is a regular file of a real file system, and with a bound on what is read of it.
"""

from __future__ import annotations

import errno
import json
import os
import pwd
import re
import stat
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, TypeVar, cast

import msgspec

from gpumon.sources.family import ancestry, user_name, variables_of
from gpumon.sources.sockets import LocalAddress, listening, locate, reached

MOST_MODEL_CONFIG_BYTES: Final = 4 * 1024 * 1024
MOST_INDEX_BYTES: Final = 20 * 1024 * 1024
"""The index of DeepSeek-R1 (163 files, 90,000 tensors) has about 9 MB. Of a longer one only the beginning is read."""
_TOTAL_FIRST: Final = re.compile(rb'\s*\{\s*"metadata"\s*:\s*\{[^{}]{0,4096}?"total_size"\s*:\s*([0-9]{1,15})\b')
_MOST_HEADER_BYTES: Final = 4 * 1024 * 1024
"""Bytes read of a single file: some 30,000 tensors."""
MOST_MEMORY_BYTES: Final = 16 * 1024 * 1024
"""Largest memory for the data that are read of one model."""
MOST_LINKS: Final = 40
"""Followed for one path (Linux: MAXSYMLINKS)."""
MOST_PATH_PARTS: Final = 256
"""Folders and links of one path: each is a file descriptor until its end is reached."""
FOLDERS: Final = frozenset(
    ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME", "OLLAMA_MODELS")
)
"""Variables that name the folders where models lie."""

_MOST_PATH = 4096
"""Characters of a path or id from a server."""
_MOST_SNAPSHOTS = 64
"""Snapshots of one repository that are looked at."""
_MOST_FILES = 4096
"""Files of one folder that are looked at."""
_MOST_MANIFEST_BYTES: Final = 1024 * 1024
_SYSTEM: Final = ("proc", "sys", "dev")
"""Folders below the root that hold no models: to open what lies there may do something."""
_KERNELS: Final = (
    "proc sysfs devtmpfs devpts cgroup cgroup2 debugfs tracefs securityfs configfs pstore bpf efivarfs mqueue "
    "binfmt_misc fusectl nsfs selinuxfs"
)
"""File systems in which reading a file may change something."""
_MOST_TYPES: Final = 64
"""Types of tensors in one file."""
_VALUE_BYTES: Final = 64
"""Memory that a JSON value takes, about."""

_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}(?:/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?")
_CACHED = re.compile(r"/models--(?P<id>[^/]+)/snapshots(?=/)")
_TAGGED = re.compile(r"(?P<repository>[^:]+):(?P<tag>[A-Za-z0-9._-]{1,64})")
_OLLAMA_NAME = re.compile(
    r"(?:(?P<host>[A-Za-z0-9][A-Za-z0-9.-]{0,95})/(?=[^/]+/))?(?:(?P<owner>[A-Za-z0-9][A-Za-z0-9._-]{0,95})/)?"
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{0,95}):(?P<tag>[A-Za-z0-9][A-Za-z0-9._-]{0,95})"
)
_HUB_BLOB = re.compile(r"/models--[^/]+/blobs/[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
"""File of a repository in the Hugging Face cache, by the Git or SHA-256 digest of its content."""
_LEADS_OUT: Final = "is a link out of the model's folder"
_MODEL_LAYER: Final = "application/vnd.ollama.image.model"
_REGISTRY = "registry.ollama.ai"
_LIBRARY = "library"
"""Host and owner of an Ollama name that tells neither."""
_MANIFEST_LEVELS: Final = 4
"""Levels of a manifest below the folder of all: host, owner, name, tag."""
_DIGEST = re.compile(r"sha256[:-](?P<digest>[0-9a-f]{64})")
_LATER_PART = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$")
"""Second and later files of a split model."""
_T = TypeVar("_T")


class ReadingUser(NamedTuple):
    """A user of this host whose rights bound what is opened; access-control lists are not looked at."""

    uid: int
    gids: frozenset[int] = frozenset()

    def may(self, status: os.stat_result, wanted: int) -> bool:
        """Whether the mode bits grant `wanted` (4 read, 1 pass through a folder) to this user."""
        shift = 0
        if status.st_uid == self.uid:
            shift = 6
        elif status.st_gid in self.gids:
            shift = 3
        return status.st_mode >> shift & wanted == wanted

    @property
    def name(self) -> str:
        """The user in words."""
        if self == ANYBODY:
            return "an engine whose user is not known"
        return f"the engine's user {user_name(self.uid)}"


ANYBODY: Final = ReadingUser(-1)
"""Owns nothing and is in no group."""


def reader_of(pid: int) -> ReadingUser | None:
    """The user whose rights count for what this process names; None where those of gpumon itself do."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return ANYBODY
    ids = {}
    for name, _, words in (line.partition(":") for line in lines):
        ids[name] = words.split()
    return _reader_for(int(ids["Uid"][3]), frozenset(map(int, (*ids["Groups"], ids["Gid"][3]))))


def _reader_at(url: str) -> ReadingUser | None:
    """The user whose rights count for what the server at a URL names; None where those of gpumon itself do.

    May wait for a name server or a user directory.
    """
    place = locate(url)
    if isinstance(place, LocalAddress):
        uids = {listener.uid for listener in reached(place, listening())}
    else:
        uids = set()
    if len(uids) != 1:
        return ANYBODY
    (uid,) = uids
    return reader_with(uid)


def reader_with(uid: int) -> ReadingUser | None:
    """The user whose rights count for what a process of his named (negative: not known); None where those of gpumon do.

    May wait for a user directory.
    """
    if uid < 0:
        return ANYBODY
    try:
        user = pwd.getpwuid(uid)
        return _reader_for(uid, frozenset(os.getgrouplist(user.pw_name, user.pw_gid)))
    except KeyError:
        return _reader_for(uid, frozenset())


def _reader_for(uid: int, gids: frozenset[int]) -> ReadingUser | None:
    """The user with whose rights files are opened; None for gpumon's own.

    Root of a container is not root of its host: for gpumon without root's rights it is anybody.
    """
    if uid == os.geteuid():
        return None
    if uid:
        return ReadingUser(uid, gids)
    return ANYBODY


class NotTheModelsError(PermissionError):
    """A path leads to what is no file of the model: so its name tells nothing about what the engine runs."""

    def __init__(self, why: str, path: Path) -> None:
        super().__init__(errno.EACCES, why, str(path))


class FileSystemView(NamedTuple):
    """A file system as one process sees it, and where models lie in it."""

    root: str = ""
    """Prefix of its absolute paths here."""
    cache: Path | None = None
    """Folder of huggingface_hub's cache, whether it exists or not."""
    stores: tuple[Path, ...] = ()
    """Ollama's folders: the configured one; else the user's, and that of its system service."""
    reader: ReadingUser | None = None
    paths: bool = True
    """Absolute paths mean the same here."""

    def sees(self, name: str) -> bool:
        """Whether a path or id of the engine means the same here."""
        return self.paths or not name.startswith("/")


def view(
    env: Mapping[str, str], root: str = "", reader: ReadingUser | None = None, *, paths: bool = True
) -> FileSystemView:
    """The view of a process with these variables (HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME, HOME, OLLAMA_MODELS)."""
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
    root = ""
    if container_pid(pid):
        root = root_of(pid)
    if pid:
        reader = reader_of(pid)
        folders = {name: f"{root}{folder}" for name, folder in _folders(pid).items()}
    else:
        reader = _reader_at(url)
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


def has_no_files(pid: int) -> bool:
    """Whether that process has no files any more; of one that Linux hides from this user too."""
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
        if _mounts(ancestor.pid) != mounts:
            break
        folders = variables_of(ancestor.pid, FOLDERS)
        if folders:
            result = {}
            for name, folder in folders.items():
                if folder.startswith("/") and allowed(folder):
                    result[name] = folder
            return result
    return {}


def allowed(name: str) -> bool:
    """Whether a path or id from a server may be opened: no `..`, no system folder, not absurdly long."""
    if not name or len(name) > _MOST_PATH or "\0" in name or ".." in name:
        return False
    return not name.startswith("/") or Path(name).parts[1:2] not in [(folder,) for folder in _SYSTEM]


# Opening


def open_regular(path: Path) -> BinaryIO:
    """Opens a regular file of gpumon's own user for reading; a pipe or device is an OSError instead of waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path.name} is no regular file")
        return cast("BinaryIO", os.fdopen(descriptor, "rb"))
    except BaseException:  # whatever it is, the descriptor is not left open
        os.close(descriptor)
        raise


def open_file(path: Path, reader: ReadingUser | None = None, within: Path | None = None) -> BinaryIO:
    """Opens a model's file with the rights of `reader`; `within`: links do not lead out of that folder.

    A path below `/proc/PID/root` is one of that process: links in it lead where they lead that process. Each part is
    opened below the one before it, so that no link that is exchanged meanwhile leads elsewhere. OSError says why not.
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
        _permit(reader, status, 4, path)
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
    with _resolved(path.parent, reader) as folder:
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
    with _resolved(path.parent, reader) as folder:
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
    with _resolved(path, reader) as descriptor:
        return stat.S_ISREG(os.fstat(descriptor).st_mode)


def _is_worth_opening(path: Path, reader: ReadingUser | None) -> bool:
    """Whether a file is opened: also one that is none of a model's, as to open it says what is wrong."""
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
        with _resolved(folder, reader) as descriptor:
            _permit(reader, os.fstat(descriptor), 4, folder)
            with os.scandir(f"/proc/self/fd/{descriptor}") as listing:
                return [folder / entry.name for entry in islice(listing, most)]
    except (OSError, ValueError):
        return []


@contextmanager
def _resolved(path: Path, reader: ReadingUser | None) -> Iterator[int]:
    """The descriptor of what a path leads to, for questions only; open inside the block."""
    with ExitStack() as opened:
        yield _walk(path, reader, opened)[-1]


def _walk(path: Path, reader: ReadingUser | None, opened: ExitStack) -> list[int]:
    """Descriptors of the folders that a path leads through, links resolved, and of its end; closed with `opened`."""
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
        _permit(reader, os.fstat(folders[-1]), 1, path)
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
        parts_ahead += _parts_below_anchor(target)[::-1]
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def _target_of(descriptor: int) -> Path | None:
    """Target of the link that is open here; None if it is no link. Raises OSError."""
    if stat.S_ISLNK(os.fstat(descriptor).st_mode):
        return Path(os.readlink("", dir_fd=descriptor))
    return None


def _parts_below_anchor(path: Path) -> list[str]:
    """The parts of a path, without the slash that an absolute one begins with."""
    return [part for part in path.parts if part != path.anchor]


def _root_and_parts(path: Path) -> tuple[str, list[str]]:
    """The root to which absolute links of a path lead, and the parts of the path below it."""
    below_root = 1
    if _process_of(path):  # /proc/PID/root
        below_root = 4
    return str(Path(*path.parts[:below_root])), list(path.parts[below_root:])


def _open_entry(opened: ExitStack, name: str, folder: int | None = None, flags: int = os.O_NOFOLLOW) -> int:
    """The descriptor of an entry of a folder, for questions only; closed with `opened`."""
    descriptor = os.open(name, os.O_PATH | os.O_CLOEXEC | flags, dir_fd=folder)
    opened.callback(os.close, descriptor)
    return descriptor


def _permit(reader: ReadingUser | None, status: os.stat_result, wanted: int, path: Path) -> None:
    """Raise PermissionError unless the reader has the `wanted` mode bits (4 read, 1 pass through a folder)."""
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
    mounts = ((line.split(" ", 3)[2], line.partition(" - ")[2].split(" ")[0]) for line in lines)
    devices = set()
    for number, kind in mounts:
        if kind in _KERNELS.split():
            devices.add(os.makedev(*map(int, number.split(":"))))
    return frozenset(devices)


# Where they lie


def model_folders(name: str, file_system: FileSystemView) -> Iterator[Path]:
    """Folders with a `config.json` that may belong to this model path or Hugging Face id; the likeliest first.

    An absolute path is taken as it is; an id is looked up in the Hugging Face cache, and so is the id in the path of
    another cache, as of a container. Anything else, `..`, and system folders give nothing.
    """
    if not allowed(name):
        return
    if name.startswith("/") and file_system.paths:
        folders = [Path(f"{file_system.root}{name}")]
    else:
        folders = []
    cached = _CACHED.search(name)
    folders_found = snapshots(cached["id"].replace("--", "/", 1) if cached else name, file_system)
    folders += sorted(folders_found, key=lambda folder: folder.name not in Path(name).parts)
    yield from (
        folder for folder in dict.fromkeys(folders) if _is_worth_opening(folder / "config.json", file_system.reader)
    )


def model_root(folder: Path) -> Path:
    """The folder that the files of a model do not lead out of: of a snapshot in a cache its repository (`blobs`)."""
    repository = folder.parent.parent
    if folder.parent.name == "snapshots" and repository.name.startswith("models--"):
        return repository
    return folder


def snapshots(name: str, file_system: FileSystemView) -> Iterator[Path]:
    """Folders of this Hugging Face id in the cache: the snapshot that `refs/main` names, then the others, newest first.

    Nothing for what is no id.
    """
    if file_system.cache is None or not _REPOSITORY.fullmatch(name):
        return
    repository = file_system.cache / f"models--{name.replace('/', '--')}"
    folders = entries(repository / "snapshots", _MOST_SNAPSHOTS, file_system.reader)
    try:
        with open_file(repository / "refs" / "main", file_system.reader, repository) as file:
            main = file.read(128).decode("utf-8", "replace").strip()
    except (OSError, ValueError):
        main = ""

    def modified(folder: Path) -> float:
        """Unix time of the folder's last change; 0 where that cannot be told."""
        try:
            with _resolved(folder, file_system.reader) as descriptor:
                return os.fstat(descriptor).st_mtime
        except OSError:
            return 0.0

    yield from sorted(folders, key=lambda folder: (folder.name == main, modified(folder)), reverse=True)


def gguf_paths(name: str, file_system: FileSystemView) -> Iterator[Path]:
    """GGUF files that may hold this model; the likeliest first, and none where several could be meant.

    `name` is an absolute path (a file, or a folder with one model), a Hugging Face id of the cache, which may end in
    `:Q4_K_M` as llama.cpp's -hf does, or Ollama's `name:tag`. Relative paths are none: whose folder is not known.
    """
    if not allowed(name):
        return
    if name.startswith("/"):
        if file_system.paths:
            yield from _gguf_at(Path(f"{file_system.root}{name}"), file_system.reader)
        return
    repository = name
    tag = ""
    tagged = _TAGGED.fullmatch(name)
    if tagged is not None:
        repository = tagged["repository"]
        tag = tagged["tag"]
    for folder in snapshots(repository, file_system):
        yield from _only_model(folder, tag, file_system.reader)
    yield from _gguf_of_ollama(name, file_system)


def _gguf_at(path: Path, reader: ReadingUser | None) -> Iterator[Path]:
    """The file at this path, or the one model of the folder there."""
    if not is_file(path, reader):
        yield from _only_model(path, "", reader)
    elif path.suffix == ".gguf" or is_gguf(path, reader):  # one that is none by its content is named as such
        yield path


def _gguf_of_ollama(name: str, file_system: FileSystemView) -> Iterator[Path]:
    """The files of Ollama's `name:tag` in its stores."""
    parts = _OLLAMA_NAME.fullmatch(name)
    if parts is None:  # a name without a tag may be anybody's
        return
    below = Path(parts["host"] or _REGISTRY, parts["owner"] or _LIBRARY, parts["name"], parts["tag"])
    for store in file_system.stores:
        for blob in _blobs(store / "manifests" / below, store, file_system.reader):
            if is_gguf(blob, file_system.reader):
                yield blob


def is_gguf(path: Path, reader: ReadingUser | None = None) -> bool:
    """Whether the file begins as GGUF; False where it cannot be read."""
    try:
        with open_file(path, reader) as file:
            return file.read(4) == b"GGUF"
    except (OSError, ValueError):
        return False


def _only_model(folder: Path, tag: str, reader: ReadingUser | None) -> Iterator[Path]:
    """The folder's one model, or the one whose file name has the tag in it."""
    models = []
    for path in sorted(entries(folder, _MOST_FILES, reader)):
        is_model = path.suffix == ".gguf" and "mmproj" not in path.name.lower()
        if is_model and not _LATER_PART.search(path.name):
            models.append(path)
    if tag:
        models = [path for path in models if tag.lower() in path.name.lower()]
    if len(models) == 1 and is_gguf(models[0], reader):
        yield models[0]


def is_blob(path: Path) -> bool:
    """Whether this is how the path of a file of Ollama's store looks; opens nothing."""
    return path.is_absolute() and path.parent.name == "blobs" and _DIGEST.fullmatch(path.name) is not None


def ollama_name(blob: Path, reader: ReadingUser | None = None) -> str:
    """Ollama's `name:tag` of a file of its store, by the first manifest that has it; empty where none can be read."""
    if not is_blob(blob):
        return ""
    manifests = blob.parent.parent / "manifests"

    def below(folder: Path, levels: int) -> Iterator[Path]:
        """The entries so many levels below a folder."""
        for entry in entries(folder, _MOST_FILES, reader):
            if levels == 1:
                yield entry
            else:
                yield from below(entry, levels - 1)

    paths = sorted(islice(below(manifests, _MANIFEST_LEVELS), _MOST_FILES))
    manifest = next((path for path in paths if blob in _blobs(path, blob.parent.parent, reader)), None)
    if manifest is None:
        return ""
    *begin, name, tag = manifest.relative_to(manifests).parts
    short = begin[begin[0] == _REGISTRY :]
    return "/".join((*(short if short != [_LIBRARY] else ()), f"{name}:{tag}"))


class _Layer(msgspec.Struct):
    media_type: str = msgspec.field(default="", name="mediaType")
    digest: str = ""


class _Manifest(msgspec.Struct):
    layers: list[_Layer] = []


def _blobs(manifest: Path, store: Path, reader: ReadingUser | None) -> list[Path]:
    """The model files of a store that a manifest names."""
    try:
        layers = read_json(manifest, _MOST_MANIFEST_BYTES, _Manifest, reader).layers
    except (ValueError, OSError, msgspec.MsgspecError):
        return []
    digests = [_DIGEST.fullmatch(layer.digest) for layer in layers if layer.media_type == _MODEL_LAYER]
    blobs = []
    for digest in digests:
        if digest is not None:
            blobs.append(store / "blobs" / f"sha256-{digest['digest']}")
    return blobs


def searched(names: Iterable[str], file_system: FileSystemView) -> Iterator[str]:
    """Places where the files of a model of these names were looked for."""
    for name in names:
        if name.startswith("/") and file_system.paths:
            yield f"{file_system.root}{name}"
    yield from map(str, ((file_system.cache,) if file_system.cache is not None else ()) + file_system.stores)


# What they hold


def read_config(folder: Path, reader: ReadingUser | None = None) -> dict[str, Any]:
    """The folder's `config.json`, with ModelOpt's separate `hf_quant_config.json` as its `quantization_config`.

    ValueError where it is no JSON object or too large, OSError where it cannot be read.
    """
    within = model_root(folder)
    config = read_json(folder / "config.json", MOST_MODEL_CONFIG_BYTES, dict, reader, within)
    other = folder / "hf_quant_config.json"
    if not config.get("quantization_config") and is_file(other, reader):
        quantization = read_json(other, MOST_MODEL_CONFIG_BYTES, dict, reader, within).get("quantization")
        if isinstance(quantization, dict):
            config["quantization_config"] = {"quant_method": "modelopt", **quantization}
    return config


def read_json(
    path: Path, most: int, kind: type[_T], reader: ReadingUser | None = None, within: Path | None = None
) -> _T:
    """The file as `kind`; ValueError where it is none or larger than `most` bytes, OSError where it cannot be read."""
    with open_file(path, reader, within) as file:
        body = file.read(most + 1)
    if len(body) > most:
        raise ValueError(f"{path.name} is larger than {most} bytes")
    if len(body) + _VALUE_BYTES * sum(map(body.count, (b"{", b"[", b","))) > MOST_MEMORY_BYTES:
        raise ValueError(f"{path.name} has more values than any model needs")
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        problem = error
    except RecursionError as error:
        raise ValueError(f"{path.name}: {error}") from None
    try:
        # Python writes Infinity and NaN, which are no JSON (Nemotron-3-Super's time_step_limit), and reads them.
        return msgspec.convert(json.loads(body), kind)
    except (ValueError, msgspec.ValidationError, RecursionError):
        raise ValueError(f"{path.name}: {problem}") from None


class _Total(msgspec.Struct):
    total_size: float = 0.0


class _Index(msgspec.Struct):
    """The rest, a file's name for each tensor, is passed over: it takes no memory."""

    metadata: _Total = msgspec.field(default_factory=_Total)


class _Tensor(msgspec.Struct):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def read_weights(folder: Path, reader: ReadingUser | None = None) -> dict[str, float]:
    """Bytes of the weights by safetensors type; `{"": total}` from an index, {} where the folder holds none.

    Reads the index or the header of a single file, never the weights.
    """
    within = model_root(folder)
    index = folder / "model.safetensors.index.json"
    single = folder / "model.safetensors"
    if is_file(index, reader):
        total = _indexed_bytes(index, reader, within)
        return {"": total} if 0 < total < 1e15 else {}
    if not is_file(single, reader):
        return {}
    with open_file(single, reader, within) as file:
        (length,) = struct.unpack("<Q", file.read(8).ljust(8, b"\0"))
        if not 2 <= length <= _MOST_HEADER_BYTES:
            raise ValueError(f"{single.name}: header of {length} bytes")
        header = msgspec.json.decode(file.read(length), type=dict[str, msgspec.Raw])
    return _bytes_by_type(header, single.name)


def _indexed_bytes(index: Path, reader: ReadingUser | None, within: Path) -> float:
    """The size of all weights by an index; of a long one, if it stands at its start."""
    with open_file(index, reader, within) as file:
        body = file.read(MOST_INDEX_BYTES + 1)
    if len(body) <= MOST_INDEX_BYTES:
        return msgspec.json.decode(body, type=_Index).metadata.total_size
    first = _TOTAL_FIRST.match(body)
    if first is None:
        raise ValueError(f"{index.name} is larger than {MOST_INDEX_BYTES} bytes")
    return float(first[1])


def _bytes_by_type(header: Mapping[str, msgspec.Raw], file_name: str) -> dict[str, float]:
    """Bytes of the tensors of a file by their types."""
    sizes: dict[str, float] = {}
    for name, text in header.items():
        if name == "__metadata__":
            continue
        tensor = msgspec.json.decode(text, type=_Tensor)
        if len(tensor.shape) == 4 and tensor.shape[:2] == (1, 1):
            continue  # a causal mask of tokens x tokens (GPT-2, GPT-NeoX)
        start, end = tensor.data_offsets
        sizes[tensor.dtype] = sizes.get(tensor.dtype, 0.0) + max(0, end - start)
        if len(sizes) > _MOST_TYPES:
            raise ValueError(f"{file_name}: has more types of tensors than there are")
    return sizes
