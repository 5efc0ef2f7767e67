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
from gpumon.push.delivery import Attempt, DeliveryResult, Receiver, repeat_s
from gpumon.push.records import Change, ChangeState, DeliveryOutcome, KeptState, Message
from gpumon.push.standing import MOST_NAME, identity
from gpumon.push.store import Side, WebhookStore, sender_file, webhook_file
from gpumon.push.target import UnreadableSecretError, target_of
from gpumon.push.webhooks import failure_text, webhook_names
from gpumon.readings.check import Check, CheckState
from gpumon.readings.format import period, rfc3339
from gpumon.readings.text import clean

AREA: Final = "webhook"
_RESOLVED: Final = frozenset({"pagerduty", "alertmanager"})
"""Kinds whose test message has to be ended, too."""
_SIDES: Final = {Side.DEMO: " to a simulated message", Side.TEST: " to a test message"}
"""Sender beside the gpumon of this server -> how its last answer is called."""


class _Known(NamedTuple):
    """The files of a webhook on disk."""

    kept: KeptState
    """The state that the gpumon of this server has kept."""
    senders: tuple[str, ...]
    """Every gpumon that sends now."""
    last: DeliveryOutcome | None
    """The last attempt, whoever made it."""
    last_of: str
    """Who made it, where that is not the gpumon of this server."""


def checks(webhooks: Sequence[Webhook], environ: Mapping[str, str] = os.environ) -> list[Check]:
    """A line for each webhook: whether its URL and key can be read, who sends, and what came of it last."""
    result = []
    for webhook, name in zip(webhooks, webhook_names(webhooks), strict=True):
        result.append(_check(webhook, name, _known(webhook_file(environ, name, webhook))))
    return result


def _known(path: Path | None) -> _Known:
    store = WebhookStore(path)
    kept = store.read()
    senders = []
    sender = store.holder()
    if sender:
        senders.append(f"gpumon {sender} sends")
    last = kept.last
    last_of = ""
    for side, words in _SIDES.items():
        other = WebhookStore(sender_file(path, side))
        answer = other.read().last
        simulator = other.holder()
        if simulator and side is Side.DEMO:
            senders.append(f"gpumon {simulator} sends what it simulates")
        if answer is not None and (last is None or answer.wall_s > last.wall_s):
            last = answer
            last_of = words
    return _Known(kept, tuple(senders), last, last_of)


def _check(webhook: Webhook, name: str, known: _Known) -> Check:
    try:
        target = target_of(webhook)
    except UnreadableSecretError as unreadable:
        return Check(AREA, name, CheckState.FAIL, str(unreadable), "")
    senders = known.senders or ("no gpumon sends now",)
    failure = _failure(known)
    if failure:
        return Check(AREA, name, CheckState.FAIL, "; ".join((failure, *senders)), _TRY.format(name=name))
    notes = [f"{webhook.kind}, {webhook.level} and above, to {target.shown}"]
    repeat = repeat_s(webhook)
    if repeat:
        notes.append(f"sent again every {period(repeat)}")
    notes += senders
    notes.append(_last_text(known))
    return Check(AREA, name, CheckState.OK, "; ".join(notes))


def _failure(known: _Known) -> str:
    """Why nothing is delivered, with what waits; else the last attempt that failed. Empty where nothing fails."""
    waiting = failure_text(known.kept)
    if waiting or known.last is None or known.last.delivered:
        return waiting
    return _last_text(known)


def _last_text(known: _Known) -> str:
    """The last answer; of a file of an older gpumon, which has none, the last delivery."""
    if known.last is not None:
        return f"last answer{known.last_of} ({rfc3339(known.last.wall_s)}): {known.last.text}"
    if known.kept.delivered_s:
        return f"last delivery {rfc3339(known.kept.delivered_s)}"
    return "not tried"


_TRY: Final = "gpumon webhook --test {name!r} sends a message and shows the answer"


async def test_messages(webhook: Webhook, name: str) -> list[Attempt]:
    """Send a test message, and its end where the receiver keeps alerts open; the last attempt may have failed."""
    receiver = Receiver(webhook, name)
    attempts = []
    try:
        for message in _messages(webhook.kind):
            attempt = await receiver.send(message)
            attempts.append(attempt)
            if attempt.result is not DeliveryResult.DELIVERED:
                break
    finally:
        await receiver.close()
    _keep_answer(sender_file(webhook_file(os.environ, name, webhook), Side.TEST), attempts[-1].answer(time.time()))
    return attempts


def _keep_answer(path: Path | None, answer: DeliveryOutcome) -> None:
    """Keep the answer to a test message, where a file can be."""
    store = WebhookStore(path)
    with contextlib.suppress(OSError):
        if store.take():
            store.write(msgspec.json.encode(KeptState(last=answer)))
    store.release()


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
