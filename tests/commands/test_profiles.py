"""`gpumon profiles`, as it is typed: real files, real folder, exit codes, what is printed where."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from gpumon import cli
from tests.sizing.imports.samples import FOLDER

VLLM = str(FOLDER / "vllm-bench.jsonl")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("GPUMON_CONFIG", "GPUMON_PROFILES", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = cli.main(["profiles", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_added_listed_shown_and_removed(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    code, out, err = run(capsys, "add", VLLM)
    assert (code, err) == (0, "")
    name = "Llama-3.3-70B-Instruct-FP8"
    assert f"added {name}: 6 points of nvidia/{name}; operating point 50 in flight (running stops" in out
    assert (home / ".local/share/gpumon/profiles" / f"{name}.json").is_file()
    assert run(capsys, "list")[1].splitlines()[1].startswith(name)
    assert run(capsys)[1] == run(capsys, "list")[1]
    assert "plateau       85.5" in run(capsys, "show", name)[1]
    assert run(capsys, "remove", name)[:2] == (0, f"removed {name} ({home}/.local/share/gpumon/profiles/{name}.json)\n")
    assert "none is imported yet" in run(capsys, "list")[1]


def test_options_may_stand_anywhere_and_fill_what_files_lack(capsys: pytest.CaptureFixture[str]) -> None:
    sheets = sorted(map(str, FOLDER.glob("genai-perf-csv/*/*.csv")))
    code, out, _ = run(
        capsys,
        "add",
        "--model",
        "llama3-8b",
        *sheets[:3],
        "--gpu",
        "A100 SXM4 80GB",
        *sheets[3:],
        "--tp",
        "2",
        "--name",
        "x",
    )
    assert code == 0
    assert "added x: 6 points of llama3-8b" in out
    assert "note: the concurrency is taken from the names of files or folders" in out
    profile = json.loads(run(capsys, "show", "x", "--json")[1])["profile"]
    assert (profile["gpu"], profile["tp"], profile["gpus"]) == ("A100 SXM4 80GB", 2, 2)
    given = ("--concurrency", "144", "--memory-gb", "20.5", "--busy", "0.9", "--precision", "bfloat16", "--name", "y")
    assert run(capsys, "add", str(FOLDER / "genai-perf-new.csv"), "--model", "m", *given)[0] == 0
    profile = json.loads(run(capsys, "show", "y", "--json")[1])["profile"]
    assert (profile["concurrency"], profile["memory_bytes"], profile["busy_ratio"]) == (144.0, 20.5e9, 0.9)
    assert profile["weight_precision"] == "bf16"


def test_a_bad_file_imports_nothing_and_every_problem_is_a_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "cut.json").write_bytes(Path(VLLM).read_bytes()[:300])
    (tmp_path / "other.txt").write_text("hello")
    code, out, err = run(capsys, "add", VLLM, str(tmp_path / "cut.json"), str(tmp_path / "other.txt"))
    assert (code, out) == (2, "")
    lines = err.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith(f"gpumon: {tmp_path}/cut.json:1: is no JSON (or is cut off)")
    assert "is the result of no load test that gpumon knows" in lines[1]
    assert lines[2] == "gpumon: nothing was imported"
    assert "none is imported yet" in run(capsys, "list")[1]


def test_standard_input_is_a_file_named_dash(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path(VLLM).open(encoding="utf-8") as stream:
        monkeypatch.setattr("sys.stdin", stream)
        code, out, err = run(capsys, "add", "-", "--name", "piped")
    assert (code, err) == (0, "")
    assert out.startswith("added piped: 6 points of ")
    with Path("/dev/null").open(encoding="utf-8") as stream:
        monkeypatch.setattr("sys.stdin", stream)
        assert run(capsys, "add", "-")[2] == "gpumon: standard input: is empty\ngpumon: nothing was imported\n"


def test_a_pipe_into_which_nobody_writes_is_not_waited_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpumon.config.load.PIPE_S", 0.2)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    code, _, err = run(capsys, "add", str(pipe))
    assert (code, err) == (
        2,
        f"gpumon: {pipe}: cannot be read: is a pipe into which nobody writes within 0.2 s: name a file\n",
    )
    writer = threading.Thread(target=pipe.write_bytes, args=(Path(VLLM).read_bytes(),))
    writer.start()
    code, out, _ = run(capsys, "add", str(pipe), "--name", "piped")
    writer.join()
    assert (code, out[:12]) == (0, "added piped:")


def test_what_was_added_says_how_to_use_it(capsys: pytest.CaptureFixture[str]) -> None:
    said = run(capsys, "add", VLLM, "--name", "x")[1]
    assert '`gpumon profiles show x` lists its points; `profile = "x"` in a scenario' in said


def test_a_name_that_is_taken_needs_replace(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "add", VLLM)[0] == 0
    code, _, err = run(capsys, "add", VLLM)
    assert code == 2
    assert "a profile of this name is there; --replace overwrites, --name NAME keeps both" in err
    assert run(capsys, "add", VLLM, "--replace")[0] == 0
    assert run(capsys, "add", VLLM, "--name", "second")[0] == 0


def test_a_gpu_has_the_name_that_people_say_and_a_line_says_which_part_that_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, err = run(capsys, "add", VLLM, "--name", "x", "--gpu", "H100")
    assert code == 0
    assert err == "gpumon: --gpu: H100 is taken for H100 SXM5 80GB\n"
    assert out.startswith("added x: ")
    assert "H100 SXM5 80GB" in run(capsys, "show", "x")[1]


REFUSED = [
    (["ad"], "gpumon profiles: no such action: 'ad'; did you mean add?"),
    (["add"], "the following arguments are required: FILE (see gpumon profiles add --help)"),
    (["show"], "the following arguments are required: NAME (see gpumon profiles show --help)"),
    (["show", "a", "b"], "unrecognized arguments: 'b'"),
    (["list", "x"], "unrecognized arguments: 'x'"),
    (["show", "guide-nemo-5c"], "did you mean guide-nemo-5b"),
    (["remove", "guide-nemo-5b"], "comes with gpumon and cannot be removed"),
    (["list", "--tp", "2"], "unrecognized arguments: --tp; did you mean gpumon profiles add --tp?"),
    (["add", "/nowhere/x.json"], "/nowhere/x.json: cannot be read: No such file or directory"),
    (["add", VLLM, "--gpu", "V100"], "--gpu: GPU type 'V100' is several, give the whole name: V100 SXM2 16GB"),
    (["add", VLLM, "--precision", "fp3"], "--precision: 'fp3' is no precision; allowed: bf16"),
    (["add", VLLM, "--name", "../x"], "is no name for a profile"),
    (["add", VLLM, "--concurrency", "a"], "--concurrency: 'a' must be numbers from 1 to 1e6"),
    (["add", VLLM, "--busy", "99"], "must be a number from 0 to 1"),
    (["add", VLLM, "--tp", "8"], "tp: is 2 in the file, 8 in --tp"),
    (["add", VLLM, "--bogus"], "unrecognized arguments: --bogus"),
]


@pytest.mark.parametrize(("words", "text"), REFUSED, ids=[" ".join(words)[-40:] for words, _ in REFUSED])
def test_bad_usage_is_said_and_exits_2(capsys: pytest.CaptureFixture[str], words: list[str], text: str) -> None:
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert text in err


def test_a_disk_that_refuses_exits_1(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GPUMON_PROFILES", str(tmp_path / "file" / "x"))
    code, out, err = run(capsys, "add", VLLM)
    assert (code, out) == (1, "")
    assert "cannot be written: Not a directory" in err


def test_json_of_every_action(capsys: pytest.CaptureFixture[str]) -> None:
    added = json.loads(run(capsys, "add", VLLM, "--json", "--name", "n")[1])
    assert [each["name"] for each in added["added"]] == ["n"]
    listed = json.loads(run(capsys, "list", "--json")[1])
    assert {each["name"]: each["builtin"] for each in listed["profiles"]}["n"] is False
    assert {each["name"]: each["builtin"] for each in listed["profiles"]}["guide-nemo-5b"] is True
    assert json.loads(run(capsys, "remove", "n", "--json")[1]) == {"schema": 1, "removed": "n"}


def test_a_file_that_hides_one_of_gpumons_profiles_is_the_users_own(
    capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    place = home / ".local/share/gpumon/profiles"
    run(capsys, "add", VLLM, "--name", "n")
    (place / "n.json").rename(place / "guide-nemo-5b.json")
    listed = json.loads(run(capsys, "list", "--json")[1])
    assert {each["name"]: each["builtin"] for each in listed["profiles"]}["guide-nemo-5b"] is False
    assert json.loads(run(capsys, "show", "guide-nemo-5b", "--json")[1])["profile"]["builtin"] is False


def test_a_broken_profile_is_named_by_list_and_show(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    place = home / ".local/share/gpumon/profiles"
    place.mkdir(parents=True)
    (place / "cut.json").write_text("{")
    assert f"not read: {place}/cut.json: is no profile" in run(capsys, "list")[1]
    code, _, err = run(capsys, "show", "cut")
    assert code == 2
    assert "cut.json: is no profile" in err
    assert run(capsys, "remove", "cut")[0] == 0
