"""`gpumon doctor`: what works here, what does not, why, and the fix."""

from __future__ import annotations

import argparse
import asyncio

from gpumon.commands.options import add_monitor
from gpumon.commands.settings import settings
from gpumon.commands.streams import EXIT_FAILED, EXIT_OK, colour, width, write

options = add_monitor
"""Options of the doctor: the sources that it checks."""


def run(chosen: argparse.Namespace) -> int:
    """Check everything, and print; the exit code is 1 where something fails."""
    loaded, run_options = settings(chosen)
    from gpumon.outputs.doctor import any_failed, report
    from gpumon.sources.diagnosis import diagnose

    checks = asyncio.run(diagnose(loaded.config, run_options))
    if loaded.config.webhook:
        from gpumon.push.checks import webhook_checks

        checks += webhook_checks(loaded.config.webhook)
    write(report(checks, colour=colour(), width=width()))
    if any_failed(checks):
        return EXIT_FAILED
    return EXIT_OK
