"""How the tests are run: nothing that one leaves behind ends pytest, and those that wait begin first."""

from __future__ import annotations

import ast
import gc

from tests.conftest import WAITING


class Parser:
    """Garbage of which the finalizer parses, as formatting a traceback does."""

    finalized = 0

    def __init__(self) -> None:
        self.cycle = self

    def __del__(self) -> None:
        Parser.finalized += 1
        ast.parse("1")


def test_no_garbage_is_collected_while_a_source_is_parsed() -> None:
    """CPython 3.11.7 raises SystemError from the outer `ast.parse` otherwise."""
    source = "figures = [1, 2, 3]\n" * 1000
    thresholds = gc.get_threshold()
    gc.set_threshold(20, 1, 1)
    try:
        Parser()
        tree = ast.parse(source)
        finalized_meanwhile = Parser.finalized
    finally:
        gc.set_threshold(*thresholds)
    assert len(tree.body) == 1000
    assert finalized_meanwhile == 0
    gc.collect()
    assert Parser.finalized == 1


def test_modules_that_wait_begin_first() -> None:
    assert all(path.exists() for path in WAITING)
    assert list(WAITING.values()) == sorted(WAITING.values(), reverse=True)
