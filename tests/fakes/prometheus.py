"""A real Prometheus for tests: Debian's package, from the PATH or from .venv/prometheus (tests/fakes/prometheus.sh)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from tests.fakes.ports import free_port as free_port  # for the tests that start it

ROOT = Path(__file__).parent.parent.parent
FETCHED = ROOT / ".venv" / "prometheus" / "usr" / "bin"


SHORT_LIVED = {"GOMAXPROCS": "2", "GOGC": "400", "GOMEMLIMIT": "400MiB"}
"""Environment of a server of some seconds: garbage that is collected a quarter as often saves a sixth of its time."""


def binary(name: str) -> str:
    """Path of `prometheus` or `promtool`. A missing one is an error with the fix: nothing is skipped."""
    found = shutil.which(name) or (str(FETCHED / name) if (FETCHED / name).exists() else None)
    assert found, f"{name} is missing: apt-get install prometheus, or tests/fakes/prometheus.sh .venv/prometheus"
    return found


def wait_until_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Wait until a server that was just started answers 200 at `url`; a server that ends, or does not within a minute,
    fails with its log."""
    end_s = time.monotonic() + 60.0
    while time.monotonic() < end_s:
        assert process.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(url, timeout=1.0) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(f"{log.stem} is not ready: {log.read_text()}")


def promtool(*arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run promtool; its exit status is the caller's to judge."""
    command, env = [binary("promtool"), *arguments], {**os.environ, "GOGC": "off"}  # it is over before that pays
    return subprocess.run(command, env=env, input=text, capture_output=True, text=True, timeout=600, check=False)


class Prometheus:
    """A server with its data in `folder`. `scrapes` are YAML items of scrape_configs, as text; a context manager."""

    def __init__(
        self,
        folder: Path,
        scrapes: Sequence[str] = (),
        *,
        interval: str = "1s",
        rules: Sequence[Path] = (),
        extra: Sequence[str] = (),
    ) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._folder = folder
        self._log = folder / "prometheus.log"
        lines = [f"global: {{scrape_interval: {interval}, evaluation_interval: {interval}}}"]
        if rules:
            lines.append(f"rule_files: {json.dumps([str(rule) for rule in rules])}")
        if scrapes:
            lines += ["scrape_configs:", *scrapes]
        (folder / "prometheus.yml").write_text("\n".join(lines) + "\n")
        self._extra = extra
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the server."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Prometheus:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    binary("prometheus"),
                    f"--config.file={self._folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self._folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                    "--log.level=warn",
                    *self._extra,
                ],
                stdout=log,
                stderr=log,
                env={**os.environ, **SHORT_LIVED},
            )
        wait_until_ready(self._process, f"{self.url}/-/ready", self._log)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(60.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def query(self, promql: str, at_s: float | None = None) -> list[dict[str, object]]:
        """The result of an instant query: for tests that want to see what it stores."""
        from urllib.parse import urlencode

        asked = {"query": promql} | ({} if at_s is None else {"time": str(at_s)})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{urlencode(asked)}", timeout=60.0) as answer:
            result: list[dict[str, object]] = json.load(answer)["data"]["result"]
        return result

    def until(self, promql: str, *, results: int = 1, timeout_s: float = 60.0) -> list[dict[str, object]]:
        """Wait until a query has so many results."""
        end_s = time.monotonic() + timeout_s
        while len(found := self.query(promql)) < results:
            assert time.monotonic() < end_s, f"{promql}: {len(found)} results after {timeout_s:g} s"
            time.sleep(0.25)
        return found
