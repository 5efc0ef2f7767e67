"""A simulated fleet for a Prometheus: hosts with a dcgm-exporter and vLLM servers, all of them on one port.

python -m tests.perf.farm [--hosts 125] [--gpus 8] [--engines 500] [--port 0]     serves, and prints the scrape configs
python -m tests.perf.farm --demo [--hosts 12]                                     with a Prometheus and the screen
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.fakes.prometheus import ROOT, Prometheus
from tests.perf.contestants import BIN
from tests.perf.farm_pages import DcgmPages, EnginePages, Gpu, Load, Model, gpu_of, hash_of

HOSTS, GPUS, ENGINES = 125, 8, 500
SCRAPES: Final = "farm.yml"
AGE_S: Final = 86400.0
"""Since when the servers run, so that their counters are large."""
MODELS: Final = {
    "8b": Model("meta-llama/Llama-3.1-8B-Instruct", 1, 8.0, 16.1, 48.0, 0.021, 900.0, 220.0, 131072.0),
    "7b": Model("Qwen/Qwen2.5-7B-Instruct", 1, 7.6, 15.2, 36.0, 0.019, 1400.0, 160.0, 57344.0),
    "moe": Model("Qwen/Qwen3-30B-A3B", 2, 3.0, 61.0, 64.0, 0.018, 700.0, 400.0, 98304.0),
    "70b": Model("meta-llama/Llama-3.3-70B-Instruct", 4, 70.0, 141.0, 40.0, 0.034, 1100.0, 300.0, 327680.0),
    "405b": Model("meta-llama/Llama-3.1-405B-Instruct-FP8", 8, 405.0, 406.0, 24.0, 0.062, 1300.0, 350.0, 516096.0),
}
LAYOUTS: Final = (("8b",) * 8, ("70b", "moe", "8b"), ("moe",) * 4, ("405b",), ("70b", "8b", "8b", "7b", "7b"))
"""Engines of a host, in turn; a little more than four on average, so that the last hosts have none."""
USUAL: Final = Load("usual", 1.0, 1.0, 0.0, 0.45)
LOADS: Final = (
    USUAL,
    Load("high", 1.6, 1.4, 0.0, 0.72),
    Load("low", 0.08, 0.8, 0.0, 0.03),
    USUAL,
    Load("hot", 1.9, 2.2, 37.0, 0.97),
    Load("idle", 0.0, 1.0, 0.0, 0.0),
    Load("fair", 0.6, 0.9, 0.0, 0.25),
)
"""Of the engines of a host, in turn: with five layouts they meet in 35 ways."""
DOWN_EVERY, DOWN_AT = 25, 8
"""One host in so many is down as a whole; of the next one the exporter alone."""
BARE_EVERY, BARE_AT = 25, 3
"""One host in so many has no engine that is scraped: its GPUs train."""
NAMESPACES: Final = ("chat", "search", "")
"""Namespaces of the pods of a host, in turn; a host without one does not run in Kubernetes: its series have no pods."""


class Target(NamedTuple):
    """One page: what the Prometheus asks, the labels that it adds, and who writes the page."""

    job: str
    path: str
    labels: dict[str, str]
    pages: DcgmPages | EnginePages
    down: bool = False


def fleet(
    hosts: int = HOSTS, gpus: int = GPUS, engines: int = ENGINES, *, started_s: float | None = None
) -> list[Target]:
    """All pages of a fleet; hosts are called gpu-000 and so on. `started_s`: Unix time since when its servers count, by
    default `AGE_S` ago; before it their counters are negative."""
    if started_s is None:
        started_s = time.time() - AGE_S
    found: list[Target] = []
    left = engines
    for number in range(hosts):
        mine = _host(number, gpus, left, started_s)
        left -= sum(target.job == "vllm" for target in mine)
        found += mine
    return found


def _host(number: int, gpus: int, most: int, started_s: float) -> list[Target]:
    host = f"gpu-{number:03}"
    load = LOADS[number % len(LOADS)]
    down = number % DOWN_EVERY == DOWN_AT
    namespace = NAMESPACES[number % len(NAMESPACES)]
    found: list[Target] = []
    cards: list[Gpu] = []
    training = number % BARE_EVERY == BARE_AT
    layout = () if training else LAYOUTS[number % len(LAYOUTS)]
    for place, kind in enumerate(layout[:most]):
        model = MODELS[kind]
        if len(cards) + model.tp > gpus:
            break
        pod = f"{kind}-{number}-{place}" if namespace else ""
        cards += [gpu_of(model, load, _uuid(number, len(cards) + each), pod) for each in range(model.tp)]
        labels = {"node": host, "instance": f"{host}:{8000 + place}"}
        if pod:
            labels |= {"pod": pod, "namespace": namespace}
        pages = EnginePages(model, load, phase=hash_of(host) % 60 / 10.0 + place, started_s=started_s)
        found.append(Target("vllm", f"/{host}/engine/{place}/metrics", labels, pages, down))
    while len(cards) < gpus:
        uuid = _uuid(number, len(cards))
        cards.append(Gpu(uuid, 76.0, 0.98, 0.46, 0.41, 640.0) if training else Gpu(uuid, 0.0, 0.0, 0.0, 0.0, 71.0))
    exporter = DcgmPages(host, cards, started_s=started_s, namespace=namespace)
    silent = down or number % DOWN_EVERY == DOWN_AT + 1
    found.append(Target("dcgm", f"/{host}/dcgm/metrics", {"node": host, "instance": f"{host}:9400"}, exporter, silent))
    return found


def _uuid(host: int, gpu: int) -> str:
    return f"GPU-{host:08x}-0000-4000-8000-{gpu:012x}"


def scrapes(targets: Sequence[Target], folder: Path, port: int, refusing: int) -> list[str]:
    """Items of scrape_configs, and the files with targets that they name, written to `folder`.

    `refusing` is a port that nobody listens at: there the targets live that are down.
    """
    items: list[str] = []
    for job in ("dcgm", "vllm"):
        groups = [
            {
                "targets": [f"127.0.0.1:{refusing if target.down else port}"],
                "labels": {"__metrics_path__": target.path, **target.labels},
            }
            for target in targets
            if target.job == job
        ]
        (folder / f"{job}.json").write_text(json.dumps(groups))
        # A dcgm-exporter writes pod and namespace of the GPU's user itself.
        items.append(
            f"- {{job_name: {job}, honor_labels: {str(job == 'dcgm').lower()}, "
            f"file_sd_configs: [{{files: [{json.dumps(str(folder / (job + '.json')))}]}}]}}"
        )
    return items


class Answerer(asyncio.Protocol):
    """One connection of the Prometheus: answers a GET with the page of its path."""

    def __init__(self, pages: dict[bytes, DcgmPages | EnginePages]) -> None:
        self._pages = pages
        self._head = b""
        self._to: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asyncio calls it."""
        assert isinstance(transport, asyncio.Transport)
        self._to = transport

    def data_received(self, data: bytes) -> None:
        """Answer each whole request."""
        assert self._to is not None
        *heads, self._head = (self._head + data).split(b"\r\n\r\n")
        for head in heads:
            path = head.split(b" ", 2)[1]
            pages = self._pages.get(path)
            body = pages.page(time.time()) if pages else b""
            status = b"200 OK" if pages else b"404 Not Found"
            self._to.write(
                b"HTTP/1.1 %s\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: %d\r\n\r\n%s"
                % (status, len(body), body)
            )


async def serve(targets: Sequence[Target], port: int, folder: Path) -> None:
    """Serve until killed; writes the scrape configs to `folder`, then prints the port and their file."""
    pages = {target.path.encode(): target.pages for target in targets}
    server = await asyncio.get_running_loop().create_server(lambda: Answerer(pages), "127.0.0.1", port, backlog=1024)
    bound: int = server.sockets[0].getsockname()[1]
    # Bound and never listened at: connections to it are refused, and nobody else gets it.
    with socket.socket() as refusing:
        refusing.bind(("127.0.0.1", 0))
        items = scrapes(targets, folder, bound, refusing.getsockname()[1])
        (folder / SCRAPES).write_text("\n".join(["scrape_configs:", *items, ""]))
        print(bound, folder / SCRAPES, flush=True)
        await server.serve_forever()


class Farm(NamedTuple):
    """A farm that runs as a process of its own."""

    port: int
    pid: int
    scrapes: list[str]
    """Items of scrape_configs."""


@contextmanager
def running(folder: Path, hosts: int = HOSTS, gpus: int = GPUS, engines: int = ENGINES) -> Iterator[Farm]:
    """A farm, with its scrape configs for `tests.fakes.prometheus`; the files they name are in `folder`."""
    sizes = ["--hosts", str(hosts), "--gpus", str(gpus), "--engines", str(engines), "--folder", str(folder)]
    command = [sys.executable, "-m", "tests.perf.farm", *sizes]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline().split()[0])
            yield Farm(port, process.pid, (folder / SCRAPES).read_text().splitlines()[1:])
        finally:
            process.kill()


def demo(hosts: int, gpus: int, engines: int) -> int:
    """A farm, a Prometheus that scrapes it every 5 s, and the screen; returns its exit code."""
    for number in (signal.SIGHUP, signal.SIGTERM):  # a closed terminal ends what was started, too
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    with (
        tempfile.TemporaryDirectory() as name,
        running(Path(name), hosts, gpus, engines) as farm,
        Prometheus(Path(name), farm.scrapes, interval="5s") as prometheus,
    ):
        print(f"{prometheus.url}: {hosts} simulated hosts; waiting for two scrapes", flush=True)
        prometheus.until("count_over_time(vllm:num_requests_running[1m]) >= 2")
        settings = Path(name, "config.toml")
        settings.write_text(f'[prometheus]\nurl = "{prometheus.url}"\ninterval_s = 5\n')
        return subprocess.run([str(BIN / "gpumon"), "--config", str(settings)], check=False).returncode


def main() -> None:
    """Serve, or show."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--hosts", type=int, default=0)
    arguments.add_argument("--gpus", type=int, default=GPUS)
    arguments.add_argument("--engines", type=int, default=0, help="most of them; default four for each host")
    arguments.add_argument("--port", type=int, default=0)
    arguments.add_argument("--demo", action="store_true", help="12 hosts, a Prometheus and the screen")
    arguments.add_argument("--folder", type=Path, help="where the scrape configs are written; default a new one")
    given = arguments.parse_args()
    hosts = given.hosts or (12 if given.demo else HOSTS)
    engines = given.engines or ENGINES * hosts // HOSTS
    if given.demo:
        sys.exit(demo(hosts, given.gpus, engines))
    folder = given.folder or Path(tempfile.mkdtemp(prefix="farm-"))
    asyncio.run(serve(fleet(hosts, given.gpus, engines), given.port, folder.resolve()))


if __name__ == "__main__":
    main()
