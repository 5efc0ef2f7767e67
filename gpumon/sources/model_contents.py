"""The contents of a model's files: its config, and the bytes of its weights by type. Each is read within a bound."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

import msgspec

from gpumon.sources.checked_open import entries, is_file, open_file
from gpumon.sources.reading_user import ReadingUser
from gpumon.specs.stored_tensors import StoredTensors

MOST_MODEL_CONFIG_BYTES: Final = 4 * 1024 * 1024
"""Bytes of a config; a longer one is refused."""
MOST_INDEX_BYTES: Final = 20 * 1024 * 1024
"""Bytes of an index: that of DeepSeek-R1 (163 files, 90,000 tensors) has about 9 MB. Of a longer one only the total
size is read, if it is at the beginning."""
_TOTAL_FIRST: Final = re.compile(rb'\s*\{\s*"metadata"\s*:\s*\{[^{}]{0,4096}?"total_size"\s*:\s*([0-9]{1,15})\b')
"""Beginning of an index whose total size comes first."""
_MOST_HEADER_BYTES: Final = 4 * 1024 * 1024
"""Bytes of the header of a single file: some 30,000 tensors."""
_MOST_HEADERS_BYTES: Final = 64 * 1024 * 1024
"""Bytes of the headers of all files of a model: those of DeepSeek-R1's 163 have 11 MB."""
_MOST_FILES: Final = 4096
"""Entries of a model's folder that are looked at."""
_PART: Final = re.compile(r"model-(?P<part>\d{5})-of-(?P<parts>\d{5,6})\.safetensors")
"""Name of one of several files of a model."""
MOST_MEMORY_BYTES: Final = 16 * 1024 * 1024
"""Largest memory for the data that are read of one model."""
_MOST_WEIGHT_BYTES: Final = 1e15
"""Bytes from which on a number is no size of weights."""
_MOST_TYPES: Final = 64
"""Types of tensors in one file."""
_VALUE_BYTES: Final = 64
"""Memory that a JSON value takes, about."""
_T = TypeVar("_T")


def model_root(folder: Path) -> Path:
    """The folder in which all files of a model have to lie, links followed: for a cached snapshot its repository."""
    repository = folder.parent.parent
    if folder.parent.name == "snapshots" and repository.name.startswith("models--"):
        return repository
    return folder


def read_config(folder: Path, reader: ReadingUser | None = None) -> dict[str, Any]:
    """The folder's `config.json`, with ModelOpt's separate `hf_quant_config.json` as its `quantization_config`.

    Raises ValueError where it is no JSON object or too large, OSError where it cannot be read.
    """
    within = model_root(folder)
    config = read_json(folder / "config.json", MOST_MODEL_CONFIG_BYTES, dict, reader, within)
    quantization_file = folder / "hf_quant_config.json"
    if not config.get("quantization_config") and is_file(quantization_file, reader):
        quantization = read_json(quantization_file, MOST_MODEL_CONFIG_BYTES, dict, reader, within).get("quantization")
        if isinstance(quantization, dict):
            config["quantization_config"] = {"quant_method": "modelopt", **quantization}
    return config


def read_json(
    path: Path, most_bytes: int, kind: type[_T], reader: ReadingUser | None = None, within: Path | None = None
) -> _T:
    """The JSON of a file as `kind`. Raises ValueError where it is none, or too large; OSError if it cannot be read.

    `within`: the folder that links may not lead out of.
    """
    with open_file(path, reader, within) as file:
        body = file.read(most_bytes + 1)
    if len(body) > most_bytes:
        raise ValueError(f"{path.name} is larger than {most_bytes} bytes")
    # Each of these characters begins a value, or the next one of a list or an object.
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


class _IndexMetadata(msgspec.Struct):
    """`metadata` of an index."""

    total_size: float = 0.0


class _Index(msgspec.Struct):
    """An index, without the file's name of each tensor: what is not a field here is passed over and takes no memory."""

    metadata: _IndexMetadata = msgspec.field(default_factory=_IndexMetadata)


class _Tensor(msgspec.Struct):
    """A tensor in the header of a safetensors file."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def read_weights(folder: Path, reader: ReadingUser | None = None) -> dict[str, float]:
    """Bytes of the weights by safetensors type; `{"": total}` from an index, {} where the folder holds none.

    Reads the index or the header of a single file, never the weights. Raises ValueError, OSError.
    """
    within = model_root(folder)
    index = folder / "model.safetensors.index.json"
    single = folder / "model.safetensors"
    if is_file(index, reader):
        total = _indexed_bytes(index, reader, within)
        if 0 < total < _MOST_WEIGHT_BYTES:
            return {"": total}
        return {}
    if not is_file(single, reader):
        return {}
    with open_file(single, reader, within) as file:
        header, _ = _read_header(file, single.name)
    return _bytes_by_type(header, single.name)


def read_tensors(folder: Path, reader: ReadingUser | None = None) -> StoredTensors | None:
    """The tensors of a folder's safetensors files, by their headers; None where a file of the model is not there.

    Raises ValueError for a header that is none or too long, OSError where one cannot be read.
    """
    within = model_root(folder)
    files = _safetensors_files(folder, reader)
    if not files:
        return None
    tensors = StoredTensors()
    read_bytes = 0
    for path in files:
        with open_file(path, reader, within) as file:
            header, length = _read_header(file, path.name)
        read_bytes += length
        if read_bytes > _MOST_HEADERS_BYTES:
            raise ValueError(f"{folder.name}: the headers of its files have more than {_MOST_HEADERS_BYTES} bytes")
        for name, text in header.items():
            if name != "__metadata__":
                tensor = msgspec.json.decode(text, type=_Tensor)
                start, end = tensor.data_offsets
                tensors.add(name, tensor.dtype, tensor.shape, float(max(0, end - start)))
    return tensors


def _safetensors_files(folder: Path, reader: ReadingUser | None) -> list[Path]:
    """The files with the weights of a model; none where some are missing."""
    single = folder / "model.safetensors"
    if is_file(single, reader) and not is_file(folder / "model.safetensors.index.json", reader):
        return [single]
    parts: dict[int, Path] = {}
    count = 0
    for path in entries(folder, _MOST_FILES, reader):
        numbered = _PART.fullmatch(path.name)
        if numbered is not None:
            parts[int(numbered["part"])] = path
            count = max(count, int(numbered["parts"]))
    if not parts or set(parts) != set(range(1, count + 1)):
        return []
    return [parts[number] for number in sorted(parts)]


def _read_header(file: BinaryIO, name: str) -> tuple[dict[str, msgspec.Raw], int]:
    """The header of a safetensors file, and its length in bytes. Raises ValueError for one that is too long or none."""
    # A safetensors file begins with the length of its header, in 8 bytes.
    (length,) = struct.unpack("<Q", file.read(8).ljust(8, b"\0"))
    if not 2 <= length <= _MOST_HEADER_BYTES:
        raise ValueError(f"{name}: header of {length} bytes")
    return msgspec.json.decode(file.read(length), type=dict[str, msgspec.Raw]), length


def _indexed_bytes(index: Path, reader: ReadingUser | None, within: Path) -> float:
    """Bytes of all weights by an index. Raises ValueError for a long one that does not begin with them."""
    with open_file(index, reader, within) as file:
        body = file.read(MOST_INDEX_BYTES + 1)
    if len(body) <= MOST_INDEX_BYTES:
        return msgspec.json.decode(body, type=_Index).metadata.total_size
    total_size = _TOTAL_FIRST.match(body)
    if total_size is None:
        raise ValueError(f"{index.name} is larger than {MOST_INDEX_BYTES} bytes")
    return float(total_size[1])


def _bytes_by_type(header: Mapping[str, msgspec.Raw], file_name: str) -> dict[str, float]:
    """Bytes of the tensors of a file by their types. Raises ValueError for more than `_MOST_TYPES`."""
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
