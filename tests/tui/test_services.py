"""Training runs, encoders and models that are no LLMs: rows and pages with what applies to them, and nothing else."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Final

from gpumon.config.schema import Screen
from gpumon.readings import quantities as q
from gpumon.readings.snapshot import Engine, Snapshot
from gpumon.tui import engine_table
from tests.each_row import each_row
from tests.efficiency.polls import after, only, steady
from tests.efficiency.test_training import SEVEN_B, encoder, images, run
from tests.records import replace
from tests.tui.detail_scenes import flat, page_of, whole
from tests.tui.painted import engine_row, seen, text

SCENES: Final[dict[str, Callable[[], Snapshot]]] = {
    "tokens": lambda: after(steady({q.TRAINED_TOKENS: 10_000.0}, **run()), seconds=60),
    "samples": lambda: after(steady({q.SAMPLES: 16.0}, **run(SEVEN_B)), seconds=60),
    "rate": lambda: after(steady({}, {q.TRAINED_RATE: 10_000.0}, **run()), seconds=60),
    "early": lambda: after(steady({q.TRAINED_TOKENS: 10_000.0}, **run()), seconds=4),
    "encoder": lambda: after(encoder, seconds=60),
    "images": lambda: after(images(llm=None), seconds=60),
}


@functools.cache
def scene(name: str) -> Snapshot:
    """A minute of one of SCENES, derived when the first test asks for it."""
    return SCENES[name]()


def page(of: Snapshot) -> str:
    return flat(page_of(of, "engine", only(of).key))


def titles(of: Snapshot) -> list[str]:
    lines = whole(page_of(of, "engine", only(of).key), 100)[2:]
    return [line.strip().partition("  ")[0] for line in lines if re.match(r" \w", line)]


def test_a_training_page_lets_its_mfu_be_worked_out_again() -> None:
    said = page(scene("tokens"))
    assert "trained 10,000.0 tok/s measured" in said
    assert "= 420.0 TFLOP/s / (1 x 989.4 TFLOP/s bf16 dense)" in said
    assert "= 10,000.0 tok/s x 42.00 GFLOP per token" in said
    assert "MFU 42.45%" in said
    assert abs(10_000.0 * 42e9 / 989.4e12 - 0.4245) < 1e-4
    assert "tokens 580,000 tok measured" in said


def test_a_run_that_counts_samples_shows_those_and_says_what_its_mfu_needs() -> None:
    said = page(scene("samples"))
    assert "samples 16.00 /s" in said
    assert "samples 928 measured" in said
    assert "tokens_per_sample beside samples" in said
    assert "trained" not in text(engine_row(only(scene("samples")), 80))


def test_a_run_that_tells_its_rate_alone_has_no_totals() -> None:
    assert "trained 10,000.0 tok/s" in page(scene("rate"))
    assert "since gpumon started" not in page(scene("rate"))


@each_row("name", SCENES)
def test_no_page_speaks_of_what_does_not_apply(name: str) -> None:
    said = page(scene(name))
    words = [
        "KV",
        "TTFT",
        "ITL",
        "decode",
        "tensor parallel",
        "single-stream",
        "batch",
        "virtual",
        "preemption",
        "steps/s",
    ]
    if name != "encoder":
        words += ["prefill", "parameters", "layers", "unknown LLM"]
    if name not in ("encoder", "images"):
        words += ["waiting", "queue", "the server does not tell"]
    assert not [word for word in words if word in said]


def test_the_sections_of_each() -> None:
    common = ["rates", "engine", "MFU: arithmetic", "MBU: memory bandwidth", "energy", "cost"]
    assert titles(scene("tokens")) == [*common, "trained since gpumon started"]
    assert titles(scene("encoder")) == [
        *("what users got", "load", "rates", "engine", "latencies", "how requests ended", "lengths"),
        *("MFU: arithmetic", "MBU: memory bandwidth", "energy", "cost", "tokens since gpumon started"),
    ]
    assert titles(scene("images")) == [
        *("what users got", "load", "rates", "engine", "latencies", "how requests ended"),
        *("MFU, MBU", "energy", "cost"),
    ]


def test_what_cannot_be_has_no_advice() -> None:
    for name in SCENES:
        said = page(scene(name))
        assert "depends on the GPU" not in said
        assert "latencies are right" not in said


@each_row(
    ("name", "shown"),
    [
        ("tokens", "training        –    –    –  10.0k trained     –      –   42%    –"),
        ("samples", "training        –    –    –   16.0 samples     –      –     –    –"),
        ("early", "training        –    –    –      … trained     –      –     …    –"),
        ("images", "resnet50        –   3!    –    640 items       –      – no formula"),
        ("encoder", "                –   1!    –      –   20.0k     –      –   <1%    –"),
    ],
)
def test_a_row_shows_its_own_rate_and_the_word_for_it(name: str, shown: str) -> None:
    assert text(engine_row(only(scene(name)), 80)) == f" engine       {shown}"


@each_row("hidden", ["engines.prefill", "engines.decode"])
def test_a_rate_is_not_shown_without_its_word(hidden: str) -> None:
    view = seen(screen=Screen(hidden_columns=(hidden,)))
    row = text(engine_row(only(scene("tokens")), 80, view))
    assert "10.0k" not in row
    assert "trained" not in row
    assert len(row) == len(text(engine_table.TABLE.head(80, view)))


def test_a_named_model_stands_in_the_row_of_a_run() -> None:
    named: Engine = replace(only(scene("tokens")), model="meta-llama/Llama-3.1-8B")
    assert text(engine_row(named, 80)).startswith(" engine       Llama-3.1-8B ")
