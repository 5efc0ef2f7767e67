"""The screen uses Textual's public parts alone: it runs on every release of its major version."""

from __future__ import annotations

import ast
from pathlib import Path

import textual
from textual.app import App
from textual.driver import Driver
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

TUI = Path(__file__).resolve().parents[2] / "gpumon" / "tui"
SOURCES = sorted(TUI.rglob("*.py"))
_INSTALLED = Path(textual.__file__).parent
_OF_ANY = set(dir(object))


def private_names() -> set[str]:
    """Names with one underscore that Textual's own classes define, set or read on themselves."""
    names: set[str] = set()
    for name in ("app", "screen", "widget", "dom", "message_pump", "driver", "strip", "drivers/linux_driver"):
        tree = ast.parse((_INSTALLED / f"{name}.py").read_text(encoding="utf-8"))
        names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        names |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    for kind in (App, Driver, Screen, Strip, Widget):
        names |= set(dir(kind))
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def test_no_private_part_of_textual_is_used() -> None:
    private = private_names()
    assert {"_compositor", "_size_updated", "_writer_thread", "_render_cache"} <= private
    used = []
    for path in SOURCES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if "textual" not in path.read_text(encoding="utf-8"):
            continue
        for node in ast.walk(tree):
            at = f"{path.relative_to(TUI)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("textual"):
                parts = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
                used += [f"{at} {part}" for part in parts if part.startswith("_")]
            elif isinstance(node, ast.Attribute) and node.attr in private:
                used.append(f"{at} {node.attr}")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in private:
                used.append(f"{at} {node.name}")
    assert used == []
