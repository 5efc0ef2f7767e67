"""Reading GGUF files: one of llama.cpp's own library, split ones, long vocabularies, cut and hostile ones."""

from __future__ import annotations

import gzip
import json
import os
import struct
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gpumon.sources.gguf_file import MOST_HEADER_BYTES, read_gguf
from gpumon.sources.model_files import is_gguf
from gpumon.specs.gguf import GgufHeader, Tensor
from gpumon.specs.llm_gguf import llm_from_gguf
from tests.sources.gguf_writer import head, text, value, write

DATA = Path(__file__).parents[1] / "data"
REAL = gzip.decompress((DATA / "gguf" / "tiny-llama.header.gz").read_bytes())
"""What stands before the weights of the tiny Llama, written by llama.cpp's gguf 0.19."""
SMALL = GgufHeader(
    {
        "general.architecture": "llama",
        "llama.block_count": 2,
        "a": -3,
        "b": True,
        "c": 1.5,
        "d": [1, 2, 3],
        "e": ["x", ""],
    },
    (Tensor("token_embd.weight", (256, 1000), 12), Tensor("blk.0.attn_q.weight", (256, 256, 2), 1)),
)


def served() -> dict[str, int]:
    """What the llama.cpp server that served this file said of it in `/v1/models`."""
    page = (DATA / "captures" / "endpoints" / "llamacpp-endpoints.txt").read_text("utf-8")
    body = page.split("== /v1/models\n", 1)[1].split("\n\n", 1)[1].splitlines()[0]
    meta: dict[str, int] = json.loads(body)["data"][0]["meta"]
    return meta


def put(path: Path, body: bytes) -> Path:
    path.write_bytes(body)
    return path


def test_a_file_of_llama_cpp_has_the_figures_that_its_server_tells(tmp_path: Path) -> None:
    found, meta = read_gguf(put(tmp_path / "tiny-llama.gguf", REAL)), served()
    assert sum(tensor.elements for tensor in found.tensors) == meta["n_params"] == 19_335_424
    assert sum(tensor.bytes for tensor in found.tensors) == meta["size"] == 38_675_456
    spec = llm_from_gguf(found, "tiny-llama", "here")
    assert (spec.params, spec.stored_bytes) == (meta["n_params"], meta["size"])
    assert (spec.vocab, spec.hidden) == (meta["n_vocab"], meta["n_embd"])
    assert (spec.layers, spec.heads, spec.kv_heads, spec.head_dim) == (4, 8, 4, 32)
    assert "tokenizer.ggml.tokens" not in found.metadata
    assert found.metadata["general.name"] == "tiny-llama"


@pytest.mark.parametrize("version", [2, 3])
def test_what_was_written_is_read(tmp_path: Path, version: int) -> None:
    body = head(SMALL.metadata, SMALL.tensors, version)
    assert read_gguf(put(tmp_path / "x.gguf", body + b"weights")) == SMALL
    assert is_gguf(tmp_path / "x.gguf")


def test_the_parts_of_a_split_model_are_read_together(tmp_path: Path) -> None:
    first = write(tmp_path / "big.gguf", SMALL, parts=2)
    found = read_gguf(first)
    assert sorted(found.tensors) == sorted(SMALL.tensors)
    assert found.metadata["llama.block_count"] == 2
    assert read_gguf(first.with_name("big-00002-of-00002.gguf")).tensors == found.tensors
    first.with_name("big-00002-of-00002.gguf").unlink()
    with pytest.raises(OSError, match="00002-of-00002"):
        read_gguf(first)
    with pytest.raises(ValueError, match="has 99999 parts"):
        read_gguf(put(tmp_path / "x-00001-of-99999.gguf", REAL))


def test_long_arrays_are_walked_and_not_kept(tmp_path: Path) -> None:
    """A vocabulary of 100,000 words, some of them longer than a read, between keys that are kept."""
    words = [f"word{index}" for index in range(100_000)]
    words[7], words[99_999] = "x" * 3_000_000, "y" * 1_500_000
    long: dict[str, object] = {
        "before": 1,
        "tokens": words,
        "scores": [0.5] * 100_000,
        "template": "t" * 50_000,
        "after": 2,
    }
    found = read_gguf(put(tmp_path / "x.gguf", head(long, SMALL.tensors)))
    assert found == GgufHeader({"before": 1, "after": 2}, SMALL.tensors)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "ends before it is complete"),
        (b"GGML" + bytes(100), "is no GGUF file"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "is GGUF version 1"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0), "tensors, more than"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**62), "has a text of"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<I", 99), "type 99, which is not known"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<IIQ", 9, 4, 2**50), "an array of"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<IIQ", 9, 9, 5000), "values of type 9"),
        (
            b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 9,
            "at depth",
        ),
        (b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + text("t") + struct.pack("<I", 0), "has 0 dimensions"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + text("t") + struct.pack("<IQ", 1, 2**60), "has shape"),
        (head({"k": "v"}, SMALL.tensors)[:-1], "ends before it is complete: a download that was cut off?"),
    ],
)
def test_what_is_wrong_is_named_with_the_file(tmp_path: Path, body: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=r"x\.gguf") as error:
        read_gguf(put(tmp_path / "x.gguf", body))
    assert problem in str(error.value)


def test_no_more_than_the_limit_is_read(tmp_path: Path) -> None:
    """A sparse file of which a text claims 40 MB, and then another: the file is not read on and on."""
    path = tmp_path / "x.gguf"
    length = MOST_HEADER_BYTES - 100
    with path.open("wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + text("a") + struct.pack("<IQ", 8, length))
        file.seek(length, os.SEEK_CUR)
        file.write(text("b") + value("x" * 1000))
        file.truncate(4 * MOST_HEADER_BYTES)
    with pytest.raises(ValueError, match="is longer than"):
        read_gguf(path)


def hostile(item: bytes, kind: int, count: int) -> bytes:
    """A header as long as is read, full of arrays that are short enough to be kept."""
    array = struct.pack("<IIQ", 9, kind, count) + item * count
    keys = MOST_HEADER_BYTES // (len(array) + 16)
    return b"GGUF" + struct.pack("<IQQ", 3, 0, keys) + b"".join(text(f"{key:06d}") + array for key in range(keys))


@pytest.mark.parametrize(
    ("item", "kind", "count"),
    [
        (struct.pack("<H", 1000), 2, 4096),
        (text("ab"), 8, 4096),
        (text("a" * 4000 + "\U0001f600"), 8, 1),
    ],
    ids=["numbers", "texts", "wide texts"],
)
def test_a_header_that_would_take_much_memory_is_refused(tmp_path: Path, item: bytes, kind: int, count: int) -> None:
    put(tmp_path / "x.gguf", hostile(item, kind, count))
    with pytest.raises(ValueError, match=r"has more than 16777216 bytes of values and tensors"):
        read_gguf(tmp_path / "x.gguf")


BODY = head(SMALL.metadata, SMALL.tensors)
LOOSE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@LOOSE
@given(st.integers(4, len(BODY) - 1), st.binary(min_size=1, max_size=12))
@example(24, b"\xff" * 8)
def test_any_damage_gives_a_header_or_a_reason(tmp_path: Path, at: int, damage: bytes) -> None:
    path = put(tmp_path / "x.gguf", BODY[:at] + damage + BODY[at + len(damage) :])
    with suppress(ValueError):
        found = read_gguf(path)
        assert isinstance(found, GgufHeader)
        llm_from_gguf(found, "m", "x.gguf")
    assert path.exists()
