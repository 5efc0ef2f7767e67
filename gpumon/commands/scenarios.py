"""The option `--scenario`, and the list of scenarios that it prints."""

from __future__ import annotations

import argparse
from typing import Any, Final

from gpumon.commands.options import redacted

LIST: Final = "list"
"""`--scenario list` prints all scenarios."""


class ScenarioOption(argparse.Action):
    """The name of a scenario; `list` prints them all and exits."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,  # noqa: ARG002 - the signature of argparse's Action
    ) -> None:
        from gpumon.demo.scenarios import near, scenario

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

    from gpumon.demo.scenarios import SCENARIOS

    name_width = max(len(scenario.name) for scenario in SCENARIOS)
    verdict_width = max(len(scenario.expected) for scenario in SCENARIOS)
    lines = []
    for scenario in SCENARIOS:
        head = f"{scenario.name:<{name_width}}  {scenario.expected:<{verdict_width}}  "
        for line in textwrap.wrap(scenario.about, max(30, columns - len(head))):
            lines.append(head + line)
            head = " " * len(head)  # of the further lines
    return "\n".join(lines) + "\n"


def add_demo(parser: argparse.ArgumentParser) -> None:
    """Add the options of the simulated server in the place of this host."""
    parser.add_argument("--demo", action="store_true", help="watch the simulated server")
    add_scenario(parser)


def add_scenario(parser: argparse.ArgumentParser) -> None:
    """Add the option of the simulated server's scenario."""
    parser.add_argument(
        "--scenario",
        metavar="NAME",
        action=ScenarioOption,
        help="fault to simulate; `list` prints all names",
    )
