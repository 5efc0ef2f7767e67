"""`gpumon report` and `gpumon export` on a recording file, as the installed command."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gpumon.demo.scenario import EngineEffect, Scenario
from gpumon.demo.scenarios import DEMO
from gpumon.demo.scenarios import scenario as named_scenario
from gpumon.history.recorder import Recorder
from gpumon.readings.quantities import DECODE_TOKENS
from tests.accuracy.triage import frames
from tests.history.changed import play
from tests.history.frames import served
from tests.history.pasts import lived, paced
from tests.program import run_gpumon
from tests.records import replace

SECONDS = 30


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("reporting") / "a.gpumon"
    recorder = Recorder(path, {"host": "box"})
    lived(served(SECONDS), recorder)
    recorder.close()
    assert recorder.written == SECONDS
    return path


def run(*arguments: str | Path, code: int = 0) -> str:
    done = run_gpumon(*map(str, arguments))
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


@pytest.fixture(scope="module")
def told(recording: Path) -> dict[str, Any]:
    """The whole report."""
    report: dict[str, Any] = json.loads(run("report", recording, "--json"))
    return report


def test_a_report_as_text_markdown_and_json_says_the_same(recording: Path, told: dict[str, Any]) -> None:
    assert len(told["gpus"]) == 8
    assert told["seconds"] == pytest.approx(SECONDS - 1, abs=0.1)
    assert told["missing"]["cost"] == "no_price"
    busy = f"busy {told['busy_ratio'] * 100:.0f}%"
    assert busy in run("report", recording)
    assert f"| use | {busy} (all " in run("report", recording, "--markdown")


def test_a_report_by_model_has_the_sums_of_the_whole_report(recording: Path, told: dict[str, Any]) -> None:
    by_model = json.loads(run("report", recording, "--by", "model", "--json"))
    total = by_model["total"]
    assert by_model["simulated"]
    for field in ("decode_tokens", "prefill_computed_tokens", "prefill_cached_tokens", "energy_j", "unused_gpu_s"):
        assert total[field] == pytest.approx(told[field]), field
        parts = [group[field] for group in by_model["groups"] if group[field] is not None]
        assert sum(parts) == pytest.approx(total[field]), field
    assert total["goodput"] == told["goodput"]
    assert total["gpu_s"] == pytest.approx(8 * (SECONDS - 1), rel=0.01)
    assert total["incidents"] == len(told["incidents"])
    text = run("report", recording, "--by", "model")
    assert "SIMULATED" in text
    assert "Qwen/Qwen3-30B-A3B" in text


def test_an_export_has_every_moment_or_one_in_so_many_seconds(recording: Path) -> None:
    lines = run("export", recording, "--jsonl").splitlines()
    moments = [json.loads(line) for line in lines]
    assert len(moments) == SECONDS
    assert [moment["time"] for moment in moments] == sorted({moment["time"] for moment in moments})
    assert moments[-1]["engines"][0]["decode_tokens_per_s"] > 0
    rows = list(csv.DictReader(io.StringIO(run("export", recording, "--every", "10"))))
    assert len(rows) == 3 * 13
    assert [row["kind"] for row in rows[-13:]] == ["gpu"] * 8 + ["engine"] * 4 + ["host"]
    assert float(rows[-2]["decode_tokens_per_s"]) > 0
    assert run("export", recording, "--every", "1m").count("\n") == 14


def test_a_clock_that_was_ahead_hides_nothing_that_was_recorded(tmp_path: Path) -> None:
    """Ten seconds of the recording are dated an hour ahead; real time is far from there."""
    path = tmp_path / "leapt.gpumon"
    recorder = Recorder(path, {"host": "box"})
    frames = [
        replace(frame, wall_s=frame.wall_s + (3600.0 if 20 <= at < 30 else 0.0))
        for at, frame in enumerate(served(80, cast=DEMO.cast[:1]))
    ]
    lived(frames, recorder)
    recorder.close()
    assert len(run("export", path, "--jsonl").splitlines()) == 80
    assert json.loads(run("report", path, "--json"))["covered_s"] == pytest.approx(77.0, abs=3.0)


def test_without_a_name_it_is_the_hosts_own_and_of_a_folder_the_one_in_it(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert "this host has none of its own yet" in run("report", code=2)
    folder, bundle = tmp_path / "gpumon" / "recordings", tmp_path / "gpumon-box-20260102-030405"
    folder.mkdir(parents=True)
    bundle.mkdir()
    shutil.copy(recording, folder / f"{os.uname().nodename}.sqlite")
    shutil.copy(recording, bundle / "recording.gpumon")
    assert run("report") == run("report", bundle) == run("report", recording)
    assert run("export", "--every", "1h") == run("export", recording, "--every", "3600")


def test_a_stretch_begins_with_rates_and_not_with_a_warm_up(recording: Path) -> None:
    (first, *_) = run("export", recording, "--jsonl", "--from", "-5s").splitlines()
    moment = json.loads(first)
    assert moment["engines"][0]["decode_tokens_per_s"] is not None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("report", "{}", "--from", "yesterday"), "--from is no time: 'yesterday'; write it as 03:10"),
        (("report", "{}", "--to", "2020-01-01T00:00"), "--to is outside of the recording: 2020-01-01T00:00; it goes"),
        (("export", "{}", "--from", "-5s", "--to", "-10s"), "--from -5s is after --to -10s"),
        (("export", "{}", "--csv", "--jsonl"), "argument --jsonl: not allowed with argument --csv"),
        (("report", "/nowhere/a.gpumon"), "/nowhere/a.gpumon: there is no such file"),
        (("export", "{}", "--every", "5x"), "argument --every: must be seconds, or such as 90s, 5m, 1h, up to 24h"),
        (("export", "{}", "--every", "2d"), "argument --every: must be seconds, or such as 90s, 5m, 1h, up to 24h"),
        (("report", "/", "--card", "a"), "/: is a folder without recording.gpumon: name a recording"),
        (("report", "{}", "--every", "5m"), "--every is for --prometheus URL, not for a recording: every reading"),
        (
            ("report", "{}", "--by", "model", "--every", "5m"),
            "--every is for --prometheus URL, not for a recording: with",
        ),
        (("report", "/"), "/: is a folder without recording.gpumon: name a recording, or the bundle of one host"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(recording: Path, arguments: tuple[str, ...], said: str) -> None:
    text = run(*(each.format(recording) for each in arguments), code=2)
    assert text.startswith(f"gpumon: {said}")
    assert text.count("\n") == 1


class Restarted(NamedTuple):
    """A recording of an engine that ended and was started again."""

    path: Path
    tokens: float
    """What its counter grew by, before the restart and since."""


def recorded(scenario: Scenario, path: Path, seconds: float) -> Restarted:
    """A play of one engine, recorded in virtual time."""
    recorder = Recorder(path, {"host": "box"})
    played = [frame for _, frame in frames(scenario, seconds)]
    lived(paced(played, recorder), recorder)
    recorder.close()
    tokens = 0.0
    last = None
    for frame in played:
        (engine,) = frame.engines
        count = sum(rank.counters[DECODE_TOKENS] for rank in engine.ranks)
        if last is not None:
            tokens += count - last if count >= last else count
        last = count
    return Restarted(path, tokens)


def report_of(path: Path, *arguments: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(run("report", path, "--json", *arguments))
    return report


def test_tokens_of_both_lives_of_a_restarted_engine_count_and_the_parts_are_the_whole(tmp_path: Path) -> None:
    """It is down from 60 to 90 s: no minute's first frame but one sees that."""
    recording = recorded(named_scenario("engine-restart"), tmp_path / "a.gpumon", 197.0)
    whole = report_of(recording.path)
    assert whole["decode_tokens"] == pytest.approx(recording.tokens)
    between_answers_s = 196.0
    assert whole["engines"][0]["decode_tokens_per_s"] == pytest.approx(recording.tokens / between_answers_s)
    assert whole["engines"][0]["uncounted_s"] == 0.0
    for ends in ((0, 60, 197), (0, 30, 80, 197), (0, 60, 120, 180, 197), (0, 45, 100, 197)):
        parts = 0.0
        for begin, end in itertools.pairwise(ends):
            span = ("--from", f"-{197 - begin}s", "--to", f"-{197 - end}s")
            parts += report_of(recording.path, *span)["decode_tokens"] or 0.0
        assert parts == pytest.approx(recording.tokens), ends


def test_the_time_of_which_no_tokens_are_known_is_named(tmp_path: Path) -> None:
    """It answers nothing for 30 s before it ends."""
    effects = (
        EngineEffect(engine="llama-8b", mute=True, from_s=20.0, to_s=50.0),
        EngineEffect(engine="llama-8b", down=True, from_s=50.0, to_s=70.0),
    )
    recording = recorded(play("mute", engine_effects=effects), tmp_path / "a.gpumon", 130.0)
    whole = report_of(recording.path)
    assert whole["decode_tokens"] == pytest.approx(recording.tokens)
    assert whole["engines"][0]["uncounted_s"] == pytest.approx(30.0, abs=3.0)
    assert "decode; not known: those of llama-8b in 3" in run("report", recording.path)
    (engine,) = whole["engines"]
    assert whole["energy_j"] > 0.0
    assert [side["tokens_per_j"] for side in (whole, engine)] == [None, None], (
        "energy of all the time, tokens of a part"
    )


def test_a_size_names_the_time_of_the_recording(recording: Path) -> None:
    done = run_gpumon("size", "--from-recording", str(recording))
    assert done.returncode == 0, done.stderr
    assert f"targets: the p95 of the last {SECONDS} s, " in done.stdout
