"""Recipes of docs/extending.md and docs/engines.md: done word by word in a copy of the sources, with their checks."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.mutants import ROOT, copied, failures, run_tests

PAGES: Final = ("docs/extending.md", "docs/engines.md")
STEP: Final = re.compile(
    r"^New file `(?P<new>[^`\n]+)`:\n\n```\w+\n(?P<text>.*?)^```"
    r"|^In `(?P<file>[^`\n]+)`, (?P<how>after|instead of) `(?P<anchor>[^`\n]+)`:\n\n```\w+\n(?P<lines>.*?)^```"
    r"|^Then:\n\n```sh\n(?P<commands>.*?)^```"
    r"|^Check: `pytest (?P<check>[^`\n]+)`$",
    re.DOTALL | re.MULTILINE,
)
EXAMPLE: Final = "config.example.toml"
COPIED_PAGES: Final = "tests/data/pages"
"""Recorded pages, to which the recipe of an engine adds its own."""
LEAST_STEPS: Final = 30
LEAST_CHANGED: Final = 10
"""Python files that the recipes write or change, at least."""
CHECKS: Final = 12
"""A check for each recipe: column, theme, setting, key, figure of a GPU, level, chart, figure of an engine, metric,
architecture, rule, engine."""


class Step(NamedTuple):
    """A step of a recipe, as the page says it."""

    page: str
    words: re.Match[str]


def steps() -> Iterator[Step]:
    """All steps, in the order of the pages."""
    for page in PAGES:
        for words in STEP.finditer((ROOT / page).read_text(encoding="utf-8")):
            yield Step(page, words)


def own_copies(copy: Path) -> None:
    """Put files in the place of the links to what recipes write."""
    for name in ("docs", "themes"):
        (copy / name).unlink()
        shutil.copytree(ROOT / name, copy / name)
    (copy / EXAMPLE).unlink()
    shutil.copy(ROOT / EXAMPLE, copy / EXAMPLE)
    data = copy / "tests" / "data"
    data.unlink()
    data.mkdir()
    for path in (ROOT / "tests" / "data").iterdir():
        (data / path.name).symlink_to(path)
    (copy / COPIED_PAGES).unlink()
    shutil.copytree(ROOT / COPIED_PAGES, copy / COPIED_PAGES)


def commands_of(step: Step) -> list[str]:
    """The commands that a step runs."""
    return (step.words["commands"] or "").splitlines()


def do(step: Step, copy: Path, later: Collection[str]) -> None:
    """Do one step; raises AssertionError where the page and the code have drifted apart.

    A command that a step further on runs, too, is left to that one: `later` has them.
    """
    words = step.words
    if words["new"]:
        file = copy / words["new"]
        assert not file.exists(), f"{step.page}: {words['new']} is there already"
        file.write_text(words["text"], encoding="utf-8")
    elif words["file"]:
        change(step, copy / words["file"])
    for command in commands_of(step):
        if command not in later:
            run(step, command, copy)


def change(step: Step, file: Path) -> None:
    """Put lines below a line, or a text in the place of another one."""
    words = step.words
    text = file.read_text(encoding="utf-8")
    anchor = words["anchor"]
    if words["how"] == "instead of":
        assert text.count(anchor) == 1, f"{step.page}: {words['file']} has no such text, or several: {anchor}"
        file.write_text(text.replace(anchor, words["lines"].strip()), encoding="utf-8")
        return
    lines = text.splitlines(keepends=True)
    places = [number for number, line in enumerate(lines) if line.strip().startswith(anchor)]
    assert len(places) == 1, f"{step.page}: {words['file']} has no such line, or several: {anchor}"
    lines.insert(places[0] + 1, words["lines"])
    file.write_text("".join(lines), encoding="utf-8")


def run(step: Step, command: str, copy: Path) -> None:
    """Run a command of a recipe with this Python."""
    program, *arguments = shlex.split(command)
    if program == "make":
        prepared = [f"BIN={Path(sys.executable).parent}", "-o", ".venv/.dev"]
        words = ["make", *prepared, *arguments]
    else:
        assert program == "python", f"{step.page}: {command}"
        words = [sys.executable, *arguments]
    env = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(words, cwd=copy, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{step.page}: {command}: {done.stdout[-1000:]}{done.stderr[-2000:]}"


def selection(checks: list[str]) -> list[str]:
    """One run of pytest for all checks: their files, and whatever one of them selects."""
    files: dict[str, None] = {}
    words = []
    for check in checks:
        arguments = shlex.split(check)
        if "-k" in arguments:
            words.append(arguments.pop(arguments.index("-k") + 1))
            arguments.remove("-k")
        else:
            words += [Path(file).stem for file in arguments]
        files.update(dict.fromkeys(arguments))
    return [*files, "-k", " or ".join(f"({word})" for word in words)]


def files_and_words(check: str) -> tuple[set[str], str]:
    """The files of a check, and the expression of its `-k`; empty where it has none."""
    arguments = shlex.split(check)
    if "-k" not in arguments:
        return set(arguments), ""
    at = arguments.index("-k")
    return {*arguments[:at], *arguments[at + 2 :]}, arguments[at + 1]


def is_selected(expression: str, name: str) -> bool:
    """Whether an expression of `-k` by words, `and` and `or` selects a test of this name."""
    terms = [term.split(" and ") for term in expression.split(" or ")]
    return any(all(word.strip() in name for word in words) for words in terms)


def checks_of_nothing(checks: list[str], report: str) -> list[str]:
    """Checks of which no test ran, by pytest's report of every test that passed."""
    passed = [line.removeprefix("PASSED ") for line in report.splitlines() if line.startswith("PASSED ")]
    idle = []
    for check in checks:
        files, expression = files_and_words(check)
        own = [test for test in passed if test.partition("::")[0] in files]
        if not any(is_selected(expression, test) for test in own):
            idle.append(check)
    return idle


def changed_modules(copy: Path) -> list[str]:
    """Python files of a copy that are new or were written since; a copied file has the time of its original."""
    changed = []
    for folder in ("gpumon", "tests"):
        for file in (copy / folder).rglob("*.py"):
            name = file.relative_to(copy)
            original = ROOT / name
            if not original.exists() or original.stat().st_mtime_ns != file.stat().st_mtime_ns:
                changed.append(str(name))
    return changed


def lint(copy: Path) -> str:
    """The complaints of the linter, by the rules of this project, on what the recipes have changed."""
    rules = ["--config", str(ROOT / "pyproject.toml"), "--no-cache"]
    files = changed_modules(copy)
    assert len(files) >= LEAST_CHANGED
    complaints = ""
    for words in (["check", "--output-format", "concise"], ["format", "--check"]):
        command = [sys.executable, "-m", "ruff", *words, *rules, *files]
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=120)
        if done.returncode != 0:
            complaints += done.stdout + done.stderr
    return complaints


@pytest.mark.timeout(900)  # ten programs and a run of pytest: minutes on a machine with other work
def test_each_recipe_works_as_it_is_written() -> None:
    every = list(steps())
    checks = [step.words["check"] for step in every if step.words["check"]]
    assert len(every) >= LEAST_STEPS
    assert len(checks) == CHECKS
    with copied() as copy:
        own_copies(copy)
        for number, step in enumerate(every):
            do(step, copy, later=[command for other in every[number + 1 :] for command in commands_of(other)])
        complaints = lint(copy)
        done = run_tests(copy, ["-n", "0", "-rfEp", *selection(checks)])
    assert done.returncode == 0, "\n".join(failures(done)) or done.stdout[-3000:]
    assert checks_of_nothing(checks, done.stdout) == []
    assert complaints == ""
