"""The real Prometheus that tests start scrapes, answers and ends."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.prometheus import Prometheus, promtool


def test_it_scrapes_itself_and_answers(tmp_path: Path):
    with Prometheus(tmp_path, interval="1s") as idle:
        assert idle.query("vector(3)")[0]["value"][1] == "3"  # type: ignore[index]
    assert promtool("check", "config", str(tmp_path / "prometheus.yml")).returncode == 0
