"""gpumon beside nvitop on this host's own driver: CPU of all at once, memory, and the time to the first figures.

python -m tests.gpu.cost        # a minute and a half; needs a GPU, and nvitop
"""

from __future__ import annotations

import os
import re
import sys
from typing import Final

from tests.perf.bench import SETTLE_S, command, engines, table
from tests.perf.bench_floor import SIZE, at_once
from tests.perf.contestants import ENDPOINTS, Contestant
from tests.terminal import Terminal

NVITOP: Final = [sys.executable, "-m", "nvitop", "--monitor", "full", "--interval", "1"]
GPUMON: Final = [sys.executable, "-m", "gpumon", "--interval", "1"]
WATTS: Final = r"\d+W"
PROGRAMS: Final = (
    Contestant("nvitop", NVITOP, "quit", WATTS),
    Contestant("gpumon, GPUs only", GPUMON, "quit", WATTS),
    Contestant(f"gpumon, {ENDPOINTS} endpoints", GPUMON, "quit", WATTS, ENDPOINTS),
)


def alone(one: Contestant, env: dict[str, str]) -> tuple[float, float]:
    """Seconds to the first figures, and PSS in bytes, of a program that runs alone."""
    with engines(one.endpoints) as urls, Terminal(command(one, urls), env, *SIZE) as terminal:
        terminal.run(SETTLE_S)
        figures_s = terminal.first(lambda screen: re.search(one.figures, screen) is not None)
        assert figures_s is not None, f"{one.name} shows no power:\n" + "\n".join(terminal.screen())
        return figures_s, terminal.pss_bytes()


def main() -> None:
    """Print the table."""
    env = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8"}
    ratios = at_once(PROGRAMS, env, 20.0, 30.0)
    rows = []
    for one in PROGRAMS:
        figures_s, pss_bytes = alone(one, env)
        rows.append(
            (
                one.name,
                f"{ratios[one.name] * 100:.2f}%",
                f"{ratios[one.name] / ratios['nvitop']:.2f}",
                f"{pss_bytes / 1e6:.0f} MB",
                f"{figures_s:.2f} s",
            )
        )
    print(table(rows, ("program", "CPU of a core", "of nvitop's", "PSS", "GPU figures")))


if __name__ == "__main__":
    main()
