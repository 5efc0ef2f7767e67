"""docs/triage.md has a row for each verdict."""

from __future__ import annotations

from pathlib import Path

from gpumon.triage.rules import CAUSES
from tests.each_row import each_row

PAGE = (Path(__file__).parents[2] / "docs" / "triage.md").read_text(encoding="utf-8")


@each_row("cause", sorted(CAUSES))
def test_each_cause_has_a_row(cause: str) -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")]
    assert any(f"`{cause}`" in row or f"({cause})" in row for row in rows), f"docs/triage.md has no row with ({cause})"
