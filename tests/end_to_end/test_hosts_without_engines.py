"""The installed command on the fake driver, on hosts without an engine: the first screen has what there is.

Idle GPUs, a training run with a feed, a program on sixty-four GPUs, and one GPU whose memory is held.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpumon.tui.palette import HATCH
from tests.fakes.nvml.driver import FakeDriver
from tests.terminal import Terminal

GPUMON = str(Path(sys.executable).with_name("gpumon"))
SIZES = ((80, 24), (120, 40), (200, 60))
FIRST_SIZE = (100, 30)
ALONE = "[discovery]\nenabled = false\n"
TOKENS_PER_STEP = 33_000
STEP_S = 0.5
MANY_ROWS = 4
"""Rows from which a column must not be one word."""
MOST_BLANK = 3
"""Blank lines in a row, at most."""

IDLE = "gpus 8\nprofile h100-sxm\n"
WORKS = "gpu {gpu} busy {busy}\ngpu {gpu} sm {sm}\ngpu {gpu} tensor 31\ngpu {gpu} dram 42\ngpu {gpu} power_w 610\n"


def working(gpus: int, used_mib: int) -> str:
    """GPUs that a program keeps busy, each a little differently."""
    lines = f"gpus {gpus}\nprofile h100-sxm\n"
    for gpu in range(gpus):
        lines += WORKS.format(gpu=gpu, busy=90 + gpu % 9, sm=60 + gpu % 23)
        lines += f"gpu {gpu} process 1 {used_mib + 100 * gpu} compute 90\n"
    return lines


HELD = "gpus 1\nprofile h100-sxm\ngpu 0 process 1 74700 compute 0\n"


class Host:
    """A host of fake GPUs with the screen of gpumon in a terminal."""

    def __init__(self, folder: Path, script: str, config: str = ALONE) -> None:
        driver = FakeDriver(folder)
        driver.write(script)
        (folder / "config.toml").write_text(config, encoding="utf-8")
        self.steps = folder / "steps.jsonl"
        width, height = FIRST_SIZE
        self.terminal = Terminal(
            [GPUMON, "--config", str(folder / "config.toml")],
            driver.env(
                TERM="xterm-256color", LANG="C.UTF-8", XDG_CONFIG_HOME=str(folder), XDG_STATE_HOME=str(folder / "state")
            ),
            width,
            height,
            loaded=True,
        )

    def lines(self) -> list[str]:
        """The screen."""
        return [line.rstrip() for line in self.terminal.screen()]

    def wait(self, shows: Callable[[str], object], seconds: float = 60.0) -> list[str]:
        """Run until the screen shows it; the run trains on meanwhile."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            self.terminal.run(0.2)
            if self.steps.exists():
                self.train()
            if shows("\n".join(self.lines())):
                return self.lines()
        raise AssertionError("never shown:\n" + "\n".join(self.lines()))

    def train(self, steps: int = 1) -> None:
        """Write the steps up to now, each with its own time: the run is as fast as its clock says."""
        now = time.time()
        written = []
        for ago in range(steps - 1, -1, -1):
            at_s = now - ago * STEP_S
            written.append(json.dumps({"time": at_s, "tokens": round(at_s / STEP_S * TOKENS_PER_STEP)}))
        with self.steps.open("a", encoding="utf-8") as log:
            log.write("\n".join(written) + "\n")

    def resized(self, size: tuple[int, int], shows: Callable[[str], object]) -> list[str]:
        """The screen at another size."""
        width, height = size
        self.terminal.forget()
        self.terminal.resize(width, height)
        return self.wait(lambda text: shows(text) and " quit" in self.lines()[-1])


def panes_of(lines: list[str]) -> dict[str, list[str]]:
    """Name of each pane -> the lines below its rule."""
    panes: dict[str, list[str]] = {}
    for line in lines[2:-1]:
        rule = re.match(r"─\d─ (\w+)", line)
        if rule is not None:
            panes[rule[1]] = []
        elif panes:
            panes[list(panes)[-1]].append(line)
    return panes


def rule_of(lines: list[str], pane: str) -> str:
    return next(line for line in lines if re.match(rf"─\d─ {pane}", line))


def check_columns(rows: list[str]) -> None:
    """No column has only dashes, or one word, in as many rows as there are."""
    if len(rows) < MANY_ROWS:
        return
    cells = [row.split() for row in rows]
    assert len({len(row) for row in cells}) == 1, rows
    for column in zip(*cells, strict=True):
        assert set(column) != {"–"}, rows
        assert len(set(column)) > 1 or not re.fullmatch(r"[a-zA-Z ]+", column[0]), (column[0], rows)


def check_room(lines: list[str]) -> None:
    """No block of blank lines stands outside of the charts."""
    for name, below in panes_of(lines).items():
        if name != "history":
            assert "\n" * (MOST_BLANK + 1) not in "\n".join(below), name


def gpu_rows(lines: list[str]) -> list[str]:
    """The rows of the GPUs without their cursor, number and bars."""
    rows = []
    for line in panes_of(lines)["gpus"]:
        if re.match(r".\s*\d+ ", line):
            rows.append(re.sub(r"[▁▇▏▎▍▌▋▊▉█╱]+", " ", line[4:]))
    return rows


def heads(lines: list[str]) -> str:
    """The header of the GPUs."""
    return panes_of(lines)["gpus"][0]


def test_eight_idle_gpus(tmp_path: Path) -> None:
    host = Host(tmp_path, IDLE)
    with host.terminal:
        host.wait(lambda text: "all idle" in text and " 70W" in text)
        for size in SIZES:
            lines = host.resized(size, lambda text: "all idle" in text and text.count(" 70W ") >= 8)
            assert re.match(r" busy 0%  VRAM 0\.0/637 GiB  560W", lines[1])
            assert "─ no engine · all idle" in rule_of(lines, "gpus")
            assert not re.search(r"\bmfu\b|\bmbu\b|tok/J", heads(lines))
            assert "tensor" in heads(lines), "what there is takes the place"
            assert len(gpu_rows(lines)) == 8
            check_columns(gpu_rows(lines))
            check_room(lines)


def test_a_training_run_with_a_feed(tmp_path: Path) -> None:
    feed = (
        f'[[feed]]\nfile = "{tmp_path / "steps.jsonl"}"\nname = "pretrain"\nphase = "training"\nparams_b = 8.03\n'
        'gpus = [0, 1, 2, 3, 4, 5, 6, 7]\ntime = "time"\n[feed.quantities]\ntrained_tokens = "tokens"\n'
    )
    host = Host(tmp_path, working(8, 61_000), ALONE + feed)
    host.train(steps=60)
    with host.terminal:
        host.wait(lambda text: re.search(r"tok/s trained  MFU \d+%", text))
        for size in SIZES:
            lines = host.resized(size, lambda text: text.count(" 610W ") >= 8 and re.search(r"k trained +\d+%", text))
            assert re.match(r" 6\d\.\dk tok/s trained  MFU (39|4\d)%  4880W  1/1 runs up", lines[1])
            assert "– tok/s" not in lines[1]
            (run,) = [line for line in panes_of(lines)["engines"] if "pretrain" in line]
            assert re.search(r" 6\d\.\dk trained +(39|4\d)%", run)
            assert run.count("–") <= 2, "MBU is for inference, and the feed names no version"
            assert "mbu" not in heads(lines)
            check_columns(gpu_rows(lines))
            check_room(lines)


def test_sixty_four_gpus_of_a_program(tmp_path: Path) -> None:
    host = Host(tmp_path, working(64, 50_000))
    with host.terminal:
        host.wait(lambda text: "gpus · SM active" in text and re.search(r"\b6\d%", text))
        for size in SIZES:
            lines = host.resized(size, lambda text: text.count("%") > 64)
            assert re.match(r" busy 9\d%  sm 7\d%  tensor 31%  mem bw 42%  VRAM ", lines[1])
            wall = "\n".join(panes_of(lines)["gpus"])
            assert HATCH not in wall
            assert len(re.findall(r"\b[678]\d%", wall)) == 64
            check_room(lines)


def test_one_gpu_whose_memory_is_held(tmp_path: Path) -> None:
    host = Host(tmp_path, HELD)
    with host.terminal:
        host.wait(lambda text: "+ VRAM held" in text)
        for size in SIZES:
            lines = host.resized(size, lambda text: "+ VRAM held" in text)
            assert re.match(r" busy 0%  VRAM 7\d\.\d/79\.6 GiB  70W", lines[1])
            assert "no engine" in rule_of(lines, "gpus")
            assert not re.search(r"\bmfu\b|\bmbu\b", heads(lines))
            (row,) = [line for line in panes_of(lines)["gpus"] if "VRAM held" in line]
            assert re.search(r"▇{4,}", row), "the bar of its memory"
            check_room(lines)


@pytest.mark.parametrize("theme", ["mono", "ansi", "light"])
def test_every_theme_shows_the_bars(tmp_path: Path, theme: str) -> None:
    host = Host(tmp_path, working(4, 61_000), f'{ALONE}[general]\ntheme = "{theme}"\n')
    with host.terminal:
        lines = host.wait(lambda text: len(re.findall(r" 6\d% ", text)) >= 4 and text.count(" 610W") >= 4)
        for row in panes_of(lines)["gpus"][1:]:
            assert re.match(r".\s*\d+ \S{8,} +9\d%  6\d% ▇{3,}", row), row
