"""How the tests are run: nothing that one leaves behind ends pytest, and those that wait begin first."""

from __future__ import annotations

import ast
import gc
import subprocess
import sys
from pathlib import Path

from tests.conftest import KINDS, WAITING, WORKING
from tests.schedule import PARTS


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
    assert all(path.exists() for path in (*WAITING, *WORKING, *map(Path, PARTS)))
    assert list(WAITING.values()) == sorted(WAITING.values(), reverse=True)


def test_each_module_is_in_one_of_the_two_runs() -> None:
    collected = {}
    for kind in KINDS:
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "--waiting", kind, "tests/history"]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        collected[kind] = {line.partition("::")[0] for line in listed.splitlines() if "::" in line}
    everything = {f"tests/history/{path.name}" for path in Path("tests/history").glob("test_*.py")}
    assert collected == {"only": {"tests/history/test_kill.py"}, "none": everything - {"tests/history/test_kill.py"}}


ENDLESS = """
from hypothesis import given, strategies

@given(strategies.integers())
def test_that_never_ends(number):
    while True:
        pass

def test_after_it():
    pass
"""


def test_a_property_that_never_ends_names_itself_and_the_next_test_runs(tmp_path: Path) -> None:
    """Hypothesis takes pytest's timeout for a failing example, and shrinks it: the loop begins again."""
    (tmp_path / "pytest.ini").write_text("[pytest]\ntimeout = 1.0\n")
    (tmp_path / "conftest.py").write_text("from tests.hangs import *\nfrom tests.schedule import *\n")
    (tmp_path / "test_endless.py").write_text(ENDLESS)
    command = [sys.executable, "-m", "pytest", "-n", "1", "--dist", "loadfile", "-W", "ignore", "-p", "no:asyncio"]
    run = subprocess.run(
        [*command, "-p", "no:cacheprovider", f"--rootdir={tmp_path}", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert "crashed while running 'test_endless.py::test_that_never_ends'" in run.stdout
    assert "1 failed, 1 passed" in run.stdout
    assert "in test_that_never_ends" in run.stderr, "the stack"
