"""What a refresh of a large fleet costs: CPU time of each part, and memory, by simulated servers.

python -m tests.fleet.bench [--hosts 125]
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import psutil

from gpumon.config.schema import Config
from gpumon.fleet.fleet import Fleet
from gpumon.fleet.order import sort_fleet_rows
from gpumon.fleet.rows import by_host, by_model, total_row
from gpumon.fleet.whole import whole_fleet
from gpumon.outputs.fleet import encode
from gpumon.session.calibrator import Calibrator
from gpumon.sizing.live import from_live
from gpumon.sizing.live_gpus import gpus_here
from gpumon.sizing.plan import plan
from tests.fleet.fleets import fleet_frame, make
from tests.records import replace


def cpu_ms(name: str, work: Callable[[], Any]) -> Any:
    """Do it, and print what it took."""
    began_s = time.process_time()
    result = work()
    print(f"{name:<28} {1e3 * (time.process_time() - began_s):8.1f} ms")
    return result


def main() -> None:
    """Twelve refreshes, their frames made as they come; then what the screen and sizing make of the last one."""
    options = argparse.ArgumentParser()
    options.add_argument("--hosts", type=int, default=125)
    hosts = options.parse_args().hosts
    fleet_frame(0, hosts)
    gc.collect()
    gc.freeze()
    before = psutil.Process().memory_info().rss
    fleet, calibrator, refreshes, steps = Fleet(make()), Calibrator(Config()), [], []
    for at in range(12):
        frame = fleet_frame(at, hosts)
        began_s = last_s = time.process_time()
        for _ in fleet.steps(frame):
            now_s = time.process_time()
            steps.append(now_s - last_s)
            last_s = now_s
        refreshes.append(time.process_time() - began_s)
        calibrator.take(whole_fleet(fleet.snapshot))
    grown = psutil.Process().memory_info().rss - before
    snapshot = fleet.snapshot
    gpus = sum(len(host.snapshot.gpus) for host in snapshot.hosts)
    engines = sum(len(host.snapshot.engines) for host in snapshot.hosts)
    print(f"{hosts} hosts, {gpus} GPUs, {engines} engines; CPU time:")
    mid = statistics.median(refreshes)
    print(f"{'refresh, median':<28} {1e3 * mid:8.1f} ms, {1e3 * mid / hosts:.2f} ms a host")
    print(
        f"{'longest step':<28} {1e3 * max(steps):8.1f} ms, 99% below {1e3 * statistics.quantiles(steps, n=100)[-1]:.1f}"
    )
    print(f"{'memory grown':<28} {grown / 1e6:8.1f} MB")
    rows = cpu_ms("rows by host", lambda: by_host(snapshot, {"": 2.0}))
    models = cpu_ms("rows by model", lambda: by_model(snapshot, {"": 2.0}))
    cpu_ms("total", lambda: total_row(rows))
    cpu_ms("order", lambda: sort_fleet_rows(rows))
    cpu_ms("JSON", lambda: encode(snapshot, {}))
    shot = cpu_ms("whole", lambda: whole_fleet(snapshot))
    cpu_ms("calibration", lambda: calibrator.take(replace(shot, wall_s=shot.wall_s + 15.0)))
    here = cpu_ms("have", lambda: gpus_here(shot))
    seen = calibrator.calibration
    scenario = cpu_ms("scenario", lambda: from_live(shot, seen.observed(), None, seen.in_flight()))
    planned = [each for each in scenario.workload if "70B" in each.model]
    scenario = replace(scenario, workload=tuple(planned))
    known = cpu_ms("catalogues", calibrator.catalogues)
    answer = cpu_ms("plan", lambda: plan(scenario, known, dict(here)))
    print(f"{len(models)} models; planned: {answer.totals.gpus} GPUs, {answer.problem or 'no problem'}")


if __name__ == "__main__":
    main()
