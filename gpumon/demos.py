"""The scenarios of `gpumon demo --scenario NAME`: the one that a name means, and the list of them."""

from __future__ import annotations

import textwrap

from gpumon.arguments import Usage
from gpumon.command_tables import struck

LIST = "list"
"""`--scenario list` prints them."""


def chosen(name: str | None, *, demo: bool) -> str:
    """The scenario as the command line has it; empty for none. Raises Usage where there is no such."""
    if name is None:
        return ""
    if not demo:
        raise Usage("--scenario is for the simulated server: add --demo")
    if name != LIST:
        from gpumon.sources.simulator.scenarios import scenario

        try:
            scenario(name)
        except LookupError:
            raise Usage(f"--scenario: {_unknown(name)}") from None
    return name


def _unknown(name: str) -> str:
    from gpumon.sources.simulator.scenarios import near

    names = near(name)
    hint = f"did you mean {' or '.join(names)}?" if names else f"`gpumon demo --scenario {LIST}` names them"
    return f"no such scenario: {struck(name)!a}; {hint}"


def listing(width: int) -> str:
    """Every scenario: its name, the verdict that it shows, and what it is about."""
    from gpumon.sources.simulator.scenarios import SCENARIOS

    names = max(len(each.name) for each in SCENARIOS)
    verdicts = max(len(each.expected.value) for each in SCENARIOS)
    lines = []
    for each in SCENARIOS:
        head = f"{each.name:<{names}}  {each.expected.value.replace('_', ' '):<{verdicts}}  "
        about = textwrap.wrap(each.about, max(30, width - len(head)))
        lines += [head + about[0], *(" " * len(head) + more for more in about[1:])]
    return "\n".join(lines) + "\n"
