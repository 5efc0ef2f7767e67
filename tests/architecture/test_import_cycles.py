"""No module imports itself by way of others, not even for a type or within a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.architecture.parsed import MODULES, PACKAGE, nodes_of


def modules() -> dict[str, Path]:
    """Dotted names of all modules, with their files."""
    named = {}
    for path in MODULES:
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        named[".".join(parts).removesuffix(".__init__")] = path
    return named


def imported(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """Modules of the package that a file imports, anywhere in it."""
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module in known:
            for alias in node.names:
                member = f"{node.module}.{alias.name}"
                yield member if member in known else node.module


def reached(start: str, graph: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Modules that a module imports, directly or by way of others."""
    seen: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(graph[name])
    return frozenset(seen)


def test_no_module_imports_itself_by_way_of_others() -> None:
    known = modules()
    graph = {name: frozenset(imported(path, known)) - {name} for name, path in known.items()}
    assert len(graph) > 400
    assert graph["gpumon.cli"] >= {"gpumon.commands.options", "gpumon.config.errors"}
    circular = {name for name in graph if name in reached(name, graph)}
    assert circular == set()
