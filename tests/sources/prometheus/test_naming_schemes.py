"""Many ways to name and relabel, in one real Prometheus: each is right, or right with the line that is proposed."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from gpumon.config.schema import Config
from gpumon.config.schema import Prometheus as Settings
from gpumon.fleet.fleet import Fleet
from gpumon.fleet.rows import by_host, total_row
from gpumon.fleet.snapshot import FleetSnapshot
from gpumon.session.build import deriver_maker
from gpumon.sources.prometheus.alike_loads import FEWEST, MOST_THINGS, LoadTracks
from gpumon.sources.prometheus.machine_names import MachineId
from gpumon.sources.prometheus.proposals import _label_names
from gpumon.sources.prometheus.source import FleetSource
from gpumon.sources.prometheus.spelling import telling_labels
from tests.fakes.backfill import Scraped, store
from tests.fakes.prometheus import Prometheus
from tests.sources.prometheus.naming_schemes import SCHEMES, Outcome
from tests.sources.prometheus.test_identity import EVERY_S, LONG_S, engine, gpus

MACHINES: Final = range(1, 4)


class Told(NamedTuple):
    """What a fleet of one scheme tells."""

    snapshot: FleetSnapshot
    notices: str

    def hosts(self) -> list[tuple[int, int]]:
        """GPUs and engines of each host."""
        return sorted((len(host.snapshot.gpus), len(host.snapshot.engines)) for host in self.snapshot.hosts)

    def decode(self) -> dict[tuple[str, ...], float]:
        """GPUs of the host of an engine -> its decode tokens/s."""
        rates = {}
        for host in self.snapshot.hosts:
            for row in host.snapshot.engines:
                rates[tuple(sorted(gpu.reading.uuid for gpu in host.snapshot.gpus))] = row.rates.decode_tokens_per_s
        return rates


class Farm(NamedTuple):
    """A Prometheus with all schemes, each under a label of its own."""

    url: str
    now_s: float

    async def told(self, scheme: str, **settings: Any) -> Told:
        """The fleet of a scheme after a minute, asked for by its label."""
        match = f"scheme={json.dumps(scheme)}"
        source = FleetSource(Settings(url=self.url, interval_s=EVERY_S, match=match, **settings))
        fleet = Fleet(deriver_maker(Config(), None))
        for before_s in (65.0, 35.0, 5.0):
            fleet.take(await source.frame(self.now_s - before_s))
        await source.close()
        return Told(fleet.snapshot, " | ".join(fault.text for fault in fleet.snapshot.faults))


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    folder = tmp_path_factory.mktemp("schemes")
    now_s = time.time()
    targets = []
    for name, scheme in SCHEMES.items():
        for number in MACHINES:
            users = dict.fromkeys(range(2), scheme.page(number))
            pages = (
                ("vllm", scheme.engine(number), engine(100.0 * number, now_s - 999.0 * number)),
                ("dcgm", scheme.exporter(number), gpus(f"m{number}", 2, users)),
            )
            for job, labels, page in pages:
                targets.append(Scraped({"scheme": name, "job": job, **labels}, page, now_s - LONG_S, now_s))
    store(folder, targets, EVERY_S)
    with Prometheus(folder) as prometheus:
        yield Farm(prometheus.url, now_s)


def assert_right(told: Told) -> None:
    """Each engine is on the host of its machine's GPUs, and everything counts once."""
    assert told.hosts() == [(2, 1)] * len(MACHINES)
    assert told.decode() == {
        (f"GPU-m{number}-0", f"GPU-m{number}-1"): pytest.approx(100.0 * number, rel=0.01) for number in MACHINES
    }
    assert all(row.hardware.gpus for host in told.snapshot.hosts for row in host.snapshot.engines)
    assert "add to [prometheus]" not in told.notices


@pytest.mark.parametrize("name", SCHEMES)
async def test_a_scheme_is_right_or_becomes_so_by_the_line_that_is_proposed(farm: Farm, name: str):
    scheme = SCHEMES[name]
    told = await farm.told(name)
    assert total_row(by_host(told.snapshot, {})).decode_tokens_per_s == pytest.approx(600.0, rel=0.01)
    if scheme.outcome is Outcome.RIGHT:
        assert_right(told)
        return
    if scheme.outcome is Outcome.SPLIT:
        assert told.hosts() == [(2, 1)] * len(MACHINES)
        assert_right(await farm.told(name, cluster_labels=proposed("cluster_labels", told, scheme.label)))
        return
    assert not [host for host in told.hosts() if all(host)], "engines and GPUs are apart"
    assert "they may be the same machines" in told.notices
    if scheme.outcome is Outcome.NOTICE:
        assert "no label names both" in told.notices
        assert "add to [prometheus]" not in told.notices
        return
    assert_right(await farm.told(name, host_labels=proposed("host_labels", told, scheme.label)))


def proposed(key: str, told: Told, first: str) -> tuple[str, ...]:
    """The labels of the line that the notices propose; the first one is this."""
    line = told.notices.partition(f"add to [prometheus]: {key} = ")[2].partition("]")[0] + "]"
    labels = tuple(json.loads(line))
    assert labels[0] == first
    return labels


def test_there_are_as_many_schemes_as_were_seen_in_the_field():
    assert len(SCHEMES) >= 49
    assert {scheme.outcome for scheme in SCHEMES.values()} == {*Outcome}


def moving(number: int, at_s: float) -> float:
    """Share of its full load that a machine has at a time: each has peaks and lulls of its own."""
    return 0.5 + 0.4 * math.sin(at_s / (20.0 + 17.0 * number) + number)


def serving(number: int, begin_s: float) -> Callable[[float], bytes]:
    """The page of an engine with that load."""

    def page(at_s: float) -> bytes:
        own = '{engine="0",model_name="m"}'
        return (
            f"vllm:generation_tokens_total{own} {at_s}\n"
            f"vllm:num_requests_running{own} {round(200.0 * moving(number, at_s - begin_s))}\n"
        ).encode()

    return page


def busy(
    host: int, load: int, begin_s: float, *, steady: bool = False, unmetered: Collection[int] = ()
) -> Callable[[float], bytes]:
    """The page of an exporter whose two GPUs have the load of a machine; the power of those `unmetered` is unknown."""

    def page(at_s: float) -> bytes:
        share = 0.8 if steady else moving(load, at_s - begin_s)
        lines = []
        for index in range(2):
            own = f'{{gpu="{index}",UUID="GPU-h{host}-{index}",modelName="NVIDIA H100 80GB HBM3"}}'
            lines.append(f"DCGM_FI_DEV_GPU_UTIL{own} 95")
            if index not in unmetered:
                lines.append(f"DCGM_FI_DEV_POWER_USAGE{own} {150.0 + 500.0 * share + at_s % 3:.0f}")
        return "\n".join(lines).encode()

    return page


async def test_where_no_label_does_it_loads_that_move_together_are_named_with_their_evidence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Machine 1 is alone with its load; of 2 there are two hosts that move alike; host 4 trains at a steady load, and
    the power of host 5 is known in part alone."""
    now_s = time.time()
    begin_s = now_s - 900.0
    pages = {
        ("vllm", "10.1.0.1:8000"): serving(1, begin_s),
        ("vllm", "10.1.0.2:8000"): serving(2, begin_s),
        ("dcgm", "10.2.0.1:9400"): busy(1, 1, begin_s),
        ("dcgm", "10.2.0.2:9400"): busy(2, 2, begin_s),
        ("dcgm", "10.2.0.3:9400"): busy(3, 2, begin_s),
        ("dcgm", "10.2.0.4:9400"): busy(4, 4, begin_s, steady=True),
        ("vllm", "10.1.0.5:8000"): serving(5, begin_s),
        ("dcgm", "10.2.0.5:9400"): busy(5, 5, begin_s, unmetered=(1,)),
    }
    targets = [Scraped({"job": job, "instance": at}, page, begin_s, now_s) for (job, at), page in pages.items()]
    store(tmp_path, targets, EVERY_S)
    notices = []
    with Prometheus(tmp_path) as prometheus:
        source = FleetSource(Settings(url=prometheus.url, interval_s=EVERY_S), wall=lambda: asked_s)
        monkeypatch.setattr(type(source._server_clock), "is_due", property(lambda _: False))
        for number in range(30):
            asked_s = begin_s + 120.0 + 16.0 * number
            frame = await source.frame()
            notices.append([fault.text for fault in frame.faults if fault.text.startswith("by load")])
        await source.close()
    assert not any(notices[: FEWEST - 1]), "too few scrapes tell nothing"
    (text,) = notices[-1]
    assert text.startswith("by load 10.1.0.1:8000 and the GPUs of 10.2.0.1 may be one machine")
    assert "correlation above 0.9" in text
    assert "10.1.0.2" not in text, "two hosts move with it"
    assert "10.1.0.5" not in text, "a sum without one of its GPUs is no load"


@pytest.mark.parametrize(("hosts", "pairs"), [(MOST_THINGS, 1), (MOST_THINGS + 1, 0)])
def test_what_moves_with_nothing_else_is_not_said_where_not_everything_is_compared(hosts: int, pairs: int):
    tracks = LoadTracks()
    for number in range(FEWEST):
        load = moving(1, 15.0 * number)
        watts = {MachineId("", f"gpu{host}"): 100.0 for host in range(hosts)}
        watts[MachineId("", "gpu1")] = 200.0 * load
        tracks.note({(("instance", "10.1.0.1:8000"),): 100.0 * load}, watts, 15.0 * number, 15.0)
    assert len(tracks.pairs) == pairs


def test_no_label_is_proposed_whose_name_the_config_refuses():
    """As of a Prometheus 3 that takes names from OpenTelemetry as they are: in a query they would need quotes."""
    targets = [{"k8s.node.name": name, "node_name": name, "instance": f"{name}:8000"} for name in ("gpu1", "gpu2")]
    assert telling_labels(targets) == ["node_name"]
    assert _label_names(targets) == ["instance", "node_name"]
