"""Webhooks over real HTTP: receivers that answer, fail, hang, refuse, go away and come back."""

from __future__ import annotations

import asyncio
import base64
import codecs
import json
import os
import re
import threading
import time
import unicodedata
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from gpumon.config.options import Options
from gpumon.config.schema import Config, Webhook
from gpumon.push import webhooks as module
from gpumon.push.checks import webhook_checks
from gpumon.push.delivery import MOST_WAIT_S, retry_after_s
from gpumon.push.ledger import Ledger
from gpumon.push.records import KeptState
from gpumon.push.store import WebhookStore
from gpumon.push.target import target_of
from gpumon.push.webhooks import Webhooks, webhooks_of
from gpumon.readings.check import CheckState
from gpumon.readings.verdict import Verdict
from tests.each_row import each_row
from tests.fakes.http_server import LoopbackServer, Reply, Request, wait_until
from tests.push.moments import KV_FULL, START_S, THROTTLED, moment
from tests.records import replace
from tests.sources.test_key_recipient import OTHER, needs_root, serving

SECRET = "T0123/B0123/s3cr3ts3cr3t"


class Program:
    """A gpumon with webhooks: shows it moments of now, and closes it."""

    def __init__(self, *webhooks: Webhook) -> None:
        self.lines: list[str] = []
        made = webhooks_of(Config(webhook=webhooks), Options(), self.lines.append)
        assert made is not None
        self.webhooks: Webhooks = made

    def see(self, *verdicts: Verdict) -> None:
        now = moment(0.0, *verdicts)
        self.webhooks.see(replace(now, wall_s=time.time()))

    def started(self, *verdicts: Verdict) -> Program:
        """It, once it has read what is kept and has seen these verdicts."""
        self.see(*verdicts)
        assert wait_until(lambda: all(channel._ledger is not None for channel in self.webhooks.channels))
        self.see(*verdicts)
        return self

    def fault(self) -> str:
        faults = [trouble(time.time()) for trouble in self.webhooks.troubles]
        return "; ".join(f"{fault.source}: {fault.text}" for fault in faults if fault is not None)

    def samples(self) -> dict[str, float]:
        return {sample.labels.get("result", sample.name): sample.value for sample in self.webhooks.samples()}

    def close(self) -> None:
        asyncio.run(self.webhooks.close())


class Receiver(LoopbackServer):
    """A server that answers what `replies` says, the last one for good."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies or (Reply(),))
        self.times: list[float] = []
        super().__init__(self._next)

    def _next(self, _: Request) -> Reply:
        self.times.append(time.monotonic())
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]

    def states(self) -> list[str]:
        """State and code of every change received, in order."""
        bodies = [json.loads(request.body) for request in self.requests]
        return [f"{change['state']} {change['code']}" for sent in bodies for change in sent["changes"]]


@pytest.fixture
def program() -> Iterator[Callable[..., Program]]:
    programs: list[Program] = []

    def begin(*webhooks: Webhook) -> Program:
        programs.append(Program(*webhooks))
        return programs[-1]

    yield begin
    for one in programs:
        one.close()


def own(server: LoopbackServer, **others: Any) -> Webhook:
    return replace(Webhook(url=f"{server.url}/hook", group_s=0.0, retry_s=0.1, timeout_s=5.0), **others)


def test_changes_arrive_in_their_order(program: Callable[..., Program]) -> None:
    with Receiver() as server:
        running = program(own(server)).started(KV_FULL)
        running.see(KV_FULL, THROTTLED)
        running.see()
        assert wait_until(lambda: len(server.states()) == 4)
        assert server.states() == ["began kv_cache_full", "began throttled", *server.states()[2:]]
        assert set(server.states()[2:]) == {"ended kv_cache_full", "ended throttled"}
        request = server.requests[0]
        assert (request.method, request.path, request.headers["content-type"]) == ("POST", "/hook", "application/json")
        assert wait_until(lambda: running.samples()["delivered"] == 3.0)
        assert (running.fault(), running.lines) == ("", [])


def test_a_dead_receiver_loses_nothing_and_is_said(program: Callable[..., Program]) -> None:
    with Receiver() as server:
        server.refuse()
        running = program(own(server, name="ops")).started(KV_FULL)
        running.see(KV_FULL, THROTTLED)
        assert wait_until(lambda: "2 changes waiting" in running.fault())
        assert running.fault().startswith(f"webhook ops: nothing listens on 127.0.0.1:{server.port}")
        running.see(THROTTLED)
        assert running.samples()["gpumon_webhook_up"] == 0.0
        assert running.samples()["gpumon_webhook_waiting_changes"] == 3.0
        assert wait_until(lambda: webhook_checks((own(server, name="ops"),))[0].state is CheckState.FAIL)
        server.listen()
        assert wait_until(lambda: running.fault() == "")
        assert wait_until(lambda: len(server.states()) == 3)
        assert server.states() == ["began kv_cache_full", "began throttled", "ended kv_cache_full"]
        running.see(THROTTLED)
        assert [line.partition(" (")[0].partition(";")[0] for line in running.lines] == [
            f"webhook ops: nothing listens on 127.0.0.1:{server.port}: it does not run, or the address is wrong",
            "webhook ops: delivers again",
        ]


@pytest.mark.parametrize("status", [302, 401, 404, 500, 503])
def test_an_answer_that_is_no_success_is_tried_again(program: Callable[..., Program], status: int) -> None:
    with Receiver(Reply(status, b"no\x1b[31m"), Reply(status), Reply()) as server:
        running = program(own(server)).started(KV_FULL)
        assert wait_until(lambda: running.samples()["delivered"] == 1.0)
        assert len({request.body for request in server.requests}) == 1
        assert (len(server.requests), running.samples()["failed"]) == (3, 2.0)


def test_a_receiver_that_asks_for_time_gets_it(program: Callable[..., Program]) -> None:
    with Receiver(Reply(429, headers={"Retry-After": "1"}), Reply()) as server:
        running = program(own(server)).started(KV_FULL)
        assert wait_until(lambda: "HTTP 429" in running.fault())
        assert wait_until(lambda: running.fault() == "")
        assert server.times[1] - server.times[0] >= 1.0


@each_row(
    ("text", "seconds"),
    [
        ("", 0.0),
        ("7", 7.0),
        ("-7", 0.0),
        ("99999999999", MOST_WAIT_S),
        ("soon", 0.0),
        ("Thu, 09 Oct 2025 08:53:42 GMT", 20.0),
        ("Thu, 09 Oct 2025 08:00:00 GMT", 0.0),
    ],
)
def test_retry_after_is_a_number_or_a_date(text: str, seconds: float) -> None:
    assert retry_after_s(text, START_S) == seconds


def test_a_receiver_that_hangs_holds_nothing_up(program: Callable[..., Program]) -> None:
    with Receiver(Reply(delay_s=60.0), Reply()) as server:
        running = program(own(server, timeout_s=0.2)).started(KV_FULL)
        assert wait_until(lambda: "no complete answer within 0.2 s" in running.fault())
        assert wait_until(lambda: running.fault() == "")
        assert wait_until(lambda: running.samples()["delivered"] == 1.0)


def test_a_message_that_is_refused_is_given_up_and_said(program: Callable[..., Program]) -> None:
    with Receiver(Reply(400, b"invalid_payload"), Reply()) as server:
        running = program(own(server)).started(KV_FULL)
        running.see(KV_FULL, THROTTLED)
        assert wait_until(lambda: running.samples()["delivered"] == 1.0)
        assert running.samples()["refused"] == 1.0
        assert running.fault() == (
            "webhook json: it refuses the message with HTTP 400: invalid_payload; 1 change given up"
        )
        running.see(KV_FULL, THROTTLED)
        assert running.lines == [running.fault()]


def test_the_next_run_sends_what_this_one_could_not(program: Callable[..., Program]) -> None:
    with Receiver() as server:
        server.refuse()
        first = program(own(server)).started(KV_FULL)
        assert wait_until(lambda: "1 change waiting" in first.fault())
        first.close()
        server.listen()
        second = program(own(server)).started(KV_FULL, THROTTLED)
        assert wait_until(lambda: len(server.states()) == 2)
        assert server.states() == ["began kv_cache_full", "began throttled"], "once each, though two runs saw the first"
        assert wait_until(lambda: second.fault() == "")


def test_what_waits_is_on_disk_also_when_gpumon_is_killed(program: Callable[..., Program], tmp_path: Path) -> None:
    with Receiver(Reply(delay_s=60.0)) as server:
        running = program(own(server, timeout_s=60.0)).started(KV_FULL)
        assert wait_until(lambda: server.requests)
        running.see(KV_FULL, THROTTLED)
        (channel,) = running.webhooks.channels
        path = channel._store.path
        assert path is not None
        assert wait_until(lambda: path.exists() and b"throttled" in path.read_bytes())
        assert path.stat().st_mode & 0o777 == 0o600
        running.close()
        assert wait_until(running.webhooks._ended.is_set), "the request that hangs is given up"
        assert channel._ledger is not None
        assert channel._ledger.waiting_changes == 2, "it ends though the receiver never answers"


def test_the_window_is_closed_and_sent_at_the_end(program: Callable[..., Program]) -> None:
    with Receiver() as server:
        running = program(own(server, group_s=3600.0)).started(KV_FULL)
        assert server.requests == []
        running.close()
        assert server.states() == ["began kv_cache_full"]


def test_of_two_programs_one_sends_and_the_other_goes_on_after_it(
    program: Callable[..., Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STANDBY_S", 0.05)
    with Receiver() as server:
        first = program(own(server)).started(KV_FULL)
        second = program(own(server))
        second.see(KV_FULL)
        assert wait_until(lambda: server.states() == ["began kv_cache_full"])
        second.see(KV_FULL, THROTTLED)
        (check,) = webhook_checks((own(server),))
        assert "sends" in check.text
        assert "gpumon_webhook_up" not in second.samples(), "the one that sends knows"
        assert first.samples()["gpumon_webhook_up"] == 1.0
        first.close()
        second.started(KV_FULL, THROTTLED)
        assert wait_until(lambda: len(server.states()) == 2)
        assert server.states() == ["began kv_cache_full", "began throttled"]


def test_a_secret_url_stands_nowhere(program: Callable[..., Program], tmp_path: Path) -> None:
    def echo(request: Request) -> Reply:
        return Reply(403, f"no {request.path} of {request.headers['host']}".encode())

    with LoopbackServer(echo) as server:
        file = tmp_path / "url"
        file.write_text(f"{server.url}/services/{SECRET}\n")
        webhook = Webhook(kind="slack", url_file=str(file), group_s=0.0, retry_s=0.1)
        running = program(webhook).started(KV_FULL)
        assert wait_until(lambda: "HTTP 403" in running.fault())
        texts = [running.fault(), *running.lines, webhook_checks((webhook,))[0].text]
        server.refuse()
        assert wait_until(lambda: "nothing listens on its server: it does not run" in running.fault())
        texts += [running.fault()]
        (channel,) = running.webhooks.channels
        running.close()
        assert channel._store.path is not None
        texts.append(channel._store.path.read_text())
        assert server.requests[0].path == f"/services/{SECRET}"
        for text in texts:
            for part in (*SECRET.split("/"), str(server.port)):
                if len(part) > 5:
                    assert part not in text


@pytest.mark.parametrize(
    "form",
    [
        str.upper,
        lambda key: base64.b64encode(key.encode()).decode(),
        lambda key: base64.b64encode(f"Bearer {key}".encode()).decode(),
        lambda key: base64.urlsafe_b64encode(f"x{key}?".encode()).decode(),
        lambda key: key.encode().hex(),
        lambda key: quote(key, safe=""),
    ],
)
def test_a_key_that_a_receiver_gives_back_in_another_form_is_struck(
    program: Callable[..., Program], monkeypatch: pytest.MonkeyPatch, form: Callable[[str], str]
) -> None:
    key = "r0uting+k3y/of~ours"
    monkeypatch.setenv("PD_KEY", key)
    with LoopbackServer(lambda _: Reply(500, f"you sent {form(key)} to us".encode())) as server:
        webhook = Webhook(kind="pagerduty", url=server.url, api_key_env="PD_KEY", group_s=0.0, retry_s=0.1)
        running = program(webhook).started(KV_FULL)
        assert wait_until(lambda: "HTTP 500" in running.fault())
        assert "you sent" in running.fault()
        assert "***" in running.fault()
        told = form(key)
        assert not any(told[at : at + 8].lower() in running.fault().lower() for at in range(4, len(told) - 12))
        running.close()


@pytest.mark.parametrize(
    "form",
    [
        lambda key: "".join(f"%{byte:02x}" for byte in key.encode()),
        lambda key: quote("".join(f"%{byte:02X}" for byte in key.encode())),
        lambda key: "".join(f"\\u{ord(letter):04x}" for letter in key),
        lambda key: "".join(f"&#{ord(letter)};" for letter in key),
        " ".join,
        "-".join,
        lambda key: f"{key[:7]}\n  {key[7:]}",
        lambda key: f"{key[:9]}...",
        lambda key: f"...{key[-10:]}",
        lambda key: key[::-1],
        lambda key: key.upper().replace("+", " "),
        lambda key: "\n".join(base64.b64encode(key.encode()).decode()[at : at + 6] for at in range(0, 28, 6)),
        lambda key: base64.b64encode(key.encode()).decode().upper(),
        lambda key: ":".join(f"{byte:02X}" for byte in key.encode()),
    ],
)
def test_an_answer_with_parts_of_a_key_in_any_form_is_neither_printed_nor_kept(
    program: Callable[..., Program], monkeypatch: pytest.MonkeyPatch, form: Callable[[str], str]
) -> None:
    key = "r0uting+k3y/of~ours"
    monkeypatch.setenv("PD_KEY", key)
    with LoopbackServer(lambda _: Reply(500, f"you sent {form(key)} to us".encode())) as server:
        webhook = Webhook(kind="pagerduty", url=server.url, api_key_env="PD_KEY", group_s=0.0, retry_s=0.1)
        running = program(webhook).started(KV_FULL)
        assert wait_until(lambda: "HTTP 500" in running.fault())
        texts = [running.fault(), *running.lines, webhook_checks((webhook,))[0].text]
        running.close()
        (channel,) = running.webhooks.channels
        assert channel._store.path is not None
        texts.append(channel._store.path.read_text())
    pieces = re.split(r"\s+", form(key))
    for text in texts:
        assert not [piece for piece in pieces if len(piece) > 3 and piece in text], text
    assert "an answer that repeats parts of a secret" in texts[0] or "***" in texts[0]


@each_row(
    "form",
    [
        lambda key: base64.b32encode(key.encode()).decode(),
        lambda key: base64.a85encode(key.encode()).decode(),
        lambda key: base64.b64encode(base64.b64encode(key.encode())).decode(),
        lambda key: base64.b64encode(key[::-1].encode()).decode(),
        lambda key: base64.b64encode(key.encode("utf-16le")).decode(),
        lambda key: base64.b64encode(zlib.compress(key.encode())).decode(),
        lambda key: key[::-1].encode().hex(),
        lambda key: codecs.encode(key, "rot13"),
        lambda key: "x".join(key),
        lambda key: json.dumps(list(key.encode())),
        lambda key: json.dumps([key[at : at + 5] for at in range(0, len(key), 5)]),
        lambda key: " ".join(f"{byte:08b}" for byte in key.encode()),
        lambda key: "".join(f"\\{byte:o}" for byte in key.encode()),
        lambda key: "".join(f"={byte:02X}" for byte in key.encode()),
        lambda key: "".join(f"\\u{{{byte:x}}}" for byte in key.encode()),
        lambda key: "".join(chr(0xFEE0 + byte) for byte in key.encode()),
    ],
)
def test_of_an_answer_words_and_few_numbers_are_said(
    monkeypatch: pytest.MonkeyPatch, form: Callable[[str], str]
) -> None:
    """Nobody knows all encodings: what is no word is not said."""
    key = "9f86d081884c7d659a2feaa0c55ad015"
    monkeypatch.setenv("KEY", key)
    target = target_of(Webhook(url="https://h/x", api_key_env="KEY"))
    told = target.answer_without_secrets(f"you sent {form(key)} to us")
    runs = re.findall(r"[^\W_]+", unicodedata.normalize("NFKC", form(key)))
    shown = [run for run in runs if not run.isalpha() and run in re.findall(r"[^\W_]+", told)]
    assert len(set(shown)) <= 3
    assert not [run for run in shown if len(run) > 4]


@each_row(
    ("answer", "shown"),
    [
        ("no \\UFFFFFF here", "no \\UFFFFFF here"),
        ("no \\U00110000 \\ud800 \\x6", "no "),
        ("you sent \\u0039f86d081884c7d659a2f", "an answer that repeats parts of a secret"),
        ("you sent \\U00000039\\x6686d081884c", "an answer that repeats parts of a secret"),
    ],
)
def test_characters_by_number_are_read_as_far_as_there_are_any(
    monkeypatch: pytest.MonkeyPatch, answer: str, shown: str
) -> None:
    monkeypatch.setenv("KEY", "9f86d081884c7d659a2feaa0c55ad015")
    target = target_of(Webhook(url="https://h/x", api_key_env="KEY"))
    assert shown in target.answer_without_secrets(answer)


def test_a_large_answer_holds_nothing_up(program: Callable[..., Program], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "9f86d081884c7d659a2feaa0c55ad015" * 4)
    with LoopbackServer(lambda _: Reply(500, "\ufdfa".encode() * 300_000)) as server:
        webhook = Webhook(url=server.url, api_key_env="KEY", group_s=0.0, retry_s=0.1)
        begun_s = time.process_time()
        running = program(webhook).started(KV_FULL)
        assert wait_until(lambda: "HTTP 500" in running.fault())
        assert time.process_time() - begun_s < 3.0
        running.close()


def test_an_answer_of_pagerduty_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "9f86d081884c7d659a2feaa0c55ad015")
    said = '{"status":"invalid event","errors":["Length of \'routing_key\' is incorrect (should be 32 characters)"]}'
    assert target_of(Webhook(kind="pagerduty", api_key_env="KEY")).answer_without_secrets(said) == said


def test_a_key_of_letters_alone_that_is_given_back_in_parts_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "correcthorsebattery")
    target = target_of(Webhook(url="https://h/x", api_key_env="KEY"))
    assert target.answer_without_secrets("no correcth orsebattery") == "an answer that repeats parts of a secret"


def test_an_answer_in_words_stays(program: Callable[..., Program], tmp_path: Path) -> None:
    said = "no_service: this team is archived, see channel T0-ops"
    with LoopbackServer(lambda _: Reply(500, said.encode())) as server:
        file = tmp_path / "url"
        file.write_text(f"{server.url}/services/{SECRET}\n")
        running = program(Webhook(kind="slack", url_file=str(file), group_s=0.0, retry_s=0.1)).started(KV_FULL)
        assert wait_until(lambda: said in running.fault())
        running.close()


def test_a_routing_key_is_in_the_body_and_nowhere_else(
    program: Callable[..., Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PD_KEY", "r0utingk3y")
    with LoopbackServer(lambda request: Reply(202 if b"resolve" in request.body else 500, request.body)) as server:
        webhook = Webhook(kind="pagerduty", url=server.url, api_key_env="PD_KEY", group_s=0.0, retry_s=0.1)
        running = program(webhook).started(KV_FULL)
        assert wait_until(lambda: "HTTP 500" in running.fault())
        assert json.loads(server.requests[0].body)["routing_key"] == "r0utingk3y"
        (channel,) = running.webhooks.channels
        running.close()
        assert channel._store.path is not None
        for text in (running.fault(), channel._store.path.read_text(), *running.lines):
            assert "r0utingk3y" not in text


def test_a_bearer_token_is_sent_as_such_and_a_mended_file_takes_effect(
    program: Callable[..., Program], tmp_path: Path
) -> None:
    with Receiver() as server:
        file = tmp_path / "token"
        running = program(own(server, api_key_file=str(file))).started(KV_FULL)
        assert wait_until(lambda: "api_key_file: no such file" in running.fault())
        file.write_text("t0ken\n")
        assert wait_until(lambda: server.requests)
        assert server.requests[0].headers["authorization"] == "Bearer t0ken"


def test_a_file_system_that_hangs_costs_one_thread(
    program: Callable[..., Program], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt waits for the same read: none of them leaves a thread of its own behind."""
    file = tmp_path / "token"
    file.write_text("t0ken")
    mounted = threading.Event()
    reads = []
    real_open = os.open

    def hanging_open(path: Any, *rest: Any, **others: Any) -> int:
        if path == file:
            reads.append(path)
            mounted.wait(60.0)
        return real_open(path, *rest, **others)

    monkeypatch.setattr(os, "open", hanging_open)
    with Receiver() as server:
        running = program(own(server, api_key_file=str(file), timeout_s=0.05, retry_s=0.05)).started(KV_FULL)
        try:
            assert wait_until(lambda: running.samples()["failed"] >= 3.0)
            assert "file system does not answer" in running.fault()
            assert len(reads) == 1
        finally:
            mounted.set()
        assert wait_until(lambda: server.requests)


@needs_root
def test_a_secret_url_is_not_sent_to_another_user_who_took_the_port(
    program: Callable[..., Program], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with serving(OTHER.pw_uid, log) as port:
        file = tmp_path / "url"
        file.write_text(f"http://127.0.0.1:{port}/services/{SECRET}")
        running = program(Webhook(kind="slack", url_file=str(file), group_s=0.0, retry_s=0.1)).started(KV_FULL)
        assert wait_until(lambda: f"belongs to {OTHER.pw_name}" in running.fault())
        assert SECRET not in log.read_text()


def test_an_alertmanager_is_asked_at_its_api(program: Callable[..., Program]) -> None:
    with LoopbackServer(lambda _: Reply()) as server:
        program(Webhook(kind="alertmanager", url=f"{server.url}/am/", group_s=0.0)).started(KV_FULL)
        assert wait_until(lambda: server.requests)
        assert server.requests[0].path == "/am/api/v2/alerts"


def test_without_a_place_on_disk_it_sends_all_the_same(
    program: Callable[..., Program], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with Receiver(Reply(500), Reply(500), Reply(500), Reply()) as server:
        running = program(own(server)).started(KV_FULL)
        assert wait_until(lambda: "nothing is kept on disk" in running.fault())
        assert wait_until(lambda: running.samples()["delivered"] == 1.0)


def test_a_host_name_that_is_none_is_said_and_a_mended_file_takes_effect(
    program: Callable[..., Program], tmp_path: Path
) -> None:
    with LoopbackServer(lambda _: Reply()) as server:
        file = tmp_path / "url"
        file.write_text(f"https://xn--/services/{SECRET}")
        running = program(Webhook(kind="slack", url_file=str(file), group_s=0.0, retry_s=0.1)).started(KV_FULL)
        assert wait_until(lambda: "host name not known" in running.fault())
        file.write_text(f"{server.url}/services/{SECRET}")
        assert wait_until(lambda: server.requests)


def test_two_writings_at_once_do_not_take_each_others_file(tmp_path: Path) -> None:
    """At the end the last writing is begun, whether or not one is under way."""
    webhook = Webhook(url="http://127.0.0.1:1")
    for number in range(1, 60):
        channel = module.Channel(webhook, "x", WebhookStore(tmp_path / "kept.json"))
        channel._ledger = Ledger(module.rule_of(webhook), KeptState(number=number, failure="x" * 200_000))
        writings = [threading.Thread(target=channel._write_if_changed) for _ in range(2)]
        for writing in writings:
            writing.start()
        for writing in writings:
            writing.join()
        assert channel._store_fault == ""
        assert channel._store.read().number == number


def test_a_bug_of_ours_costs_one_webhook_and_is_said(program: Callable[..., Program]) -> None:
    with Receiver() as server:
        broken = own(server, name="broken", kind="teams")  # no config can say so: there is no body of that kind
        running = program(broken, own(server, name="fine")).started(KV_FULL)
        assert wait_until(lambda: running.fault().startswith("webhook broken: gpumon failed on this webhook"))
        assert wait_until(lambda: server.states() == ["began kv_cache_full"])


def test_a_webhook_that_was_not_tried_is_said_and_then_its_last_answer(program: Callable[..., Program]) -> None:
    with Receiver(Reply(200, b"thanks"), Reply(400, b"no")) as server:
        webhook = own(server)
        (check,) = webhook_checks((webhook,))
        assert (check.state, check.text.split("; ")[-2:]) == (CheckState.OK, ["no gpumon sends now", "not tried"])
        running = program(webhook).started(KV_FULL)
        assert wait_until(lambda: webhook_checks((webhook,))[0].text.endswith("Z): HTTP 200: thanks"))
        assert f"gpumon {os.getpid()} sends; last answer (20" in webhook_checks((webhook,))[0].text
        running.see(KV_FULL, THROTTLED)
        assert wait_until(lambda: webhook_checks((webhook,))[0].state is CheckState.FAIL)
        assert "it refuses the message with HTTP 400: no" in webhook_checks((webhook,))[0].text


def test_a_simulated_server_is_sent_only_where_that_is_asked_for() -> None:
    assert webhooks_of(Config(webhook=(Webhook(url="http://127.0.0.1:1"),)), Options(demo=True)) is None
    made = webhooks_of(Config(webhook=(Webhook(url="http://127.0.0.1:1", simulated=True),)), Options(demo=True))
    assert made is not None
    assert webhooks_of(Config(webhook=(Webhook(url="http://127.0.0.1:1"),)), Options(for_fleet=True)) is None
