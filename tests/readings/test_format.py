"""Figures keep their width, their unit and their meaning, and what is missing never becomes a number."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from gpumon.readings import format as f
from gpumon.readings.missing import NOT_EXPOSED, Missing, Reading, Reason
from gpumon.readings.snapshot import Quantiles
from tests.each_row import each_row

CASES: list[tuple[Callable[[Reading], str], float, str]] = [
    (f.ratio, 0.0, "0%"),
    (f.ratio, 0.004, "<1%"),
    (f.ratio, 0.91, "91%"),
    (f.ratio, 0.996, "100%"),
    (f.ratio, 1.0, "100%"),
    (f.ratio, 1.004, "100%"),
    (f.ratio, 1.04, "104%!"),
    (f.ratio, 25.0, ">10x!"),
    (f.ratio, -0.5, "–"),
    (f.ratio, math.nan, "–"),
    (f.ratio, math.inf, "–"),
    (f.count, 0.0, "0"),
    (f.count, 0.01, "<.1"),
    (f.count, 4.2, "4.2"),
    (f.count, 9.96, "10"),
    (f.count, 410.0, "410"),
    (f.count, 999.6, "1.0k"),
    (f.count, 1100.0, "1.1k"),
    (f.count, 12_340.0, "12.3k"),
    (f.count, 99_960.0, "100k"),
    (f.count, 3.4e6, "3.4M"),
    (f.whole, 24.0, "24"),
    (f.whole, 1234.0, "1.2k"),
    (f.amount, 0.0, "0"),
    (f.amount, 0.2, "<1"),
    (f.amount, 512.0, "512"),
    (f.amount, 2.312e12, "2.31T"),
    (f.amount, 9.996e12, "10.0T"),
    (f.amount, 231e9, "231G"),
    (f.amount, 1.98e9, "1.98G"),
    (f.rate, 0.0, "0"),
    (f.rate, 0.01, "<.1"),
    (f.rate, 4.0, "4.0"),
    (f.rate, 9.96, "10.0"),
    (f.rate, 10.1, "10.1"),
    (f.rate, 99.94, "99.9"),
    (f.rate, 99.96, "100"),
    (f.rate, 998.0, "998"),
    (f.rate, 999.6, "1.00k"),
    (f.rate, 1100.0, "1.10k"),
    (f.rate, 12_340.0, "12.3k"),
    (f.rate, 123_400.0, "123k"),
    (f.figure, 0.0, "0"),
    (f.figure, 0.004, "<.01"),
    (f.figure, 0.446, "0.45"),
    (f.figure, 0.996, "1.00"),
    (f.figure, 9.99, "9.99"),
    (f.figure, 9.996, "10.0"),
    (f.figure, 45.24, "45.2"),
    (f.figure, 452.0, "452"),
    (f.figure, 4520.0, "4.52k"),
    (f.two_digits, 0.0, "0"),
    (f.two_digits, 0.4, "<1"),
    (f.two_digits, 45.4, "45"),
    (f.two_digits, 999.6, "1.0k"),
    (f.two_digits, 9.96e6, "10M"),
    (f.two_digits, 1.83e9, "1.8G"),
    (f.two_digits, 18.3e9, "18G"),
    (lambda value: f.memory(value, 1e9), 71.2e9, "71.2"),
    (lambda value: f.memory(value, 1e9), 140.4e9, "140"),
    (lambda value: f.memory(value, 1e9), 20e12, "20T"),
    (lambda value: f.memory(value, 1e9), 1e308, ">1P"),
    (f.fahrenheit, 64.4, "148"),
    (f.fahrenheit, -40.0, "-40"),
    (f.memory, 0.0, "0.0"),
    (f.memory, 71.2 * f.GIB, "71.2"),
    (f.memory, 99.97 * f.GIB, "100"),
    (f.memory, 140.4 * f.GIB, "140"),
    (f.memory, 20_000 * f.GIB, "20T"),
    (f.seconds, 0.0, "0s"),
    (f.seconds, 0.0004, "0.4ms"),
    (f.seconds, 0.0242, "24ms"),
    (f.seconds, 0.21, "210ms"),
    (f.seconds, 0.9996, "1.0s"),
    (f.seconds, 1.24, "1.2s"),
    (f.seconds, 12.4, "12s"),
    (f.seconds, 1200.0, "20m"),
    (f.seconds, 12_000.0, "3.3h"),
    (f.seconds, 1e9, ">99h"),
    (f.seconds, 1e-5, "<1ms"),
    (f.ratio, 1e308, ">10x!"),
    (f.whole, 12_340.0, "12k"),
    (f.whole, 1e308, "999E"),
    (f.watts, 612.4, "612W"),
    (f.watts, 1400.0, "1400W"),
    (f.watts, 12_300.0, "12kW"),
    (f.watts, 1e308, ">1GW"),
    (f.memory, 1e308, ">1P"),
    (f.celsius, 64.4, "64"),
    (f.celsius, -3.0, "-3"),
    (f.age, 14.2, "14s"),
    (f.age, 59.6, "1m"),
    (f.age, 7300.0, "2h"),
    (f.age, 4e5, "5d"),
    (f.age, 1e12, ">3y"),
    (f.period, 0.25, "0.25 s"),
    (f.period, 1.0, "1 s"),
    (f.period, 300.0, "5 min"),
    (f.period, 7200.0, "2 h"),
    (f.period, 9000.0, "2.5 h"),
    (f.period, 450.0, "7.5 min"),
]

WIDTHS: list[tuple[Callable[[Reading], str], int]] = [
    (f.ratio, 5),
    (lambda value: f.ratio(value, 4), 4),
    (f.count, 5),
    (f.whole, 4),
    (f.amount, 5),
    (f.memory, 4),
    (lambda value: f.memory(value, 1e9), 4),
    (f.rate, 5),
    (f.two_digits, 5),
    (f.figure, 5),
    (f.fahrenheit, 4),
    (f.seconds, 5),
    (f.watts, 5),
    (f.celsius, 4),
    (f.age, 4),
]


@each_row(("show", "value", "expected"), CASES)
def test_a_figure_reads_as_it_should(show: Callable[[Reading], str], value: float, expected: str) -> None:
    assert show(value) == expected


@given(st.sampled_from(WIDTHS), st.floats(min_value=0.0, allow_nan=False))
def test_no_figure_outgrows_its_column(of: tuple[Callable[[Reading], str], int], value: float) -> None:
    show, width = of
    assert 1 <= f.cells(show(value)) <= width


@given(st.floats(min_value=1e-6, max_value=1e14))
def test_a_value_that_is_there_is_never_a_bare_zero(value: float) -> None:
    for show in (f.ratio, f.count, f.amount, f.rate, f.figure, f.two_digits):
        assert show(value) not in ("0", "0%")


@each_row("reason", Reason)
def test_every_reason_has_a_short_and_a_long_word(reason: Reason) -> None:
    missing = Missing(reason)
    assert 1 <= f.cells(f.short(missing)) <= 5
    assert 1 <= f.cells(f.phrase(missing)) <= 11
    shows = (
        f.ratio,
        f.count,
        f.rate,
        f.two_digits,
        f.whole,
        f.amount,
        f.memory,
        f.seconds,
        f.watts,
        f.celsius,
        f.fahrenheit,
    )
    for show in shows:
        assert show(missing) in (f.short(missing), f.DASH)
        assert not any(character.isdigit() for character in show(missing))


@each_row(
    ("quantiles", "expected"),
    [
        (Quantiles(p95=0.21, mean=0.1, first_bound_s=0.001), "210ms"),
        (Quantiles(p95=0.004, mean=0.003, first_bound_s=0.01), "<10ms"),
        (Quantiles(p95=0.05, mean=0.03, first_bound_s=0.1), "<100ms"),
        (Quantiles(p95=0.25, mean=0.2, first_bound_s=0.3), "<300ms"),
        (Quantiles(p95=Missing(Reason.FEW), mean=0.024), "~24ms"),
        (Quantiles(p95=Missing(Reason.FEW), mean=0.21), "~210ms"),
        (Quantiles(p95=Missing(Reason.FEW), mean=NOT_EXPOSED), "few"),
        (Quantiles(p95=Missing(Reason.IDLE)), "–"),
        (Quantiles(p95=1.2, mean=0.4), "1.2s"),
        (Quantiles(p95=123.0, mean=0.4), "123s"),
        (Quantiles(p95=Missing(Reason.FEW), mean=1200.0), "~20m"),
        (Quantiles(p95=Missing(Reason.FEW), mean=120.0), "~120s"),
        (Quantiles(p95=900.0, mean=0.4, first_bound_s=1200.0), "<20m"),
        (Quantiles(p95=1.0, mean=0.4, first_bound_s=1.21), "<1.3s"),
        (Quantiles(p95=Missing(Reason.RESET)), "reset"),
        (Quantiles(p95=60.0, mean=70.0, p95_low=60.0, p95_high=Missing(Reason.INVALID)), ">60s"),
        (Quantiles(p95=0.47, mean=0.6, p95_low=0.47, p95_high=Missing(Reason.INVALID)), ">470ms"),
        (Quantiles(p95=2560.0, mean=99.0, p95_low=2560.0, p95_high=Missing(Reason.INVALID)), ">42m"),
    ],
)
def test_a_quantile_says_where_it_comes_from(quantiles: Quantiles, expected: str) -> None:
    assert f.quantile(quantiles) == expected


UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


def parsed(text: str) -> tuple[float, float]:
    """The seconds that a latency says, and the step of its last digit."""
    digits, unit = re.fullmatch(r"(\d*\.?\d+)(ms|s|m|h)", text).groups()  # type: ignore[union-attr]
    return float(digits) * UNITS[unit], UNITS[unit] * 0.1 ** len(digits.partition(".")[2])


@given(st.floats(1e-6, 1e7), st.sampled_from(["", "~", "<", ">"]))
def test_a_latency_says_what_it_is(value: float, mark: str) -> None:
    few = Missing(Reason.FEW)
    of = {
        "": Quantiles(p95=value),
        "~": Quantiles(p95=few, mean=value),
        "<": Quantiles(p95=value / 2, first_bound_s=value),
        ">": Quantiles(p95=value, p95_high=Missing(Reason.INVALID)),
    }[mark]
    text = f.quantile(of)
    assert f.cells(text) <= 6
    if text == f.DASH:
        assert mark == "<"
    elif text[0] in "<>":
        bound, step = parsed(text[1:])
        assert value <= bound * (1 + 1e-6) if text[0] == "<" else value >= bound * (1 - 1e-6)
        assert mark != "<" or bound - value <= step * (1 + 1e-6)
    else:
        said, step = parsed(text.removeprefix("~"))
        assert abs(said - value) <= step * 0.5001


@each_row(
    ("value", "text"), [(1.04, "104!"), (1.01, "101!"), (1.004, "100%"), (1.0, "100%"), (0.31, "31%"), (25.0, ">9x!")]
)
def test_a_share_in_four_cells_keeps_its_mark(value: float, text: str) -> None:
    assert f.ratio(value, 4) == text


def test_wide_characters_take_two_cells_and_combining_marks_none() -> None:
    assert f.cells("abc") == 3
    assert f.cells("日本") == 4
    assert f.cells("e\u0301") == 1
    assert f.cells("🚀x") == 3


@each_row(
    ("text", "width", "expected"),
    [
        ("vllm:8000", 12, "vllm:8000"),
        ("Llama-3.3-70B-Instruct", 13, "Llama-3.3-70…"),
        ("日本語", 4, "日…"),
        ("ab", 0, ""),
    ],
)
def test_what_does_not_fit_is_cut_and_marked(text: str, width: int, expected: str) -> None:
    assert f.cut(text, width) == expected


@given(
    st.text(st.characters(exclude_categories=("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")), max_size=40),
    st.integers(1, 30),
)
def test_a_padded_text_has_exactly_its_width(text: str, width: int) -> None:
    assert f.cells(f.cut(text, width)) <= width
    assert f.cells(f.left(text, width)) == width
    assert f.cells(f.right(text, width)) == width


@each_row(
    ("model", "width", "expected"),
    [
        ("Qwen/Qwen3-8B", 13, "Qwen/Qwen3-8B"),
        ("meta-llama/Llama-3.3-70B-Instruct", 13, "Llama-3.3-70B"),
        ("meta-llama/Llama-3.1-8B-Instruct", 13, "Llama-3.1-8B…"),
        ("meta-llama/Llama-3.3-70B-Instruct", 9, "Llama…70B"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", 13, "DeepSeek…32B"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", 11, "Mixtra…8x7B"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", 11, "Qwen3-30B-…"),
        ("Qwen/Qwen2.5-0.5B-Instruct", 9, "Qwen…0.5B"),
        ("openai/gpt-oss-120b", 7, "gpt-os…"),
        ("deepseek-ai/DeepSeek-V3.2-Exp", 11, "DeepSeek-V…"),
        ("/models/llama3-8b/", 11, "llama3-8b"),
        ("models/日本語の模型-70B", 9, "日本語の…"),
        ("", 9, ""),
    ],
)
def test_a_short_model_name_keeps_its_size(model: str, width: int, expected: str) -> None:
    assert f.model_name(model, width) == expected


@each_row(
    ("name", "width", "expected"),
    [
        ("vllm:8000", 12, "vllm:8000"),
        ("vllm_router:30001", 12, "vllm_…:30001"),
        ("vllm_router:30002", 12, "vllm_…:30002"),
        ("vllm:10.0.0.7:8000", 12, "vllm:1…:8000"),
        ("vllm_router:30001", 8, "vllm_ro…"),
        ("triton:8002/detector", 12, "triton:8002…"),
        ("a-name-of-the-config", 12, "a-name-of-t…"),
    ],
)
def test_a_short_engine_name_keeps_its_port(name: str, width: int, expected: str) -> None:
    assert f.engine_name(name, width) == expected


@given(st.text(max_size=40), st.integers(0, 50))
def test_a_text_without_its_middle_fits_and_keeps_both_ends(text: str, width: int) -> None:
    shown = f.cut_middle(text, width)
    assert f.cells(shown) <= width
    if f.cells(text) <= width:
        assert shown == text
    elif shown:
        begin, _, end = shown.rpartition("…")
        assert text.startswith(begin)
        assert text.endswith(end)


@each_row(("width", "expected"), [(8, "llam…t-b"), (9, "llam…ct-b"), (1, "…"), (0, "")])
def test_the_end_of_a_name_stays(width: int, expected: str) -> None:
    assert f.cut_middle("llama-instruct-b", width) == expected


@given(st.text(max_size=60), st.integers(1, 30))
def test_no_engine_name_is_longer_than_its_column(name: str, width: int) -> None:
    assert f.cells(f.engine_name(name, width)) <= width
    assert f.cells(f.engine_name(f"{name}:8000", width)) <= width


@given(st.text(max_size=60), st.integers(1, 30))
def test_no_model_name_is_longer_than_its_column(model: str, width: int) -> None:
    assert f.cells(f.model_name(model, width)) <= width
