"""The file that a webhook keeps."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gpumon.push.records import KeptState
from gpumon.push.store import WebhookStore


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version":99}', None])
def test_a_damaged_file_and_a_folder_in_its_place_count_as_nothing_kept(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "file.json"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    assert WebhookStore(path).read() == KeptState()


@contextlib.contextmanager
def no_room() -> Iterator[None]:
    """No file of this process may grow, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_start_on_a_full_disk_goes_on_with_what_was_kept_and_writes_once_there_is_room(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    earlier = WebhookStore(path)
    assert earlier.take()
    earlier.write(msgspec.json.encode(KeptState(number=7)))
    earlier.release()
    store = WebhookStore(path)
    with no_room():
        assert store.take()
        with pytest.raises(OSError, match="File too large"):
            store.write(b"{}")
    assert store.read().number == 7
    assert not WebhookStore(path).take()
    store.write(msgspec.json.encode(KeptState(number=8)))
    assert store.read().number == 8
    store.release()
    assert WebhookStore(path).take()
