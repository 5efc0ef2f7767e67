"""The modules of the program, each parsed once for all rules about the code."""

from __future__ import annotations

import ast
import functools
import gc
from pathlib import Path
from typing import Final

import gpumon

PACKAGE: Final = Path(gpumon.__file__).parent
MODULES: Final = tuple(sorted(PACKAGE.rglob("*.py")))


@functools.cache
def _trees() -> dict[Path, ast.Module]:
    """All modules as trees. They stay: to look through them for garbage while they grow takes longer than to parse."""
    gc.disable()
    try:
        trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in MODULES}
    finally:
        gc.enable()
    gc.freeze()
    return trees


def tree_of(path: Path) -> ast.Module:
    """A module as a tree."""
    return _trees()[path]


@functools.cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a module."""
    return tuple(ast.walk(tree_of(path)))
