"""Model files that a server of another user names: opened only as that user could, and never quoted."""

from __future__ import annotations

import asyncio
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpumon.config.schema import Endpoint
from gpumon.readings.frame import EndpointState, EngineReading
from gpumon.sources.attachment import EngineResolver
from gpumon.sources.model_contents import read_weights
from tests.sources.discovery.servers import free_port

LLAMA = json.loads((Path(__file__).parents[1] / "data" / "model_configs.json").read_text("utf-8"))["Llama-3.1-8B"]
SECRET = "swordfish-of-root"
OTHER = 54321
LISTENS = """
import os, socket, sys
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
with socket.create_server(("127.0.0.1", int(sys.argv[1]))):
    print("listens", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def url() -> Iterator[str]:
    """A server of another user. Without root's rights nobody listens there, and the user is not known."""
    port = free_port()
    if os.geteuid() != 0:
        yield f"http://127.0.0.1:{port}"
        return
    words = [sys.executable, "-c", LISTENS, str(port), str(OTHER)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"listens\n"
        yield f"http://127.0.0.1:{port}"
        process.communicate()


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that everybody may read, with one in it that is of this user alone."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        (path / "private").mkdir(mode=0o700)
        (path / "private" / "config.json").write_text(json.dumps({"model_type": SECRET}))
        (path / "private" / "config.json").chmod(0o600)
        (path / "m").mkdir()
        yield path


async def told(url: str, root: Path) -> EngineReading:
    """The engine's reading once its model is known, or known to be unknown."""
    facts = EngineResolver({}, (), None, {"HOME": "/nowhere"})
    reading = EngineReading(
        "e", url, EndpointState.OK, 1.0, model="served", model_root=str(root), info={"identity": "known"}
    )
    end_s = time.monotonic() + 60.0
    while time.monotonic() < end_s:
        attached = facts.attach(reading, ())
        if attached.llm is not None or attached.info.get("model_missing"):
            return attached
        await asyncio.sleep(0.01)
    raise AssertionError("no answer")


def a_link(place: Path) -> Path:
    (place / "m" / "config.json").symlink_to("../private/config.json")
    return place / "m"


def a_hard_link(place: Path) -> Path:
    (place / "m" / "config.json").hardlink_to(place / "private" / "config.json")
    return place / "m"


def a_folder_link(place: Path) -> Path:
    (place / "again").symlink_to(place / "private")
    return place / "again"


def the_folder_itself(place: Path) -> Path:
    return place / "private"


def a_pipe(place: Path) -> Path:
    os.mkfifo(place / "m" / "config.json")
    return place / "m"


def of_the_kernel(place: Path) -> Path:
    (place / "m" / "config.json").symlink_to("/proc/self/environ")
    return place / "m"


def out_of_the_models(place: Path) -> Path:
    """Readable to everybody, and yet none of the model's."""
    (place / "beside.json").write_text(json.dumps({"model_type": SECRET}))
    (place / "m" / "config.json").symlink_to("../beside.json")
    return place / "m"


@pytest.mark.parametrize(
    "forge",
    [a_link, a_hard_link, a_folder_link, the_folder_itself, a_pipe, of_the_kernel, out_of_the_models],
)
async def test_what_that_user_may_not_read_is_not_read(url: str, place: Path, forge: Callable[[Path], Path]) -> None:
    reading = await told(url, forge(place))
    assert reading.llm is None
    assert SECRET not in repr(reading)
    assert reading.info["model_missing"].startswith("unknown model")


async def test_whether_a_hidden_file_is_there_is_not_told(url: str, place: Path) -> None:
    here, absent = place / "private", place / "private" / "absent"
    texts = [(await told(url, each)).info["model_missing"].replace(str(each), "X") for each in (here, absent)]
    assert texts[0] == texts[1]
    assert "may not read it" in texts[0]


async def test_a_path_that_the_config_names_is_read_with_gpumons_own_rights(url: str, place: Path) -> None:
    (place / "private" / "config.json").write_text(json.dumps(LLAMA))
    path = str(place / "private")
    facts = EngineResolver({url: Endpoint(url=url, model=path)}, (), None, {"HOME": "/nowhere"})
    reading = EngineReading("e", url, EndpointState.OK, 1.0, model="served", info={"identity": "known"})
    end_s = time.monotonic() + 60.0
    while (llm := facts.attach(reading, ()).llm) is None and time.monotonic() < end_s:
        await asyncio.sleep(0.01)
    assert llm is not None
    assert llm.source == f"{path}/config.json"


async def test_a_field_that_is_wrong_is_named_without_its_value(url: str, place: Path) -> None:
    for change in ({"model_type": SECRET}, {"num_hidden_layers": SECRET}, {"quantization_config": {"bits": SECRET}}):
        (place / "m" / "config.json").write_text(json.dumps({**LLAMA, **change}))
        text = (await told(url, place / "m")).info["model_missing"]
        assert SECRET not in text
        assert next(iter(change)) in text
        assert "config.json" in text


async def test_a_cache_of_hugging_face_is_read_through_its_links(url: str, place: Path) -> None:
    repository = place / "models--acme--eight"
    snapshot = repository / "snapshots" / "c0ffee"
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    (repository / "blobs" / "abc").write_text(json.dumps(LLAMA))
    (snapshot / "config.json").symlink_to("../../blobs/abc")
    reading = await told(url, snapshot)
    assert reading.llm is not None
    assert reading.llm.source == f"{snapshot}/config.json"


FORGED = """
import resource, sys
from pathlib import Path
from gpumon.sources.model_contents import read_config, read_weights

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

before = peak()
for read in (read_weights, read_config):
    try:
        read(Path(sys.argv[1]))
    except ValueError as error:
        print(error)
print(peak() - before)
"""


def forged(place: Path, header: bytes, config: bytes) -> tuple[list[str], float]:
    """What is said of these files, and the bytes of memory that reading them took."""
    (place / "m" / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    (place / "m" / "config.json").write_bytes(config)
    done = subprocess.run(
        [sys.executable, "-c", FORGED, str(place / "m")], capture_output=True, text=True, timeout=120, check=True
    )
    *said, grown = done.stdout.splitlines()
    return said, float(grown)


def header_of_tensors() -> bytes:
    tensors = (b'"t%d":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]}' % n for n in range(500_000))
    return b"{" + b",".join(tensors) + b"}"


def header_of_brackets() -> bytes:
    return b'{"t":' + b"[" * (8 << 20) + b"]" * (8 << 20) + b"}"


def header_of_metadata() -> bytes:
    return b'{"__metadata__":{' + b",".join(b'"%d":"%d"' % (n, n) for n in range(1_500_000)) + b"}}"


@pytest.mark.parametrize("header", [header_of_tensors, header_of_brackets, header_of_metadata])
def test_a_huge_header_takes_little_memory(place: Path, header: Callable[[], bytes]) -> None:
    said, grown = forged(place, header()[: 32 << 20], b'{"a":[' + b"{}," * 1_300_000 + b"{}]}")
    assert grown < 32e6
    assert any("more values than any model needs" in line for line in said)


def test_a_header_with_many_tensors_counts_them_all(place: Path) -> None:
    tensors = {
        f'layers.{n}.w"': {"dtype": ("F32", "BF16")[n % 2], "shape": [4], "data_offsets": [n, n + 8]}
        for n in range(20_000)
    }
    header = json.dumps({"__metadata__": {"format": "pt", "x": "{[\\"}, **tensors}, indent=1).encode() + b"   "
    (place / "m" / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    assert read_weights(place / "m") == {"F32": 80_000.0, "BF16": 80_000.0}


def test_of_an_index_that_is_longer_than_any_budget_the_total_at_its_beginning_counts(tmp_path: Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    names = b",\n".join(b'    "model.layers.%d.weight": "model-00001-of-00061.safetensors"' % n for n in range(400_000))
    head = b'{\n  "metadata": {\n    "total_size": 594000000000\n  },\n  "weight_map": {\n'
    index.write_bytes(head + names + b"\n}}")
    assert index.stat().st_size > 20 << 20
    assert read_weights(tmp_path) == {"": 594e9}
    index.write_bytes(b'{"weight_map": {\n' + names + b'\n}, "metadata": {"total_size": 1}}')
    with pytest.raises(ValueError, match="larger than"):
        read_weights(tmp_path)
