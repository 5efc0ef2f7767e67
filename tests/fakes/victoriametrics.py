"""A real VictoriaMetrics for tests: Debian's package, which is of before 1.80."""

from __future__ import annotations

import shutil
import subprocess
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlencode

from tests.fakes.prometheus import free_port, wait_until_ready


def binary() -> str:
    """Path of the server. A missing one is an error with the fix: nothing is skipped."""
    found = shutil.which("victoria-metrics")
    assert found, (
        "victoria-metrics is missing: apt-get install victoria-metrics (Fedora has none: put it into the PATH)"
    )
    return found


class VictoriaMetrics:
    """A server with its data in `folder`, started with `options`; a context manager."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._folder = folder
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> VictoriaMetrics:
        log = self._folder / "victoria-metrics.log"
        address = f"-httpListenAddr=127.0.0.1:{self.port}"
        command = [binary(), address, f"-storageDataPath={self._folder / 'data'}", *self._options]
        with log.open("wb") as written:
            self._process = subprocess.Popen(command, stdout=written, stderr=written)
        wait_until_ready(self._process, f"{self.url}/health", log)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()  # what it has need not be kept
            self._process.wait()

    def load(self, page: bytes, wall_s: float, labels: Mapping[str, str]) -> None:
        """Store a page as scraped at a Unix time from a target with these labels."""
        words = [("timestamp", f"{wall_s * 1e3:.0f}")]
        words += [("extra_label", f"{name}={value}") for name, value in labels.items()]
        url = f"{self.url}/api/v1/import/prometheus?{urlencode(words)}"
        with urllib.request.urlopen(urllib.request.Request(url, page), timeout=60.0) as answer:
            assert answer.status == 204
