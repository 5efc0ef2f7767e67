"""A model's own files on this machine: where they lie, its `config.json` and the bytes of its weights.

Read only and offline; ids and paths come from a server, so what is opened is bounded and checked.
"""

from __future__ import annotations

import json
import os
import re
import stat
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar, cast

import msgspec

from gpumon.sources.seen_by import entries, resolved

MOST_CONFIG_BYTES: Final = 4 * 1024 * 1024
MOST_INDEX_BYTES: Final = 32 * 1024 * 1024
"""The index of DeepSeek-R1 (163 files, 90,000 tensors) has about 9 MB."""
_MOST_PATH = 4096
_MOST_SNAPSHOTS = 64
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}(?:/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?")
_CACHED = re.compile(r"/models--(?P<id>[^/]+)/snapshots(?=/)")
_T = TypeVar("_T")
_FORBIDDEN: Final = ("/proc/", "/dev/", "/sys/")


def model_folders(name: str, env: Mapping[str, str], root: str = "") -> Iterator[Path]:
    """Folders with a `config.json` that may belong to this model path or Hugging Face id; the likeliest first.

    An absolute path is taken as it is, below `root`; an id is looked up in the Hugging Face cache (HF_HUB_CACHE,
    HF_HOME, XDG_CACHE_HOME, HOME of `env`, as huggingface_hub does), and so is the id in the path of another cache, as
    of a container. Anything else, `..`, and system folders give nothing.
    """
    if not allowed(name):
        return
    folders = [Path(f"{root}{name}")] if name.startswith("/") else []
    cached = _CACHED.search(name)
    found = snapshots(cached["id"].replace("--", "/", 1) if cached else name, env)
    folders += sorted(found, key=lambda folder: folder.name not in Path(name).parts)
    yield from (folder for folder in dict.fromkeys(folders) if is_file(folder / "config.json"))


def allowed(name: str) -> bool:
    """Whether a path or id from a server may be opened: no `..`, no system folder, not absurdly long."""
    if not name or len(name) > _MOST_PATH or "\0" in name or ".." in name:
        return False
    return not name.startswith("/") or not f"{Path(name)}/".startswith(_FORBIDDEN)


def read_config(folder: Path) -> dict[str, Any]:
    """The folder's `config.json`, with ModelOpt's separate `hf_quant_config.json` as its `quantization_config`.

    ValueError where it is no JSON object or too large, OSError where it can not be read.
    """
    config = read_json(folder / "config.json", MOST_CONFIG_BYTES, dict)
    other = folder / "hf_quant_config.json"
    if not config.get("quantization_config") and is_file(other):
        quantization = read_json(other, MOST_CONFIG_BYTES, dict).get("quantization")
        if isinstance(quantization, dict):
            config["quantization_config"] = {"quant_method": "modelopt", **quantization}
    return config


def read_weights(folder: Path) -> dict[str, float]:
    """Bytes of the weights by safetensors type; `{"": total}` from an index, {} where the folder holds none.

    Reads the index or the header of a single file, never the weights.
    """
    index = folder / "model.safetensors.index.json"
    if is_file(index):
        total = read_json(index, MOST_INDEX_BYTES, _Index).metadata.total_size
        return {"": float(total)} if 0 < total < 1e15 else {}
    single = folder / "model.safetensors"
    return _header_bytes(single) if is_file(single) else {}


class _Metadata(msgspec.Struct, frozen=True):
    total_size: float = 0.0


class _Index(msgspec.Struct):
    """Of an index only the total: its map of tensors is skipped without being built."""

    metadata: _Metadata = _Metadata()


class _Tensor(msgspec.Struct):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def _header_bytes(path: Path) -> dict[str, float]:
    with open_regular(path) as file:
        (length,) = struct.unpack("<Q", file.read(8).ljust(8, b"\0"))
        if not 2 <= length <= MOST_INDEX_BYTES:
            raise ValueError(f"{path.name}: header of {length} bytes")
        header = msgspec.json.decode(file.read(length), type=dict[str, Any])
    header.pop("__metadata__", None)
    found: dict[str, float] = {}
    for tensor in msgspec.convert(header, dict[str, _Tensor]).values():
        if len(tensor.shape) == 4 and tensor.shape[:2] == (1, 1):
            continue  # a causal mask of tokens x tokens (GPT-2, GPT-NeoX)
        start, end = tensor.data_offsets
        found[tensor.dtype] = found.get(tensor.dtype, 0.0) + max(0, end - start)
    return found


def hugging_face_cache(env: Mapping[str, str]) -> Path | None:
    """The folder of huggingface_hub's cache, whether it exists or not; None without a home."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if env.get(name):
            return Path(env[name])
    if env.get("HF_HOME"):
        return Path(env["HF_HOME"]) / "hub"
    base = env.get("XDG_CACHE_HOME") or (f"{env['HOME']}/.cache" if env.get("HOME") else "")
    return Path(base) / "huggingface" / "hub" if base else None


def snapshots(name: str, env: Mapping[str, str]) -> Iterator[Path]:
    """Folders of this Hugging Face id in the cache: the snapshot that `refs/main` names, then the others, newest first.

    Nothing for what is no id.
    """
    cache = hugging_face_cache(env)
    if cache is None or not _REPOSITORY.fullmatch(name):
        return
    repository = cache / f"models--{name.replace('/', '--')}"
    found = entries(repository / "snapshots", _MOST_SNAPSHOTS)
    main = _text(repository / "refs" / "main", 128).strip()
    found.sort(key=lambda each: (each.name == main, _modified(each)), reverse=True)
    yield from found


def _text(path: Path, most: int) -> str:
    try:
        with open_regular(path) as file:
            return file.read(most).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def read_json(path: Path, most: int, kind: type[_T]) -> _T:
    """The file as `kind`; ValueError where it is none or larger than `most` bytes, OSError where it can not be read."""
    with open_regular(path) as file:
        body = file.read(most + 1)
    if len(body) > most:
        raise ValueError(f"{path.name} is larger than {most} bytes")
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


def open_regular(path: Path) -> BinaryIO:
    """Opens a regular file for reading; a pipe or device is an OSError instead of waited for."""
    with resolved(path) as place:
        descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path.name} is no regular file")
        return cast("BinaryIO", os.fdopen(descriptor, "rb"))
    except BaseException:
        os.close(descriptor)
        raise


def is_file(path: Path) -> bool:
    """Whether this is a regular file; False where that can not be told."""
    try:
        with resolved(path) as place:
            return stat.S_ISREG(place.stat().st_mode)
    except (OSError, ValueError):
        return False


def _modified(path: Path) -> float:
    try:
        with resolved(path) as place:
            return place.stat().st_mtime
    except OSError:
        return 0.0
