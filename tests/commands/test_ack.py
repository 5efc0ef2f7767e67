"""`gpumon ack` and what it changes elsewhere: the installed command on the fake driver, with a real state folder."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from gpumon.sources.acknowledged import AcknowledgementStore, acknowledged_file, added
from tests.end_to_end.test_screen import wait
from tests.fakes.http_server import wait_until
from tests.fakes.nvml.driver import FakeDriver
from tests.program import run_gpumon, started
from tests.records import replace
from tests.sources.discovery.servers import free_port
from tests.terminal import Terminal
from tests.triage.test_acknowledgement import known

GPUMON = str(Path(sys.executable).with_name("gpumon"))
LOST = "gpu 1 fault lost\n"
REASON = "drained, ticket 4711"


class Host:
    """A host of fake GPUs, one of them lost, and a user of it with a state folder."""

    def __init__(self, folder: Path) -> None:
        self.driver = FakeDriver(folder)
        self.driver.write(f"{self.driver.busy_h100s(4)}\n{LOST}")
        self.state = folder / "state"
        self.env = self.driver.env(
            XDG_CONFIG_HOME=str(folder), XDG_STATE_HOME=str(self.state), TERM="xterm-256color", LANG="C.UTF-8"
        )

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command that ends by itself."""
        return run_gpumon(*words, env=self.env, timeout_s=90.0)

    def json(self, *words: str) -> dict[str, Any]:
        """What a command prints as JSON."""
        printed: dict[str, Any] = json.loads(self.ask(*words, "--json").stdout)
        return printed

    def verdict(self) -> dict[str, Any]:
        """The verdict on the GPU that is lost."""
        shown = self.json("snapshot", "--window", "0")
        (verdict,) = (one for one in shown["verdicts"] if one["code"] == "hardware_fault")
        found: dict[str, Any] = verdict
        return found


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_verdict_is_acknowledged_listed_and_taken_back(host: Host) -> None:
    assert host.ask("status").returncode == 1
    verdict = host.verdict()
    assert verdict["acknowledged"] is None
    assert "nothing is acknowledged" in host.ask("ack").stdout
    done = host.ask("ack", verdict["id"], "--for", "4h", "--reason", REASON, "--who", "anna")
    assert (done.returncode, done.stderr) == (0, "")
    for words in (REASON, "anna", verdict["id"], "gpu 1"):
        assert words in host.ask("ack").stdout
    (listed,) = host.json("ack")["acknowledged"]
    assert (listed["who"], listed["reason"], listed["level"]) == ("anna", REASON, "critical")

    known = host.verdict()["acknowledged"]
    assert (known["who"], known["reason"]) == ("anna", REASON)
    assert known["since"] < known["until"]
    status = host.ask("status")
    assert status.returncode == 0
    assert "1 acknowledged" in status.stdout
    assert "1 lost" in status.stdout, "nothing else is hidden"
    counts = host.json("status")
    assert (counts["critical"], counts["acknowledged"], counts["exit_code"]) == (0, 1, 0)
    text = host.ask("snapshot", "--window", "0").stdout
    assert f"acknowledged by anna until {known['until'][11:19]}" in text

    assert host.ask("ack", "--remove", verdict["id"]).returncode == 0
    assert host.verdict()["acknowledged"] is None
    assert host.ask("status").returncode == 1
    assert host.ask("ack", "--remove", verdict["id"]).returncode == 1


def test_by_name_and_code_in_ones_own_name(host: Host) -> None:
    host.env |= {"SUDO_USER": "ben"}
    (set_,) = host.json("ack", "gpu 1", "hardware_fault")["acknowledged"]
    assert set_["who"] == "ben"
    assert host.verdict()["acknowledged"]["who"] == "ben"


def test_what_does_not_stand_is_named_with_what_does(host: Host) -> None:
    done = host.ask("ack", "gpu:GPU-nobody:state", "--window", "1")
    assert (done.returncode, done.stdout) == (1, "")
    assert host.verdict()["id"] in done.stderr
    assert host.json("ack")["acknowledged"] == []


def test_of_a_fleet_the_acknowledgement_of_one_host_is_taken_back(host: Host) -> None:
    """Each host has an engine on port 8000."""
    path = acknowledged_file({"XDG_STATE_HOME": str(host.state)}, of_fleet=True)
    assert path is not None
    one = replace(known(), since_s=time.time(), until_s=time.time() + 3600.0)
    fleet = [replace(one, host=name, scope=f"{name} {one.scope}") for name in ("gpu07", "gpu08", "gpu09")]
    AcknowledgementStore(path).change(added(fleet))

    def hosts() -> list[str]:
        return [record["host"] for record in host.json("ack")["acknowledged"]]

    refused = host.ask("ack", "--remove", one.id)
    assert (refused.returncode, refused.stdout) == (2, "")
    for name in ("3 hosts", f"gpu07/{one.id}", f"gpu08/{one.id}", f"gpu09/{one.id}"):
        assert name in refused.stderr
    assert hosts() == ["gpu07", "gpu08", "gpu09"]
    assert f"gpu08/{one.id}" in host.ask("ack").stdout

    done = host.ask("ack", "--remove", f"gpu08/{one.id}")
    assert (done.returncode, done.stdout) == (0, f"not acknowledged any more: gpu08/{one.id}\n")
    assert hosts() == ["gpu07", "gpu09"]
    assert host.ask("ack", "--remove", fleet[0].scope, one.code.value).returncode == 0
    assert hosts() == ["gpu09"]
    assert host.ask("ack", "--remove", f"gpu07/{one.id}").returncode == 1
    assert host.ask("ack", "--remove", one.id).returncode == 0, "no other host has it"
    assert hosts() == []


@pytest.mark.parametrize("words", [("--for", "0h"), ("--for", "40d"), ("--for", "soon"), ("--remove",)])
def test_words_that_mean_nothing_are_refused(host: Host, words: tuple[str, ...]) -> None:
    done = host.ask("ack", *(("x",) if words[0] == "--for" else ()), *words)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_a_watch_and_an_exporter_that_run_see_it_and_see_it_taken_back(host: Host, tmp_path: Path) -> None:
    out = tmp_path / "watch.jsonl"
    with out.open("w") as file:
        watch = started([GPUMON, "watch", "--json", "--interval", "0.25"], env=host.env, stdout=file)
    try:

        def who() -> str:
            whole = out.read_text().rpartition("\n")[0].splitlines()
            for verdict in json.loads(whole[-1])["verdicts"] if whole else []:
                if verdict["code"] == "hardware_fault":
                    return verdict["acknowledged"]["who"] if verdict["acknowledged"] else "nobody"
            return ""

        assert wait_until(lambda: who() == "nobody")
        verdict = host.verdict()
        host.ask("ack", verdict["id"], "--who", "anna")
        assert wait_until(lambda: who() == "anna")
        host.ask("ack", "--remove", verdict["id"])
        assert wait_until(lambda: who() == "nobody")
    finally:
        watch.send_signal(signal.SIGTERM)
        watch.wait(30.0)


def test_the_key_on_the_screen_of_a_terminal_and_the_command_are_one_thing(host: Host) -> None:
    with Terminal([GPUMON], host.env, columns=110, lines=32) as terminal:
        wait(terminal, lambda text: "✗ 1" in text and "hardware" in text)
        terminal.type(b"t")
        terminal.type(b"a")
        wait(terminal, lambda text: "acknowledge gpu 1" in text and "8 hours" in text)
        terminal.type(REASON.encode())
        wait(terminal, lambda text: REASON in text)
        terminal.type(b"\r")
        wait(terminal, lambda text: f": {REASON}" in text and "✗ 1" not in text and "1 verdict acknowledged" in text)
        (listed,) = host.json("ack")["acknowledged"]
        assert listed["reason"] == REASON
        assert host.ask("status").returncode == 0
        host.ask("ack", "--remove", listed["id"])
        wait(terminal, lambda text: "✗ 1" in text and REASON not in text)
        terminal.type(b"q")
        terminal.run(0.5)


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not here")
def test_in_tmux(host: Host, tmp_path: Path) -> None:
    env = {**os.environ, **host.env, "TMUX_TMPDIR": str(tmp_path)}
    env.pop("TMUX", None)

    def tmux(*words: str) -> str:
        return subprocess.run(["tmux", "-L", "ack", *words], env=env, capture_output=True, text=True, check=True).stdout

    def shows(*texts: str) -> bool:
        screen = tmux("capture-pane", "-p")
        return all(text in screen for text in texts)

    tmux("new-session", "-d", "-x", "100", "-y", "30", GPUMON)
    try:
        assert wait_until(lambda: shows("✗ 1", "hardware"))
        tmux("send-keys", "t", "a")
        assert wait_until(lambda: shows("acknowledge gpu 1", "8 hours"))
        tmux("send-keys", "-l", "night shift knows")
        tmux("send-keys", "Enter")
        assert wait_until(lambda: shows("night shift knows", "1 verdict acknowledged") and not shows("✗ 1"))
        tmux("send-keys", "a")
        assert wait_until(lambda: shows("take it back"))
        tmux("send-keys", "Enter")
        assert wait_until(lambda: shows("✗ 1"))
        assert host.json("ack")["acknowledged"] == []
    finally:
        tmux("kill-server")


def test_the_exporter_of_this_host_is_asked_first_and_exports_who_knows(host: Host, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    (tmp_path / "gpumon").mkdir()
    (tmp_path / "gpumon" / "config.toml").write_text(f'[exporter]\nlisten = "{address}"\n')
    exporter = started([GPUMON, "serve-metrics"], env=host.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def page(path: str) -> str:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{address}/{path}", timeout=30.0) as answer:
            text: str = answer.read().decode()
            return text
        return ""

    try:
        assert wait_until(lambda: "hardware_fault" in page("snapshot.json"))
        assert host.ask("ack", "gpu 1", "hardware_fault", "--who", "anna", "--window", "0").returncode == 0
        assert wait_until(lambda: 'thing="index:1",who="anna"} 1.' in page("metrics"))
        status = host.json("status")
        assert (status["source"], status["critical"], status["acknowledged"]) == ("serve-metrics", 0, 1)
    finally:
        exporter.terminate()
        exporter.wait(30.0)
