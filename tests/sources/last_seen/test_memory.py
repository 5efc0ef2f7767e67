"""What is remembered of engines that end, minute by minute on a clock of its own."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpumon.readings.frame import (
    DRAINS_CONNECTIONS,
    DRAINS_SINCE,
    LAST_ANSWER,
    STARTS,
    EndpointState,
    EngineKind,
    EngineReading,
    GpuProcess,
    GpuReading,
    GpuState,
    LastFigures,
    Phase,
    RankReading,
)
from gpumon.readings.missing import WARMING_UP
from gpumon.readings.quantities import DECODE_TOKENS, KV_USAGE, PREFILL_COMPUTED, RUNNING, WAITING
from gpumon.sources.last_seen.causes import Cause
from gpumon.sources.last_seen.memory.engines import LastSeen
from gpumon.sources.last_seen.processes.process_state import ProcessState, ServerWork
from gpumon.sources.last_seen.records import TICKS_PER_S, EngineOrigin, KnownEngine, WrittenMemory
from gpumon.sources.last_seen.store import LastSeenStore
from tests.records import replace

URL = "http://127.0.0.1:8000"
WALL_S = 1_767_225_600.0
HOUR_S = 3600.0
VLLM = EngineOrigin(pid=4121, started=77, gpu_pids=(4122,), command="vllm serve m", unit="vllm.service")
OK, DOWN, REFUSED, TIMEOUT, STARTING = (
    EndpointState.OK,
    EndpointState.DOWN,
    EndpointState.REFUSED,
    EndpointState.TIMEOUT,
    EndpointState.STARTING,
)


class Host:
    """A memory and its clock: engines are polled at every step."""

    def __init__(self, **settings: Any) -> None:
        self.memory = LastSeen(**settings)
        self.now_s = 5000.0
        self.processes = ProcessState(looks=True)

    @property
    def wall_s(self) -> float:
        return WALL_S + self.now_s

    def reading(self, state: EndpointState = OK, url: str = URL, running: float = 4.0, **more: Any) -> EngineReading:
        """A poll of this moment."""
        rank = RankReading("0", {}, {RUNNING: running, WAITING: 0.0}, {})
        ranks = (rank,) if state is OK else ()
        values = {"kind": EngineKind.VLLM, "model": "m", "ranks": ranks, "found_by": "discovery", **more}
        return EngineReading("vllm:8000", url, state, self.now_s, **values)

    def see(self, *engines: EngineReading, gpus: tuple[GpuReading, ...] = ()) -> list[EngineReading]:
        """A tick."""
        return list(self.memory.take(engines, gpus, self.processes, self.wall_s, self.now_s))

    def serve(self, seconds: int = 60, running: float = 4.0, **more: Any) -> EngineReading:
        """An engine that answers for a while; its last reading."""
        for _ in range(0, seconds, 2):
            self.now_s += 2.0
            last = self.reading(running=running, **more)
            (shown,) = self.see(last)
            assert shown.state is OK
        return last

    def runs(self, origin: EngineOrigin, url: str = URL, *, listens: bool = True) -> None:
        """Its process is known."""
        self.processes = self.processes._replace(servers={url: origin}, listening=frozenset({url} if listens else ()))

    def ends(self, origin: EngineOrigin) -> None:
        """Its process is gone."""
        self.processes = ProcessState(looks=True, ended=frozenset({origin.id}))


@pytest.fixture
def host() -> Host:
    return Host()


def states(engines: list[EngineReading]) -> list[EndpointState]:
    return [engine.state for engine in engines]


def test_an_engine_whose_process_is_gone_is_down_at_once_and_for_a_day(host: Host) -> None:
    host.runs(VLLM)
    host.serve()
    host.ends(VLLM)
    (shown,) = host.see()
    departure = shown.departure
    assert shown.state is DOWN
    assert departure is not None
    assert (departure.pid, departure.planned, departure.unit) == (4121, False, "vllm.service")
    assert departure.log == "journalctl -u vllm.service -n 100"
    assert departure.start == "systemctl start vllm.service"
    assert shown.model == "m"
    assert "pid 4121, cause unknown" in shown.fault
    host.now_s += 24 * HOUR_S - 1.0
    assert states(host.see()) == [DOWN]
    host.now_s += 2.0
    assert host.see() == []
    assert host.memory.records() == []


def test_its_last_figures_are_known_also_to_a_run_that_began_after_its_end(host: Host) -> None:
    host.runs(VLLM)
    tokens = 0.0
    for _ in range(30):
        host.now_s += 2.0
        tokens += 2500.0 if host.now_s > 5040.0 else 10.0
        gauges = {RUNNING: 12.0, WAITING: 3.0, KV_USAGE: 0.61}
        host.see(host.reading(ranks=(RankReading("0", {DECODE_TOKENS: tokens}, gauges, {}),)))
    later = Host()
    later.now_s = host.now_s + HOUR_S
    later.memory.load(host.memory.records())
    for one in (host, later):
        one.ends(VLLM)
        (shown,) = one.see()
        assert shown.departure is not None
        assert shown.departure.figures == LastFigures(12.0, 3.0, 0.61, 1250.0)


def test_the_rate_of_an_ended_engine_is_of_its_last_process_alone(host: Host) -> None:
    host.runs(VLLM)
    for tokens in (9000.0, 9100.0, 40.0):
        host.now_s += 2.0
        host.see(host.reading(ranks=(RankReading("0", {DECODE_TOKENS: tokens}, {}, {}),)))
    host.ends(VLLM)
    (shown,) = host.see()
    assert shown.departure is not None
    assert shown.departure.figures == LastFigures(decode_tokens_per_s=WARMING_UP)


def test_one_whose_tokens_move_between_two_polls_had_something_to_do(host: Host) -> None:
    host.runs(VLLM)
    for tokens in range(100, 140):
        host.now_s += 2.0
        gauges = {RUNNING: 0.0, WAITING: 0.0}
        host.see(host.reading(ranks=(RankReading("0", {PREFILL_COMPUTED: float(tokens)}, gauges, {}),)))
    host.ends(VLLM)
    (shown,) = host.see()
    assert shown.departure is not None
    assert not shown.departure.planned


def test_one_that_had_nothing_to_do_was_stopped_and_is_gone_after_ten_minutes(host: Host) -> None:
    host.runs(VLLM)
    host.serve(20)
    host.serve(32, running=0.0)
    host.ends(VLLM)
    (shown,) = host.see()
    assert shown.departure is not None
    assert shown.departure.planned
    assert "after 30 s without requests" in shown.fault
    host.now_s += 599.0
    assert states(host.see()) == [DOWN]
    host.now_s += 2.0
    assert host.see() == []


def test_half_a_minute_of_rest_is_needed_for_that_and_seen(host: Host) -> None:
    host.runs(VLLM)
    host.serve(20)
    host.serve(24, running=0.0)
    host.ends(VLLM)
    (shown,) = host.see()
    assert shown.departure is not None
    assert not shown.departure.planned


def test_what_it_did_while_nobody_looked_is_not_known(host: Host) -> None:
    host.runs(VLLM)
    host.serve(60, running=0.0)
    later = Host()
    later.now_s = host.now_s + HOUR_S
    later.memory.load(host.memory.records())
    later.ends(VLLM)
    (shown,) = later.see()
    assert shown.departure is not None
    assert not shown.departure.planned


@pytest.mark.parametrize(
    ("more", "origin"),
    [
        ({}, replace(VLLM, pid=9000)),  # at the same URL
        ({"url": "http://127.0.0.1:9000"}, replace(VLLM, pid=9000)),  # by the same command
        ({"url": "http://127.0.0.1:9000"}, replace(VLLM, pid=9000, command="vllm serve m --port 9000")),  # same model
    ],
)
def test_it_leaves_when_another_one_serves_in_its_place(host: Host, more: dict[str, Any], origin: EngineOrigin) -> None:
    host.runs(VLLM)
    host.serve()
    host.ends(VLLM)
    assert states(host.see()) == [DOWN]
    host.now_s += 60.0
    host.processes = ProcessState(
        servers={more.get("url", URL): origin}, ended=frozenset({VLLM.id}), listening=frozenset({URL}), looks=True
    )
    assert states(host.see(host.reading(**more))) == [OK]
    host.now_s += 60.0
    assert states(host.see(host.reading(**more))) == [OK]


def test_a_replica_that_served_all_along_takes_nobodys_place(host: Host) -> None:
    other = "http://127.0.0.1:9000"
    twin = replace(VLLM, pid=5000, command="vllm serve m --port 9000")
    host.processes = ProcessState(servers={URL: VLLM, other: twin}, listening=frozenset({URL, other}), looks=True)
    for _ in range(20):
        host.now_s += 2.0
        host.see(host.reading(), host.reading(url=other))
    host.processes = ProcessState(
        servers={other: twin}, listening=frozenset({other}), ended=frozenset({VLLM.id}), looks=True
    )
    for _ in range(20):
        host.now_s += 2.0
        assert states(host.see(host.reading(url=other))) == [OK, DOWN]


def test_one_that_is_back_takes_the_place_of_itself_and_not_of_a_twin_that_is_down(host: Host) -> None:
    other = "http://127.0.0.1:9000"
    twin = replace(VLLM, pid=5000, command="vllm serve m --port 9000")
    host.processes = ProcessState(servers={URL: VLLM, other: twin}, listening=frozenset({URL, other}), looks=True)
    for _ in range(20):
        host.now_s += 2.0
        host.see(host.reading(), host.reading(url=other))
    host.processes = ProcessState(ended=frozenset({VLLM.id, twin.id}), looks=True)
    assert states(host.see()) == [DOWN, DOWN]
    back = replace(twin, pid=6000)
    host.processes = host.processes._replace(servers={other: back}, listening=frozenset({other}))
    for _ in range(20):
        host.now_s += 2.0
        assert states(host.see(host.reading(url=other))) == [OK, DOWN]


@pytest.mark.parametrize(("began_s", "shown"), [(5061.0, [OK]), (5010.0, [OK, DOWN])])
def test_the_start_of_its_process_tells_a_quick_restart_on_another_port_from_a_replica(
    host: Host, began_s: float, shown: list[EndpointState]
) -> None:
    slept_s = 7000.0
    host.runs(VLLM)
    host.serve()
    other = "http://127.0.0.1:9000"
    ticks = int((began_s + slept_s) * TICKS_PER_S)
    fresh = replace(VLLM, pid=9000, started=ticks, command="vllm serve m --port 9000")
    host.processes = ProcessState(
        servers={URL: VLLM, other: fresh}, listening=frozenset({URL, other}), looks=True, slept_s=slept_s
    )
    host.now_s += 3.0
    host.see(host.reading(url=other))
    host.processes = host.processes._replace(servers={other: fresh}, ended=frozenset({VLLM.id}))
    for _ in range(5):
        host.now_s += 1.0
        assert states(host.see(host.reading(url=other))) == shown


@pytest.mark.parametrize("state", [TIMEOUT, EndpointState.UNAUTHORIZED, STARTING])
def test_a_new_process_that_listens_and_gives_no_figures_is_not_the_one_that_ended(
    host: Host, state: EndpointState
) -> None:
    host.runs(VLLM)
    host.serve()
    host.ends(VLLM)
    assert states(host.see()) == [DOWN]
    host.runs(replace(VLLM, pid=9000))
    host.now_s += 2.0
    (shown,) = host.see(host.reading(state))
    assert (shown.state, LAST_ANSWER in shown.info) == (state, True)


def test_an_endpoint_given_once_whose_process_was_here_is_down_also_for_a_run_without_it(host: Host) -> None:
    host.runs(VLLM)
    host.serve(found_by="config")
    host.serve(2, found_by="config", url="http://10.0.0.7:8000")
    later = Host()
    later.now_s = host.now_s + 60.0
    later.memory.load(host.memory.records())
    assert later.see() == []
    later.ends(VLLM)
    (shown,) = later.see()
    assert (shown.url, shown.state) == (URL, DOWN)


def test_a_clock_that_jumps_ends_no_engine_and_keeps_no_row_for_years(host: Host) -> None:
    host.serve(found_by="config")
    host.now_s += 1.0
    host.memory.take([host.reading(REFUSED, found_by="config")], (), host.processes, host.wall_s, host.now_s)
    host.now_s += 1.0
    jumped_s = host.wall_s + HOUR_S
    refused = host.reading(REFUSED, found_by="config")
    assert states(list(host.memory.take([refused], (), host.processes, jumped_s, host.now_s))) == [REFUSED]
    ahead = Host()
    ahead.now_s = 365 * 24 * HOUR_S
    ahead.runs(VLLM)
    ahead.serve()
    ahead.ends(VLLM)
    assert states(ahead.see()) == [DOWN]
    assert ahead.memory.take((), (), ahead.processes, WALL_S, ahead.now_s + 1.0) == ()


def test_another_url_of_the_same_server_is_no_end(host: Host) -> None:
    host.runs(VLLM)
    host.serve()
    moved = "http://10.0.0.1:8000"
    host.runs(VLLM, moved)
    host.now_s += 2.0
    assert states(host.see(host.reading(url=moved))) == [OK]
    host.ends(VLLM)
    assert [one.url for one in host.see()] == [moved]


def test_an_endpoint_without_a_known_process_is_down_once_it_refused_for_ten_seconds(host: Host) -> None:
    host.serve(found_by="config")
    for _ in range(10):
        host.now_s += 1.0
        (shown,) = host.see(host.reading(REFUSED, found_by="config"))
        assert shown.state is REFUSED
        assert shown.info[LAST_ANSWER]
    host.now_s += 1.0
    (shown,) = host.see(host.reading(REFUSED, found_by="config"))
    assert shown.state is DOWN
    host.now_s += 24 * HOUR_S + 1.0
    (shown,) = host.see(host.reading(REFUSED, found_by="config"))
    assert (shown.state, "take it out of the config" in shown.fault) == (REFUSED, True)
    host.now_s += 10.0
    assert states(host.see(host.reading(found_by="config"))) == [OK]


def test_one_that_times_out_has_not_ended(host: Host) -> None:
    host.serve(found_by="config")
    for _ in range(60):
        host.now_s += 10.0
        (shown,) = host.see(host.reading(TIMEOUT, found_by="config"))
        assert (shown.state, shown.model) == (TIMEOUT, "m")
    assert float(shown.info[LAST_ANSWER]) == pytest.approx(host.wall_s - 600.0, abs=1.0)


def test_a_url_at_which_nothing_was_seen_says_so(host: Host) -> None:
    (shown,) = host.see(host.reading(REFUSED, found_by="config", model="", fault="nothing listens"))
    assert shown.state is REFUSED
    assert "never seen serving" in shown.fault


def loading(vram_bytes: float) -> tuple[GpuReading, ...]:
    process = GpuProcess(4122, vram_bytes=vram_bytes)
    return (GpuReading(0, "GPU-0", "H100", GpuState.OK, 0.0, processes=(process,)),)


@pytest.mark.parametrize(
    ("work", "growth", "says", "words"),
    [
        (ServerWork(900e6, 0.9), 0.0, "loading_weights", "reads 900 MB/s from disk"),
        (ServerWork(None, None), 1e9, "loading_weights", "VRAM"),
        (ServerWork(0.0, 3.2), 0.0, "compiling", "3.2 CPU cores busy"),
        (ServerWork(0.0, 0.1), 0.0, "starting", "does not listen yet"),
    ],
)
def test_a_process_that_does_not_listen_yet_is_starting(
    host: Host, work: ServerWork, growth: float, says: str, words: str
) -> None:
    host.runs(VLLM, listens=False)
    host.processes = host.processes._replace(works={VLLM.id: work})
    host.see(host.reading(REFUSED, found_by="config"), gpus=loading(2e9))
    host.now_s += 5.0
    (shown,) = host.see(host.reading(REFUSED, found_by="config"), gpus=loading(2e9 + 5.0 * growth))
    assert (shown.state, shown.info[STARTS]) == (STARTING, says)
    assert words in shown.fault


def test_a_new_process_of_an_engine_that_ended_is_starting_and_the_old_one_is_not(host: Host) -> None:
    host.runs(VLLM)
    host.serve()
    host.now_s += 2.0
    host.runs(VLLM, listens=False)
    assert states(host.see(host.reading(REFUSED))) == [REFUSED]  # it closed its port and lives
    host.ends(VLLM)
    assert states(host.see(host.reading(REFUSED))) == [DOWN]
    host.runs(replace(VLLM, pid=9000), listens=False)
    assert states(host.see(host.reading(STARTING))) == [STARTING]


def test_the_cause_is_waited_for_and_a_late_one_is_taken(host: Host) -> None:
    asked: list[Future[Cause]] = []

    def ask(served: KnownEngine) -> Future[Cause]:
        assert served.origin == VLLM
        asked.append(Future())
        return asked[-1]

    host = Host(ask=ask)
    host.runs(VLLM)
    last = host.serve()
    host.ends(VLLM)
    assert states(host.see(last)) == [OK]
    host.now_s += 3.5
    (shown,) = host.see(last)
    assert (shown.state, "cause unknown" in shown.fault) == (DOWN, True)
    asked[0].set_result(Cause("signal", 9, planned=False, source="systemd vllm.service", wall_s=host.wall_s - 3.0))
    (shown,) = host.see(last)
    assert shown.fault == "pid 4121, killed by signal 9 (systemd vllm.service)"
    assert shown.departure is not None
    assert shown.departure.wall_s == host.wall_s - 3.0
    host.see(last)
    assert len(asked) == 1


def test_training_runs_and_models_that_ollama_unloads_end_without_a_word(host: Host) -> None:
    host.runs(VLLM)
    host.serve(phase=Phase.TRAINING)
    host.ends(VLLM)
    assert host.see() == []
    host = Host()
    host.runs(VLLM)
    host.processes = host.processes._replace(passing=frozenset({URL}))
    host.serve()
    host.ends(VLLM)
    assert host.see() == []


@pytest.mark.parametrize("ready", [True, False])
def test_a_new_process_that_serves_already_when_gpumon_starts_is_no_end(host: Host, ready: bool) -> None:
    host.runs(VLLM)
    host.serve()
    later = Host()
    later.now_s = host.now_s + HOUR_S
    later.memory.load(host.memory.records())
    answer = later.reading()
    if not ready:
        assert states(later.see(answer)) == [OK]  # before the first look at processes
    later.now_s += 0.5
    later.runs(replace(VLLM, pid=9000))
    later.processes = later.processes._replace(ended=frozenset({VLLM.id}))
    if ready:
        assert later.memory.ask_causes(later.processes, later.now_s, later.wall_s) == []
    for _ in range(3):
        assert states(later.see(answer)) == [OK]
        later.now_s += 0.5
    later.ends(replace(VLLM, pid=9000))
    (shown,) = later.see()
    assert shown.departure is not None
    assert shown.departure.pid == 9000


def test_a_reboot_ends_what_ran(host: Host) -> None:
    host.runs(VLLM)
    host.serve()
    later = Host()
    later.now_s = host.now_s + 300.0
    later.memory.load(host.memory.records())
    later.processes = ProcessState(looks=True, rebooted=True)
    (shown,) = later.see()
    assert (shown.state, "its host restarted" in shown.fault) == (DOWN, True)


def test_an_engine_that_ended_is_not_on_a_gpu_that_another_one_took(host: Host) -> None:
    host.runs(VLLM)
    host.serve(gpus=("GPU-0", "GPU-1"))
    host.ends(VLLM)
    assert host.see()[0].gpus == ("GPU-0", "GPU-1")
    new = host.reading(url="http://127.0.0.1:9000", model="other", gpus=("GPU-1",))
    assert [one.gpus for one in host.see(new)] == [("GPU-1",), ("GPU-0",)]


def test_more_engines_than_are_remembered_cost_the_oldest_that_ended(host: Host) -> None:
    for number in range(80):
        host.now_s += 2.0
        url = f"http://127.0.0.1:{9000 + number}"
        origin = replace(VLLM, pid=10_000 + number, command=f"vllm serve m{number}")
        host.processes = ProcessState(looks=True, servers={url: origin}, listening=frozenset({url}))
        host.see(host.reading(url=url, model=f"m{number}"))
        host.ends(origin)
        host.see()
    assert len(host.memory.records()) == 64
    assert host.memory.records()[-1].reading.model == "m79"


def test_the_file_keeps_what_another_gpumon_wrote_and_no_secret(host: Host, tmp_path: Path) -> None:
    host.runs(VLLM)
    host.serve()
    path = tmp_path / "state" / "engines.json"
    assert LastSeenStore(path).write(host.memory.records(), (), {}, host.wall_s)
    other = Host()
    other.now_s = host.now_s
    other.serve(url="http://10.0.0.7:8000", found_by="config")
    store = LastSeenStore(path)
    assert store.write(other.memory.records(), (), {}, host.wall_s)
    urls = {served.reading.url for served in LastSeenStore(path).read(host.wall_s).engines}
    assert urls == {URL, "http://10.0.0.7:8000"}
    assert LastSeenStore(path).read(host.wall_s + 25 * HOUR_S).engines == []
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(tmp_path.joinpath("state").iterdir()) == [path]


def test_the_newer_record_of_an_engine_stays_in_the_file(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "engines.json"
    host.runs(VLLM)
    host.serve()
    older = [replace(served) for served in host.memory.records()]
    host.serve(10)
    host.ends(VLLM)
    assert states(host.see()) == [DOWN]
    assert LastSeenStore(path).write(host.memory.records(), (), {}, host.wall_s)
    assert LastSeenStore(path).write(older, (), {}, host.wall_s)
    (served,) = LastSeenStore(path).read(host.wall_s).engines
    assert served.departure is not None
    assert LastSeenStore(path).write([], (), {served.reading.key: host.wall_s}, host.wall_s)
    assert LastSeenStore(path).read(host.wall_s).engines == []


def test_what_was_seen_from_another_container_stays_for_those_who_run_there(host: Host, tmp_path: Path) -> None:
    """Its pids are other processes there, and its ports may be those of another network."""
    path = tmp_path / "engines.json"
    host.serve()
    assert LastSeenStore(path).write(host.memory.records(), (), {}, WALL_S)
    written = msgspec.json.decode(path.read_bytes(), type=WrittenMemory)
    (record,) = written.engines
    pids = Path("/proc/self/ns/pid").readlink()
    networks = Path("/proc/self/ns/net").readlink()
    assert record.place.startswith(f"{pids} ")
    assert record.place.endswith(f" {networks}")
    record.place = "pid:[1] 77 net:[2]"
    path.write_bytes(msgspec.json.encode(written))
    assert LastSeenStore(path).read(host.wall_s).engines == []
    other = Host()
    other.serve(url="http://127.0.0.1:9000")
    assert LastSeenStore(path).write(other.memory.records(), (), {}, WALL_S)
    written = msgspec.json.decode(path.read_bytes(), type=WrittenMemory)
    assert [engine.reading.url for engine in written.engines] == ["http://127.0.0.1:9000", URL]
    (own,) = LastSeenStore(path).read(host.wall_s).engines
    assert own.reading.url == "http://127.0.0.1:9000"


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"version":2,"host":"x","boot":""}', b"\xff" * 50, b"[" * 9999]
)
def test_a_damaged_file_counts_as_none(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "engines.json"
    path.write_bytes(content)
    assert LastSeenStore(path).read(WALL_S).engines == []
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    assert LastSeenStore(path).read(WALL_S).engines == []
    path.unlink()
    path.mkdir()
    assert not LastSeenStore(path).write([], (), {}, WALL_S)


def test_an_engine_that_closes_its_port_and_goes_on_drains_and_its_end_was_asked_for(host: Host) -> None:
    host.runs(VLLM)
    host.serve()
    host.now_s += 2.0
    (shown,) = host.see(host.reading(REFUSED))
    assert shown.state is REFUSED
    assert host.memory.refusing == {VLLM.id}
    host.processes = host.processes._replace(closed={VLLM.id: 4}, listening=frozenset())
    for _ in range(20):
        host.now_s += 2.0
        (shown,) = host.see(host.reading(REFUSED))
    assert shown.state is EndpointState.DRAINING
    assert (shown.info[DRAINS_CONNECTIONS], shown.info[DRAINS_SINCE]) == ("4", f"{host.wall_s - 38.0:.0f}")
    host.ends(VLLM)
    (shown,) = host.see(host.reading(REFUSED))
    assert shown.state is DOWN
    assert shown.departure is not None
    assert (shown.departure.planned, shown.departure.drained) == (True, True)
    assert "after it had closed its port and drained" in shown.fault


def test_a_port_that_refuses_while_its_server_listens_is_no_drain(host: Host) -> None:
    """As where a container's proxy has ended."""
    host.runs(VLLM)
    host.serve()
    for _ in range(10):
        host.now_s += 2.0
        (shown,) = host.see(host.reading(REFUSED))
    assert shown.state is REFUSED


@pytest.mark.parametrize(
    ("began_after_s", "elsewhere", "expected"),
    [(1.0, False, [STARTING]), (-30.0, False, [DOWN]), (1.0, True, [DOWN])],
    ids=["restart", "begun before its last answer", "serves at another URL"],
)
def test_a_newer_process_of_the_same_command_starts_it_again(
    host: Host, began_after_s: float, elsewhere: bool, expected: list[EndpointState]
) -> None:
    host.runs(VLLM)
    host.serve()
    newer = replace(VLLM, pid=4200, started=int((host.now_s + began_after_s) * TICKS_PER_S), gpu_pids=())
    host.now_s += 2.0
    host.ends(VLLM)
    host.processes = host.processes._replace(restarts={VLLM.id: newer})
    if elsewhere:
        host.processes = host.processes._replace(servers={"http://127.0.0.1:8001": newer})
    assert states(host.see()) == expected


def test_a_socket_of_the_process_that_ended_is_not_its_successors(host: Host) -> None:
    host.runs(VLLM)
    host.serve()
    host.now_s += 2.0
    newer = replace(VLLM, pid=4200, started=int(host.now_s * TICKS_PER_S), gpu_pids=())
    # Discovery looks less often: it still has the old server, with its port open.
    host.processes = host.processes._replace(ended=frozenset({VLLM.id}), restarts={VLLM.id: newer})
    assert states(host.see(host.reading(REFUSED))) == [STARTING]
