"""What is told twice, under two names, or not at all any more: which account counts, and what becomes of the host."""

from __future__ import annotations

import pytest

from gpumon.config.schema import Prometheus
from gpumon.efficiency.deriver import Deriver
from gpumon.outputs.samples import samples
from gpumon.readings.fleet import FleetFrame
from gpumon.readings.frame import EndpointState, EngineKind, EngineReading, Frame, GpuReading, GpuState, HostReading
from gpumon.sources.packaged import gpu_catalogue
from gpumon.sources.prometheus.source import FleetSource
from tests.sources.prometheus.answering import Api


async def moments(api: Api, *moments_s: float) -> list[FleetFrame]:
    """The frames of these moments, each with what the Api then has: a step may change it before the next."""
    with api.server as server:
        source = FleetSource(Prometheus(url=server.url))
        found = [await source.frame(at_s) for at_s in moments_s or (1000.0,)]
        await source.close()
    return found


class Watched:
    """A source in the present of an Api, whose clock the test sets."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.wall_s = 1000.0
        self.source: FleetSource | None = None

    async def __aenter__(self) -> Watched:
        server = self.api.server.__enter__()
        self.source = FleetSource(Prometheus(url=server.url), wall=lambda: self.wall_s)
        self.api.now_s = lambda: self.wall_s
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self.source is not None
        await self.source.close()
        self.api.server.__exit__(None, None, None)

    async def at(self, wall_s: float) -> FleetFrame:
        assert self.source is not None
        self.wall_s = wall_s
        return await self.source.frame()


def texts(frame: FleetFrame) -> str:
    return "; ".join(fault.text for fault in frame.faults)


def own(api: Api, target: dict[str, str], name: str, *uuids: str, scraped_s: float = 990.0) -> None:
    """What `gpumon serve-metrics` exports on a host with these GPUs."""
    named = enumerate(uuids)
    gpus = tuple(GpuReading(index, uuid, "NVIDIA H100", GpuState.OK, scraped_s) for index, uuid in named)
    frame = Frame(0, scraped_s, scraped_s, 1.0, HostReading(name=name), gpus)
    for sample in samples(Deriver(gpu_catalogue()).derive(frame).snapshot):
        api.series["own"].append(({"__name__": sample.name, **sample.labels, **target}, repr(sample.value)))


def scraped(api: Api, labels: dict[str, str], at_s: float, up: float = 1.0) -> None:
    """A target's newest scrape."""
    api.up = [(one, up, at_s) if one is labels else (one, was, at) for one, was, at in api.up]


async def test_a_live_exporter_goes_before_a_dead_one_whatever_their_jobs_are_called():
    api = Api()
    dead, alive = (api.target({"job": job, "instance": f"n:{port}"}) for job, port in (("a", 9400), ("b", 9401)))
    api.gpu(dead, "GPU-a")
    api.gpu(alive, "GPU-a")
    async with Watched(api) as watched:
        await watched.at(1000.0)
        scraped(api, dead, 1500.0, up=0.0)
        scraped(api, alive, 1500.0)
        api.series["gpus"] = [(labels, "70") for labels, _ in api.series["gpus"] if labels["job"] == "b"]
        frame = await watched.at(1505.0)
    (host,) = frame.hosts
    assert [gpu.monotonic_s for gpu in host.gpus] == [1500.0]
    assert host.faults == (), "its GPUs are told"


async def test_a_live_engine_goes_before_a_target_that_never_answered():
    for dead, alive in (("a", "b"), ("b", "a")):
        api = Api()
        api.engine(api.target({"job": alive, "instance": "n:8000"}))
        api.engine(api.target({"job": dead, "instance": "other:8000"}))
        api.target({"job": dead, "instance": "n:8000"}, up=0.0)
        (frame,) = await moments(api)
        (reading,) = next(host for host in frame.hosts if host.name == "n").engines
        assert reading.state is EndpointState.OK, dead
        assert reading.monotonic_s == 990.0


async def test_two_pods_of_one_job_with_one_address_are_two_engines():
    api = Api()
    for pod, tokens in (("chat-0", 5.0), ("chat-1", 7.0)):
        labels = {"job": "llm", "instance": "n:8000", "namespace": "s", "pod": pod}
        api.engine(api.target(labels), tokens)
    (frame,) = await moments(api)
    (host,) = frame.hosts
    assert sorted(engine.ranks[0].counters["decode_tokens"] for engine in host.engines) == [5.0, 7.0]
    assert len({engine.url for engine in host.engines}) == 2
    assert len({engine.name for engine in host.engines}) == 2
    assert "two jobs" not in texts(frame)
    api = Api()
    for job, pod in (("a", "chat-0"), ("b", "chat-1")):
        api.engine(api.target({"job": job, "instance": "n:8000", "namespace": "s", "pod": pod}))
    (frame,) = await moments(api)
    assert len(frame.hosts[0].engines) == 2


async def test_a_machine_under_three_names_is_one_host():
    api = Api()
    own(api, api.target({"job": "gpumon", "instance": "10.0.0.5:9454"}), "gpu01.example", "GPU-a", "GPU-b")
    exporter = api.target({"job": "dcgm", "instance": "10.0.0.5:9400"})
    for index, uuid in enumerate(("GPU-a", "GPU-b")):
        api.gpu(exporter, uuid, index, Hostname="gpu01")
    (frame,) = await moments(api)
    (host,) = frame.hosts
    assert host.name == "gpu01.example"
    assert host.exported_snapshot is not None
    assert "1 hosts have two names, such as gpu01 and gpu01.example" in texts(frame)


async def test_engines_that_a_hosts_own_gpumon_does_not_see_stay_and_their_gpus_with_them():
    """A gpumon in a container of its own sees GPUs and no engine."""
    api = Api()
    own(api, api.target({"job": "gpumon", "instance": "gpu01:9454"}), "gpu01", "GPU-a", "GPU-b")
    api.engine(api.target({"job": "llm", "instance": "gpu01:8000"}))
    (frame,) = await moments(api)
    (host,) = frame.hosts
    assert host.exported_snapshot is not None
    assert [engine.url for engine in host.engines] == ["gpu01:8000"]
    assert "sees none of the 1 engines that this Prometheus scrapes here" in host.faults[0].text

    exporter = api.target({"job": "dcgm", "instance": "gpu01:9400"})
    for index, uuid in enumerate(("GPU-a", "GPU-b")):
        api.gpu(exporter, uuid, index, Hostname="gpu01")
    (frame,) = await moments(api)
    (host,) = frame.hosts
    assert host.exported_snapshot is None
    assert [gpu.uuid for gpu in host.gpus] == ["GPU-a", "GPU-b"]
    assert len(host.engines) == 1
    assert "sees none of the 1 engines" in host.faults[0].text


async def test_a_gpu_under_two_host_names_counts_once_and_its_engines_are_beside_it():
    api = Api()
    for job, name in (("a", "long.example"), ("b", "short")):
        api.gpu(api.target({"job": f"dcgm-{job}", "instance": f"10.0.0.{len(api.up)}:9400"}), "GPU-a", Hostname=name)
    api.gpu(api.target({"job": "dcgm-a", "instance": "10.0.0.9:9400"}), "GPU-z", Hostname="other")
    api.engine(api.target({"job": "llm", "instance": "10.1.1.1:8000", "node": "short"}))
    (frame,) = await moments(api)
    assert [(host.name, len(host.gpus), len(host.engines)) for host in frame.hosts] == [
        ("long.example", 1, 1),
        ("other", 1, 0),
    ]
    assert "1 hosts have two names, such as short and long.example" in texts(frame)


async def test_a_name_stays_while_an_exporter_pauses():
    api = Api()
    target = api.target({"job": "gpumon", "instance": "10.0.0.5:9454"})
    own(api, target, "gpu01.example", "GPU-a")
    api.gpu(api.target({"job": "dcgm", "instance": "10.0.0.5:9400"}), "GPU-a", Hostname="gpu01")
    async with Watched(api) as watched:
        first = await watched.at(1000.0)
        scraped(api, target, 1010.0, up=0.0)
        api.series["own"] = []
        second = await watched.at(1015.0)
    assert [host.name for host in (*first.hosts, *second.hosts)] == ["gpu01.example"] * 2
    assert second.hosts[0].exported_snapshot is None
    assert len(second.hosts[0].gpus) == 1
    assert "cannot scrape this host's gpumon" in second.hosts[0].faults[0].text


@pytest.mark.parametrize("gone", ["m", "other"])
async def test_a_model_that_a_hosts_own_gpumon_tells_of_is_not_gone(gone: str):
    api = Api()
    target = api.target({"job": "gpumon", "instance": "n1:9454"})
    engine = EngineReading("vllm:8000", "http://n1:8000", EndpointState.OK, 990.0, kind=EngineKind.VLLM, model="m")
    frame = Frame(0, 990.0, 990.0, 1.0, HostReading(name="n1"), engines=(engine,))
    for sample in samples(Deriver(gpu_catalogue()).derive(frame).snapshot):
        api.series["own"].append(({"__name__": sample.name, **sample.labels, **target}, repr(sample.value)))
    before = {"__name__": "vllm:num_requests_running", "job": "llm", "instance": "n0:8000", "model_name": gone}
    api.day_before = {"count by (__name__": [(before, "1")]}
    async with Watched(api) as watched:
        await watched.at(1000.0)
        told = texts(await watched.at(1015.0))
    assert ("no engine serves" in told) is (gone == "other")


async def test_a_gpu_that_went_to_another_machine_does_not_join_the_two():
    api = Api()
    old = api.target({"job": "dcgm", "instance": "vm1:9400"})
    api.gpu(old, "GPU-a")
    async with Watched(api) as watched:
        await watched.at(1000.0)
        scraped(api, old, 1010.0, up=0.0)
        api.series["gpus"] = []
        api.gpu(api.target({"job": "dcgm", "instance": "vm2:9400"}, 1010.0), "GPU-a")
        frame = await watched.at(1015.0)
    assert [(host.name, len(host.gpus), len(host.faults)) for host in frame.hosts] == [("vm1", 0, 1), ("vm2", 1, 0)]


async def test_a_cluster_that_only_some_targets_name_parts_no_host():
    pod = {"namespace": "s", "pod": "chat-0"}
    for clusters in (("c1",), ("c1", "c2")):
        api = Api()
        for cluster in clusters:
            labels = {
                "job": "llm",
                "instance": f"10.0.0.1:800{len(api.up)}",
                "node": f"n-{cluster}",
                "cluster": cluster,
            }
            api.engine(api.target({**labels, **pod}))
        api.gpu(api.target({"job": "dcgm", "instance": "10.0.0.2:9400"}), "GPU-a", Hostname="n-c1", **pod)
        (frame,) = await moments(api)
        names = ["n-c1"] if len(clusters) == 1 else ["c1/n-c1", "c2/n-c2"]
        assert [host.name for host in frame.hosts] == names
        assert len(frame.hosts[0].gpus) == len(frame.hosts[0].engines) == 1
    assert "two names" not in texts(frame)


async def test_a_host_whose_exporter_was_never_up_is_unreachable_not_absent():
    api = Api()
    api.gpu(api.target({"job": "dcgm", "instance": "up:9400"}), "GPU-a")
    api.target({"job": "dcgm", "instance": "down:9400"}, up=0.0)
    api.target({"job": "node", "instance": "cpu:9100"}, up=0.0)
    (frame,) = await moments(api)
    assert [(host.name, len(host.gpus)) for host in frame.hosts] == [("down", 0), ("up", 1)]
    assert "cannot scrape this host's dcgm-exporter" in frame.hosts[0].faults[0].text
    assert frame.hosts[1].faults == ()


async def test_a_host_whose_own_gpumon_is_down_stays_and_says_so():
    api = Api()
    one, other = (api.target({"job": "gpumon", "instance": f"10.0.0.{last}:9454"}) for last in (5, 6))
    api.target({"job": "gpumon", "instance": "10.0.0.7:9454"}, up=0.0)
    own(api, one, "big", "GPU-a")
    own(api, other, "small", "GPU-b")
    async with Watched(api) as watched:
        first = await watched.at(1000.0)
        scraped(api, one, 2000.0, up=0.0)
        scraped(api, other, 2000.0)
        api.series["own"] = [item for item in api.series["own"] if item[0]["instance"] == "10.0.0.6:9454"]
        second = await watched.at(2005.0)
        third = await watched.at(2020.0)
    assert [(host.name, host.exported_snapshot is None) for host in first.hosts] == [
        ("10.0.0.7", True),
        ("big", False),
        ("small", False),
    ]
    for frame in (second, third):
        gone = frame.hosts[1]
        assert (gone.name, gone.exported_snapshot, gone.gpus) == ("big", None, ())
        assert "cannot scrape this host's gpumon serve-metrics" in gone.faults[0].text
        assert gone.faults[0].since_wall_s == second.wall_s


async def test_the_version_of_each_hosts_own_gpumon_is_known():
    api = Api()
    for name, version in (("n1", "0.3.0"), ("n2", "0.2.0\x1b[31m")):
        target = api.target({"job": "gpumon", "instance": f"{name}:9835", "node": name})
        own(api, target, name, f"GPU-{name}")
        api.series["own"].append(({"__name__": "gpumon_build_info", "version": version, **target}, "1"))
    (frame,) = await moments(api, 1000.0)
    versions = {host.name: host.gpumon_version for host in frame.hosts}
    assert versions["n1"] == "0.3.0"
    assert versions["n2"].startswith("0.2.0")
    assert "\x1b" not in versions["n2"]


async def test_two_hosts_each_with_its_own_gpumon_are_two_whatever_their_gpus_are_called():
    api = Api()
    for last, name in ((5, "alpha"), (6, "beta")):
        own(api, api.target({"job": "gpumon", "instance": f"10.0.0.{last}:9454"}), name, "GPU-a")
    (frame,) = await moments(api)
    assert [host.name for host in frame.hosts] == ["alpha", "beta"]
    assert frame.faults == ()


async def test_machines_of_one_name_in_clusters_that_no_setting_names_are_not_merged():
    api = Api()
    for region in ("east", "west"):
        more = {"node": "n", "region": region}
        api.engine(api.target({"job": "llm", "instance": f"10.0.{len(region)}.{len(api.up)}:8000", **more}))
        api.gpu(api.target({"job": "dcgm", "instance": f"{region}:9400", **more}), f"GPU-{region}", 0)
    (frame,) = await moments(api)
    assert [(host.name, [gpu.uuid for gpu in host.gpus], len(host.engines)) for host in frame.hosts] == [
        ("n@east", ["GPU-east"], 1),
        ("n@west", ["GPU-west"], 1),
    ]
    assert any("2 machines are called n" in fault.text for fault in frame.faults)


async def test_clusters_are_told_apart_by_whichever_label_they_have():
    api = Api()
    for cluster in ("east", "west"):
        more = {"node": "n", "k8s_cluster_name": cluster}
        api.engine(api.target({"job": "llm", "instance": "10.0.0.1:8000", **more}))
        api.gpu(api.target({"job": "dcgm", "instance": "10.0.0.1:9400", **more}), f"GPU-{cluster}", 0)
    (frame,) = await moments(api)
    assert [(host.name, len(host.gpus), len(host.engines)) for host in frame.hosts] == [
        ("east/n", 1, 1),
        ("west/n", 1, 1),
    ]


async def test_a_pod_stays_on_its_host_while_an_exporter_is_rolled_out():
    api = Api()
    pod = {"namespace": "s", "pod": "llm-0"}
    api.engine(api.target({"job": "llm", "instance": "10.0.0.7:8000", **pod}))
    exporter = api.target({"job": "dcgm", "instance": "10.0.9.1:9400"})
    api.gpu(exporter, "GPU-a", 0, Hostname="n1", **pod)
    with api.server as server:
        source = FleetSource(Prometheus(url=server.url))
        api.now_s = lambda: 1000.0
        first = await source.frame()
        gpus, up = api.series["gpus"], api.up.pop()
        api.series["gpus"] = []
        second = await source.frame()
        api.series["gpus"] = [({**labels, "instance": "10.0.9.2:9400"}, value) for labels, value in gpus]
        api.target({**up[0], "instance": "10.0.9.2:9400"})
        third = await source.frame()
        await source.close()
    assert [[host.name for host in frame.hosts] for frame in (first, second, third)] == [["n1"]] * 3
    assert third.hosts[0].engines[0].gpus == ("GPU-a",)


async def test_a_host_that_was_another_under_its_address_is_no_phantom():
    api = Api()
    pod = {"namespace": "s", "pod": "llm-0"}
    api.engine(api.target({"job": "llm", "instance": "10.0.0.7:8000", **pod}))
    with api.server as server:
        source = FleetSource(Prometheus(url=server.url))
        api.now_s = lambda: 1000.0
        first = await source.frame()
        api.gpu(api.target({"job": "dcgm", "instance": "10.0.9.1:9400"}), "GPU-a", 0, Hostname="n1", **pod)
        second = await source.frame()
        await source.close()
    assert [host.name for host in first.hosts] == ["10.0.0.7"]
    assert ([host.name for host in second.hosts], second.merged_hosts) == (["n1"], ("10.0.0.7",))


@pytest.mark.parametrize("refused", [(), ("max by (UUID", "count by (__name__")])
async def test_the_day_before_tells_since_when_a_gpu_is_idle(refused: tuple[str, ...]):
    api = Api()
    api.limited = refused
    exporter = api.target({"job": "dcgm", "instance": "n:9400"})
    for index in range(3):
        api.gpu(exporter, f"GPU-{index}", index)
    api.series["gpus"] = [({**labels}, "0" if labels["UUID"] != "GPU-2" else "90") for labels, _ in api.series["gpus"]]
    api.now_s = lambda: 100_000.0
    api.day_before = {
        "max_over_time(timestamp(max_over_time(DCGM_FI_DEV_GPU_UTIL": [({"UUID": "GPU-1"}, "90000")],
        "min_over_time(timestamp(DCGM_FI_DEV_GPU_UTIL": [({"UUID": f"GPU-{at}"}, "13600") for at in range(3)],
    }
    with api.server as server:
        source = FleetSource(Prometheus(url=server.url))
        await source.settle()
        frame = await source.frame()
        await source.close()
    gpus = {gpu.uuid: gpu for gpu in frame.hosts[0].gpus}
    assert {uuid: gpu.idle_since_wall_s for uuid, gpu in gpus.items()} == {
        "GPU-0": 13600.0,
        "GPU-1": 90000.0,
        "GPU-2": 0.0,
    }
