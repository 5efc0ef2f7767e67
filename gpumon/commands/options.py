"""Options that several commands share, and the converters of their values."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from gpumon.specs.units import DAY_S

if TYPE_CHECKING:
    SubParsers = argparse._SubParsersAction[argparse.ArgumentParser]

MOMENT_METAVAR: Final = "FROM"
"""Name of a word that is a moment, as `gpumon compare` has it."""
TIME_METAVAR: Final = "TIME"
"""Name of the value of an option that is a moment."""
_LONGEST_WORD: Final = 40
"""Characters of a word of the command line in an error."""


class UsageError(Exception):
    """The command line cannot be understood; the text says why, in one line."""


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
        word = "a whole number" if kind is int else "a number"
        raise argparse.ArgumentTypeError(f"must be {word} from {low:g} to {high:.10g}, not {redacted(text)!a}")

    return read


def seconds_option(text: str) -> float:
    """A converter for argparse: a text to seconds, with a unit as in `--at -10m` or without one."""
    return seconds_up_to(DAY_S, text, "90s, 5m, 1h, up to 24h")


def seconds_up_to(most_s: float, text: str, examples: str) -> float:
    """The seconds of an option's text, with a unit or without one. Raises ArgumentTypeError, with `examples` of what is
    allowed, for other texts and for more than `most_s`."""
    from gpumon.readings.when import length_of

    seconds = length_of(text)
    if seconds is None:
        with contextlib.suppress(ValueError):
            seconds = float(text)
    if seconds is None or not 0.0 <= seconds <= most_s:
        raise argparse.ArgumentTypeError(f"must be seconds, or such as {examples}, not {redacted(text)!a}")
    return seconds


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


def add_recording(parser: argparse.ArgumentParser) -> None:
    """Add the recording to read."""
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="recording, or folder of a bundle (default: this host's recording)"
    )


def add_span(parser: argparse.ArgumentParser) -> None:
    """Add the options that say from when to when: `chosen.since` and `chosen.until`."""
    parser.add_argument(
        "--from", metavar=TIME_METAVAR, dest="since", help="03:10, 2026-11-22T03:10Z, or -10m (default: start)"
    )
    parser.add_argument("--to", metavar=TIME_METAVAR, dest="until", help="same (default: end)")


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
