"""The file that a webhook keeps."""

from __future__ import annotations

from pathlib import Path

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
