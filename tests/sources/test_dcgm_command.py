"""The installed command with a dcgm-exporter: beside NVML's Ampere GPUs, and as the only source of GPUs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpumon.outputs.schema import schema
from tests.fakes.engine import FakeEngine
from tests.fakes.http_server import LoopbackServer, Reply
from tests.fakes.nvml.driver import FakeDriver
from tests.outputs.validator import problems
from tests.program import run_gpumon, user_environment

PAGES = Path(__file__).parents[1] / "data" / "pages" / "dcgm"
CLOCKED = 1593e6 * 2 * 5120 / 8
UUIDS = "".join(f"gpu {n} uuid GPU-5f1c77d2-0b6e-4d1a-9a53-6c2e8f00a10{n}\n" for n in range(2))
AMPERE = f"gpus 2\nprofile a100-sxm\n{UUIDS}gpu 0 busy 91\ngpu 0 membusy 71\n"


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """No config of the user, no setting of the caller."""
    return user_environment(tmp_path)


@pytest.fixture
def exporter() -> Iterator[LoopbackServer]:
    """Serves the page of the name that the path begins with: /mig/metrics."""

    def answer(request: object) -> Reply:
        name = request.path.split("/")[1]  # type: ignore[attr-defined]
        return Reply(body=(PAGES / f"{name}.prom").read_bytes())

    with LoopbackServer(answer) as server:
        yield server


def gpumon(*arguments: str, env: dict[str, str], code: int = 0) -> str:
    done = run_gpumon(*arguments, env=env)
    assert done.returncode == code, done.stderr + done.stdout
    return done.stdout


def snapshot(*arguments: str, env: dict[str, str]) -> dict[str, Any]:
    shot: dict[str, Any] = json.loads(gpumon("snapshot", "--json", "--window", "0.6", *arguments, env=env))
    assert list(problems(shot, schema())) == []
    return shot


def driven(env: dict[str, str], driver: FakeDriver, script: str) -> dict[str, str]:
    driver.write(script)
    fake = driver.env()
    return {**env, **{key: fake[key] for key in ("LD_LIBRARY_PATH", "GPUMON_FAKE_NVML")}}


def test_ampere_gpus_get_measured_bandwidth(
    env: dict[str, str], fake_driver: FakeDriver, exporter: LoopbackServer
) -> None:
    host = driven(env, fake_driver, AMPERE)
    without = snapshot(env=host)["gpus"][0]
    assert (without["bandwidth_source"], without["tensor_active_ratio"]) == ("upper_bound", None)
    busy, idle = snapshot("--dcgm", f"{exporter.url}/a100-all", env=host)["gpus"]
    assert busy["bandwidth_source"] == "dcgm"
    assert busy["bandwidth_bytes_per_s"] == pytest.approx(0.603125 * CLOCKED)
    assert (busy["sm_active_ratio"], busy["tensor_active_ratio"]) == (0.714302, 0.182744)
    assert busy["activity_source"] == "dcgm"
    assert 0.0 <= busy["activity_age_s"] < 10.0
    assert (busy["busy_ratio"], busy["host"]) == (pytest.approx(0.91), ""), "NVML's"
    assert busy["pcie_tx_bytes_per_s"] == 112603447
    assert (idle["index"], idle["sm_active_ratio"]) == (1, 0.0)


def test_hopper_keeps_what_gpm_measures(env: dict[str, str], fake_driver: FakeDriver, exporter: LoopbackServer) -> None:
    host = driven(
        env, fake_driver, f"gpus 1\nprofile h100-sxm\n{UUIDS.splitlines()[0]}\ngpu 0 dram 40\ngpu 0 tensor 10\n"
    )
    (gpu,) = snapshot("--dcgm", f"{exporter.url}/a100-all", env=host)["gpus"]
    assert (gpu["bandwidth_source"], gpu["activity_source"]) == ("gpm", "gpm")
    assert gpu["tensor_active_ratio"] == pytest.approx(0.1)


def test_gpus_of_another_host_stand_behind_those_of_this_one(
    env: dict[str, str], fake_driver: FakeDriver, exporter: LoopbackServer
) -> None:
    host = driven(env, fake_driver, AMPERE)
    gpus = snapshot("--dcgm", f"{exporter.url}/federated", env=host)["gpus"]
    assert [(gpu["index"], gpu["host"].partition(".")[0]) for gpu in gpus] == [
        *((0, ""), (1, "")),
        *((2, "node-0"), (3, "node-0"), (4, "node-1"), (5, "node-1")),
    ]
    assert [gpu["gpu_type"] for gpu in gpus[1::2]] == ["A100 SXM4 80GB", "L40S", "A100 SXM4 80GB"]


def test_slices_of_the_driver_get_the_activity_of_their_instance(
    env: dict[str, str], fake_driver: FakeDriver, exporter: LoopbackServer
) -> None:
    sliced = "GPU-c07a51be-3e9f-4d4b-9e2a-4b7d10f3aa00"
    host = driven(env, fake_driver, f"gpus 1\nprofile a100-sxm\ngpu 0 uuid {sliced}\ngpu 0 mig 6 1g.10gb\n")
    parent, *slices = snapshot("--dcgm", f"{exporter.url}/mig", env=host)["gpus"]
    assert parent["tensor_active_ratio"] is None
    # The fake driver's slice i has GPU instance i + 1; the page has 3, 5 and 6.
    assert [one["tensor_active_ratio"] for one in slices] == [None, None, 0.202, None, 0.0, 0.051]


@pytest.mark.parametrize(
    ("page", "count", "busy", "power_w", "gpu_type", "bandwidth"),
    [
        pytest.param("a100-all", 2, 0.97, 287.413, "A100 SXM4 80GB", 0.603125 * 2039e9, marks=pytest.mark.wide),
        ("renamed", 2, 0.97, 287.413, "A100 SXM4 80GB", 0.603125 * 2039e9),
        pytest.param("shared", 2, 0.88, 66.871, "T4", 0.412207 * 320e9, marks=pytest.mark.wide),
        ("old", 2, 0.64, 203.5, "V100 SXM2 32GB", None),
        ("federated", 4, 0.97, 287.413, "L40S", 0.311 * 864e9),
    ],
)
def test_it_is_enough_without_nvml(
    page: str,
    count: int,
    busy: float,
    power_w: float,
    gpu_type: str,
    bandwidth: float | None,
    env: dict[str, str],
    exporter: LoopbackServer,
) -> None:
    gpus = snapshot("--no-nvml", "--dcgm", f"{exporter.url}/{page}", env=env)["gpus"]
    assert [gpu["index"] for gpu in gpus] == list(range(count))
    assert {gpu["state"] for gpu in gpus} == {"ok"}
    first = gpus[0]
    assert (first["busy_ratio"], first["power_w"], first["gpu_type"]) == (busy, power_w, gpu_type)
    assert first["bandwidth_source"] == ("upper_bound" if bandwidth is None else "dcgm")
    if bandwidth is not None:
        assert first["bandwidth_bytes_per_s"] == pytest.approx(bandwidth)


def test_mig_without_nvml(env: dict[str, str], exporter: LoopbackServer) -> None:
    gpus = snapshot("--no-nvml", "--dcgm", f"{exporter.url}/mig", env=env)["gpus"]
    assert [(gpu["index"], gpu["mig_profile"]) for gpu in gpus] == [(0, ""), *[(0, "2g.20gb")] * 3, (1, "")]
    assert [gpu["busy_ratio"] for gpu in gpus] == [None, 0.931, 0.0, 0.377, 0.0]
    assert {gpu["missing"]["power_w"] for gpu in gpus[1:4]} == {"under_mig"}


def test_an_engine_runs_on_its_gpus(env: dict[str, str], exporter: LoopbackServer, tmp_path: Path) -> None:
    with FakeEngine("vllm-basic", start_s=60.0) as engine:
        config = tmp_path / "config.toml"
        config.write_text(
            f'[dcgm]\nurl = "{exporter.url}/a100-all"\n[[endpoint]]\nurl = "{engine.url}"\ngpus = [0, 1]\n'
        )
        shot = snapshot("--no-nvml", "--config", str(config), env=env)
    assert shot["engines"][0]["gpus"] == [0, 1]
    assert shot["gpus"][0]["engines"] == [shot["engines"][0]["name"]]


def test_watch_and_text_take_it_from_the_environment(env: dict[str, str], exporter: LoopbackServer) -> None:
    host = {**env, "GPUMON_DCGM": f"{exporter.url}/a100-all"}
    lines = gpumon("watch", "--json", "--no-nvml", "--count", "2", "--interval", "0.25", env=host).splitlines()
    assert [len(json.loads(line)["gpus"]) for line in lines] == [2, 2]
    text = gpumon("snapshot", "--verbose", "--no-nvml", "--window", "0", env=host)
    assert "DCGM_FI_PROF_DRAM_ACTIVE" in text
    assert "nvml" not in text


def test_an_exporter_that_is_not_there_leaves_nothing_to_monitor(env: dict[str, str]) -> None:
    gpumon("snapshot", "--json", "--no-nvml", "--dcgm", "127.0.0.1:9", env=env, code=3)


def test_a_url_with_a_password_is_refused_unrepeated(env: dict[str, str]) -> None:
    done = run_gpumon("snapshot", "--dcgm", "http://me:hunter2@h:9400", env=env)
    assert done.returncode == 2
    assert "--dcgm" in done.stderr
    assert "hunter2" not in done.stderr


def test_the_doctor_says_what_it_measures_and_how_to_get_the_rest(
    env: dict[str, str], exporter: LoopbackServer
) -> None:
    text = gpumon("doctor", "--no-nvml", "--dcgm", f"{exporter.url}/a100-default", env=env)
    assert "2 x NVIDIA A100-SXM4-80GB on gpu-07" in text
    assert "measured: tensor active, DRAM active" in text
    assert "DCGM_FI_PROF_SM_ACTIVE, gauge" in text
    everything = gpumon("doctor", "--no-nvml", "--dcgm", f"{exporter.url}/a100-all", env=env)
    assert "measured: SM active, SM occupancy, tensor active, DRAM active" in everything
    assert "gauge" not in everything


def test_the_doctor_names_the_gpus_that_have_no_value(env: dict[str, str]) -> None:
    """As where another profiler holds the counters of one GPU."""
    page = (PAGES / "a100-all.prom").read_text().splitlines()
    gone = ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{", "DCGM_FI_PROF_DRAM_ACTIVE{")
    kept = "\n".join(line for line in page if not (line.startswith(gone) and 'gpu="1"' in line))
    with LoopbackServer(lambda _: Reply(body=kept.encode() + b"\n")) as server:
        text = " ".join(gpumon("doctor", "--no-nvml", "--dcgm", server.url, env=env).split())
    assert "measured: SM active, SM occupancy" in text
    assert "without a value for GPU 1: tensor active, DRAM active" in text
    assert "gauge" not in text, "the exporter was told to measure it"


def test_the_doctor_fails_where_it_does_not_answer(env: dict[str, str]) -> None:
    assert "nothing listens on 127.0.0.1:9" in gpumon("doctor", "--no-nvml", "--dcgm", "127.0.0.1:9", env=env, code=1)


def test_the_doctor_sees_ampere_measured(
    env: dict[str, str], fake_driver: FakeDriver, exporter: LoopbackServer
) -> None:
    host = driven(env, fake_driver, AMPERE)
    assert "gpumon --dcgm URL" in " ".join(gpumon("doctor", env=host).split())
    text = gpumon("doctor", "--dcgm", f"{exporter.url}/a100-all", env=host)
    assert "activity (DCGM)  measured: SM active, tensor active, DRAM active" in text
    assert "activity (GPM)" not in text
