"""What a keystroke in the sizing panel costs: `python -m tests.perf.bench_sizing [WORKLOADS]`.

Typed into the middle one of the workloads, so that each keystroke changes the question; alone, and with its lines
painted as a panel of 60 x 56 cells. The budget is 16 ms with 20 workloads.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections.abc import Callable

import msgspec

from gpumon.config.keymap import Keymap
from gpumon.sizing.profile import Observed, Origin, Point
from gpumon.sizing.scenario import Catalogues, Scenario, Server, Workload
from gpumon.sizing.search import demand_at_own_tp, demand_of
from gpumon.sources.packaged import gpu_catalogue, llm_catalogue, network_catalogue
from gpumon.tui.sizing.calculation import Question
from gpumon.tui.sizing.layout import panel_page
from gpumon.tui.sizing.state import PanelState
from gpumon.tui.sizing.table import Scene

BUDGET_MS = 16.0
STOP = threading.Event()
"""Ends the thread that simulates."""
NO_KEY = threading.Event()
"""Set while no key is answered: the thread that simulates waits for it, as that of the panel does."""
GPU = "H100 SXM5 80GB"
KEYS = [*"5120", "backspace", *"7", "backspace", "backspace", *"36", *["backspace"] * 4] * 6
KNOWN = Catalogues(gpu_catalogue(), llm_catalogue(), prices={GPU: 2.5}, networks=network_catalogue())


def scenario(workloads: int) -> Scenario:
    """Models of the catalogue that one server holds; every second one measured, with as many points as are kept."""
    names = [
        row.hf_id for row in KNOWN.llms.rows if not row.unusable and row.spec.params < 100e9 and row.max_context > 2300
    ][:workloads]
    rows = tuple(_workload(name, at) for at, name in enumerate(names))
    return Scenario(server=(Server(GPU, 8),), itl_p95_ms=200.0, ttft_p95_ms=5000.0, workload=rows)


def _workload(model: str, at: int) -> Workload:
    points = tuple(Point(float(b), 0.012 + 0.0006 * b, ttft_s=0.2 + 0.001 * b) for b in range(1, 65))
    seen = Observed(
        origin=Origin.LIVE, name=f"vllm:{8000 + at}", model=model, points=points, gpu=GPU, gpus=1, tp=1,
        prompt_tokens=2000.0, answer_tokens=300.0, kv_pool_tokens=4e5, memory_bytes=70e9, busy_ratio=0.6,
    )  # fmt: skip
    return Workload(model, 256.0, prompt_tokens=2000.0, answer_tokens=300.0, seen=seen if at % 2 else None)


def key_times_ms(desk: PanelState, clock: Callable[[], float]) -> tuple[list[float], list[float]]:
    """Milliseconds of each keystroke until its answer, and until that is painted."""
    keymap = Keymap()
    answered = []
    painted = []
    for key in KEYS:
        began = clock()
        NO_KEY.clear()
        desk.type(key, key if len(key) == 1 else None)
        middle = clock()
        panel_page(
            Scene(
                state=desk,
                focused=True,
                ages={},
                picture="itl",
                picture_first=False,
                glyphs="braille",
                keymap=keymap,
                width=59,
                height=55,
            )
        )
        answered.append((middle - began) * 1e3)
        painted.append((clock() - began) * 1e3)
        NO_KEY.set()
    return answered, painted


def take_simulated(desk: PanelState) -> float:
    """Simulate what the answer waits for, as the panel does on a thread beside; returns its CPU seconds."""
    began = time.process_time()
    desk.calculation.simulate(desk.calculation.pending, lambda: True)
    taken = time.process_time() - began
    desk.calculation.take_simulated()
    desk.answer()
    return taken


def beside(desk: PanelState) -> threading.Thread:
    """A thread that simulates one question after the other."""
    other = PanelState(KNOWN, desk.present)

    def work() -> None:
        goal_ms = 100.0
        while not STOP.is_set():
            asked = msgspec.structs.replace(desk.present, tpot_p95_ms=goal_ms)
            other.calculation.simulate((Question(asked, KNOWN),), goes_on)
            goal_ms *= 0.9

    def goes_on() -> bool:
        NO_KEY.wait()
        return not STOP.is_set()

    return threading.Thread(target=work)


def print_times(words: str, times: tuple[list[float], list[float]]) -> None:
    """Print median and p95 of both."""
    for what, taken in zip(("answered", "answered and painted"), times, strict=True):
        slow = sorted(taken)[int(len(taken) * 0.95)]
        middle = statistics.median(taken)
        print(f"  {words:30} {what:20} {middle:6.1f} ms median {slow:6.1f} ms p95  (budget {BUDGET_MS:g} ms)")


def bench(workloads: int) -> None:
    """Print the time of a keystroke: before its p95 are simulated, with them, and while a thread simulates."""
    desk = PanelState(KNOWN, scenario(workloads))
    desk.move(workloads // 2)
    before = key_times_ms(desk, time.process_time)
    answer = desk.calculation.answer
    print(f"{workloads} workloads, {len(KEYS)} keystrokes; problem: {answer.problem if answer else ''!r}")
    searched_ms, single_ms = search_ms(desk.present)
    print(f"  layouts searched in {searched_ms:.2f} ms, {searched_ms / single_ms:.1f} times a single one")
    print_times("before requests are simulated", before)
    print(f"  simulated: {take_simulated(desk):.1f} CPU s")
    print_times("with what was simulated", key_times_ms(desk, time.process_time))
    thread = beside(desk)
    thread.start()
    print_times("beside a thread that simulates", key_times_ms(desk, time.perf_counter))
    STOP.set()
    thread.join()


def search_ms(asked: Scenario, times: int = 50) -> tuple[float, float]:
    """Milliseconds of the search over all layouts for the middle workload, and of a single layout."""
    workload = asked.workload[len(asked.workload) // 2]
    taken = []
    for needs in (demand_of, demand_at_own_tp):
        began = time.process_time()
        for _ in range(times):
            needs(workload, asked, KNOWN)
        taken.append((time.process_time() - began) / times * 1e3)
    return taken[0], taken[1]


if __name__ == "__main__":
    bench(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
