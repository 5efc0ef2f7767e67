"""Each format and version: recognised by content, read in the right units, complete."""

from __future__ import annotations

import json

import pytest

from gpumon.sizing.imports.files import ImportRefused
from gpumon.sizing.imports.profiles import Given, import_files
from gpumon.sizing.profile import Observed, Origin
from gpumon.sources.packaged import gpu_catalogue
from tests.each_row import each_row
from tests.records import replace
from tests.sizing.imports.samples import files, one, read

MODEL = Given(model="some/Model")
LOADS = [
    ("nim.csv", {}, None),
    ("genai-perf-csv/*/*.csv", {"model": "m"}, [1, 5, 10, 50, 100, 250]),
    ("genai-perf-new.csv", {"model": "m", "concurrency": (144.0,)}, [144]),
    ("genai-perf*.json", {}, [1, 25, 100]),
    ("aiperf.csv", {"model": "m", "concurrency": (2.0,)}, [2]),
    ("aiperf-0.10.json", {"model": "m", "concurrency": (2.0,)}, [2]),
    ("aiperf-0.10-c*.json", {}, [2, 32]),
    ("aiperf-0.13-*.json", {}, [4, 16]),
    ("inference-perf/*", {}, None),
    ("inferencex-mtp-key.json", {}, [4, 16, 64]),
    ("vllm-bench.jsonl", {}, [1, 5, 25, 50, 100, 250]),
    ("vllm-sweep.json", {}, [8, 16]),
    ("inferencex.json", {}, [4, 16, 64]),
    ("inferencex-experiment.json", {}, [4]),
    ("inferencex-mtp.jsonl", {}, [32, 64]),
    ("vllm-hub-path.jsonl", {}, [8, 64]),
    ("guidellm-0.5.json", {}, None),
    ("sglang-new.jsonl", {}, [1, 8, 32]),
    ("guidellm-v2.json", {}, [1, 8, 25, 64]),
    ("guidellm-v1.json", {}, [1, 8, 64]),
    ("aiconfigurator.csv", {}, [1, 32, 64, 128]),
    ("model-analyzer/llm-mode.csv", {}, [1, 4, 16]),
    ("model-analyzer/old-inference.csv", {}, [1, 2]),
]


@each_row(("name", "given", "loads"), LOADS, named=[name for name, _, _ in LOADS])
def test_every_format_is_read_whatever_its_file_is_called(
    name: str, given: dict[str, object], loads: list[float] | None
) -> None:
    known = Given(**given)  # type: ignore[arg-type]
    content = files(name)
    plain = import_files(content, known)
    assert all(each.origin is Origin.SWEEP and each.model and each.tool for each in plain.profiles)
    if loads is not None:
        assert [point.offered for point in plain.profiles[0].points] == loads
    if "genai-perf-csv" not in name:
        renamed = {f"upload {number}.dat": data for number, data in enumerate(content.values())}
        assert import_files(renamed, known).profiles == plain.profiles


def test_running_is_tokens_per_second_times_itl_and_never_above_the_load() -> None:
    """Rows N1-N6 of the fact sheet (NIM, Llama-3.3-70B FP8 on 2 x H100, 5000/500)."""
    found = one("vllm-bench.jsonl")
    assert [round(point.running, 1) for point in found.points] == [1.0, 4.8, 24.1, 48.6, 85.2, 85.7]
    assert [point.itl_s for point in found.points] == pytest.approx(
        [0.01858, 0.02183, 0.03875, 0.05973, 0.09291, 0.0932]
    )
    assert [point.ttft_s for point in found.points][-1] == pytest.approx(88.605)
    assert (found.gpu, found.gpus, found.tp) == ("H100 SXM5 80GB", 2, 2)
    assert (found.prompt_tokens, found.answer_tokens) == (5000.0, 500.0)
    assert found.time == "2026-06-13T05:11:41"
    assert found.tpot_tail_ratio == pytest.approx(1.1)
    assert found.prefill_tokens_per_s == pytest.approx(1.84 * 5000)


def test_tpot_is_taken_where_a_file_has_the_gap_between_chunks_too() -> None:
    record = json.loads(files("vllm-bench.jsonl")["vllm-bench.jsonl"].splitlines()[0])
    assert record["mean_itl_ms"] != record["mean_tpot_ms"]
    del record["mean_tpot_ms"]
    found = import_files({"a": json.dumps(record).encode()})
    assert found.profiles[0].points[0].itl_s == pytest.approx(record["mean_itl_ms"] / 1e3)
    assert any("chunks" in note for note in found.notes)


def test_runs_of_one_combination_are_one_point_the_median_of_each_figure() -> None:
    low, high = one("vllm-sweep.json").points
    assert (low.weight, high.weight) == (3, 3)
    assert low.itl_s == pytest.approx(0.023)
    assert low.tokens_per_s == pytest.approx(201.0)
    assert one("vllm-sweep.json").max_num_seqs == 64


def test_a_rate_instead_of_a_concurrency_is_in_flight_by_littles_law() -> None:
    found = read("vllm-bench-old.json")
    assert found.profiles[0].points[0].offered == pytest.approx(0.436 * (0.547 + 499 * 0.02183), rel=1e-3)
    assert any("worked out" in note for note in found.notes)
    measured = one("sglang.jsonl", given=MODEL)
    assert measured.points[0].offered == pytest.approx(11.780263, rel=1e-6)
    assert measured.points[0].running == pytest.approx(957.162 * 0.0118089, rel=1e-4)


def test_nanoseconds_of_the_nim_csv_and_the_duplicate_runs_of_concurrency_5() -> None:
    """Rows D1-D5 and D10-D12 of the fact sheet (DLI, Llama-3-8B on 2 x A100)."""
    by_name = {each.name: each for each in read("nim.csv").profiles}
    assert sorted(by_name) == [
        "meta-llama3-8b-instruct-tp1-200x1000",
        "meta-llama3-8b-instruct-tp2-200x1000",
        "meta-llama3-8b-instruct-tp2-7000x1000",
    ]
    short = {point.offered: point for point in by_name["meta-llama3-8b-instruct-tp2-200x1000"].points}
    assert [short[load].itl_s for load in (1, 10, 50, 100, 250)] == pytest.approx(
        [8.33e-3, 9.13e-3, 12.79e-3, 19.99e-3, 37.04e-3], rel=1e-3
    )
    assert [short[load].ttft_s for load in (1, 10, 50, 100, 250)] == pytest.approx(
        [0.021, 0.086, 0.297, 0.415, 1.243], rel=0.03
    )
    assert (short[5].weight, short[1].weight) == (2, 1)
    long = {point.offered: point for point in by_name["meta-llama3-8b-instruct-tp2-7000x1000"].points}
    assert long[150].running == pytest.approx(113.3, abs=0.1)
    found = by_name["meta-llama3-8b-instruct-tp2-200x1000"]
    assert (found.gpu, found.gpus, found.tp, found.weight_precision) == ("A100 SXM4 80GB", 2, 2, "fp16")


def test_thousands_separators_of_the_real_genai_perf_files() -> None:
    found = read("genai-perf-csv/*/*.csv", given=replace(MODEL, gpu="A100 SXM4 80GB", tp=2))
    at = {point.offered: point for point in found.profiles[0].points}
    assert at[50].e2e_s == pytest.approx(1.91633)
    assert at[250].ttft_s == pytest.approx(2.01696)
    assert at[250].tokens_per_s == 2014.70
    assert at[50].tpot_p95_s == pytest.approx(0.02626)
    assert any("taken from the names" in note for note in found.notes)
    assert found.profiles[0].gpus == 2


def test_units_are_those_that_the_file_names() -> None:
    by_load = {point.offered: point for point in one("genai-perf*.json").points}
    assert by_load[1].itl_s == pytest.approx(4.63e-3)
    assert by_load[25].itl_s == pytest.approx(5.19e-3)
    assert by_load[1].e2e_s == pytest.approx(0.931)
    record = json.loads(files("genai-perf.json")["genai-perf.json"])
    for name in ("request_latency", "time_to_first_token", "inter_token_latency"):
        figures = record[name]
        record[name] = {"unit": "s"} | {key: value / 1e3 for key, value in figures.items() if key != "unit"}
    assert import_files({"a": json.dumps(record).encode()}).profiles[0].points[0].e2e_s == pytest.approx(1.069)


def test_seconds_and_throughput_per_gpu_of_inferencex() -> None:
    """Row X1 of the fact sheet (GLM-5 FP8 TP8, 1024/128)."""
    found = one("inferencex.json")
    assert [point.tokens_per_s for point in found.points] == pytest.approx([165, 404, 663])
    assert [point.itl_s for point in found.points] == pytest.approx([0.0214, 0.0336, 0.0879])
    assert (found.gpu, found.gpus, found.tp, found.weight_precision) == ("H200 SXM 141GB", 8, 8, "fp8")
    assert found.points[0].power_w == 504.0 * 8
    assert any("medians" in note for note in read("inferencex-experiment.json").notes)


def test_guidellm_uses_successful_requests_and_the_tpot_formula() -> None:
    newest, older = (one(f"guidellm-{name}.json") for name in ("v2", "v1"))
    assert newest.model == older.model == "Qwen/Qwen3-8B"
    assert newest.tool == "guidellm 0.7.3"
    assert newest.points[0].itl_s == pytest.approx(0.010)
    assert newest.points[0].e2e_s == pytest.approx(2.6)
    assert (newest.prompt_tokens, newest.answer_tokens) == (512.0, 256.0)


def test_a_newer_guidellm_is_read_and_said_to_be_newer() -> None:
    newer = files("guidellm-v2.json")["guidellm-v2.json"].replace(b'"version": 2', b'"version": 3')
    assert any("newer guidellm" in note for note in import_files({"a": newer}).notes)


def test_sglang_tells_its_server() -> None:
    found = one("sglang-new.jsonl")
    assert (found.model, found.tp, found.weight_precision) == ("Qwen/Qwen3-32B", 2, "fp8")
    assert (found.kv_pool_tokens, found.max_num_seqs) == (412345.0, 256)
    assert found.tool == "SGLang bench_serving 0.5.3"


def test_aiconfigurator_is_marked_as_computed() -> None:
    """Rows A1-A4 of the fact sheet (Llama-3.1-8B on H100)."""
    found = read("aiconfigurator.csv")
    profile = found.profiles[0]
    assert [point.itl_s for point in profile.points] == pytest.approx([6.21e-3, 9.50e-3, 12.53e-3, 17.75e-3])
    assert (profile.gpu, profile.tp, profile.weight_precision) == ("H100 SXM5 80GB", 1, "bf16")
    assert any("computes" in note for note in found.notes)


def test_model_analyzer_joins_its_gpu_file_and_keeps_configurations_apart() -> None:
    found = read("model-analyzer/metrics-*.csv")
    names = [each.name for each in found.profiles]
    assert names == [
        "add_sub-add_sub_config_1",
        "add_sub-add_sub_config_1-batch2",
        "add_sub-add_sub_config_default",
        "add_sub-add_sub_config_default-batch2",
    ]
    default = found.profiles[2]
    assert default.memory_bytes == 822e6
    assert default.busy_ratio == pytest.approx(0.043)
    assert default.power_w == 55.6
    assert default.gpus == 1
    assert [point.requests_per_s for point in default.points] == [3140.7, 7755.3]
    assert [point.requests_per_s for point in found.profiles[3].points] == [3113.4, 7541.4]
    assert any("request lengths" in note for note in found.notes)
    assert one("model-analyzer/old-*.csv").memory_bytes == 1099e6


def test_the_guides_table_10_as_model_analyzer_wrote_it() -> None:
    """Rows E1-E4 of the fact sheet: three of the four are serial servers behind a queue."""
    by_name = {each.name: each for each in read("model-analyzer/guide*.csv").profiles}
    big, small = by_name["nemo-20b"], by_name["nemo-5b"]
    assert (big.concurrency, big.memory_bytes, big.busy_ratio) == (16.0, 44.76e9, pytest.approx(0.935))
    assert (small.concurrency, small.memory_bytes, small.busy_ratio) == (4.0, 12.41e9, pytest.approx(0.99))
    assert small.points[0].running == pytest.approx(1.0, abs=0.01)
    assert big.points[0].running == pytest.approx(15.2, abs=0.1)
    assert small.points[0].e2e_p95_s == pytest.approx(1.136)


def test_llm_mode_of_model_analyzer_has_tokens_in_a_column_that_says_inferences() -> None:
    found = one("model-analyzer/llm-mode.csv", given=Given(prompt_tokens=512, answer_tokens=200))
    assert [point.tokens_per_s for point in found.points] == [98.0, 372.0, 1240.0]
    assert found.points[2].running == pytest.approx(1240 * 0.0121)
    assert (found.prompt_tokens, found.answer_tokens) == (512.0, 200.0)


def test_the_order_of_files_and_rows_does_not_matter() -> None:
    content = files("genai-perf-csv/*/*.csv")
    backwards = dict(reversed(content.items()))
    assert import_files(content, MODEL).profiles == import_files(backwards, MODEL).profiles


def test_a_profile_keeps_at_most_64_points_with_both_ends() -> None:
    first = json.loads(files("vllm-bench.jsonl")["vllm-bench.jsonl"].splitlines()[0])
    lines = [
        json.dumps(
            first | {"max_concurrency": load, "output_throughput": 50.0 * load, "request_throughput": 0.1 * load}
        )
        for load in (round(1.05**step * 20) for step in range(110))
    ]
    found = import_files({"a.jsonl": "\n".join(lines).encode()}).profiles[0]
    assert len(found.points) == 64
    assert (found.points[0].offered, found.points[-1].offered) == (20.0, round(1.05**109 * 20))


def test_what_the_user_gives_fills_what_the_files_leave_out() -> None:
    given = Given(
        name="mine",
        model="renamed",
        gpu="H100 PCIe 80GB",
        gpus=1,
        tp=1,
        memory_bytes=5e9,
        busy_ratio=0.5,
        kv_precision="fp8",
    )
    found: Observed = one("model-analyzer/old-inference.csv", given=given)
    assert (found.name, found.model, found.gpu) == ("mine", "renamed", "H100 PCIe 80GB")
    assert (found.gpus, found.tp, found.memory_bytes, found.busy_ratio, found.kv_precision) == (1, 1, 5e9, 0.5, "fp8")


def test_a_model_of_the_hub_s_cache_has_its_published_name() -> None:
    found = one("vllm-hub-path.jsonl")
    assert (found.name, found.model) == ("MiniMax-M2.5", "MiniMaxAI/MiniMax-M2.5")


def test_points_with_drafts_say_so() -> None:
    """Kimi-K2.5 with MTP: a step of 630 ms gives tokens 224 ms apart, so that typed drafts are not counted twice."""
    assert one("inferencex-mtp.jsonl").tokens_per_step == pytest.approx(2.81, abs=0.01)
    assert one("vllm-hub-path.jsonl").tokens_per_step is None


STAGES = "inference-perf/stage_*_lifecycle_metrics.json"


def test_inference_perf_s_stages_are_points_and_its_config_names_the_model() -> None:
    """vLLM ran at most 128 sequences there: the last stage, of 422 in flight, shows them."""
    found = read("inference-perf/*")
    (profile,) = found.profiles
    assert profile.model == "meta-llama/Meta-Llama-3-8B-Instruct"
    assert profile.tool == "inference-perf"
    assert [round(point.offered or 0.0, 1) for point in profile.points] == [0.5, 17.0, 41.6, 93.3, 422.2]
    assert profile.points[-1].running == pytest.approx(126.2, abs=0.1)
    assert profile.points[0].ttft_s == pytest.approx(0.0311, abs=1e-4)
    assert profile.points[0].e2e_s == pytest.approx(0.4805, abs=1e-4)
    assert profile.prompt_tokens == pytest.approx(204.0, abs=0.5)
    assert profile.answer_tokens == pytest.approx(62.2, abs=0.2)


def test_the_time_per_token_of_inference_perf_is_the_one_that_its_latencies_agree_with() -> None:
    """`time_per_output_token` of that version is half of what latency, TTFT and answer say."""
    stages = files(STAGES)
    record = json.loads(next(iter(stages.values())))
    told = record["successes"]["latency"]["time_per_output_token"]
    half = import_files(stages, MODEL)
    assert half.profiles[0].points[0].itl_s == pytest.approx(0.00723, abs=1e-5)
    assert any("time_per_output_token, which is 0.5 of" in note for note in half.notes)
    told |= {"mean": told["mean"] * 2.08, "p95": told["p95"] * 2.08}
    right = import_files({"a": json.dumps(record).encode()}, MODEL)
    assert right.profiles[0].points[0].itl_s == pytest.approx(told["mean"])
    assert not any("time_per_output_token" in note for note in right.notes)


def test_a_stage_of_a_held_concurrency_is_offered_that_and_an_unstreamed_one_has_no_itl() -> None:
    record = json.loads(next(iter(files(STAGES).values())))
    record["load_summary"]["concurrency"] = 1
    record["successes"]["prompt_tokens"] = {"total": 1000.0, "cached": 250.0, "mean": 200.0}
    del record["successes"]["prompt_len"]
    for name in ("time_per_output_token", "time_to_first_token", "inter_token_latency"):
        record["successes"]["latency"][name] = None
    found = import_files({"a": json.dumps(record).encode()}, MODEL)
    (profile,) = found.profiles
    assert profile.points[0].offered == 1.0
    assert (profile.points[0].itl_s, profile.points[0].ttft_s) == (None, None)
    assert (profile.prompt_tokens, profile.prefix_hit_ratio) == (200.0, 0.25)
    assert any("not streamed" in note for note in found.notes)


def test_what_is_left_out_of_an_import_is_named_with_the_reason() -> None:
    found = read("inference-perf/*")
    assert [note.partition(": ")[2] for note in found.notes if "metrics.json" in note] == [
        "inference-perf/stage_3_prometheus_metrics.json:1: "
        "the server's own figures of a stage: those of the client count",
        "inference-perf/summary_lifecycle_metrics.json:1: all stages together, which is no load: "
        "import the stage_N files",
    ]
    adapter = {"adapter_a_stage_0_lifecycle_metrics.json": next(iter(files(STAGES).values()))}
    assert any("one LoRA adapter" in note for note in import_files(files(STAGES) | adapter, MODEL).notes)
    rows = json.loads(files("inferencex.json")["inferencex.json"])
    rows += [row | {"disagg": True} for row in rows]
    mixed = import_files({"a": json.dumps(rows).encode()})
    assert mixed.profiles == import_files(files("inferencex.json")).profiles
    (note,) = [note for note in mixed.notes if "disagg" in note]
    assert note.startswith("not taken: a:1 [3]: disagg: is true: prefill and decode run apart")
    assert note.endswith("(and 2 more like it)")


def test_aiperf_names_the_model_in_its_config_or_in_its_command_line() -> None:
    content = files("aiperf-0.10-c16.json")
    record = json.loads(next(iter(content.values())))
    del record["input_config"]["models"]
    assert import_files({"a": json.dumps(record).encode()}).profiles[0].model == "qwen3.6-nvfp4"
    assert import_files(content).profiles[0].points[0].offered == 16.0
    record["run_info"]["cli_command"] = "aiperf profile -m a,b --url 'http://localhost:8000"
    with pytest.raises(ImportRefused, match="model: is not in the file: add it with --model NAME"):
        import_files({"a": json.dumps(record).encode()})


def test_a_warmup_and_several_loads_in_one_file_are_no_load() -> None:
    record = json.loads(next(iter(files("aiperf-0.10-c16.json").values())))
    phases = record["input_config"]["phases"]
    phases[0]["concurrency"] = 3
    assert import_files({"a": json.dumps(record).encode()}).profiles[0].points[0].offered == 16.0
    phases.append(phases[1] | {"concurrency": 99})
    with pytest.raises(ImportRefused, match="several loads in one summary"):
        import_files({"a": json.dumps(record).encode()})


def test_rows_with_mtp_are_a_profile_of_their_own_whatever_the_key_is_called() -> None:
    by_name = {profile.name: profile for profile in read("inferencex-mtp-key.json").profiles}
    assert sorted(by_name) == ["DeepSeek-R1-0528", "DeepSeek-R1-0528-mtp"]
    assert by_name["DeepSeek-R1-0528-mtp"].tokens_per_step == pytest.approx(2.25, abs=0.01)
    assert by_name["DeepSeek-R1-0528"].tokens_per_step is None
    rows = json.loads(files("inferencex-mtp-key.json")["inferencex-mtp-key.json"])
    for row in rows:
        row["spec_decoding"] = "mtp" if row.pop("mtp") == "on" else "none"
    renamed = import_files({"a": json.dumps(rows).encode()}, None, gpu_catalogue())
    assert renamed.profiles == tuple(by_name[name] for name in sorted(by_name))
    for row in rows:
        del row["mean_itl"], row["median_itl"]
    notes = import_files({"a": json.dumps(rows).encode()}).notes
    assert any("tokens per step of mtp are not known" in note for note in notes)
