"""What the rules cost the Prometheus that evaluates them: CPU per minute on a farm, with the rules and without.

python -m tests.perf.bench_rules [--hosts 50] [--engines 200] [--seconds 120] [--rules FILE]

--rules is a file made elsewhere, such as by another version; default: what `gpumon rules` prints of the farm.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Final

import psutil

from tests.fakes.prometheus import Prometheus
from tests.perf.farm import MODELS, running

SCRAPE_S: Final = 15
SETTLED_S: Final = 330.0
"""The longest windows are 5 minutes, and cost more the fuller they are."""
LIMIT: Final = 3.9
"""CPU s/min that the rules may add up to with what scraping costs: half of what the version 0.1 took."""


def cost(given: argparse.Namespace, *, ruled: bool) -> tuple[float, dict[str, float]]:
    """CPU seconds a minute of the server, and those of each group of rules."""
    with (
        tempfile.TemporaryDirectory() as name,
        running(Path(name), given.hosts, engines=given.engines) as farm,
        Prometheus(Path(name), farm.scrapes, interval=f"{SCRAPE_S}s", rules=[Path(name) / "*.rules"]) as server,
    ):
        if ruled:
            server.until("vllm:num_requests_running", results=given.engines // 4, timeout_s=90.0)
            time.sleep(2 * SCRAPE_S)
            (Path(name) / "gpumon.rules").write_bytes(_rules(given, server.url))
            psutil.Process(server.pid).send_signal(1)
        time.sleep(given.settle)
        begin, process = time.monotonic(), psutil.Process(server.pid)
        before = process.cpu_times()
        time.sleep(given.seconds)
        after, minutes = process.cpu_times(), (time.monotonic() - begin) / 60.0
        return (after.user + after.system - before.user - before.system) / minutes, _groups(server.url)


def _rules(given: argparse.Namespace, url: str) -> bytes:
    if given.rules:
        return Path(given.rules).read_bytes()
    words = ["rules", "--prometheus", url, "--gpu", "H100 SXM 80GB", "--price", "2"]
    words += [f"--gpus-per-engine={model.name}={model.tp}" for model in MODELS.values()]
    return subprocess.run([sys.executable, "-m", "gpumon", *words], stdout=subprocess.PIPE, check=True).stdout


def _groups(url: str) -> dict[str, float]:
    """Seconds a minute that each group takes, by its last evaluation."""
    with urllib.request.urlopen(f"{url}/api/v1/rules", timeout=30.0) as answer:
        groups = json.load(answer)["data"]["groups"]
    return {
        f"{one['name']}, every {one['interval']:g} s": one["evaluationTime"] * 60 / one["interval"] for one in groups
    }


def main() -> int:
    """Print both, and fail above the limit."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", type=int, default=50)
    parser.add_argument("--engines", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--settle", type=float, default=SETTLED_S)
    parser.add_argument("--rules", default="")
    parser.add_argument("--only", choices=("with", "without"), default="")
    given = parser.parse_args()
    spent = {}
    for ruled in (False, True):
        if given.only != ("without" if ruled else "with"):
            spent[ruled], groups = cost(given, ruled=ruled)
            print(f"{'with' if ruled else 'without'} rules: {spent[ruled]:.2f} CPU s/min", flush=True)
            for name, seconds in groups.items():
                print(f"    {name:<40} {seconds:.2f} s/min")
    return int(spent.get(True, 0.0) > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
