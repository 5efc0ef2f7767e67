"""The examples of the README and of docs/examples: each plan holds its own goals when it is simulated."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.commands.sizing import size_here
from tests.program import run_gpumon, user_environment

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.toml"))
HEREDOC = re.compile(r"^    gpumon size - <<'END'\n(.*?)^    END$", re.DOTALL | re.MULTILINE)
"""A scenario that the README types on standard input."""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """No config and no profiles of the user."""
    return user_environment(tmp_path, TERM="xterm-256color")


def planned(text: str, env: dict[str, str]) -> Any:
    """The answer of the command."""
    done = size_here("-", "--json", env=env, text=text)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def share_options(workload: Any, place: Any) -> list[str]:
    """Options for the instances on one type of GPU, and for their share of the target where there are several types."""
    replicas = place["instances"] - (workload["spares"] if place is workload["on"][0] else 0)
    options = ["--gpu", place["gpu"], "--tp", str(place["tp"]), "--replicas", str(replicas)]
    if len(workload["on"]) == 1:
        return options
    capacities = [each["instances"] * each["capacity_per_instance"] for each in workload["on"]]
    share = workload["target"] * place["instances"] * place["capacity_per_instance"] / sum(capacities)
    option = {"concurrency": "--concurrency", "requests_per_s": "--rate"}[workload["target_kind"]]
    return [*options, option, str(round(share))]


def check_goals(text: str, env: dict[str, str]) -> int:
    """Simulate each workload that has goals, as the answer plans it; returns their number."""
    checked = 0
    for workload in planned(text, env)["workloads"]:
        for goal in workload["goals"]:
            assert goal["basis"] in ("simulated", "mean"), goal
            assert goal["value_s"] <= goal["goal_s"], goal
        for place in workload["on"] if workload["goals"] else ():
            asked = ("simulate", "-", "--json", "--workload", workload["name"], *share_options(workload, place))
            done = run_gpumon(*asked, env=env, text=text, cwd=ROOT)
            [simulation] = json.loads(done.stdout)["simulations"]
            assert (simulation["problem"], simulation["missed"], simulation["holds"]) == ("", [], True), asked
            assert done.returncode == 0
            checked += 1
    return checked


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_holds_its_goals_in_its_own_simulation(example: Path, env: dict[str, str]) -> None:
    text = example.read_text(encoding="utf-8")
    goals = len(re.findall(r"^\w+_(?:p95|mean)_ms = ", text, re.MULTILINE))
    assert bool(check_goals(text, env)) == bool(goals)


def test_the_example_of_the_readme_takes_what_it_says_and_holds(env: dict[str, str]) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    [text] = HEREDOC.findall(readme)
    [workload] = planned(text, env)["workloads"]
    assert (
        f"It answers {workload['gpus']:.0f} GPUs: {workload['instances']:.0f} instances on {workload['tp']} each"
        in readme
    )
    assert check_goals(text, env) == 1
    played = run_gpumon("simulate", "-", "--json", env=env, text=text, cwd=ROOT)
    [simulation] = json.loads(played.stdout)["simulations"]
    assert (played.returncode, simulation["replicas"]) == (0, workload["instances"])
    assert f"TPOT p95 {simulation['figures'][0]['tpot_s']['p95'] * 1e3:.0f} ms" in readme
