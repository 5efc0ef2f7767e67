"""Finds the files of a model on this machine: by its path, its Hugging Face id, or Ollama's name of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from gpumon.sources.checked_open import allowed, entries, is_file, is_worth_opening, open_file, resolved
from gpumon.sources.file_views import FileSystemView
from gpumon.sources.model_contents import read_json
from gpumon.sources.reading_user import ReadingUser

_MOST_SNAPSHOTS = 64
"""Snapshots of one repository that are looked at."""
_MOST_FILES = 4096
"""Files of one folder that are looked at."""
_MOST_MANIFEST_BYTES: Final = 1024 * 1024
"""Bytes of a manifest of Ollama, which lists the files of a model."""
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}(?:/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?")
_CACHED = re.compile(r"/models--(?P<id>[^/]+)/snapshots(?=/)")
_TAGGED = re.compile(r"(?P<repository>[^:]+):(?P<tag>[A-Za-z0-9._-]{1,64})")
_OLLAMA_NAME = re.compile(
    r"(?:(?P<host>[A-Za-z0-9][A-Za-z0-9.-]{0,95})/(?=[^/]+/))?(?:(?P<owner>[A-Za-z0-9][A-Za-z0-9._-]{0,95})/)?"
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{0,95}):(?P<tag>[A-Za-z0-9][A-Za-z0-9._-]{0,95})"
)
_MODEL_LAYER: Final = "application/vnd.ollama.image.model"
_REGISTRY = "registry.ollama.ai"
_LIBRARY = "library"
"""Host and owner of an Ollama name that tells neither."""
_MANIFEST_LEVELS: Final = 4
"""Levels of a manifest below the folder of all: host, owner, name, tag."""
_DIGEST = re.compile(r"sha256[:-](?P<digest>[0-9a-f]{64})")
_LATER_PART = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$")
"""Second and later files of a split model."""


def model_folders(name: str, file_system: FileSystemView) -> Iterator[Path]:
    """Folders with a `config.json` that may belong to this model path or Hugging Face id; the likeliest first.

    An absolute path is taken as it is; an id is looked up in the Hugging Face cache, and so is the id in the path of
    another cache, as of a container. Anything else, `..`, and system folders give nothing.
    """
    if not allowed(name):
        return
    folders = [Path(f"{file_system.root}{name}")] if name.startswith("/") and file_system.paths else []
    model_id = name
    cached = _CACHED.search(name)
    if cached is not None:
        model_id = cached["id"].replace("--", "/", 1)
    # The snapshot that the path names is the first.
    folders += sorted(snapshots(model_id, file_system), key=lambda folder: folder.name not in Path(name).parts)
    for folder in dict.fromkeys(folders):
        if is_worth_opening(folder / "config.json", file_system.reader):
            yield folder


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
            with resolved(folder, file_system.reader) as descriptor:
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

    store = blob.parent.parent

    def entries_below(folder: Path, levels: int) -> Iterator[Path]:
        """The entries so many levels below a folder."""
        for entry in entries(folder, _MOST_FILES, reader):
            if levels == 1:
                yield entry
            else:
                yield from entries_below(entry, levels - 1)

    for path in sorted(islice(entries_below(manifests, _MANIFEST_LEVELS), _MOST_FILES)):
        if blob in _blobs(path, store, reader):
            return _name_of_manifest(path.relative_to(manifests))
    return ""


def _name_of_manifest(path: Path) -> str:
    """Ollama's name of a model by the path of its manifest below the folder of all; usual parts are left out."""
    *prefix, name, tag = path.parts
    if prefix[0] == _REGISTRY:
        prefix = prefix[1:]
    if prefix == [_LIBRARY]:
        prefix = []
    return "/".join((*prefix, f"{name}:{tag}"))


class _Layer(msgspec.Struct):
    """A file that a manifest of Ollama's names."""

    media_type: str = msgspec.field(default="", name="mediaType")
    digest: str = ""


class _Manifest(msgspec.Struct):
    """A manifest of Ollama's: the files of one model."""

    layers: list[_Layer] = []


def _blobs(manifest: Path, store: Path, reader: ReadingUser | None) -> list[Path]:
    """The model files of a store that a manifest names."""
    try:
        layers = read_json(manifest, _MOST_MANIFEST_BYTES, _Manifest, reader).layers
    except (ValueError, OSError, msgspec.MsgspecError):
        return []
    digests = [_DIGEST.fullmatch(layer.digest) for layer in layers if layer.media_type == _MODEL_LAYER]
    return [store / "blobs" / f"sha256-{digest['digest']}" for digest in digests if digest is not None]


def searched(names: Iterable[str], file_system: FileSystemView) -> Iterator[str]:
    """Paths and folders in which the files of a model of these names were looked for."""
    for name in names:
        if name.startswith("/") and file_system.paths:
            yield f"{file_system.root}{name}"
    if file_system.cache is not None:
        yield str(file_system.cache)
    yield from map(str, file_system.stores)
