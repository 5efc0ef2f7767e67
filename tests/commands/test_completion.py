"""Completion as a shell does it: the printed function in a real bash, and the manual page in a real groff."""

from __future__ import annotations

import argparse
import functools
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.commands import COMMANDS
from gpumon.commands.command_line import actions, command_parser, subcommands
from gpumon.commands.completion import bash, fish, man, zsh
from tests.each_row import each_row


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for one in subcommands(parser).values():
        yield from parsers(one)


@functools.cache
def options() -> set[str]:
    """All options of all commands."""
    return {
        option for parser in parsers(command_parser()) for action in actions(parser) for option in action.option_strings
    }


def completed(line: str, folder: Path) -> set[str]:
    """What bash offers for the last word of a line."""
    words = line.split(" ")
    quoted = " ".join(f"'{word}'" for word in words)
    script = (
        f"{bash()}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _gpumon; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script], cwd=folder, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stderr == ""
    return set(done.stdout.split("\n")) - {""}


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("gpumon sna", {"snapshot"}),
        ("gpumon re", {"record", "replay", "report"}),
        ("gpumon watch --du", {"--duration"}),
        ("gpumon --interval 2 watch --co", {"--config", "--count"}),
        ("gpumon watch --interval watch", set()),
        ("gpumon models s", {"search", "show"}),
        ("gpumon models show --co", {"--config", "--context"}),
        ("gpumon profiles add --kv", {"--kv-precision"}),
        ("gpumon profiles list --kv", set()),
        ("gpumon demo --scenario therm", {"thermal"}),
        ("gpumon --theme defau", {"default"}),
        ("gpumon completion z", {"zsh"}),
        ("gpumon replay ni", {"night 1.gpumon"}),
        ("gpumon snapshot --config ni", {"night 1.gpumon"}),
        ("gpumon snapshot ni", set()),
    ],
)
def test_bash_offers_what_may_stand_there(line: str, offered: set[str], tmp_path: Path) -> None:
    (tmp_path / "night 1.gpumon").touch()
    assert completed(line, tmp_path) == offered


def test_bash_offers_every_command_and_every_option_of_each(tmp_path: Path) -> None:
    assert completed("gpumon ", tmp_path) >= {*COMMANDS}
    for name, parser in subcommands(command_parser()).items():
        if not subcommands(parser):
            own = {option for action in actions(parser) for option in action.option_strings}
            assert completed(f"gpumon {name} -", tmp_path) == own, name


def test_a_sourced_function_is_registered() -> None:
    done = subprocess.run(
        ["bash", "--norc", "-c", f"{bash()}\ncomplete -p gpumon"], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == ["complete", "-F", "_gpumon", "gpumon"]


@each_row("form", [zsh, fish])
def test_other_shells_know_every_command_and_option(form: object) -> None:
    text = form()  # type: ignore[operator]
    for name in COMMANDS:
        assert name in text
    for option in options():
        assert (option if form is zsh else f"-l {option[2:]} " if option.startswith("--") else option) in text, option


def fish_options() -> dict[str, set[str]]:
    """Each option that fish completes -> the switches by which `complete` is told about its value."""
    switches: dict[str, set[str]] = {}
    for line in fish().splitlines():
        words = shlex.split(line.replace("\\'", ""))
        for place, word in enumerate(words):
            if word in ("-l", "-s"):
                name = {"-l": "--", "-s": "-"}[word] + words[place + 1]
                switches.setdefault(name, set()).update({"-x", "-r", "-F", "-f", "-a"} & set(words[place + 2 :]))
    return switches


def test_fish_offers_files_where_an_option_takes_one_and_nowhere_else() -> None:
    """fish adds the files of the folder to the values of an option with -r; -x is without them, -F always with them."""
    switches = fish_options()
    assert switches["--config"] == {"-r", "-F"}
    assert switches["--theme"] == {"-x", "-a"}
    assert switches["--interval"] == {"-x"}
    assert switches["--ascii"] == set()
    assert {*map(frozenset, switches.values())} == {
        frozenset(),
        frozenset(["-x", "-a"]),
        frozenset(["-x"]),
        frozenset(["-r", "-F"]),
    }
    shells = [line for line in fish().splitlines() if line.endswith("'bash zsh fish man'")]
    assert len(shells) == 1
    assert " -f -a " in shells[0]


def test_the_manual_page_has_it_all_and_groff_takes_it() -> None:
    done = subprocess.run(
        ["groff", "-man", "-Tascii", "-ww", "-P-c", "-P-b", "-P-u"],
        input=man(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    text = " ".join(done.stdout.split())
    for word in (*options(), *(f"gpumon {name}" for name in COMMANDS), "GPUMON_INTERVAL", "nothing to monitor"):
        assert word in text, word
