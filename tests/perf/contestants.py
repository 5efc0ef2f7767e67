"""The programs under measurement: gpumon, and the monitors that people use instead, as far as they are here."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Final, NamedTuple

BIN = Path(sys.executable).parent
RIVALS = BIN.parent / "rivals" / "bin"
"""Where `make rivals` puts nvtop, btop and the monitors of vLLM."""
ENDPOINTS = 4
OUR_FIGURES = r"\n[ ▸] +7 .*\d+W"

BARE = """
from textual.app import App
from textual.widget import Widget
class Line(Widget):
    def render(self): return "quit"
class Bare(App):
    def compose(self): yield Line()
Bare().run()
"""

BTOP = """shown_boxes = "{boxes}"
update_ms = 1000
check_temp = False
show_cpu_freq = False
show_gpu_info = "Off"
"""
"""btop stacks one box of 11 lines a GPU: those that fit are shown; it reads all GPUs all the same."""


class Contestant(NamedTuple):
    """A program under measurement; patterns on the screen tell its first full paint, and its first figures of a GPU."""

    name: str
    command: list[str]
    paint: str
    figures: str
    endpoints: int = 0
    option: str = "--endpoint"
    """What comes before the address of an engine on its command line."""


def contestants(height: int, folder: Path, nvitop_mode: str = "full") -> list[Contestant]:
    """Everyone that is here, for a screen of `height` lines; `folder` takes their settings.

    nvitop draws the same rows at every size in its mode `full`, which makes costs comparable; `auto` is its default.
    """
    ours = [str(BIN / "gpumon"), "--interval", "1"]
    nvitop = [str(BIN / "nvitop"), "--monitor", nvitop_mode, "--interval", "1"]
    return [
        Contestant("Textual, one widget", [sys.executable, "-c", BARE], "quit", "quit"),
        Contestant("nvitop", nvitop, "AVG GPU", r"7  H100[^\0]*?\d+W /"),
        *_others(height, folder),
        Contestant("gpumon, GPUs only", ours, "gpumon.*[^\0]*quit", OUR_FIGURES),
        Contestant(f"gpumon, {ENDPOINTS} endpoints", ours, "gpumon.*[^\0]*quit", OUR_FIGURES, ENDPOINTS),
    ]


def _others(height: int, folder: Path) -> list[Contestant]:
    everyone = [Contestant("gpustat", [str(BIN / "gpustat"), "-i", "1"], r"\[7\]", r"\[7\]")]
    if nvtop := _found("nvtop"):
        everyone.append(Contestant("nvtop", [nvtop, "-d", "10"], "F2Setup", r"Device 7.*[^\0]*?\d+ W"))
    if btop := _found("btop"):
        boxes = " ".join(f"gpu{number}" for number in range(max(1, min(6, height // 11))))
        (folder / "btop").mkdir(exist_ok=True)
        (folder / "btop" / "btop.conf").write_text(BTOP.format(boxes=boxes), encoding="utf-8")
        everyone.append(Contestant("btop", [btop, "--utf-force"], "gpu0", r"gpu0[^\0]*\d+W"))
    return everyone


def engine_monitors(folder: Path) -> list[Contestant]:
    """Monitors of vLLM that are here, each with one engine; `folder` takes what they write."""
    database = str(folder / "vllm-mon.db")
    known = [
        Contestant("vllmstat", ["vllmstat", "-i", "1"], "CONCURRENCY", r"GPU 7 .*\d+/", 1, "-u"),
        Contestant("vllmpytop", ["vllmpytop"], "throughput", r"util .*%", 1, "--url"),
        Contestant("vllm-mon", ["vllm-dash", "--db", database], "Running Requests", "Running Requests", 1, "--url"),
    ]
    here = []
    for monitor in known:
        path = _found(monitor.command[0])
        if path:
            here.append(monitor._replace(command=[path, *monitor.command[1:]]))
    return here


ENGINE_MONITORS: Final = ("vllmstat", "vllmpytop", "vllm-dash")


def missing(*further: str) -> list[str]:
    """Those of nvtop, btop and `further` rivals that are not here."""
    return [name for name in ("nvtop", "btop", *further) if not _found(name)]


def _found(name: str) -> str:
    fetched = RIVALS / name
    return str(fetched) if fetched.exists() else shutil.which(name) or ""
