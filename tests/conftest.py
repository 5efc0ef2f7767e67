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
import signal
import sys
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings

from tests import program, virtual_time
from tests.fakes.nvml.driver import FakeDriver
from tests.hangs import pytest_configure, pytest_runtest_protocol
from tests.schedule import pytest_xdist_make_scheduler

__all__ = ["pytest_configure", "pytest_runtest_protocol", "pytest_xdist_make_scheduler", "virtual_time"]
"""Hooks of pytest, and the clock that has to be there before the program is imported."""


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

# A shell ignores Ctrl+C for what it runs in the background (`make test &`), and so would all programs of the tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

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

WAITS_S: Final = {
    "end_to_end/test_hosts_without_gpumon.py": 50,
    "sources/nvml/test_isolation.py": 45,
    "end_to_end/test_fleet.py": 45,
    "end_to_end/test_hostile_peers.py": 40,
    "end_to_end/test_departures.py": 40,
    "tui/test_process.py": 35,
    "sources/test_nvml_source.py": 35,
    "rules/test_accuracy.py": 30,
    "exporter/test_serve_metrics.py": 30,
    "end_to_end/test_trouble.py": 30,
    "end_to_end/test_terminal_sizes.py": 30,
    "commands/test_fleet.py": 30,
    "sources/nvml/test_faults.py": 25,
    "end_to_end/test_hosts.py": 25,
    "tui/test_slow_line.py": 20,
    "tui/test_fleet_hung.py": 20,
    "sources/test_key_recipient.py": 20,
    "sources/prometheus/test_fleet_source.py": 20,
    "sources/nvml/test_replacement.py": 20,
    "sources/nvml/test_readings.py": 20,
    "end_to_end/test_terminals.py": 20,
    "end_to_end/test_screen.py": 20,
    "commands/test_web.py": 20,
    "end_to_end/test_hostile_user.py": 15,
    "end_to_end/test_fleet_screen.py": 15,
    "end_to_end/test_feeds.py": 15,
    "sources/test_remote.py": 10,
    "sources/test_diagnosis.py": 10,
    "sources/test_dcgm_command.py": 10,
    "sources/test_amd.py": 10,
    "sources/prometheus/test_victoriametrics.py": 10,
    "sources/nvml/test_opening.py": 10,
    "sources/nvml/test_counters.py": 10,
    "rules/test_served.py": 10,
    "end_to_end/test_time_travel.py": 10,
    "architecture/test_walks.py": 10,
    "history/test_kill.py": 5,
    "end_to_end/test_scenarios.py": 5,
    "commands/test_record.py": 5,
}
"""Seconds that the tests of a module wait for real time to pass, if they do little else; longest first."""

KINDS: Final = ("only", "none")
"""Choices of `--waiting`: the modules of WAITS_S alone, or all others."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`make check` runs the modules that wait beside those that work: no worker reads the modules of the others."""
    parser.addoption("--waiting", choices=KINDS, help="run the modules that wait for real time only, or all others")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Whether a module is left to the other run."""
    kind = config.getoption("--waiting")
    if kind is None or collection_path.suffix != ".py":
        return None
    if (collection_path in WAITING) == (kind == "only"):
        return None
    return True


WAITING: Final = {Path(__file__).parent / name: seconds for name, seconds in WAITS_S.items()}

WORKS_S: Final = {
    "accuracy/test_triage.py": 25,
    "commands/test_size.py": 20,
    "accuracy/test_healthy.py": 25,
    "tui/test_sizing_panel.py": 15,
    "tui/test_keys.py": 15,
    "accuracy/test_hostile_pages.py": 10,
}
"""Processor seconds of the dearest modules: they come before the others, so that none of them is the last to run."""

WORKING: Final = {Path(__file__).parent / name: seconds for name, seconds in WORKS_S.items()}

BEHIND: Final = 10
"""Niceness of a worker that computes: it yields to those whose tests keep time."""

# The objects of ten thousand tests all stay: to look through them for garbage, again and again, is a third of the
# time that collecting takes.
gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Modules that wait go first, the longest before all others, then those that work long.

    Workers take whole modules from the head (`--dist loadfile --no-loadscope-reorder`): what a module sets up for all
    of its tests is set up once, and none begins with a long wait when the others are through.
    """
    items.sort(key=lambda item: (-WAITING.get(item.path, 0), -WORKING.get(item.path, 0)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A worker that is done with waiting, or never had to, steps back."""
    item.stash[BEGUN_S] = processor_s()
    if item.path not in WAITING and os.environ.get("PYTEST_XDIST_WORKER") and os.nice(0) < BEHIND:
        os.nice(BEHIND - os.nice(0))


BEGUN_S: Final = pytest.StashKey[float]()
PROCESSOR_S: Final = "processor_s"


def processor_s() -> float:
    """Processor time of this process and of all children that have ended, those of `run_gpumon` among them."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system + program.spent_s()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The report of a test's end has the processor time of all of the test."""
    report = yield
    if call.when == "teardown":
        report.user_properties.append((PROCESSOR_S, processor_s() - item.stash.get(BEGUN_S, 0.0)))
    return report


DEAREST: Final = "GPUMON_DEAREST"
"""Environment variable: how many modules and tests the report lists, dearest first (none if it is not set)."""


class Costs:
    """Seconds that a part of the tests took, by processor time and by time that passed."""

    def __init__(self) -> None:
        self.processor: collections.Counter[str] = collections.Counter()
        self.passed: collections.Counter[str] = collections.Counter()

    def add(self, part: str, report: pytest.TestReport) -> None:
        """Count one report for this part."""
        self.passed[part] += report.duration
        self.processor[part] += dict(report.user_properties).get(PROCESSOR_S, 0.0)

    def lines(self, most: int | None = None, digits: int = 0) -> list[str]:
        """`PART PROCESSOR (PASSED)` of each part, dearest first."""
        return [
            f"{part} {seconds:.{digits}f} ({self.passed[part]:.{digits}f})"
            for part, seconds in self.processor.most_common(most)
        ]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what each folder took, so that the next slow test is seen where it stands."""
    folders = Costs()
    modules = Costs()
    tests = Costs()
    for report in itertools.chain.from_iterable(terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            module = report.nodeid.split("::")[0]
            folders.add("/".join(module.split("/")[:2]), report)
            modules.add(module, report)
            tests.add(report.nodeid, report)
    most = int(os.environ.get(DEAREST, "0"))
    if most:
        terminalreporter.section(f"the {most} dearest modules and tests")
        terminalreporter.write_line("\n".join([*modules.lines(most, 1), "", *tests.lines(most, 2)]))
    if len(folders.passed) > 1:
        terminalreporter.section("by folder, all workers together: seconds of processor time (of time that passed)")
        terminalreporter.write_line("  ".join(folders.lines()))
        terminalreporter.write_line(f"all tests {folders.processor.total():.0f}, without collecting them")


PROGRAMS: Final = "programs"
"""What a worker is told: where the process listens that has loaded the commands, in hexadecimal digits."""


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """One process loads the commands for all workers."""
    node.workerinput[PROGRAMS] = program.address().hex()


def pytest_sessionstart(session: pytest.Session) -> None:
    """A worker asks the process that serves all of them."""
    told = getattr(session.config, "workerinput", {}).get(PROGRAMS)
    if told:
        program.share(bytes.fromhex(told))


def pytest_sessionfinish() -> None:
    """No process of the tests stays."""
    program.close()


def pytest_collection_finish() -> None:
    """From here on garbage is what the tests leave."""
    gc.freeze()
    gc.enable()
