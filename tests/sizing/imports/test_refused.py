"""Bad, partial, foreign and hostile files: named with place, field and reason; nothing is imported."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.sizing.imports.files import MOST_IMPORT_BYTES, ImportRefused, documents
from gpumon.sizing.imports.profiles import Given, Imported, import_files
from tests.each_row import each_row
from tests.sizing.imports.samples import FOLDER, files

VLLM = json.loads(files("vllm-bench.jsonl")["vllm-bench.jsonl"].splitlines()[1])
AIPERF = json.loads(files("aiperf-0.13-c4.json")["aiperf-0.13-c4.json"])
GUIDELLM = json.loads(files("guidellm-v1.json")["guidellm-v1.json"])


def refusal(content: bytes | dict[str, bytes], known: Given | None = None) -> str:
    with pytest.raises(ImportRefused) as caught:
        import_files(content if isinstance(content, dict) else {"run.dat": content}, known)
    return str(caught.value)


def outcome(content: bytes) -> Imported | str:
    """What came of a file: profiles, or why not."""
    try:
        return import_files({"file": content}, Given(model="m"))
    except ImportRefused as refused:
        return str(refused)


def changed(record: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps({**record, **fields}).encode()


RECORDS: list[tuple[bytes, str]] = [
    (
        changed(VLLM, completed=10, num_prompts=20),
        "run.dat:1: completed: 10 of 20 requests succeeded; allowed: at least 95%",
    ),
    (changed(VLLM, completed=19, failed=2), "19 of 21 requests succeeded"),
    (changed(VLLM, completed=0), "no request succeeded"),
    (changed(VLLM, output_throughput=float("nan")), "run.dat:1: output_throughput: is nan; allowed: a number"),
    (changed(VLLM, output_throughput=-3), "output_throughput: is -3; allowed: a number from 0"),
    (changed(VLLM, output_throughput=None), "output_throughput: is missing"),
    (changed(VLLM, output_throughput=0), "throughput: is 0: nothing was served"),
    (changed(VLLM, mean_tpot_ms="fast"), "mean_tpot_ms: is 'fast'; allowed: a number"),
    (changed(VLLM, mean_tpot_ms=0.0), "inter-token latency: is 0"),
    (changed(VLLM, mean_tpot_ms=[20]), "mean_tpot_ms: is [20]; allowed: a number"),
    (changed(VLLM, mean_ttft_ms=float("inf")), "mean_ttft_ms: is inf; allowed: a number from 0"),
    (changed(VLLM, tp="2.5"), "tp: is 2.5; allowed: a whole number"),
    (changed(VLLM, model_id=None), "model: is not in the file: add it with --model NAME"),
    (changed(VLLM, mean_tpot_ms=21830.0), "request latency: x requests/s is"),
    (changed(VLLM, mean_tpot_ms=0.02183, mean_ttft_ms=0.547), "request latency: x requests/s is 0.0"),
    (changed(VLLM, mean_e2el_ms=11440.0, mean_tpot_ms=0.02183), "request latency: 11.44 s, but TTFT + ITL x"),
    (changed(AIPERF, was_cancelled=True), "was_cancelled: is true: the run is not complete"),
    (changed(AIPERF, is_complete=False), "is_complete: is false"),
    (changed(AIPERF, error_request_count={"avg": 30}), "100 of 130 requests succeeded"),
    (
        changed(AIPERF, inter_token_latency={"avg": 10, "unit": "fortnights"}),
        "unit: has the unit 'fortnights'; allowed: ns,",
    ),
    (changed(GUIDELLM, benchmarks=[]), "benchmarks: is empty"),
    (changed(GUIDELLM, benchmarks=[*GUIDELLM["benchmarks"], 7]), "run.dat:1 benchmarks[3]: is no object"),
    (FOLDER.joinpath("sglang-aborted.jsonl").read_bytes(), "the server aborted them"),
    (FOLDER.joinpath("inferencex-disagg.json").read_bytes(), "disagg: is true"),
    (FOLDER.joinpath("aiconfigurator-disagg.csv").read_bytes(), "(p)tp: prefill and decode run apart"),
    (
        FOLDER.joinpath("model-analyzer/request-rate.csv").read_bytes(),
        "run.dat:2: mean latency: is missing: the load is a rate",
    ),
    (FOLDER.joinpath("model-analyzer/metrics-server-only.csv").read_bytes(), "holds no measurement of a model"),
]


@each_row(("content", "text"), RECORDS, named=[text[:40] for _, text in RECORDS])
def test_a_bad_record_is_named(content: bytes, text: str) -> None:
    assert text in refusal(content)


FOREIGN: list[tuple[bytes, str]] = [
    (b"", "run.dat: is empty"),
    (b"  \n ", "is empty"),
    (b",,,\n", "run.dat: is empty"),
    (gzip.compress(b"{}"), "is no text in UTF-8; allowed: text; a packed file has to be unpacked"),
    (b"Metric,avg\n\0", "holds binary data"),
    (b"Metric,avg\nt" + b" " * 60_000 + b"x(((,1\n", "model: is not in the file"),
    (b"{", "is no JSON (or is cut off)"),
    (json.dumps(VLLM).encode() + b"\n" + json.dumps(VLLM).encode()[:200], "run.dat:2: is no JSON (or is cut off)"),
    (b"[" * 200_000, "is nested too deeply"),
    (b'{"a":' * 200_000, "is nested too deeply"),
    (b'{"a": [' + b"[]," * 2_000_000 + b"[]]}", "has more than 2,000,000 lists and objects"),
    (b'{"output_throughput": ' + b"9" * 5000 + b', "mean_ttft_ms": 1}', "too many digits"),
    (b"[1, 2]", "run.dat:1 [0]: is no JSON object"),
    (b'{"hello": 1}', "is the result of no load test that gpumon knows; allowed: Triton Model Analyzer CSV"),
    (b"<html>no</html>", "is the result of no load test"),
    (b'{"metadata": {"x_request_id": "a"}, "metrics": {}}', "run.dat:1: requests one by one: import the summary"),
    (b'{"data": [{"session_id": "a", "payloads": []}]}', "prompts, answers or requests one by one"),
    (b'{"combined": {}, "per_run": []}', "several runs pooled"),
    (b'{"start_time": 0, "end_time": 1, "request": "", "info": {}}', "requests one by one: import the stage_N files"),
    (b'{"num_sessions": 1, "num_sessions_succeeded": 1}', "sessions, not requests"),
    (b'{"load_summary": {}, "successes": {"count": 5}}', "the server's own figures of a stage"),
    (b"load:\n  type: constant\nserver:\n  type: vllm\n", "names no model (server.model_name)"),
    (b"a,b\nRun Info,1\n", "is the result of no load test"),
    (b'"unclosed, quote\n', ": is no CSV: unexpected end"),
]


@each_row(("content", "text"), FOREIGN, named=[text[:40] for _, text in FOREIGN])
def test_a_foreign_or_broken_file_is_named(content: bytes, text: str) -> None:
    assert text in refusal(content)


def test_a_row_of_another_length_names_its_line() -> None:
    lines = files("nim.csv")["nim.csv"].splitlines()
    cut = b"\n".join([*lines[:3], lines[3][:200]])
    assert "run.dat:4: has 1" in refusal(cut)


def test_a_bad_cell_names_line_and_column() -> None:
    text = files("nim.csv")["nim.csv"].replace(b",8332502.995435435,", b",n/a?,")
    assert "run.dat:5: inter_token_latency-avg: is 'n/a?'; allowed: a number" in refusal(text)


def test_one_bad_file_keeps_all_out_and_every_problem_is_named() -> None:
    content = files("vllm-bench.jsonl") | {"a.json": b"{", "b.json": changed(VLLM, completed=0)}
    lines = refusal(content).splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("a.json:1: ")
    assert lines[1].startswith("b.json:1: ")


def test_alike_problems_of_a_file_are_one_line() -> None:
    three = b"\n".join(changed(VLLM, model_id=None, max_concurrency=load) for load in (4, 5, 6))
    lines = refusal(three).splitlines()
    assert lines == ["run.dat:1: model: is not in the file: add it with --model NAME (and 2 more like it)"]


def test_copies_of_a_run_count_once_and_that_is_said() -> None:
    (name, content), *_ = files("vllm-bench.jsonl").items()
    once = import_files({name: content})
    found = import_files({name: content, "copy.jsonl": b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n")})
    assert found.profiles == once.profiles
    assert found.notes == ("6 of 12 runs stand in the files more than once: they count once", *once.notes)


def test_a_gpu_file_alone_names_the_file_that_belongs_to_it() -> None:
    assert "metrics-model-inference.csv beside it" in refusal(files("model-analyzer/metrics-model-gpu.csv"))


def test_many_problems_are_counted() -> None:
    text = refusal({f"{number}.json": b"{" for number in range(30)})
    assert text.splitlines()[-1] == "and 20 more"


def test_sizes_are_capped() -> None:
    assert "all files together are larger than 64 MB" in refusal(b" " * (MOST_IMPORT_BYTES + 1))
    assert "513 files; allowed: 1 to 512 at a time" in refusal({str(number): b"{}" for number in range(513)})
    assert "0 files" in refusal({})
    assert "more than 20000 records" in refusal(b"{} " * 30_000)
    assert "is no CSV: field larger than" in refusal(b"a" * 1_000_001)
    assert "is no JSON object" in refusal(b"[]\n[[]]")
    assert "holds no measurement" in refusal(b"[]")
    rows = b"Model,Throughput (infer/sec)\n" + b"m,1\n" * 20_001
    assert "more than 20000 records" in refusal(rows)


def test_rows_behind_many_empty_lines_are_not_left_out_without_a_word() -> None:
    rows = b"Model,Throughput (infer/sec)\nm,1\n" + b"\n" * 40_000 + b"m,2\n"
    assert "has more than 40000 rows, empty ones included" in refusal(rows)


def test_a_final_line_feed_is_no_row() -> None:
    (document,) = documents("file.csv", b"a,b\n1,2\n" + b"\n" * 39_998)
    assert len(document.rows) == 1
    assert "has more than 40000 rows" in refusal(b"a,b\n1,2\n" + b"\n" * 39_999)


def test_line_feeds_in_cells_are_no_rows() -> None:
    (document,) = documents("file.csv", b"a,b\n" + b'1,"x\ny\nz"\n' * 15_000)
    assert len(document.rows) == 15_000


def test_what_a_file_says_is_not_overruled_by_an_option() -> None:
    assert "tp: is 2 in the file, 4 in --tp" in refusal(changed(VLLM), Given(tp=4))


def test_concurrencies_have_to_fit_the_runs_that_lack_them() -> None:
    content = files("genai-perf-new.csv")
    assert "1 runs that do not tell theirs" in refusal(content, Given(model="m", concurrency=(1.0, 2.0)))
    assert "0 runs that do not tell theirs" in refusal(changed(VLLM), Given(concurrency=(1.0,)))


def test_without_any_hint_the_concurrency_is_asked_for() -> None:
    text = files("genai-perf-new.csv")["genai-perf-new.csv"].decode()
    bare = "\n".join(line for line in text.splitlines() if not line.startswith(("Request", "Time To First")))
    assert "concurrency: is not in the file: add it with --concurrency N" in refusal(
        bare.replace('"4,000.03"', "4000.03").encode(), Given(model="m")
    )


def test_control_characters_of_a_file_never_reach_the_screen() -> None:
    assert "\x1b" not in refusal(changed(VLLM, mean_tpot_ms="\x1b[2J"))
    found = import_files({"a": changed(VLLM, model_id="evil\x1b[2J\u202e")})
    assert found.profiles[0].model.isprintable()


SAMPLES = sorted(
    path for path in FOLDER.rglob("*") if path.suffix in (".csv", ".json", ".jsonl") and path.stat().st_size < 9000
)


@given(st.data())
def test_damaged_samples_are_read_or_refused_and_never_crash(data: st.DataObject) -> None:
    content = data.draw(st.sampled_from(SAMPLES)).read_bytes()
    begin = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(begin, min(len(content), begin + 60)))
    damaged = content[:begin] + data.draw(st.binary(max_size=12)) + content[end:]
    found = outcome(damaged)
    assert isinstance(found, str) or all(each.points and each.concurrency for each in found.profiles)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from([VLLM, AIPERF, GUIDELLM]), st.data())
def test_any_value_in_any_field_is_read_or_refused(record: dict[str, Any], data: st.DataObject) -> None:
    changes = data.draw(st.dictionaries(st.sampled_from(sorted(record)), VALUES, min_size=1, max_size=3))
    assert outcome(json.dumps({**record, **changes}).encode())
