"""`--scenario` on the command line: the list, unknown names, and where it does not belong."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from operator import attrgetter
from pathlib import Path

import pytest

from gpumon.cli import main
from gpumon.commands.scenarios import scenarios
from gpumon.demo.scenario import Truth
from gpumon.demo.scenarios import SCENARIOS
from gpumon.readings.verdict import Level
from gpumon.triage.marks import URGENT


def test_the_list_names_every_scenario_with_its_verdict() -> None:
    text = scenarios(100)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 100
    for each in SCENARIOS:
        (line,) = [line for line in lines if line.split(" ")[0] == each.name]
        assert each.expected in line
        assert " ".join(each.about.split()[:2]) in line


def test_a_scenario_whose_trouble_comes_late_says_when() -> None:
    """Whoever tries it waits for that."""
    for each in SCENARIOS:
        for begins_s in late_beginnings(each.truth):
            words = LATE_WORDS.get(begins_s, f"after {begins_s:.0f} s")
            assert words in each.about.lower(), each.name


LATE_WORDS = {60.0: "after a minute", 120.0: "after two minutes"}


def late_beginnings(truth: Sequence[Truth]) -> Iterator[float]:
    """When trouble begins after the first minute: the first one of a thing, and each other that must be named and is
    never a mere note."""
    known: set[tuple[str, str]] = set()
    for row in sorted(truth, key=attrgetter("from_s")):
        limit = row.code.partition("/")[0]
        if limit == "healthy" or row.levels == (Level.OK,):
            continue
        is_first = row.thing not in [thing for thing, _ in known]
        is_urgent = math.isfinite(row.within_s) and set(row.levels) <= set(URGENT)
        is_new = (row.thing, limit) not in known
        known.add((row.thing, limit))
        if row.from_s >= 60.0 and is_new and (is_first or is_urgent):
            yield row.from_s


@pytest.mark.parametrize("arguments", [["demo"], ["snapshot", "--demo"], ["watch", "--demo"]])
def test_the_command_prints_the_list(
    arguments: list[str], capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main([*arguments, "--scenario", "list"]) == 0
    assert b"kv-cache-full" in capsysbinary.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["demo", "--scenario", "kv-cash-full"], "no such scenario: 'kv-cash-full'; did you mean kv-cache-full"),
        (["demo", "--scenario", "zzzzzzzz"], "no such scenario: 'zzzzzzzz'; `gpumon demo --scenario list` names them"),
        (["watch", "--scenario", "burst"], "--scenario is for the simulated server: add --demo"),
        (["demo", "--scenario"], "argument --scenario: expected one argument"),
    ],
)
def test_what_is_refused(
    arguments: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said in error
