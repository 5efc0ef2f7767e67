"""The file of a recording: where it lies, its names, and the lock beside it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpumon.config.errors import ConfigError
from gpumon.history.file import is_remote_path, make_recording
from gpumon.history.recorder import Recorder
from tests.history.ticks import FACTS


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "r.sqlite.lock").symlink_to(victim)
    with pytest.raises(ConfigError, match=r"r\.sqlite\.lock: is a link, not the lock of a recording: remove it"):
        Recorder(tmp_path / "r.sqlite", FACTS)
    assert victim.read_text() == "precious"


def test_a_file_of_two_names_is_refused(tmp_path: Path) -> None:
    one, other = tmp_path / "one.sqlite", tmp_path / "other.sqlite"
    make_recording(one, FACTS)
    os.link(one, other)
    for path in (one, other):
        with pytest.raises(ConfigError, match="has more than one name"):
            Recorder(path, FACTS)
    other.unlink()
    Recorder(one, FACTS).close()


def test_the_name_it_was_made_under_goes(tmp_path: Path) -> None:
    """A gpumon that is killed just after the file appeared leaves it."""
    path = tmp_path / "r[1].sqlite"
    make_recording(path, FACTS)
    os.link(path, tmp_path / ".r[1].sqlite.0123456789ab.new")
    Recorder(path, FACTS).close()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", ["nfs4", "virtiofs", "wekafs", "gfs2", "fuse.sshfs"])
def test_file_systems_of_other_machines_are_known(tmp_path: Path, kind: str) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nthere {tmp_path} {kind} rw 0 0\n")
    assert is_remote_path(tmp_path / "r.sqlite", mounts)
    assert not is_remote_path(Path("/r.sqlite"), mounts)
