"""`gpumon completion`: what completes this command line in bash, zsh and fish, and its man page, from the parsers."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from gpumon import __version__
from gpumon.commands.command_line import actions, command_parser, subcommands
from gpumon.commands.streams import EXIT_OK, write

_FORMS: Final = ("bash", "zsh", "fish", "man")
FILES: Final = frozenset(("FILE", "NAME|FILE"))
"""Names of values that are files."""


class Word(NamedTuple):
    """A command or an option of one parser."""

    names: tuple[str, ...]
    about: str
    value: str = ""
    """The name of its value; empty where it has none."""
    choices: tuple[str, ...] = ()
    """Values to choose from; empty: files where the value is one, else anything."""


class WordLevel(NamedTuple):
    """The words that may follow `path`: `gpumon`, `gpumon models show`, ..."""

    path: str
    commands: tuple[Word, ...]
    options: tuple[Word, ...]
    words: Word | None
    """Other words: files, or one of some."""

    @property
    def valued_options(self) -> list[Word]:
        """The options that take a value."""
        return [option for option in self.options if option.value]

    @property
    def names(self) -> list[str]:
        """The commands and options."""
        return _unique_names((*self.commands, *self.options))


def options(parser: argparse.ArgumentParser) -> None:
    """Add the word: for which shell."""
    parser.add_argument(
        "form",
        metavar="SHELL",
        choices=_FORMS,
        help='bash, zsh or fish: eval "$(gpumon completion bash)" in ~/.bashrc; man prints the manual page',
    )


def run(chosen: argparse.Namespace) -> int:
    """Print the completion of a shell, or the man page."""
    write({"bash": bash, "zsh": zsh, "fish": fish, "man": man}[chosen.form]())
    return EXIT_OK


def levels(parser: argparse.ArgumentParser, path: str = "gpumon") -> Iterator[WordLevel]:
    """The words of a parser, then those of each command below it. `path`: the commands up to the parser."""
    parser_options = []
    words = None
    for action in actions(parser):
        if action.option_strings:
            parser_options.append(_word_of(action))
        elif action.nargs != argparse.PARSER:
            words = _word_of(action)
    nested = subcommands(parser)
    summaries = _summaries(parser)
    commands = [Word((name,), summaries.get(name, "")) for name in nested]
    yield WordLevel(path, tuple(commands), tuple(parser_options), words)
    for name, inner in nested.items():
        yield from levels(inner, f"{path} {name}")


def _word_of(action: argparse.Action) -> Word:
    """An option, or the words that are no options."""
    value = str(action.metavar or action.dest.upper()) if action.nargs != 0 else ""
    return Word(tuple(action.option_strings), action.help or "", value, _choices(action))


def _summaries(parser: argparse.ArgumentParser) -> dict[str, str]:
    """The commands below a parser, and what each does: argparse has no public name for that."""
    abouts = {}
    for action in actions(parser):
        if action.nargs == argparse.PARSER:
            for command in getattr(action, "_choices_actions", ()):
                abouts[command.dest] = command.help or ""
    return abouts


def _choices(action: argparse.Action) -> tuple[str, ...]:
    """Values that an action takes; empty: any. Scenarios and themes are known only where they are looked up."""
    if "--scenario" in action.option_strings:
        from gpumon.demo.scenarios import SCENARIOS

        return ("list", *(play.name for play in SCENARIOS))
    if "--theme" in action.option_strings:
        from gpumon.config.themes import known_themes

        return tuple(known_themes(None))
    if action.nargs != argparse.PARSER:
        return tuple(map(str, action.choices or ()))
    return ()


def _command_paths(word_levels: Sequence[WordLevel]) -> list[str]:
    """The path of every command: `gpumon models`, `gpumon models show`, ..."""
    return [f"{level.path} {command.names[0]}" for level in word_levels for command in level.commands]


def _unique_names(words: Iterable[Word]) -> list[str]:
    """All names of the words, each once, in their order."""
    return list(dict.fromkeys(name for word in words for name in word.names))


def _case_pattern(names: Iterable[str]) -> str:
    """A pattern of a `case` in bash and zsh that fits each of the names."""
    return "|".join(f'"{name}"' for name in names)


def _path_lines(word_levels: Sequence[WordLevel], *, words: str, current: str, first: int) -> tuple[str, ...]:
    """Lines of bash and zsh that set `at` to the path of the commands that stand before the word to complete.

    `words`, `current`: the shell's array of the words typed, and its index of the word to complete; `first`: the index
    of the word behind `gpumon`. An option with a value skips the word behind it.
    """
    valued = [option for level in word_levels for option in level.valued_options]
    return (
        f"  for ((number = {first}; number < {current}; number++)); do",
        f'    word="${{{words}[number]}}"',
        '    case "$word" in',
        f"    ({_case_pattern(_unique_names(valued))}) ((number++)) ;;",
        '    (*) case "$at $word" in',
        f'      ({_case_pattern(_command_paths(word_levels))}) at="$at $word" ;;',
        "      esac ;;",
        "    esac",
        "  done",
    )


def _value_lines(word_levels: Sequence[WordLevel], value: Callable[[Word], str]) -> Iterator[str]:
    """Lines of bash and zsh that complete a value, if the word before is an option that takes one.

    `value`: the shell's command that completes a word's value.
    """
    yield '  case "$at $before" in'
    for level in word_levels:
        for word in level.valued_options:
            places = [f"{level.path} {name}" for name in word.names]
            yield f"    ({_case_pattern(places)}) {value(word)}; return ;;"
    yield "  esac"


def bash() -> str:
    """The completion function for bash 4 and newer."""
    word_levels = list(levels(command_parser()))
    return "\n".join(
        (
            f"# Completes gpumon in bash. Made by `gpumon completion bash` (gpumon {__version__}).",
            '_gpumon_of() { COMPREPLY+=($(compgen -W "$1" -- "$current")); }',
            "_gpumon_files() {",
            "  local IFS=$'\\n'",
            "  compopt -o filenames 2>/dev/null",
            '  COMPREPLY+=($(compgen -f -- "$current"))',
            "}",
            "_gpumon() {",
            '  local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" at=gpumon number word',
            "  COMPREPLY=()",
            *_path_lines(word_levels, words="COMP_WORDS", current="COMP_CWORD", first=1),
            *_value_lines(word_levels, _bash_value),
            '  case "$at" in',
            *map(_bash_level, word_levels),
            "  esac",
            "}",
            "complete -F _gpumon gpumon\n",
        )
    )


def _bash_level(level: WordLevel) -> str:
    """Shell line that completes a word behind a command."""
    return f'    ("{level.path}") {_bash_value(level.words)}; _gpumon_of "{" ".join(level.names)}" ;;'


def _bash_value(word: Word | None) -> str:
    """Bash command that completes a value: one of its choices, a file, or nothing (`:`)."""
    if word is not None and word.choices:
        return f'_gpumon_of "{" ".join(word.choices)}"'
    if word is not None and word.value in FILES:
        return "_gpumon_files"
    return ":"


def zsh() -> str:
    """The completion function for zsh, for a file `_gpumon` on the `fpath` or for `eval`."""
    word_levels = list(levels(command_parser()))
    return "\n".join(
        (
            "#compdef gpumon",
            f"# Completes gpumon in zsh. Made by `gpumon completion zsh` (gpumon {__version__}).",
            "_gpumon() {",
            '  local before="${words[CURRENT-1]}" at=gpumon number word',
            "  local -a shown",
            *_path_lines(word_levels, words="words", current="CURRENT", first=2),
            *_value_lines(word_levels, _zsh_value),
            '  case "$at" in',
            *map(_zsh_level, word_levels),
            "  esac",
            "  _describe gpumon shown",
            "}",
            'if [ "${funcstack[1]}" = _gpumon ]; then _gpumon "$@"; else compdef _gpumon gpumon; fi\n',
        )
    )


def _zsh_level(level: WordLevel) -> str:
    """Shell line that completes a word behind a command."""
    return f'    ("{level.path}") {_zsh_value(level.words)}; shown=({_zsh_words(level)}) ;;'


def _zsh_value(word: Word | None) -> str:
    """Zsh command that completes a value: one of its choices, a file, or nothing (`:`)."""
    if word is not None and word.choices:
        return f"compadd -- {' '.join(word.choices)}"
    if word is not None and word.value in FILES:
        return "_files"
    return ":"


def _zsh_words(level: WordLevel) -> str:
    """The commands and options of a level as `_describe` takes them: `'NAME:MEANING' ...`."""
    texts = []
    for word in (*level.commands, *level.options):
        about = word.about.replace("'", "'\\''")
        for name in word.names:
            texts.append(f"'{name}:{about}'")
    return " ".join(texts)


def fish() -> str:
    """The completion for fish: its `complete` commands, and a function that tells where a word stands."""
    word_levels = list(levels(command_parser()))
    lines = [
        f"# Completes gpumon in fish. Made by `gpumon completion fish` (gpumon {__version__}).",
        f"set -g __gpumon_paths {' '.join(map(_quote_fish, _command_paths(word_levels)))}",
        "function __gpumon_at",
        "  set -l at gpumon",
        "  for word in (commandline -opc)[2..-1]",
        '    contains -- "$at $word" $__gpumon_paths; and set at "$at $word"',
        "  end",
        '  test "$at" = "$argv[1]"',
        "end",
        "complete -c gpumon -f",
    ]
    for level in word_levels:
        lines += _fish_level(level)
    return "\n".join(lines) + "\n"


def _fish_level(level: WordLevel) -> Iterator[str]:
    """The `complete` commands for the words behind a command."""
    place = f"complete -c gpumon -n {_quote_fish(f'__gpumon_at {_quote_fish(level.path)}')}"
    for word in level.commands:
        yield f"{place} -a {word.names[0]} -d {_quote_fish(word.about)}"
    for word in level.options:
        names = " ".join(map(_fish_option, word.names))
        yield f"{place} {names}{_fish_value(word)} -d {_quote_fish(word.about)}"
    words = level.words
    if words is not None and words.choices:
        yield f"{place} -f -a {_quote_fish(' '.join(words.choices))}"
    elif words is not None and words.value in FILES:
        yield f"{place} -F"


def _fish_option(name: str) -> str:
    """An option as `complete` takes it: `-l config`, `-s h`."""
    if name.startswith("--"):
        return f"-l {name[2:]}"
    return f"-s {name[1:]}"


def _fish_value(option: Word) -> str:
    """How `complete` takes the value of an option.

    -x takes no file, -r -F any file, whatever the other lines for gpumon say.
    """
    if not option.value:
        return ""
    if option.choices:
        return f" -x -a {_quote_fish(' '.join(option.choices))}"
    if option.value in FILES:
        return " -r -F"
    return " -x"


def _quote_fish(text: str) -> str:
    """A text in the single quotes of fish."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def man() -> str:
    """The manual page, in man(7)."""
    parser = command_parser()
    word_levels = list(levels(parser))
    lines = [
        f'.TH GPUMON 1 "" "gpumon {__version__}" "User Commands"',
        ".SH NAME",
        "gpumon \\- a terminal monitor for GPU servers that run LLMs",
        ".SH SYNOPSIS",
        ".B gpumon",
        "[\\fICOMMAND\\fR] [\\fIOPTIONS\\fR]",
        ".SH DESCRIPTION",
        "Shows how busy the GPUs of this host are, how much of their arithmetic (MFU) and of their memory bandwidth"
        " (MBU) turns into tokens, what limits that, and how many GPUs a load needs."
        " Without a command it is the screen; its keys are listed by",
        ".BR ? .",
        ".SH OPTIONS",
        *_man_options(word_levels[0]),
        ".SH COMMANDS",
    ]
    abouts = {f"{level.path} {command.names[0]}": command.about for level in word_levels for command in level.commands}
    for level in word_levels[1:]:
        about = abouts[level.path]
        words = f" \\fI{_escape_roff(level.words.value)}\\fR" if level.words else ""
        lines += [
            f".SS {_escape_roff(level.path)}{words}",
            _escape_roff(f"{about[:1].upper()}{about[1:]}."),
            *_man_options(level),
        ]
    # `command_parser` writes the epilog: a line per variable, an empty line, the exit codes.
    environment, _, codes = (parser.epilog or "").partition("\n\n")
    lines.append(".SH ENVIRONMENT")
    for line in environment.splitlines()[1:]:
        name, meaning = line.split(maxsplit=1)
        lines += [".TP", f".B {_escape_roff(name)}", _escape_roff(meaning)]
    lines += [".SH EXIT STATUS"]
    for code in codes.removeprefix("exit codes: ").split(", "):
        number, meaning = code.split(" ", 1)
        lines += [".TP", f".B {number}", _escape_roff(meaning)]
    lines += [
        *(".SH FILES", ".TP", ".I ~/.config/gpumon/config.toml"),
        "The settings; \\fBgpumon config \\-\\-example\\fR prints all of them.",
    ]
    return "\n".join(lines) + "\n"


def _man_options(level: WordLevel) -> Iterator[str]:
    """The options of a level, each with its meaning; `--help`, which all have, only under `gpumon` itself."""
    for word in level.options:
        if "--help" in word.names and level.path != "gpumon":
            continue
        value = f" \\fI{_escape_roff(word.value)}\\fR" if word.value else ""
        yield ".TP"
        names = ", ".join(f"\\fB{_escape_roff(name)}\\fR" for name in word.names)
        yield names + value
        yield _escape_roff(word.about)


def _escape_roff(text: str) -> str:
    """A text that troff prints as it is: no escape, no hyphen for a minus, no request at the beginning of a line."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", escaped)
