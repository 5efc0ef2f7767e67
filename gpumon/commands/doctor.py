"""`gpumon doctor`: what works here, what does not, why, and the fix."""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING

from gpumon.commands.options import add_monitor
from gpumon.commands.settings import settings
from gpumon.commands.streams import EXIT_FAILED, EXIT_OK, colour, width, write

if TYPE_CHECKING:
    from gpumon.config.schema import Config


def options(parser: argparse.ArgumentParser) -> None:
    """Options of the doctor: the sources that it checks."""
    add_monitor(parser)
    parser.add_argument(
        "--prometheus", metavar="URL", help="print how the targets of this Prometheus are named, and what is not read"
    )


def run(chosen: argparse.Namespace) -> int:
    """Check everything, and print; the exit code is 1 where something fails."""
    loaded, run_options = settings(chosen)
    if chosen.prometheus:
        return asyncio.run(_print_naming(loaded.config))
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


async def _print_naming(config: Config) -> int:
    """Print how the targets of the Prometheus are named; the exit code is 1 where it does not answer."""
    from gpumon.outputs.names_table import naming_report
    from gpumon.sources.prometheus.source import FleetSource

    source = FleetSource(config.prometheus, config.model, config.endpoint)
    try:
        await source.settle()
        frame = await source.frame()
        write(naming_report(source.named_targets(), frame, width()))
    finally:
        await source.close()
    return EXIT_OK if frame.answered else EXIT_FAILED
