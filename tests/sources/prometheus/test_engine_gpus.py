"""How many GPUs an engine has, and which: one answer, from the labels of real set-ups, or a reason."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from gpumon.config.schema import Config, Endpoint, Prometheus
from gpumon.efficiency.deriver import Deriver
from gpumon.fleet.fleet import Fleet
from gpumon.fleet.owners import by_owner, owner_labels
from gpumon.fleet.rows import by_model
from gpumon.fleet.whole import whole_fleet
from gpumon.readings.fleet import FleetFrame
from gpumon.readings.frame import EngineReading, Frame, HostReading
from gpumon.session.build import deriver_maker
from gpumon.sizing.live_gpus import gpus_here
from gpumon.sources.packaged import gpu_catalogue
from gpumon.sources.prometheus.source import FleetSource
from tests.sources.prometheus.answering import Api

LARGE, SMALL = "meta-llama/Llama-3.1-405B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"
FREE_MIB = 81_000


def exporter(api: Api, node: str, gpus: Iterable[int], held: Iterable[int] = (), **labels: str) -> None:
    """A dcgm-exporter with some 80 GB GPUs; an engine's memory is on those that are `held`."""
    target = {"job": "dcgm", "instance": f"{node}:9400", "node": node}
    if target not in [one[0] for one in api.up]:
        api.target(target)
    for index in gpus:
        used = 75_000 if index in held else 500
        own = {
            "gpu": str(index),
            "UUID": f"GPU-{node}-{index}",
            "modelName": "NVIDIA H100 80GB HBM3",
            **labels,
            **target,
        }
        for name, value in (("GPU_UTIL", 50), ("FB_USED", used), ("FB_FREE", FREE_MIB - used)):
            api.series["gpus"].append(({"__name__": f"DCGM_FI_DEV_{name}", **own}, str(value)))


def engine(api: Api, node: str, model: str, port: int = 8000, **labels: str) -> None:
    target = api.target({"job": "llm", "instance": f"{node}:{port}", "node": node, **labels})
    api.engine(target, model_name=model)


async def framed(api: Api, endpoints: tuple[Endpoint, ...] = (), **settings: Any) -> FleetFrame:
    with api.server as server:
        source = FleetSource(Prometheus(url=server.url, **settings), (), endpoints)
        try:
            return await source.frame(1000.0)
        finally:
            await source.close()


def engines(frame: FleetFrame) -> dict[str, EngineReading]:
    return {f"{host.name}:{one.url.rpartition(':')[2]}": one for host in frame.hosts for one in host.engines}


def uuids(node: str, gpus: Iterable[int]) -> tuple[str, ...]:
    return tuple(f"GPU-{node}-{index}" for index in gpus)


@pytest.mark.parametrize(
    ("leader", "worker"), [("llm-0", "llm-0-1"), ("big-head-x2k4f", "big-raycluster-worker-gpu-abcde")]
)
async def test_a_multi_node_engine_has_the_gpus_of_its_worker_pods(leader: str, worker: str):
    api = Api()
    engine(api, "n1", LARGE, namespace="s", pod=leader)
    exporter(api, "n1", range(8), range(8), namespace="s", pod=leader)
    exporter(api, "n2", range(8), range(8), namespace="s", pod=worker)
    frame = await framed(api)
    (one,) = engines(frame).values()
    assert (one.gpus, one.gpu_count, one.gpu_type) == (uuids("n1", range(8)), 16, "H100 SXM5 80GB")
    (host,) = [host for host in frame.hosts if host.engines]
    derived = Deriver(gpu_catalogue()).derive(
        Frame(1, 1000.0, 1000.0, 15.0, HostReading(name="n1"), gpus=host.gpus, engines=host.engines)
    )
    hardware = derived.snapshot.engines[0].hardware
    assert (hardware.gpu_count, hardware.gpus) == (16.0, tuple(range(8)))
    assert derived.snapshot.engines[0].efficiency.peak_flops_per_s == pytest.approx(16 * 989.4e12, rel=0.01)


async def test_the_row_of_a_multi_node_engines_model_has_all_its_gpus():
    api = Api()
    engine(api, "n1", LARGE, namespace="s", pod="llm-0")
    exporter(api, "n1", range(8), range(8), namespace="s", pod="llm-0")
    exporter(api, "n2", range(8), range(8), namespace="s", pod="llm-0-1")
    fleet = Fleet(deriver_maker(Config()))
    for _ in fleet.steps(await framed(api)):
        pass
    (row,) = by_model(fleet.snapshot, {})
    assert row.models, "the GPUs of the worker's host are in no row of GPUs without an engine"
    assert row.gpus == 16
    assert [number for _, number in row.gpu_types] == [16]
    assert (row.busy_ratio.gpus, row.busy_ratio.of) == (16, 16)


async def test_the_namespaces_of_pods_own_gpus_and_engines():
    """That of the exporter's own pod, which all its targets may share, owns nothing."""
    api = Api()
    engine(api, "n1", LARGE, namespace="s", pod="llm-0", team="web")
    exporter(api, "n1", range(8), range(8), namespace="s", pod="llm-0")
    exporter(api, "n2", range(4), range(4), namespace="s", pod="llm-0-1")
    exporter(api, "n3", range(2), ())
    fleet = Fleet(deriver_maker(Config()))
    for _ in fleet.steps(await framed(api)):
        pass
    rows = {row.name: row for row in by_owner(fleet.snapshot, "namespace", {})}
    assert {name: row.gpus for name, row in rows.items()} == {"s": 12, "no namespace label": 2}
    assert rows["s"].engines == 1
    teams = {row.name: row.gpus for row in by_owner(fleet.snapshot, "team", {})}
    assert teams == {"web": 12, "no team label": 2}
    assert owner_labels(fleet.snapshot) == ("namespace",)


async def test_the_namespace_of_the_exporters_own_pod_owns_no_gpu():
    """Prometheus writes that of the pod that uses a GPU as `exported_namespace` beside it."""
    api = Api()
    target = api.target({"job": "dcgm", "instance": "n1:9400", "node": "n1", "namespace": "gpu-operator", "pod": "d"})
    api.gpu(target, "GPU-a", 0, exported_namespace="chat", exported_pod="p")
    api.gpu(target, "GPU-b", 1)
    fleet = Fleet(deriver_maker(Config()))
    for _ in fleet.steps(await framed(api)):
        pass
    rows = {row.name: row.gpus for row in by_owner(fleet.snapshot, "namespace", {})}
    assert rows == {"chat": 1, "no namespace label": 1}


async def test_gpus_of_a_worker_that_no_exporter_tells_of_are_counted_without_figures():
    """`gpus_per_engine` says 16, and 8 are in this Prometheus."""
    api = Api()
    engine(api, "n1", LARGE, namespace="s", pod="llm-0")
    exporter(api, "n1", range(8), range(8), namespace="s", pod="llm-0")
    fleet = Fleet(deriver_maker(Config()))
    for _ in fleet.steps(await framed(api, gpus_per_engine={"*": 16})):
        pass
    (row,) = by_model(fleet.snapshot, {})
    assert (row.gpus, row.busy_ratio.gpus, row.busy_ratio.of) == (16, 8, 16)


async def test_the_pod_of_an_old_scrape_job_is_known_by_its_label():
    """`kubernetes_pod_name`, as Prometheus' example of annotations names it."""
    api = Api()
    engine(api, "n1", SMALL, kubernetes_namespace="s", kubernetes_pod_name="a")
    engine(api, "n1", SMALL, 8001, kubernetes_namespace="s", kubernetes_pod_name="b")
    exporter(api, "n1", (0, 1), (0, 1), namespace="s", pod="a")
    exporter(api, "n1", (2, 3), (2, 3), namespace="s", pod="b")
    found = engines(await framed(api))
    assert found["n1:8000"].gpus == uuids("n1", (0, 1))
    assert found["n1:8001"].gpus == uuids("n1", (2, 3))


async def test_a_containers_id_is_no_host_name_where_instance_has_one():
    """A dcgm-exporter in docker writes its container's id as `Hostname`."""
    api = Api()
    api.engine(api.target({"job": "llm", "instance": "gpu07:8000"}))
    api.gpu(api.target({"job": "dcgm", "instance": "gpu07:9400"}), "GPU-a", Hostname="0a1b2c3d4e5f")
    frame = await framed(api)
    assert [(host.name, len(host.gpus), len(host.engines)) for host in frame.hosts] == [("gpu07", 1, 1)]
    near = Api()
    near.gpu(near.target({"job": "dcgm", "instance": "localhost:9400"}), "GPU-a", Hostname="0a1b2c3d4e5f")
    assert [host.name for host in (await framed(near)).hosts] == ["0a1b2c3d4e5f"]


async def test_pods_that_take_turns_on_a_gpu_all_have_it_and_it_counts_once():
    """Time slicing: the exporter names each pod of a GPU in a series of its own."""
    api = Api()
    for port, pod in ((8000, "a"), (8001, "b")):
        engine(api, "n1", SMALL, port, namespace="s", pod=pod)
        exporter(api, "n1", (0,), (0,), namespace="s", pod=pod)
    frame = await framed(api)
    assert {one.gpus for one in engines(frame).values()} == {uuids("n1", (0,))}
    (host,) = frame.hosts
    assert len(host.gpus) == 1


async def test_eight_data_parallel_ranks_of_a_page_are_one_engine_on_the_gpus_of_their_pod():
    api = Api()
    target = api.target({"job": "llm", "instance": "n1:8000", "node": "n1", "namespace": "s", "pod": "a"})
    for rank in range(8):
        api.engine(target, model_name=SMALL, engine=str(rank))
    exporter(api, "n1", range(8), range(8), namespace="s", pod="a")
    (one,) = engines(await framed(api)).values()
    assert (one.gpus, len(one.ranks)) == (uuids("n1", range(8)), 8)


@pytest.mark.parametrize("instance", ["gpu02.example.com:8000", "chat.svc:8000"], ids=["FQDN", "service"])
async def test_an_engine_under_another_name_than_its_gpus_has_none_and_the_label_to_change_is_named(instance: str):
    api = Api()
    api.engine(api.target({"job": "llm", "instance": instance}), model_name=SMALL)
    api.gpu(api.target({"job": "dcgm", "instance": "gpu01:9400"}), "GPU-a", Hostname="gpu01")
    (one,) = engines(await framed(api)).values()
    assert one.gpus == ()
    assert "Give both targets the same label 'node'" in one.gpus_source


async def test_gpus_of_engines_that_are_not_mapped_count_once_for_sizing():
    api = Api()
    for node in ("n1", "n2"):
        for port in (8000, 8001):
            engine(api, node, SMALL, port)
        exporter(api, node, range(8), range(8))
    fleet = Fleet(deriver_maker(Config()))
    for _ in fleet.steps(await framed(api, gpus_per_engine={"*8B*": 4})):
        pass
    everything = whole_fleet(fleet.snapshot)
    assert [engine.hardware.gpu_count for engine in everything.engines] == [4.0] * 4
    assert gpus_here(everything) == (("H100 SXM5 80GB", 16),)


async def test_weights_that_do_not_fit_are_no_answer():
    api = Api()
    engine(api, "n1", LARGE, namespace="s", pod="alone")
    exporter(api, "n1", range(8), range(8), namespace="s", pod="alone")
    (one,) = engines(await framed(api)).values()
    assert (one.gpus, one.gpu_count) == ((), 0)
    assert "its weights take 8" in one.gpus_source
    assert "has it worker pods?" in one.gpus_source
    again = Api()
    again.up, again.series = api.up, api.series
    (one,) = engines(await framed(again, gpus_per_engine={"*405B*": 16})).values()
    assert (one.gpus, one.gpu_count) == (uuids("n1", range(8)), 16)


async def test_on_bare_metal_an_engine_alone_has_the_gpus_that_hold_memory():
    api = Api()
    engine(api, "n1", SMALL)
    exporter(api, "n1", range(8), (2, 3, 4, 5))
    (one,) = engines(await framed(api)).values()
    assert one.gpus == uuids("n1", (2, 3, 4, 5))
    assert "hold memory" in one.gpus_source


async def test_engines_without_labels_have_as_many_gpus_as_others_of_their_model():
    api = Api()
    engine(api, "n1", SMALL, namespace="s", pod="a")
    exporter(api, "n1", range(2), range(2), namespace="s", pod="a")
    for port in (8000, 8001):
        engine(api, "n2", SMALL, port)
    exporter(api, "n2", range(8), range(4))
    found = engines(await framed(api))
    assert found["n1:8000"].gpus == uuids("n1", range(2))
    for port in (8000, 8001):
        one = found[f"n2:{port}"]
        assert (one.gpus, one.gpu_count, one.gpu_type) == ((), 2, "H100 SXM5 80GB")
        assert "2 GPUs per engine (other engines of its model)" in one.gpus_source


async def test_the_config_says_how_many_gpus_an_engine_of_a_model_has():
    api = Api()
    for port in (8000, 8001):
        engine(api, "n1", SMALL, port)
    exporter(api, "n1", range(8), range(8))
    assert [one.gpu_count for one in engines(await framed(api)).values()] == [0, 0]
    again = Api()
    again.up, again.series = api.up, api.series
    found = engines(await framed(again, gpus_per_engine={"*8B*": 4})).values()
    assert [(one.gpu_count, "gpus_per_engine" in one.gpus_source) for one in found] == [(4, True)] * 2


async def test_an_endpoint_of_the_config_may_be_a_glob_and_one_that_matches_nothing_is_reported():
    api = Api()
    for node in ("gpu-1", "gpu-2"):
        engine(api, node, SMALL)
        exporter(api, node, range(8), range(8))
    mine = Endpoint(url="http://gpu-*:8000", gpus=(0, 1))
    frame = await framed(api, (mine, Endpoint(url="http://other:8000", gpus=(0,))))
    assert [one.gpus for one in engines(frame).values()] == [uuids("gpu-1", (0, 1)), uuids("gpu-2", (0, 1))]
    (told,) = [fault.text for fault in frame.faults if "[[endpoint]]" in fault.text]
    assert told.startswith("1 [[endpoint]] of the config match no engine here: http://other:8000")


async def test_slices_are_not_taken_for_whole_gpus():
    api = Api()
    engine(api, "n1", SMALL)
    exporter(api, "n1", (0,), (0,), GPU_I_ID="1", GPU_I_PROFILE="3g.40gb")
    exporter(api, "n1", (1,), (1,))
    (one,) = engines(await framed(api)).values()
    assert (one.gpus, one.gpu_count) == ((), 0)
