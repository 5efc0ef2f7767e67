"""Webhooks as the doctor tells them, and their test messages."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from gpumon.config.schema import Webhook
from gpumon.push.delivery import Attempt, DeliveryResult, Receiver, repeat_interval_s
from gpumon.push.records import Change, ChangeState, DeliveryOutcome, KeptState, Message
from gpumon.push.standing import MOST_NAME, identity
from gpumon.push.store import Side, WebhookStore, sender_file, webhook_file
from gpumon.push.target import UnreadableSecretError, target_of
from gpumon.push.webhooks import failure_text, webhook_names
from gpumon.readings.check import Check, CheckState
from gpumon.readings.format import period, rfc3339
from gpumon.readings.text import clean
from gpumon.readings.untrusted import Untrusted

AREA: Final = "webhook"
_WITH_OPEN_ALERTS: Final = frozenset({"pagerduty", "alertmanager"})
"""Kinds that keep an alert open until its end is sent, so that a test message has to be ended, too."""
_SIDES: Final = {Side.DEMO: " to a simulated message", Side.TEST: " to a test message"}
"""Sender beside the gpumon of this server -> what its message was, as said of its last answer."""
_TRY: Final = "gpumon webhook --test{} sends a message and shows the answer"
"""Fix of a webhook that fails."""


class _WebhookFiles(NamedTuple):
    """The files of a webhook on disk."""

    kept: KeptState
    """The state that the gpumon of this server has kept."""
    senders: tuple[str, ...]
    """Every gpumon that sends now."""
    last: DeliveryOutcome | None
    """The last attempt, whoever made it."""
    last_sender: str
    """Who made it, in words, where that is not the gpumon of this server."""


def webhook_checks(webhooks: Sequence[Webhook], environ: Mapping[str, str] = os.environ) -> list[Check]:
    """A check for each webhook: whether its URL and key can be read, who sends, and what came of it last."""
    return [
        _check_of(webhook, name, _files_on_disk(webhook_file(environ, name, webhook)))
        for webhook, name in zip(webhooks, webhook_names(webhooks), strict=True)
    ]


def _files_on_disk(path: Path | None) -> _WebhookFiles:
    """The content of a webhook's file at `path`, and of those of its other senders beside it."""
    store = WebhookStore(path)
    kept = store.read()
    senders = []
    sender = store.holder()
    if sender:
        senders.append(f"gpumon {sender} sends")
    last = kept.last
    last_sender = ""
    for side, words in _SIDES.items():
        other = WebhookStore(sender_file(path, side))
        answer = other.read().last
        simulator = other.holder()
        if simulator and side is Side.DEMO:
            senders.append(f"gpumon {simulator} sends what it simulates")
        if answer is not None and (last is None or answer.wall_s > last.wall_s):
            last = answer
            last_sender = words
    return _WebhookFiles(kept, tuple(senders), last, last_sender)


def _check_of(webhook: Webhook, name: str, files: _WebhookFiles) -> Check:
    """The check of one webhook."""
    try:
        target = target_of(webhook)
    except UnreadableSecretError as unreadable:
        return Check(AREA, name, CheckState.FAIL, str(unreadable), "")
    senders = files.senders or ("no gpumon sends now",)
    failure = _failure_text(files)
    if failure:
        argument = Untrusted(name).of_form("argument")
        fix = _TRY.format(f" {argument}" if argument else "")
        return Check(AREA, name, CheckState.FAIL, "; ".join((failure, *senders)), fix)
    notes = [f"{webhook.kind}, {webhook.level} and above, to {target.shown_url}"]
    repeat = repeat_interval_s(webhook)
    if repeat:
        notes.append(f"sent again every {period(repeat)}")
    notes += senders
    notes.append(_last_text(files))
    return Check(AREA, name, CheckState.OK, "; ".join(notes))


def _failure_text(files: _WebhookFiles) -> str:
    """Why nothing is delivered, with what waits; else the last attempt that failed. Empty where nothing fails."""
    waiting = failure_text(files.kept)
    if waiting or files.last is None or files.last.delivered:
        return waiting
    return _last_text(files)


def _last_text(files: _WebhookFiles) -> str:
    """The last answer; of a file of an older gpumon, which has none, the last delivery."""
    if files.last is not None:
        return f"last answer{files.last_sender} ({rfc3339(files.last.wall_s)}): {files.last.text}"
    if files.kept.delivered_s:
        return f"last delivery {rfc3339(files.kept.delivered_s)}"
    return "not tried"


async def test_messages(webhook: Webhook, name: str) -> list[Attempt]:
    """Send a test message, and its end where the receiver keeps alerts open; returns the attempts.

    It stops at the first that fails: all but the last were delivered.
    """
    receiver = Receiver(webhook, name)
    attempts = []
    try:
        for message in _test_messages(webhook.kind):
            attempt = await receiver.send(message)
            attempts.append(attempt)
            if attempt.result is not DeliveryResult.DELIVERED:
                break
    finally:
        await receiver.close()
    _keep_answer(sender_file(webhook_file(os.environ, name, webhook), Side.TEST), attempts[-1].outcome(time.time()))
    return attempts


def _keep_answer(path: Path | None, answer: DeliveryOutcome) -> None:
    """Keep the answer to a test message, where a file can be."""
    store = WebhookStore(path)
    with contextlib.suppress(OSError):
        if store.take():
            store.write(msgspec.json.encode(KeptState(last=answer)))
    store.release()


def _test_messages(kind: str) -> list[Message]:
    """The messages of a test: one, and for receivers with open incidents one that ends it."""
    now_s = time.time()
    host = clean(socket.gethostname(), MOST_NAME)
    incident = identity(host, f"test {now_s}")
    states = [ChangeState.BEGAN]
    if kind in _WITH_OPEN_ALERTS:
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
