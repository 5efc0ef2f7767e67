"""With whose rights model files are opened, and which links are followed: real users, links and file systems."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.sources.checked_open import NotTheModelsError, allowed, open_file
from gpumon.sources.file_views import FileSystemView
from gpumon.sources.model_facts import ModelLookUp, look_up
from gpumon.sources.model_files import model_folders
from gpumon.sources.packaged import llm_catalogue
from gpumon.sources.reading_user import ReadingUser

LLAMA = json.loads((Path(__file__).parents[1] / "data" / "model_configs.json").read_text("utf-8"))["Llama-3.1-8B"]
OTHER = 54321
TEAM = 54322
DIGEST = "0123456789abcdef0123456789abcdef01234567"

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user as well")


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that everybody may read."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


def ask(folder: Path, reader: ReadingUser | None = None) -> ModelLookUp:
    """What is known of a model that was loaded from this folder, whose name the catalogue knows."""
    return look_up("served", str(folder), (), llm_catalogue(), (FileSystemView(reader=reader),))


def named_like_another(place: Path, config: Path) -> Path:
    """A folder whose name is in the catalogue, with a link to this file for its config."""
    folder = place / "Qwen3-8B"
    folder.mkdir()
    (folder / "config.json").symlink_to(config)
    return folder


@pytest.mark.parametrize("reader", [None, ReadingUser(OTHER)])
@pytest.mark.parametrize("mode", [0o644, 0o600])
def test_a_link_out_of_the_models_folder_is_refused_and_the_folders_name_does_not_stand_in(
    place: Path, reader: ReadingUser | None, mode: int
) -> None:
    config = place / "llama.json"
    config.write_text(json.dumps(LLAMA))
    config.chmod(mode)
    facts = ask(named_like_another(place, config), reader)
    assert facts.spec is None
    assert "Qwen3-8B/config.json: is a link out of the model's folder" in facts.why


@pytest.mark.parametrize("target", ["/proc/self/environ", "/dev/null", "/sys/kernel/notes"])
@pytest.mark.parametrize("reader", [None, ReadingUser(OTHER)])
def test_a_file_of_the_kernel_is_refused_and_the_folders_name_does_not_stand_in(
    place: Path, target: str, reader: ReadingUser | None
) -> None:
    facts = ask(named_like_another(place, Path(target)), reader)
    assert facts.spec is None
    assert "holds no models" in facts.why


def test_without_a_file_the_folders_name_does(place: Path) -> None:
    (place / "Qwen3-8B").mkdir()
    spec = ask(place / "Qwen3-8B").spec
    assert spec is not None
    assert spec.source == "catalogue row Qwen3-8B"


def hub_blob(place: Path, name: str = DIGEST, repository: str = "models--meta-llama--Llama-3.1-8B") -> Path:
    blobs = place / "hub" / repository / "blobs"
    blobs.mkdir(parents=True)
    (blobs / name).write_text(json.dumps(LLAMA))
    return blobs / name


@pytest.mark.parametrize("reader", [None, ReadingUser(OTHER)])
@pytest.mark.parametrize("name", [DIGEST, f"{DIGEST}{DIGEST[:24]}"])
def test_links_of_a_local_dir_download_lead_into_the_cache(place: Path, reader: ReadingUser | None, name: str) -> None:
    spec = ask(named_like_another(place, hub_blob(place, name)), reader).spec
    assert spec is not None
    assert (spec.layers, spec.vocab) == (LLAMA["num_hidden_layers"], LLAMA["vocab_size"])
    assert spec.source == f"{place}/Qwen3-8B/config.json"


@pytest.mark.parametrize(
    ("name", "repository"), [("config", "models--a--b"), (DIGEST, "others"), (f"{DIGEST}0", "models--a--b")]
)
def test_no_other_file_is_taken_for_one_of_the_cache(place: Path, name: str, repository: str) -> None:
    assert "is a link out of" in ask(named_like_another(place, hub_blob(place, name, repository))).why


@needs_root
def test_a_link_into_the_cache_of_another_user_is_refused(place: Path) -> None:
    """Whoever makes a link could else have files of others read."""
    blob = hub_blob(place)
    folder = named_like_another(place, blob)
    os.chown(folder / "config.json", OTHER, OTHER, follow_symlinks=False)
    assert "is a link out of" in ask(folder).why
    os.chown(blob, OTHER, OTHER)
    assert ask(folder).spec is not None
    blob.chmod(0o600)
    assert ask(folder, ReadingUser(OTHER)).spec is not None
    assert ask(folder, ReadingUser(OTHER + 1)).spec is None


@needs_root
@pytest.mark.parametrize(
    ("mode", "owner", "group", "reader", "may"),
    [
        (0o640, 0, TEAM, ReadingUser(OTHER, frozenset({TEAM})), True),
        (0o640, 0, TEAM, ReadingUser(OTHER, frozenset({TEAM + 1})), False),
        (0o604, 0, TEAM, ReadingUser(OTHER, frozenset({TEAM})), False),
        (0o604, 0, TEAM, ReadingUser(OTHER), True),
        (0o044, OTHER, TEAM, ReadingUser(OTHER, frozenset({TEAM})), False),
        (0o400, OTHER, TEAM, ReadingUser(OTHER), True),
        (0o400, OTHER, TEAM, ReadingUser(TEAM, frozenset({OTHER})), False),
    ],
)
def test_a_file_is_opened_as_the_kernel_would_for_that_user(
    place: Path, mode: int, owner: int, group: int, reader: ReadingUser, may: bool
) -> None:
    """Compared with a process that is that user."""
    path = place / "config.json"
    path.write_text("{}")
    os.chown(path, owner, group)
    path.chmod(mode)
    groups = sorted(reader.gids)
    code = (
        f"import os; os.setgroups({groups}); os.setgid(60000); os.setuid({reader.uid})\n"
        f"try:\n    open({str(path)!r}).close(); print(True)\nexcept PermissionError:\n    print(False)"
    )
    kernel = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert kernel == str(may)
    if may:
        open_file(path, reader).close()
    else:
        with pytest.raises(PermissionError, match="may not read it"):
            open_file(path, reader)


@needs_root
def test_a_folder_that_a_group_may_pass_is_passed_by_it_alone(place: Path) -> None:
    folder = place / "team"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    os.chown(folder, 0, TEAM)
    folder.chmod(0o710)
    open_file(folder / "config.json", ReadingUser(OTHER, frozenset({TEAM}))).close()
    with pytest.raises(PermissionError, match="may not read it"):
        open_file(folder / "config.json", ReadingUser(OTHER, frozenset()))


MOUNTED = """
import ctypes, os, subprocess, sys
from pathlib import Path
from gpumon.sources.checked_open import NotTheModelsError, open_file

libc = ctypes.CDLL(None, use_errno=True)
assert libc.unshare(0x00020000) == 0
subprocess.run(["mount", "--make-rprivate", "/"], check=True)
for kind in ("proc", "sysfs"):
    folder = Path(sys.argv[1], kind)
    folder.mkdir()
    subprocess.run(["mount", "-t", kind, kind, folder], check=True)
for path in ("proc/version", "sysfs/kernel/notes"):
    try:
        open_file(Path(sys.argv[1], path)).close()
        print("opened")
    except NotTheModelsError as error:
        print(error.strerror)
"""


@needs_root
def test_a_file_system_of_the_kernel_is_known_wherever_it_is_mounted(place: Path) -> None:
    done = subprocess.run([sys.executable, "-c", MOUNTED, str(place)], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["is no regular file"] * 2, done.stderr


@pytest.mark.parametrize("kind", ["fifo", "folder"])
def test_what_is_no_regular_file_is_not_opened(place: Path, kind: str) -> None:
    path = place / "config.json"
    if kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(NotTheModelsError, match="is no regular file"):
        open_file(path)


@pytest.mark.parametrize("way", ["{}/m/../m", "{}/../{name}/m", "{}/m/..//m/"])
def test_a_path_with_two_dots_opens_nothing(place: Path, way: str) -> None:
    (place / "m").mkdir()
    (place / "m" / "config.json").write_text("{}")
    name = way.format(place, name=place.name)
    assert Path(name, "config.json").exists()
    assert not allowed(name)
    assert list(model_folders(name, FileSystemView())) == []
    assert list(model_folders(str(place / "m"), FileSystemView())) == [place / "m"]
