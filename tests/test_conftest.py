"""How the tests are run: in forks, of which none takes others along, and those that wait begin first."""

from __future__ import annotations

import ast
import gc
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.conftest import WAITING, WORKING
from tests.schedule import PARTS, TOGETHER, units


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
    assert all(path.exists() for path in (*WAITING, *WORKING, *map(Path, [*PARTS, *TOGETHER])))
    assert list(WAITING.values()) == sorted(WAITING.values(), reverse=True)


def test_a_worker_takes_whole_modules_and_parts_of_long_ones() -> None:
    long = next(iter(PARTS))
    joined, first = next(iter(TOGETHER.items()))
    tests = ["a.py::test_1", "b.py::test_1", "a.py::test_2[x]", f"{joined}::test_1", f"{first}::test_1"]
    assert units(tests) == [[0, 2], [1], [3, 4]]
    cases = [f"{long}::test_{number}[{case}]" for number in range(2) for case in range(40)]
    parts = units(cases)
    assert len(parts) == PARTS[long]
    assert all(place + 40 in part for part in parts for place in part if place < 40), "cases stay together"


ENDLESS = """
from hypothesis import given, strategies

@given(strategies.integers())
def test_that_never_ends(number):
    while True:
        pass

def test_after_it():
    pass
"""

MIXED = """
import os
import warnings

import pytest

def test_that_passes(tmp_path):
    (tmp_path / "file").touch()

def test_that_fails():
    print("what it printed")
    assert 2 + 2 == 5

def test_that_warns():
    warnings.warn("this is deprecated")

@pytest.fixture
def broken():
    yield
    raise ValueError("at its end")

def test_that_ends_badly(broken):
    pass

def test_that_ends_its_process():
    os._exit(3)

def test_behind_it():
    pytest.skip("with a reason")
"""


def test_a_test_that_ends_its_process_or_never_ends_is_named_and_the_others_run(tmp_path: Path) -> None:
    """Hypothesis takes pytest's timeout for a failing example, and shrinks it: the loop begins again."""
    (tmp_path / "pytest.ini").write_text("[pytest]\ntimeout = 0.2\n")
    (tmp_path / "conftest.py").write_text("from tests.hangs import *\nfrom tests.forks import *\n")
    (tmp_path / "test_endless.py").write_text(ENDLESS)
    (tmp_path / "test_mixed.py").write_text(MIXED)
    command = [sys.executable, "-m", "pytest", "--workers", "2", "-rA", "-p", "no:asyncio", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [*command, f"--rootdir={tmp_path}", str(tmp_path)],
        env={**os.environ, "COLUMNS": "500"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert re.search(r"3 failed, 4 passed, 1 skipped, \d warnings, 1 error in", run.stdout)
    outcomes = dict(re.findall(r"^(?:FAILED|ERROR|PASSED) \S*/(test_\S+)(?: - (.*))?$", run.stdout, re.MULTILINE))
    assert outcomes == {
        "test_endless.py::test_that_never_ends": "worker crashed while running 'test_endless.py::test_that_never_ends'",
        "test_endless.py::test_after_it": "",
        "test_mixed.py::test_that_passes": "",
        "test_mixed.py::test_that_fails": "assert (2 + 2) == 5",
        "test_mixed.py::test_that_warns": "",
        "test_mixed.py::test_that_ends_badly": "ValueError: at its end",
        "test_mixed.py::test_that_ends_its_process": (
            "worker crashed while running 'test_mixed.py::test_that_ends_its_process'"
        ),
    }
    assert "what it printed" in run.stdout
    assert "UserWarning: this is deprecated" in run.stdout
    assert "in test_that_never_ends" in run.stderr, "the stack"
