"""A fleet without a Prometheus: a real sshd on loopback, real gpumons behind it, and a real serve-metrics."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpumon import __version__
from gpumon.config.schema import Config, Host
from gpumon.fleet.snapshot import FleetSnapshot, HostShown, HostState
from gpumon.readings.difference import apply_difference
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.verdict import Limit, Verdict
from gpumon.session.fleet import FleetSession
from tests.fakes.prometheus import free_port
from tests.fakes.sshd import Sshd
from tests.program import run_gpumon, started

LONG_S = 90.0
SMALL = "--demo --scenario healthy-chat"
"""A simulated server of two GPUs and one engine."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Sshd]]:
    """A login finds a `gpumon` that watches the simulated server, and notes its process."""
    folder = tmp_path_factory.mktemp("ssh")
    programs = folder / "programs"
    programs.mkdir()
    gpumon = programs / "gpumon"
    gpumon.write_text(f'#!/bin/sh\necho $$ >> {folder}/pids\nexec {sys.executable} -m gpumon "$@" {SMALL}\n')
    gpumon.chmod(0o755)
    strange = {
        "gpu-07": "",
        "gpu-08": "",
        "no-key": "  IdentityFile /nonexistent\n  UserKnownHostsFile /dev/null",
        "changed": f"  UserKnownHostsFile {folder}/other_hosts",
    }
    with Sshd(folder, programs, strange) as server:
        other_key = (folder / "login_key.pub").read_text()
        (folder / "other_hosts").write_text(f"[127.0.0.1]:{server.port} {other_key}")
        yield folder, server


@pytest.fixture
def path(place: tuple[Path, Sshd], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", place[1].client_path)


@contextlib.contextmanager
def served(scenario: str = SMALL) -> Iterator[str]:
    """`gpumon serve-metrics` of a simulated server; its URL."""
    port = free_port()
    command = [sys.executable, "-m", "gpumon", "serve-metrics", *scenario.split(), "--listen", f"127.0.0.1:{port}"]
    process = started(command, stdout=subprocess.DEVNULL)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20.0)


async def until(done: Callable[[], bool]) -> None:
    end_s = time.monotonic() + LONG_S
    while not done():
        assert time.monotonic() < end_s
        await asyncio.sleep(0.05)


def rates(host: HostShown | None) -> list[float]:
    engines = host.snapshot.engines if host is not None else ()
    return [
        engine.rates.decode_tokens_per_s for engine in engines if isinstance(engine.rates.decode_tokens_per_s, float)
    ]


def alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.mark.usefixtures("path")
async def test_hosts_by_ssh_and_by_url_on_one_screen_and_a_dead_one_says_why(place: tuple[Path, Sshd]):
    folder, _ = place
    seen: list[FleetSnapshot] = []
    with served() as url:
        hosts = (
            *(Host(address="gpu-07"), Host(address="gpu-08", name="eight"), Host(address=url, name="web")),
            *(Host(address="gpu-08", command="no-such-gpumon"), Host(address="http://127.0.0.1:1", name="nobody")),
            *(Host(address="nowhere.invalid"), Host(address="changed")),
        )
        control = FleetSession(Config(host=hosts))
        await control.start(seen.append)
        try:
            newest = lambda name: seen[-1].host(name) if seen else None  # noqa: E731
            await until(lambda: all(rates(newest(name)) for name in ("gpu-07", "eight", "web")))
            await until(lambda: all(host.snapshot.faults for host in seen[-1].hosts if host.state is not HostState.OK))
            states = {host.name: host.state for host in seen[-1].hosts}
            bad = {"gpu-08", "nobody", "nowhere.invalid", "changed"}
            assert {name for name, state in states.items() if state is HostState.OK} == {"gpu-07", "eight", "web"}
            assert {name for name, state in states.items() if state is HostState.UNREACHABLE} == bad
            texts = {host.name: " ".join(fault.text for fault in host.snapshot.faults) for host in seen[-1].hosts}
            assert "no-such-gpumon" in texts["gpu-08"]
            assert "nothing listens on 127.0.0.1:1" in texts["nobody"]
            assert "ssh: " in texts["nowhere.invalid"]
            assert texts["changed"].startswith("its host key has changed: a new machine, or somebody in between")
            shown = newest("gpu-07")
            assert shown is not None
            assert shown.snapshot.simulated
            assert len(shown.snapshot.gpus) == 2
            assert shown.snapshot.gpus[0].reading.processes
            assert shown.snapshot.engines[0].dimensions.model_source
            assert control.interval_s == 1.0

            # One host on the screen of one machine: its charts begin where gpumon began, and go on.
            host, snapshots = control.host("gpu-07"), []
            await host.start(snapshots.append)
            await until(lambda: len({one.wall_s for one in snapshots}) > 2)
            assert snapshots[-1].host.name == "gpu-07"
            assert host.timeline is not None
            moment = await host.timeline.at(snapshots[0].wall_s)
            assert moment is not None
            await host.stop()

            # A gpumon that dies costs its row, and comes back.
            heard_s = shown.snapshot.wall_s
            for pid in map(int, (folder / "pids").read_text().split()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await until(lambda: bool((one := newest("gpu-07")) and one.snapshot.faults))
            assert "its gpumon ended" in newest("gpu-07").snapshot.faults[0].text
            await until(lambda: bool((one := newest("gpu-07")) and not one.snapshot.faults and rates(one)))
            assert newest("gpu-07").snapshot.wall_s > heard_s
        finally:
            await control.stop()
    pids = [int(pid) for pid in (folder / "pids").read_text().split()]
    await until(lambda: not any(map(alive, pids)))  # nothing is left on the other side


async def test_a_verdict_of_a_host_is_acknowledged_on_the_machine_that_looks_at_it():
    seen: list[FleetSnapshot] = []
    pages: list[Snapshot] = []

    def full(snapshot: Snapshot) -> list[Verdict]:
        return [verdict for verdict in snapshot.verdicts if verdict.code is Limit.KV_CACHE_FULL]

    def in_fleet() -> list[Verdict]:
        host = seen[-1].host(name) if seen else None
        return full(host.snapshot) if host is not None else []

    with served("--demo --scenario kv-cache-full") as url:
        name = url.partition("://")[2]
        control = FleetSession(Config(host=(Host(address=url),)))
        await control.start(seen.append)
        await until(lambda: bool(in_fleet()))
        page = control.host(name)
        await page.start(pages.append)
        try:
            await until(lambda: bool(pages and full(pages[-1])))
            (verdict,) = full(pages[-1])
            assert page.why_no_acknowledging(verdict) == ""
            page.acknowledge([verdict], pages[-1], "more cards are ordered", 3600.0)
            await until(lambda: all(one.acknowledged is not None for one in (*full(pages[-1]), *in_fleet())))
            assert full(pages[-1])[0].acknowledged.reason == "more cards are ordered"
            done = run_gpumon("snapshot", "--json", "--host", url, timeout_s=LONG_S)
            (told,) = json.loads(done.stdout)["hosts"]
            known = {one["code"]: one["acknowledged"] for one in told["snapshot"]["verdicts"]}
            assert known["kv_cache_full"]["reason"] == "more cards are ordered"
            (kept,) = json.loads(run_gpumon("ack", "--json").stdout)["acknowledged"]
            assert (kept["host"], kept["scope"]) == (name, f"{name} {verdict.scope}")
            page.lift([verdict.id])
            await until(lambda: all(one.acknowledged is None for one in (*full(pages[-1]), *in_fleet())))
        finally:
            await page.stop()
            await control.stop()


@pytest.mark.usefixtures("path")
def test_the_command_line_prints_hosts_once_with_rates(place: tuple[Path, Sshd]):
    with served() as url:
        hosts = ("--host", "gpu-07", "--host", url, "--host", "no-key")
        done = run_gpumon("snapshot", "--json", *hosts, timeout_s=LONG_S)
    assert done.returncode == 0, done.stderr
    fleet = json.loads(done.stdout)
    assert [host["name"] for host in fleet["hosts"]] == sorted(["gpu-07", url.partition("://")[2], "no-key"])
    assert fleet["total"]["decode_tokens_per_s"] > 0
    (dead,) = [host for host in fleet["hosts"] if host["name"] == "no-key"]
    assert dead["state"] == "unreachable"
    assert "key" in dead["snapshot"]["faults"][0]["text"]


@pytest.mark.parametrize("name", ["-oProxyCommand=touch x", "a b", "a;touch x", "$(id)", "u@-x", ""])
def test_what_ssh_or_a_shell_could_take_for_something_else_is_no_host(name: str, tmp_path: Path):
    done = run_gpumon("snapshot", f"--host={name}", cwd=tmp_path)
    assert done.returncode == 2
    assert "must be a host as ssh takes it" in done.stderr
    assert not list(tmp_path.iterdir())


def test_trouble_is_told_in_the_first_seconds_where_a_fleet_waits_for_it():
    """What `--host` starts on a host; a screen of that host alone waits for half a minute."""
    scenario = ("--demo", "--scenario", "kv-cache-full")
    command = [sys.executable, "-m", "gpumon", "watch", "--json", *scenario]
    fleet, alone = (started([*command, *more], stdout=subprocess.PIPE) for more in (["--fleet"], []))
    try:
        assert fleet.stdout is not None
        assert fleet.stdout.readline() == f"gpumon {__version__}\n"
        snapshot = json.loads(fleet.stdout.readline())
        end_s = time.monotonic() + LONG_S
        while "kv_cache_full" not in codes(snapshot):
            assert time.monotonic() < end_s, codes(snapshot)
            snapshot = apply_difference(snapshot, json.loads(fleet.stdout.readline())["difference"])
    finally:
        fleet.terminate()
        fleet.communicate(timeout=LONG_S)
        alone.terminate()
        printed = alone.communicate(timeout=LONG_S)[0]
    late = [codes(json.loads(line)) for line in printed.splitlines()]
    assert late
    assert "kv_cache_full" not in set().union(*late)


def codes(snapshot: dict[str, Any]) -> set[str]:
    """Codes of all verdicts."""
    return {verdict["code"] for verdict in snapshot["verdicts"]}
