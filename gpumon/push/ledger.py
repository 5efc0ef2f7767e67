"""The messages that a receiver was sent, and those that are due next: group window, repeat, silence and the queue.

It knows no clock: the time is that of the snapshots. What stands is compared with what was told, so that a new gpumon
goes on where the one before it ended.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from gpumon.push.records import SENT_LEVELS, Change, ChangeState, KeptState, Message, Told
from gpumon.push.standing import ID_DIGITS, StandingItem, change_that_began, item_of, place_of, standing_items
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.verdict import Level
from gpumon.triage.marks import ABSENT_S, keys_of
from gpumon.triage.roots import Root
from gpumon.triage.silence import Silence

MOST_WAITING: Final = 1000
"""Changes that wait for one receiver: about 4 MB on disk. Above it the oldest are dropped, counted and told."""
_MOST_TOLD: Final = 2000
"""Verdicts of one host that are remembered as told."""
_GAP_INTERVALS: Final = 3.0
"""Intervals between two snapshots above which the rest was not watched: the clock was set, or the host slept."""
UNLISTED_S: Final = 600.0
"""An engine or GPU that is not listed any more ends its verdicts after so long: it may come back."""


class WebhookRule(NamedTuple):
    """Settings of a webhook."""

    level: str
    silences: tuple[Silence, ...]
    group_s: float
    repeat_s: float
    """0: nothing is sent again."""
    by_incident: bool
    """Whether each incident has messages of its own (PagerDuty)."""
    renews: bool = False
    """Whether the receiver takes for over what it does not hear of (an Alertmanager): what is acknowledged is sent
    again, too."""


class Ledger:
    """The state of one webhook."""

    def __init__(self, rule: WebhookRule, kept: KeptState) -> None:
        self.kept = kept
        self._rule = rule
        self._last_s: float | None = None
        """Unix time of the snapshot before."""
        self._watched_s = 0.0
        """Seconds that this run has watched."""
        self._inherited = set(kept.told)
        """Places of verdicts (`StandingItem.place`) that an earlier run told and this run did not see yet."""

    def see(self, snapshot: Snapshot, minute: int) -> bool:
        """Take in a snapshot; `minute` is the minute of the day for silences. Returns whether a message was made."""
        now_s = snapshot.wall_s
        if self._last_s is not None:
            elapsed_s = max(0.0, now_s - self._last_s)
            self._watched_s += min(elapsed_s, _GAP_INTERVALS * snapshot.interval_s)
        self._last_s = now_s
        covered = {place: key for key, told_item in self.kept.told.items() for place in (key, *told_item.also)}
        places: set[str] = set()
        for item in standing_items(snapshot):
            places |= self._see_standing(item, covered, snapshot, minute)
        if places != self.kept.told.keys():
            self._end_others(places, snapshot)
        return self._release(now_s, snapshot.interval_s)

    def flush(self, now_s: float) -> None:
        """Close the group window and make its message: gpumon ends."""
        self._release(now_s, self._rule.group_s)  # as if the next snapshot came after the window

    def take_off_queue(self, message: Message) -> None:
        """Take a message off the queue: it has arrived, or was refused for good."""
        self.kept.waiting = [waiting for waiting in self.kept.waiting if waiting.number != message.number]

    @property
    def waiting_changes(self) -> int:
        """Number of changes that wait for the receiver."""
        return sum(len(message.changes) for message in self.kept.waiting)

    def _is_wanted(self, level: str) -> bool:
        """Whether the webhook is told of verdicts of a level."""
        return SENT_LEVELS.index(level) <= SENT_LEVELS.index(self._rule.level)

    def _is_silenced(self, item: StandingItem, minute: int) -> bool:
        """Whether a silence of the webhook holds for all that an item is about, at a minute of the day."""
        return all(self._covers(item.code, scope, minute) for scope in item.scopes)

    def _covers(self, code: str, scope: str, minute: int) -> bool:
        """Whether a silence of the webhook holds for a thing at a minute of the day."""
        return any(silence.covers(code, scope, minute) for silence in self._rule.silences)

    def _see_standing(
        self, item: StandingItem, covered: Mapping[str, str], snapshot: Snapshot, minute: int
    ) -> set[str]:
        """Note what stands: what was told of it, and what is new in it. Returns the places in `told` that stand.

        `covered`: place of a verdict -> the place in `told` under which it was told. A consequence that was told before
        its cause was known is not over; of a cause that is silenced the consequences are told by themselves.
        """
        if not self._is_wanted(item.level):
            return set()
        standing = {covered[place] for place in item.places if place in covered}
        for place in standing:
            self._see_told(place, item, snapshot, minute)
        fresh = self._untold_part(item, covered, minute)
        if fresh is not None:
            self._begin(fresh, snapshot)
            standing.add(fresh.place)
        if not isinstance(item.thing, Root):
            return standing
        for verdict in item.thing.consequences:
            consequence = item_of(Root((verdict,)))
            if not standing:
                standing |= self._see_standing(consequence, covered, snapshot, minute)
            elif consequence.place in covered:
                place = covered[consequence.place]
                self.kept.told[place].seen_s = snapshot.wall_s
                self._inherited.discard(place)
                standing.add(place)
        return standing

    def _untold_part(self, item: StandingItem, covered: Mapping[str, str], minute: int) -> StandingItem | None:
        """The part of an item that is news: not told, silenced or acknowledged; None where nothing is left."""
        if item.is_acknowledged:
            return None
        if not isinstance(item.thing, Root):
            is_news = item.place not in covered and not self._is_silenced(item, minute)
            return item if is_news else None
        verdicts = [
            verdict
            for verdict in item.thing.verdicts
            if place_of(verdict) not in covered and not self._covers(item.code, verdict.scope, minute)
        ]
        if not verdicts:
            return None
        consequences = () if len(verdicts) < len(item.thing.verdicts) else item.thing.consequences
        return item_of(Root(tuple(verdicts), consequences))

    def _see_told(self, place: str, item: StandingItem, snapshot: Snapshot, minute: int) -> None:
        """Note an item that was told: a change where it has another level, or is due again."""
        told_item = self.kept.told[place]
        now_s = snapshot.wall_s
        told_item.seen_s = now_s
        self._inherited.discard(place)
        if item.is_acknowledged:
            self._acknowledge(told_item, item, snapshot)
            return
        counts_again = told_item.change.state is ChangeState.ACKNOWLEDGED
        if told_item.change.level == item.level and not counts_again and not self._is_due(told_item, now_s):
            return
        if self._is_silenced(item, minute):
            return
        change = change_that_began(item, snapshot, told_item.change.incident)
        change = msgspec.structs.replace(change, id=told_item.change.id)
        if told_item.change.level != item.level:
            change = msgspec.structs.replace(change, state=ChangeState.LEVEL, level_before=told_item.change.level)
        else:
            change = msgspec.structs.replace(change, state=ChangeState.STANDS)
        told_item.change = change
        told_item.told_s = now_s
        self._add_change(change, now_s)

    def _acknowledge(self, told_item: Told, item: StandingItem, snapshot: Snapshot) -> None:
        """Add once that somebody has acknowledged what was told; after that nothing of it is news."""
        is_told = told_item.change.state is ChangeState.ACKNOWLEDGED
        if is_told and not (self._rule.renews and self._is_due(told_item, snapshot.wall_s)):
            return
        told_before = told_item.change
        change = change_that_began(item, snapshot, told_before.incident)
        told_item.change = msgspec.structs.replace(
            change, state=ChangeState.ACKNOWLEDGED, id=told_before.id, level=told_before.level
        )
        told_item.told_s = snapshot.wall_s
        self._add_change(told_item.change, snapshot.wall_s)

    def _begin(self, item: StandingItem, snapshot: Snapshot) -> None:
        """Add the change of what has begun, and remember it as told; nothing once `_MOST_TOLD` are."""
        if len(self.kept.told) >= _MOST_TOLD:
            return
        now_s = snapshot.wall_s
        if not self.kept.incident:
            begin = f"{snapshot.host.name}\n{item.place}\n{now_s}"
            self.kept.incident = hashlib.sha256(begin.encode()).hexdigest()[:ID_DIGITS]
        change = change_that_began(item, snapshot, self.kept.incident)
        self.kept.told[item.place] = Told(change, now_s, now_s, item.key, list(item.places[1:]))
        self._add_change(change, now_s)

    def _is_due(self, told_item: Told, now_s: float) -> bool:
        """Whether it has to be sent again; not while messages wait, which the receiver gets first."""
        repeat_s = self._rule.repeat_s
        if not repeat_s or self.kept.waiting:
            return False
        return not 0.0 <= now_s - told_item.told_s < repeat_s

    def _end_others(self, places: Iterable[str], snapshot: Snapshot) -> None:
        """End everything that was told and whose place is not among `places`: it does not stand any more."""
        now_s = snapshot.wall_s
        keys = keys_of(snapshot)
        for place in self.kept.told.keys() - places:
            told_item = self.kept.told[place]
            if not self._is_over(place, told_item, keys, now_s):
                continue
            del self.kept.told[place]
            self._inherited.discard(place)
            ended = msgspec.structs.replace(told_item.change, state=ChangeState.ENDED, wall_s=now_s, level_before="")
            self._add_change(ended, now_s)

    def _is_over(self, place: str, told_item: Told, keys: Iterable[str], now_s: float) -> bool:
        """Whether a verdict that does not stand now has ended: an earlier run's may come back, as a thing may."""
        if place in self._inherited and self._watched_s < ABSENT_S[Level(told_item.change.level)]:
            return False
        return told_item.key in keys or not 0.0 <= now_s - told_item.seen_s < UNLISTED_S

    def _add_change(self, change: Change, now_s: float) -> None:
        """Put a change into the group window, which it opens if it is the first."""
        if not self.kept.window:
            self.kept.opened_s = now_s
        self.kept.window.append(change)

    def _release(self, now_s: float, interval_s: float) -> bool:
        """Make a message of the changes, once their window would be over before the next snapshot."""
        if not self.kept.window:
            return False
        age_s = now_s - self.kept.opened_s
        if 0.0 <= age_s < self._rule.group_s - interval_s:
            return False
        changes = self.kept.window
        self.kept.window = []
        self.kept.incident = ""
        if self._rule.by_incident:
            self._queue_by_incident(changes, now_s)
        else:
            self._queue(changes, now_s)
        self._drop_oldest()
        return True

    def _queue(self, changes: list[Change], now_s: float, incident: str = "", *, resolves: bool = False) -> None:
        """Make a message of changes, to wait for the receiver. `incident`, `resolves`: as in `Message`."""
        self.kept.number += 1
        message = Message(
            number=self.kept.number,
            wall_s=now_s,
            changes=changes,
            incident=incident,
            resolves=resolves,
            dropped=self.kept.dropped,
        )
        self.kept.dropped = 0
        self.kept.waiting.append(message)

    def _queue_by_incident(self, changes: Sequence[Change], now_s: float) -> None:
        """A message for each incident with news, and one where nothing of it stands any more."""
        news: dict[str, list[Change]] = {}
        ended: dict[str, list[Change]] = {}
        for change in changes:
            if change.state is ChangeState.ENDED:
                ended.setdefault(change.incident, []).append(change)
            else:
                news.setdefault(change.incident, []).append(change)
        for incident, incident_changes in news.items():
            if not self._is_known_in_part(incident, incident_changes):
                self._queue(incident_changes, now_s, incident)
        open_incidents = {told_item.change.incident for told_item in self.kept.told.values()}
        for incident, incident_changes in ended.items():
            if incident not in open_incidents:
                self._queue(incident_changes, now_s, incident, resolves=True)

    def _is_known_in_part(self, incident: str, changes: Sequence[Change]) -> bool:
        """Whether all that is new is that somebody knows of a part of an incident, which does not take on the rest."""
        if any(change.state is not ChangeState.ACKNOWLEDGED for change in changes):
            return False
        told = [item.change for item in self.kept.told.values() if item.change.incident == incident]
        return any(change.state is not ChangeState.ACKNOWLEDGED for change in told)

    def _drop_oldest(self) -> None:
        """Keep to the limit of the queue: the newest message always stays, and says how many changes are missing."""
        waiting = self.kept.waiting
        size = self.waiting_changes
        while size > MOST_WAITING and len(waiting) > 1:
            oldest = waiting.pop(0)
            size -= len(oldest.changes)
            waiting[0].dropped += oldest.dropped + len(oldest.changes)
