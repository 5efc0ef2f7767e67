"""Builds the fake `libnvidia-ml.so.1` and hands it, with a script, to the programs under test."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import platform
import shutil
import subprocess
import tempfile
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests import program as programs

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
CALL_COSTS = ROOT / "tests/data/nvml-call-costs.csv"
SONAME = "libnvidia-ml.so.1"
FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror")
LIBRARY_FLAGS = ("-fPIC", "-shared", "-fvisibility=hidden", f"-Wl,-soname,{SONAME}")

PRELUDE = """
import json, os, sys, threading, time
from pynvml import *

def code(call, *arguments):
    "The NVML return code of a call."
    try:
        call(*arguments)
    except NVMLError as error:
        return error.value
    return NVML_SUCCESS

def rewrite(text):
    with open(os.environ["GPUMON_FAKE_NVML"] + ".fresh", "w") as file:
        file.write(text)
    os.rename(file.name, os.environ["GPUMON_FAKE_NVML"])

answer = None
"""


class ProgramError(Exception):
    """A program on the fake driver ended with an error: its exit status (negative: the signal) and its stderr."""

    def __init__(self, status: int, stderr: str) -> None:
        super().__init__(f"exit status {status}\n{stderr}")
        self.status = status
        self.stderr = stderr


class Call(NamedTuple):
    """One line of the call log; `device` is "3", "0/1" for a MIG slice, "-" for none."""

    realtime_s: float
    pid: int
    name: str
    device: str


def _compile(arguments: Sequence[str | Path]) -> None:
    gcc = shutil.which("gcc")
    if gcc is None:
        raise RuntimeError("the fake NVIDIA driver needs a C compiler: apt-get install gcc libc6-dev")
    done = subprocess.run([gcc, *FLAGS, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"gcc failed on the fake NVIDIA driver:\n{done.stderr}")


def _build_into(folder: Path, without: Sequence[str]) -> None:
    library = folder / SONAME
    exports = folder / "exports.map"
    absent = "".join(f"{name}; " for name in without)
    exports.write_text(f"{{ global: nvml*; fakeNvml*; local: {absent}*; }};\n")
    sources = sorted((HERE / "src").glob("*.c"))
    _compile([*LIBRARY_FLAGS, f"-Wl,--version-script,{exports}", "-o", library, *sources, "-lm", "-lpthread"])
    (folder / "libnvidia-ml.so").symlink_to(SONAME)
    checker = HERE / "check" / "check_script.c"
    _compile(["-o", folder / "check_script", checker, library, "-Wl,-rpath,$ORIGIN"])


def build(without: Iterable[str] = ()) -> Path:
    """The folder that holds the library, compiled unless these sources were compiled before.

    `without` names symbols that the library shall not have, as an older driver. Safe when several processes build at
    once. Raises RuntimeError where gcc is missing or fails.
    """
    absent = sorted(set(without))
    sources = sorted([*(HERE / "src").iterdir(), *(HERE / "check").iterdir(), Path(__file__)])
    key = hashlib.sha256("\0".join([*absent, platform.machine(), *FLAGS]).encode())
    for source in sources:
        key.update(source.name.encode() + b"\0" + source.read_bytes())
    target = Path(tempfile.gettempdir()) / f"fake-nvml-{os.getuid()}-{key.hexdigest()[:16]}"
    if target.is_dir() and target.stat().st_uid == os.getuid():
        return target
    fresh = Path(tempfile.mkdtemp(prefix="fake-nvml-"))
    try:
        _build_into(fresh, absent)
        fresh.rename(target)
    except OSError:
        if not (target.is_dir() and target.stat().st_uid == os.getuid()):
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return target


class FakeDriver:
    """A driver with a script of its own in `folder`; `README.md` beside this file describes the script."""

    def __init__(self, folder: Path, *, log: bool = False, without: Iterable[str] = ()) -> None:
        self.library_folder = build(without)
        self.script = folder / "nvml.script"
        self.log = folder / "nvml.calls" if log else None

    def write(self, text: str) -> None:
        """Put a script into force, at once and as a whole. Raises ValueError for one that cannot be read."""
        fresh = self.script.with_suffix(".new")
        fresh.write_text(text)
        check = subprocess.run([self.library_folder / "check_script", fresh], capture_output=True, text=True)
        if check.returncode != 0:
            raise ValueError(check.stderr.strip())
        fresh.rename(self.script)

    def env(self, **more: str) -> dict[str, str]:
        """This process's environment with the fake driver in it."""
        path = os.pathsep.join(filter(None, [str(self.library_folder), os.environ.get("LD_LIBRARY_PATH")]))
        env = {**os.environ, "LD_LIBRARY_PATH": path, "GPUMON_FAKE_NVML": str(self.script), **more}
        if self.log is not None:
            env["GPUMON_FAKE_NVML_LOG"] = str(self.log)
        return env

    def ask(self, program: str, *, timeout_s: float = 20) -> Any:
        """Run a program on the real pynvml in a process of its own; what it puts into `answer` comes back (as JSON).

        Raises ProgramError, or TimeoutExpired.
        """
        text = f"{PRELUDE}{textwrap.dedent(program)}\nprint(json.dumps(answer))"
        run = programs.Run(["-c", text], self.env(), str(Path.cwd()), programs.DRIVER_PROGRAM)
        done = programs.completed(run, timeout_s=timeout_s)
        if done.returncode != 0:
            raise ProgramError(done.returncode, done.stderr)
        return json.loads(done.stdout)

    def call_lines(self) -> list[Call]:
        """Every NVML call of every process so far, oldest first (needs `log=True`)."""
        if self.log is None:
            raise RuntimeError("this FakeDriver keeps no log: FakeDriver(folder, log=True)")
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        words = (line.split() for line in lines)
        return [Call(float(at), int(pid), name, device) for at, pid, name, device in words]

    def calls(self) -> Counter[str]:
        """How often each NVML function was called (needs `log=True`)."""
        return Counter(call.name for call in self.call_lines())

    @staticmethod
    def call_costs() -> str:
        """Script lines that let calls take the processor time that they take on a real H200.

        tests/gpu/call_costs.py measured it; a call that is not in its table takes none.
        """
        rows = csv.DictReader(line for line in CALL_COSTS.read_text().splitlines() if not line.startswith("#"))
        lines = []
        for row in rows:
            cold_s = float(row["ms"]) / 1e3
            warm_s = float(row["warm_ms"]) / 1e3
            lines.append(f"gpu * call {row['call']} busy:{cold_s:.6f}:{warm_s:.6f}")
        return "\n".join(lines) + "\n"

    @staticmethod
    def busy_h100s(gpus: int = 8, pid: int | None = None) -> str:
        """The script of a server of H100s that decodes: all figures move; `pid` (default: this process) is on each."""
        lines, pid = [f"gpus {gpus}", "profile h100-sxm"], os.getpid() if pid is None else pid
        for gpu in range(gpus):
            period = 40 + 3 * gpu
            lines += [
                f"gpu {gpu} busy sine:91:7:{period}",
                f"gpu {gpu} membusy sine:71:12:{period}",
                f"gpu {gpu} sm sine:64:9:{period}",
                f"gpu {gpu} occupancy sine:31:5:{period}",
                f"gpu {gpu} tensor sine:22:8:{period}",
                f"gpu {gpu} dram sine:66:12:{period}",
                f"gpu {gpu} pcie_tx_mibs sine:900:300:{period}",
                f"gpu {gpu} pcie_rx_mibs sine:1400:500:{period}",
                f"gpu {gpu} nvlink_tx_mibs sine:30000:8000:{period}",
                f"gpu {gpu} nvlink_rx_mibs sine:30000:8000:{period}",
                f"gpu {gpu} power_w sine:{610 - 4 * gpu}:60:{period}",
                f"gpu {gpu} temp_c sine:{64 - gpu % 3}:4:{4 * period}",
                f"gpu {gpu} sm_clock_mhz sine:1905:60:{period}",
                f"gpu {gpu} throttle 0x4",
                f"gpu {gpu} process {pid} {72904 - 16 * gpu} compute sine:90:8:{period}",
            ]
        return "\n".join(lines) + "\n"
