"""Files that a counter, a digit, a key, a GPU sample and a verdict pass, found by a trace of the running program.

    python -m tests.architecture.walk            (or --write: into docs/architecture.md, between its marks)

A file is on the way of a thing if one of its functions returns it, or a figure that is made of it, or a record with one
of them. It changes it if that value or that record was not there before; else it passes it on. The key is followed by
calls instead. `traced_screen` and `traced_worker` beside this file run the program.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tests.architecture.tracing import PROGRAM, Way
from tests.fakes.nvml.driver import FakeDriver

ROOT: Final = PROGRAM.parent
DOC: Final = ROOT / "docs" / "architecture.md"
MARKS: Final = ("<!-- walks: python -m tests.architecture.walk --write -->\n", "<!-- end of walks -->\n")
PATIENCE_S: Final = 300.0
GPU: Final = "gpus 1\nprofile h100-sxm\ngpu 0 busy 91\ngpu 0 dram 66\ngpu 0 tensor 22\ngpu 0 sm_clock_mhz 1905\n"
CLOCK_HZ: Final = 1.873e9
"""Found nowhere else by chance."""
TERMINAL: Final = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "LANG": "C.UTF-8", "TZ": "UTC"}


class Walk(NamedTuple):
    """A thing that is followed."""

    name: str
    heading: str
    besides: str
    """Where it goes as well."""


WALKS: Final = (
    Walk(
        "counter",
        "A counter: from `vllm:generation_tokens_total` to the MBU cell",
        "Charts, totals, the GPUs' rows, triage and sizing take it from the snapshot.",
    ),
    Walk(
        "sample",
        "A GPU sample: from the driver's clock to the cell",
        "Charts, totals, engines and triage take it from the snapshot.",
    ),
    Walk(
        "verdict",
        "A verdict: `queue limit`, from KV cache use to the sentence in the triage pane",
        "The headline, the marks of rows and the charts take it from the snapshot.",
    ),
    Walk("key", "A key: `[`, from its byte to the past", "What is painted meanwhile is left out."),
    Walk(
        "digit",
        "A digit: from the edited field to the answer of the sizing panel",
        "The files that make an answer's parts without this number are left out.",
    ),
)


def traced() -> Mapping[str, Way]:
    """The ways, by the names of their walks."""
    with tempfile.TemporaryDirectory(prefix="walk-") as folder:
        driver = FakeDriver(Path(folder))
        driver.write(GPU)
        out = Path(folder) / "ways.json"
        _run(driver, folder, "traced_screen", str(out), str(CLOCK_HZ))
        screen = json.loads(out.read_text())
        driver.write(f"{GPU}gpu 0 sm_clock_mhz {CLOCK_HZ / 1e6:.0f}\n")
        worker = Way(*json.loads(_run(driver, folder, "traced_worker", str(CLOCK_HZ))))
    ways = {name: Way(*way) for name, way in screen.items()}
    monitor = ways["sample"]
    changed = dict.fromkeys((*worker.changed_by, *monitor.changed_by))
    passed = dict.fromkeys((*worker.passed_on_by, *monitor.passed_on_by))
    ways["sample"] = Way(list(changed), [file for file in passed if file not in changed])
    return ways


def _run(driver: FakeDriver, folder: str, module: str, *arguments: str) -> str:
    """What a traced program prints. Raises CalledProcessError."""
    home = {"XDG_STATE_HOME": folder, "XDG_CONFIG_HOME": folder, "HOME": folder}
    command = [sys.executable, "-m", f"tests.architecture.{module}", *arguments]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=driver.env(**TERMINAL, **home),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        raise AssertionError(f"{module} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def page(ways: Mapping[str, Way]) -> str:
    """Markdown: a table for each walk."""
    return "\n".join(_section(walk, ways[walk.name]) for walk in WALKS)


def _section(walk: Walk, way: Way) -> str:
    lines = [f"### {walk.heading}", "", "| file | what it does |", "|---|---|"]
    lines += [f"| `{file}` | {purpose(file)} |" for file in way.changed_by]
    lines += ["", walk.besides]
    if way.passed_on_by:
        names = ", ".join(f"`{file}`" for file in sorted(way.passed_on_by))
        lines.append(f"Passed on unchanged by {names}.")
    return "\n".join([*lines, ""])


def purpose(file: str) -> str:
    """First sentence of a module's docstring."""
    text = ast.get_docstring(ast.parse((PROGRAM / file).read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    return paragraph.split(". ")[0].removesuffix(".").replace("|", "\\|")


def documented(text: str) -> dict[str, Way]:
    """The ways as the document has them, by the names of their walks."""
    body = text.partition(MARKS[0])[2].partition(MARKS[1])[0]
    sections = body.split("### ")[1:]
    ways = {}
    for walk, section in zip(WALKS, sections, strict=True):
        table, _, passed = section.partition("Passed on unchanged by")
        rows = re.findall(r"^\| `(.+?)` \|", table, re.MULTILINE)
        ways[walk.name] = Way(rows, re.findall(r"`(.+?)`", passed))
    return ways


def written(text: str) -> str:
    """The document with the walks as they are now."""
    before, _, rest = text.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    return f"{before}{MARKS[0]}\n{page(traced())}\n{MARKS[1]}{after}"


if __name__ == "__main__":
    if "--write" in sys.argv:
        DOC.write_text(written(DOC.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(page(traced()), end="")
