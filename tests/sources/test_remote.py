"""One host of a fleet that is reached by ssh: how its connection ends, and what is kept of it."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import os
import random
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon import __version__
from gpumon.config.schema import Config, Host
from gpumon.efficiency.deriver import snapshot_without_things
from gpumon.fleet.fleet import Fleet
from gpumon.fleet.pipeline import state_of
from gpumon.fleet.row import FleetRow
from gpumon.fleet.rows import by_host
from gpumon.fleet.snapshot import HostState
from gpumon.outputs.fleet import report
from gpumon.outputs.json import Differences, encode
from gpumon.readings.difference import KEY, apply_difference, object_difference
from gpumon.readings.fleet import FleetFrame, HostFrame
from gpumon.readings.frame import Fault, Frame, HostReading
from gpumon.readings.missing import Missing
from gpumon.session.build import deriver_maker
from gpumon.sources.kept_snapshots import LONGEST_RUN
from gpumon.sources.remote import CONNECTING, NEXT_LINE_S, NO_GPU_THERE, Remote, patience_s
from gpumon.sources.snapshot_json import SnapshotReader, parse_snapshot
from gpumon.sources.ssh import connect
from gpumon.triage.peers import PeerError
from gpumon.tui.fleet.headline import fleet_standing
from gpumon.tui.fleet.row_words import state_or_verdict
from tests.each_row import each_row
from tests.fakes.http_server import LoopbackServer, Reply
from tests.outputs import shots
from tests.records import replace
from tests.sources.polling import always

LINGERS = """\
#!/bin/sh
sleep 600 >/dev/null </dev/null &
echo $! >> {pids}
cat {snapshot}
echo 'gpumon: the driver is gone' >&2
exit 3
"""


async def test_what_ssh_leaves_behind_does_not_hold_its_end_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A master that goes to the background (ControlPersist), or a proxy, keeps stderr open."""
    pids, ssh, snapshot = (tmp_path / name for name in ("pids", "ssh", "snapshot.json"))
    snapshot.write_bytes(encode(shots.snapshot()) + b"\n")
    ssh.write_text(LINGERS.format(pids=pids, snapshot=snapshot))
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    remote = Remote(Host(address="gpu-07"), 1.0, time.time)
    task = asyncio.create_task(remote.run())
    try:
        end_s = time.monotonic() + 60.0
        while not (remote.lines and remote.fault):
            assert time.monotonic() < end_s
            await asyncio.sleep(0.02)
        assert remote.fault == "its gpumon ended, or the connection to it: the driver is gone"
    finally:
        await end(task)
        for pid in pids.read_text().split():
            os.kill(int(pid), signal.SIGKILL)


HELD = """\
#!/bin/sh
trap '' TERM
sleep 600 &
echo $! $$ >> {pids}
wait
"""


async def test_a_connection_is_gone_when_its_host_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ssh that does not heed SIGTERM, and a child of it that keeps both pipes open."""
    pids = hold_pipes(tmp_path, monkeypatch)
    task = asyncio.create_task(Remote(Host(address="gpu-07"), 1.0, time.time).run())
    end_s = time.monotonic() + 60.0
    while not has_line(pids):
        assert time.monotonic() < end_s
        await asyncio.sleep(0.02)
    await assert_gone(task, pids)


async def test_a_host_that_is_left_while_ssh_starts_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is there with its child, and asyncio has not connected its pipes yet."""
    pids = hold_pipes(tmp_path, monkeypatch)
    before = started_here()
    task = asyncio.create_task(Remote(Host(address="gpu-07"), 1.0, time.time).run())
    end_s = time.monotonic() + 60.0
    while started_here() == before:
        assert time.monotonic() < end_s
        await asyncio.sleep(0)
    while not has_line(pids):
        assert time.monotonic() < end_s
        time.sleep(0.01)
    await assert_gone(task, pids)


def hold_pipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put that ssh into the PATH. Returns the file into which it writes the ids of its child and its own."""
    pids = tmp_path / "pids"
    ssh = tmp_path / "ssh"
    ssh.write_text(HELD.format(pids=pids))
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return pids


def has_line(path: Path) -> bool:
    """Whether a file has a whole line."""
    return path.exists() and path.read_text().endswith("\n")


def started_here() -> set[str]:
    """Ids of the processes that this thread has started and that are not yet waited for."""
    return set(Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split())


async def assert_gone(task: asyncio.Task[None], pids: Path) -> None:
    """Cancel the task of a host: its ssh is killed and waited for, though its child goes on."""
    child, pid = map(int, pids.read_text().split())
    try:
        await end(task)
        assert not Path(f"/proc/{pid}").exists(), "it was killed and waited for"
    finally:
        os.kill(child, signal.SIGKILL)


async def test_words_of_a_shell_do_not_hide_that_a_gpumon_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = tmp_path / "snapshot.json"
    snapshot.write_bytes(encode(shots.snapshot()) + b"\n")
    pretend_ssh(tmp_path, monkeypatch, f"echo 'Welcome to gpu-07' >&2; cat {snapshot}; exit 255")
    remote = Remote(Host(address="gpu-07"), 1.0, time.time)
    await run_until(remote, lambda: bool(remote.lines and remote.fault))
    assert remote.fault == "its gpumon ended, or the connection to it: Welcome to gpu-07"


async def test_a_host_that_prints_lines_without_an_end_is_not_listened_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each line would be another reason to wait: it would connect for ever, at most of a core."""
    pretend_ssh(tmp_path, monkeypatch, "exec yes 'gpumon 1.2'")
    remote = Remote(Host(address="gpu-07"), 1.0, time.time)
    await run_until(remote, lambda: remote.fault != CONNECTING)
    assert remote.fault == "it prints more than 10,000 lines that are no snapshot: is this gpumon?"
    assert remote.refused == remote.fault


async def test_a_flood_of_stderr_is_read_at_leisure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_ssh(tmp_path, monkeypatch, f"yes >&2 & echo $! > {tmp_path}/pid; wait")
    task = asyncio.create_task(Remote(Host(address="gpu-07"), 1.0, time.time).run())
    pid = tmp_path / "pid"
    while not has_line(pid):
        await asyncio.sleep(0.02)
    await asyncio.sleep(0.5)
    written = int(re.findall(r"wchar: (\d+)", Path(f"/proc/{pid.read_text().strip()}/io").read_text())[0])
    await end(task)
    os.kill(int(pid.read_text()), signal.SIGKILL)
    assert written < 16 << 20, "read as fast as it comes, that is hundreds of megabytes"


async def test_the_last_words_of_a_host_that_wrote_much_to_stderr_are_those_that_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_ssh(tmp_path, monkeypatch, "yes | head -c 1000000 >&2; echo 'no space left' >&2; exit 3")
    remote = Remote(Host(address="gpu-07"), 1.0, time.time)
    await run_until(remote, lambda: remote.fault != CONNECTING)
    assert "no space left" in remote.fault


def test_a_snapshot_that_is_larger_than_all_that_may_be_kept_is_shown_all_the_same() -> None:
    remote = Remote(Host(address="gpu-07"), 1.0, time.time)
    told = json.loads(encode(shots.snapshot()))
    for _ in range(2):
        remote.take(json.dumps({**told, "noise": os.urandom(3000).hex()}).encode(), 1000.0)
    assert remote.first_s is not None
    assert remote.at(None) is not None


def test_a_host_that_is_read_seldom_is_waited_for() -> None:
    each_minute = replace(shots.snapshot(), interval_s=60.0)
    assert [patience_s(encode(one)) for one in (shots.snapshot(), each_minute)] == [NEXT_LINE_S, 180.0]
    assert patience_s(b"{}") == NEXT_LINE_S


@each_row("name", shots.ALL)
def test_every_snapshot_that_is_printed_is_read_back(name: str) -> None:
    told = encode(shots.ALL[name]())
    read = json.loads(encode(SnapshotReader().read(parse_snapshot(told), 1e9)))
    if name != "hostile":  # whose figures cannot be
        assert read["gpus"] == json.loads(told)["gpus"]


OTHER_VALUES = (5, "x", "nan", [5], {"a": 5}, True, [[]], 10**40)


@pytest.mark.parametrize("begin", [0, 3, 6, *(pytest.param(wide, marks=pytest.mark.wide) for wide in (1, 2, 4, 5, 7))])
def test_what_is_of_another_type_costs_its_own_host_alone(begin: int) -> None:
    """Each place gets the next value; the run of all beginnings puts every value into every place."""
    values = itertools.islice(itertools.cycle(OTHER_VALUES), begin, None)
    told = json.loads(encode(shots.snapshot()))
    places = [(told, key) for key in told]
    places += [(part[0], key) for part in (told["gpus"], told["engines"]) for key in part[0]]
    for place, key in places:
        before = place[key]
        place[key] = next(values)
        remote = Remote(Host(address="gpu-07"), 1.0, time.time)
        try:
            remote.take(json.dumps(told).encode(), 1e9)
        except ValueError as refused:
            assert "its JSON" in str(refused)  # noqa: PT017 (a refusal is one of two right answers)
        place[key] = before
        host = remote.at(None)
        assert host is not None
        for gpu in host.exported_snapshot.gpus if host.exported_snapshot is not None else ():
            assert isinstance(gpu.reading.busy_ratio, Missing) or math.isfinite(gpu.reading.busy_ratio)


@pytest.mark.skipif(shutil.which("ssh") is None, reason="there is no ssh here")
async def test_neither_agent_nor_display_is_lent_to_a_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ssh itself understands its options beside a config that lends both to all hosts."""
    settings = tmp_path / "config"
    settings.write_text("Host *\n  ForwardAgent yes\n  ForwardX11 yes\n")
    pretend_ssh(tmp_path, monkeypatch, f'exec {shutil.which("ssh")} -F {settings} -G "$@"')
    connection = await connect("gpu-07", "gpumon")
    told = set()
    while line := await connection.readline():
        told.add(line.strip())
    await connection.hang_up()
    assert {b"hostname gpu-07", b"forwardagent no", b"forwardx11 no"} <= told


def pretend_ssh(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Put an `ssh` first that does what the shell of a host would do: `$WORDS` is the command that it gets."""
    ssh = folder / "ssh"
    ssh.write_text(f'#!/bin/sh\nfor WORDS in "$@"; do :; done\n{script}\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


async def end(task: asyncio.Task[None]) -> None:
    """Cancel a task, and see that it ends soon: a subprocess that is left to the garbage collector is an error."""
    task.cancel()
    await asyncio.wait({task}, timeout=60.0)
    assert task.done(), "the connection does not end"


async def run_until(remote: Remote, done: Callable[[], bool]) -> None:
    task = asyncio.create_task(remote.run())
    try:
        end_s = time.monotonic() + 60.0
        while not done():
            assert time.monotonic() < end_s, (remote.fault, remote.version, remote.lines)
            await asyncio.sleep(0.02)
    finally:
        await end(task)


async def test_differences_are_read_as_the_snapshots_that_they_stand_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A real gpumon that prints them, here as at the other end of an ssh."""
    pretend_ssh(tmp_path, monkeypatch, f"exec {sys.executable} -m $WORDS --demo --scenario thermal --interval 0.25")
    seen: list[HostFrame] = []
    remote = Remote(Host(address="gpu-07"), 1.0, time.time)
    wire: list[bytes] = []
    receive = remote.receive

    async def noted(line: bytes) -> None:
        await receive(line)
        frame = remote.at(None)
        assert frame is not None
        wire.append(line)  # once it is taken: the end of the stream may come in the middle
        seen.append(frame)

    monkeypatch.setattr(remote, "receive", noted)
    await run_until(remote, lambda: len(seen) > 8)
    assert remote.version == __version__
    assert seen[-1].gpumon_version == __version__
    assert wire[0].startswith(b'{"schema":')
    assert all(line.startswith(b'{"difference":') for line in wire[1:])
    assert sum(map(len, wire[1:])) / len(wire[1:]) < len(wire[0]) / 2
    times = [frame.exported_snapshot.interval_s for frame in seen if frame.exported_snapshot is not None]
    assert times == [0.25] * len(seen)
    told = json.loads(wire[0])
    for line, frame in zip(wire[1:], seen[1:], strict=True):
        told = apply_difference(told, json.loads(line)["difference"])
        assert frame.exported_snapshot is not None
        again = json.loads(encode(frame.exported_snapshot))
        assert again["gpus"] == told["gpus"]
        assert [one["name"] for one in again["engines"]] == [one["name"] for one in told["engines"]]
    assert (
        len(
            {
                json.dumps(json.loads(encode(frame.exported_snapshot))["gpus"])
                for frame in seen
                if frame.exported_snapshot
            }
        )
        > 4
    )
    kept = len(remote.between(0.0, math.inf, 0.0))
    # the end may come between a line that is kept and the note of it
    assert kept in (len(seen), len(seen) + 1), "each of them can be gone back to"


OLD = """\
case "$WORDS" in
*--fleet) echo "gpumon: unrecognized arguments: --fleet (see gpumon watch --help)" >&2; exit 2;;
"gpumon --version; gpumon watch --json") echo "gpumon {version}"; {then};;
esac
exit 9"""


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("0.1.0", f"gpumon 0.1.0 there, {__version__} here: update it"),
        ("99.0.1", f"gpumon 99.0.1 there, {__version__} here: update this one"),
        (__version__, ""),
    ],
)
async def test_a_gpumon_that_knows_no_differences_is_asked_for_whole_snapshots_and_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, words: str
) -> None:
    snapshot = tmp_path / "snapshot.json"
    snapshot.write_bytes(encode(shots.snapshot()) + b"\n")
    pretend_ssh(tmp_path, monkeypatch, OLD.format(version=version, then=f"cat {snapshot}; sleep 60; exit 0"))
    remote = Remote(Host(address="gpu-07"), 1.0, time.time)
    await run_until(remote, lambda: remote.lines > 0)
    frame = remote.at(None)
    assert frame is not None
    assert frame.exported_snapshot is not None
    assert [fault.text for fault in frame.faults if "clock" not in fault.text] == [words] * bool(words)


@pytest.mark.parametrize("old", [False, True])
async def test_a_host_without_a_gpu_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: bool) -> None:
    """This machine has none: the gpumon is a real one."""
    here = f"{sys.executable} -m gpumon watch --json --no-nvml --no-discovery --count 3"
    script = OLD.format(version=__version__, then=f"exec {here}") if old else f"{here} --fleet; sleep 60"
    pretend_ssh(tmp_path, monkeypatch, script)
    remote = Remote(Host(address="cpu-01"), 1.0, time.time)
    await run_until(remote, lambda: remote.fault == NO_GPU_THERE if old else remote.lines > 2)
    frame = remote.at(None)
    assert frame is not None
    fleet = Fleet(deriver_maker(Config()))
    for _ in fleet.steps(FleetFrame(time.time(), 1.0, (frame,))):
        pass
    (row,) = by_host(fleet.snapshot, {})
    assert row.state is HostState.OK
    assert row.gpus == 0
    assert row.verdict.startswith("no GPU")
    assert "no GPU" in "".join(text for text, _ in state_or_verdict(row, time.time(), 60))
    assert "UNREACHABLE" not in report(fleet.snapshot, {}, 160).upper()


async def test_a_host_that_hangs_says_for_how_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    pretend_ssh(tmp_path, monkeypatch, "echo gpumon 0.1.0; sleep 60")
    remote = Remote(Host(address="gpu-07"), 1.0, lambda: now[0])
    connecting = HostFrame("gpu-07", interval_s=1.0, faults=(Fault("ssh", CONNECTING, 1000.0),), is_starting=True)
    assert remote.at(None) == connecting
    now[0] += 12.0
    frame = remote.at(None)
    assert frame is not None
    assert frame.faults[0].text == "no answer for 12 s: ssh connects, or its gpumon hangs (see `ssh gpu-07 true`)"
    failed = Frame(0, now[0], now[0], 1.0, HostReading(), faults=frame.faults)
    assert not frame.is_starting
    assert state_of(snapshot_without_things(failed)) is HostState.UNREACHABLE
    await run_until(remote, lambda: remote.version == "0.1.0")
    frame = remote.at(None)
    assert frame is not None
    assert frame.faults[-1].text == "no figures for 12 s: its gpumon runs, and its driver does not answer yet"
    assert frame.is_starting


async def test_a_gpumon_without_a_snapshot_yet_is_starting_for_a_minute_and_unreachable_from_then_on() -> None:
    """Over real HTTP: the row says the same word as the table, the headline and the JSON."""
    now = [1000.0]
    replies = [Reply(503, b"no snapshot yet\n")]
    fleet = Fleet(deriver_maker(Config()))

    def row_at(seconds: float) -> FleetRow:
        now[0] = 1000.0 + seconds
        frame = remote.at(None)
        assert frame is not None
        for _ in fleet.steps(FleetFrame(now[0], 1.0, (frame,))):
            pass
        (row,) = by_host(fleet.snapshot, {})
        return row

    def words(row: FleetRow, room: int) -> str:
        return "".join(text for text, _ in state_or_verdict(row, now[0], room)).strip()

    with LoopbackServer(lambda _: replies[0]) as server:
        remote = Remote(Host(address=server.url), 1.0, lambda: now[0])
        await run_until(remote, lambda: "503" in remote.fault)
        row = row_at(12.0)
        assert (row.state, row.troubled, row.level) == (HostState.STARTING, 0, None)
        assert words(row, 12) == "… starting"
        assert words(row, 80) == "… starting: 503: its gpumon has no snapshot yet"
        assert fleet_standing(fleet.snapshot, [row]).numbers == {}
        assert "not ok" not in report(fleet.snapshot, {}, 160)
        assert ": starting: 503: its gpumon has no snapshot yet" in report(fleet.snapshot, {}, 160)
        row = row_at(70.0)
        assert row.state is HostState.UNREACHABLE
        assert words(row, 12) == "✗ no answer"
        assert "✗ unreachable: 503: no snapshot for 70 s: its gpumon or its driver hangs" in words(row, 100)
        assert fleet_standing(fleet.snapshot, [row]).worst is not None
        replies[0] = Reply(200, encode(shots.snapshot()), "application/json")
        await run_until(remote, lambda: remote.lines > 0)
        assert row_at(71.0).state is HostState.OK


@each_row(
    "line",
    [
        b'{"difference":[{},{},[]]}',
        b'{"difference":5}',
        b'{"difference":[{"a":1},{"gpus":[{"99":1}]},[]]}',
        b'{"difference":[{},{"gpus":[{},{"0":[{},{"x":[{}]}]}]}]}',
        b'{"difference":[{},' + b'{"gpus":[{},' * 40 + b"{}" + b"]}" * 40 + b"]}",
        b'{"difference":[{},{},[5]]}',
    ],
    named=range(6),
)
def test_a_difference_that_makes_no_sense_costs_its_own_host(line: bytes) -> None:
    remote = Remote(Host(address="gpu-07"), 1.0, time.time)
    if line != b'{"difference":[{},{},[]]}':
        remote.take(encode(shots.snapshot()), 1e9)
    with pytest.raises(ValueError, match=r"difference|did not send"):
        remote.take(line, 1e9)


def test_what_differences_add_up_to_is_bounded_as_a_snapshot_is() -> None:
    remote = Remote(Host(address="gpu-07"), 1.0, time.time)
    remote.take(encode(shots.snapshot()), 1e9)
    with pytest.raises(PeerError, match="MiB: it is not read"):  # noqa: PT012 (which of them is refused does not matter)
        for number in range(40):
            remote.take(b'{"difference":[{"more%d":"%s"}]}' % (number, b"x" * 1_000_000), 1e9)


def lines_of_a_host(count: int) -> list[bytes]:
    """Lines of `watch --json --fleet`; the n-th has n watts."""
    differences = Differences()
    return [
        differences.encode(shots.snapshot(gpus=(shots.gpu(power_w=float(number)),))) for number in range(1, count + 1)
    ]


def watts(frame: HostFrame | None) -> Any:
    assert frame is not None
    assert frame.exported_snapshot is not None
    return frame.exported_snapshot.gpus[0].power_w


def test_each_difference_can_be_gone_back_to() -> None:
    now = [1000.0]
    remote = Remote(Host(address="gpu-07"), 1.0, lambda: now[0])
    lines = lines_of_a_host(3 * LONGEST_RUN)
    for number, line in enumerate(lines, start=1):
        now[0] = 1000.0 + number
        remote.take(line, 1e9)
    assert remote.at(1000.5) is None
    for number in (1, 2, LONGEST_RUN, LONGEST_RUN + 1, len(lines)):
        assert watts(remote.at(1000.5 + number)) == float(number)
    past = remote.between(1010.0, 1000.0 + len(lines), 2.0)
    assert [(at_s - 1000.0, watts(frame)) for at_s, frame in past] == [
        (float(number), float(number)) for number in range(10, len(lines) + 1, 2)
    ]


def test_what_is_kept_is_bounded_in_bytes_and_in_time() -> None:
    now = [1000.0]
    remote = Remote(Host(address="gpu-07"), 1.0, lambda: now[0])
    noise = [json.loads(line) for line in lines_of_a_host(200)]
    for number, line in enumerate(noise):
        now[0] = 1000.0 + number
        changed = line[KEY][0] if number else line
        changed["noise"] = os.urandom(1000).hex()
        remote.take(json.dumps(line).encode(), 40_000.0)
    assert remote.first_s is not None
    assert 1150.0 < remote.first_s < 1199.0, "a line takes about 1 kB packed"
    assert watts(remote.at(remote.first_s)) == remote.first_s - 999.0
    now[0] += 2000.0
    remote.take(encode(shots.snapshot()), 1e9)
    assert remote.first_s == now[0], "half an hour is kept"


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=2), JSON_VALUES), st.dictionaries(st.text(max_size=2), JSON_VALUES))
def test_a_difference_makes_the_one_value_of_the_other(before: dict[str, Any], now: dict[str, Any]) -> None:
    kept = json.dumps(before)
    assert apply_difference(before, json.loads(json.dumps(object_difference(before, now)))) == now
    assert json.dumps(before) == kept


async def test_a_gpumon_that_was_installed_meanwhile_is_not_offered_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = tmp_path / "snapshot.json"
    there = tmp_path / "there"
    snapshot.write_bytes(encode(shots.snapshot()) + b"\n")
    pretend_ssh(tmp_path, monkeypatch, f"[ -e {there} ] || exit 127; cat {snapshot}; sleep 60")
    remote = Remote(Host(address="gpu-07"), 1.0, time.time)
    await run_until(remote, lambda: remote.lacks_gpumon)
    there.touch()
    await run_until(remote, lambda: remote.lines > 0 and not remote.lacks_gpumon)


async def test_polling_that_is_cancelled_ends_at_whatever_moment_that_comes() -> None:
    """Before Python 3.11 anyio loses a cancellation in about 40: the polling went on."""
    chance = random.Random(7)
    tasks: list[asyncio.Task[None]] = []

    async def poll_for_a_moment() -> None:
        remote = Remote(Host(address=server.url), 0.01, time.time)
        task = asyncio.create_task(remote.run())
        tasks.append(task)
        await asyncio.sleep(chance.uniform(0.0, 0.1))
        task.cancel()

    with LoopbackServer(always(Reply(body=encode(shots.snapshot())))) as server:
        for _ in range(20):
            await asyncio.gather(*(poll_for_a_moment() for _ in range(20)))
        await asyncio.wait(tasks)
