"""Series to hosts: labels of every kind, pods, replicas, clusters, and what no label tells."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpumon.config.schema import Endpoint, Prometheus
from gpumon.efficiency.deriver import Deriver
from gpumon.outputs.samples import samples
from gpumon.readings.fleet import FleetFrame
from gpumon.readings.frame import EndpointState, EngineReading, Frame, HostReading
from gpumon.sources.exposition import Series
from gpumon.sources.packaged import gpu_catalogue
from gpumon.sources.prometheus.answers import Vector
from gpumon.sources.prometheus.hosts import host_of, named_apart, port_of, without_port
from gpumon.sources.prometheus.source import FleetSource
from gpumon.sources.prometheus.targets import REPLICAS, TargetFinder
from tests.each_row import each_row
from tests.sources.prometheus.answering import Api

LADDER = Prometheus().host_labels


async def frames(api: Api, count: int = 1, endpoints: tuple[Endpoint, ...] = (), **settings: Any) -> list[FleetFrame]:
    with api.server as server:
        source = FleetSource(Prometheus(url=server.url, **settings), (), endpoints)
        found = [await source.frame(None if count > 1 else 1000.0) for _ in range(count)]
        await source.close()
    return found


async def framed(api: Api, **settings: Any) -> FleetFrame:
    (frame,) = await frames(api, **settings)
    return frame


def texts(frame: FleetFrame) -> str:
    return "; ".join(fault.text for fault in frame.faults)


def engines(frame: FleetFrame) -> dict[str, EngineReading]:
    return {f"{host.name} {engine.name}": engine for host in frame.hosts for engine in host.engines}


@each_row(
    ("target", "own", "name"),
    [
        ({"node": "n1", "instance": "10.0.0.1:8000"}, {"Hostname": "h1"}, "n1"),
        ({"instance": "10.0.0.1:8000"}, {"Hostname": "h1"}, "h1"),
        ({"instance": "gpu01.example:9400"}, {}, "gpu01.example"),
        ({"instance": "10.0.0.1:8000"}, {}, "10.0.0.1"),
        ({"instance": "[fd00::1]:8000"}, {}, "fd00::1"),
        ({"instance": "http://gpu01:9400/metrics"}, {}, "gpu01"),
        ({"node": " ", "host": "h2"}, {}, "h2"),
        ({}, {}, ""),
    ],
)
def test_a_host_is_named_by_the_best_label(target: dict[str, str], own: dict[str, str], name: str):
    assert host_of(target, own, LADDER) == name


@each_row(
    ("instance", "host", "port"),
    [("a:1", "a", "1"), ("a", "a", ""), ("[::1]:2", "::1", "2"), ("::1", "::1", ""), ("", "", ""), ("a:b", "a:b", "")],
)
def test_an_address_is_a_host_and_a_port(instance: str, host: str, port: str):
    assert (without_port(instance), port_of(instance)) == (host, port)


async def test_an_engine_is_on_the_gpus_that_the_exporter_gives_its_pod():
    api = Api()
    pod = api.target({"job": "llm", "instance": "10.1.2.3:8000", "namespace": "serving", "pod": "chat-0"})
    exporter = api.target({"job": "dcgm", "instance": "10.0.0.9:9400", "namespace": "gpu", "pod": "dcgm-x"})
    api.engine(pod)
    users = {"exported_namespace": "serving", "exported_pod": "chat-0"}
    api.gpu(exporter, "GPU-a", 0, Hostname="node-7", **users)
    api.gpu(exporter, "GPU-b", 1, Hostname="node-7", **users)
    api.gpu(exporter, "GPU-c", 2, Hostname="node-7")
    frame = await framed(api)
    assert [host.name for host in frame.hosts] == ["node-7"]
    (reading,) = frame.hosts[0].engines
    assert reading.gpus == ("GPU-a", "GPU-b")
    assert reading.gpus_source == "pod (as the dcgm-exporter says)"
    assert reading.url == "10.1.2.3:8000"
    assert [gpu.index for gpu in frame.hosts[0].gpus] == [0, 1, 2]


async def test_a_page_that_overwrites_the_targets_labels_is_told_apart_as_well():
    api = Api()
    pod = api.target({"job": "llm", "instance": "10.1.2.3:8000", "namespace": "serving", "pod": "chat-0", "node": "n"})
    api.target({"job": "dcgm", "instance": "n:9400", "namespace": "gpu", "pod": "dcgm-x", "node": "n"})
    api.engine(pod)
    honoured = {"job": "dcgm", "instance": "n:9400", "namespace": "serving", "pod": "chat-0", "node": "n"}
    api.gpu(honoured, "GPU-a", 0)
    api.gpu({**honoured, "pod": "other"}, "GPU-b", 1)
    frame = await framed(api)
    assert [(host.name, len(host.gpus)) for host in frame.hosts] == [("n", 2)]
    assert frame.hosts[0].engines[0].gpus == ("GPU-a",)
    assert frame.hosts[0].labels == {"node": "n"}


async def test_two_engines_in_a_pod_share_its_gpus_only_where_containers_tell_them_apart():
    api = Api()
    for container, port in (("big", 8000), ("small", 8001)):
        labels = {"job": "llm", "instance": f"10.1.2.3:{port}", "namespace": "s", "pod": "p", "container": container}
        api.engine(api.target(labels))
    exporter = api.target({"job": "dcgm", "instance": "n:9400"})
    api.gpu(exporter, "GPU-a", 0, namespace="s", pod="p", container="big")
    api.gpu(exporter, "GPU-b", 1, namespace="s", pod="p", container="small")
    told = await framed(api)
    assert [engine.gpus for engine in told.hosts[0].engines] == [("GPU-a",), ("GPU-b",)]
    api = Api()
    for port in (8000, 8001):
        api.engine(api.target({"job": "llm", "instance": f"10.1.2.3:{port}", "namespace": "s", "pod": "p"}))
    exporter = api.target({"job": "dcgm", "instance": "n:9400"})
    api.gpu(exporter, "GPU-a", 0, namespace="s", pod="p", container="big")
    untold = await framed(api)
    assert [(engine.gpus, "several engines" in engine.gpus_source) for engine in untold.hosts[0].engines] == [
        ((), True)
    ] * 2


async def test_without_pods_the_gpus_are_not_guessed_but_the_config_may_say():
    api = Api()
    api.engine(api.target({"job": "llm", "instance": "n:8000"}))
    exporter = api.target({"job": "dcgm", "instance": "n:9400"})
    for index in (0, 1):
        api.gpu(exporter, f"GPU-{index}", index)
    frame = await framed(api)
    (reading,) = frame.hosts[0].engines
    assert reading.gpus == ()
    assert "no label says on which GPUs it runs" in reading.gpus_source
    endpoint = Endpoint(url="http://n:8000", gpus=(1,), name="mine", model="no-such-model")
    (told,) = await frames(api_again(api), endpoints=(endpoint,))
    (reading,) = told.hosts[0].engines
    assert (reading.name, reading.gpus, reading.gpus_source) == ("mine", ("GPU-1",), "config")


def api_again(old: Api) -> Api:
    """The same series, served anew."""
    api = Api()
    api.up, api.series = old.up, old.series
    return api


async def test_engines_of_a_host_have_names_of_their_own():
    api = Api()
    for pod in ("a", "b"):
        api.engine(api.target({"job": "llm", "instance": f"10.0.0.{len(api.up)}:8000", "pod": pod, "node": "n"}))
    api.engine(api.target({"job": "llm", "instance": "10.0.0.9:8001", "pod": "c", "node": "n"}))
    frame = await framed(api)
    assert [*engines(frame)] == ["n vllm:8000@a", "n vllm:8000@b", "n vllm:8001"]
    assert named_apart([("x", {}), ("x", {}), ("y", {})]) == ["x", "x-2", "y"]


async def test_every_series_twice_through_two_replicas_counts_once():
    for label in ("prometheus_replica", "replica"):
        api = Api()
        for replica, at_s, tokens in (("a", 985.0, 5.0), ("b", 991.0, 6.0)):
            labels = {"job": "llm", "instance": "n:8000", label: replica}
            api.engine(api.target(labels, at_s), tokens)
            api.gpu(api.target({"job": "dcgm", "instance": "n:9400", label: replica}, at_s), "GPU-a")
        frame = await framed(api)
        (reading,) = frame.hosts[0].engines
        assert reading.ranks[0].counters["decode_tokens"] == 6.0
        assert reading.monotonic_s == 991.0
        assert len(frame.hosts[0].gpus) == 1
        assert "2 targets come from several Prometheus" in texts(frame)
        assert label not in frame.hosts[0].labels


async def test_an_engine_that_two_jobs_scrape_and_a_gpu_of_two_exporters_count_once():
    api = Api()
    for job in ("a", "b"):
        api.engine(api.target({"job": job, "instance": "n:8000"}))
        api.gpu(api.target({"job": f"dcgm-{job}", "instance": "n:9400"}), "GPU-a")
    frame = await framed(api)
    assert len(frame.hosts[0].engines) == len(frame.hosts[0].gpus) == 1
    assert "1 engines are scraped by two jobs" in texts(frame)
    assert "1 GPUs come from two exporters" in texts(frame)


async def test_hosts_of_one_name_in_two_clusters_are_two():
    api = Api()
    for cluster in ("east", "west"):
        api.engine(api.target({"job": "llm", "instance": "10.0.0.1:8000", "node": "n", "cluster": cluster}))
    frame = await framed(api)
    assert [host.name for host in frame.hosts] == ["east/n", "west/n"]
    assert [host.labels["cluster"] for host in frame.hosts] == ["east", "west"]


async def test_without_up_the_moment_is_the_one_that_was_asked_for_and_it_says_so():
    api = Api()
    api.engine({"job": "llm", "instance": "n:8000"})
    api.gpu({"job": "dcgm", "instance": "n:9400", "pod": "dcgm-x", "exported_pod": "chat"}, "GPU-a")
    frame = await framed(api)
    assert frame.hosts[0].engines[0].monotonic_s == 1000.0
    assert "2 targets have no series `up`" in texts(frame)


async def test_a_slice_is_a_gpu_of_its_pod():
    api = Api()
    api.engine(api.target({"job": "llm", "instance": "10.0.0.1:8000", "namespace": "s", "pod": "p"}))
    exporter = api.target({"job": "dcgm", "instance": "n:9400"})
    api.gpu(exporter, "GPU-a", 0, GPU_I_ID="3", GPU_I_PROFILE="3g.40gb", namespace="s", pod="p")
    frame = await framed(api)
    assert [(gpu.uuid, gpu.mig) for gpu in frame.hosts[0].gpus] == [("GPU-a", True), ("MIG-GPU-a/3", False)]
    assert frame.hosts[0].engines[0].gpus == ("MIG-GPU-a/3",)


async def test_an_engine_query_that_is_refused_leaves_the_gpus_standing():
    api = Api()
    api.engine(api.target({"job": "llm", "instance": "n:8000"}))
    api.gpu(api.target({"job": "dcgm", "instance": "n:9400"}), "GPU-a")
    api.refused = {"engines", "own"}
    frame = await framed(api)
    assert [len(host.gpus) for host in frame.hosts] == [1]
    assert frame.answered
    assert "a part is missing: 400" in texts(frame)
    all_refused = api_again(api)
    all_refused.refused = {"engines", "gpus", "own", "started"}
    assert not (await framed(all_refused)).answered


async def test_series_that_were_not_asked_for_are_left_alone():
    """As of a proxy that leaves out what is asked for by name."""
    api = Api()
    engine_target = api.target({"job": "llm", "instance": "n:8000"})
    api.engine(engine_target)
    exporter_target = api.target({"job": "dcgm", "instance": "n:9400"})
    api.gpu(exporter_target, "GPU-a")
    api.gpu(exporter_target, "GPU-a", __name__="DCGM_FI_DEV_PCIE_REPLAY_COUNTER")
    api.series["engines"].append(({"__name__": "vllm:of_tomorrow_total", **engine_target}, "1"))
    frame = await framed(api)
    (host,) = frame.hosts
    assert [gpu.busy_ratio for gpu in host.gpus] == [0.5]
    assert [engine.state for engine in host.engines] == [EndpointState.OK]
    assert frame.faults == ()


async def test_down_is_told_of_engines_alone():
    api = Api()
    api.engine(api.target({"job": "llm", "instance": "n:8000"}))
    api.target({"job": "llm", "instance": "n:8001"}, up=0.0)
    mixed = {"job": "pods", "instance": "n:8002"}
    api.engine(api.target(mixed))
    api.target({"job": "pods", "instance": "n:9100"})
    api.target({"job": "pods", "instance": "n:9101"}, up=0.0)
    frame = await framed(api)
    states = {name: engine.state.value for name, engine in engines(frame).items()}
    assert states == {"n vllm:8000": "ok", "n vllm:8001": "refused", "n vllm:8002": "ok"}


async def test_an_exporter_that_is_down_beside_an_engine_that_answers_is_counted():
    api = Api()
    api.engine(api.target({"job": "llm", "instance": "n:8000", "node": "n"}))
    api.gpu(api.target({"job": "dcgm", "instance": "m:9400", "node": "m"}), "GPU-m")
    api.target({"job": "dcgm", "instance": "n:9400", "node": "n"}, up=0.0)
    down = {host.name: host.exporters_down for host in (await framed(api)).hosts}
    assert down == {"m": 0, "n": 1}


async def test_a_host_with_its_own_gpumon_is_shown_as_that_sees_it():
    api = Api()
    seen = Frame(0, 990.0, 990.0, 1.0, HostReading(name="big"))
    snapshot = Deriver(gpu_catalogue()).derive(seen).snapshot
    target = api.target({"job": "gpumon", "instance": "10.0.0.5:9454"})
    for sample in samples(snapshot):
        api.series["own"].append(({"__name__": sample.name, **sample.labels, **target}, repr(sample.value)))
    api.gpu(api.target({"job": "dcgm", "instance": "10.0.0.5:9400"}), "GPU-a", Hostname="big")
    frame = await framed(api)
    (host,) = frame.hosts
    assert host.name == "big"
    assert host.exported_snapshot is not None
    assert host.exported_snapshot.host.name == "big"
    assert (host.gpus, host.engines) == ((), ())
    stale = api_again(api)
    stale.up[0] = (target, 1.0, 900.0)
    (host,) = (await framed(stale)).hosts
    assert host.exported_snapshot is None
    assert len(host.gpus) == 1


async def test_hostile_labels_are_safe_to_show():
    api = Api()
    evil = "\x1b[31m\u202e[red]x\n" + "y" * 500
    api.engine(api.target({"job": evil, "instance": evil, "node": evil, "a" * 300: evil}), model_name=evil)
    frame = await framed(api)
    (host,) = frame.hosts
    assert host.name.isprintable()
    assert len(host.name) <= 120
    assert all(name.isprintable() and value.isprintable() and len(value) <= 120 for name, value in host.labels.items())
    assert host.engines[0].state is EndpointState.OK


async def test_the_number_of_queries_does_not_depend_on_the_fleet():
    asked = []
    for hosts in (1, 40):
        api = Api()
        for number in range(hosts):
            api.engine(api.target({"job": "llm", "instance": f"n{number}:8000"}))
            api.gpu(api.target({"job": "dcgm", "instance": f"n{number}:9400"}), f"GPU-{number}")
        found = await frames(api, 2, match='cluster="a",', interval_s=15.0)
        assert [len(frame.hosts) for frame in found] == [hosts] * 2
        assert {query for query in api.queries if 'cluster="a"' not in query} == {"time()"}
        asked.append([frame.queries for frame in found])
        assert len(api.queries) == sum(asked[-1])
    assert asked == [[10, 12], [10, 12]]


async def test_partial_answers_are_told():
    api = Api()
    api.engine(api.target({"job": "llm", "instance": "n:8000"}))
    api.warnings = ["a store does not answer"]
    assert "a store does not answer" in texts(await framed(api))


NAME = st.sampled_from(["job", "instance", "pod", "node", "model_name", "engine", "host", "le", "a"])
LABELS = st.dictionaries(NAME, st.text(min_size=1, max_size=4), max_size=6)


@given(
    targets=st.lists(LABELS, min_size=1, max_size=4, unique_by=lambda labels: tuple(sorted(labels.items()))),
    pages=st.lists(LABELS, min_size=1, max_size=4),
)
def test_whatever_a_target_adds_the_page_is_got_back(targets: list[dict[str, str]], pages: list[dict[str, str]]):
    """As Prometheus adds labels: what the page says under the same name becomes `exported_...`."""
    targets = [{"job": "j", **labels, "instance": str(number)} for number, labels in enumerate(targets)]
    finder = TargetFinder()
    finder.take_targets(Vector(Series("up", labels), 1.0, 1.0) for labels in targets)
    for labels in targets:
        for page in pages:
            stored = {f"exported_{name}" if name in labels else name: value for name, value in page.items()} | labels
            placed = finder.find(Series("x", stored))
            assert placed.target.labels == labels
            assert placed.series.labels == page
            assert placed.series.name == "x"


@given(
    st.lists(st.dictionaries(st.sampled_from([*REPLICAS, "replica", "job", "instance", "pod"]), st.text(max_size=3)))
)
def test_any_labels_find_a_target_and_the_same_one_again(several: list[dict[str, str]]):
    finder = TargetFinder()
    for _ in range(2):
        known = finder.take_targets(Vector(Series("up", labels), 1.0, 1.0) for labels in several)
        assert len(known) <= len(several)
        for labels in several:
            series = Series("x", labels)
            assert finder.find(series) is finder.find(series)
            assert finder.find(series).target in known
        unknown = finder.find(Series("x", {"job": "no such job", **{f"b{n}": "c" for n in range(3)}})).target
        assert not unknown.has_up


def test_engines_with_equal_pages_share_the_series_of_their_pages():
    finder = TargetFinder()
    targets = [{"job": "llm", "instance": f"n{number}:8000", "node": f"n{number}"} for number in range(3)]
    finder.take_targets([Vector(Series("up", target), 0.0, 1.0) for target in targets])
    own = {"model_name": "m", "le": "0.5"}
    found = [finder.find(Series("vllm:time_to_first_token_seconds_bucket", own | target)) for target in targets]
    assert [page_series.target.labels for page_series in found] == targets
    assert found[0].series.labels == own
    assert len({id(page_series.series) for page_series in found}) == 1
    other = finder.find(Series("vllm:time_to_first_token_seconds_bucket", own | targets[0] | {"le": "1.0"}))
    assert other.series is not found[0].series
