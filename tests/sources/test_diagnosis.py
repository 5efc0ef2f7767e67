"""The doctor on the real path: NVML on the fake driver, engines over real HTTP, model files and ports of this host."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import sys
import termios
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
import tomli

from gpumon.config.options import Options
from gpumon.config.schema import Config, Discovery, Endpoint, Feed, General, Gpu, Model
from gpumon.efficiency.faults import NO_CONTEXT, NO_PREFILL
from gpumon.outputs.doctor import report
from gpumon.readings.check import Check, CheckState
from gpumon.readings.frame import GpuReading, GpuState
from gpumon.sources.diagnosis import diagnose
from gpumon.sources.gpu_checks import driver_checks
from gpumon.sources.source import Contribution
from gpumon.sources.terminal import terminal_checks
from tests.fakes.engine import FakeEngine
from tests.fakes.http_server import LoopbackServer, Reply
from tests.fakes.nvml.driver import FakeDriver
from tests.records import replace
from tests.sources.engines.contract import PAGES

OK, WARN, FAIL, OFF = CheckState.OK, CheckState.WARN, CheckState.FAIL, CheckState.OFF
COUNTERS = ("decode_tokens", "prompt_tokens", "steps", "requests", "failures", "preemptions", "inferences")
LLAMA = Model(match="tiny-*", params_b=8.0, layers=32, hidden=4096, heads=32, kv_heads=8, vocab=128256)


@pytest.fixture
def driver(fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    for name, value in fake_driver.env().items():
        monkeypatch.setenv(name, value)
    return fake_driver


async def checked(options: Options | None = None, **settings: object) -> dict[str, Check]:
    config = Config(general=General(interval_s=0.25), **settings)  # type: ignore[arg-type]
    checks = await diagnose(config, options or Options())
    assert all(check.text and check.text.isprintable() for check in checks)
    return {f"{check.area} {check.name}".rstrip(): check for check in checks}


def state(checks: Mapping[str, Check], name: str) -> CheckState:
    return checks[name].state


async def test_without_anything_to_show_the_demo_is_named_and_the_own_cost_is_told() -> None:
    checks = await checked(Options(nvml=False), discovery=Discovery(enabled=False))
    assert "gpumon demo" in checks["gpumon demo"].fix
    assert re.match(r"\d+(\.\d+)?% of one core, [\d.]+ ?[kMG]i?B of memory", checks["gpumon own cost"].text)


async def test_the_own_cost_counts_the_worker_and_a_host_with_gpus_needs_no_demo(driver: FakeDriver) -> None:
    driver.write("gpus 1\nprofile h100-sxm\n")
    checks = await checked()
    assert "gpumon demo" not in checks
    assert checks["gpumon own cost"].state is OK


async def test_healthy_gpus_share_their_lines_and_a_lost_one_fails(driver: FakeDriver) -> None:
    driver.write("gpus 8\nprofile h100-sxm\ngpu 3 fault lost\n")
    for _ in range(3):  # a busy machine may be late with a GPU's second reading, and the GPU's own lines say so then
        checks = await checked()
        if "gpu 0-2,4-7" in checks:
            break
    assert "gpu 0-2,4-7" in checks, {name: check.text for name, check in checks.items() if check.area == "gpu"}
    assert checks["driver library"].text.endswith("/libnvidia-ml.so.1")
    assert checks["driver version"].text == "580.95.05, CUDA up to 13.0"
    assert state(checks, "gpu 0-2,4-7") is OK
    assert state(checks, "gpu 0-2,4-7 activity (GPM)") is OK
    assert state(checks, "gpu 0-2,4-7 figures") is OK
    assert "989" in checks["gpu 0-2,4-7 peaks"].text
    assert state(checks, "gpu 3") is FAIL
    assert "lost" in checks["gpu 3"].text
    assert state(checks, "engine none") is OFF


async def test_refused_counters_are_named_with_the_way_to_get_them(driver: FakeDriver) -> None:
    driver.write("profile h100-sxm\ngpu * call nvmlGpmSampleGet no_permission\n")
    check = (await checked())["gpu 0 activity (GPM)"]
    assert check.state is WARN
    assert "NVreg_RestrictProfilingToAdminUsers=0" in check.fix


async def test_peaks_that_nobody_tells_come_with_the_lines_for_the_config(driver: FakeDriver) -> None:
    driver.write("gpus 2\nprofile h100-sxm\ngpu * name NVIDIA H20 NVL16\n")
    check = (await checked())["gpu 0,1 peaks"]
    assert check.state is WARN
    assert "bf16 not known, fp8 not known" in check.text
    assert '[[gpu]]\nname = "NVIDIA H20 NVL16"\n' in check.fix
    told = (await checked(gpu=(Gpu("NVIDIA H20 NVL16", bf16_tflops=148.0, fp8_tflops=296.0),)))["gpu 0,1 peaks"]
    assert "bf16 148, fp8 296" in told.text
    assert "config" in told.text


async def test_a_name_that_nobody_knows_is_derived_unless_it_is_an_export_variant(driver: FakeDriver) -> None:
    driver.write("gpus 2\nprofile h100-sxm\ngpu 0 name NVIDIA H123\ngpu 1 name NVIDIA H20B\n")
    checks = await checked()
    assert "derived: 132 SM x 4096 FLOP/clock" in checks["gpu 0 peaks"].text
    assert "GB/s" in checks["gpu 1 peaks"].text
    assert "dense TFLOP/s: not known" in checks["gpu 1 peaks"].text
    assert 'name = "NVIDIA H20B"' in checks["gpu 1 peaks"].fix


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("init no_permission\n", "no permission"),
        ("init version_mismatch\n", "reboot"),
        ("init driver_not_loaded\n", "modprobe"),
        ("gpus 0\n", "lists no GPU"),
    ],
)
async def test_a_driver_that_can_not_be_used_fails_with_the_fix(driver: FakeDriver, script: str, words: str) -> None:
    driver.write(script)
    check = (await checked())["driver NVML"]
    assert check.state is FAIL
    assert words in check.text


async def test_an_engine_that_is_all_right(driver: FakeDriver) -> None:
    driver.write("gpus 2\nprofile h100-sxm\n")
    with FakeEngine("vllm-basic", start_s=60.0) as engine:
        endpoint = Endpoint(url=engine.url, name="mine", gpus=(0, 1))
        checks = await checked(endpoint=(endpoint,), model=(LLAMA,))
    assert checks["engine mine"].text.startswith(f"{engine.url} answers in ")
    assert [state(checks, f"engine mine{part}") for part in ("", " metrics", " model", " GPUs")] == [OK] * 4
    assert "8.0B parameters, 32 layers, bf16" in checks["engine mine model"].text
    assert checks["engine mine GPUs"].text == "0, 1 (from config)"
    assert [name for name in checks if "MFU" in name or "MBU" in name] == []


async def test_an_unknown_model_comes_with_the_lines_to_add() -> None:
    with FakeEngine("vllm-basic", start_s=60.0) as engine:
        endpoint = Endpoint(url=engine.url, name="mine", gpu_type="H100 SXM 80GB", gpu_count=2)
        checks = await checked(Options(nvml=False), endpoint=(endpoint,))
    check = checks["engine mine model"]
    assert check.state is WARN
    (entry,) = tomli.loads(check.fix)["model"]
    assert set(entry) <= {field.name for field in msgspec.structs.fields(Model)}
    assert {field.name for field in msgspec.structs.fields(Model) if field.required} <= set(entry)
    assert checks["engine mine GPUs"].text == "2 x H100 SXM 80GB on another host (config)"


@pytest.mark.parametrize(
    ("page", "name", "words"),
    [
        ("sglang_diffusion/serving.prom", "engine a model", "its steps denoise a canvas and are no tokens"),
        ("xinference/worker.prom", "engine a/sdxl model", "sdxl-turbo: no MFU, no MBU: it serves no language model"),
    ],
)
async def test_a_model_that_is_no_llm_lacks_nothing(page: str, name: str, words: str) -> None:
    text = (PAGES / page).read_bytes()
    with LoopbackServer(lambda _: Reply(200, text)) as server:
        checks = await checked(
            Options(nvml=False), endpoint=(Endpoint(url=server.url, name="a"),), discovery=Discovery(enabled=False)
        )
    assert (checks[name].state, checks[name].fix) == (OK, "")
    assert words in checks[name].text


async def test_a_model_without_a_name_gets_its_name_where_the_config_has_it() -> None:
    page = b"".join(b'acme_tokens_total{kind="%d"} %d\n' % (kind, kind) for kind in range(12)) + b"acme_busy 1\n"
    selectors = {name: f'acme_tokens_total{{kind="{at}"}}' for at, name in enumerate(COUNTERS)}
    with LoopbackServer(lambda _: Reply(body=page)) as server:
        feed = Feed(url=server.url, name="acme", quantities=selectors)
        checks = await checked(Options(nvml=False), feed=(feed,))
        named = await checked(Options(nvml=False), feed=(replace(feed, model="Qwen/Qwen3-8B"),))
    check = checks["engine acme model"]
    assert (check.state, check.text.endswith("which model it is: set model in its [[feed]]")) == (WARN, True)
    assert check.fix.startswith('add to its [[feed]] in the config:\nmodel = "NAME"')
    assert state(named, "engine acme model") is OK
    said = report([checks["engine acme metrics"]], colour=False, width=200)
    assert all(f"{name} = {series}" in " ".join(said.split()) for name, series in selectors.items())


async def test_figures_that_an_engine_can_not_have_are_named_with_what_helps() -> None:
    counted = {"num_requests_running": 3, "prompt_tokens_total": 70, "generation_tokens_total": 9}
    page = "".join(f'vllm:{name}{{engine="0",model_name="tiny-8b"}} {value}\n' for name, value in counted.items())
    with LoopbackServer(lambda _: Reply(body=page.encode())) as server:
        endpoint = Endpoint(url=server.url, name="mine", gpu_type="H100 SXM 80GB", gpu_count=2, model="tiny-8b")
        checks = await checked(Options(nvml=False), endpoint=(endpoint,), model=(LLAMA,))
    unknown = NO_CONTEXT._replace(todo=NO_CONTEXT.todo.replace("{url}", f'"{server.url}"'))
    for figure, lack in (("MFU", NO_PREFILL), ("MBU", unknown)):
        check = checks[f"engine mine {figure}"]
        assert (check.state, check.text, check.fix) == (WARN, f"no {figure}: {lack.sentence}", lack.todo)


async def test_a_key_that_is_not_there_is_named_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ABSENT_KEY", raising=False)
    with FakeEngine("vllm-apikey", start_s=30.0) as engine:
        endpoint = Endpoint(url=engine.url, name="mine", api_key_env="ABSENT_KEY")
        checks = await diagnose(Config(endpoint=(endpoint,)), Options(nvml=False))
    assert any(check.state is WARN and "ABSENT_KEY" in check.text for check in checks)
    assert not any(engine.capture.api_key in check.text + check.fix for check in checks)


async def test_facts_of_the_kernel_module(tmp_path: Path) -> None:
    folder = tmp_path / "driver" / "nvidia"
    folder.mkdir(parents=True)
    (folder / "params").write_text("ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\nTCEBypassMode: 0\n")
    (folder / "version").write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build  (dvs-builder)\n"
        "GCC version:  gcc version 13.3.0\n"
    )
    found = Contribution(gpus=_one_gpu(), driver="580.95.05", cuda="13.0")
    checks = {check.name: check for check in await driver_checks(found, proc=tmp_path)}
    assert checks["kernel module"].state is WARN
    assert checks["kernel module"].text == "570.86.10, but the library is of 580.95.05"
    assert "administrators" in checks["profiling counters"].text
    (folder / "params").write_text("RmProfilingAdminOnly: 0\n")
    (folder / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23\n")
    checks = {check.name: check for check in await driver_checks(found, proc=tmp_path)}
    assert "kernel module" not in checks
    assert checks["profiling counters"].text == "for all users"


async def test_a_worker_whose_memory_map_hangs_does_not_hold_up_the_doctor(tmp_path: Path) -> None:
    (tmp_path / "4711").mkdir()
    os.mkfifo(tmp_path / "4711" / "maps")
    began = time.monotonic()
    checks = await driver_checks(Contribution(gpus=_one_gpu(), driver="580.95.05", pids=(4711,)), proc=tmp_path)
    assert time.monotonic() - began < 55.0
    assert [(check.state, check.text) for check in checks if check.name == "library"] == [
        (WARN, "not known: the worker process hangs inside the driver")
    ]


def _one_gpu() -> tuple[GpuReading, ...]:
    return (GpuReading(0, "GPU-0", "NVIDIA H100 80GB HBM3", GpuState.OK, 0.0),)


@pytest.mark.parametrize(
    ("environ", "size", "states"),
    [
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, (24, 80), [OK, OK, OK]),
        ({"TERM": "dumb"}, (24, 80), [FAIL, OK, WARN]),
        ({"TERM": "linux"}, (20, 80), [OK, WARN, WARN]),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, (40, 120), [OK, OK, OFF]),
    ],
)
def test_a_terminal(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], size: tuple[int, int], states: list[CheckState]
) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    with os.fdopen(theirs, "w", encoding="utf-8") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        checks = terminal_checks(environ)
        monkeypatch.undo()
    os.close(ours)
    assert [check.state for check in checks] == [*states, OK]


def test_no_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as file:
        monkeypatch.setattr(sys, "stdout", file)
        (check,) = terminal_checks({"TERM": "xterm"})
        monkeypatch.undo()
    assert check.state is OFF
