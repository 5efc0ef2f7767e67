"""The replaying engine behaves as the recorded one did: bodies, refusals, hangs, other paths."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from tests.fakes.engine import Capture, FakeEngine
from tests.fakes.http_server import Reply, wait_until


def get(url: str, timeout_s: float = 2.0, **headers: str) -> tuple[int, bytes, str]:
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            return answer.status, answer.read(), answer.headers["content-type"]
    except urllib.error.HTTPError as error:
        return error.code, error.read(), error.headers["content-type"]


def outcome(url: str, timeout_s: float) -> str:
    try:
        return str(get(url, timeout_s)[0])
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        return "refused" if isinstance(reason, ConnectionRefusedError) else "no answer"


def test_it_serves_the_page_that_was_current() -> None:
    with FakeEngine("vllm-basic", start_s=30.5) as engine:
        status, body, kind = get(f"{engine.url}/metrics")
        expected = Capture("vllm-basic").at(30.6)
    assert (status, kind) == (200, "text/plain; version=1.0.0; charset=utf-8")
    assert expected.t == pytest.approx(30.0, abs=0.1)
    assert body == expected.body


def test_the_replay_moves_on_at_its_speed() -> None:
    with FakeEngine("vllm-basic", start_s=20.0, speed=20.0) as engine:
        bodies = set()
        for _ in range(10):
            bodies.add(get(f"{engine.url}/metrics")[1])
            time.sleep(0.05)
    assert len(bodies) > 5


def test_it_refuses_answers_and_hangs_when_the_recorded_server_did() -> None:
    with FakeEngine("vllm-hang-and-dead-engine", start_s=8.0, speed=10.0) as engine:
        seen = []
        while engine.t < 45.0:
            seen.append((engine.t, outcome(f"{engine.url}/metrics", 0.1)))
            time.sleep(0.02)
        assert any(now == "no answer" for t, now in seen if 11.0 < t < 15.0)
        answers = [now for t, now in seen if 19.0 < t < 36.0]
        assert set(answers) <= {"200", "no answer"}, "an answer may come late on a busy machine"
        assert answers.count("200") > len(answers) / 2
        assert all(now == "refused" for t, now in seen if t > 41.0)


def test_a_server_that_was_refused_at_first_comes_up_on_the_same_port() -> None:
    with FakeEngine("vllm-lifecycle", start_s=40.0, speed=10.0) as engine:
        assert outcome(f"{engine.url}/metrics", 1.0) == "refused"
        assert wait_until(lambda: outcome(f"{engine.url}/metrics", 1.0) == "200")


def test_the_other_paths() -> None:
    with FakeEngine("vllm-basic", root="/models/here") as engine:
        assert json.loads(get(f"{engine.url}/version")[1]) == {"version": "0.32.0"}
        (card,) = json.loads(get(f"{engine.url}/v1/models")[1])["data"]
        assert (card["id"], card["root"], card["max_model_len"]) == ("tiny-llama", "/models/here", 2048)
        assert get(f"{engine.url}/health")[0] == 200
        assert get(f"{engine.url}/server_info")[0] == 404


def test_the_key_guards_v1_only() -> None:
    with FakeEngine("vllm-apikey") as engine:
        assert get(f"{engine.url}/v1/models")[0] == 401
        assert get(f"{engine.url}/v1/models", Authorization="Bearer test-key-123")[0] == 200
        assert get(f"{engine.url}/metrics")[0] == 200


def test_the_command_prints_its_url_and_serves() -> None:
    command = [sys.executable, "-m", "tests.fakes.engine", "vllm-basic", "--port", "0", "--speed", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+", url)
            assert get(f"{url}/metrics")[0] == 200
        finally:
            process.terminate()


def test_other_paths_that_were_recorded_move_with_the_metrics() -> None:
    with FakeEngine("llamacpp-basic", start_s=30.5) as engine:
        (_, slots, kind), (_, props, _) = (get(f"{engine.url}{path}") for path in ("/slots", "/props"))
        models = get(f"{engine.url}/v1/models")[1]
    recorded = Capture("llamacpp-basic").answer("slots", 30.6)
    assert recorded.t == pytest.approx(30.0, abs=0.1)
    assert (slots, kind) == (recorded.body, "application/json; charset=utf-8")
    assert json.loads(props)["total_slots"] == 4
    assert json.loads(models)["data"][0]["owned_by"] == "llamacpp"


def test_slots_of_another_moment_are_not_served() -> None:
    with FakeEngine("llamacpp-two-scrapers", start_s=10.5) as engine:
        assert get(f"{engine.url}/slots")[0] == 404
        assert json.loads(get(f"{engine.url}/props")[1])["total_slots"] == 4


def test_an_answer_can_be_made_that_of_another_version() -> None:
    def off(path: str, reply: Reply) -> Reply:
        return reply._replace(status=501) if path == "/metrics" else reply

    with FakeEngine("llamacpp-basic", start_s=30.5, change=off) as engine:
        assert [get(f"{engine.url}{path}")[0] for path in ("/metrics", "/slots")] == [501, 200]
