"""`gpumon size` as its users run it: the design guide's case, every form, standard input, exit codes, prices."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from gpumon.outputs.sizing_data import schema
from tests.commands.sizing import size_here
from tests.outputs.validator import problems
from tests.program import run_gpumon, user_environment

GPUMON = [sys.executable, "-m", "gpumon"]
ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
GUIDE = EXAMPLES / "design-guide.toml"
BAD = Path(__file__).parents[1] / "config" / "bad_scenarios"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """No config and no profiles of the user."""
    return user_environment(tmp_path, TERM="xterm-256color")


def size(*arguments: str, env: dict[str, str], text: str = "") -> subprocess.CompletedProcess[str]:
    return size_here(*arguments, env=env, text=text)


def answer(*arguments: str, env: dict[str, str], text: str = "", code: int = 0) -> Any:
    done = size(*arguments, "--json", env=env, text=text)
    assert (done.returncode, done.stderr) == (code, "")
    assert done.stdout.count("\n") == 1
    found = json.loads(done.stdout)
    assert list(problems(found, schema())) == []
    return found


def config(folder: Path, text: str) -> str:
    file = folder / "config.toml"
    file.write_text(text)
    return str(file)


def test_the_design_guide(env: dict[str, str]) -> None:
    found = answer(str(GUIDE), env=env)
    assert [(each["name"], each["instances"], each["limit"]) for each in found["workloads"]] == [
        ("NeMo 5B", 16, "typed"),
        ("NeMo 20B", 8, "typed"),
    ]
    assert found["totals"]["memory_bytes"] == pytest.approx(556.64e9)
    assert (found["totals"]["instances"], found["totals"]["gpus"], found["totals"]["servers"]) == (24, 8, 2)
    memory, busy = found["plans"]["memory_only"], found["plans"]["busy_aware"]
    assert (memory["instances"], memory["gpus"], memory["servers"]) == (24, 8, 2)
    assert memory["memory_bytes"] == pytest.approx(556.64e9)
    assert (busy["instances"], busy["gpus"], busy["servers"]) == (24, 24, 6)
    assert [
        (each["times"], each["filled"][0]["times"], each["filled"][0]["workloads"]) for each in memory["layout"]
    ] == [(2, 4, [1, 0, 0])]
    assert any("292% of it" in warning and "24 GPUs" in warning for warning in found["warnings"])
    assert found["problem"] == ""


def test_the_design_guide_as_text(env: dict[str, str]) -> None:
    done = size(str(GUIDE), env=env)
    assert (done.returncode, done.stderr) == (0, "")
    need = next(line for line in done.stdout.splitlines() if line.startswith("need "))
    assert need.split(maxsplit=1)[1] == (
        "24 instances, 8 GPUs, 2 servers, packed by memory alone; by memory and busy share 24 GPUs, 6 servers"
    )
    assert "  2 x server of 4 x H100 PCIe 80GB: [NeMo 20B, NeMo 5B, NeMo 5B] x4\n" in done.stdout
    assert "by memory and busy share          24    24        6  556.6 GB        -\n" in done.stdout
    assert "no price" in done.stdout
    first = done.stdout.splitlines()[:24]
    assert first[3].startswith("warning             packed by memory alone, instances")
    assert any(line.startswith("by memory and busy share ") for line in first)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_example_has_an_answer_in_every_form(path: Path, env: dict[str, str]) -> None:
    found = answer(str(path), env=env)
    assert found["problem"] == ""
    assert all(each["instances"] >= 1 for each in found["workloads"])
    rows = list(csv.DictReader(io.StringIO(size(str(path), "--csv", env=env).stdout, newline="")))
    compared = ["compared"] * len(found["compared"])
    assert [row["row"] for row in rows] == [*["workload"] * len(found["workloads"]), "total", *compared]
    totals = rows[len(found["workloads"])]
    assert float(totals["gpus"]) == found["totals"]["gpus"]
    markdown = size(str(path), "--markdown", env=env).stdout
    assert markdown.startswith("## Sizing: ")
    assert f"- **need:** {found['totals']['instances']:.0f} instances" in markdown


def test_standard_input_is_a_file_named_dash(env: dict[str, str]) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    read = run_gpumon("size", "-", env=env, text=text)
    assert read.stdout == run_gpumon("size", str(GUIDE), env=env).stdout == size("-", env=env, text=text).stdout != ""
    done = size("-", env=env, text="[[workload]]\nmodel = 1\n")
    assert done.returncode == 2
    first, second = done.stderr.splitlines()
    assert first == "gpumon: standard input:2: workload[0].model = 1: must be text in quotes"
    assert second == "gpumon: standard input:1: workload[0]: needs target: a number above 0, at most 1e+12"


NO_WAY = """
assume_ttft = true
ttft_p95_ms = 0.001
[[server]]
gpu = "L40S"
gpus = 2
[[workload]]
model = "meta-llama/Llama-3.1-8B-Instruct"
target = 10
prompt_tokens = 1000
answer_tokens = 100
"""


@pytest.mark.parametrize("form", ["", "--markdown", "--csv"])
def test_what_can_not_be_met_is_said_and_exits_4(form: str, env: dict[str, str]) -> None:
    done = size("-", *([form] if form else []), env=env, text=NO_WAY)
    assert (done.returncode, done.stderr) == (4, "")
    assert "TTFT" in done.stdout


PARTLY = f"""{NO_WAY.replace("ttft_p95_ms = 0.001", "").replace("L40S", "H100 SXM 80GB")}
name = "chat"
[[workload]]
model = "meta-llama/Llama-3.1-8B-Instruct"
name = "never"
target = 10
prompt_tokens = 1000
answer_tokens = 100
ttft_p95_ms = 0.001
"""


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("", "need                without never: 1 instance, 1 GPU, 1 server, packed"),
        ("--markdown", "- **need:** without never: 1 instance, 1 GPU, 1 server, packed"),
        ("--csv", "total_without,"),
    ],
)
def test_one_that_can_not_be_met_hides_nothing_of_the_others(form: str, said: str, env: dict[str, str]) -> None:
    done = size("-", *([form] if form else []), env=env, text=PARTLY)
    assert (done.returncode, done.stderr) == (4, "")
    assert said in done.stdout
    found = answer("-", env=env, text=PARTLY, code=4)
    assert (found["without"], found["totals_without"]["gpus"], found["totals"]["gpus"]) == (["never"], 1.0, None)
    assert [each["servers"] for each in found["workloads"]] == [1.0, None]


def test_what_can_not_be_met_has_a_problem_and_no_number(env: dict[str, str]) -> None:
    found = answer("-", env=env, text=NO_WAY, code=4)
    assert "TTFT" in found["problem"]
    assert found["workloads"][0]["instances"] is None
    assert found["totals"]["missing"]["gpus"] == "infeasible"


ABSURD = '[[server]]\ngpu = "H100 SXM 80GB"\n[[workload]]\nmodel = "{model}"\ntarget = {target}\n{more}\n'


@pytest.mark.parametrize("target", ["1e12", "1e-9", "999999999", "5e-324"])
@pytest.mark.parametrize("kind", ["concurrency", "users", "requests_per_s"])
@pytest.mark.parametrize("model", ["meta-llama/Llama-3.1-8B-Instruct", "nobody/knows-this"])
def test_absurd_targets_are_answered_or_refused_by_name(
    model: str, kind: str, target: str, env: dict[str, str], capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from gpumon.cli import main

    file = tmp_path / "s.toml"
    more = f'target_kind = "{kind}"\nthink_s = 5\nprompt_tokens = 100\nanswer_tokens = 50'
    file.write_text(ABSURD.format(model=model, target=target, more=more))
    code = main(["size", str(file), "--json"])
    out, err = capfd.readouterr()
    assert code in (0, 4)
    assert bool(err) == (model == "nobody/knows-this")
    found = json.loads(out)
    assert list(problems(found, schema())) == []
    assert bool(found["problem"]) == (code == 4)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "size needs a scenario file, --from-recording FILE or --from-prometheus"),
        (["a", "b"], "unrecognized arguments: 'b' (see gpumon size --help)"),
        (["absent.toml"], "absent.toml: there is no such file"),
        (["docs"], "docs: cannot be read: Is a directory"),
        (["http://u:hunter2@h/x"], "***@h/x: there is no such file"),
        ([str(GUIDE), "--json", "--csv"], "argument --csv: not allowed with argument --json"),
        (
            [str(GUIDE), "--markdown", "--csv"],
            "argument --csv: not allowed with argument --markdown",
        ),
        ([str(GUIDE), "--plain"], "unrecognized arguments: --plain (see gpumon size --help)"),
        (
            [str(GUIDE), "--endpoint", "http://u:hunter2@h"],
            "unrecognized arguments: --endpoint (see gpumon size --help)",
        ),
        ([str(GUIDE), "--json=1"], "argument --json: takes no value (see gpumon size --help)"),
        (
            [str(BAD / "target_zero.toml")],
            f"{BAD / 'target_zero.toml'}:3: workload[0].target = 0: must be a number above",
        ),
    ],
)
def test_bad_usage_is_one_line_and_exits_2(arguments: list[str], said: str, env: dict[str, str]) -> None:
    done = size(*arguments, env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"gpumon: {said}")
    assert done.stderr.count("\n") == 1
    assert "hunter2" not in done.stderr


def test_prices_come_from_the_file_then_from_the_config(env: dict[str, str], tmp_path: Path) -> None:
    named = config(tmp_path, '[prices.by_type]\n"NVIDIA H100 PCIe" = 2.0\nL40S = 9.0\n')
    assert answer(str(GUIDE), "--config", named, env=env)["totals"]["price_per_hour"] == pytest.approx(8 * 2.0)
    for_all = config(tmp_path, "[prices]\ngpu_hour = 1.5\n")
    assert answer(str(GUIDE), "--config", for_all, env=env)["totals"]["price_per_hour"] == pytest.approx(8 * 1.5)
    other = config(tmp_path, '[prices.by_type]\n"L40S" = 1.5\n')
    assert answer(str(GUIDE), "--config", other, env=env)["totals"]["missing"]["price_per_hour"] == "no_price"
    priced = GUIDE.read_text(encoding="utf-8").replace(
        "gpus = 4", "gpus = 4\nprice_per_gpu_hour = 3.0\nprice_per_hour = 1"
    )
    found = answer("-", "--config", named, env=env, text=priced)
    assert found["totals"]["price_per_hour"] == pytest.approx(8 * 3.0 + 2 * 1.0)


OWN = """
[[model]]
match = "acme/*"
params_b = 70.6
layers = 80
hidden = 8192
heads = 64
kv_heads = 8
"""


def test_a_model_of_the_config_is_known(env: dict[str, str], tmp_path: Path) -> None:
    more = "prompt_tokens = 1000\nanswer_tokens = 200"
    text = ABSURD.format(model="acme/own-70b", target=100, more=more)
    found = answer("-", "--config", config(tmp_path, OWN), env=env, text=text)
    assert found["workloads"][0]["source"] == "roofline"
    assert found["workloads"][0]["gpus_per_instance"] >= 2
    wrong = OWN + "experts = 8\nexperts_per_token = 2\n"
    done = size("-", "--config", config(tmp_path, wrong), env=env, text=text)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("gpumon: config [[model]] 'acme/*': active_params_b is missing")


def test_without_a_server_the_config_s_shape_is_taken(env: dict[str, str], tmp_path: Path) -> None:
    text = '[[workload]]\nmodel = "m"\ntarget = 64\ncapacity_per_instance = 4\nmemory_gb = 12.41\nbusy_ratio = 0.99\n'
    file = config(tmp_path, '[sizing]\ngpu = "H100 PCIe 80GB"\ngpus = 4\n')
    found = answer("-", "--config", file, env=env, text=text)
    assert (found["totals"]["gpus"], found["totals"]["servers"]) == (16, 4)
    assert "4 x server of 4 x H100 PCIe 80GB: " in size("-", "--config", file, env=env, text=text).stdout


def test_hostile_names_are_escaped_in_every_form(env: dict[str, str]) -> None:
    text = ABSURD.format(model="m", target=4, more="capacity_per_instance = 2\nmemory_gb = 1\nbusy_ratio = 0.5")
    text = 'name = "\\u001b[31m\\u202e"\n' + text.replace('model = "m"', 'model = "m"\nname = "=1|\\u009b\\n<b>"')
    for form in ("--json", "--markdown", "--csv", ""):
        done = size("-", *([form] if form else []), env=env, text=text)
        assert done.returncode == 0
        assert all(line.isprintable() for line in done.stdout.split("\n"))


SWEEP = str(ROOT / "tests" / "data" / "sweeps" / "vllm-bench.jsonl")
PLANNED = '[[server]]\ngpu = "H100 SXM 80GB"\n[[workload]]\nmodel = "m"\ntarget = 200\nprofile = "{profile}"\n'


def test_an_imported_sweep_is_what_a_scenario_plans_with(env: dict[str, str]) -> None:
    added = subprocess.run(
        [*GPUMON, "profiles", "add", SWEEP, "--kv-precision", "fp8", "--name", "nim"],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (added.returncode, added.stderr) == (0, "")
    text = PLANNED.format(profile="nim").replace('"m"', '"nvidia/Llama-3.3-70B-Instruct-FP8"')
    found = answer("-", env=env, text=text)
    (plan,) = found["workloads"]
    assert (plan["capacity_per_instance"], plan["instances"], plan["gpus"], plan["limit"]) == (50, 4, 8, "knee")
    assert (plan["source"], plan["seen_name"], plan["seen_time"]) == ("sweep", "nim", "2026-06-13T05:11:41")
    # Measured at 50 in flight: 59.73 ms, 814 tok/s of one instance; the line through all points is within 5%.
    assert plan["itl_s"] == pytest.approx(0.05973, rel=0.05)
    assert plan["tokens_per_s"] == pytest.approx(4 * 814, rel=0.05)
    assert plan["e2e_s"] == pytest.approx(200 / plan["requests_per_s"], rel=0.02)


def test_a_profile_that_is_not_there_is_a_fault_of_the_file(env: dict[str, str]) -> None:
    done = size("-", env=env, text=PLANNED.format(profile="guide-nemo-6b"))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        "gpumon: standard input: workload[0].profile: there is no profile 'guide-nemo-6b'; did you mean guide-nemo-5b"
    )
    place = Path(env["HOME"], ".local/share/gpumon/profiles")
    place.mkdir(parents=True)
    (place / "cut.json").write_text("{")
    done = size("-", env=env, text=PLANNED.format(profile="cut"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "cut.json: is no profile" in done.stderr


def test_it_imports_only_what_it_needs(env: dict[str, str]) -> None:
    code = "import sys\nfrom gpumon.cli import main\nmain(sys.argv[1:])\nsys.stderr.write(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code, "size", str(GUIDE)], env=env, capture_output=True, text=True, timeout=60
    )
    absent = {"textual", "rich", "httpx", "pynvml", "psutil", "tomlkit", "gpumon.collector"}
    assert "gpumon.sizing.plan" in done.stderr.split()
    assert set(done.stderr.split()) & absent == set()


RECORDING = Path(__file__).parents[1] / "data" / "recordings" / "first-edition.gpumon"


POOLS = """
[[server]]
gpu = "H100 SXM 80GB"

[[workload]]
model = "meta-llama/Llama-3.3-70B-Instruct-FP8"
target = 12
target_kind = "requests_per_s"
prompt_tokens = 8000
answer_tokens = 300
itl_p95_ms = 30
"""
SPLIT = "disaggregated = { prefill_tp = 2, decode_tp = 4, link_gb_per_s = 50 }\n"


def test_pools_of_prefill_and_decode_stand_beside_the_plan(env: dict[str, str]) -> None:
    """By a line of the file with its own parallelism, by the option for every workload; else nothing is compared."""
    plain = answer("-", env=env, text=POOLS)
    assert plain["workloads"][0]["disaggregated"] is None
    found = answer("-", env=env, text=POOLS + SPLIT)
    split = found["workloads"][0]["disaggregated"]
    assert (split["prefill"]["tp"], split["decode"]["tp"]) == (2, 4)
    assert split["gpus"] == split["prefill"]["gpus"] + split["decode"]["gpus"]
    assert split["aggregated_gpus"] == found["workloads"][0]["gpus"]
    assert split["saving_ratio"] == pytest.approx(1 - split["gpus"] / split["aggregated_gpus"])
    assert split["transfer_s"] == pytest.approx(split["transfer_bytes"] / (2 * 50e9))
    assert found["totals"] == plain["totals"]
    said = size("-", "--disaggregated", env=env, text=POOLS).stdout
    searched = answer("-", "--disaggregated", env=env, text=POOLS)["workloads"][0]["disaggregated"]
    assert searched["gpus"] <= split["gpus"]
    assert f"  disaggregated       {searched['text']}" in said
    assert "disaggregated: not measured, estimate by roofline" in said
    rows = list(csv.DictReader(io.StringIO(size("-", "--csv", env=env, text=POOLS + SPLIT).stdout)))
    assert float(rows[0]["disaggregated_gpus"]) == split["gpus"]
    assert float(rows[0]["disaggregated_saving_ratio"]) == pytest.approx(split["saving_ratio"])
    assert (rows[0]["dp"], rows[1]["disaggregated_gpus"]) == ("1", "")
    marked = size("-", "--disaggregated", "--markdown", env=env, text=POOLS).stdout
    assert "- disaggregated: " in marked


def test_pools_are_planned_priced_and_compared(env: dict[str, str]) -> None:
    priced = POOLS.replace("[[server]]\n", "[[server]]\nprice_per_gpu_hour = 2.0\n")
    plain = answer("-", env=env, text=priced)
    assert plain["compared"] == []
    beside = answer("-", "--disaggregated", env=env, text=priced)
    assert beside["totals"] == plain["totals"]
    whole, pooled = [row for row in beside["compared"] if not row["as_planned"]]
    assert (whole["pooled"], pooled["pooled"]) == (False, True)
    alone = answer("-", "--pools", env=env, text=priced)
    assert [row["pool"] for row in alone["workloads"]] == ["prefill", "decode"]
    for name in ("gpus", "servers", "price_per_hour", "tokens_per_s"):
        assert alone["totals"][name] == pooled["totals"][name] is not None
    said = size("-", "--pools", env=env, text=priced).stdout
    assert "(prefill and decode apart)" in said
    refused = size("-", "--pools", "--simulate", env=env, text=priced)
    assert refused.returncode == 2
    assert "--pools plans by formula" in refused.stderr


def test_speculation_ranks_and_a_tail_of_lengths_come_from_the_file(env: dict[str, str]) -> None:
    lines = """
dp = 8
speculative = { tokens = 1, accepted = 0.8 }
lengths = { prompt = [{ tokens = 2000, share = 0.9 }, { tokens = 90000, share = 1 }] }
"""
    text = POOLS.replace("meta-llama/Llama-3.3-70B-Instruct-FP8", "deepseek-ai/DeepSeek-V3").replace("H100", "H200")
    text = text.replace("H200 SXM 80GB", "H200 SXM 141GB").replace("itl_p95_ms = 30", "itl_p95_ms = 80")
    found = answer("-", env=env, text=text + lines)["workloads"][0]
    assert (found["tp"], found["dp"], found["gpus_per_instance"], found["tokens_per_step"]) == (1, 8, 8, 1.8)
    (held,) = [limit["text"] for limit in found["limits"] if limit["kind"] == "KV"]
    assert "over 8 ranks; with the spread of the lengths p95 of" in held
    assert "TP 1 x DP 8" in size("-", env=env, text=text + lines).stdout
    said = "speculation (0.8 of 1 drafted tokens kept) not measured: estimate by roofline, with a drafter of one layer"
    assert said in found["notes"]


def test_the_p95_of_a_recording_is_what_is_sized(env: dict[str, str]) -> None:
    """Three models, each with the requests in flight that 19 of 20 minutes had at most, as its engines served them."""
    found = answer("--from-recording", str(RECORDING), env=env)
    targets = {each["model"]: each["target"] for each in found["workloads"]}
    assert targets == {
        "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic": 33.0,
        "Qwen/Qwen3-30B-A3B": 4.0,
        "meta-llama/Llama-3.1-8B-Instruct": 12.0,
    }
    assert {each["source"] for each in found["workloads"]} == {"measured"}
    said = size("--from-recording", str(RECORDING), env=env).stdout
    assert "targets: the p95 of the last 40 s" in said
    assert "requests/s" in said


def test_a_recording_is_held_to_the_goals_and_servers_of_a_file(env: dict[str, str]) -> None:
    text = 'itl_p95_ms = 60\n[[server]]\ngpu = "H200 SXM 141GB"\n[[workload]]\nmodel = "x"\ntarget = 1\n'
    found = answer("-", "--from-recording", str(RECORDING), env=env, text=text, code=0)
    assert {each["limit"] for each in found["workloads"]} & {"ITL", "KV"}
    assert found["totals"]["gpus"] > 0


def test_size_without_anything_says_what_it_needs(env: dict[str, str]) -> None:
    done = size(env=env)
    assert done.returncode == 2
    assert "--from-recording" in done.stderr


@pytest.mark.parametrize("option", ["--from", "--to"])
def test_a_span_without_anything_that_has_a_past_is_refused(option: str, env: dict[str, str]) -> None:
    done = size(str(GUIDE), option, "-1h", env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--from-recording FILE or --from-prometheus" in done.stderr


UNKNOWN_MODEL = (
    '[[server]]\ngpu = "H100 SXM 80GB"\n\n[[workload]]\nmodel = "Qwen/Qwen3-23B"\ntarget = 10\n'
    "prompt_tokens = 1000\nanswer_tokens = 100\n"
)


def test_a_scenario_that_comes_through_a_pipe_is_read_once(env: dict[str, str], tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(UNKNOWN_MODEL,))
    writer.start()
    done = size(str(pipe), env=env)
    writer.join()
    assert done.returncode == 4
    assert "Qwen3-32B" in done.stdout


def test_an_unknown_model_is_named_with_its_line_and_its_neighbours(env: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "typo.toml"
    file.write_text(UNKNOWN_MODEL)
    done = size(str(file), env=env)
    assert done.returncode == 4
    assert "typo.toml:5: workload[0].model" in done.stderr
    assert "Qwen3-32B" in done.stderr
    assert "[[model]]" in done.stderr
    assert "Qwen3-32B" in done.stdout


def test_a_plan_over_two_types_of_gpu_is_an_answer(env: dict[str, str]) -> None:
    found = answer(str(EXAMPLES / "mixed-servers.toml"), env=env)
    needed = found["plans"]["busy_aware"]
    assert [each["gpu"] for each in needed["by_gpu"]] == ["A100 SXM4 80GB", "H100 SXM5 80GB"]
    assert sum(each["servers"] for each in needed["by_gpu"]) == found["totals"]["servers"]
    assert {each["gpu"] for each in found["workloads"][0]["on"]} == {"A100 SXM4 80GB", "H100 SXM5 80GB"}
    assert needed["saving_per_hour"] > 0
    done = size(str(EXAMPLES / "mixed-servers.toml"), env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert "GPU types           14 A100 SXM4 80GB in 2 servers, 24 H100 SXM5 80GB in 3 servers" in done.stdout


def test_types_of_gpu_are_compared(env: dict[str, str], tmp_path: Path) -> None:
    prices = config(tmp_path, '[prices.by_type]\n"H100 SXM 80GB" = 2.49\n"H200 SXM 141GB" = 3.3\n')
    asked = (str(EXAMPLES / "users.toml"), "--compare", "H100,H200,B200", "--config", prices)
    found = answer(*asked, env=env)
    rows = found["compared"]
    assert [each["gpu"] for each in rows] == ["H100 SXM5 80GB", "H200 SXM 141GB", "B200 SXM 180GB"]
    assert [each["totals"]["price_per_hour"] is None for each in rows] == [False, False, True]
    assert {each["workloads"][0]["tp"] for each in rows} == {4}  # as the file has it
    assert any("gpus" in each["best"] for each in rows)
    text = size(*asked, env=env).stdout
    head = next(line for line in text.splitlines() if line.startswith("GPU "))
    titles = ("TP", "inst", "GPUs", "servers", "$/h", "$/1M tok", "TPOT p95", "limit", "max power", "tok/J", "from")
    assert [title for title in titles if title not in head] == []
    assert "B200 SXM 180GB" in size(*asked, "--markdown", env=env).stdout
    table = list(csv.DictReader(io.StringIO(size(*asked, "--csv", env=env).stdout, newline="")))
    assert [row["name"] for row in table if row["row"] == "compared"] == [each["gpu"] for each in rows]


@pytest.mark.parametrize("types", ["H1000", "H100,,H1000", ","])
def test_an_unknown_type_of_gpu_is_no_comparison(types: str, env: dict[str, str]) -> None:
    done = size(str(EXAMPLES / "users.toml"), "--compare", types, env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("gpumon: --compare")
