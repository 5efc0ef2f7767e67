"""Paths of another process's file system: where its links lead, on real ones below a root of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.sources.checked_open import MOST_PATH_PARTS, entries, is_file, open_file
from gpumon.sources.file_views import root_of, view
from gpumon.sources.model_files import gguf_paths, model_folders, snapshots
from tests.sources.discovery.test_namespaces import permitted
from tests.sources.gguf_writer import write
from tests.specs.gguf_tables import BF16, header, matrices

JAILED = "import os, sys; os.chroot(sys.argv[1]); print('in', flush=True); sys.stdin.read()"

pytestmark = pytest.mark.skipif(not permitted("chroot", "/"), reason="another root is not permitted here (needs root)")


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """The root of a process that has one of its own, as it is seen from here; `secret` lies beside and on the host."""
    jail = tmp_path / "jail"
    (jail / "models" / "m").mkdir(parents=True)
    (jail / "models" / "m" / "config.json").write_text("inside")
    (tmp_path / "secret").write_text("outside")
    with subprocess.Popen(
        [sys.executable, "-c", JAILED, str(jail)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"in\n"
        yield Path(root_of(process.pid))
        process.communicate()


@pytest.mark.parametrize(
    "target",
    ["/models/m", "models/m", "../../../models/m", "/../models/./m", "/models/m/../m", "/again", "/models//m/"],
)
def test_a_link_leads_where_it_leads_that_process(root: Path, target: str) -> None:
    (root / "again").symlink_to("models/m")
    (root / "link").symlink_to(target)
    assert is_file(root / "link" / "config.json")
    with open_file(root / "link" / "config.json") as file:
        assert file.read() == b"inside"
    assert [each.name for each in entries(root / "link", 9)] == ["config.json"]
    assert list(model_folders("/link", view({}, str(root)))) == [root / "link"]


@pytest.mark.parametrize("way", ["{}", "../secret", "/../../secret", "/proc/1/root{}", "/proc/self/root{}"])
def test_no_link_leads_out(root: Path, tmp_path: Path, way: str) -> None:
    (root / "proc" / "1").mkdir(parents=True)
    (root / "proc" / "1" / "root").symlink_to("/")
    (root / "link").symlink_to(way.format(tmp_path / "secret"))
    (root / "folder").symlink_to(way.format(tmp_path))
    assert not is_file(root / "link")
    assert entries(root / "folder", 9) == []
    with pytest.raises(OSError, match=r"No such file|holds no models"):
        open_file(root / "link")


def test_a_magic_link_leads_nowhere(root: Path, tmp_path: Path) -> None:
    """`/proc/self/root` of this host's own /proc, as a mount of it in a container has it."""
    mounted = Path(root_of(os.getpid())) / "proc" / "self" / "root"
    with pytest.raises(PermissionError, match="holds no models"):
        open_file(Path(f"{mounted}{tmp_path}/secret"))


def test_links_that_never_end_are_an_error_and_leave_nothing_open(root: Path) -> None:
    (root / "round").symlink_to("/round")
    (root / "long").symlink_to("/models/../" * 300 + "models/m")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for name in ("round", "long", "/".join([".."] * (MOST_PATH_PARTS + 1))):
        assert not is_file(root / name / "config.json")
        with pytest.raises(OSError, match="Too many levels"):
            open_file(root / name)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_a_cache_and_a_gguf_file_behind_links_are_found(root: Path) -> None:
    cache = root / "workspace" / "hub"
    (cache / "models--a--b" / "snapshots" / "one").mkdir(parents=True)
    write(cache / "tiny.gguf", header({"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 256,
        "num_attention_heads": 4, "intermediate_size": 512, "vocab_size": 1000}, matrices(BF16)))  # fmt: skip
    (root / "cache").symlink_to("/workspace/hub")
    env = {"HF_HUB_CACHE": f"{root}/cache"}
    assert list(snapshots("a/b", view(env))) == [root / "cache" / "models--a--b" / "snapshots" / "one"]
    assert list(gguf_paths("/cache", view(env, str(root)))) == [root / "cache" / "tiny.gguf"]
