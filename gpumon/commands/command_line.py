"""The parsers of the command line, and what it means: which command, which action, which options.

No message repeats the value of an option that is not known: it may be a secret.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NoReturn

from gpumon import __version__
from gpumon.commands import COMMANDS, command
from gpumon.commands.options import MOMENT_METAVAR, TIME_METAVAR, UsageError, redacted

OTHER_OPTIONS: Final = {"--once": "gpumon snapshot", "--list": "--scenario list"}
"""Options that people try, and what they are here."""
OTHER_WORDS: Final = {"fleet": "gpumon --host NAME, or gpumon --prometheus URL"}
"""Words that look like commands, and what does what they promise."""
DEFAULT_ACTION: Final = "list"
"""Action of a command with actions (`gpumon models`) where none is named."""
_BEFORE_NOW: Final = re.compile(r"-\d")
"""Beginning of a time before now, `-10m`."""
_MOST_HINTED_COMMANDS: Final = 2
"""Commands that a hint names."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are exceptions."""

    def error(self, message: str) -> NoReturn:
        """Raises UsageError."""
        # argparse repeats the value of a switch, which may be a secret.
        before, switch, _ = message.partition("ignored explicit argument")
        reason = "takes no value" if switch else ""
        raise UsageError(f"{before}{reason} (see {self.prog} --help)")


def actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """The options and words of a parser: argparse has no public name for them."""
    return parser._actions


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of its commands, by name; empty where it has none."""
    nested: dict[str, argparse.ArgumentParser] = {}
    for action in actions(parser):
        if action.nargs == argparse.PARSER and isinstance(action.choices, dict):
            nested |= action.choices
    return nested


def command_parser() -> Parser:
    """The parser of everything, all commands under it."""
    from gpumon.config.environment import CONFIG_VARIABLES

    variables = {
        "GPUMON_CONFIG": "config file",
        "GPUMON_PROFILES": "folder of imported profiles (default ~/.local/share/gpumon/profiles)",
        **{name: meaning for name, (_, meaning) in CONFIG_VARIABLES.items()},
        "GPUMON_INTEGRATED_GPUS": "1: show the GPU in an Intel CPU",
    }
    lines = "\n".join(f"  {name:<24}{meaning}" for name, meaning in variables.items())
    parser = parser_of("")
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = (
        f"environment (above the file, below options):\n{lines}\n\n"
        "exit codes: 0 ok, 1 failed, 2 usage or config, 3 nothing to monitor, 4 infeasible (size and simulate)"
    )
    nested = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command", parser_class=Parser)
    for name, summary in COMMANDS.items():
        _add_options(
            nested.add_parser(name, help=summary, description=summary, allow_abbrev=False, add_help=False), name
        )
    return parser


def parser_of(name: str) -> Parser:
    """The parser of one command, without the others; "" is the screen."""
    about = COMMANDS.get(name, "monitor GPUs and the LLM engines on them; without a command it shows the screen")
    parser = Parser(prog=f"gpumon {name}".rstrip(), description=about, allow_abbrev=False, add_help=False)
    _add_options(parser, name)
    return parser


def _add_options(parser: argparse.ArgumentParser, name: str) -> None:
    """Add help, version and the options of a command to its parser."""
    parser.add_argument("-h", "--help", action="help", help="show this and exit")
    parser.add_argument(
        "--version", action="version", version=f"gpumon {__version__}", help="show the version and exit"
    )
    command(name).options(parser)


def parse_command_line(arguments: Sequence[str]) -> tuple[argparse.Namespace, str]:
    """The options, and the name of the command. Options may stand before and after it. Raises UsageError."""
    words = list(arguments)
    screen_parser = parser_of("")
    name = _take_command(words, screen_parser)
    parser: argparse.ArgumentParser
    parent: argparse.ArgumentParser | None = None
    if name:
        parser, parent = _take_action(parser_of(name), words)
    elif _asks_help(words):
        parser = command_parser()
    else:
        parser = screen_parser
    if _asks_help(words):
        parser.print_help()
        parser.exit()
    for word in words:
        option, _, value = word.partition("=")
        if option.startswith("-") and value == "--":  # argparse drops these dashes, and makes an empty list of none
            parser.error(f"argument {redacted(option)}: expected one argument")
    # Words may stand between options: `profiles add --tp 2 a.json`.
    guarded_words = _guard_moments(parser, _join_times(parser, words))
    chosen, unknown = parser.parse_known_intermixed_args(guarded_words)
    if unknown:
        if not name:
            parent = command_parser()  # made only now: it imports every command
        parser.error(_unrecognized_text(unknown) + _hint_text(unknown, parser, parent))
    return chosen, name


def _take_command(words: list[str], screen_parser: argparse.ArgumentParser) -> str:
    """The command, taken out of the words; empty: none, which is the screen. Raises UsageError."""
    takes_value = _takes_value_by_option(screen_parser)
    place = _first_word(words, takes_value)
    options = [word for word in words[:place] if word.startswith("-")]  # of all words, where no first one was found
    if any(word.partition("=")[0] not in takes_value for word in options):
        # An option that the screen has not may belong to the command behind it.
        everything = command_parser()
        place = _first_word(words, _takes_value_by_option(everything))
        _refuse_unknown_options(words[:place], everything)
    if place is None:
        return ""
    name = words.pop(place)
    if name not in COMMANDS:
        raise UsageError(_unknown_name_text("command", name, COMMANDS))
    return name


def _refuse_unknown_options(words: Sequence[str], everything: argparse.ArgumentParser) -> None:
    """Refuse an option that no command has. Raises UsageError."""
    takes_value = _takes_value_by_option(everything)
    for word in words:
        if word.startswith("--") and word.partition("=")[0] not in takes_value:
            raise UsageError(f"{_unrecognized_text([word])}{_hint_text([word], None, everything)} (see gpumon --help)")


def _take_action(
    parser: argparse.ArgumentParser, words: list[str]
) -> tuple[argparse.ArgumentParser, argparse.ArgumentParser | None]:
    """The parser of a command's action, `profiles add`, and its parent. Raises UsageError.

    The action is taken out of the words. Without one it is `DEFAULT_ACTION`. A command without actions has no parent.
    """
    parent = None
    while nested := subcommands(parser):
        place = _first_word(words, _takes_value_by_option(parser))
        if place is None and _asks_help(words):
            break
        action_name = words[place] if place is not None else DEFAULT_ACTION
        if action_name not in nested:
            raise UsageError(f"{parser.prog}: {_unknown_name_text('action', action_name, nested)}")
        if place is not None:
            del words[place]
        parent = parser
        parser = nested[action_name]
    return parser, parent


def _asks_help(words: Sequence[str]) -> bool:
    """Whether one of the words asks for help."""
    return not {"-h", "--help"}.isdisjoint(words)


def _first_word(words: Sequence[str], takes_value: Mapping[str, bool]) -> int | None:
    """Index of the first word that is no option and no option's value; None: there is none before a `--`."""
    is_value = False
    for index, word in enumerate(words):
        if is_value:
            is_value = False
        elif word == "--":
            return None
        elif word.startswith("-"):
            is_value = takes_value.get(word, False)
        else:
            return index
    return None


def _takes_value_by_option(parser: argparse.ArgumentParser) -> dict[str, bool]:
    """Option of a parser or of its commands -> whether it takes a value."""
    takes_value = {option: action.nargs != 0 for action in actions(parser) for option in action.option_strings}
    for nested in subcommands(parser).values():
        takes_value |= _takes_value_by_option(nested)
    return takes_value


def _join_times(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """The words with `--at -10m` as one, `--at=-10m`: argparse takes what begins with a dash for an option."""
    time_options: set[str] = set()
    for action in actions(parser):
        if action.metavar == TIME_METAVAR:
            time_options.update(action.option_strings)
    joined: list[str] = []
    for word in words:
        if _BEFORE_NOW.match(word) and joined and joined[-1] in time_options:
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _guard_moments(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """The words with a blank in front of a `-10m` that is a word of its own: else argparse takes it for an option."""
    if MOMENT_METAVAR not in {action.metavar for action in actions(parser)}:
        return list(words)
    return [f" {word}" if _BEFORE_NOW.match(word) else word for word in words]


def _unrecognized_text(words: Sequence[str]) -> str:
    """The error for unknown options and stray words; no option's value is in it: it may be a secret."""
    named = []
    previous = ""
    for word in words:
        if word.startswith("-"):
            named.append(redacted(word.partition("=")[0]))
        elif not previous.startswith("-"):
            named.append(f"{redacted(word)!a}")
        previous = word
    return f"unrecognized arguments: {' '.join(named)}"


def _hint_text(
    words: Sequence[str], parser: argparse.ArgumentParser | None, parent: argparse.ArgumentParser | None
) -> str:
    """The end of an error: the option or the commands that the first of these options may have meant, if any."""
    option = _first_option(words)
    suggestion = _other_option(option, parser, parent)
    if not suggestion and parent is not None:
        suggestion = ", or ".join(_commands_with(option, parent)[:_MOST_HINTED_COMMANDS])
    if suggestion:
        return f"; did you mean {suggestion}?"
    return ""


def _first_option(words: Sequence[str]) -> str:
    """The first option among the words, without its value; empty where there is none."""
    for word in words:
        if word.startswith("-"):
            return word.partition("=")[0]
    return ""


def _other_option(option: str, parser: argparse.ArgumentParser | None, parent: argparse.ArgumentParser | None) -> str:
    """The option or command here for a common option of other tools, by `OTHER_OPTIONS`; empty where nothing fits.

    An option of this parser, or a command if there are commands.
    """
    other = OTHER_OPTIONS.get(option, "")
    if not other.startswith("--"):
        if parent is None:
            return ""
        return other
    if parser is not None and other.split()[0] in _takes_value_by_option(parser):
        return other
    return ""


def _commands_with(option: str, parent: argparse.ArgumentParser) -> list[str]:
    """The commands below a parser that take an option, with it: `gpumon size --compare`."""
    return [
        f"{parent.prog} {name} {option}"
        for name, nested in subcommands(parent).items()
        if option in _takes_value_by_option(nested)
    ]


def _unknown_name_text(kind: str, name: str, names: Iterable[str]) -> str:
    """The error for an unknown command or action (`kind`), with what was meant or with those that are known."""
    import difflib

    names = list(names)
    suggestion = OTHER_WORDS.get(name, "")
    nearest = difflib.get_close_matches(name, names, n=1)
    if not suggestion and nearest:
        suggestion = nearest[0]
    hint = f"did you mean {suggestion}?" if suggestion else f"known: {', '.join(names)}"
    return f"no such {kind}: {redacted(name)!a}; {hint}"
