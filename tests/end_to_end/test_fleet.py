"""The installed command over a real Prometheus: what the fleet shows of a server is what that server itself shows."""

from __future__ import annotations

import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.fakes.engine import Capture, FakeEngine
from tests.fakes.http_server import LoopbackServer, Reply, Request
from tests.fakes.prometheus import Prometheus, free_port
from tests.perf.farm import running
from tests.perf.farm_pages import DcgmPages, Gpu
from tests.program import Started, run_gpumon, started
from tests.tui.pty_process import PtyProcess
from tests.tui.test_process import assert_restored

GPUMON = str(Path(sys.executable).with_name("gpumon"))
SCRAPE_S = 1
SERVERS = {"alpha": "healthy-chat", "beta": "kv-cache-full"}
"""Name of a simulated server -> its scenario."""


def scrape(job: str, targets: Mapping[str, str]) -> str:
    """An item of scrape_configs: host -> address."""
    groups = [{"targets": [address], "labels": {"node": node}} for node, address in targets.items()]
    return f"- {{job_name: {job}, static_configs: {json.dumps(groups)}}}"


def environment(folder: Path, **more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GPUMON")}
    return {**kept, "XDG_CONFIG_HOME": str(folder), "TERM": "xterm-256color", "LANG": "C.UTF-8", **more}


NOTHING_YET = 3
"""Exit code while the Prometheus has not scraped any host."""


def lines(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    done = run_gpumon(*arguments, env=environment(folder), timeout_s=90.0)
    assert done.returncode in (0, NOTHING_YET), done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def wait_for(told: Callable[[], Any], what: object, seconds: float = 60.0) -> Any:
    """The first true thing that it gives."""
    end_s = time.monotonic() + seconds
    while not (found := told()):
        assert time.monotonic() < end_s, f"never: {what}"
        time.sleep(0.2)
    return found


class Truth(threading.Thread):
    """Keeps every snapshot that a `gpumon serve-metrics` tells as JSON, by its time."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.seen: dict[str, dict[str, Any]] = {}
        self._url = url
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.wait(0.2):
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{self._url}/snapshot.json", timeout=5) as page:
                found = json.load(page)
                self.seen[found["time"]] = found

    def close(self) -> None:
        self._end.set()
        self.join()


def numbers(row: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, float]]:
    """All figures of a row, those of its parts too."""
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from numbers(value, f"{at}{name}.")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield at + name, float(value)


NOT_EXPORTED = {"age_s"}
"""Figures of a row that are of the moment at which it is printed."""
PARTS_NOT_EXPORTED = ("since_start.", "options.")
"""Begins of names: means since an engine's start are for the first minute of a screen, and the options with which it
runs are of use with who tells each: both stay on the host."""


@pytest.fixture
def exporters(tmp_path: Path) -> Iterator[tuple[Prometheus, dict[str, Truth]]]:
    """Simulated servers with a `gpumon serve-metrics` each, what each says itself, and the Prometheus over them."""
    with contextlib.ExitStack() as stack:
        addresses = {name: f"127.0.0.1:{free_port()}" for name in SERVERS}
        for name, scenario in SERVERS.items():
            command = [
                GPUMON,
                "serve-metrics",
                "--demo",
                "--scenario",
                scenario,
                "--detail",
                "--listen",
                addresses[name],
            ]
            process = started(command, env=environment(tmp_path), stdout=subprocess.DEVNULL)
            stack.callback(process.wait, 20.0)
            stack.callback(process.terminate)
        truths = {name: Truth(f"http://{place}") for name, place in addresses.items()}
        for truth in truths.values():
            truth.start()
            stack.callback(truth.close)
        prometheus = stack.enter_context(Prometheus(tmp_path, [scrape("gpumon", addresses)], interval=f"{SCRAPE_S}s"))
        prometheus.until("gpumon_engine_mfu_part_ratio", results=4)
        yield prometheus, truths


def all_there(fleet: dict[str, Any]) -> dict[str, Any] | None:
    """The fleet, once it has every server with its engines."""
    hosts = [host["name"] for host in fleet["hosts"] if host["snapshot"]["engines"]]
    return fleet if hosts == sorted(SERVERS) else None


def unix_s(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def test_a_host_with_gpumon_shows_what_that_gpumon_says_at_that_moment(
    tmp_path: Path, exporters: tuple[Prometheus, dict[str, Truth]]
):
    prometheus, truths = exporters
    (tmp_path / "config.toml").write_text(f"[prometheus]\ninterval_s = {SCRAPE_S}\n")
    asked = ("snapshot", "--json", "--prometheus", prometheus.url, "--config", str(tmp_path / "config.toml"))
    differing = set(SERVERS)

    def compared() -> bool:
        """Whether each host was the same once: on a busy machine nobody may have asked it at that very moment."""
        shown = all_there(lines(tmp_path, *asked)[-1])
        if shown is None:
            return False
        for host in shown["hosts"]:
            assert host["own_gpumon"]
            at_s = unix_s(host["snapshot"]["time"])
            said = wait_for(partial(around, truths[host["name"]], at_s), f"what {host['name']} said then")
            if at_s > unix_s(shown["time"]) - 2.0 * SCRAPE_S:
                differences[host["name"]] = min((unlike(own, host["snapshot"]) for own in said), key=len)
            if differences.get(host["name"]) == []:
                differing.discard(host["name"])
        return not differing

    differences: dict[str, list[Difference]] = {}
    wait_for(compared, differences)


Difference: TypeAlias = tuple[str, str, float, float | None]
"""GPU or engine, one of its figures, and what each of both sides says of it."""


def around(truth: Truth, at_s: float) -> list[dict[str, Any]]:
    """What a server said within a tick of its scrape, once it has said what came after."""
    known = {unix_s(text): snapshot for text, snapshot in sorted(truth.seen.items())}
    if not known or max(known) <= at_s + 0.5:
        return []
    return [snapshot for said_s, snapshot in known.items() if -2.5 < said_s - at_s < 0.5] or list(known.values())[-1:]


def unlike(own: dict[str, Any], fleet: dict[str, Any]) -> list[Difference]:
    """GPUs and engines, their figures that differ, and both of them."""
    found = []
    for kind, key in (("gpus", "uuid"), ("engines", "name")):
        theirs = {row[key]: dict(numbers(row)) for row in fleet[kind]}
        for row in own[kind]:
            for field, value in numbers(row):
                other = theirs.get(row[key], {}).get(field)
                is_exported = field not in NOT_EXPORTED and not field.startswith(PARTS_NOT_EXPORTED)
                if is_exported and other != pytest.approx(value):
                    found.append((row[key], field, value, other))
    return found


MODEL = """
[[model]]
match = "small-llama"
params_b = 0.2
layers = 12
hidden = 1024
heads = 16
kv_heads = 4
head_dim = 64
vocab = 32000
"""
"""Of tests/data/captures/vllm-staircase/config.json."""
STEADY_S = {"alpha": (208.0, 240.0), "beta": (248.0, 280.0)}
"""Seconds of vllm-staircase between which it has 8, and 12, requests at once."""
SETTLE_S, COMPARED_S = 8.0, 4.0
"""Until both have a window of some polls, and how long they are compared."""
UNSEEN = 0.1
"""Share of a rate by which two readers of one engine may differ: a busy machine is late by some tenths of a second at
the ends of a window.
"""


class Steady:
    """The page of a server whose counters grow evenly, as fast as they did between two moments of a recording.

    As recorded they grow in steps, which two readers count into different windows.
    """

    def __init__(self, capture: Capture, first_s: float, last_s: float) -> None:
        self._began_s = time.time()
        self._seconds = last_s - first_s
        after = dict(self._samples(capture.at(last_s).body))
        self._lines: list[tuple[str, float, float]] = []
        """Series, or a whole line, then its value at the beginning and its growth."""
        for series, value in self._samples(capture.at(first_s).body):
            grows = series.partition("{")[0].endswith(("_total", "_sum", "_count", "_bucket"))
            growth = after[series] - value if grows else 0.0
            self._lines.append((series, value, growth / self._seconds))

    @staticmethod
    def _samples(page: bytes) -> Iterator[tuple[str, float]]:
        for line in page.decode().splitlines():
            if not line.startswith("#"):
                series, _, value = line.rpartition(" ")
                yield series, float(value)

    def page(self) -> bytes:
        """The page of now."""
        past_s = time.time() - self._began_s
        return "".join(f"{series} {value + per_s * past_s!r}\n" for series, value, per_s in self._lines).encode()


class RawHost:
    """A machine without a gpumon of its own: a replayed vLLM server and the page of a dcgm-exporter."""

    def __init__(self, name: str) -> None:
        gpus = [Gpu(f"GPU-{name}-{at}", 71.5, 0.9, 0.2 + 0.1 * at, 0.5, 480.0) for at in range(2)]
        pages = DcgmPages(name, gpus, started_s=time.time() - 3600.0)
        # A real exporter measures every so often and answers the same in between: each reader then sees the same.
        self._page = b""
        self._pages = pages
        self.freeze()
        self.dcgm = LoopbackServer(self._answer)
        self.engine = FakeEngine("vllm-staircase", start_s=STEADY_S[name][0], change=self._change)
        self._steady = Steady(self.engine.capture, *STEADY_S[name])

    def freeze(self) -> None:
        """Measure now."""
        self._page = self._pages.page(time.time())

    def _answer(self, request: Request) -> Reply:
        return Reply(200, self._page) if request.path == "/metrics" else Reply(404, b"")

    def _change(self, path: str, reply: Reply) -> Reply:
        """Steady metrics; the answers beside them are recorded from a server of another model."""
        assert isinstance(reply.body, bytes)
        if path == "/metrics":
            return reply._replace(body=self._steady.page())
        return reply._replace(body=reply.body.replace(b"tiny-llama", b"small-llama"))

    def settings(self, more: str = "") -> str:
        """What the config says of its engine: where it runs is told by hand, as no process of it is here."""
        return f'{more}{MODEL}[[endpoint]]\nurl = "{self.engine.url}"\ngpus = [0, 1]\n'


def address(url: str) -> str:
    return url.partition("://")[2]


@pytest.fixture
def raw(tmp_path: Path) -> Iterator[tuple[Prometheus, dict[str, RawHost]]]:
    """Two machines and the Prometheus that scrapes their engines and exporters."""
    with contextlib.ExitStack() as stack:
        hosts = {name: RawHost(name) for name in STEADY_S}
        for host in hosts.values():
            stack.enter_context(host.dcgm)
            stack.enter_context(host.engine)
        items = [
            scrape("dcgm", {name: address(host.dcgm.url) for name, host in hosts.items()}),
            scrape("vllm", {name: address(host.engine.url) for name, host in hosts.items()}),
        ]
        yield stack.enter_context(Prometheus(tmp_path, items, interval=f"{SCRAPE_S}s")), hosts


def watching(folder: Path, settings: str, *arguments: str) -> Started:
    """`gpumon watch --json` with these settings, for as long as windows fill and figures are compared."""
    folder.mkdir()
    (folder / "config.toml").write_text(settings)
    seconds = str(SETTLE_S + COMPARED_S)
    command = [GPUMON, "watch", "--json", "--config", str(folder / "config.toml"), "--duration", seconds, *arguments]
    with (folder / "printed").open("wb") as printed:
        return started(command, env=environment(folder), stdout=printed)


def told(process: Started, folder: Path) -> list[dict[str, Any]]:
    """What it printed."""
    assert process.wait(120.0) == 0
    return [json.loads(line) for line in (folder / "printed").read_text().splitlines()]


def figure(moments: list[dict[str, Any]], field: str) -> float:
    """Median of the last moments at which a figure of the engine is known: a busy Prometheus misses scrapes."""
    engines = [moment["engines"][0] for moment in moments if moment["engines"]]
    known = [engine[field] for engine in engines if engine[field] is not None]
    assert known, (field, moments[-1]["engines"])
    return statistics.median(known[-int(COMPARED_S / SCRAPE_S) :])


def test_a_host_without_gpumon_is_worked_out_as_gpumon_itself_works_it_out(
    tmp_path: Path, raw: tuple[Prometheus, dict[str, RawHost]]
):
    prometheus, hosts = raw
    both = "".join(host.settings() for host in hosts.values()).replace(MODEL, "", 1)
    fleet = f"[prometheus]\ninterval_s = {SCRAPE_S}\n{both}"
    prometheus.until("vllm:num_requests_running", results=2)
    processes = {
        name: watching(tmp_path / name, host.settings(f'[dcgm]\nurl = "{host.dcgm.url}"\n'), "--no-nvml")
        for name, host in hosts.items()
    }
    seen = told(watching(tmp_path / "fleet", fleet, "--prometheus", prometheus.url), tmp_path / "fleet")
    for name, process in processes.items():
        own = told(process, tmp_path / name)
        from_fleet = [host["snapshot"] for moment in seen for host in moment["hosts"] if host["name"] == name]
        mine, seen_there = own[-1]["engines"][0], from_fleet[-1]["engines"][0]
        assert (mine["model"], mine["gpus"]) == (seen_there["model"], seen_there["gpus"]) == ("small-llama", [0, 1])
        for field in ("decode_tokens_per_s", "prefill_tokens_per_s", "mfu_ratio", "mbu_ratio"):
            expected = pytest.approx(figure(own, field), rel=UNSEEN)
            assert figure(from_fleet, field) == expected, (name, field)
        assert_same_gpus(own[-1], from_fleet[-1])


MEASURED = ("uuid", "name", "busy_ratio", "vram_used_bytes", "power_w", "temperature_c", "bandwidth_bytes_per_s")


def assert_same_gpus(own: dict[str, Any], fleet: dict[str, Any]) -> None:
    """What the exporter measured is the same figure in both."""
    shown = [[gpu[field] for field in MEASURED] for gpu in own["gpus"]]
    assert len(shown) == 2
    assert None not in shown[0]
    assert [[gpu[field] for field in MEASURED] for gpu in fleet["gpus"]] == shown


SIZES = {"80x24": (80, 24), "120x40": (120, 40), "200x60": (200, 60)}
WALKED = ("80x24", "200x60")
"""Sizes at which all pages are walked through; the past is at the third one."""
FARM_SCRAPE_S = 1
FARM = 4
"""Hosts, with four GPUs each; the last one has no engine."""


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that has scraped a small farm for some seconds."""
    folder = tmp_path_factory.mktemp("farm")
    with (
        running(folder, FARM, gpus=4, engines=4 * FARM) as served,
        Prometheus(folder, served.scrapes, interval=f"{FARM_SCRAPE_S}s") as prometheus,
    ):
        prometheus.until("count_over_time(vllm:num_requests_running[30s]) >= 5", results=7)
        yield prometheus


@contextlib.contextmanager
def screen(folder: Path, url: str, size: str) -> Iterator[PtyProcess]:
    """The fleet's screen, with the first answer on it."""
    (folder / "config.toml").write_text(f"[prometheus]\ninterval_s = {FARM_SCRAPE_S}\n")
    command = [GPUMON, "--prometheus", url, "--config", str(folder / "config.toml")]
    process = PtyProcess(command, *SIZES[size], loaded=True, XDG_CONFIG_HOME=str(folder))
    try:
        yield process
    finally:
        process.close()


def wait(process: PtyProcess, *wanted: str, without: str = "\0") -> str:
    """The screen's text once it shows all of this."""
    text = ""
    end_s = time.monotonic() + 60.0
    while time.monotonic() < end_s:
        process.read(0.2)
        text = process.text()
        if all(each in text for each in wanted) and without not in text:
            return text
    raise AssertionError(f"{wanted} never shown, or {without!r} never gone:\n{text}")


@pytest.mark.parametrize("size", WALKED)
def test_the_screen_over_a_farm(tmp_path: Path, farm: Prometheus, size: str):
    with screen(tmp_path, farm.url, size) as process:
        text = wait(process, f"{FARM} hosts", "gpu-000", "gpu-003", "tok/s")
        assert not [line for line in text.splitlines() if len(line) > SIZES[size][0]]
        process.type(b"m")
        wait(process, "Llama-3.1-8B", "── models ─", without="── hosts ─")
        process.type(b"m")
        wait(process, "── owners (namespace) ─", "no namespace label", without="── models ─")
        process.type(b"m")
        wait(process, "── hosts ─", "gpu-003", without="── owners (namespace) ─")
        process.type(b"/host=gpu-002\r")
        wait(process, "gpu-002", 'filter "host=gpu-002"', without="gpu-003")
        process.type(b"\r")
        wait(process, "fleet > gpu-002", " gpus ")
        process.type(b"\x1b")
        wait(process, 'filter "host=gpu-002"')
        process.type(b"\x1b")
        wait(process, "gpu-000", "gpu-003")
        process.type(b"s")
        wait(process, "─ sizing ─", "need", "Llama-3.3-70B")
        process.type(b"s")
        wait(process, "gpu-000", "gpu-003", without="─ sizing ─")
        process.type(b"q")
        assert process.wait(60.0) == 0
        assert_restored(process)


def clock(text: str) -> int:
    """Second of the day of the moment that the title names."""
    found = re.search(r"(?:PAUSED at|AGO) (\d\d):(\d\d):(\d\d)", text)
    assert found, text
    hours, minutes, seconds = map(int, found.groups())
    return hours * 3600 + minutes * 60 + seconds


def test_the_past_is_asked_for_by_keys(tmp_path: Path, farm: Prometheus):
    with screen(tmp_path, farm.url, "120x40") as process:
        wait(process, "gpu-000", "gpu-003")
        process.type(b" ")
        frozen_s = clock(wait(process, "PAUSED at"))
        for _ in range(3):
            process.type(b"\x1b[D")
            process.read(0.5)
        back = wait(process, " AGO ", "gpu-000", "gpu-003")
        assert 0 < (frozen_s - clock(back)) % 86400 < 60
        process.type(b" ")
        wait(process, "s ago", "gpu-000", without=" AGO ")
