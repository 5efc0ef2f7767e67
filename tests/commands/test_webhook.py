"""`gpumon webhook`, and webhooks of `record` and `serve-metrics`, as others use them: real processes and receivers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.fakes.http_server import LoopbackServer, Reply, wait_until
from tests.program import Started, run_gpumon, started, user_environment

GPUMON = [sys.executable, "-m", "gpumon"]
SECRET = "s3cr3ts3cr3t"
CONFIG = """
[general]
interval_s = 0.25

[[alert]]
name = "memory"
when = "host.memory_total_bytes > 1"
for_s = 0

[[webhook]]
name = "ops"
kind = "{kind}"
url_file = "{file}"
group_s = 0
retry_s = 0.1
timeout_s = 5
simulated = true
"""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return user_environment(tmp_path, PYTHONUNBUFFERED="1")


def config(tmp_path: Path, server: LoopbackServer, kind: str = "json") -> str:
    (tmp_path / "url").write_text(f"{server.url}/{SECRET}")
    path = tmp_path / "config.toml"
    path.write_text(CONFIG.format(kind=kind, file=tmp_path / "url"))
    return str(path)


def ran(env: dict[str, str], *arguments: str) -> tuple[int, str, str]:
    done = run_gpumon(*arguments, env=env)
    return done.returncode, done.stdout, done.stderr


def begun(env: dict[str, str], *arguments: str) -> Started:
    return started([*GPUMON, *arguments], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_a_test_message_is_printed_with_its_answer_and_without_secrets(tmp_path: Path, env: dict[str, str]) -> None:
    with LoopbackServer(lambda request: Reply(200, b"seen at " + request.path.encode())) as server:
        code, out, err = ran(env, "webhook", "--test", "--config", config(tmp_path, server, "slack"))
        (request,) = server.requests
    assert (code, err) == (0, "")
    sent, body, answer = out.splitlines()
    assert sent == f"ops (slack): POST its URL of {tmp_path / 'url'}"
    assert json.loads(body) == json.loads(request.body)
    assert answer == "ops: HTTP 200: seen at ***"
    assert request.path == f"/{SECRET}"


def test_a_failed_test_message_ends_with_1_and_names_the_webhooks(tmp_path: Path, env: dict[str, str]) -> None:
    with LoopbackServer(lambda _: Reply(404)) as server:
        file = config(tmp_path, server)
        code, out, _ = ran(env, "webhook", "ops", "--test", "--config", file)
        assert code == 1
        assert out.splitlines()[-1] == "ops: it answers HTTP 404 (check the URL)"
        code, _, err = ran(env, "webhook", "oops", "--config", file)
        assert (code, err) == (2, "gpumon: no webhook is called 'oops'; known: ops\n")
        code, out, _ = ran(env, "webhook", "--config", file)
        assert code == 1, "also when it is asked for later"
        assert "to a test message" in " ".join(out.split())
        assert "it answers HTTP 404 (check the URL)" in " ".join(out.split())
    code, _, err = ran(env, "webhook")
    assert code == 2
    assert err.startswith("gpumon: there is no [[webhook]] in the config")


def test_serve_metrics_counts_says_and_goes_on(tmp_path: Path, env: dict[str, str]) -> None:
    with LoopbackServer(lambda _: Reply()) as server:
        server.refuse()
        arguments = ("serve-metrics", "--demo", "--listen", "127.0.0.1:0", "--config", config(tmp_path, server))
        with begun(env, *arguments) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            url = process.stdout.readline().split(" at ")[1].partition(";")[0]
            assert process.stderr.readline().startswith("gpumon: webhook ops: nothing listens on its server")

            def page() -> str:
                with urllib.request.urlopen(url, timeout=60) as answer:
                    text: str = answer.read().decode()
                return text

            assert wait_until(lambda: 'gpumon_webhook_up{webhook="ops"} 0.0' in page())
            code, out, _ = ran(env, "webhook", "--config", arguments[-1])
            said = " ".join(out.split())
            assert (code, f"gpumon {process.pid} sends what it simulates" in said) == (1, True), said
            assert "nothing listens on its server: it does not run, or the address is wrong" in said
            assert 'gpumon_webhook_waiting_changes{webhook="ops"} 1.0' in page()
            assert wait_until(lambda: 'gpumon_faults{source="webhook ops"} 1.0' in page()), "a tick later"
            server.listen()
            assert process.stderr.readline() == "gpumon: webhook ops: delivers again\n"
            delivered = 'gpumon_webhook_messages_total{result="delivered",webhook="ops"} 1.0'
            assert wait_until(lambda: delivered in page())
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")
        (change,) = json.loads(server.requests[0].body)["changes"]
    assert (change["code"], change["title"], change["simulated"]) == ("alert", "memory", True)


def test_a_recorder_leaves_what_it_could_not_send_to_the_next_one(tmp_path: Path, env: dict[str, str]) -> None:
    with LoopbackServer(lambda _: Reply()) as server:
        server.refuse()
        here = ("--no-nvml", "--no-discovery", "--endpoint", "http://127.0.0.1:1", "--config", config(tmp_path, server))
        arguments = ("record", str(tmp_path / "r.sqlite"), *here)
        with begun(env, *arguments) as process:
            assert process.stderr is not None
            assert process.stderr.readline().startswith("gpumon: webhook ops: nothing listens on its server")
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
        assert process.returncode == 0
        code, out, _ = ran(env, "webhook", "--config", here[-1])
        assert code == 1
        assert "2 changes waiting" in " ".join(out.split())
        server.listen()
        with begun(env, *arguments) as process:
            assert wait_until(lambda: any(request.method == "POST" for request in server.requests))
            process.send_signal(signal.SIGTERM)
            _, err = process.communicate(timeout=60)
        posts = [request for request in server.requests if request.method == "POST"]
    titles = [[change["title"] for change in json.loads(post.body)["changes"]] for post in posts]
    assert titles == [["down", "memory"]]
    assert SECRET not in err
