"""A fleet printed: `snapshot` and `watch` with `--prometheus`."""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import time
from collections.abc import Callable, Mapping

from gpumon.config.options import Options
from gpumon.config.schema import Config
from gpumon.fleet.snapshot import NOTHING_YET, FleetSnapshot
from gpumon.fleetwatch import FleetControl

OK, FAILED, NOTHING = 0, 1, 3
"""Exit codes, as of all commands."""


def print_fleet(
    config: Config, options: Options, form: str, write: Callable[[str | bytes], None], width: int = 160
) -> int:
    """Print the fleet, `json` or `plain`, `options.count` times (0: until a signal); returns the exit code.

    `width`: columns of the table.

    It is 1 where the Prometheus never answered, 3 where it has nothing of any host.
    """
    return asyncio.run(_printed(FleetControl(config), options, _printer(form, width), write))


def _printer(form: str, width: int) -> Callable[[FleetSnapshot, Mapping[str, float]], str | bytes]:
    from gpumon.outputs.fleet import encode, report

    if form == "json":
        return lambda snapshot, prices: encode(snapshot, prices) + b"\n"
    return lambda snapshot, prices: report(snapshot, prices, width)


async def _printed(
    control: FleetControl,
    options: Options,
    printer: Callable[[FleetSnapshot, Mapping[str, float]], str | bytes],
    write: Callable[[str | bytes], None],
) -> int:
    done, number, snapshot = asyncio.Event(), 0, NOTHING_YET
    loop = asyncio.get_running_loop()
    for signal_ in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):
            loop.add_signal_handler(signal_, done.set)
    slot_s = time.monotonic()
    end_s = slot_s + (options.duration_s or math.inf)
    try:
        while not done.is_set():
            asked, stopped = asyncio.ensure_future(control.refreshed()), asyncio.ensure_future(done.wait())
            await asyncio.wait({asked, stopped}, return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            if not asked.done():
                asked.cancel()
                break
            snapshot = asked.result()
            write(printer(snapshot, control.prices))
            number += 1
            slot_s = max(slot_s + control.interval_s, time.monotonic())
            if (options.count and number >= options.count) or slot_s >= end_s:
                break
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(done.wait(), slot_s - time.monotonic())
    finally:
        await control.stop()
    if not snapshot.wall_s:
        return FAILED
    return OK if snapshot.hosts else NOTHING
