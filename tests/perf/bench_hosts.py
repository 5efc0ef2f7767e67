"""What hosts over ssh cost the fleet's screen: CPU of the screen and of its ssh clients, and bytes a line.

python -m tests.perf.bench_hosts [--hosts 30] [--seconds 30] [--old]

The hosts are logins at a real sshd on loopback. Each replays what `gpumon watch --json` printed of the simulated
server, a line a second, so that 30 gpumons do not take the CPU that is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil

from gpumon.readings.difference import KEY, apply_difference
from tests.fakes.sshd import Sshd
from tests.perf.contestants import BIN
from tests.terminal import Terminal

HOSTS = 30
LINES = 20
"""Lines that are replayed again and again."""
WARM = 40
"""Lines before them: until windows are full, more changes from one to the next."""
CPU_LIMIT = 0.12
SETTLE_S = 20.0
"""Until all connections stand: the keys of 30 logins take CPU."""
BRIEF = "--fleet"
REPLAY = """\
import re, sys, time
from datetime import datetime, timezone
lines = open(sys.argv[1], "rb").read().splitlines()
at = 0
while True:
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    line = re.sub(rb'"time":"[^"]*"', b'"time":"' + now.encode() + b'"', lines[at % len(lines)], count=1)
    sys.stdout.buffer.write(line + b"\\n")
    sys.stdout.buffer.flush()
    at += 1
    time.sleep(1.0)
"""


def record(folder: Path, name: str, *more: str) -> int:
    """Keep what a gpumon prints in a file; returns the mean bytes of a line."""
    count = str(WARM + LINES)
    command = [str(BIN / "gpumon"), "watch", "--json", *more, "--demo", "--interval", "1", "--count", count]
    done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=300, check=True)
    printed = [line for line in done.stdout.splitlines() if line.startswith(b"{")]
    kept = [snapshot_at(printed, WARM), *printed[WARM + 1 :]]
    (folder / name).write_bytes(b"".join(line + b"\n" for line in kept))
    return sum(map(len, kept)) // len(kept)


def snapshot_at(lines: list[bytes], place: int) -> bytes:
    """The whole snapshot that a line stands for."""
    told = json.loads(lines[0])
    for line in map(json.loads, lines[1 : place + 1]):
        told = apply_difference(told, line[KEY]) if KEY in line else line
    return json.dumps(told, separators=(",", ":")).encode()


def far_side(folder: Path, *, old: bool) -> Path:
    """The folder of a `gpumon` that replays; an old one refuses the option that asks for less."""
    programs = folder / "programs"
    programs.mkdir()
    (folder / "replay.py").write_text(REPLAY)
    python = f"exec {sys.executable} -S -E {folder}/replay.py {folder}"
    brief = "echo 'gpumon: unrecognized arguments: --fleet' >&2; exit 2" if old else f"{python}/brief"
    program = programs / "gpumon"
    program.write_text(f'#!/bin/sh\ncase "$*" in *{BRIEF}*) {brief};; *) {python}/whole;; esac\n')
    program.chmod(0o755)
    return programs


def cpu_s(terminal: Terminal) -> dict[str, float]:
    """CPU time so far of the screen and of its ssh clients."""
    found = {"screen": 0.0, "ssh": 0.0}
    for process in terminal.tree():
        try:
            times = process.cpu_times()
            name = "ssh" if process.name().startswith("ssh") else "screen"
        except psutil.Error:
            continue
        found[name] += times.user + times.system
    return found


def measure(folder: Path, hosts: int, seconds: float, *, old: bool) -> dict[str, float]:
    """CPU as a share of a core."""
    names = [f"gpu-{number:02}" for number in range(hosts)]
    with Sshd(folder, far_side(folder, old=old), dict.fromkeys(names, "")) as server:
        env = {**os.environ, "PATH": server.client_path, "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        env["XDG_CONFIG_HOME"] = str(folder)
        words = [word for name in names for word in ("--host", name)]
        with Terminal([str(BIN / "gpumon"), *words], env, 120, 40) as terminal:
            terminal.run(SETTLE_S)
            before = cpu_s(terminal)
            terminal.run(seconds)
            after = cpu_s(terminal)
            print("\n".join(terminal.screen()[:3]))
    return {name: (after[name] - before[name]) / seconds for name in after}


def main() -> None:
    """Print the figures; ends with 1 where one is above its limit."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--hosts", type=int, default=HOSTS)
    arguments.add_argument("--seconds", type=float, default=30.0)
    arguments.add_argument("--old", action="store_true", help="hosts whose gpumon knows no --fleet")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = record(folder, "whole")
        if not given.old:
            size = record(folder, "brief", BRIEF)
        shares = measure(folder, given.hosts, given.seconds, old=given.old)
    total = sum(shares.values())
    print(f"{given.hosts} hosts over ssh at 1 s, 120x40, {size:,} bytes a line")
    print(f"screen {shares['screen'] * 100:.1f}%, ssh {shares['ssh'] * 100:.1f}% of a core (limit in all 15%)")
    sys.exit(total > CPU_LIMIT)


if __name__ == "__main__":
    main()
