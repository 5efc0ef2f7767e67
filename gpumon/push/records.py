"""Changes and messages of webhooks as they are kept on disk: codes, figures and texts, without secrets."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

import msgspec

SENT_LEVELS: Final = ("critical", "warn", "note")
"""Levels that can be sent, the most urgent first."""


class ChangeState(str, Enum):
    """A change of a verdict or an alert."""

    BEGAN = "began"
    LEVEL = "level"
    """It has another level."""
    STANDS = "stands"
    """It still stands, and is sent again."""
    ACKNOWLEDGED = "acknowledged"
    """Somebody has taken it on; nothing more is sent of it until it gets worse, counts again or ends."""
    ENDED = "ended"


class Change(msgspec.Struct, frozen=True):
    """One change of a verdict or of an alert on a figure, on one host."""

    state: ChangeState
    id: str
    """Tells it apart from all others: the same from its begin to its end."""
    incident: str
    """Id of what began within the same group window, which has one for all."""
    wall_s: float
    """Unix time of the change."""
    since: str
    """RFC 3339: since when the verdict holds."""
    host: str
    kind: str
    """`engine`, `gpu` or `host`; empty for an alert on a figure, which does not tell."""
    scope: str
    """Shown name of the engine, the GPU or the host."""
    code: str
    """Code of the verdict; `alert` for an alert on a figure."""
    level: str
    title: str
    """Name of the verdict's limit in words, or of the alert."""
    text: str
    """The verdict in one line."""
    action: str
    """Actions to try, the best first."""
    level_before: str = ""
    """Level before the change, where that is another."""
    simulated: bool = False
    verdict: dict[str, Any] = {}
    """The verdict as in `verdicts[]` of the JSON; empty for an alert on a figure."""
    consequences: list[dict[str, Any]] = []
    """Verdicts that it is the cause of, in the same form: they have no change of their own."""


class Message(msgspec.Struct):
    """Changes that go out as one request."""

    number: int
    """The messages of a webhook are numbered from 1 on, over all runs; those of a test from 0."""
    wall_s: float
    """Unix time at which the message was made."""
    changes: list[Change]
    incident: str = ""
    """PagerDuty: the incident that the message is about."""
    resolves: bool = False
    """PagerDuty: whether nothing of the incident stands any more."""
    dropped: int = 0
    """Changes that were dropped before this message because too many waited."""


class Told(msgspec.Struct):
    """A verdict or alert that its receiver was told of and that did not end."""

    change: Change
    """The last change."""
    told_s: float
    """Unix time at which it was sent last, or was due."""
    seen_s: float
    """Unix time at which it was seen last."""
    key: str = ""
    """Stable id of the engine or GPU."""
    also: list[str] = []
    """Places of the verdicts on other things that were told with it, as they are alike."""


class DeliveryOutcome(msgspec.Struct, frozen=True):
    """The outcome of the last attempt to deliver something."""

    wall_s: float
    """Unix time."""
    delivered: bool
    text: str
    """The answer, or why there is none, without secrets."""


class KeptState(msgspec.Struct):
    """The state that a webhook keeps from one run to the next."""

    version: int = 1
    told: dict[str, Told] = {}
    """Place of a verdict or alert (`StandingItem.place`) -> what the receiver was told of it."""
    waiting: list[Message] = []
    """Messages that were not delivered, in the order in which they were made."""
    window: list[Change] = []
    """Changes that wait for others, to go out with them; they are in `told` already."""
    opened_s: float = 0.0
    """Unix time of the first of them."""
    incident: str = ""
    """Id of the incident that begins with them; empty: nothing has begun."""
    number: int = 0
    """Number of the last message."""
    dropped: int = 0
    """Changes that were dropped since the last message."""
    failing_since_s: float = 0.0
    """Unix time since when the receiver takes nothing; 0: the last delivery went well, or there was none."""
    failure: str = ""
    """Why it takes nothing."""
    delivered_s: float = 0.0
    """Unix time of the last delivery; 0: none."""
    last: DeliveryOutcome | None = None
    """The last attempt; None: there was none."""
