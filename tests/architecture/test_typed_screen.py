"""What the screen shows and controls has a type: no part takes `Any`, nor reaches for its screen without a type."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

from tests.architecture.parsed import PACKAGE, nodes_of

SCREEN: Final = PACKAGE / "tui"
FOREIGN: Final = {
    "browser.py": "the signature of Textual's driver",
    "driver.py": "the signature of Textual's driver",
    "settings_table.py": "values of settings, which are read from the config by their name",
}
"""Modules that have `Any`, and why."""


def names(path: Path) -> set[str]:
    """All names that a module uses, and its calls of `getattr` and `cast` on a screen."""
    used = set()
    for node in nodes_of(path):
        if isinstance(node, ast.Name):
            used.add(node.id)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "cast"):
            used.update(f"{node.func.id}({ast.unparse(argument)})" for argument in node.args)
    return used


def test_the_screen_and_its_parts_have_types() -> None:
    paths = sorted(SCREEN.rglob("*.py"))
    assert len(paths) > 100
    of_any = {str(path.relative_to(SCREEN)) for path in paths if "Any" in names(path)}
    assert of_any == set(FOREIGN)
    for path in paths:
        assert not names(path) & {"getattr(self.screen)", "cast(self.screen)", "getattr(self.control)"}, path.name
