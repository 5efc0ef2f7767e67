"""Faults that stand, and GPUs that are gone, in a real Prometheus with a past: told to whoever looks later."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import pytest

from gpumon.config.schema import Config
from gpumon.config.schema import Prometheus as Settings
from gpumon.fleet.fleet import Fleet
from gpumon.fleet.snapshot import HostShown
from gpumon.readings.verdict import Level, Limit
from gpumon.session.build import deriver_maker
from gpumon.sources.prometheus.source import FleetSource
from gpumon.triage.render import verdict_text
from tests.fakes.backfill import Scraped, store
from tests.fakes.prometheus import Prometheus

EVERY_S: Final = 15.0
AHEAD_S: Final = 300.0
"""The past goes on for so long after the test began, so that there are fresh scrapes while it runs."""
GAUGE: Final = "plain gauge"
LABELLED: Final = "code as a label"
STYLES: Final = (GAUGE, LABELLED)


def page(
    host: str,
    indices: Iterable[int],
    at_s: float,
    xids: dict[int, int],
    style: str,
    names: dict[int, str] | None = None,
) -> bytes:
    """The page of a dcgm-exporter; `xids`: index -> the code that its gauge shows; `names`: index -> end of a UUID that
    is not its index."""
    lines = []
    for index in indices:
        uuid = f"GPU-{host}-{(names or {}).get(index, index)}"
        own = f'gpu="{index}",UUID="{uuid}",modelName="NVIDIA H100 80GB HBM3",Hostname="{host}"'
        code = xids.get(index, 0)
        told = f',err_code="{code}",err_msg="x"' if style == LABELLED else ""
        lines += [
            f"DCGM_FI_DEV_GPU_UTIL{{{own}}} 50",
            f"DCGM_FI_DEV_GPU_TEMP{{{own}}} {40 + at_s % 7:.0f}",
            f"DCGM_FI_DEV_POWER_USAGE{{{own}}} {300 + at_s % 100:.0f}",
            f"DCGM_FI_DEV_XID_ERRORS{{{own}{told}}} {code}",
        ]
    return "\n".join(lines).encode()


def exporter(host: str, page_at: Callable[[float], bytes], begin_s: float, end_s: float) -> Scraped:
    return Scraped({"job": "dcgm", "instance": f"{host}:9400"}, page_at, begin_s, end_s)


async def watched(prometheus: Prometheus, frames: int = 2) -> tuple[dict[str, HostShown], tuple[str, ...]]:
    """The hosts, and the notices, for one who begins to look now."""
    source = FleetSource(Settings(url=prometheus.url, interval_s=EVERY_S))
    fleet = Fleet(deriver_maker(Config(), None))
    for _ in range(frames):
        fleet.take(await source.frame())
    await source.close()
    return {host.name: host for host in fleet.snapshot.hosts}, tuple(fault.text for fault in fleet.snapshot.faults)


def faults_of(host: HostShown) -> list[tuple[Level, str, str]]:
    return [
        (verdict.level, verdict.cause, verdict.scope)
        for verdict in host.snapshot.verdicts
        if verdict.code is Limit.HARDWARE_FAULT
    ]


@pytest.mark.parametrize("style", STYLES)
async def test_an_xid_stands_as_long_as_its_gauge_and_is_dated_by_its_first_sample(tmp_path: Path, style: str):
    now_s = time.time()
    # A past that is written has no marks of a series' end: a labelled one seems to go on for five minutes.
    ages_s = {"fresh": 25.0 if style == GAUGE else 320.0, "hours": 7000.0, "reset": 900.0}
    """Seconds since the Xid came; of `reset` the gauge is 0 again since 350 s."""

    def told(host: str) -> Callable[[float], bytes]:
        def page_at(at_s: float) -> bytes:
            came = at_s >= now_s - ages_s[host] and not (host == "reset" and at_s > now_s - 350.0)
            return page(host, range(2), at_s, {1: 79} if came else {}, style)

        return page_at

    store(tmp_path, [exporter(host, told(host), now_s - 7600.0, now_s + AHEAD_S) for host in ages_s], EVERY_S)
    with Prometheus(tmp_path) as prometheus:
        hosts, _ = await watched(prometheus)
    for host in ("fresh", "hours"):
        assert faults_of(hosts[host]) == [(Level.CRITICAL, "xid", "gpu 1")], host
        (verdict,) = (verdict for verdict in hosts[host].snapshot.verdicts if verdict.cause == "xid")
        ago_s = float(verdict.evidence[0].parameters["ago"])
        assert abs(ago_s - ages_s[host]) < 400.0, (host, ago_s)
    assert not faults_of(hosts["reset"])


async def test_a_gpu_that_left_its_exporters_page_is_lost_for_whoever_looks_later(tmp_path: Path):
    now_s = time.time()
    left_s = now_s - 1500.0
    whole, six = range(8), (0, 1, 2, 4, 5, 6)

    def xid_then_gone(at_s: float) -> bytes:
        return page("xid", whole if at_s < left_s else six, at_s, {3: 79} if at_s > left_s - 60.0 else {}, GAUGE)

    def gone(at_s: float) -> bytes:
        return page("quiet", whole if at_s < left_s else range(7), at_s, {}, GAUGE)

    def down(at_s: float) -> bytes:
        return page("down", range(2), at_s, {}, GAUGE) if at_s < left_s else b""

    def nothing(at_s: float) -> bytes:
        """Its driver is gone: the exporter answers without a GPU."""
        return page("none", range(2), at_s, {}, GAUGE) if at_s < left_s else b"python_info 1"

    begin_s, end_s = now_s - 4000.0, now_s + AHEAD_S
    pages = {"xid": xid_then_gone, "quiet": gone, "down": down, "none": nothing}
    targets = [exporter(host, page_at, begin_s, end_s) for host, page_at in pages.items()]
    targets.append(exporter("taken-out", lambda at_s: page("taken-out", whole, at_s, {}, GAUGE), begin_s, left_s))
    store(tmp_path, targets, EVERY_S)
    with Prometheus(tmp_path) as prometheus:
        hosts, notices = await watched(prometheus, 3)
    assert sorted(hosts) == ["down", "none", "quiet", "xid"]
    assert {name: Counter(gpu.reading.state.value for gpu in host.snapshot.gpus) for name, host in hosts.items()} == {
        "xid": {"ok": 6, "lost": 2},
        "quiet": {"ok": 7, "lost": 1},
        "down": {"stale": 2},
        "none": {"lost": 2},
    }
    worst = {(name, verdict.scope): verdict for name, host in hosts.items() for verdict in host.snapshot.verdicts}
    assert worst["xid", "gpu 3"].level is Level.CRITICAL
    assert "6 of 8 GPUs: silent since" in verdict_text(worst["xid", "gpu 3"])
    assert 0.0 <= left_s - float(worst["xid", "gpu 3"].parameters["since"]) <= EVERY_S
    assert "last Xid 79" in verdict_text(worst["xid", "gpu 3"])
    assert worst["quiet", "gpu 7"].level is Level.WARN
    assert "7 of 8 GPUs: silent since" in verdict_text(worst["quiet", "gpu 7"])
    assert hosts["down"].exporters_down == 1
    (gone_notice,) = (text for text in notices if "taken-out" in text)
    assert gone_notice.startswith("1 hosts of the last day are gone")


async def test_a_gpu_that_was_replaced_in_place_is_a_note_and_one_whose_neighbours_moved_up_is_lost(tmp_path: Path):
    now_s = time.time()
    swapped_s = now_s - 1500.0

    def swapped(at_s: float) -> bytes:
        return page("swapped", range(4), at_s, {}, GAUGE, {} if at_s < swapped_s else {2: "new"})

    def moved_up(at_s: float) -> bytes:
        if at_s < swapped_s:
            return page("moved", range(4), at_s, {}, GAUGE)
        return page("moved", range(3), at_s, {}, GAUGE, {1: "2", 2: "3"})

    begin_s, end_s = now_s - 4000.0, now_s + AHEAD_S
    store(
        tmp_path, [exporter("swapped", swapped, begin_s, end_s), exporter("moved", moved_up, begin_s, end_s)], EVERY_S
    )
    with Prometheus(tmp_path) as prometheus:
        hosts, notices = await watched(prometheus, 3)
    assert [(gpu.reading.uuid, gpu.reading.state.value) for gpu in hosts["swapped"].snapshot.gpus] == [
        *((f"GPU-swapped-{end}", "ok") for end in ("0", "1", "new", "3")),
    ]
    assert faults_of(hosts["swapped"]) == []
    (replaced,) = (text for text in notices if "replaced" in text)
    assert replaced.startswith("1 GPUs of the last day were replaced, such as gpu 2 of swapped (GPU-swapped")
    assert {gpu.reading.uuid: gpu.reading.state.value for gpu in hosts["moved"].snapshot.gpus} == {
        "GPU-moved-0": "ok",
        "GPU-moved-1": "lost",
        "GPU-moved-2": "ok",
        "GPU-moved-3": "ok",
    }


@pytest.mark.parametrize("stays", [True, False])
async def test_a_gpu_of_a_region_that_left_is_not_lost_on_the_host_at_its_address_elsewhere(
    tmp_path: Path, stays: bool
):
    """Whoever begins to look after the other region left (or with both still there) has no `cluster_labels`."""
    now_s = time.time()
    left_s = now_s - 1500.0
    begin_s, end_s = now_s - 4000.0, now_s + AHEAD_S
    targets = []
    for region in ("a", "b"):
        labels = {"job": "dcgm", "instance": "n1:9400", "region": region}
        names = {index: f"{region}{index}" for index in range(2)}
        there_s = end_s if stays or region == "b" else left_s

        def page_at(at_s: float, region: str = region, names: dict[int, str] = names) -> bytes:
            gone = stays and region == "a" and at_s > left_s
            return page("n1", range(1) if gone else range(2), at_s, {}, GAUGE, names)

        targets.append(Scraped(labels, page_at, begin_s, there_s))
    store(tmp_path, targets, EVERY_S)
    with Prometheus(tmp_path) as prometheus:
        hosts, notices = await watched(prometheus, 3)
    states = {gpu.reading.uuid: gpu.reading.state.value for host in hosts.values() for gpu in host.snapshot.gpus}
    of_b = {"GPU-n1-b0": "ok", "GPU-n1-b1": "ok"}
    assert states == (of_b | {"GPU-n1-a0": "ok", "GPU-n1-a1": "lost"} if stays else of_b)
    assert bool([text for text in notices if "gone with all their targets" in text]) is not stays


async def test_engines_that_were_there_are_known_to_whoever_looks_later(tmp_path: Path):
    now_s = time.time()
    left_s = now_s - 1500.0

    def engine(model: str) -> Callable[[float], bytes]:
        own = f'{{engine="0",model_name="{model}"}}'
        return lambda at_s: f"vllm:generation_tokens_total{own} {at_s}\nvllm:num_requests_running{own} 1".encode()

    begin_s, end_s = now_s - 4000.0, now_s + AHEAD_S
    down = {"job": "small", "instance": "n1:8000", "node": "n1"}
    targets = [
        exporter("n1", lambda at_s: page("n1", range(2), at_s, {}, GAUGE), begin_s, end_s),
        Scraped({"job": "llm", "instance": "n2:8000", "node": "n2"}, engine("there"), begin_s, end_s),
        Scraped(down, lambda at_s: engine("down")(at_s) if at_s < left_s else b"", begin_s, end_s),
        Scraped({"job": "llm", "instance": "n2:8001", "node": "n2"}, engine("gone"), begin_s, left_s),
        Scraped({"job": "llm", "instance": "n2:8002", "node": "n2"}, engine("there"), begin_s, left_s),
    ]
    store(tmp_path, targets, EVERY_S)
    with Prometheus(tmp_path) as prometheus:
        hosts, notices = await watched(prometheus, 2)
    assert [engine.state.value for engine in hosts["n1"].snapshot.engines] == ["refused"]
    gone = [text for text in notices if text.startswith("no engine serves")]
    assert gone == ["no engine serves gone any more: 1 did in the last day, such as n2:8001"]
