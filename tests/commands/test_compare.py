"""`gpumon compare` on a recording, as the installed command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpumon.demo.scenarios import scenario
from gpumon.history.recorder import Recorder
from gpumon.outputs import before_after
from tests.accuracy.triage import WALL_S, frames
from tests.history.changed import EVERY_S, MORE_SLOTS
from tests.history.pasts import lived, paced
from tests.outputs.validator import problems
from tests.program import run_gpumon

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("comparing") / "a.gpumon"
    recorder = Recorder(path, {"host": "box"})
    lived((frame for _, frame in frames(MORE_SLOTS, 240.0, every_s=EVERY_S)), recorder)
    recorder.close()
    return path


def run(*arguments: str | Path, code: int = 0) -> str:
    done = run_gpumon(*map(str, arguments), env={"COLUMNS": "100", "TZ": "UTC"})
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


@pytest.fixture(scope="module")
def told(recording: Path) -> dict[str, Any]:
    """A comparison over the change."""
    compared: dict[str, Any] = json.loads(run("compare", "-145s", "-0s", recording, "--for", "90s", "--json"))
    return compared


def test_text_markdown_and_json_say_the_same(recording: Path, told: dict[str, Any]) -> None:
    engine = next(thing for thing in told["things"] if thing["kind"] == "engine")
    options = [change for change in engine["changes"] if change["code"] == "option"]
    assert [(option["name"], option["before"], option["after"]) for option in options] == [
        ("--max-num-seqs", "12", "64")
    ]
    text = run("compare", "-145s", "-0s", recording, "--for", "90s")
    assert "--max-num-seqs 12 -> 64" in text
    assert "at the same load (requests/s)" in text
    assert "effect    better: waiting -100%, TTFT mean -" in text
    table = run("compare", "-145s", "-0s", recording, "--for", "90s", "--markdown")
    assert "Effect: better: waiting -100%, TTFT mean -" in table
    assert "| TTFT p95 |" in table
    assert "--max-num-seqs 12 -&gt; 64" in table


def test_an_engine_restarted_after_it_was_gone(tmp_path: Path) -> None:
    """Its process ended a minute after 08:00:00, and another answers 30 s later: it started between the two."""
    path = tmp_path / "a.gpumon"
    recorder = Recorder(path, {"host": "box"})
    played = (frame for _, frame in frames(scenario("engine-restart"), 200.0, every_s=2))
    lived(paced(played, recorder), recorder)
    recorder.close()
    told = json.loads(run("compare", "-170s", "-30s", path, "--for", "30s", "--json"))
    (engine,) = [thing for thing in told["things"] if thing["kind"] == "engine"]
    (start,) = [change for change in engine["changes"] if change["code"] == "started"]
    assert WALL_S + 60.0 <= float(start["after"]) <= WALL_S + 90.0


def test_the_json_keeps_its_schema_which_is_that_of_the_types(told: dict[str, Any]) -> None:
    schema = json.loads((DOCS / "compare.schema.json").read_text(encoding="utf-8"))
    assert list(problems(told, schema)) == []
    assert schema == json.loads(json.dumps(before_after.schema()))


def test_spans_are_taken_as_they_are_written(recording: Path) -> None:
    told = json.loads(run("compare", "-240s..-145s", "-60s..-0s", recording, "--json"))
    assert (told["before"]["seconds"], told["after"]["seconds"]) == (95.0, 60.0)


def test_spans_that_go_backwards_are_named(recording: Path) -> None:
    assert before_after.BACKWARDS in run("compare", "-0s", "-145s", recording, "--for", "30s")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-60s", "{}"), "TO is missing before "),
        (("-60s", "x" * 300), "gpumon: "),  # no file can have this name
        (("yesterday", "-0s", "{}"), "FROM is no time: 'yesterday'; write it as 03:10"),
        (("-60s", "-5h", "{}"), "TO is outside of the recording: -5h; it goes"),
        (("-60s", "-59s", "{}"), "a comparison needs 10 s on each side"),
        (("-60s..-20s", "-30s..-0s", "{}"), "the two spans overlap: give others, or a shorter --for"),
        (("-60s", "-0s", "{}", "--prometheus", "http://127.0.0.1:9"), "FILE and --prometheus are two pasts"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(recording: Path, arguments: tuple[str, ...], said: str) -> None:
    text = run("compare", *(word.format(recording) for word in arguments), code=2)
    assert said in text
    assert text.count("\n") == 1
