"""The commands: a module each, with its options and what it does, imported when it is asked for."""

from __future__ import annotations

import argparse
import importlib
from typing import Final, Protocol, cast

COMMANDS: Final = {
    "demo": "show the screen on a simulated server with eight GPUs and three engines",
    "snapshot": "print one screen of text: GPUs, engines, verdicts and actions",
    "status": "print one line for status bars and prompts; exit code 1: a critical verdict",
    "ack": "acknowledge a verdict: it is shown, and in no count; without words list what is acknowledged",
    "watch": "print a snapshot every second, as text or JSON",
    "record": "write every reading to a file, for replay and report (docs/recording.md)",
    "replay": "show a recording on the screen (docs/recording.md)",
    "size": "compute how many instances, GPUs and servers a scenario needs",
    "simulate": "simulate the latencies of requests on a number of instances (docs/simulate.md)",
    "models": "show model facts and their sources: list, search WORD..., show NAME",
    "profiles": "import load tests for sizing: add FILE..., list, show NAME, remove NAME",
    "report": "summarise a recording: utilisation, tokens, energy, cost, incidents",
    "compare": "compare two moments: rates, latencies, verdicts, and what was changed between",
    "export": "print a recording as CSV or JSON lines",
    "serve-metrics": "serve metrics for Prometheus (docs/serve-metrics.md)",
    "rules": "print recording rules, alerts and a dashboard for Prometheus and Grafana (docs/rules.md)",
    "webhook": "show the webhooks of the config, or send a test message (docs/alerts.md)",
    "web": "serve the screen to a browser (docs/web.md)",
    "doctor": "check drivers, engines, models and config, and print the fixes",
    "topo": "show how GPUs are connected (NVLink, PCIe, NUMA) and what each is set to",
    "config": "print the settings in effect, or the example file",
    "completion": "print shell completion for bash, zsh or fish, or the man page",
}
"""Name and summary, in the order of the help."""


class CommandModule(Protocol):
    """A module of this folder."""

    def options(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's options and words."""

    def run(self, chosen: argparse.Namespace) -> int:
        """Do it; returns the exit code. Raises UsageError, ConfigError or Failed, which end in one line on stderr."""


def command(name: str) -> CommandModule:
    """The module of a command; "" is the screen."""
    return cast("CommandModule", importlib.import_module(f"gpumon.commands.{name.replace('-', '_') or 'screen'}"))
