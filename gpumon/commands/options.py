"""The parsers of the command line, the options that several commands share, and the settings that they override.

No message repeats the value of an option that is not known: it may be a secret.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from gpumon import __version__
from gpumon.commands import COMMANDS, command

if TYPE_CHECKING:
    SubParsers = argparse._SubParsersAction[argparse.ArgumentParser]
    from gpumon.config.environment import Override
    from gpumon.config.load import Loaded
    from gpumon.config.options import Options

OTHER_OPTIONS: Final = {"--once": "gpumon snapshot", "--list": "--scenario list"}
"""Options that people try, and what they are here."""
LIST: Final = "list"
"""`--scenario list` prints all scenarios."""


class UsageError(Exception):
    """The command line cannot be understood; the text says why, in one line."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are exceptions."""

    def error(self, message: str) -> NoReturn:
        """Raises UsageError."""
        # argparse repeats the value of a switch, which may be a secret.
        before, switch, _ = message.partition("ignored explicit argument")
        reason = ""
        if switch:
            reason = "takes no value"
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
        _fill(nested.add_parser(name, help=summary, description=summary, allow_abbrev=False, add_help=False), name)
    return parser


def parser_of(name: str) -> Parser:
    """The parser of one command, without the others; "" is the screen."""
    about = COMMANDS.get(name, "monitor GPUs and the LLM engines on them; without a command it shows the screen")
    parser = Parser(prog=f"gpumon {name}".rstrip(), description=about, allow_abbrev=False, add_help=False)
    _fill(parser, name)
    return parser


def _fill(parser: argparse.ArgumentParser, name: str) -> None:
    parser.add_argument("-h", "--help", action="help", help="show this and exit")
    parser.add_argument(
        "--version", action="version", version=f"gpumon {__version__}", help="show the version and exit"
    )
    command(name).options(parser)


def understood(arguments: Sequence[str]) -> tuple[argparse.Namespace, str]:
    """The options, and the command. Options may stand before and after it. Raises UsageError."""
    words = list(arguments)
    of_screen = parser_of("")
    name = _take_command(words, of_screen)
    parser: argparse.ArgumentParser
    above: argparse.ArgumentParser | None = None
    if name:
        parser, above = _parser_of_action(parser_of(name), words)
    elif _asks_help(words):
        parser = command_parser()
    else:
        parser = of_screen
    if _asks_help(words):
        parser.print_help()
        parser.exit()
    # Words may stand between options: `profiles add --tp 2 a.json`.
    chosen, unknown = parser.parse_known_intermixed_args(_joined(parser, words))
    if unknown:
        if not name:
            above = command_parser()
        parser.error(_unrecognized(unknown) + _hint(unknown, parser, above))
    return chosen, name


def _take_command(words: list[str], of_screen: argparse.ArgumentParser) -> str:
    """The command, taken out of the words; empty: none, which is the screen. Raises UsageError."""
    takes = _takes_value(of_screen)
    place = _first_word(words, takes)
    options = []
    for word in words[:place]:
        if word.startswith("-"):
            options.append(word)
    if any(word.partition("=")[0] not in takes for word in options):
        # An option that the screen has not may belong to the command behind it.
        everything = command_parser()
        place = _first_word(words, _takes_value(everything))
        _check_known(words[:place], everything)
    if place is None:
        return ""
    name = words.pop(place)
    if name not in COMMANDS:
        raise UsageError(_no_such("command", name, COMMANDS))
    return name


def _check_known(words: Sequence[str], everything: argparse.ArgumentParser) -> None:
    """Refuse an option that no command has. Raises UsageError."""
    takes = _takes_value(everything)
    for word in words:
        if word.startswith("--") and word.partition("=")[0] not in takes:
            raise UsageError(f"{_unrecognized([word])}{_hint([word], None, everything)} (see gpumon --help)")


def _parser_of_action(
    parser: argparse.ArgumentParser, words: list[str]
) -> tuple[argparse.ArgumentParser, argparse.ArgumentParser | None]:
    """The parser of a command's action (`profiles add`), which is taken out of the words, and the one above it.
    Raises UsageError."""
    above = None
    while nested := subcommands(parser):
        place = _first_word(words, _takes_value(parser))
        if place is None and _asks_help(words):
            break
        action = LIST if place is None else words[place]
        if action not in nested:
            raise UsageError(f"{parser.prog}: {_no_such('action', action, nested)}")
        if place is not None:
            del words[place]
        above = parser
        parser = nested[action]
    return parser, above


def _asks_help(words: Sequence[str]) -> bool:
    return not {"-h", "--help"}.isdisjoint(words)


def _first_word(words: Sequence[str], takes: Mapping[str, bool]) -> int | None:
    """Index of the first word that is no option and no option's value; None: there is none before a `--`."""
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "--":
        at += 2 if takes.get(words[at]) else 1
    if at < len(words) and words[at] != "--":
        return at
    return None


def _takes_value(parser: argparse.ArgumentParser) -> dict[str, bool]:
    """Its options, and those of its commands; whether each has a value."""
    takes = {}
    for action in actions(parser):
        for option in action.option_strings:
            takes[option] = action.nargs != 0
    for nested in subcommands(parser).values():
        takes |= _takes_value(nested)
    return takes


MOMENT: Final = "FROM"
"""Name of a word that is a moment, as `gpumon compare` has it."""


_BEFORE: Final = re.compile(r"-\d")
"""Beginning of a time before now, `-10m`."""


def _joined(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """`--at -10m` as one word: argparse takes what begins with a dash for an option. A blank in front of a `-10m` that
    belongs to no option keeps it from being taken for one."""
    times: set[str] = set()
    for action in actions(parser):
        if action.metavar == "TIME":
            times.update(action.option_strings)
    takes_moments = MOMENT in {action.metavar for action in actions(parser)}
    joined: list[str] = []
    for word in words:
        is_before = _BEFORE.match(word) is not None
        if is_before and joined and joined[-1] in times:
            joined[-1] += f"={word}"
        elif is_before and takes_moments:
            joined.append(f" {word}")
        else:
            joined.append(word)
    return joined


def _unrecognized(words: Sequence[str]) -> str:
    """Names the options and stray words, but no option's value: it may be a secret."""
    named = []
    for word, before in zip(words, ("", *words), strict=False):
        if word.startswith("-") or not before.startswith("-"):
            if word.startswith("-"):
                named.append(struck(word.partition("=")[0]))
            else:
                named.append(f"{struck(word)!a}")
    return f"unrecognized arguments: {' '.join(named)}"


def _hint(words: Sequence[str], parser: argparse.ArgumentParser | None, above: argparse.ArgumentParser | None) -> str:
    """The option or the commands that do what the first of these options promises; empty where none is known."""
    option = _first_option(words)
    meant = _other_option(option, parser, above)
    if not meant and above is not None:
        meant = ", or ".join(_takers(option, above)[:2])
    if meant:
        return f"; did you mean {meant}?"
    return ""


def _first_option(words: Sequence[str]) -> str:
    for word in words:
        if word.startswith("-"):
            return word.partition("=")[0]
    return ""


def _other_option(option: str, parser: argparse.ArgumentParser | None, above: argparse.ArgumentParser | None) -> str:
    """Its name here: an option that this parser has, or a command where some stand below the one above."""
    other = OTHER_OPTIONS.get(option, "")
    if not other.startswith("--"):
        if above is None:
            return ""
        return other
    if parser is not None and other.split()[0] in _takes_value(parser):
        return other
    return ""


def _takers(option: str, above: argparse.ArgumentParser) -> list[str]:
    """The commands below a parser that take an option."""
    takers = []
    for name, nested in subcommands(above).items():
        if option in _takes_value(nested):
            takers.append(f"{above.prog} {name} {option}")
    return takers


OTHER_WORDS: Final = {"fleet": "gpumon --host NAME, or gpumon --prometheus URL"}
"""Words that look like commands, and what does what they promise."""


def _no_such(what: str, name: str, names: Iterable[str]) -> str:
    import difflib

    names = list(names)
    nearest = difflib.get_close_matches(name, names, n=1)
    meant = OTHER_WORDS.get(name) or (nearest[0] if nearest else "")
    if meant:
        hint = f"did you mean {meant}?"
    else:
        hint = f"known: {', '.join(names)}"
    return f"no such {what}: {struck(name)!a}; {hint}"


def struck(word: str) -> str:
    """A word of the command line, cut, and without what may be a password."""
    from gpumon.config.urls import without_secrets

    return without_secrets(word)[:40]


def number_option(low: float, high: float, kind: type[float] | type[int] = float) -> Callable[[str], float]:
    """A type of option: a number in a range."""

    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = high + 1
        if not low <= value <= high:
            word = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"must be {word} from {low:g} to {high:.10g}, not {struck(text)!a}")
        return value

    return read


def seconds_option(text: str) -> float:
    """A type of option: seconds, with a unit as in `--at -10m` or without one."""
    from gpumon.readings.when import length_of

    seconds = length_of(text)
    if seconds is None:
        with contextlib.suppress(ValueError):
            seconds = float(text)
    if seconds is None or not 0.0 <= seconds <= 86400.0:
        raise argparse.ArgumentTypeError(f"must be seconds, or such as 90s, 5m, 1h, up to 24h, not {struck(text)!a}")
    return seconds


class _Scenario(argparse.Action):
    """The name of a scenario; `list` prints them all and exits."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,  # noqa: ARG002 - the signature of argparse's Action
    ) -> None:
        from gpumon.sources.simulator.scenarios import near, scenario

        if values == LIST:
            from gpumon.commands.streams import width, write

            write(scenarios(width()))
            parser.exit()
        try:
            scenario(values)
        except LookupError:
            names = near(values)
            if names:
                hint = f"did you mean {' or '.join(names)}?"
            else:
                hint = f"`gpumon demo --scenario {LIST}` names them"
            raise argparse.ArgumentError(self, f"no such scenario: {struck(values)!a}; {hint}") from None
        setattr(namespace, self.dest, values)


def scenarios(columns: int) -> str:
    """Every scenario: its name, the verdict that it shows, and what it is about."""
    import textwrap

    from gpumon.sources.simulator.scenarios import SCENARIOS

    names = max(len(play.name) for play in SCENARIOS)
    verdicts = max(len(play.expected) for play in SCENARIOS)
    lines = []
    for play in SCENARIOS:
        head = f"{play.name:<{names}}  {play.expected:<{verdicts}}  "
        for line in textwrap.wrap(play.about, max(30, columns - len(head))):
            lines.append(head + line)
            head = " " * len(head)
    return "\n".join(lines) + "\n"


def add_config(parser: argparse.ArgumentParser) -> None:
    """The option of every command."""
    parser.add_argument("--config", metavar="FILE", help="config file (default ~/.config/gpumon/config.toml)")


def add_monitor(parser: argparse.ArgumentParser) -> None:
    """Add the options of commands that read this host, or its settings of what to read."""
    parser.add_argument(
        "--endpoint",
        metavar="URL",
        action="append",
        help="engine to poll, URL or host:port (repeatable); replaces the config's list",
    )
    parser.add_argument("--interval", metavar="S", help="seconds between two readings (default 1)")
    add_config(parser)
    parser.add_argument(
        "--dcgm", metavar="URL", help="dcgm-exporter, URL or host:port: memory bandwidth on Ampere and older"
    )
    parser.add_argument("--no-nvml", action="store_true", help="do not read this host's GPUs")
    parser.add_argument("--no-discovery", action="store_true", help="do not search for engines")


def add_fleet(parser: argparse.ArgumentParser) -> None:
    """A fleet in the place of this host."""
    parser.add_argument(
        "--host",
        metavar="HOST",
        action="append",
        help="host of a fleet: ssh name, or URL of its serve-metrics (repeatable)",
    )
    parser.add_argument(
        "--host-install",
        action="store_true",
        help="on hosts by ssh without gpumon: run it from a temporary folder, removed at the end (docs/fleet.md)",
    )
    parser.add_argument(
        "--host-wheels",
        metavar="DIR",
        help="wheels for --host-install where the host's Python is another one (default ~/.cache/gpumon/wheels)",
    )
    parser.add_argument(
        "--prometheus", metavar="URL", help="show the fleet that this Prometheus scrapes (docs/fleet.md)"
    )


def add_screen(parser: argparse.ArgumentParser) -> None:
    """How to draw."""
    parser.add_argument("--ascii", action="store_true", help="use ASCII characters only")
    parser.add_argument("--no-mouse", action="store_true", help="do not capture the mouse")
    parser.add_argument("--theme", metavar="NAME", help="colours: a file in themes/, without .toml")


def add_demo(parser: argparse.ArgumentParser) -> None:
    """The simulated server in the place of this host."""
    parser.add_argument("--demo", action="store_true", help="watch the simulated server")
    add_scenario(parser)


def add_scenario(parser: argparse.ArgumentParser) -> None:
    """Add the option of the simulated server's scenario."""
    parser.add_argument(
        "--scenario",
        metavar="NAME",
        action=_Scenario,
        help="fault to simulate; `list` prints all names",
    )


def add_recording(parser: argparse.ArgumentParser) -> None:
    """A recording to read."""
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="recording, or folder of a bundle (default: this host's recording)"
    )


def add_span(parser: argparse.ArgumentParser) -> None:
    """From when to when."""
    parser.add_argument(
        "--from", metavar="TIME", dest="since", help="03:10, 2026-11-22T03:10Z, or -10m (default: start)"
    )
    parser.add_argument("--to", metavar="TIME", dest="until", help="same (default: end)")


def check_span(chosen: argparse.Namespace) -> None:
    """Raises UsageError where a span is asked for without a recording or a Prometheus that has it."""
    if (chosen.since or chosen.until) and not (chosen.recording or chosen.scraped):
        raise UsageError("--from and --to are times of --from-recording FILE or --from-prometheus: give one of these")


def add_action(nested: SubParsers, name: str, summary: str, run: Callable[..., object]) -> argparse.ArgumentParser:
    """A further command below one (`gpumon models show`): `chosen.action` is what it runs."""
    parser = nested.add_parser(name, help=summary, description=summary, allow_abbrev=False, add_help=False)
    parser.add_argument("-h", "--help", action="help", help="show this and exit")
    parser.set_defaults(action=run)
    add_config(parser)
    return parser


def add_forms(parser: argparse.ArgumentParser, **forms: str) -> None:
    """Switches of which one may be given: its name is `chosen.form`, empty without one."""
    group = parser.add_mutually_exclusive_group()
    for name, meaning in forms.items():
        group.add_argument(f"--{name}", action="store_const", dest="form", const=name, default="", help=meaning)


_SETTINGS: Final = (
    ("endpoint", "--endpoint", ("endpoint",), None),
    ("interval", "--interval", ("general", "interval_s"), None),
    ("dcgm", "--dcgm", ("dcgm", "url"), None),
    ("prometheus", "--prometheus", ("prometheus", "url"), None),
    ("host", "--host", ("host",), None),
    ("no_discovery", "--no-discovery", ("discovery", "enabled"), False),
    ("ascii", "--ascii", ("general", "ascii"), True),
    ("no_mouse", "--no-mouse", ("general", "mouse"), False),
    ("theme", "--theme", ("general", "theme"), None),
    ("listen", "--listen", ("exporter", "listen"), None),
    ("keep_days", "--keep-days", ("recorder", "keep_days"), None),
    ("keep_gb", "--keep-gb", ("recorder", "keep_gb"), None),
)
"""Options that override a setting: name, option, key path, and the value that a switch stands for."""


class Settings(NamedTuple):
    """Settings that a command works with."""

    loaded: Loaded
    options: Options


def _with_guests(loaded: Loaded, chosen: argparse.Namespace) -> Loaded:
    """The settings with what the command line says of hosts without gpumon. Raises UsageError."""
    changes: dict[str, object] = {}
    if getattr(chosen, "host_install", False):
        changes["install"] = True
    if getattr(chosen, "host_wheels", None) is not None:
        changes["wheels"] = chosen.host_wheels
    if not changes:
        return loaded
    if not loaded.config.host:
        raise UsageError("--host-install and --host-wheels: go with --host, or [[host]] of the config")
    from msgspec.structs import replace

    hosts = tuple(replace(host, **changes) for host in loaded.config.host)
    return replace(loaded, config=replace(loaded.config, host=hosts))


def settings(chosen: argparse.Namespace) -> Settings:
    """The config file with the environment and the options above it. Raises UsageError and ConfigError."""
    from gpumon.config.load import load
    from gpumon.config.options import Options

    if getattr(chosen, "host", None) and getattr(chosen, "prometheus", None):
        raise UsageError("--host and --prometheus are two ways to the same screen: give one of them")
    loaded = load(chosen.config or "", os.environ, _overrides(chosen))
    loaded = _with_fleet(loaded, chosen)
    loaded = _with_guests(loaded, chosen)
    demo = getattr(chosen, "demo", False)
    scenario = getattr(chosen, "scenario", None)
    if scenario and not demo:
        raise UsageError("--scenario is for the simulated server: add --demo")
    options = Options(
        nvml=not getattr(chosen, "no_nvml", False),
        demo=demo,
        scenario=scenario or "",
        window_s=getattr(chosen, "window", 2.0),
        count=getattr(chosen, "count", 0),
        duration_s=getattr(chosen, "duration", 0.0),
        config_file=loaded.file,
    )
    return Settings(loaded, options)


def _overrides(chosen: argparse.Namespace) -> list[Override]:
    """The settings that options stand for. Raises ConfigError."""
    from gpumon.config.environment import from_text

    overrides = []
    for name, option, path, switched in _SETTINGS:
        value = getattr(chosen, name, None)
        if value is None or value is False:
            continue
        if switched is not None:
            value = switched
        overrides.append(from_text(option, path, value))
    return overrides


def _with_fleet(loaded: Loaded, chosen: argparse.Namespace) -> Loaded:
    """The settings with what the command line says of a Prometheus."""
    from msgspec.structs import replace

    config = loaded.config
    if getattr(chosen, "interval", None) is not None:  # a fleet is asked so often, too; every second at most
        interval_s = max(1.0, config.general.interval_s)
        config = replace(config, prometheus=replace(config.prometheus, interval_s=interval_s))
    if getattr(chosen, "prometheus", None):  # the option goes before [[host]] of the file
        config = replace(config, host=())
    return replace(loaded, config=config)
