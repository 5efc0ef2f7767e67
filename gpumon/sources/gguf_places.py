"""Where a model's GGUF file lies on this host: the path itself, a folder, the Hugging Face cache, Ollama's store."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from gpumon.sources.gguf_file import is_gguf
from gpumon.sources.model_files import allowed, hugging_face_cache, is_file, read_json, snapshots
from gpumon.sources.seen_by import entries

_MOST_FILES = 4096
"""Files of one folder that are looked at."""
_MOST_MANIFEST_BYTES: Final = 1024 * 1024
_MODEL_LAYER: Final = "application/vnd.ollama.image.model"
_OLLAMA_NAME = re.compile(
    r"(?:(?P<host>[A-Za-z0-9][A-Za-z0-9.-]{0,95})/(?=[^/]+/))?(?:(?P<owner>[A-Za-z0-9][A-Za-z0-9._-]{0,95})/)?"
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{0,95}):(?P<tag>[A-Za-z0-9][A-Za-z0-9._-]{0,95})"
)
_REGISTRY, _LIBRARY = "registry.ollama.ai", "library"
"""Host and owner of a name that tells neither."""
_LEVELS: Final = 4
"""Of a manifest below the folder of all: host, owner, name, tag."""
_DIGEST = re.compile(r"sha256[:-](?P<digest>[0-9a-f]{64})")
_TAGGED = re.compile(r"(?P<repository>[^:]+):(?P<tag>[A-Za-z0-9._-]{1,64})")
_PROJECTOR = "mmproj"
_FURTHER = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$")
"""Second and later files of a split model."""


def gguf_paths(name: str, env: Mapping[str, str], root: str = "") -> Iterator[Path]:
    """GGUF files that may hold this model; the likeliest first, and none where several could be meant.

    `name` is an absolute path below `root` (a file, or a folder with one model), a Hugging Face id of the cache, which
    may end in `:Q4_K_M` as llama.cpp's -hf does, or Ollama's `name:tag`. Relative paths are none: whose folder is not
    known.
    """
    if not allowed(name):
        return
    if name.startswith("/"):
        path = Path(f"{root}{name}")
        if is_file(path):
            if path.suffix == ".gguf" or is_gguf(path):  # one that is none by its content is named as such
                yield path
        else:
            yield from _only(path, "")
        return
    tagged = _TAGGED.fullmatch(name)
    for folder in snapshots(tagged["repository"] if tagged else name, env):
        yield from _only(folder, tagged["tag"] if tagged else "")
    yield from _ollama(name, env)


def ollama_name(blob: Path) -> str:
    """Ollama's `name:tag` of a file of its store, by the first manifest that has it; empty where none can be read."""
    if not is_blob(blob):
        return ""
    manifests = blob.parent.parent / "manifests"
    paths = sorted(islice(_below(manifests, _LEVELS), _MOST_FILES))
    named = next((path for path in paths if blob in _blobs(path, blob.parent.parent)), None)
    if named is None:
        return ""
    *begin, name, tag = named.relative_to(manifests).parts
    short = begin[begin[0] == _REGISTRY :]
    return "/".join((*(short if short != [_LIBRARY] else ()), f"{name}:{tag}"))


def is_blob(path: Path) -> bool:
    """Whether this is how the path of a file of Ollama's store looks; opens nothing."""
    return path.is_absolute() and path.parent.name == "blobs" and _DIGEST.fullmatch(path.name) is not None


def _below(folder: Path, levels: int) -> Iterator[Path]:
    """What is so many levels below a folder."""
    for each in entries(folder, _MOST_FILES):
        if levels == 1:
            yield each
        else:
            yield from _below(each, levels - 1)


def searched(names: Iterable[str], env: Mapping[str, str], root: str = "") -> str:
    """Where the files of a model of these names were looked for, in words."""
    paths = [f"{root}{name}" for name in names if name.startswith("/")]
    cache = hugging_face_cache(env)
    stores = [str(cache)] if cache is not None else []
    return ", ".join((*paths, *stores, *map(str, _stores(env))))


def _only(folder: Path, tag: str) -> Iterator[Path]:
    """The folder's one model, or the one whose file name has the tag in it."""
    found = sorted(
        each
        for each in entries(folder, _MOST_FILES)
        if each.suffix == ".gguf" and _PROJECTOR not in each.name.lower() and not _FURTHER.search(each.name)
    )
    meant = [each for each in found if tag and tag.lower() in each.name.lower()] or ([] if tag else found)
    if len(meant) == 1 and is_gguf(meant[0]):
        yield meant[0]


class _Layer(msgspec.Struct):
    media_type: str = msgspec.field(default="", name="mediaType")
    digest: str = ""


class _Manifest(msgspec.Struct):
    layers: list[_Layer] = []


def _ollama(name: str, env: Mapping[str, str]) -> Iterator[Path]:
    """The blob that Ollama's manifest of this `name:tag` names. A name without a tag may be anybody's."""
    parts = _OLLAMA_NAME.fullmatch(name)
    if parts is None:
        return
    below = Path(parts["host"] or _REGISTRY, parts["owner"] or _LIBRARY, parts["name"], parts["tag"])
    for store in _stores(env):
        yield from (blob for blob in _blobs(store / "manifests" / below, store) if is_gguf(blob))


def _blobs(manifest: Path, store: Path) -> list[Path]:
    """The model files of a store that a manifest names."""
    if not is_file(manifest):
        return []
    try:
        layers = read_json(manifest, _MOST_MANIFEST_BYTES, _Manifest).layers
    except (ValueError, OSError, msgspec.MsgspecError):
        return []
    digests = (_DIGEST.fullmatch(layer.digest) for layer in layers if layer.media_type == _MODEL_LAYER)
    return [store / "blobs" / f"sha256-{digest['digest']}" for digest in digests if digest is not None]


def _stores(env: Mapping[str, str]) -> list[Path]:
    """Ollama's folders: the configured one, the user's, and that of its system service."""
    if env.get("OLLAMA_MODELS"):
        return [Path(env["OLLAMA_MODELS"])]
    homes = [env["HOME"]] if env.get("HOME") else []
    return [Path(home) / ".ollama" / "models" for home in (*homes, "/usr/share/ollama")]
