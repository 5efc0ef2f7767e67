"""`gpumon simulate` as its users run it: options, a scenario, a recording, JSON, exit codes."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpumon.commands.simulate import ROUTER_NAMES
from gpumon.outputs.simulation_data import schema
from gpumon.sizing.simulate import router
from tests.commands.sizing import size_here
from tests.outputs.validator import problems
from tests.program import run_gpumon, user_environment

ROOT = Path(__file__).parents[2]
CHAT = (
    "--model",
    "Qwen/Qwen3-32B",
    "--gpu",
    "H100 SXM 80GB",
    "--prompt",
    "1000",
    "--answer",
    "200",
    "--duration",
    "60",
)

MODEL = CHAT[:4]
TRACES = ROOT / "tests" / "data" / "traces"
AZURE = str(TRACES / "azure-2023-code.csv")
SHAREGPT = str(TRACES / "sharegpt.json")

SCENARIO = """
ttft_p95_ms = 800
[[server]]
gpu = "H100 SXM 80GB"
[[workload]]
model = "Qwen/Qwen3-32B"
target_kind = "requests_per_s"
target = 4
tp = 2
prompt_tokens = 1000
answer_tokens = 50
"""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """No config and no profiles of the user."""
    return user_environment(tmp_path, TERM="xterm-256color")


def run(*arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return run_gpumon("simulate", *arguments, env=env, cwd=ROOT)


def answers(*arguments: str, env: dict[str, str], code: int = 0) -> list[Any]:
    done = run(*arguments, "--json", env=env)
    assert (done.returncode, done.stderr) == (code, "")
    found = json.loads(done.stdout)
    assert list(problems(found, schema())) == []
    return list(found["simulations"])


def test_the_same_question_has_the_same_answer(env: dict[str, str]) -> None:
    options = (*CHAT, "--rate", "10", "--answer-variation", "0.5", "--burstiness", "0.5")
    first, again = (run(*options, "--json", env=env).stdout for _ in range(2))
    assert first == again
    other = run(*options, "--json", "--seed", "2", env=env).stdout
    assert other != first


def test_what_ifs_change_what_is_simulated(env: dict[str, str]) -> None:
    (base,) = answers(*CHAT, "--rate", "10", "--replicas", "2", env=env)
    (other,) = answers(
        *CHAT, "--rate", "10", "--replicas", "3", "--tp", "4", "--max-num-seqs", "16",
        "--max-num-batched-tokens", "1024", "--router", "round-robin", "--kv-tokens", "100000", env=env,
    )  # fmt: skip
    assert (base["replicas"], base["router"]) == (2, "least-loaded")
    assert (other["replicas"], other["tp"], other["gpus"], other["router"]) == (3, 4, 12, "round-robin")
    assert (other["max_num_seqs"], other["max_num_batched_tokens"], other["kv_blocks"]) == (16, 1024, 6250)
    assert other["figures"][0]["itl_s"]["mean"] != base["figures"][0]["itl_s"]["mean"]


def test_no_goal_on_a_p95_is_held_by_a_few_requests(env: dict[str, str]) -> None:
    """Two requests in a minute have a mean and no p95; 120 have one, which is one of chance."""
    few = (*CHAT, "--rate", "0.05", "--duration", "60s", "--ttft", "10000")
    (two,) = answers(*few, env=env, code=4)
    assert (two["holds"], two["missed"], two["figures"][0]["ttft_s"]["p95"]) == (False, [], None)
    assert two["figures"][0]["ttft_s"]["mean"] > 0.0
    text = run(*few, env=env).stdout
    assert "not known: fewer than 20 requests tell the p95 of a goal (2 in all)" in text
    assert "goals       held" not in text
    (some,) = answers(*CHAT, "--rate", "1", "--duration", "120s", "--ttft", "10000", env=env)
    assert some["holds"]
    assert any(note.startswith("a p95 of fewer than 200 requests is one of chance") for note in some["notes"])


def test_a_goal_that_is_missed_is_exit_code_4(env: dict[str, str]) -> None:
    (held,) = answers(*CHAT, "--rate", "5", "--ttft", "2000", env=env)
    (lost,) = answers(*CHAT, "--rate", "5", "--ttft", "2000", "--itl", "1", "--replicas", "2", env=env, code=4)
    assert (held["holds"], held["missed"]) == (True, [])
    assert (lost["holds"], lost["missed"]) == (False, ["ITL"])


def test_a_short_name_is_the_usual_gpu_of_it_as_in_a_comparison(env: dict[str, str]) -> None:
    (short,) = answers(*CHAT, "--rate", "5", "--duration", "20", "--gpu", "H100", env=env)
    (whole,) = answers(*CHAT, "--rate", "5", "--duration", "20", env=env)
    assert short["notes"] == ["H100 is taken for H100 SXM5 80GB", *whole["notes"]]
    assert short["figures"] == whole["figures"]


def test_a_server_of_a_cloud_has_its_own_gpus_in_plan_and_simulation(env: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "cloud.toml"
    file.write_text(SCENARIO.replace("H100 SXM 80GB", "g6e.12xlarge").replace("800", "9000"))
    (answer,) = answers(str(file), "--duration", "30", env=env)
    assert (answer["gpu"], answer["notes"][0]) == ("L40S", "g6e.12xlarge is 4 x L40S, network Ethernet 25")
    planned = size_here(str(file), env=env).stdout
    assert "1 x server of 4 x L40S: " in planned
    assert "warning             g6e.12xlarge is 4 x L40S, network Ethernet 25" in planned
    file.write_text(file.read_text().replace('g6e.12xlarge"', 'g6e.12xlarge"\ngpus = 6'))
    refused = size_here(str(file), env=env)
    assert refused.returncode == 2
    assert "gpus = 6: must be 4, which g6e.12xlarge has, or left out" in refused.stderr
    (other,) = answers(*CHAT[:2], "--gpu", "gpu_4x_h100_sxm5", *CHAT[4:], "--rate", "2", env=env)
    assert (other["gpu"], other["notes"][0]) == (
        "H100 SXM5 80GB",
        "gpu_4x_h100_sxm5 is 4 x H100 SXM5 80GB, network Ethernet 25",
    )
    compared = size_here("docs/examples/users.toml", "--compare", "H100,p5en.48xlarge", env=env).stdout
    assert "p5en.48xlarge is taken for H200 SXM 141GB" in compared


def test_a_tp_over_two_servers_is_played_as_it_is_planned(env: dict[str, str]) -> None:
    (found,) = answers(*CHAT, "--rate", "5", "--replicas", "1", "--tp", "16", env=env)
    assert (found["tp"], found["gpus"], found["problem"]) == (16, 16, "")
    done = run(*CHAT, "--rate", "5", "--replicas", "1", "--tp", "5", env=env)
    assert done.returncode == 4
    assert "TP 5 does not divide the 64 heads: engines refuse it" in done.stdout


def test_pools_are_played_as_they_are_planned(env: dict[str, str]) -> None:
    pools = ("docs/examples/disaggregated.toml", "--workload", "documents", "--pools")
    (found,) = answers(*pools, "--duration", "120", env=env)
    done = size_here("docs/examples/disaggregated.toml", "--pools", "--json", env=env)
    planned = json.loads(done.stdout)["workloads"]
    assert found["gpus"] == sum(plan["gpus"] for plan in planned if plan["pool"])
    assert (found["holds"], found["problem"]) == (True, "")
    refused = run(*pools, "--replicas", "3", env=env)
    assert (refused.returncode, "without --replicas" in refused.stderr) == (2, True)


def test_a_scenario_file_with_one_of_its_workloads(env: dict[str, str]) -> None:
    (found,) = answers("docs/examples/mixed-servers.toml", "--workload", "code", "--duration", "60", env=env)
    assert (found["name"], found["tp"]) == ("code", 4)
    assert found["arrivals"].startswith("160 clients")


def test_what_is_not_known_is_refused_with_the_option_that_mends_it(env: dict[str, str]) -> None:
    done = run("--model", "Qwen/Qwen3-32B", "--gpu", "H100 SXM 80GB", "--rate", "5", env=env)
    assert (done.returncode, done.stderr) == (4, "")
    assert "--prompt and --answer" in done.stdout
    unknown = run("--model", "no/such", *CHAT[2:], "--rate", "5", "--replicas", "1", env=env)
    assert unknown.returncode == 4
    assert "no model 'no/such' is known" in unknown.stdout


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "simulate needs a scenario file, --model"),
        (("--model", "m"), "how many requests? Give --rate or --concurrency"),
        ((*CHAT, "--rate", "1", "--concurrency", "2"), "one of them at a time"),
        ((*CHAT, "--rate", "1", "--prefix-groups", "2"), "belong together"),
        ((*CHAT, "--rate", "1", "--duration", "0s"), "--duration must be above 0"),
        ((*CHAT, "--concurrency", "1", "--burstiness", "0.5"), "--burstiness is of a --rate"),
        (("--from-recording", "r", "--rate", "1"), "the arrivals that were recorded are played"),
        (("--from-recording", "r", "--answer-variation", "1"), "are played, unless you give --answer"),
        ((*CHAT, "--rate", "1", "--to", "-1m"), "--from-recording FILE or --from-prometheus"),
        ((*CHAT, "--rate", "1", "--gpu", "H101"), "--gpu: unknown GPU type 'H101'; near names: H100"),
        ((*CHAT, "--rate", "1", "--trace-to", "9"), "--trace-to is of a --trace FILE"),
        ((*CHAT, "--trace", AZURE), "--prompt: the requests of the trace are played"),
        (("--trace", AZURE), "simulate needs a scenario file, --model"),
        ((*MODEL, "--trace", AZURE, "--rate", "3"), "the trace has its own times; --rate-factor and --trace-scale"),
        ((*MODEL, "--trace", SHAREGPT), "sharegpt.json has no times: give --rate R"),
        ((*MODEL, "--trace", AZURE, "--trace-from", "2m", "--trace-to", "1m"), "--trace-to must be after --trace-from"),
        ((*MODEL, "--trace", "README.md"), "README.md: has no tokens of the prompt"),
        ((*MODEL, "--trace", "no-such.csv"), "no-such.csv: No such file or directory"),
        (("docs/examples/mixed-servers.toml", "--trace", AZURE), "--trace is for one workload: choose it"),
        (("docs/examples/mixed-servers.toml", "--rate", "3"), "choose it with --workload NAME"),
        (("docs/examples/mixed-servers.toml", "--workload", "none"), "there is no workload 'none'; known: code"),
    ],
)
def test_usage(arguments: tuple[str, ...], why: str, env: dict[str, str]) -> None:
    done = run(*arguments, env=env)
    assert done.returncode == 2
    assert why in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_routers_of_the_option_are_those_of_the_model() -> None:
    assert sorted(ROUTER_NAMES) == sorted(router.ROUTERS)


def test_size_compares_types_of_gpu_by_formula_alone(env: dict[str, str]) -> None:
    done = size_here("docs/examples/users.toml", "--simulate", "--compare", "L40S", env=env)
    assert done.returncode == 2
    assert "one of them at a time" in done.stderr


def test_size_takes_the_plan_of_the_simulation(env: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "chat.toml"
    file.write_text(SCENARIO)
    done = size_here(str(file), "--simulate", env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert "by simulation: " in done.stdout
    assert "(by formula: " in done.stdout


RECORDING = Path(__file__).parents[1] / "data" / "recordings" / "first-edition.gpumon"


def test_the_traffic_of_a_recording_is_played_against_something_else(env: dict[str, str]) -> None:
    """By the engine's own fit as it ran, and with half the replicas' places."""
    options = ("--from-recording", str(RECORDING), "--workload", "meta-llama/Llama-3.1-8B-Instruct", "--replicas", "1")
    (ran,) = answers(*options, env=env, code=4)
    (tight,) = answers(*options, "--max-num-seqs", "4", env=env, code=4)
    (short,) = answers(*options, "--duration", "10s", env=env, code=4)
    assert short["arrivals"] == "the first 10 s of 263 requests as recorded in 40 s"
    assert short["figures"][0]["requests"] < ran["figures"][0]["requests"]
    assert ran["figures"][0]["requests"] == pytest.approx(263, rel=0.15)
    assert ran["arrivals"] == "263 requests as recorded in 40 s"
    assert ran["notes"][-1] == "lengths from the engine's histograms"
    assert not any("not measured" in note for note in ran["notes"])
    assert tight["figures"][0]["queue_grows"]
    assert tight["figures"][0]["ttft_s"]["p50"] > 5 * ran["figures"][0]["ttft_s"]["p50"]


def test_what_was_recorded_is_played_first_and_a_fit_that_it_refutes_holds_no_goal(env: dict[str, str]) -> None:
    """The engines as they ran, whatever is typed: one within 25%, the other with a TTFT that no step explains."""
    large = ("--from-recording", str(RECORDING), "--workload", "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic")
    (ran,) = answers(*large, "--ttft", "5000", env=env)
    check = ran["check"]
    figures = {figure["name"]: figure for figure in check["figures"]}
    assert list(figures) == [
        "TTFT mean", "TTFT p95", "ITL mean", "ITL p95", "E2E mean", "E2E p95", "throughput"
    ]  # fmt: skip
    assert not check["refuted"]
    assert all(abs(figure["error_ratio"]) < 0.25 for figure in figures.values())
    assert figures["throughput"]["error_ratio"] == pytest.approx(0.0, abs=0.05)
    (typed,) = answers(*large, "--max-num-seqs", "2", "--replicas", "1", env=env, code=4)
    assert typed["check"] == check
    small = ("--from-recording", str(RECORDING), "--workload", "meta-llama/Llama-3.1-8B-Instruct", "--replicas", "1")
    (wrong,) = answers(*small, "--ttft", "5000", env=env, code=4)
    assert (wrong["check"]["refuted"], wrong["missed"], wrong["holds"]) == (True, [], False)
    said = " ".join(run(*small, env=env).stdout.split())
    assert "fit refuted by what was recorded, so that nothing here is measured: TTFT " in said
    assert "in flight each (-" in said


def test_a_trace_is_played_as_it_came_and_faster(env: dict[str, str], tmp_path: Path) -> None:
    (as_it_came,) = answers(*MODEL, "--trace", AZURE, "--replicas", "4", env=env)
    assert as_it_came["arrivals"].startswith("120 requests as recorded in ")
    assert as_it_came["figures"][0]["requests"] == 120
    assert as_it_came["notes"][-2] == f"lengths from {AZURE} (Azure's LLM inference trace)"
    assert as_it_came["notes"][-1].startswith("a p95 of fewer than 200 requests is one of chance")
    (faster,) = answers(*MODEL, "--trace", AZURE, "--replicas", "4", "--trace-scale", "0.5", env=env)
    assert faster["figures"][0]["ttft_s"]["mean"] > as_it_came["figures"][0]["ttft_s"]["mean"]
    packed = tmp_path / "azure.csv.gz"
    packed.write_bytes(gzip.compress(Path(AZURE).read_bytes()))
    (unpacked,) = answers(*MODEL, "--trace", str(packed), "--replicas", "4", env=env)
    assert unpacked["figures"] == as_it_came["figures"]
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "wb") as pipe:
        pipe.write(Path(AZURE).read_bytes())
    piped = subprocess.run(
        [
            sys.executable,
            "-m",
            "gpumon",
            "simulate",
            *MODEL,
            "--trace",
            f"/dev/fd/{read_end}",
            "--replicas",
            "4",
            "--json",
        ],
        capture_output=True,
        check=False,
        cwd=ROOT,
        env=env,
        pass_fds=(read_end,),
    )
    os.close(read_end)
    assert json.loads(piped.stdout)["simulations"][0]["figures"] == as_it_came["figures"]


def test_a_trace_without_line_feeds_fills_no_memory(env: dict[str, str]) -> None:
    done = run(*MODEL, "--trace", "/dev/zero", env=env)
    assert done.returncode == 2
    assert "/dev/zero: holds binary data" in done.stderr


def test_the_hashes_of_a_trace_drive_the_prefix_cache_and_the_router(env: dict[str, str]) -> None:
    options = (
        *MODEL,
        "--trace",
        str(TRACES / "mooncake-conversation.jsonl"),
        "--replicas",
        "4",
        "--kv-tokens",
        "60000",
    )
    ratios = {}
    for name in ROUTER_NAMES:
        (answer,) = answers(*options, "--router", name, env=env)
        ratios[name] = answer["figures"][0]["hit_ratio"]
    assert ratios["prefix-aware"] > 1.15 * ratios["round-robin"] > 0
    assert "would have 31% of the prompt tokens" in answer["notes"][-1]
    (typed,) = answers(*options, "--hits", "0.5", env=env)
    assert typed["figures"][0]["hit_ratio"] == pytest.approx(0.5, abs=0.01)


def test_lengths_without_times_come_at_a_rate(env: dict[str, str]) -> None:
    (answer,) = answers(*MODEL, "--trace", SHAREGPT, "--rate", "5", "--duration", "60", env=env)
    assert "at 5 requests/s, Poisson, in" in answer["arrivals"]
    assert any("bytes a token" in note for note in answer["notes"])
