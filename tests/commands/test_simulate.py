"""`gpumon simulate` as its users run it: options, a scenario, a recording, JSON, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpumon.commands.simulate import ROUTER_NAMES
from gpumon.outputs.simulation_data import schema
from gpumon.sizing.simulate import router
from tests.outputs.validator import problems
from tests.program import run_gpumon

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
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("GPUMON_", "XDG_"))}
    return {**kept, "HOME": str(tmp_path), "TERM": "xterm-256color"}


def run(*arguments: str, env: dict[str, str], command: str = "simulate") -> subprocess.CompletedProcess[str]:
    return run_gpumon(command, *arguments, env=env, cwd=ROOT)


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


def test_a_goal_that_is_missed_is_exit_code_4(env: dict[str, str]) -> None:
    (held,) = answers(*CHAT, "--rate", "5", "--ttft", "2000", env=env)
    (lost,) = answers(*CHAT, "--rate", "5", "--ttft", "2000", "--itl", "1", "--replicas", "2", env=env, code=4)
    assert (held["holds"], held["missed"]) == (True, [])
    assert (lost["holds"], lost["missed"]) == (False, ["ITL"])


def test_a_short_name_is_the_usual_gpu_of_it_as_in_a_comparison(env: dict[str, str]) -> None:
    (short,) = answers(*CHAT, "--rate", "5", "--duration", "20", "--gpu", "H100", env=env)
    (whole,) = answers(*CHAT, "--rate", "5", "--duration", "20", env=env)
    assert short == whole


def test_a_tp_that_no_server_holds_is_refused_as_in_a_plan(env: dict[str, str]) -> None:
    done = run(*CHAT, "--rate", "5", "--replicas", "1", "--tp", "16", env=env)
    assert done.returncode == 4
    assert "TP 16 takes 16 GPUs of one NVLink domain, which has 8 GPUs" in done.stdout


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
    done = run("docs/examples/users.toml", "--simulate", "--compare", "L40S", env=env, command="size")
    assert done.returncode == 2
    assert "one of them at a time" in done.stderr


def test_size_takes_the_plan_of_the_simulation(env: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "chat.toml"
    file.write_text(SCENARIO)
    done = run(str(file), "--simulate", env=env, command="size")
    assert (done.returncode, done.stderr) == (0, "")
    assert "by simulation: " in done.stdout
    assert "(by formula: " in done.stdout


RECORDING = Path(__file__).parents[1] / "data" / "recordings" / "first-edition.gpumon"


def test_the_traffic_of_a_recording_is_played_against_something_else(env: dict[str, str]) -> None:
    """By the engine's own fit as it ran, and with half the replicas' places."""
    options = ("--from-recording", str(RECORDING), "--workload", "meta-llama/Llama-3.1-8B-Instruct", "--replicas", "1")
    (ran,) = answers(*options, env=env)
    (tight,) = answers(*options, "--max-num-seqs", "4", env=env, code=4)
    (short,) = answers(*options, "--duration", "10s", env=env)
    assert short["arrivals"] == "the first 10 s of 263 requests as recorded in 40 s"
    assert short["figures"][0]["requests"] < ran["figures"][0]["requests"]
    assert ran["figures"][0]["requests"] == pytest.approx(263, rel=0.15)
    assert ran["arrivals"] == "263 requests as recorded in 40 s"
    assert ran["notes"][-1] == "lengths from the engine's histograms"
    assert not any("not measured" in note for note in ran["notes"])
    assert tight["figures"][0]["queue_grows"]
    assert tight["figures"][0]["ttft_s"]["p50"] > 5 * ran["figures"][0]["ttft_s"]["p50"]
