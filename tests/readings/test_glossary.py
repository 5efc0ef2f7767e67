"""One word per quantity: docs/glossary.md is the table of the program, and no text uses another word."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

from gpumon.figures.glossary import TERMS, glossary_page, json_paths
from tests.each_row import each_row

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
    assert (ROOT / "docs/glossary.md").read_text() == glossary_page()


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
