"""The doctor's report: what is checked reads well, and no text from outside acts."""

from __future__ import annotations

from gpumon.outputs.doctor import any_failed, report
from gpumon.readings.check import Check, CheckState
from tests.outputs.shots import HOSTILE

CHECKS = [
    Check("driver", "library", CheckState.OK, "/usr/lib/libnvidia-ml.so.1"),
    Check("driver", "profiling counters", CheckState.WARN, "for administrators only", "set the module option"),
    Check("engine", "vllm:8000", CheckState.FAIL, "nothing listens on 127.0.0.1:8000"),
    Check("engine", "[red]name[/red]", CheckState.OFF, "[bold]text[/bold] :smile:"),
]


def test_what_is_fine_by_area_then_what_is_to_mend_the_worst_first_with_fix_and_sum() -> None:
    assert report(CHECKS, colour=False, width=100).splitlines() == [
        "driver",
        "    ok  library  /usr/lib/libnvidia-ml.so.1",
        "engine",
        "   off  [red]name[/red]  [bold]text[/bold] :smile:",
        "to fix",
        "  fail  engine vllm:8000           nothing listens on 127.0.0.1:8000",
        "  warn  driver profiling counters  for administrators only",
        "                                   fix: set the module option",
        "1 ok, 1 with gaps, 1 failed, 1 off",
    ]


def test_where_a_fix_is_in_the_config_it_says_when_that_is_read() -> None:
    fix = 'add to the config:\n[[model]]\nmatch = "x"'
    lines = report([Check("engine", "m", CheckState.WARN, "no MFU", fix)], colour=False, width=100).splitlines()
    assert lines[-2:] == [
        "gpumon reads its config when it starts: after a change of it, start gpumon again",
        "1 with gaps",
    ]


def test_only_a_failure_fails() -> None:
    assert any_failed(CHECKS)
    assert not any_failed([check for check in CHECKS if check.state is not CheckState.FAIL])


def test_colour_only_where_it_is_asked_for() -> None:
    assert "\x1b[" in report(CHECKS, colour=True, width=80)
    assert "\x1b" not in report(CHECKS, colour=False, width=80)


def test_hostile_text_does_nothing() -> None:
    text = report([Check("gpu", HOSTILE, CheckState.WARN, HOSTILE, HOSTILE)], colour=False, width=100)
    assert all(line.isprintable() for line in text.splitlines())
    assert max(map(len, text.splitlines())) <= 100
    assert "[bold]" in text


def test_it_fits_a_narrow_terminal() -> None:
    assert max(map(len, report(CHECKS, colour=False, width=60).splitlines())) <= 60
