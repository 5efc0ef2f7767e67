"""The results of all replays as Markdown: tokens and rates, and what stands beside them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.accuracy.judged import Result

BEGIN, END = "<!-- accuracy: begin, written by `make accuracy` -->", "<!-- accuracy: end -->"
NONE = "–"
NOT_LIVE = "n/a live"

HEAD = (
    "engine",
    "capture",
    "decode tokens",
    "truth",
    "error",
    "prompt tokens",
    "truth",
    "error",
    "10 s rate: mean error",
    "worst",
    "ticks",
    "long mean: error",
)
HEAD_BESIDE = (
    "capture",
    "cached tokens",
    "truth",
    "requests",
    "truth",
    "inferences",
    "truth",
    "in flight, mean",
    "client",
    "TTFT mean",
    "client",
    "ITL mean",
    "client",
)


def row(result: Result) -> tuple[str, ...]:
    """Tokens and rates of one capture."""
    errors = result.rate_errors
    live = result.live not in ("", "end")
    mean, worst = (f"{statistics.mean(errors):.2%}", f"{result.rate_error:.2%}") if errors else (NONE, NONE)
    if not live:
        mean = worst = NOT_LIVE if result.live else NONE
    tokens = bool(result.decode_truth)
    return (
        result.kind,
        result.name,
        f"{result.decode:,.0f}" if tokens else NONE,
        f"{result.decode_truth:,.0f}" if tokens else NONE,
        f"{result.decode_error:.2%}" if tokens else NONE,
        f"{result.prompt:,.0f}" if result.prompt else NONE,
        f"{result.prompt_truth:,.0f}" if result.prompt_truth else NONE,
        f"{result.prompt_error:.2%}" if result.prompt and result.prompt_truth else NONE,
        mean,
        worst,
        str(len(errors)),
        _error(result.beside.long_rate),
    )


def row_beside(result: Result) -> tuple[str, ...]:
    """The other quantities of one capture."""
    beside = result.beside
    return (
        result.name,
        *_pair(beside.cached, "{:,.0f}".format),
        *_pair(beside.requests, "{:,.0f}".format),
        *_pair(beside.items, "{:,.0f}".format, zero=False),
        *_pair(beside.in_flight, "{:.2f}".format),
        *_pair(beside.ttft_s, _ms),
        *_pair(beside.itl_s, _ms),
    )


def table(results: Sequence[Result]) -> str:
    """Both tables as Markdown."""
    first = markdown(HEAD, [row(result) for result in results])
    second = markdown(HEAD_BESIDE, [row_beside(result) for result in results])
    return f"{first}\n\n{second}"


def write(file: Path, text: str, begin: str = BEGIN, end: str = END) -> None:
    """Put the tables between the markers of a document, or make them the whole file."""
    old = file.read_text(encoding="utf-8") if file.exists() else ""
    if begin in old and end in old:
        before, _, rest = old.partition(begin)
        text = f"{before}{begin}\n\n{text}\n\n{end}{rest.partition(end)[2]}"
    else:
        text += "\n"
    file.write_text(text, encoding="utf-8")


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _pair(pair: tuple[float, float], form: Callable[[float], str], *, zero: bool = True) -> tuple[str, str]:
    if not zero and not any(value > 0 for value in pair):
        return NONE, NONE
    shown = [form(value) if math.isfinite(value) else NONE for value in pair]
    return shown[0], shown[1]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms"


def _error(pair: tuple[float, float]) -> str:
    told, truth = pair
    return f"{abs(told - truth) / truth:.2%}" if told > 0 and truth > 0 else NONE
