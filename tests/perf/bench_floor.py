"""How cheap a monitor of this kind can be at all: gpumon beside the least programs of what it is made of, and nvitop.

python -m tests.perf.bench_floor [--seconds 40] [--rounds 5] [--markdown FILE]

The least programs (`floor_program.py`) repaint as many lines as gpumon, fetch the same pages and read the same GPUs,
and do nothing with what they get; the last one also imports every module of gpumon's that a monitor with engines has
loaded, and uses none. CPU: all programs at once, by the scheduler's counters. Memory and starts: in turn.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.perf.bench import FREE_CALLS, SETTLE_S, command, engines, first_paint, servers_driver, table
from tests.perf.contestants import ENDPOINTS, Contestant, contestants
from tests.terminal import Terminal

SIZE = (120, 40)
FLOOR = [sys.executable, "-m", "tests.perf.floor_program"]
FLOOR_FIGURES = r"quit, 8 GPUs"
LISTING = """
import atexit, pathlib, sys
from gpumon.cli import main
file = pathlib.Path(sys.argv.pop(1))
names = lambda: [name for name in sorted(sys.modules) if name.startswith("gpumon.")]
atexit.register(lambda: file.write_text("\\n".join(names())))
sys.exit(main())
"""
"""gpumon, which writes the names of its modules to a file when it ends."""


class Spent(NamedTuple):
    """CPU of a program's threads so far, and what it has written."""

    at_s: float
    cpu_s: float
    written: int


def loaded_modules(folder: Path, env: dict[str, str]) -> Path:
    """The file in `folder` that names the modules of gpumon that a monitor with engines has loaded, one a line."""
    file = folder / "modules"
    listing = [sys.executable, "-c", LISTING, str(file), "--interval", "1"]
    with engines(ENDPOINTS) as urls:
        for url in urls:
            listing += ["--endpoint", url]
        with Terminal(listing, env, *SIZE) as terminal:
            terminal.run(SETTLE_S)
            terminal.type(b"q")
            while not terminal.has_ended():
                terminal.run(0.1)
    return file


def programs(folder: Path, env: dict[str, str]) -> list[Contestant]:
    """nvitop, the least programs, and gpumon; the first is the measure of the others."""
    known = {one.name: one for one in contestants(SIZE[1], folder)}
    modules = loaded_modules(folder, env)
    return [
        known["nvitop"],
        known["Textual, one widget"],
        Contestant("Textual, 22 lines a second", FLOOR, "quit", "quit"),
        Contestant("and the driver's worker", [*FLOOR, "--worker"], "quit", FLOOR_FIGURES),
        Contestant("and httpx, 4 pages at 2 s", [*FLOOR, "--worker"], "quit", FLOOR_FIGURES, ENDPOINTS),
        Contestant(
            "and gpumon's modules, imported only",
            [*FLOOR, "--worker", "--modules", str(modules)],
            "quit",
            FLOOR_FIGURES,
            ENDPOINTS,
        ),
        known["gpumon, GPUs only"],
        known[f"gpumon, {ENDPOINTS} endpoints"],
    ]


def scheduled_s(terminal: Terminal) -> float:
    """CPU seconds of all threads of a program and its children, from the scheduler's nanosecond counters."""
    total_ns = 0
    for process in terminal.tree():
        for task in Path(f"/proc/{process.pid}/task").glob("*"):
            with contextlib.suppress(OSError):
                total_ns += int((task / "schedstat").read_text().split()[0])
    return total_ns / 1e9


def spent(terminal: Terminal) -> Spent:
    """What a program has spent so far."""
    return Spent(time.monotonic(), scheduled_s(terminal), terminal.written())


def at_once(everyone: Sequence[Contestant], env: dict[str, str], settle_s: float, seconds: float) -> dict[str, float]:
    """CPU ratio of each program in one window, with all of them running in it: what else the machine does hits all."""
    ratios = {}
    with contextlib.ExitStack() as stack:
        terminals = []
        for one in everyone:
            urls = stack.enter_context(engines(one.endpoints))
            terminals.append(stack.enter_context(Terminal(command(one, urls), env, *SIZE)))
        length_s = settle_s + seconds + 1.0
        readers = [threading.Thread(target=terminal.run, args=(length_s,)) for terminal in terminals]
        for reader in readers:
            reader.start()
        time.sleep(settle_s)
        before = [spent(terminal) for terminal in terminals]
        time.sleep(seconds)
        after = [spent(terminal) for terminal in terminals]
        for one, begin, end in zip(everyone, before, after, strict=True):
            ratios[one.name] = (end.cpu_s - begin.cpu_s) / (end.at_s - begin.at_s)
        for reader in readers:
            reader.join()
    return ratios


def memory_bytes(one: Contestant, env: dict[str, str]) -> float:
    """PSS of a program that runs alone, once its start is over."""
    with engines(one.endpoints) as urls, Terminal(command(one, urls), env, *SIZE) as terminal:
        terminal.run(SETTLE_S)
        return terminal.pss_bytes()


def measure(settle_s: float, seconds: float, rounds: int, *, free_calls: bool) -> str:
    """All measurements, as Markdown."""
    with tempfile.TemporaryDirectory() as folder:
        driver = servers_driver(Path(folder), free_calls=free_calls)
        env = driver.env(TERM="xterm-256color", COLORTERM="truecolor", LANG="C.UTF-8", XDG_CONFIG_HOME=folder)
        everyone = programs(Path(folder), env)
        ratios = at_once(everyone, env, settle_s, seconds)
        memory = {one.name: memory_bytes(one, env) for one in everyone}
        starts: dict[str, list[tuple[float, float]]] = {one.name: [] for one in everyone}
        for _ in range(rounds):
            for one in everyone:
                starts[one.name].append(first_paint(one, env, SIZE))
    base = ratios[everyone[0].name]
    figures_s = {name: statistics.median(start[1] for start in starts[name]) for name in starts}
    base_s = figures_s[everyone[0].name]
    rows = []
    for one in everyone:
        paint_s = statistics.median(start[0] for start in starts[one.name])
        rows.append(
            (
                one.name,
                f"{ratios[one.name] * 100:.2f}%",
                f"{ratios[one.name] / base:.2f}",
                f"{memory[one.name] / 1e6:.0f} MB",
                f"{paint_s:.2f} s",
                f"{figures_s[one.name]:.2f} s",
                f"{figures_s[one.name] / base_s:.1f}",
            )
        )
    head = ("program", "CPU of a core", "of nvitop's", "PSS", "first paint", "GPU figures", "of nvitop's")
    return table(rows, head)


def main() -> None:
    """Print the table, and write it where asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settle", type=float, default=40.0, help="seconds from the start to the window")
    parser.add_argument("--seconds", type=float, default=40.0, help="length of the window")
    parser.add_argument("--rounds", type=int, default=5, help="starts of each program; medians are shown")
    parser.add_argument("--free-calls", action="store_true", help=FREE_CALLS)
    parser.add_argument("--markdown", type=Path, help="also write the table there")
    arguments = parser.parse_args()
    text = measure(arguments.settle, arguments.seconds, arguments.rounds, free_calls=arguments.free_calls)
    print(text)
    if arguments.markdown:
        arguments.markdown.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
