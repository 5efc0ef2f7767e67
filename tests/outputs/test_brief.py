"""What `snapshot` and `status` print: one screen, one line."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import msgspec

from gpumon.outputs.brief import brief, name_together, window_advice
from gpumon.outputs.json import encode
from gpumon.outputs.status_line import StatusSnapshot, is_critical, status_line, status_of
from gpumon.readings.frame import Departure, EndpointState, GpuState
from gpumon.readings.missing import WARMING_UP, Missing, Reason
from gpumon.readings.snapshot import Engine, FaultShown, Level, Quantiles, Snapshot, Verdict
from gpumon.readings.verdict import Action, Confidence, Limit
from gpumon.triage.render import ACTION_WORDS
from tests.each_row import each_row
from tests.fakes.engine import FakeEngine
from tests.outputs import shots
from tests.program import run_gpumon, user_environment
from tests.records import replace

IDLE = Quantiles(p95=Missing(Reason.IDLE))
SINCE = "2026-01-02T14:03:22Z"


def verdict(scope: str, level: Level, text: str = "it waits") -> Verdict:
    return Verdict(scope, Limit.QUEUE_LIMIT, text, SINCE, confidence=Confidence.HIGH, level=level)


def shot(snapshot: Snapshot) -> StatusSnapshot:
    return msgspec.json.decode(encode(snapshot), type=StatusSnapshot)


def below(text: str) -> list[str]:
    """What stands below the tables."""
    return text.rpartition("\n\n")[2].splitlines()


def test_a_line_for_each_gpu_and_engine() -> None:
    text = brief(shots.snapshot(), 160)
    (gpu,) = (line for line in text.splitlines() if "H100 80GB HBM3" in line)
    assert " ".join(gpu.split()) == "0 H100 80GB HBM3 91% 64% 71.2/79.6 2.31TB/s 31% 62% 612W/700W 64 vllm:8000"
    assert sum(line.startswith("vllm:8000") for line in text.splitlines()) == 1


def test_the_rates_of_a_column_have_one_form() -> None:
    rates = (9.2, 10.0, 41.0, 410.0, 37_700.0)
    engines = tuple(
        shots.engine(name=f"vllm:{port}", decode_tokens_per_s=rate) for port, rate in enumerate(rates, start=8000)
    )
    lines = brief(shots.snapshot(engines=engines), 160).splitlines()
    (head,) = (line for line in lines if "decode tok/s" in line)
    end = head.index("decode tok/s") + len("decode tok/s")
    shown = [line[:end].split()[-1] for line in lines if line.startswith("vllm:")]
    assert shown == ["9.2", "10.0", "41.0", "410", "37.7k"]


@each_row("width", [60, 80, 120])
def test_it_fits_the_terminal_and_keeps_what_matters(width: int) -> None:
    many = tuple(shots.gpu(index) for index in range(8))
    text = brief(shots.snapshot(gpus=many, verdicts=(verdict("vllm:2", Level.WARN, "word " * 40),)), width)
    assert max(map(len, text.splitlines())) <= width
    assert len(text.splitlines()) <= 24
    assert "mfu" in text
    assert "mbu" in text


def test_the_worst_verdict_comes_first_with_what_to_do_and_equal_ones_are_one() -> None:
    verdicts = (
        verdict("vllm:1", Level.OK),
        replace(verdict("vllm:2", Level.WARN), actions=(Action("wait_for_prefill"),)),
        *(verdict(f"gpu {index}", Level.CRITICAL, "\x1b[2Jhot") for index in range(3)),
    )
    found = below(brief(shots.snapshot(verdicts=verdicts, faults=()), 160))
    assert found[0] == "✗  critical  GPUs 0-2: queue limit: \\x1b[2Jhot"
    assert found[1] == "!  warning  vllm:2: queue limit: it waits"
    assert found[2] == "     -> " + ACTION_WORDS["wait_for_prefill"]
    assert found.pop() == "not judged yet: vllm:8000 (that needs 30 s of data: --window 35)"
    assert len(found) == 3


def test_equal_faults_are_grouped() -> None:
    faults = tuple(FaultShown(f"gpu {index}", "no access", SINCE) for index in range(8))
    assert below(brief(shots.snapshot(verdicts=(), faults=faults), 160)) == [
        "!  fault  GPUs 0-7: no access",
        "not judged yet: vllm:8000 (that needs 30 s of data: --window 35)",
    ]
    assert name_together(["a", "b", "c", "d", "a"]) == "a, b, c and 1 more"


def test_a_fault_that_a_verdict_tells_is_told_once() -> None:
    lost = Verdict("gpu 2", Limit.HARDWARE_FAULT, "lost", SINCE, level=Level.CRITICAL)
    faults = tuple(FaultShown(f"gpu {index}", "fallen off the bus", SINCE, code="lost") for index in (2, 3))
    found = below(brief(shots.snapshot(verdicts=(lost,), faults=faults), 160))
    assert [line[:30] for line in found if "fault  " in line] == ["!  fault  gpu 3: fallen off th"]


def test_without_verdicts_it_is_no_all_clear() -> None:
    assert "no verdicts yet" in brief(shots.snapshot(verdicts=(), faults=()), 160)


@each_row(
    ("window_s", "cadence_s", "window"),
    [(2.0, 2.0, 12), (2.0, 15.0, 32), (12.0, 2.0, 24), (60.0, 30.0, 62)],
)
def test_the_window_that_would_give_a_rate(window_s: float, cadence_s: float, window: int) -> None:
    cold = shots.engine(mfu_ratio=WARMING_UP, mbu_ratio=WARMING_UP)
    said = window_advice(shots.snapshot(engines=(cold,)), window_s, cadence_s)
    assert said == f"not known after {window_s:g} s: rates of vllm:8000 (--window {window})"


def test_a_longer_window_sees_more_requests_of_an_engine_that_serves() -> None:
    def named(name: str, **figures: object) -> Engine:
        return shots.engine(name=name, ttft_s=IDLE, **figures)

    serving = tuple(named(f"e{number}", running=3.0) for number in range(4))
    resting = named("rests", running=0.0)
    said = window_advice(shots.snapshot(engines=(*serving, resting)), 2.0, 2.0)
    assert said == "not known after 2 s: latencies of e0, e1, e2 and 1 more (--window 62)"
    assert window_advice(shots.snapshot(engines=(resting,)), 2.0, 2.0) == ""
    assert window_advice(shots.snapshot(engines=serving), 0.0, 2.0) == "", "one reading was asked for"


def test_the_line_has_the_sums_and_the_worst_verdict() -> None:
    gpus = (
        shots.gpu(),
        shots.gpu(1, busy_ratio=0.5),
        shots.gpu(2, state=GpuState.LOST, busy_ratio=Missing(Reason.LOST)),
    )
    bad = (verdict("vllm:8000", Level.CRITICAL), verdict("x", Level.CRITICAL), verdict("y", Level.WARN))
    said = shot(shots.snapshot(gpus=gpus, verdicts=bad))
    line = status_line(said)
    assert (
        line.partition(" tok/s ")[2] == "MFU 31% MBU 62% 3 GPUs 70% busy 1 lost x 1 critical: vllm:8000, x queue limit"
    )
    assert is_critical(said)


def test_names_of_others_are_no_styles_of_tmux() -> None:
    """What a job prints into a status bar is read for `#[style]` and `#{format}`."""
    bad = (verdict("#[fg=red]#{host} #(id)", Level.CRITICAL),)
    line = status_line(shot(shots.snapshot(verdicts=bad)))
    assert "x 1 critical: ?[fg=red]?{host} ?(id) queue limit" in line


def test_names_of_others_are_no_buttons_of_a_bar() -> None:
    """polybar and lemonbar, dzen, and xmobar run the command of such a name at a click."""
    name = "%{A1:id:}a%{A} ^ca(1, id)a^ca() <action=`id`>a</action> %(!.id.) %n"
    line = status_line(shot(shots.snapshot(verdicts=(verdict(name, Level.CRITICAL),))))
    assert not re.search(r"%[{(A-Za-z]|[\^`]|<[A-Za-z/]", line), line
    assert "?{A1:id:}a?{A} ?ca(1, id)a?ca()" in line
    fine = verdict("7% of it, <1%", Level.CRITICAL)
    assert "x 1 critical: 7% of it, <1% queue limit" in status_line(shot(shots.snapshot(verdicts=(fine,))))


def test_the_status_as_json_is_what_its_page_says() -> None:
    bad = (
        replace(verdict("vllm:8000", Level.CRITICAL), actions=(Action("wait_for_prefill"),)),
        verdict("y", Level.WARN),
        verdict("z", Level.OK),
    )
    gpus = (shots.gpu(), shots.gpu(1, state=GpuState.LOST, busy_ratio=Missing(Reason.LOST)))
    status = msgspec.to_builtins(status_of(shot(shots.snapshot(gpus=gpus, verdicts=bad)), "reading"))
    page = (Path(__file__).parents[2] / "docs" / "json.md").read_text().partition("## `gpumon status --json`")[2]
    rows = [line.split("|")[1] for line in page.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    documented = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert documented == list(status)
    assert (status["schema"], status["level"], status["exit_code"]) == (1, "critical", 1)
    assert (status["gpus"], status["gpus_not_ok"], status["critical"], status["warnings"]) == (2, 1, 1, 1)
    worst = status["worst"]
    assert (worst["scope"], worst["code"], worst["level"], worst["name"]) == (
        "vllm:8000", "queue_limit", "critical", "queue limit"
    )  # fmt: skip
    assert worst["action"] == ACTION_WORDS["wait_for_prefill"]
    assert status["line"] == status_line(shot(shots.snapshot(gpus=gpus, verdicts=bad)))


def test_without_a_verdict_the_status_is_unknown_and_a_healthy_one_is_ok() -> None:
    assert status_of(shot(shots.snapshot(verdicts=())), "reading").level == "unknown"
    assert status_line(shot(shots.snapshot(verdicts=()))).endswith(" not judged yet")
    healthy = status_of(shot(shots.snapshot(verdicts=(verdict("x", Level.OK),))), "reading")
    assert (healthy.level, healthy.worst, healthy.exit_code) == ("ok", None, 0)
    crashed = shots.engine(state=EndpointState.DOWN)
    assert status_of(shot(shots.snapshot(engines=(crashed,), verdicts=())), "reading").level == "critical"


def test_the_line_says_which_figures_of_a_serving_engine_are_not_known() -> None:
    unknown = dict.fromkeys(("mfu_ratio", "mbu_ratio", "decode_tokens_per_s"), WARMING_UP)
    said = shot(shots.snapshot(gpus=(), engines=(shots.engine(**unknown),), verdicts=()))
    assert status_line(said) == "? tok/s MFU ? MBU ? not judged yet"
    of_gpu = shot(shots.snapshot(verdicts=(verdict("gpu 3", Level.NOTE),)))
    assert status_line(of_gpu).endswith(" not judged yet"), "a verdict on a GPU says nothing of an engine"


def test_an_engine_of_this_host_that_gives_no_answer_is_critical_for_the_one_who_asked_it() -> None:
    said = shot(shots.snapshot(engines=(shots.engine(state=EndpointState.TIMEOUT),), verdicts=()))
    assert not is_critical(said), "served by another: it may be late for once"
    said.is_own = True
    assert is_critical(said)
    said.engines[0].gpus = []
    assert not is_critical(said), "it is elsewhere, if anywhere"


def test_the_line_leaves_out_what_is_not_known() -> None:
    unknown = dict.fromkeys(("mfu_ratio", "mbu_ratio", "decode_tokens_per_s"), WARMING_UP)
    down = shots.engine(state=EndpointState.REFUSED, **unknown)
    said = shot(shots.snapshot(gpus=(), engines=(down,), verdicts=(verdict("\x1b[2Jé", Level.WARN),)))
    assert status_line(said) == "1 engine down ! 1 warning: \\x1b[2J? queue limit"
    assert not is_critical(said)


def test_an_engine_that_ended_unasked_is_critical_and_one_that_somebody_stopped_is_not() -> None:
    crashed = shots.engine(state=EndpointState.DOWN)
    stopped = msgspec.structs.replace(crashed, departure=(Departure(1.0, pid=4711, planned=True),))
    assert is_critical(shot(shots.snapshot(gpus=(), engines=(crashed,), verdicts=())))
    assert not is_critical(shot(shots.snapshot(gpus=(), engines=(stopped,), verdicts=())))


def run(*words: str, home: Path) -> subprocess.CompletedProcess[str]:
    return run_gpumon(*words, env=user_environment(home))


def test_the_command_names_the_window_on_stderr_and_not_in_the_json(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[general]\nengine_interval_s = 5\n")
    with FakeEngine("vllm-basic", start_s=60.0) as engine:
        words = ["snapshot", "--no-nvml", "--no-discovery", "--window", "0.5"]
        words += ["--config", str(config), "--endpoint", engine.url]
        text = run(*words, home=tmp_path)
        json = run(*words, "--json", home=tmp_path)
        line = run("status", *words[1:3], *words[5:], home=tmp_path)
    (hint,) = text.stderr.splitlines()
    name = f"vllm:{engine.url.rpartition(':')[2]}"
    assert hint == f"gpumon: not known after 0.5 s: rates of {name} (--window 12)"
    assert name in text.stdout
    assert json.stderr == ""
    assert line.returncode == 0
    assert "down" not in line.stdout


def test_with_nothing_to_monitor_the_demo_is_named(tmp_path: Path) -> None:
    for command in ("snapshot", "status"):
        ended = run(command, "--no-nvml", "--no-discovery", home=tmp_path)
        assert ended.returncode == 3
        assert "gpumon demo" in ended.stderr
