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
OTHER_WORDS: Final = {"fleet": "gpumon --host NAME, or gpumon --prometheus URL"}
"""Words that look like commands, and what does what they promise."""
LIST: Final = "list"
"""`--scenario list` prints all scenarios."""
DEFAULT_ACTION: Final = "list"
"""Action of a command with actions (`gpumon models`) where none is named."""
MOMENT_METAVAR: Final = "FROM"
"""Name of a word that is a moment, as `gpumon compare` has it."""
_TIME_METAVAR: Final = "TIME"
"""Name of the value of an option that is a moment."""
_BEFORE_NOW: Final = re.compile(r"-\d")
"""Beginning of a time before now, `-10m`."""
_LONGEST_WORD: Final = 40
"""Characters of a word of the command line in an error."""
_DAY_S: Final = 86400.0
_MOST_TAKERS: Final = 2
"""Commands that a hint names."""


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
        parser, parent = _parser_of_action(parser_of(name), words)
    elif _asks_help(words):
        parser = command_parser()
    else:
        parser = screen_parser
    if _asks_help(words):
        parser.print_help()
        parser.exit()
    # Words may stand between options: `profiles add --tp 2 a.json`.
    guarded_words = _guard_moments(parser, _join_times(parser, words))
    chosen, unknown = parser.parse_known_intermixed_args(guarded_words)
    if unknown:
        if not name:
            parent = command_parser()  # made only now: it imports every command
        parser.error(_unrecognized(unknown) + _hint(unknown, parser, parent))
    return chosen, name


def _take_command(words: list[str], screen_parser: argparse.ArgumentParser) -> str:
    """The command, taken out of the words; empty: none, which is the screen. Raises UsageError."""
    takes_value = _takes_value_by_option(screen_parser)
    place = _first_word(words, takes_value)
    options = []
    for word in words[:place]:  # all words, where none was found
        if word.startswith("-"):
            options.append(word)
    if any(word.partition("=")[0] not in takes_value for word in options):
        # An option that the screen has not may belong to the command behind it.
        everything = command_parser()
        place = _first_word(words, _takes_value_by_option(everything))
        _check_known(words[:place], everything)
    if place is None:
        return ""
    name = words.pop(place)
    if name not in COMMANDS:
        raise UsageError(_no_such("command", name, COMMANDS))
    return name


def _check_known(words: Sequence[str], everything: argparse.ArgumentParser) -> None:
    """Refuse an option that no command has. Raises UsageError."""
    takes_value = _takes_value_by_option(everything)
    for word in words:
        if word.startswith("--") and word.partition("=")[0] not in takes_value:
            raise UsageError(f"{_unrecognized([word])}{_hint([word], None, everything)} (see gpumon --help)")


def _parser_of_action(
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
        action_name = DEFAULT_ACTION
        if place is not None:
            action_name = words[place]
        if action_name not in nested:
            raise UsageError(f"{parser.prog}: {_no_such('action', action_name, nested)}")
        if place is not None:
            del words[place]
        parent = parser
        parser = nested[action_name]
    return parser, parent


def _asks_help(words: Sequence[str]) -> bool:
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
    takes_value = {}
    for action in actions(parser):
        for option in action.option_strings:
            takes_value[option] = action.nargs != 0
    for nested in subcommands(parser).values():
        takes_value |= _takes_value_by_option(nested)
    return takes_value


def _join_times(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """The words with `--at -10m` as one, `--at=-10m`: argparse takes what begins with a dash for an option."""
    time_options: set[str] = set()
    for action in actions(parser):
        if action.metavar == _TIME_METAVAR:
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
    guarded = []
    for word in words:
        if _BEFORE_NOW.match(word):
            guarded.append(f" {word}")
        else:
            guarded.append(word)
    return guarded


def _unrecognized(words: Sequence[str]) -> str:
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


def _hint(words: Sequence[str], parser: argparse.ArgumentParser | None, parent: argparse.ArgumentParser | None) -> str:
    """The end of an error: the option or the commands that the first of these options may have meant, if any."""
    option = _first_option(words)
    meant = _other_option(option, parser, parent)
    if not meant and parent is not None:
        meant = ", or ".join(_commands_with(option, parent)[:_MOST_TAKERS])
    if meant:
        return f"; did you mean {meant}?"
    return ""


def _first_option(words: Sequence[str]) -> str:
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
    commands = []
    for name, nested in subcommands(parent).items():
        if option in _takes_value_by_option(nested):
            commands.append(f"{parent.prog} {name} {option}")
    return commands


def _no_such(kind: str, name: str, names: Iterable[str]) -> str:
    """The error for an unknown command or action (`kind`), with what was meant or with those that are known."""
    import difflib

    names = list(names)
    meant = OTHER_WORDS.get(name, "")
    nearest = difflib.get_close_matches(name, names, n=1)
    if not meant and nearest:
        meant = nearest[0]
    if meant:
        hint = f"did you mean {meant}?"
    else:
        hint = f"known: {', '.join(names)}"
    return f"no such {kind}: {redacted(name)!a}; {hint}"


def redacted(word: str) -> str:
    """A word of the command line as errors name it: cut, and without what may be a password."""
    from gpumon.config.urls import without_secrets

    return without_secrets(word)[:_LONGEST_WORD]


def number_option(low: float, high: float, kind: type[float] | type[int] = float) -> Callable[[str], float]:
    """A converter for argparse: a text to a number in a range."""

    def read(text: str) -> float:
        with contextlib.suppress(ValueError):
            value = kind(text)
            if low <= value <= high:
                return value
        word = "a number"
        if kind is int:
            word = "a whole number"
        raise argparse.ArgumentTypeError(f"must be {word} from {low:g} to {high:.10g}, not {redacted(text)!a}")

    return read


def seconds_option(text: str) -> float:
    """A converter for argparse: a text to seconds, with a unit as in `--at -10m` or without one."""
    from gpumon.readings.when import length_of

    seconds = length_of(text)
    if seconds is None:
        with contextlib.suppress(ValueError):
            seconds = float(text)
    if seconds is None or not 0.0 <= seconds <= _DAY_S:
        raise argparse.ArgumentTypeError(f"must be seconds, or such as 90s, 5m, 1h, up to 24h, not {redacted(text)!a}")
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
            raise argparse.ArgumentError(self, f"no such scenario: {redacted(values)!a}; {hint}") from None
        setattr(namespace, self.dest, values)


def scenarios(columns: int) -> str:
    """The text of `--scenario list`: the name of each scenario, the verdict that it shows, and what it is about."""
    import textwrap

    from gpumon.sources.simulator.scenarios import SCENARIOS

    name_width = max(len(scenario.name) for scenario in SCENARIOS)
    verdict_width = max(len(scenario.expected) for scenario in SCENARIOS)
    lines = []
    for scenario in SCENARIOS:
        head = f"{scenario.name:<{name_width}}  {scenario.expected:<{verdict_width}}  "
        for line in textwrap.wrap(scenario.about, max(30, columns - len(head))):
            lines.append(head + line)
            head = " " * len(head)  # of the further lines
    return "\n".join(lines) + "\n"


def add_config(parser: argparse.ArgumentParser) -> None:
    """Add the option of the config file, which every command has."""
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
    """Add the options that name a fleet in the place of this host."""
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
    """Add the options that say how the screen is drawn."""
    parser.add_argument("--ascii", action="store_true", help="use ASCII characters only")
    parser.add_argument("--no-mouse", action="store_true", help="do not capture the mouse")
    parser.add_argument("--theme", metavar="NAME", help="colours: a file in themes/, without .toml")


def add_demo(parser: argparse.ArgumentParser) -> None:
    """Add the options of the simulated server in the place of this host."""
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
    """Add the recording to read."""
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="recording, or folder of a bundle (default: this host's recording)"
    )


def add_span(parser: argparse.ArgumentParser) -> None:
    """Add the options that say from when to when: `chosen.since` and `chosen.until`."""
    parser.add_argument(
        "--from", metavar="TIME", dest="since", help="03:10, 2026-11-22T03:10Z, or -10m (default: start)"
    )
    parser.add_argument("--to", metavar="TIME", dest="until", help="same (default: end)")


def check_span(chosen: argparse.Namespace) -> None:
    """Refuse a span without a recording or a Prometheus that has it. Raises UsageError."""
    if (chosen.since or chosen.until) and not (chosen.recording or chosen.scraped):
        raise UsageError("--from and --to are times of --from-recording FILE or --from-prometheus: give one of these")


def add_action(nested: SubParsers, name: str, summary: str, run: Callable[..., object]) -> argparse.ArgumentParser:
    """Add an action of a command (`gpumon models show`): `chosen.action` is what it runs. Returns its parser."""
    parser = nested.add_parser(name, help=summary, description=summary, allow_abbrev=False, add_help=False)
    parser.add_argument("-h", "--help", action="help", help="show this and exit")
    parser.set_defaults(action=run)
    add_config(parser)
    return parser


def add_forms(parser: argparse.ArgumentParser, **forms: str) -> None:
    """Add switches of which one may be given: its name is `chosen.form`, empty without one."""
    group = parser.add_mutually_exclusive_group()
    for name, meaning in forms.items():
        group.add_argument(f"--{name}", action="store_const", dest="form", const=name, default="", help=meaning)


class _SettingOption(NamedTuple):
    """An option that overrides a setting."""

    option: str
    path: tuple[str, ...]
    """Key path of the setting."""
    switch_value: bool | None = None
    """Value that a switch stands for; None: the option has a value of its own."""

    @property
    def name(self) -> str:
        """Name of the option in argparse's namespace."""
        return self.option.removeprefix("--").replace("-", "_")


_SETTING_OPTIONS: Final = (
    _SettingOption("--endpoint", ("endpoint",)),
    _SettingOption("--interval", ("general", "interval_s")),
    _SettingOption("--dcgm", ("dcgm", "url")),
    _SettingOption("--prometheus", ("prometheus", "url")),
    _SettingOption("--host", ("host",)),
    _SettingOption("--no-discovery", ("discovery", "enabled"), switch_value=False),
    _SettingOption("--ascii", ("general", "ascii"), switch_value=True),
    _SettingOption("--no-mouse", ("general", "mouse"), switch_value=False),
    _SettingOption("--theme", ("general", "theme")),
    _SettingOption("--listen", ("exporter", "listen")),
    _SettingOption("--keep-days", ("recorder", "keep_days")),
    _SettingOption("--keep-gb", ("recorder", "keep_gb")),
)
_DEFAULTS: Final[Mapping[str, object]] = {
    "interval": None,
    "no_nvml": False,
    "host": None,
    "host_install": False,
    "host_wheels": None,
    "prometheus": None,
    "demo": False,
    "scenario": None,
    "window": 2.0,
    "count": 0,
    "duration": 0.0,
}
"""Values that `settings` takes for options which a command does not have."""


class Settings(NamedTuple):
    """Settings that a command works with."""

    loaded: Loaded
    options: Options


def _with_guests(loaded: Loaded, chosen: argparse.Namespace) -> Loaded:
    """The settings with what the command line says of hosts without gpumon. Raises UsageError."""
    changes: dict[str, object] = {}
    if chosen.host_install:
        changes["install"] = True
    if chosen.host_wheels is not None:
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

    chosen = argparse.Namespace(**{**_DEFAULTS, **vars(chosen)})
    if chosen.host and chosen.prometheus:
        raise UsageError("--host and --prometheus are two ways to the same screen: give one of them")
    loaded = load(chosen.config or "", os.environ, _overrides(chosen))
    loaded = _with_fleet(loaded, chosen)
    loaded = _with_guests(loaded, chosen)
    if chosen.scenario and not chosen.demo:
        raise UsageError("--scenario is for the simulated server: add --demo")
    options = Options(
        nvml=not chosen.no_nvml,
        demo=chosen.demo,
        scenario=chosen.scenario or "",
        window_s=chosen.window,
        count=chosen.count,
        duration_s=chosen.duration,
        config_file=loaded.file,
    )
    return Settings(loaded, options)


def _overrides(chosen: argparse.Namespace) -> list[Override]:
    """The settings that options stand for. A command has only some of the options. Raises ConfigError."""
    from gpumon.config.environment import from_text

    overrides = []
    given = vars(chosen)
    for setting in _SETTING_OPTIONS:
        value = given.get(setting.name)
        if value is None or value is False:  # the option is not there, or a switch that was not given
            continue
        if setting.switch_value is not None:
            value = setting.switch_value
        overrides.append(from_text(setting.option, setting.path, value))
    return overrides


def _with_fleet(loaded: Loaded, chosen: argparse.Namespace) -> Loaded:
    """The settings with what the command line says of a fleet."""
    from msgspec.structs import replace

    config = loaded.config
    if chosen.interval is not None:  # an interval also sets the fleet's, which is a second at least
        interval_s = max(1.0, config.general.interval_s)
        config = replace(config, prometheus=replace(config.prometheus, interval_s=interval_s))
    if chosen.prometheus:  # the option goes before [[host]] of the file
        config = replace(config, host=())
    return replace(loaded, config=config)
