"""The bodies: what each receiver asks for, within its limits, and no text from outside that it would interpret."""

from __future__ import annotations

import json
from typing import Any

from gpumon.push.bodies import MOST_SLACK_CHANGES, BodyContext, encode_body, slack_text
from gpumon.push.ledger import Ledger, WebhookRule
from gpumon.push.records import KeptState, Message
from gpumon.readings.verdict import Acknowledged, Level, Verdict
from tests.each_row import each_row
from tests.push.moments import KV_FULL, START_S, THROTTLED, moment, storm
from tests.records import replace

CONTEXT = BodyContext("ops", "routing-key", START_S + 5.0, 60.0)
HOSTILE = "`<!channel> & <https://evil|click> *x*`\x1b[31m\u202e```"


def messages(*moments: tuple[Verdict, ...], by_incident: bool = False) -> list[Message]:
    made = Ledger(WebhookRule("note", (), 0.0, 0.0, by_incident=by_incident), KeptState())
    for second, verdicts in enumerate(moments):
        made.see(moment(float(second), *verdicts), 0)
    return made.kept.waiting


def bodies(kind: str, *moments: tuple[Verdict, ...]) -> list[Any]:
    waiting = messages(*moments, by_incident=kind == "pagerduty")
    return [json.loads(encode_body(kind, message, CONTEXT)) for message in waiting]


def test_pagerduty_and_slack_are_told_that_it_is_acknowledged() -> None:
    known = replace(
        KV_FULL, acknowledged=Acknowledged("anna", HOSTILE, until="2026-11-23T06:00:00Z", since="2026-11-22T22:00:00Z")
    )
    opened, taken_on = bodies("pagerduty", (KV_FULL,), (known,))
    assert (opened["event_action"], taken_on["event_action"]) == ("trigger", "acknowledge")
    assert opened["dedup_key"] == taken_on["dedup_key"]
    _, text = bodies("slack", (KV_FULL,), (known,))
    assert "1 acknowledged" in text["blocks"][0]["text"]["text"]
    assert "acknowledged by anna until" in text["blocks"][1]["text"]["text"]
    assert "<!channel>" not in json.dumps(text)


def test_an_incident_is_taken_on_once_all_of_it_is() -> None:
    mine = Acknowledged("anna", "", until="2026-11-23T06:00:00Z", since="2026-11-22T22:00:00Z")
    first = replace(KV_FULL, acknowledged=mine)
    second = replace(THROTTLED, acknowledged=mine)
    told = bodies("pagerduty", (KV_FULL, THROTTLED), (first, THROTTLED), (first, THROTTLED), (first, second))
    assert [event["event_action"] for event in told] == ["trigger", "acknowledge"]


def test_the_own_body_has_codes_figures_and_texts() -> None:
    (sent,) = bodies("json", (KV_FULL,))
    assert {key: sent[key] for key in ("schema", "webhook", "message", "dropped")} == {
        "schema": 1,
        "webhook": "ops",
        "message": 1,
        "dropped": 0,
    }
    (change,) = sent["changes"]
    assert (change["state"], change["code"], change["level"], change["scope"]) == (
        *("began", "kv_cache_full", "warn"),
        KV_FULL.scope,
    )
    assert change["verdict"]["code"] == "kv_cache_full"
    assert change["verdict"]["evidence"][0]["quantity"] == "kv_usage"
    assert change["time"] == "2025-10-09T08:53:22.000Z"


def test_slack_gets_blocks_within_its_limits_and_a_text_for_the_notification() -> None:
    (sent,) = bodies("slack", storm(40))
    assert sent["text"] == f"CRITICAL gpu 0: throttled, +39 more ({moment(0.0).host.name})"
    assert sent["blocks"][0]["text"]["text"] == f"40 began on {moment(0.0).host.name}"
    assert len(sent["blocks"]) == MOST_SLACK_CHANGES + 2
    assert sent["blocks"][-1]["text"]["text"] == "and 20 more"
    assert "*CRITICAL* `gpu 0` throttled, began" in sent["blocks"][1]["text"]["text"]


def test_a_phone_shows_level_thing_and_what_is_wrong() -> None:
    critical = replace(KV_FULL, level=Level.CRITICAL)
    sent = bodies("slack", (KV_FULL,), (critical,), (THROTTLED,), ())
    host = moment(0.0).host.name
    assert [message["text"] for message in sent] == [
        f"WARN {KV_FULL.scope}: KV cache full ({host})",
        f"WARN to CRITICAL {KV_FULL.scope}: KV cache full ({host})",
        f"CRITICAL gpu 3: throttled, +1 more ({host})",
        f"OVER gpu 3: throttled ({host})",
    ]
    opened, _ = bodies("pagerduty", (KV_FULL, THROTTLED), ())
    assert opened["payload"]["summary"].startswith(f"CRITICAL gpu 3: throttled, +1 more ({host}): ")


def test_a_phone_is_told_what_is_simulated_and_what_still_stands() -> None:
    ledger = Ledger(WebhookRule("note", (), 0.0, 1.0, by_incident=False), KeptState())
    for after_s in (0.0, 2.0):
        now = moment(after_s, KV_FULL, simulated=True)
        ledger.see(replace(now, host=replace(now.host, name="vm (simulated load)")), 0)
        for message in list(ledger.kept.waiting):
            sent = json.loads(encode_body("slack", message, CONTEXT))
            ledger.take_off_queue(message)
    assert sent["text"] == f"SIMULATED WARN {KV_FULL.scope}: KV cache full, still stands (vm)"


@each_row("scope", [HOSTILE, "&" * 5000, "<" * 300 + "\n" * 300])
def test_slack_takes_no_markup_and_no_mention_from_outside(scope: str) -> None:
    verdict = replace(KV_FULL, scope=scope, cause=scope)
    (sent,) = bodies("slack", (verdict,))
    for block in sent["blocks"]:
        text = block["text"]["text"]
        assert len(text) <= 3000
        assert text.count("`") in (0, 8), "the name and the sentence stand as code, and nothing in them ends it"
        assert "<" not in text
        assert "\x1b" not in text
    assert "<" not in sent["text"]


def test_slack_escapes_are_those_of_its_manual() -> None:
    assert slack_text("a < b & c > d") == "a &lt; b &amp; c &gt; d"
    assert slack_text("&&&", most=11) == "&amp;&amp;", "an escape is not cut in the middle"


def test_pagerduty_gets_an_event_with_the_worst_severity_and_its_end() -> None:
    opened, closed = bodies("pagerduty", (KV_FULL, THROTTLED), ())
    assert opened["routing_key"] == closed["routing_key"] == "routing-key"
    assert (opened["event_action"], closed["event_action"]) == ("trigger", "resolve")
    assert opened["dedup_key"] == closed["dedup_key"]
    assert len(opened["dedup_key"]) <= 255
    payload = opened["payload"]
    assert (payload["severity"], payload["component"], payload["class"]) == ("critical", "gpu 3", "throttled")
    assert len(payload["summary"]) <= 1024
    assert payload["custom_details"][f"{KV_FULL.scope}: KV cache full"]["level"] == "warn"


def test_an_alertmanager_gets_the_same_labels_from_begin_to_end() -> None:
    (began,), (ended,) = bodies("alertmanager", (KV_FULL,), ())
    assert began["labels"] == ended["labels"]
    assert began["labels"]["alertname"] == "GpumonKvCacheFull"
    assert began["labels"]["severity"] == "warning"
    assert began["startsAt"] == KV_FULL.since
    assert began["endsAt"] == "2025-10-09T08:57:27.000Z", "four repeats from when it is sent"
    assert ended["endsAt"] == "2025-10-09T08:53:23.000Z"


def test_another_level_ends_the_alert_of_the_severity_before() -> None:
    _, sent = bodies("alertmanager", (KV_FULL,), (replace(KV_FULL, level=Level.CRITICAL),))
    assert [alert["labels"]["severity"] for alert in sent] == ["critical", "warning"]
    assert sent[1]["endsAt"] < sent[0]["endsAt"]


def test_an_end_is_never_before_the_start_though_a_clock_was_set_back() -> None:
    (_, (ended,)) = bodies("alertmanager", (replace(KV_FULL, since="2026-01-01T00:00:00.000Z"),), ())
    assert ended["endsAt"] >= ended["startsAt"]
