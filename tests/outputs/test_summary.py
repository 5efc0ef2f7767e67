"""What `snapshot` says first, and which window it names for what came too soon."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpumon.outputs.report import report
from gpumon.outputs.summary import MOST_VERDICTS, too_soon
from gpumon.readings.missing import WARMING_UP, Missing, Reason
from gpumon.readings.snapshot import Engine, Level, Quantiles, Verdict
from gpumon.readings.verdict import Action, Confidence, Limit
from gpumon.triage.render import ACTIONS
from tests.fakes.engine import FakeEngine
from tests.outputs import shots
from tests.records import replace

IDLE = Quantiles(p95=Missing(Reason.IDLE))


def verdict(scope: str, level: Level, text: str = "it waits") -> Verdict:
    return Verdict(scope, Limit.QUEUE_LIMIT, text, "2026-01-02T14:03:22Z", confidence=Confidence.HIGH, level=level)


def head(text: str) -> list[str]:
    """The lines of the summary."""
    lines = text.splitlines()
    begin = lines.index("summary")
    return lines[begin : lines.index("", begin)]


def test_the_summary_stands_first_with_counts_and_the_worst_verdicts() -> None:
    verdicts = [
        verdict("vllm:1", Level.OK),
        replace(verdict("vllm:2", Level.WARN), actions=(Action("wait_for_prefill"),)),
        verdict("gpu 3", Level.CRITICAL, "\x1b[2Jhot"),
    ]
    text = report(shots.snapshot(verdicts=tuple(verdicts)))
    assert text.splitlines()[2] == "summary"
    assert head(text) == [
        "summary",
        "  gpus       1: 1 ok",
        "  engines    1: 1 ok",
        "  verdicts   3: 1 critical, 1 warn, 1 ok",
        "  critical   gpu 3: queue limit: \\x1b[2Jhot",
        "  warn       vllm:2: queue limit: it waits",
        "               -> " + ACTIONS["wait_for_prefill"],
    ]


def test_of_many_verdicts_the_worst_stand_in_the_summary() -> None:
    many = [verdict(f"vllm:{port}", Level.WARN) for port in range(9)] + [verdict("gpu 0", Level.CRITICAL)]
    lines = head(report(shots.snapshot(verdicts=tuple(many))))
    assert len(lines) == 4 + MOST_VERDICTS + 1
    assert lines[4].startswith("  critical   gpu 0")
    assert lines[-1] == "  and 5 more of these: see `verdict` below"


@pytest.mark.parametrize(
    ("window_s", "cadence_s", "window"),
    [(2.0, 2.0, 12), (2.0, 15.0, 32), (12.0, 2.0, 24), (60.0, 30.0, 62)],
)
def test_the_window_that_would_give_a_rate(window_s: float, cadence_s: float, window: int) -> None:
    cold = shots.engine(mfu_ratio=WARMING_UP, mbu_ratio=WARMING_UP)
    said = too_soon(shots.snapshot(engines=(cold,)), window_s, cadence_s)
    assert said == f"not there yet after {window_s:g} s: MFU, MBU of vllm:8000 (--window {window} gives them)"


def test_a_longer_window_sees_more_requests_of_an_engine_that_serves() -> None:
    def named(name: str, **figures: object) -> Engine:
        return shots.engine(name=name, ttft_s=IDLE, **figures)

    serving = tuple(named(f"e{number}", running=3.0) for number in range(4))
    resting = named("rests", running=0.0)
    said = too_soon(shots.snapshot(engines=(*serving, resting)), 2.0, 2.0)
    assert said == "not there yet after 2 s: TTFT of e0, e1 and 2 more (--window 62 sees more requests)"
    assert too_soon(shots.snapshot(engines=(resting,)), 2.0, 2.0) == ""
    assert too_soon(shots.snapshot(engines=serving), 0.0, 2.0) == "", "one reading was asked for"


def test_the_command_names_the_window_on_stderr_and_not_in_the_json(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[general]\nengine_interval_s = 5\n")
    env = {name: value for name, value in os.environ.items() if not name.startswith(("GPUMON_", "XDG_"))}
    with FakeEngine("vllm-basic", start_s=60.0) as engine:
        command = [sys.executable, "-m", "gpumon", "snapshot", "--no-nvml", "--no-discovery", "--window", "0.5"]
        command += ["--config", str(config), "--endpoint", engine.url]
        text = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60.0, check=True)
        json = subprocess.run([*command, "--json"], env=env, capture_output=True, text=True, timeout=60.0, check=True)
    (hint,) = text.stderr.splitlines()
    assert hint.startswith("gpumon: not there yet after 0.5 s: prefill rate, decode rate")
    assert f"of vllm:{engine.url.rpartition(':')[2]} (--window 12 gives them)" in hint
    assert head(text.stdout)[2] == "  engines    1: 1 ok"
    assert json.stderr == ""


def test_without_verdicts_the_summary_is_no_all_clear() -> None:
    assert head(report(shots.snapshot(verdicts=())))[-1].startswith("  verdicts   none yet")
