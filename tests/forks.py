"""`pytest --workers 4`: the tests are collected once, and run in forks of the process that has collected them.

Each fork runs whole modules, or the parts of long ones (tests/schedule.py), and asks for the next one when it is
through. With `--waiters 6` as well, the modules that wait for real time to pass have six forks of their own, and the
other forks yield to them. A test that ends its process is a failure of its own; a new fork goes on behind it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sys
import traceback
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, Final, NamedTuple, NoReturn

import pytest

from tests import program, schedule

WAITS: Final = pytest.StashKey[bool]()
"""Whether a test is of a module that waits for real time rather than computes."""
BEHIND: Final = 10
"""Niceness of forks that compute beside others that keep time."""


class Report(NamedTuple):
    """Setup, call or teardown of a test, as pytest serializes it."""

    fields: dict[str, Any]


class Warned(NamedTuple):
    """A warning that pytest recorded while a test ran."""

    text: str
    category: type[Warning]
    file: str
    line: int
    nodeid: str


class Finished(NamedTuple):
    """A test is through, with its teardown."""


class Idle(NamedTuple):
    """All tests of a unit are through: the fork asks for another unit."""


Unit = Sequence[int]
"""Tests that one fork runs one after the other, by their places in the session."""


class Pool(NamedTuple):
    """Units of one kind, and how the forks that take them run."""

    units: deque[Unit]
    niceness: int


class Fork:
    """A process that runs tests, seen from the one that has collected them."""

    def __init__(self, session: pytest.Session, pool: Pool, number: int, others: Sequence[Fork]) -> None:
        self.pool = pool
        self.pending: deque[int] = deque()
        """Tests of its unit that are not through; it is in the first of them."""
        self.connection, theirs = Pipe()
        sys.stdout.flush()
        self._pid = os.fork()
        if self._pid == 0:
            for connection in (self.connection, *(other.connection for other in others)):
                connection.close()
            _live(session, theirs, pool.niceness, number)
        theirs.close()
        # A process that a test leaves has a copy of the connection: it does not end with the fork.
        self.end = os.pidfd_open(self._pid)

    def assign(self) -> None:
        """Send it the next unit, or that there is none."""
        if self.pool.units:
            self.pending.extend(self.pool.units.popleft())
        with contextlib.suppress(ConnectionError):  # it has ended, which is seen by itself
            self.connection.send(list(self.pending))

    def kill(self) -> None:
        """End it, wherever it is."""
        os.kill(self._pid, signal.SIGKILL)
        self.close()

    def close(self) -> None:
        """Take the process, which ends or has ended."""
        os.waitpid(self._pid, 0)
        os.close(self.end)
        self.connection.close()


class Sender:
    """Plugin of a fork: sends what pytest reports."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send a report."""
        fields = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send(Report(fields))

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage, when: str, nodeid: str) -> None:
        """Send a warning, but for those of collecting, which pytest tells a new plugin again."""
        if when != "runtest":
            return
        text = str(warning_message.message)
        category = warning_message.category
        self._connection.send(Warned(text, category, warning_message.filename, warning_message.lineno, nodeid))


def _live(session: pytest.Session, connection: Connection, niceness: int, number: int) -> NoReturn:
    """Run in the fork from its beginning to its end."""
    status = 1
    try:
        os.nice(niceness)
        _separate(session.config, number)
        session.config.pluginmanager.register(Sender(session.config, connection))
        _run_units(session, connection)
        program.close()
        status = 0
    except KeyboardInterrupt:
        pass  # pytest says so where the forks are started
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        os._exit(status)


def _separate(config: pytest.Config, number: int) -> None:
    """Give a fork a folder for temporary files, captured output and a terminal of its own: it prints nothing."""
    factory = config._tmp_path_factory
    factory._basetemp = factory.getbasetemp() / f"fork-{number}"
    factory._basetemp.mkdir()
    capture = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)
    capture.start_global_capturing()
    capture.suspend_global_capture()


def _run_units(session: pytest.Session, connection: Connection) -> None:
    """Run one unit after the other until there is none."""
    unit = connection.recv()
    while unit:
        tests: list[pytest.Item | None] = [session.items[place] for place in unit]
        for test, following in zip(tests, [*tests[1:], None], strict=True):
            assert test is not None
            session.config.hook.pytest_runtest_protocol(item=test, nextitem=following)
            connection.send(Finished())
        connection.send(Idle())
        unit = connection.recv()


class Run:
    """The tests of a session in forks."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._config = session.config
        self._forks: list[Fork] = []
        self._numbers = itertools.count(1)
        self._programs = program.Server()

    def all_tests(self) -> None:
        """Run them. Raises what pytest's own loop raises when it is to stop early."""
        self._config._tmp_path_factory.getbasetemp()  # one folder, which all forks share
        try:
            for pool, count in self._pools():
                for _ in range(min(count, len(pool.units))):
                    self._start(pool)
            while self._forks:
                self._look()
        finally:
            for fork in self._forks:
                fork.kill()
            self._programs.close()

    def _pools(self) -> Iterator[tuple[Pool, int]]:
        """Each kind of units with its number of forks."""
        tests = self._session.items
        units = schedule.units([test.nodeid for test in tests])
        workers = self._config.getoption("workers")
        waiters = self._config.getoption("waiters")
        if not waiters:
            yield Pool(deque(units), 0), workers
            return
        waiting = [unit for unit in units if tests[unit[0]].stash.get(WAITS, False)]
        working = [unit for unit in units if unit not in waiting]
        yield Pool(deque(waiting), 0), waiters
        yield Pool(deque(working), BEHIND), workers

    def _start(self, pool: Pool) -> None:
        """Fork once more."""
        program.share(self._programs.address)
        fork = Fork(self._session, pool, next(self._numbers), self._forks)
        self._forks.append(fork)
        fork.assign()

    def _look(self) -> None:
        """Take what the forks say, once one of them does."""
        watched: list[Any] = [*(fork.connection for fork in self._forks), *(fork.end for fork in self._forks)]
        if not self._programs.is_started:
            watched.append(self._programs.listening)
        ready = wait(watched)
        if self._programs.listening in ready:
            self._programs.start()
        for fork in [*self._forks]:
            if fork.connection in ready:
                self._take(fork)
            elif fork.end in ready:
                self._part_from(fork)

    def _take(self, fork: Fork) -> None:
        """Take one thing that a fork says."""
        try:
            message = fork.connection.recv()
        except (EOFError, ConnectionError):
            self._part_from(fork)
            return
        if isinstance(message, Report):
            fields = message.fields
            self._tell(self._config.hook.pytest_report_from_serializable(config=self._config, data=fields))
        elif isinstance(message, Warned):
            self._warn(message)
        elif isinstance(message, Finished):
            self._finish(fork)
        else:
            fork.assign()

    def _tell(self, report: pytest.TestReport) -> None:
        """Hand a report to pytest, and stop if pytest says so."""
        self._config.hook.pytest_runtest_logreport(report=report)
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)

    def _warn(self, warned: Warned) -> None:
        """Hand a warning to pytest."""
        message = warnings.WarningMessage(warned.text, warned.category, warned.file, warned.line)
        values = {"warning_message": message, "nodeid": warned.nodeid, "when": "runtest", "location": None}
        self._config.hook.pytest_warning_recorded.call_historic(kwargs=values)

    def _finish(self, fork: Fork) -> None:
        """Note that the first test of a fork is through."""
        test = self._session.items[fork.pending.popleft()]
        self._config.hook.pytest_runtest_logfinish(nodeid=test.nodeid, location=test.location)

    def _part_from(self, fork: Fork) -> None:
        """Take a fork that has ended; if it was in a test, that one has failed, and a new fork goes on behind it."""
        self._forks.remove(fork)
        fork.close()
        if not fork.pending:
            return
        test = self._session.items[fork.pending[0]]
        fault = f"worker crashed while running {test.nodeid!r}"
        self._finish(fork)
        if fork.pending:
            fork.pool.units.appendleft(list(fork.pending))
        if fork.pool.units:
            self._start(fork.pool)
        self._tell(pytest.TestReport(test.nodeid, test.location, {}, "failed", fault, "call"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Numbers of forks; without them pytest runs the tests itself."""
    parser.addoption("--workers", type=int, default=0, help="run the tests in so many forks, whole modules each")
    parser.addoption("--waiters", type=int, default=0, help="further forks for the modules that wait for real time")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests in forks if that is asked for and all of them could be collected."""
    config = session.config
    if not config.getoption("workers") or config.option.collectonly or session.testsfailed:
        return None
    Run(session).all_tests()
    return True
