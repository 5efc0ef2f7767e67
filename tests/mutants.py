"""Plausible faults, put into the code one by one: the tests named beside each must fail.

    python -m tests.mutants [--list] [WORD ...]

`mutants.toml` beside this file has them: the text of a file, what it is turned into, and the tests that must notice. Of
WORDs given, those mutants are tried whose file or reason has one. Each is tried in a copy of package and tests, two at
once; the checkout stays as it is. The tests first run on a copy without a fault, where they must pass. Exit code 1: a
mutant survived, its text is not in its file any more, or its tests fail without it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
import tomli

ROOT: Final = Path(__file__).resolve().parents[1]
LIST: Final = Path(__file__).with_name("mutants.toml")
COPIED: Final = ("gpumon", "tests", "pyproject.toml")
"""The tests are copied, too: those that start a program do so in the folder that they lie in."""
LINKED: Final = ("docs", "themes", "config.example.toml", "README.md", "CHANGELOG.md", "Makefile", "tests/data")
"""What a copy has besides, as links: nothing of it is changed."""
AT_ONCE: Final = 2
LONGEST_S: Final = 600.0
"""A mutant whose tests hang is noticed, too."""


class Mutant(msgspec.Struct, frozen=True):
    """One fault."""

    file: str
    """In the checkout."""
    before: str
    """Text that stands once in it."""
    after: str
    tests: list[str]
    """Files or tests of which at least one must fail."""
    why: str = ""
    """What a user would meet."""


class Tried(msgspec.Struct, frozen=True):
    """How a mutant ended."""

    mutant: Mutant
    noticed: bool
    text: str
    """The test that noticed, or what is wrong."""


def mutants(words: Sequence[str] = ()) -> list[Mutant]:
    """All mutants, or those whose file or reason has one of the words."""
    table = tomli.loads(LIST.read_text(encoding="utf-8"))
    every = msgspec.convert(table["mutant"], list[Mutant])
    return [mutant for mutant in every if not words or any(word in f"{mutant.file} {mutant.why}" for word in words)]


def mutated(mutant: Mutant) -> str:
    """The file's text with the fault in it. Raises LookupError where the text is not there just once."""
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    count = text.count(mutant.before)
    if count != 1:
        raise LookupError(f"stands {count} times in {mutant.file}: {mutant.before!r}")
    return text.replace(mutant.before, mutant.after)


@contextmanager
def copied() -> Iterator[Path]:
    """A copy of all that the tests need, which goes with the block.

    Bytecode is copied, too, and holds as long as its file is not changed: no process of a copy compiles the package
    anew. That of pytest is left out: it keeps the paths of the checkout.
    """
    leave_out = shutil.ignore_patterns("*-pytest-*.pyc", "data", ".*")
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = Path(folder)
        for name in COPIED:
            source = ROOT / name
            if name == "tests":
                shutil.copytree(source, copy / name, ignore=leave_out)
            elif source.is_dir():
                shutil.copytree(source, copy / name)
            else:
                shutil.copy(source, copy / name)
        for name in LINKED:
            (copy / name).symlink_to(ROOT / name)
        yield copy


def attempt(mutant: Mutant) -> Tried:
    """Run its tests on a copy that has the fault."""
    try:
        text = mutated(mutant)
    except LookupError as wrong:
        return Tried(mutant, False, str(wrong))
    with copied() as copy:
        (copy / mutant.file).write_text(text, encoding="utf-8")
        try:
            done = run_tests(copy, ["-x", *mutant.tests], LONGEST_S)
        except subprocess.TimeoutExpired:
            return Tried(mutant, True, f"tests run longer than {LONGEST_S:.0f} s")
    failed = failures(done)
    if done.returncode == 1 and failed:
        return Tried(mutant, True, failed[0])
    if done.returncode == 0:
        return Tried(mutant, False, "all of its tests pass")
    return Tried(mutant, False, f"pytest ended with {done.returncode}: {(done.stdout + done.stderr).strip()[-300:]}")


def failing_without_a_fault(chosen: Sequence[Mutant]) -> list[str]:
    """Tests of these mutants that do not pass as the code stands: they would notice anything."""
    tests = sorted({test for mutant in chosen for test in mutant.tests})
    with copied() as copy:
        done = run_tests(copy, ["-n", str(AT_ONCE), *tests])
    found = failures(done)
    if done.returncode and not found:
        found.append(f"pytest ended with {done.returncode}: {(done.stdout + done.stderr).strip()[-300:]}")
    return found


def run_tests(copy: Path, arguments: Sequence[str], most_s: float | None = None) -> subprocess.CompletedProcess[str]:
    """Pytest in a copy: it, and whatever it starts, imports the package from there. Raises TimeoutExpired after
    `most_s` seconds."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    env = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=copy, env=env, capture_output=True, text=True, timeout=most_s)


def failures(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines of pytest's summary on tests that did not pass."""
    return [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]


def main() -> int:
    """Try them; prints a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--list", action="store_true", help="print them and try none")
    given = parser.parse_args()
    chosen = mutants(given.words)
    if not chosen:
        print("no such mutant")
        return 1
    if given.list:
        for mutant in chosen:
            print(f"{mutant.file}: {mutant.before.strip()!r} -> {mutant.after.strip()!r}")
        return 0
    print(f"{len(chosen)} mutants; first their tests without a fault", flush=True)
    unsound = failing_without_a_fault(chosen)
    if unsound:
        print("\n".join(f"without a fault: {line}" for line in unsound))
        return 1
    survived = 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for tried in pool.map(attempt, chosen):
            survived += not tried.noticed
            word = "noticed " if tried.noticed else "SURVIVED"
            print(
                f"{word} {tried.mutant.file}: {tried.mutant.why or tried.mutant.before.strip()}: {tried.text}",
                flush=True,
            )
    print(f"{len(chosen) - survived} of {len(chosen)} mutants noticed")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
