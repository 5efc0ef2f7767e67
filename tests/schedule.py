"""Which worker of pytest-xdist takes which tests: whole modules, but for long ones, which go out in parts."""

from __future__ import annotations

import zlib
from typing import Any, Final

import pytest
from xdist.scheduler import LoadFileScheduling

PARTS: Final = {"tests/accuracy/test_triage.py": 3, "tests/tui/test_keys.py": 2}
"""Number of parts of a module that works for long, so that it is not the last one to run. The tests of one parameter
stay together: what is set up for it is set up once.
"""

TOGETHER: Final = {
    "tests/accuracy/test_accounts.py": "tests/accuracy/test_replay.py",
    "tests/accuracy/test_interpolated.py": "tests/accuracy/test_silicon.py",
    "tests/accuracy/test_prompt_alone.py": "tests/accuracy/test_silicon.py",
    "tests/accuracy/test_simulated.py": "tests/accuracy/test_silicon.py",
    "tests/architecture/test_exceptions_from_rules.py": "tests/architecture/test_walking_pace.py",
    "tests/architecture/test_figures.py": "tests/architecture/test_walking_pace.py",
    "tests/architecture/test_import_cycles.py": "tests/architecture/test_walking_pace.py",
    "tests/architecture/test_layers.py": "tests/architecture/test_walking_pace.py",
    "tests/architecture/test_typed_screen.py": "tests/architecture/test_walking_pace.py",
    "tests/commands/test_examples.py": "tests/commands/test_size.py",
    "tests/commands/test_simulate.py": "tests/commands/test_size.py",
}
"""Modules that one worker takes together: what they look at is parsed, replayed or simulated once in a process."""


class Scheduler(LoadFileScheduling):
    """Hands out whole modules and parts of them, and never the test again that ended its worker.

    The scheduler of pytest-xdist hands that test to the next worker, which ends as well, and so on: a hang for each.
    """

    def _split_scope(self, nodeid: str) -> str:
        module = str(super()._split_scope(nodeid))
        module = TOGETHER.get(module, module)
        parameter = nodeid.partition("[")[2]
        if module in PARTS and parameter:
            return f"{module} {zlib.crc32(parameter.encode()) % PARTS[module]}"
        return module

    def remove_node(self, node: Any) -> str | None:
        """Take a worker out. Returns the test that it was in."""
        for unit in self.assigned_work[node].values():
            for test, completed in unit.items():
                if not completed:
                    unit[test] = True
                    super().remove_node(node)
                    return str(test)
        return super().remove_node(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """Return the scheduler above for `--dist loadfile`."""
    if config.getoption("dist") == "loadfile":
        return Scheduler(config, log)
    return None
