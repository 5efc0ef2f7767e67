"""What may stand on the command line: commands, their words and options; read strictly, and no secret repeated."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final, NoReturn

from gpumon import __version__
from gpumon.command_tables import COMMANDS, OPTIONS, WORDS, struck

MOST_HINTS: Final = 2
"""Commands that a hint names."""
SAID_OTHERWISE: Final = {"--once": "gpumon snapshot"}
"""Options of other monitors, and what they are here."""


class Usage(Exception):  # noqa: N818 - no failure of gpumon
    """The command line can not be understood; the text says why, in one line."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        # argparse repeats the value of a switch, which may be a secret.
        before, found, _ = message.partition("ignored explicit argument")
        raise Usage(f"{before}{'takes no value' if found else ''} (see {self.prog} --help)")

    def format_help(self) -> str:
        if self.prog != "gpumon":
            return super().format_help()
        from gpumon.config.environment import VARIABLES

        lines = [f"  {name:<24}{meaning}" for name, (_, meaning) in VARIABLES.items()]
        commands = [f"  {name or '(none)':<24}{meaning}" for name, meaning in COMMANDS.items()]
        return "\n".join(
            (
                super().format_help(),
                "commands:",
                *commands,
                "\nenvironment (above the file, below options):",
                f"  {'GPUMON_CONFIG':<24}config file",
                f"  {'GPUMON_PROFILES':<24}folder of imported profiles (default ~/.local/share/gpumon/profiles)",
                *lines,
                "\nexit codes: 0 ok, 1 failed, 2 usage or config, 3 nothing to monitor, 4 infeasible (size)\n",
            )
        )


def understood(arguments: list[str]) -> tuple[argparse.Namespace, str]:
    """The options, and the command: the first word that is no option and no option's value."""
    command, rest = "", list(arguments)
    known = {option: "metavar" in how for option, _, how in OPTIONS}
    at = 0
    while at < len(arguments) and arguments[at].startswith("-") and arguments[at] != "--":
        if arguments[at].startswith("--") and arguments[at].partition("=")[0] not in {*known, "--help", "--version"}:
            raise Usage(f"{_unrecognized(arguments[at:][:1])}{_hint(arguments[at:][:1])} (see gpumon --help)")
        at += 2 if known.get(arguments[at]) else 1
    if at < len(arguments) and arguments[at] != "--":
        command = rest.pop(at)
    if command not in COMMANDS or (not command and len(rest) < len(arguments)):
        raise Usage(_no_such_command(command))
    rest = _joined(rest)
    parser = _parser(command)
    # Words may stand between options: `profiles add --tp 2 a.json`.
    chosen, unknown = parser.parse_known_intermixed_args(rest)
    if unknown:
        parser.error(_unrecognized(unknown) + ("" if command else _hint(unknown)))
    return chosen, command


def _joined(words: list[str]) -> list[str]:
    """`--at -10m` as one word: argparse takes what begins with a dash for an option."""
    times = {option for option, _, how in OPTIONS if how.get("metavar") == "TIME"}
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] in times and word[:1] == "-" and word[1:2].isdigit():
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


def _unrecognized(words: Sequence[str]) -> str:
    """Names the options and stray words, but no option's value: it may be a secret."""
    named = [
        struck(word.partition("=")[0]) if word.startswith("-") else f"{struck(word)!a}"
        for word, before in zip(words, ("", *words), strict=False)
        if word.startswith("-") or not before.startswith("-")
    ]
    return f"unrecognized arguments: {' '.join(named)}"


def _hint(words: Sequence[str]) -> str:
    """The commands that take the first of these options: the screen does not."""
    option = next((word.partition("=")[0] for word in words if word.startswith("-")), "")
    named = [f"gpumon {command} {option}" for name, commands, _ in OPTIONS if name == option for command in commands]
    meant = SAID_OTHERWISE.get(option) or ", or ".join(named[:MOST_HINTS])
    return f"; did you mean {meant}?" if meant else ""


def _no_such_command(command: str) -> str:
    import difflib

    names = [name for name in COMMANDS if name]
    nearest = difflib.get_close_matches(command, names, n=1)
    hint = f"did you mean {nearest[0]}?" if nearest else f"known: {', '.join(names)}"
    return f"no such command: {struck(command)!a}; {hint}"


def _parser(command: str) -> _Parser:
    prog = f"gpumon {command}".rstrip()
    words = [(name, how) for name, commands, how in WORDS if command in commands]
    named = " ".join(how["metavar"] for _, how in words)
    usage = (
        f"%(prog)s {named or '[options]'}{' [options]' if named else ''}" if command else "%(prog)s [command] [options]"
    )
    parser = _Parser(prog=prog, usage=usage, description=COMMANDS[command], allow_abbrev=False, add_help=False)
    parser.add_argument("-h", "--help", action="help", help="show this and exit")
    parser.add_argument(
        "--version", action="version", version=f"gpumon {__version__}", help="show the version and exit"
    )
    for name, how in words:
        parser.add_argument(name, **how)
    for option, commands, how in OPTIONS:
        if command in commands:
            parser.add_argument(option, **how)
    return parser
