"""What gpumon says where something of its surroundings is not there: Linux, memory, a writer of a pipe."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gpumon.config.errors import ConfigError
from gpumon.config.load import load

SNAPSHOT = ("snapshot", "--no-discovery")


EACH = """
import json, sys
{}
from gpumon.cli import main
for arguments in json.loads(sys.argv[1]):
    sys.stderr.write(f"{{main(arguments)}}\\n")
"""
"""A program that runs commands one after another, and tells the exit code of each after what it wrote."""


def each_of(commands: Sequence[Sequence[str]], before: str) -> list[tuple[str, int]]:
    """The one line on stderr of each command, and its exit code, after some Python code. None writes to stdout."""
    program = [sys.executable, "-c", EACH.format(before), json.dumps(commands)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 2 * len(commands), done.stderr
    return list(zip(lines[::2], map(int, lines[1::2]), strict=True))


ELSEWHERE = ("fcntl", "grp", "pwd", "resource", "termios", "msgspec", "psutil", "pynvml", "rich", "textual", "httpx")
"""Modules that other systems lack, or that may not be installed there."""


@pytest.mark.parametrize("platform", ["darwin", "win32", "freebsd14"])
def test_a_system_that_is_not_linux_is_named_before_anything_is_imported_that_it_lacks(platform: str) -> None:
    before = f"sys.platform = {platform!r}\nsys.modules.update(dict.fromkeys({ELSEWHERE!r}))"
    line = f"gpumon: Linux only, and this is {platform}: run it on the server, through ssh"
    assert each_of([(), SNAPSHOT, ("doctor",), ("--version",)], before) == [(line, 1)] * 4


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take /proc away")
def test_a_system_without_proc() -> None:
    before = (
        "import ctypes\nlibc = ctypes.CDLL(None)\nassert libc.unshare(0x20000) == 0\n"
        "assert libc.mount(b'none', b'/', None, 0x44000, None) == 0\n"
        "assert libc.mount(b'tmpfs', b'/proc', b'tmpfs', 0, None) == 0"
    )
    line = "gpumon: Linux only, with /proc, and that is not mounted here"
    assert each_of([SNAPSHOT, ("doctor",), ("status",)], before) == [(line, 1)] * 3


def test_a_worker_that_can_not_be_started_is_named(tmp_path: Path) -> None:
    """A Python that is too large for what memory the worker may take."""
    worker = tmp_path / "python"
    worker.write_text(f'#!/bin/sh\nulimit -v 20000\nexec {sys.executable} "$@"\n')
    worker.chmod(0o755)
    commands = [SNAPSHOT, ("status",), ("watch", "--json", "--count", "1")]
    for text, code in each_of(commands, f"sys.executable = {str(worker)!r}"):
        assert "nothing is known of the GPUs, and no endpoint is given: the NVML worker" in text
        assert "no GPU was found" not in text
        assert code == 1


def test_a_pipe_without_a_writer_is_no_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpumon.config.load.PIPE_S", 0.2)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="is a pipe in which nothing ends within"):
        load(str(tmp_path / "pipe"), {})


def test_what_is_written_into_a_pipe_is_a_config() -> None:
    """As `<(...)` of a shell."""
    read, write = os.pipe()

    def say() -> None:
        for line in (b"[general]\n", b"interval_s = 3.0\n"):
            os.write(write, line)
        os.close(write)

    threading.Thread(target=say).start()
    assert load(f"/dev/fd/{read}", {}).config.general.interval_s == 3.0
    os.close(read)


def test_a_pipe_whose_writer_does_not_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpumon.config.load.PIPE_S", 0.2)
    read, write = os.pipe()
    with pytest.raises(ConfigError, match="is a pipe in which nothing ends within"):
        load(f"/dev/fd/{read}", {})
    os.close(read)
    os.close(write)


def test_a_pipe_that_was_closed_unwritten_is_no_config() -> None:
    read, write = os.pipe()
    os.close(write)
    with pytest.raises(ConfigError, match="is a pipe that nobody writes into"):
        load(f"/proc/self/fd/{read}", {})
    os.close(read)


def test_dev_null_is_an_empty_config() -> None:
    assert load("/dev/null", {}).config.general.interval_s == 1.0


@pytest.mark.parametrize(
    "name",
    [
        "%h",
        "[-oX]",
        ":",
        "gpu%h",
        "a@%h",
        "@gpu",
        "-oProxyCommand=x",
        "a@-x",
        "[gpu]",
        "fe80::1%-x",
        "::1%",
        "a b",
        "1:2",
    ],
)
def test_a_name_that_ssh_takes_for_something_else_is_refused(name: str, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text(f"[[host]]\naddress = {name!r}\n")
    if name == "1:2":  # a URL
        assert load(str(config), {}).config.host[0].address == "http://1:2"
        return
    with pytest.raises(ConfigError, match="must be a host as ssh takes it"):
        load(str(config), {})


@pytest.mark.parametrize(
    "name", ["gpu-07", "user@gpu-08", "10.0.0.7", "fe80::1%eth0", "ops@2001:db8::7", "a_b.example"]
)
def test_names_that_ssh_takes_for_hosts(name: str, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text(f"[[host]]\naddress = {name!r}\n")
    assert load(str(config), {}).config.host[0].address == name


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("RLIMIT_AS, (used + 2_000_000,) * 2", "no more memory: raise `ulimit -v`"),
        ("RLIMIT_NOFILE, (6, 6)", "`ulimit -n` leaves it 6 open files, and it needs 64: raise that limit"),
    ],
)
def test_a_limit_of_its_own_is_named_with_what_raises_it(limit: str, words: str) -> None:
    before = (
        "import pathlib, resource\n"
        "used = int(pathlib.Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize()\n"
        f"resource.setrlimit(resource.{limit})"
    )
    ((line, code),) = each_of([("snapshot", "--no-nvml", "--endpoint", "http://127.0.0.1:1")], before)
    assert words in line
    assert code == 1


WATCHING = (
    ("snapshot", "--demo"),
    ("watch", "--demo", "--json", "--count", "2"),
    ("serve-metrics", "--demo", "--listen", "127.0.0.1:0"),
    ("doctor",),
    ("status",),
)
"""Commands that watch: each has threads, connections and an event loop."""


def with_commands(limits: Sequence[str]) -> list[Any]:
    """Each limit with two of the commands, in turn, so that each is tried at every run; and with all, as wide cases."""
    turns = [[*WATCHING, *WATCHING][place : place + 2] for place in range(len(limits))]
    some = [pytest.param(limit, turn, id=limit) for limit, turn in zip(limits, turns, strict=True)]
    return some + [pytest.param(limit, WATCHING, id=f"{limit} all", marks=pytest.mark.wide) for limit in limits]


@pytest.mark.parametrize(("limit", "commands"), with_commands(["-v 60000", "-v 200000", "-v 599999", "-n 12", "-n 63"]))
def test_too_little_of_what_it_needs_ends_it_at_once(limit: str, commands: Sequence[Sequence[str]]) -> None:
    """At `-v 200000` Python ran for good in a loop of its own, in which no signal was taken."""
    program = str(Path(sys.executable).with_name("gpumon"))
    for command in commands:
        words = ["sh", "-c", f'ulimit {limit}; exec "$@"', "sh", program, *command]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        (line,) = done.stderr.splitlines()
        assert line.startswith("gpumon: "), line
        assert f"`ulimit {limit[:2]}`" in line, line
        assert "raise" in line, line
        assert (done.returncode, done.stdout) == (1, "")


def as_user_with_threads(count: int) -> list[str]:
    """The words before a command that may start so many threads and processes: root is under no such limit.

    The user that it runs as has nothing else, and may read all files, as the Python of root.
    """
    words = []
    if os.geteuid() == 0:
        words = [
            *(
                "setpriv",
                "--reuid",
                "54321",
                "--regid",
                "54321",
                "--clear-groups",
                "--ambient-caps",
                "+dac_read_search",
            ),
            *("--inh-caps", "-all,+dac_read_search", "--bounding-set", "-all,+dac_read_search"),
        ]
    return [*words, "prlimit", f"--nproc={count}"]


def home(folder: Path) -> dict[str, str]:
    return {**os.environ, "HOME": str(folder), "XDG_STATE_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}


NO_THREADS = "it may start no more threads: raise `ulimit -v` and `ulimit -u`, or the pids limit of its container"


@pytest.mark.parametrize(("threads", "commands"), with_commands(["1", "2", "3", "5", "8"]))
def test_too_few_threads_end_it_at_once(threads: str, commands: Sequence[Sequence[str]], tmp_path: Path) -> None:
    for command in commands:
        words = [*as_user_with_threads(int(threads)), sys.executable, "-m", "gpumon", *command]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False, env=home(tmp_path))
        assert (done.returncode, done.stdout, done.stderr) == (1, "", f"gpumon: {NO_THREADS}\n")


@pytest.mark.parametrize("threads", [1, 3, 8])
def test_a_screen_that_may_start_too_few_threads_says_so_and_leaves_the_terminal_alone(
    threads: int, tmp_path: Path
) -> None:
    """At three its thread of keys failed, and it could not be left."""
    words = [*as_user_with_threads(threads), sys.executable, "-m", "gpumon", "demo"]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(words[0], words, {**home(tmp_path), "TERM": "xterm-256color"})
    written = b""
    with contextlib.suppress(OSError):  # the end of the program is an error of its terminal
        while select.select([terminal], [], [], 60.0)[0]:
            written += os.read(terminal, 4096)
    os.close(terminal)  # a hang-up, for a program that is still there
    _, status = os.waitpid(pid, 0)
    assert written.decode() == f"gpumon: {NO_THREADS}\r\n"
    assert os.waitstatus_to_exitcode(status) == 1


def test_what_asks_for_little_works_with_little() -> None:
    program = str(Path(sys.executable).with_name("gpumon"))
    commands = (
        *(("--version",), ("--help",), ("watch", "--help"), ("doctor", "--help")),
        *(("config",), ("config", "--example"), ("models", "list"), ("profiles", "list")),
    )
    for command in commands:
        words = ["sh", "-c", 'ulimit -v 120000; ulimit -n 12; exec "$@"', "sh", program, *command]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert done.stdout
