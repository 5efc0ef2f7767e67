"""The list of plausible faults (`make mutants`) keeps up with the code: `make test` does not try them."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

from tests.each_row import each_row
from tests.mutants import ROOT, Mutant, mutants, mutated

EVERY: Final = mutants()
PACKAGES: Final = (
    *("specs", "readings", "efficiency", "triage", "sizing", "fleet", "config", "history", "sources", "outputs"),
    *("tui", "commands"),
)
LEAST: Final = 3
"""Faults in each package."""


@each_row("mutant", EVERY, named=[f"{mutant.file}: {mutant.why}" for mutant in EVERY])
def test_a_mutant_stands_once_in_its_file_and_its_tests_are_there(mutant: Mutant) -> None:
    compile(mutated(mutant), mutant.file, "exec")
    assert mutant.before != mutant.after
    assert mutant.why, "what a user would meet"
    assert mutant.tests
    for test in mutant.tests:
        name, _, function = test.partition("::")
        assert (ROOT / name).exists(), name
        if function:
            assert f"def {function}(" in (ROOT / name).read_text(encoding="utf-8")


def test_a_mutant_names_nothing_that_does_not_exist(tmp_path: Path) -> None:
    """Such a fault is noticed by whatever test runs its line, whether that line is right or not."""
    for number, mutant in enumerate(EVERY):
        (tmp_path / f"mutant_{number}.py").write_text(mutated(mutant), encoding="utf-8")
    checked = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", "--output-format", "concise"]
    done = subprocess.run([*checked, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout


def test_every_package_has_some() -> None:
    counts = Counter(Path(mutant.file).parts[1] for mutant in EVERY)
    assert {name for name in PACKAGES if counts[name] < LEAST} == set()
    assert len(EVERY) >= 60
