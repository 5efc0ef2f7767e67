"""gpumon against other monitors on one fake driver, in one run: CPU, memory, first paint, bytes to the terminal.

make bench      # or: python -m tests.perf.bench [--seconds 20] [--rounds 3] [--free-calls] [--markdown FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import gpumon
from tests.fakes.nvml.driver import FakeDriver
from tests.perf.contestants import BIN, ENDPOINTS, Contestant, contestants, missing
from tests.terminal import Terminal

SETTLE_S = 9.0
"""Start-up is measured apart from the steady state: until all faults are known, panes still change their places."""

MOST_START_S = 20
"""Seconds after which a program that has not shown the GPUs yet is taken to fail: a busy machine needs several."""


FREE_CALLS = "the driver's calls take no processor time; else that of a real H200 (tests/gpu/call_costs.py)"


class Cost(NamedTuple):
    """What one program cost in one window."""

    cpu_ratio: float
    pss_bytes: float
    bytes_per_s: float


@contextlib.contextmanager
def engines(count: int, capture: str = "prometheus-api", start_s: int = 15) -> Iterator[list[str]]:
    """That many replays of a capture under load, each in a process of its own so that its cost is not gpumon's."""
    command = [sys.executable, "-m", "tests.fakes.engine", capture, "--start", str(start_s)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    try:
        yield [process.stdout.readline().split()[-1] for process in running if process.stdout is not None]
    finally:
        for process in running:
            process.kill()
            process.wait()


def command(contestant: Contestant, urls: Sequence[str]) -> list[str]:
    """Its command line, with the endpoints."""
    return [*contestant.command, *(part for url in urls for part in (contestant.option, url))]


def steady(contestant: Contestant, env: dict[str, str], size: tuple[int, int], seconds: float) -> Cost:
    """Cost of a window of `seconds` after start-up."""
    with engines(contestant.endpoints) as urls, Terminal(command(contestant, urls), env, *size) as terminal:
        terminal.run(SETTLE_S)
        cpu_s, written, at_s = terminal.cpu_s(), terminal.written(), time.monotonic()
        terminal.run(seconds)
        elapsed_s = time.monotonic() - at_s
        return Cost(
            (terminal.cpu_s() - cpu_s) / elapsed_s, terminal.pss_bytes(), (terminal.written() - written) / elapsed_s
        )


def first_paint(contestant: Contestant, env: dict[str, str], size: tuple[int, int]) -> tuple[float, float]:
    """Seconds from the start of the process to its first full paint, and to the first figures of all GPUs."""
    with Terminal(contestant.command, env, *size) as terminal:
        for _ in range(MOST_START_S):
            terminal.run(1.0)
            paint = terminal.first(lambda screen: re.search(contestant.paint, screen) is not None)
            figures = terminal.first(lambda screen: re.search(contestant.figures, screen) is not None)
            if paint is not None and figures is not None:
                return paint, figures
        raise SystemExit(f"{contestant.name} never painted:\n" + "\n".join(terminal.screen()))


def snapshot_s(env: dict[str, str], *arguments: str) -> float:
    """Wall time of one `gpumon snapshot --json`."""
    at_s = time.monotonic()
    subprocess.run(
        [str(BIN / "gpumon"), "snapshot", "--json", *arguments], env=env, check=True, stdout=subprocess.DEVNULL
    )
    return time.monotonic() - at_s


def table(rows: list[tuple[str, ...]], head: tuple[str, ...]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def servers_driver(folder: Path, *, free_calls: bool) -> FakeDriver:
    """The driver of a server with 8 H100s, whose calls take the processor time of real ones or none."""
    driver = FakeDriver(folder)
    script = driver.busy_h100s(8)
    if not free_calls:
        script += driver.call_costs()
    driver.write(script)
    return driver


def measure(seconds: float, rounds: int, *, free_calls: bool) -> str:
    """All measurements, as Markdown."""
    parts = []
    with tempfile.TemporaryDirectory() as folder:
        driver = servers_driver(Path(folder), free_calls=free_calls)
        env = driver.env(TERM="xterm-256color", COLORTERM="truecolor", LANG="C.UTF-8", XDG_CONFIG_HOME=folder)
        for size in ((120, 40), (200, 60)):
            rows = []
            everyone = contestants(size[1], Path(folder))
            costs: dict[str, list[Cost]] = {one.name: [] for one in everyone}
            for _ in range(rounds):
                for one in everyone:
                    costs[one.name].append(steady(one, env, size, seconds))
            base = statistics.median(cost.cpu_ratio for cost in costs["nvitop"])
            for one in everyone:
                cpu, pss, written = (statistics.median(column) for column in zip(*costs[one.name], strict=True))
                starts = [first_paint(one, env, size) for _ in range(rounds)]
                paint, figures = (statistics.median(column) for column in zip(*starts, strict=True))
                rows.append(
                    (
                        one.name,
                        f"{cpu * 100:.2f}%",
                        f"{cpu / base:.2f}",
                        f"{pss / 1e6:.0f} MB",
                        f"{written:,.0f}",
                        f"{paint:.2f} s",
                        f"{figures:.2f} s",
                    )
                )
            head = (
                "program",
                "CPU of a core",
                "of nvitop's",
                "PSS",
                "bytes/s to the terminal",
                "first paint",
                "GPU figures",
            )
            parts.append(f"### {size[0]}x{size[1]}\n\n" + table(rows, head))
        fast = statistics.median(snapshot_s(env, "--window", "0") for _ in range(rounds))
        parts.append(f"`gpumon snapshot --json --window 0`: {fast:.2f} s")
        if absent := missing():
            parts.append(f"Not here, so not measured: {', '.join(absent)} (`make rivals` fetches them on Debian).")
    return "\n\n".join(parts)


def main() -> None:
    """Print the tables, and write them where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="length of one window")
    parser.add_argument("--rounds", type=int, default=3, help="windows a program; medians are shown")
    parser.add_argument("--free-calls", action="store_true", help=FREE_CALLS)
    parser.add_argument("--markdown", type=Path, help="also write the tables there")
    arguments = parser.parse_args()
    title = f"gpumon {gpumon.__version__}, Python {platform.python_version()}, {os.cpu_count()} cores"
    calls = "whose calls take no processor time" if arguments.free_calls else "whose calls cost what an H200's do"
    text = f"{title}; 8 simulated H100s {calls}, 1 s; {ENDPOINTS} replayed vLLM endpoints, 2 s.\n\n"
    text += measure(arguments.seconds, arguments.rounds, free_calls=arguments.free_calls)
    print(text)
    if arguments.markdown:
        arguments.markdown.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
