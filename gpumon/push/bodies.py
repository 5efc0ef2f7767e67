"""Bodies of webhooks: gpumon's own JSON, Slack, PagerDuty (Events v2) and Alertmanager (v2 alerts)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from gpumon import __version__
from gpumon.push.records import SENT_LEVELS, Change, ChangeState, Message
from gpumon.readings.format import rfc3339, wall_of
from gpumon.readings.text import clean
from gpumon.triage.silence import ALERT

_SCHEMA: Final = 1
"""Version of gpumon's own JSON."""
MOST_SLACK_CHANGES: Final = 20
"""Changes that a Slack message shows one by one; Slack takes 50 blocks."""
MOST_SLACK_CHARACTERS: Final = 2400
"""Characters of the text of one block, with its escapes; Slack takes 3000."""
_SLACK_ESCAPES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "`": "'"}
"""Character -> what stands for it in a text for Slack: a backtick would end a code block."""
MOST_SUMMARY_CHARACTERS: Final = 1000
"""Characters of PagerDuty's summary, which takes 1024."""
MOST_PAGERDUTY_CHANGES: Final = 50
"""Changes that a PagerDuty event has one by one; it takes 512 KB."""
_HELD_REPEATS: Final = 4
"""Repeats that an Alertmanager may miss before it takes an alert for over, as Prometheus does."""
PAGERDUTY_URL: Final = "https://events.pagerduty.com/v2/enqueue"
"""URL that all events of PagerDuty go to."""
_SEVERITIES: Final = {"critical": "critical", "warn": "warning", "note": "info"}
"""Level -> severity, which PagerDuty and the rules for Prometheus call so."""
_STATE_WORDS: Final = {
    ChangeState.BEGAN: "began",
    ChangeState.LEVEL: "changed level",
    ChangeState.STANDS: "still stands",
    ChangeState.ACKNOWLEDGED: "acknowledged",
    ChangeState.ENDED: "ended",
}
"""State of a change -> its words."""


_STATE_PLACES: Final = {ChangeState.ACKNOWLEDGED: 1, ChangeState.ENDED: 2}
"""State of a change -> its place among others of the message: what asks for somebody comes first."""


class BodyContext(NamedTuple):
    """Facts that a body needs beside its message."""

    name: str
    """Name of the webhook."""
    key: str
    """PagerDuty's routing key."""
    now_s: float
    """Unix time at which it is sent."""
    repeat_s: float
    """Seconds between two repeats; 0: none."""


def encode_body(kind: str, message: Message, context: BodyContext) -> bytes:
    """The body of a request, as JSON in UTF-8."""
    return msgspec.json.encode(_BODIES[kind](message, context))


def _summary(message: Message) -> str:
    """The subject of a message in one line: `2 began, 1 ended on gpu-07`."""
    counts = Counter(change.state for change in message.changes)
    parts = [f"{counts[state]} {word}" for state, word in _STATE_WORDS.items() if counts[state]]
    if message.dropped:
        parts.append(f"{message.dropped} before were dropped")
    host = f" on {message.changes[0].host}" if message.changes else ""
    return f"{_simulated_prefix(message)}{', '.join(parts)}{host}"


def _headline(message: Message) -> str:
    """The worst change in one line, as a phone shows it: `CRITICAL llama-8b: KV cache full, +2 more (gpu-07)`."""
    worst = _worst_change(message.changes)
    title = worst.title
    if worst.state is ChangeState.STANDS:
        title += f", {_STATE_WORDS[worst.state]}"
    others = len(message.changes) - 1
    if others:
        title += f", +{others} more"
    host = worst.host.partition(" (")[0] if worst.simulated else worst.host  # its name says that it is simulated, too
    return f"{_simulated_prefix(message)}{_level_text(worst)} {worst.scope}: {title} ({host})"


def _json_body(message: Message, context: BodyContext) -> dict[str, Any]:
    """The body for any receiver: all changes as they are."""
    changes = []
    for change in message.changes:
        entry: dict[str, Any] = msgspec.to_builtins(change)
        entry["time"] = rfc3339(entry.pop("wall_s"))
        changes.append(entry)
    return {
        "schema": _SCHEMA,
        "gpumon": __version__,
        "webhook": context.name,
        "message": message.number,
        "time": rfc3339(message.wall_s),
        "dropped": message.dropped,
        "changes": changes,
    }


def _slack_body(message: Message, _: BodyContext) -> dict[str, Any]:
    """The body for Slack: a summary, and a block per change."""
    blocks: list[dict[str, Any]] = [_section(slack_text(_summary(message)))]
    for change in message.changes[:MOST_SLACK_CHANGES]:
        blocks.append(_section(_slack_change(change)))
    left_out = len(message.changes) - MOST_SLACK_CHANGES
    if left_out > 0:
        blocks.append(_section(f"and {left_out} more"))
    return {"text": slack_text(_headline(message)), "blocks": blocks}


def _slack_change(change: Change) -> str:
    """One change: names and sentences stand as code, in which Slack formats nothing."""
    title = slack_text(change.title)
    lines = [change.text]
    if change.action and change.state is not ChangeState.ENDED:
        lines.append(f"next: {change.action}")
    text = slack_text("\n".join(lines))
    return f"*{_level_text(change)}* `{slack_text(change.scope)}` {title}, {_STATE_WORDS[change.state]}\n```{text}```"


def slack_text(text: str, most: int = MOST_SLACK_CHARACTERS) -> str:
    """Text in which Slack finds no link, no mention and no end of a code block, cut to `most` characters."""
    pieces: list[str] = []
    size = 0
    for character in text:
        piece = _SLACK_ESCAPES.get(character, character)
        size += len(piece)
        if size > most:
            break
        pieces.append(piece)
    return "".join(pieces)


def _section(text: str) -> dict[str, Any]:
    """A block of Slack's with a text."""
    return {"type": "section", "text": {"type": "mrkdwn", "text": text, "verbatim": True}}


def _pagerduty_body(message: Message, context: BodyContext) -> dict[str, Any]:
    """The body for PagerDuty: one event per incident, by its most urgent change."""
    event: dict[str, Any] = {"routing_key": context.key, "dedup_key": message.incident}
    if message.resolves:
        return {**event, "event_action": "resolve"}
    worst = _worst_change(message.changes)
    if worst.state is ChangeState.ACKNOWLEDGED:
        return {**event, "event_action": "acknowledge"}
    details = {
        f"{change.scope}: {change.title}": {
            "level": change.level,
            "state": change.state.value,
            "since": change.since,
            "text": change.text,
            "next": change.action,
        }
        for change in message.changes[:MOST_PAGERDUTY_CHANGES]
    }
    return {
        **event,
        "event_action": "trigger",
        "client": f"gpumon {__version__}",
        "payload": {
            "summary": clean(f"{_headline(message)}: {worst.text}", MOST_SUMMARY_CHARACTERS),
            "source": worst.host,
            "severity": _SEVERITIES[worst.level],
            "timestamp": rfc3339(worst.wall_s),
            "component": worst.scope,
            "group": worst.kind,
            "class": worst.code,
            "custom_details": {"dropped": message.dropped, "changes": len(message.changes), **details},
        },
    }


def _alertmanager_body(message: Message, context: BodyContext) -> list[dict[str, Any]]:
    """The body for an Alertmanager: an alert per change."""
    alerts = []
    for change in message.changes:
        alert = _alert(change, change.level)
        if change.state is ChangeState.ENDED:
            alert["endsAt"] = _end_time(change)
        elif context.repeat_s:
            alert["endsAt"] = rfc3339(context.now_s + _HELD_REPEATS * context.repeat_s)
        alerts.append(alert)
        if change.level_before:  # its severity is a label, so that this is another alert
            alerts.append({**_alert(change, change.level_before), "endsAt": _end_time(change)})
    return alerts


def _end_time(change: Change) -> str:
    """RFC 3339: the end of an alert, never before its start, also where the clock was set back."""
    return rfc3339(max(change.wall_s, wall_of(change.since)))


def _alert(change: Change, level: str) -> dict[str, Any]:
    """One alert; its labels are the same from begin to end, as an Alertmanager tells alerts apart by them."""
    labels = {
        "alertname": f"Gpumon{''.join(part.capitalize() for part in change.code.split('_'))}",
        "host": change.host,
        "thing": change.scope,
        "code": change.code,
        "severity": _SEVERITIES[level],
    }
    if change.kind:
        labels["kind"] = change.kind
    if change.code == ALERT:
        labels["name"] = change.title
    annotations = {
        "summary": f"{change.scope}: {change.title}",
        "description": change.text,
        "action": change.action,
    }
    if change.simulated:
        labels["simulated"] = "true"
    return {"labels": labels, "annotations": annotations, "startsAt": change.since}


def _worst_change(changes: Sequence[Change]) -> Change:
    """The most urgent change; what is acknowledged comes after all others, what ended last, whatever its level was."""
    return min(changes, key=lambda change: (_STATE_PLACES.get(change.state, 0), SENT_LEVELS.index(change.level)))


def _level_text(change: Change) -> str:
    """Level of a change in capitals, with the level before if that has changed."""
    if change.state is ChangeState.ENDED:
        return "OVER"
    if change.level_before:
        return f"{change.level_before.upper()} to {change.level.upper()}"
    return change.level.upper()


def _simulated_prefix(message: Message) -> str:
    """Mark of a message with a simulated change; empty for others."""
    if any(change.simulated for change in message.changes):
        return "SIMULATED "
    return ""


_BODIES: Final[Mapping[str, Callable[[Message, BodyContext], Any]]] = {
    "json": _json_body,
    "slack": _slack_body,
    "pagerduty": _pagerduty_body,
    "alertmanager": _alertmanager_body,
}
"""Kind of a webhook -> its body."""
