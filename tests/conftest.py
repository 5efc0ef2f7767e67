"""Fixtures that several test folders use."""

from __future__ import annotations

import ast
import atexit
import collections
import functools
import gc
import itertools
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

from tests.fakes.nvml.driver import FakeDriver


@pytest.fixture
def fake_driver(tmp_path: Path) -> FakeDriver:
    """A fake NVIDIA driver whose calls are logged; the test writes its script."""
    return FakeDriver(tmp_path, log=True)


_STATES: Final = tempfile.mkdtemp(prefix="gpumon-states-")
atexit.register(shutil.rmtree, _STATES, ignore_errors=True)
_NUMBERS: Final = itertools.count()
os.environ["XDG_STATE_HOME"] = f"{_STATES}/first"


@pytest.fixture(autouse=True)
def own_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Engines that one test ends are not those of the next one, nor of the user who runs the tests."""
    monkeypatch.setenv("XDG_STATE_HOME", f"{_STATES}/{next(_NUMBERS)}")


# Bytecode is kept, whatever the shell says: hundreds of tests start gpumon, each worker loads hundreds of test modules,
# and to compile them anew each time takes longer than most of what they do then.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Machines are busy and differ: no property test is judged by the clock. The same commit gives the same result: a few
# examples, the same ones each time; `make properties` looks for others, ten times as many.
settings.register_profile("random", deadline=None, max_examples=250, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", settings.get_profile("random"), derandomize=True, max_examples=25)
settings.load_profile("repeatable")


def parse_without_collecting(parse: Callable[..., ast.AST]) -> Callable[..., ast.AST]:
    """Return `ast.parse` with garbage collection off while it runs.

    CPython before 3.11.8 and 3.12.2 keeps the depth of the tree in one place for all calls (gh-106905). A collection
    in the middle of `ast.parse` may run a finalizer that fails or warns, formatting its traceback calls `ast.parse`
    again, and the outer call raises SystemError. pytest parses the source of a test to report its failure: there, the
    error comes outside of the test and ends the worker, and with it the whole run.
    """

    @functools.wraps(parse)
    def parse_alone(*arguments: object, **options: object) -> ast.AST:
        collects = gc.isenabled()
        gc.disable()
        try:
            return parse(*arguments, **options)
        finally:
            if collects:
                gc.enable()

    return parse_alone


ast.parse = parse_without_collecting(ast.parse)

REAL_TIME: Final = (
    (
        "end_to_end/test_screen.py",
        "tui/test_process.py",
        "rules/test_accuracy.py",
        "end_to_end/test_feeds.py",
        "commands/test_web.py",
        "commands/test_record.py",
        "rules/test_served.py",
    ),
    (
        "accuracy/test_families.py",
        "tui/test_slow_line.py",
        "end_to_end/test_terminals.py",
        "end_to_end/test_scenarios.py",
        "history/test_kill.py",
        "end_to_end/test_time_travel.py",
        "end_to_end/test_fleet.py",
        "exporter/test_serve_metrics.py",
    ),
)
"""Modules that mostly wait, for two workers: each waits for its own from the start, while the others compute."""

_LANES: Final = {Path(__file__).parent / name: at for at, names in enumerate(REAL_TIME) for name in names}
_PLACES: Final = {path: place for place, path in enumerate(_LANES)}

BEHIND: Final = 10
"""Niceness of a worker that computes: it yields to the one whose tests keep time."""

# The objects of ten thousand tests all stay: to look through them for garbage, again and again, is a third of the
# time that collecting takes.
gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What waits goes first, at the head of what the first and the second worker get; the rest stays in its order.

    A worker begins with an equal part of the tests, the first with the first of them, and takes from the others' ends
    when it is through.
    """
    lanes: list[list[pytest.Item]] = [[] for _ in REAL_TIME]
    for item in sorted((item for item in items if item.path in _PLACES), key=lambda item: _PLACES[item.path]):
        lanes[_LANES[item.path]].append(item)
    rest = [item for item in items if item.path not in _PLACES]
    share = len(items) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    first = max(0, share - len(lanes[0]))
    items[:] = [*lanes[0], *rest[:first], *lanes[1], *rest[first:]]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A worker that is done with waiting, or never had to, steps back."""
    if item.path not in _PLACES and os.environ.get("PYTEST_XDIST_WORKER") and os.nice(0) < BEHIND:
        os.nice(BEHIND - os.nice(0))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What each folder took, so that the next slow test is seen where it stands."""
    spent: collections.Counter[str] = collections.Counter()
    for report in itertools.chain.from_iterable(terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            spent["/".join(report.nodeid.split("::")[0].split("/")[:2])] += report.duration
    if len(spent) > 1:
        terminalreporter.section("seconds of tests and fixtures by folder, all workers together")
        terminalreporter.write_line("  ".join(f"{folder} {seconds:.0f}" for folder, seconds in spent.most_common()))


def pytest_collection_finish() -> None:
    """From here on garbage is what the tests leave."""
    gc.freeze()
    gc.enable()
