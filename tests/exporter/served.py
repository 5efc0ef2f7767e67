"""`gpumon serve-metrics` as a process of its own, and what its pages hold."""

from __future__ import annotations

import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from prometheus_client.openmetrics.parser import text_string_to_metric_families as modern_families
from prometheus_client.parser import text_string_to_metric_families as classic_families

from gpumon.readings.exported import ExportedSample
from tests.program import started, user_environment

MODERN = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"


class Got(NamedTuple):
    """An answer."""

    status: int
    body: bytes
    headers: Mapping[str, str]


def quiet(folder: Path, **more: str) -> dict[str, str]:
    """No config of the user, no setting of the caller."""
    return user_environment(folder, PYTHONUNBUFFERED="1", **more)


def quick(folder: Path, **more: str) -> dict[str, str]:
    """The same, with engines that are polled twice a second."""
    settings = folder / ".config" / "gpumon"
    settings.mkdir(parents=True, exist_ok=True)
    (settings / "config.toml").write_text("[general]\nengine_interval_s = 0.5\n")
    return quiet(folder, **more)


def get(
    url: str, *, tls: ssl.SSLContext | None = None, method: str = "GET", timeout_s: float = 30.0, **headers: str
) -> Got:
    """One request; an error status is an answer, too."""
    request = urllib.request.Request(url, method=method, headers={k.replace("_", "-"): v for k, v in headers.items()})
    try:
        with urllib.request.urlopen(request, timeout=timeout_s, context=tls) as answer:
            return Got(answer.status, answer.read(), dict(answer.headers))
    except urllib.error.HTTPError as refused:
        return Got(refused.code, refused.read(), dict(refused.headers))


def modern(page: bytes) -> list[ExportedSample]:
    """The samples of an OpenMetrics page, as prometheus-client reads it."""
    families = modern_families(page.decode())
    return [ExportedSample(one.name, one.labels, one.value) for family in families for one in family.samples]


def classic(page: bytes) -> list[ExportedSample]:
    """The samples of a classic page."""
    families = classic_families(page.decode())
    return [ExportedSample(one.name, one.labels, one.value) for family in families for one in family.samples]


def ups(page: list[ExportedSample]) -> dict[tuple[str, str], float]:
    """Source and name -> whether it is up."""
    return {(one.labels["source"], one.labels["name"]): one.value for one in page if one.name == "gpumon_source_up"}


class Served:
    """A running server; a context manager that ends it by SIGTERM."""

    def __init__(self, env: Mapping[str, str], *arguments: str) -> None:
        self._env = dict(env)
        self._arguments = arguments
        self.lines: list[str] = []
        """What it said until it was ready."""
        self.url = ""
        self.code: int | None = None

    def __enter__(self) -> Served:
        self._process = started(
            [
                sys.executable,
                "-m",
                "gpumon",
                "serve-metrics",
                "--listen",
                "127.0.0.1:0",
                "--no-discovery",
                *self._arguments,
            ],
            env=self._env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert self._process.stdout is not None
        while not self.url:
            line = self._process.stdout.readline()
            assert line, self.lines
            self.lines.append(line.rstrip("\n"))
            if found := re.search(r"serving metrics at (https?://\S+)/metrics;", line):
                self.url = found[1]
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """End it; its exit code and what it said since it was ready."""
        if self.code is None:
            self._process.send_signal(number)
            try:
                rest, _ = self._process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                self._process.kill()
                raise
            self.code, self._rest = self._process.returncode, rest
        return self.code, self._rest

    def line(self) -> str:
        """The next line that it says."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def page(self) -> list[ExportedSample]:
        """The samples of now."""
        return modern(get(f"{self.url}/metrics", Accept=MODERN).body)

    def until(self, true: Callable[[list[ExportedSample]], object], timeout_s: float = 60.0) -> list[ExportedSample]:
        """The first page of which something is true."""
        end_s = time.monotonic() + timeout_s
        while not true(page := self.page()):
            assert time.monotonic() < end_s, (ups(page), sorted({one.name for one in page}))
            time.sleep(0.25)
        return page
