"""README and docs name what is there: files, headings, commands, options, make targets and keys."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from gpumon.commands import COMMANDS
from gpumon.commands.command_line import DEFAULT_ACTION, actions, parser_of, subcommands
from gpumon.config.keymap import COMMANDS as KEYED
from gpumon.config.keymap import shown_key
from tests.each_row import each_row

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"(?:^ {4}|^\$ |^|`)gpumon((?: [^`\n#|>]+)?)", re.MULTILINE)
OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z-]*)")
TARGET = re.compile(r"(?:`|^ {4})make ([a-z-]+)", re.MULTILINE)


PARAMETERS = [pytest.param(path, id=str(path.relative_to(ROOT))) for path in PAGES]


def headings(path: Path) -> set[str]:
    """The anchors of a page, as code hosts make them of its headings."""
    text = FENCE.sub("", path.read_text())
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@each_row("path", PARAMETERS)
def test_links_lead_to_files_and_headings(path: Path) -> None:
    broken = []
    for target in LINK.findall(FENCE.sub("", path.read_text())):
        if "://" in target or target.startswith("mailto:"):
            continue
        file, _, anchor = target.partition("#")
        linked = path if not file else path.parent / file
        is_found = linked.exists() and (not anchor or linked.suffix != ".md" or anchor in headings(linked))
        if not is_found:
            broken.append(target)
    assert broken == []


def options_of(name: str, words: str) -> set[str]:
    """The options that a command takes, those of its own commands included."""
    parser = parser_of(name)
    nested = subcommands(parser)
    inner = [word for word in words.split() if word in nested] or ([DEFAULT_ACTION] if DEFAULT_ACTION in nested else [])
    parsers = [parser, *(nested[word] for word in inner)]
    if name and not nested:
        parsers.append(parser_of(""))
    return {option for one in parsers for action in actions(one) for option in action.option_strings}


@each_row("path", PARAMETERS)
def test_commands_and_options_exist(path: Path) -> None:
    unknown = []
    for line in COMMAND.findall(path.read_text()):
        words = [word for word in line.split() if not word.startswith("-")]
        name = words[0] if words and words[0] in COMMANDS else ""
        known = options_of(name, line)
        unknown += [f"gpumon{line}: {option}" for option in OPTION.findall(line) if option not in known]
    assert unknown == []


@each_row("path", PARAMETERS)
def test_make_targets_exist(path: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(TARGET.findall(path.read_text())) <= targets


def test_the_table_of_keys_names_keys_of_the_screen() -> None:
    section = (ROOT / "docs" / "screen.md").read_text().split("## Keys", 1)[1].split("\n## ", 1)[0]
    cells = [
        cell for row in section.splitlines() if row.startswith("| `") for cell in row.strip("| ").split(" | ")[::2]
    ]
    named = [key for cell in cells for span in re.findall(r"`([^`]+)`", cell) for key in span.split()]
    keys = {shown_key(key) for command in KEYED for key in command.keys}
    assert named
    assert set(named) <= keys | set("123456789")


def test_the_readme_is_read_in_five_minutes() -> None:
    assert len((ROOT / "README.md").read_text().split()) < 1400


def test_nothing_installs_a_package_that_the_index_does_not_have() -> None:
    folders = (ROOT / "docs", ROOT / "gpumon")
    texts = [path for folder in folders for path in folder.rglob("*") if path.suffix in (".md", ".py", ".yaml", "")]
    wrong = re.compile(r"pipx? install[^\n]*gpumon-llm")
    found = [path for path in (*texts, *PAGES) if path.is_file() and wrong.search(path.read_text(errors="replace"))]
    assert found == []


MOST_WORDS: Final = 24
"""Words of one cell of a table: what takes more stands below the table."""
OF_TABLES: Final = ("json", "engines", "figures", "serve-metrics")
"""Pages whose tables somebody looks something up in."""


@each_row("name", OF_TABLES)
def test_cells_of_tables_are_short(name: str) -> None:
    text = FENCE.sub("", (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8"))
    rows = [line.strip().strip("|") for line in text.splitlines() if line.startswith("|")]
    cells = [cell.strip() for row in rows for cell in re.split(r"(?<!\\)\|", row)]
    assert len(cells) > 20
    assert [cell for cell in cells if len(cell.split()) > MOST_WORDS] == []
