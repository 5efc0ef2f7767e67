"""What a keystroke in the sizing panel costs: `python -m tests.perf.bench_sizing [WORKLOADS]`.

Typed into the middle one of the workloads, so that each keystroke changes the question; alone, and with its lines
painted as a panel of 60 x 56 cells. The budget is 16 ms with 20 workloads.
"""

from __future__ import annotations

import statistics
import sys
import time

from gpumon.config.keymap import Keymap
from gpumon.sizing.profile import Observed, Origin, Point
from gpumon.sizing.scenario import Catalogues, Scenario, Server, Workload
from gpumon.sources.packaged import gpu_catalogue, llm_catalogue
from gpumon.tui.sizing.layout import panel_page
from gpumon.tui.sizing.state import PanelState
from gpumon.tui.sizing.table import Scene

BUDGET_MS = 16.0
GPU = "H100 SXM5 80GB"
KEYS = [*"5120", "backspace", *"7", "backspace", "backspace", *"36", *["backspace"] * 4] * 6
KNOWN = Catalogues(gpu_catalogue(), llm_catalogue(), prices={GPU: 2.5})


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


def bench(workloads: int) -> None:
    """Print the time of a keystroke, with and without painting."""
    desk, keymap = PanelState(KNOWN, scenario(workloads)), Keymap()
    desk.move(workloads // 2)
    answered, painted = [], []
    for key in KEYS:
        began = time.process_time()
        desk.type(key, key if len(key) == 1 else None)
        middle = time.process_time()
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
        painted.append((time.process_time() - began) * 1e3)
    answer = desk.calculation.answer
    print(f"{workloads} workloads, {len(KEYS)} keystrokes; problem: {answer.problem if answer else ''!r}")
    for words, taken in (("answered", answered), ("answered and painted", painted)):
        slow = sorted(taken)[int(len(taken) * 0.95)]
        print(f"  {words:22} {statistics.median(taken):6.1f} ms median {slow:6.1f} ms p95  (budget {BUDGET_MS:g} ms)")


if __name__ == "__main__":
    bench(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
