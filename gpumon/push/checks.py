"""Webhooks as the doctor tells them, and their test messages."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Final

from gpumon.config.schema import Webhook
from gpumon.push.delivery import Attempt, Receiver, Result, repeat_s
from gpumon.push.records import Change, ChangeState, Kept, Message
from gpumon.push.standing import MOST_NAME, identity
from gpumon.push.store import Store, webhook_file
from gpumon.push.target import UnreadableError, target_of
from gpumon.push.webhooks import failure_text, names_of
from gpumon.readings.check import Check, CheckState
from gpumon.readings.format import period, rfc3339
from gpumon.readings.text import clean

AREA: Final = "webhook"
_RESOLVED: Final = frozenset({"pagerduty", "alertmanager"})
"""Kinds whose test message has to be ended, too."""


def checks(webhooks: Sequence[Webhook], environ: Mapping[str, str] = os.environ) -> list[Check]:
    """A line for each webhook: whether its URL and key can be read, and what the gpumon that sends has kept."""
    result = []
    for webhook, name in zip(webhooks, names_of(webhooks), strict=True):
        store = Store(webhook_file(environ, name, webhook))
        result.append(_check(webhook, name, store.read(), store.holder()))
    return result


def _check(webhook: Webhook, name: str, kept: Kept, sender: int) -> Check:
    try:
        target = target_of(webhook)
    except UnreadableError as unreadable:
        return Check(AREA, name, CheckState.FAIL, str(unreadable), "")
    notes = [f"{webhook.kind}, {webhook.level} and above, to {target.shown}"]
    repeat = repeat_s(webhook)
    if repeat:
        notes.append(f"sent again every {period(repeat)}")
    if sender:
        notes.append(f"gpumon {sender} sends")
    else:
        notes.append("no gpumon sends now")
    if kept.delivered_s:
        notes.append(f"last delivery {rfc3339(kept.delivered_s)}")
    failure = failure_text(kept)
    if failure:
        return Check(AREA, name, CheckState.FAIL, failure, _TRY.format(name=name))
    return Check(AREA, name, CheckState.OK, "; ".join(notes))


_TRY: Final = "gpumon webhook --test {name!r} sends a message and shows the answer"


async def test_messages(webhook: Webhook, name: str) -> list[Attempt]:
    """Send a test message, and its end where the receiver keeps alerts open; the last attempt may have failed."""
    receiver = Receiver(webhook, name)
    attempts = []
    try:
        for message in _messages(webhook.kind):
            attempt = await receiver.send(message)
            attempts.append(attempt)
            if attempt.result is not Result.DELIVERED:
                break
    finally:
        await receiver.close()
    return attempts


def _messages(kind: str) -> list[Message]:
    now_s = time.time()
    host = clean(socket.gethostname(), MOST_NAME)
    incident = identity(host, f"test {now_s}")
    states = [ChangeState.BEGAN]
    if kind in _RESOLVED:
        states.append(ChangeState.ENDED)
    messages = []
    for number, state in enumerate(states):
        change = Change(
            state=state,
            id=incident,
            incident=incident,
            wall_s=now_s,
            since=rfc3339(now_s),
            host=host,
            kind="host",
            scope="host",
            code="test",
            level="note",
            title="test message",
            text="gpumon reaches this receiver; nothing is wrong",
            action="",
        )
        messages.append(Message(number, now_s, [change], incident, state is ChangeState.ENDED))
    return messages
