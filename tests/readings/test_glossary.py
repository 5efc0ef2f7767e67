"""One word per quantity: docs/glossary.md is the table of the program, and no text uses another word."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

from gpumon.figures.glossary import TERMS, glossary_page, json_paths
from gpumon.outputs.units import latency_text, seconds_text
from gpumon.readings.change_words import amount_text
from gpumon.readings.format import quantile, seconds
from gpumon.readings.snapshot import Quantiles
from tests.each_row import each_row
from tests.readings.glossary_table import PAGE

ROOT = Path(__file__).parents[2]
RETIRED = {
    "memory B/s": "memory bandwidth",
    "bandwidth used": "memory bandwidth",
    "DRAM active": "memory bandwidth",
    "DRAM activity": "memory bandwidth",
    "DRAM bandwidth": "memory bandwidth",
    "in tok/s": "prefill tok/s",
    "out tok/s": "decode tok/s",
    "tokens out": "decode tokens",
    "KV cache in use": "KV cache",
    "prefill computed": "prefill",
}
"""Words that the screen once had for a quantity -> its word."""
ANY_RETIRED = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, RETIRED))})(?!\w)")
SHOWN = ("tui", "outputs", "triage", "commands")


def texts(path: Path) -> Iterator[str]:
    """All string constants of a module, but for its docstrings."""
    tree = ast.parse(path.read_text())
    docstrings = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


def test_the_page_is_the_table_of_the_program() -> None:
    assert PAGE.read_text(encoding="utf-8") == glossary_page(), "run: python -m tests.readings.glossary_table"


@each_row("package", SHOWN)
def test_no_text_of_the_program_uses_a_retired_word(package: str) -> None:
    found = []
    for path in sorted((ROOT / "gpumon" / package).rglob("*.py")):
        for text in texts(path):
            for word in ANY_RETIRED.findall(text):
                found.append(f"{path.relative_to(ROOT)}: {word!r} in {text!r}, use {RETIRED[word]!r}")
    assert found == []


@each_row("path", sorted((ROOT / "docs").glob("*.md")), named=lambda path: path.name)
def test_no_page_of_the_docs_uses_a_retired_word(path: Path) -> None:
    assert set(ANY_RETIRED.findall(path.read_text())) <= {"KV cache in use"}


def test_no_name_is_given_twice() -> None:
    for words in ([term.short for term in TERMS], [term.name for term in TERMS]):
        assert len(words) == len(set(words))


def test_json_names_exist() -> None:
    schema = json.loads((ROOT / "docs/schema.json").read_text())
    kinds = {"gpus": schema["$defs"]["Gpu"], "engines": schema["$defs"]["Engine"]}
    for term in TERMS:
        for path in json_paths(term.name):
            listed, _, field = path.partition("[].")
            field, _, part = field.partition(".")
            properties = kinds[listed]["properties"]
            assert field in properties, path
            parts = {**schema["$defs"]["Quantiles"]["properties"], **schema["$defs"]["WithinGoal"]["properties"]}
            assert not part or part in parts, path


SECOND_FORMS = re.compile(
    r"[0-9}>] %(?![a-z(%\[]| ?[0-9(])"  # a share is `98%`
    r"|(?<![\w.])0?\.\d+s\b"  # a latency is `470ms`; a length of time `0.25 s`
)
GIGABYTES = re.compile(r"(?<![\w.])[0-9.,]+ ?[GT]B\b(?!/s)")
"""Bytes in decimal units; `GB/s` is a rate, and `80GB` behind a blank part of a product's name in `SCREENS`."""
PAGES = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md")))
SCREENS = sorted((ROOT / "tests/tui").glob("*snapshots/*.txt"))


@each_row("path", (*PAGES, *SCREENS), named=lambda path: path.name)
def test_shares_and_latencies_have_one_form(path: Path) -> None:
    assert SECOND_FORMS.findall(path.read_text()) == []


@each_row(
    "package", ("commands", "demo", "figures", "outputs", "push", "readings", "sizing", "sources", "triage", "tui")
)
def test_no_text_of_the_program_writes_a_share_or_a_latency_in_another_form(package: str) -> None:
    found = []
    for path in sorted((ROOT / "gpumon" / package).rglob("*.py")):
        text = path.read_text()
        for line in SECOND_FORMS.finditer(text):
            found.append(f"{path.relative_to(ROOT)}: {text[line.start() - 30 : line.end() + 10]!r}")
    assert found == []


@each_row("value", [10.0**power * digit for power in range(-4, 4) for digit in (1.0, 2.5, 4.7, 9.96)])
def test_every_latency_is_in_one_form(value: float) -> None:
    texts_of_latency = (
        seconds(value),
        quantile(Quantiles(mean=value)),
        quantile(Quantiles(p95=value, first_bound_s=2.0 * value)),
        seconds_text(value),
        latency_text(Quantiles(p95=value)),
        amount_text("s", value),
    )
    for text in texts_of_latency:
        assert re.fullmatch(r"[<~>]?(?:0\.\d|[1-9]\d{0,2})ms|[<~>]?[1-9]\d{0,2}(?:\.\d)?[smh]", text), text


@each_row("path", [path for path in SCREENS if path.parent.name != "sizing_snapshots"], named=lambda path: path.name)
def test_memory_on_screens_is_in_gib(path: Path) -> None:
    """Bytes that a step reads stand beside rates; sizing counts as data sheets do, and says so in docs/glossary.md."""
    lines = [line for line in path.read_text().splitlines() if "weights of a step" not in line and "/s x " not in line]
    assert [line for line in lines if GIGABYTES.search(line.replace("80GB", ""))] == []
