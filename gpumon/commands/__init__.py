"""The commands: a module each, with its options and what it does, imported when it is asked for."""

from __future__ import annotations

import argparse
import importlib
from typing import Final, Protocol, cast

COMMANDS: Final = {
    "demo": "the screen, on a simulated server with eight GPUs and three engines",
    "snapshot": "print one snapshot and exit",
    "watch": "print a snapshot per tick",
    "record": "keep every reading in a file, to replay and to report on (docs/recording.md)",
    "replay": "a recording on the screen, from any of its times (docs/recording.md)",
    "size": "how many instances, GPUs and servers a scenario file takes",
    "models": "facts of models and where they are from: list, search WORD..., show NAME",
    "profiles": "load tests to size from: add FILE..., list, show NAME, remove NAME",
    "report": "sum up a recording: use, tokens, energy, cost, incidents",
    "export": "the moments of a recording as CSV or JSON lines",
    "serve-metrics": "everything as OpenMetrics, for a Prometheus to scrape (docs/serve-metrics.md)",
    "rules": "recording rules, alerts and a dashboard for a Prometheus: MFU and MBU of a whole fleet (docs/rules.md)",
    "web": "the screen in a browser (docs/web.md)",
    "doctor": "what works here, what does not, why, and the fix",
    "config": "print the settings in effect, or the example file",
    "completion": "print what completes this command line in bash, zsh or fish",
}
"""Name and summary, in the order of the help."""


class Command(Protocol):
    """What a module of this folder has."""

    def options(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's options and words."""

    def run(self, chosen: argparse.Namespace) -> int:
        """Do it; returns the exit code. Raises Usage, ConfigError or Failed, which end in one line on stderr."""


def command(name: str) -> Command:
    """The module of a command; "" is the screen."""
    return cast("Command", importlib.import_module(f"gpumon.commands.{name.replace('-', '_') or 'screen'}"))
