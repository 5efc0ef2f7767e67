"""With whose rights a model's file is opened, and where its path may lead; on real files, folders and file systems."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpumon.sources.checked_open import allowed, open_file
from gpumon.sources.reading_user import ANYBODY, ReadingUser
from tests.sources.discovery.test_namespaces import permitted

READ = 4


def with_mode(path: Path, mode: int) -> os.stat_result:
    """What the system tells of a file with these mode bits."""
    path.write_text("{}")
    path.chmod(mode)
    return path.stat()


@pytest.mark.parametrize(
    ("mode", "owner", "group", "other"),
    [
        (0o400, True, False, False),
        (0o040, False, True, False),
        (0o004, False, False, True),
        (0o640, True, True, False),
        (0o604, True, False, True),
    ],
)
def test_the_bits_of_owner_group_and_others_are_each_their_own(
    tmp_path: Path, mode: int, owner: bool, group: bool, other: bool
) -> None:
    status = with_mode(tmp_path / "config.json", mode)
    stranger = status.st_uid + 1
    members = frozenset({status.st_gid})
    assert ReadingUser(status.st_uid, members).may(status, READ) is owner
    assert ReadingUser(stranger, members).may(status, READ) is group
    assert ReadingUser(stranger, frozenset({status.st_gid + 1})).may(status, READ) is other
    assert ANYBODY.may(status, READ) is other


def test_a_file_of_a_group_is_opened_for_its_members_alone(tmp_path: Path) -> None:
    status = with_mode(tmp_path / "config.json", 0o640)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid():
            folder.chmod(folder.stat().st_mode | 0o111)
    with open_file(tmp_path / "config.json", ReadingUser(status.st_uid + 1, frozenset({status.st_gid}))) as file:
        assert file.read() == b"{}"
    with pytest.raises(PermissionError, match="may not read it"):
        open_file(tmp_path / "config.json", ReadingUser(status.st_uid + 1))


def test_a_link_out_of_the_models_folder_is_refused_and_one_inside_is_followed(tmp_path: Path) -> None:
    model = tmp_path / "m"
    model.mkdir()
    (tmp_path / "beside.json").write_text("beside")
    (model / "real.json").write_text("inside")
    (model / "config.json").symlink_to("real.json")
    (model / "out.json").symlink_to("../beside.json")
    with open_file(model / "config.json", within=model) as file:
        assert file.read() == b"inside"
    with pytest.raises(PermissionError, match="is a link out of the model's folder"):
        open_file(model / "out.json", within=model)
    with open_file(model / "out.json") as file:
        assert file.read() == b"beside"


@pytest.mark.parametrize(
    ("name", "may"),
    [
        ("/models/qwen", True),
        ("Qwen/Qwen3-8B", True),
        ("/models/../etc", False),
        ("../secret", False),
        ("Qwen/..", False),
        ("/proc/self", False),
        ("/sys/x", False),
        ("/dev/shm/m", False),
        ("/models\0x", False),
        ("", False),
        ("/" + "m" * 5000, False),
    ],
)
def test_what_a_server_may_name(name: str, may: bool) -> None:
    assert allowed(name) is may


OPENS = """
import sys
from pathlib import Path
from gpumon.sources.checked_open import open_file
try:
    print(open_file(Path(sys.argv[1])).read(5))
except OSError as refused:
    print(refused)
"""


@pytest.mark.skipif(not permitted("unshare", "--mount"), reason="mounting is not permitted here (needs root)")
def test_a_file_of_the_kernel_is_refused_wherever_it_is_mounted(tmp_path: Path) -> None:
    """Reading one may change something, as of tracefs; `/proc` itself is refused by its name."""
    place = tmp_path / "models"
    place.mkdir()
    (tmp_path / "plain").write_text("plain")
    script = 'mount -t proc proc "$1" && exec "$2" -c "$3" "$1/version"'
    words = ["unshare", "--mount", "sh", "-c", script, "sh", str(place), sys.executable, OPENS]
    mounted = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "is no regular file" in mounted.stdout
    beside = subprocess.run([sys.executable, "-c", OPENS, str(tmp_path / "plain")], capture_output=True, text=True)
    assert beside.stdout == "b'plain'\n"
