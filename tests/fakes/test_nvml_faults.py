"""Faults that the fake driver can act out, as real programs meet them, and how its script and build can fail."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.nvml.driver import FakeDriver, ProgramError, build

ROOT = Path(__file__).resolve().parents[2]


def test_a_lost_gpu_costs_only_itself(fake_driver: FakeDriver) -> None:
    fake_driver.write("gpus 3\n")
    answer = fake_driver.ask("""
        nvmlInit()
        gpus = [nvmlDeviceGetHandleByIndex(n) for n in range(3)]
        rewrite("gpus 3\\ngpu 1 fault lost\\ngpu 2 fault reset_required\\n")
        time.sleep(0.005)
        calls = (nvmlDeviceGetUtilizationRates, nvmlDeviceGetMemoryInfo, nvmlDeviceGetName)
        answer = [[code(call, gpu) for call in calls] for gpu in gpus]
        answer.append([code(nvmlDeviceGetHandleByIndex, n) for n in range(4)])
        rewrite("gpus 3\\ngpu 1 fault none\\n")
        time.sleep(0.005)
        answer.append([code(nvmlDeviceGetName, gpu) for gpu in gpus])
    """)
    assert answer == [[0] * 3, [15] * 3, [16] * 3, [0, 15, 0, 2], [0, 0, 0]]


@pytest.mark.parametrize(
    ("what", "number"),
    [
        *(("not_supported", 3), ("no_permission", 4), ("timeout", 10), ("function_not_found", 13)),
        *(("gpu_lost", 15), ("argument_version_mismatch", 25), ("unknown", 999), ("ok", 0)),
    ],
)
def test_a_call_can_be_told_to_fail(fake_driver: FakeDriver, what: str, number: int) -> None:
    fake_driver.write(
        f"gpus 2\ncall nvmlDeviceGet* unknown\ncall nvmlDeviceGet* ok\ngpu 1 call nvmlDeviceGetPowerUsage {what}\n"
    )
    answer = fake_driver.ask("""
        nvmlInit()
        gpus = [nvmlDeviceGetHandleByIndex(n) for n in range(2)]
        answer = [code(nvmlDeviceGetPowerUsage, gpu) for gpu in gpus] + [code(nvmlDeviceGetName, gpus[1])]
    """)
    assert answer == [0, number, 0]


def test_a_slow_call_answers_in_the_end_and_holds_nobody_up(fake_driver: FakeDriver) -> None:
    fake_driver.write("gpus 2\ngpu 0 power_w 123\ngpu 0 call nvmlDeviceGetPowerUsage hang:2\n")
    slow, meanwhile, power = fake_driver.ask("""
        nvmlInit()
        gpus = [nvmlDeviceGetHandleByIndex(n) for n in range(2)]
        powers, start = [], time.monotonic()
        thread = threading.Thread(target=lambda: powers.append(nvmlDeviceGetPowerUsage(gpus[0])))
        thread.start()
        nvmlDeviceGetPowerUsage(gpus[1])
        meanwhile = time.monotonic() - start
        thread.join()
        answer = [time.monotonic() - start, meanwhile, powers[0]]
    """)
    assert power == 123_000
    assert slow >= 2.0
    assert meanwhile < 2.0


def test_a_busy_call_takes_processor_time(fake_driver: FakeDriver) -> None:
    fake_driver.write("gpus 2\ngpu * power_w 123\ngpu 0 call nvmlDeviceGetPowerUsage busy:0.05:0.01\n")
    power, first, other, second = fake_driver.ask("""
        nvmlInit()
        gpus = [nvmlDeviceGetHandleByIndex(n) for n in range(2)]
        took = []
        for gpu in (gpus[0], gpus[1], gpus[0]):
            start = time.thread_time()
            power = nvmlDeviceGetPowerUsage(gpu)
            took.append(time.thread_time() - start)
        answer = [power, *took]
    """)
    assert power == 123_000
    assert first >= 0.05
    assert other < first
    assert second >= 0.01


@pytest.mark.parametrize("line", ["gpu 0 call nvmlDeviceGetName hang", "init hang"])
def test_a_hanging_call_never_returns(fake_driver: FakeDriver, line: str) -> None:
    fake_driver.write(line + "\n")
    with pytest.raises(subprocess.TimeoutExpired):
        fake_driver.ask("nvmlInit(); nvmlDeviceGetName(nvmlDeviceGetHandleByIndex(0))", timeout_s=1)


@pytest.mark.parametrize("line", ["gpu 0 call nvmlDeviceGetName crash", "init crash"])
def test_a_crash_is_a_segmentation_fault(fake_driver: FakeDriver, line: str) -> None:
    fake_driver.write(line + "\n")
    with pytest.raises(ProgramError) as failure:
        fake_driver.ask("nvmlInit(); nvmlDeviceGetName(nvmlDeviceGetHandleByIndex(0))")
    assert failure.value.status == -signal.SIGSEGV


@pytest.mark.parametrize(
    ("script", "number"),
    [
        *(("init ok", 0), ("init driver_not_loaded", 9), ("init no_permission", 4), ("init version_mismatch", 18)),
        *(("init unknown", 999), ("init hang:0.2", 0), ("gpus 0", 28), ("init library_not_found", 12)),
    ],
)
def test_ways_in_which_init_can_end(fake_driver: FakeDriver, script: str, number: int) -> None:
    fake_driver.write(script + "\n")
    answer = fake_driver.ask("""
        start = time.monotonic()
        first = code(nvmlInit)
        answer = [first, 0 if first else 1, code(nvmlDeviceGetCount), time.monotonic() - start]
    """)
    assert answer[0] == number
    assert answer[2] == (0 if number == 0 else 1)
    assert answer[3] >= (0.2 if "hang" in script else 0)


def test_init_without_gpus_if_asked_for(fake_driver: FakeDriver) -> None:
    fake_driver.write("gpus 0\n")
    answer = fake_driver.ask(
        "nvmlInitWithFlags(1); answer = [nvmlDeviceGetCount(), code(nvmlDeviceGetHandleByIndex, 0)]"
    )
    assert answer == [0, 2]


def test_no_script_means_no_driver_and_init_can_be_tried_again(fake_driver: FakeDriver) -> None:
    answer = fake_driver.ask("""
        answer = [code(nvmlInit)]
        rewrite("init version_mismatch\\n")
        time.sleep(0.005)
        answer.append(code(nvmlInit))
        rewrite("gpus 4\\n")
        time.sleep(0.005)
        answer += [code(nvmlInit), nvmlDeviceGetCount()]
        answer += [code(nvmlShutdown), code(nvmlDeviceGetCount), code(nvmlShutdown)]
    """)
    assert answer == [9, 18, 0, 4, 0, 1, 1]


def test_error_texts(fake_driver: FakeDriver) -> None:
    fake_driver.write("gpus 1\n")
    texts = fake_driver.ask("nvmlInit(); answer = [nvmlErrorString(n) for n in (0, 4, 15, 18, 999)]")
    assert texts[:3] == ["Success", "Insufficient Permissions", "GPU is lost"]
    assert "version mismatch" in texts[3]
    assert texts[4] == "Unknown Error"


def test_an_old_driver_lacks_symbols(tmp_path: Path) -> None:
    driver = FakeDriver(tmp_path, without=["nvmlDeviceGetTemperatureV", "nvmlDeviceGetMemoryInfo_v2"])
    driver.write("gpu 0 temp_c 50\n")
    answer = driver.ask("""
        nvmlInit()
        gpu = nvmlDeviceGetHandleByIndex(0)
        answer = [code(nvmlDeviceGetTemperatureV, gpu, 0), code(nvmlDeviceGetMemoryInfo, gpu, nvmlMemory_v2),
                  nvmlDeviceGetTemperature(gpu, 0), code(nvmlDeviceGetMemoryInfo, gpu)]
    """)
    assert answer == [13, 13, 50, 0]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("gpux 0 busy 1", "unknown word gpux"),
        ("gpu 256 busy 1", "gpu N|*|N/SLICE ... expected"),
        ("gpu 0 bsuy 1", "unknown key bsuy"),
        ("gpu 0 busy 9O", "bad value 9O"),
        ("gpu 0 busy sine:1:2", "bad value sine:1:2"),
        ("gpu 0 busy sine:1:2:0", "bad value sine:1:2:0"),
        ("gpu 0 busy", "nothing after busy"),
        ("gpus 257", "at most 256 gpus"),
        ("profile h200", "unknown profile h200"),
        ("call nvmlDeviceGetPower not_supported", "this library has no call nvmlDeviceGetPower"),
        ("call nvmlInit broken", "unknown outcome broken"),
        ("gpu 0 fault tired", "unknown fault tired"),
        ("gpu 0 process 12", "process PID MIB"),
        ("gpu 0/0 busy 1", "GPU 0 has 0 slices"),
        ("gpu 0 mig 2 9g.90gb", "unknown MIG profile 9g.90gb"),
        ("gpu 0 xid now", "an event needs a number"),
    ],
)
def test_a_bad_script_is_refused_with_its_line(fake_driver: FakeDriver, line: str, complaint: str) -> None:
    fake_driver.write("gpus 2\n")
    with pytest.raises(ValueError, match=re.escape(f":4: {complaint}")):
        fake_driver.write(f"# comment\ngpus 1  # one\n\n{line}\n")
    assert fake_driver.script.read_text() == "gpus 2\n"


def test_a_bad_script_at_the_start_ends_the_program(fake_driver: FakeDriver) -> None:
    fake_driver.script.write_text("gpus many\n")
    with pytest.raises(ProgramError) as failure:
        fake_driver.ask("nvmlInit()")
    assert failure.value.status == -signal.SIGABRT
    assert "fake nvml" in failure.value.stderr


COMPILER = """\
#!/bin/sh
echo >> {begun}
until [ $(wc -l < {begun}) -ge 2 ]; do sleep 0.01; done
until [ "$1" = -o ]; do shift; done
echo built > "$2"
"""
"""Stands in for gcc: it ends once two have begun."""


def test_two_builds_at_once_agree(tmp_path: Path) -> None:
    compiler = tmp_path / "bin" / "gcc"
    compiler.parent.mkdir()
    compiler.write_text(COMPILER.format(begun=tmp_path / "begun"))
    compiler.chmod(0o755)
    folder = tmp_path / "built"
    folder.mkdir()
    program = "from tests.fakes.nvml.driver import build; print(build())"
    env = {**os.environ, "TMPDIR": str(folder), "PATH": f"{compiler.parent}:{os.environ['PATH']}"}
    builds = [
        subprocess.Popen([sys.executable, "-c", program], env=env, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    folders = {one.communicate(timeout=60)[0].strip() for one in builds}
    assert [one.returncode for one in builds] == [0, 0]
    assert len(folders) == 1
    assert sorted(folder.iterdir()) == [Path(*folders)]
    assert (Path(*folders) / "libnvidia-ml.so.1").is_file()


def test_without_a_compiler_the_build_fails_clearly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="apt-get install gcc"):
        build()
    assert list(tmp_path.iterdir()) == []
