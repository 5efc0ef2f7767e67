"""Many ways to name and relabel, in one real Prometheus: each is right, or right with the line that is proposed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pytest

from gpumon.config.schema import Config
from gpumon.config.schema import Prometheus as Settings
from gpumon.fleet.fleet import Fleet
from gpumon.fleet.rows import by_host, total_row
from gpumon.fleet.snapshot import FleetSnapshot
from gpumon.session.build import deriver_maker
from gpumon.sources.prometheus.source import FleetSource
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
                rates[tuple(sorted(gpu.uuid for gpu in host.snapshot.gpus))] = row.rates.decode_tokens_per_s
        return rates


class Farm(NamedTuple):
    """A Prometheus with all schemes, each under a label of its own."""

    url: str
    now_s: float

    async def told(self, scheme: str, **settings: Any) -> Told:
        """The fleet of a scheme after two minutes, asked for by its label."""
        match = f"scheme={json.dumps(scheme)}"
        source = FleetSource(Settings(url=self.url, interval_s=EVERY_S, match=match, **settings))
        fleet = Fleet(deriver_maker(Config(), None))
        for number in range(9):
            fleet.take(await source.frame(self.now_s - 125.0 + 15.0 * number))
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
