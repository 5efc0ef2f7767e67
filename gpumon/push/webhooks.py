"""The webhooks of a run: snapshots in from the tick, messages out from a thread of their own.

The tick only compares what stands with what was told. Files, name servers and receivers are waited for in the thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from gpumon.config.options import Options
from gpumon.config.schema import Config, Webhook
from gpumon.deadline import timeout
from gpumon.push.delivery import Attempt, DeliveryResult, Receiver, repeat_interval_s
from gpumon.push.ledger import Ledger, WebhookRule
from gpumon.push.records import KeptState, Message
from gpumon.push.store import DemoStore, Side, WebhookStore, sender_file, webhook_file
from gpumon.readings.exported import PREFIX, ExportedSample
from gpumon.readings.format import clock_utc, counted
from gpumon.readings.frame import Fault
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.text import MOST_FAULT, clean
from gpumon.sources.offload import in_daemon_thread
from gpumon.triage.silence import parse_silence

STANDBY_S: Final = 5.0
"""Seconds between two looks whether the gpumon that sends has ended."""
FLUSH_S: Final = 2.0
"""Longest wait at the end for what was not sent yet; what is left stays on disk for the next run."""
LAST_REQUEST_S: Final = 1.5
"""Seconds of `FLUSH_S` that a request under way may take; the rest is for the file."""
_MOST_DOUBLINGS: Final = 20
"""Doublings of the time to a retry; far fewer reach `MOST_RETRY_S`."""
MOST_RETRY_S: Final = 300.0
"""Longest time between two retries, unless the receiver asks for more."""
REFUSED_S: Final = 300.0
"""Seconds for which a refused message stands among the faults."""
_LONGEST_NAME: Final = 60
"""Characters of the name of a webhook that are shown."""
RESULTS: Final = ("delivered", "failed", "refused", "dropped")
"""Labels of the counters: messages that arrived, attempts that failed, messages refused, changes dropped."""


def webhook_names(webhooks: Sequence[Webhook]) -> list[str]:
    """The shown name of each webhook: the given one, else its kind; a name that is taken already gets a number."""
    names: list[str] = []
    for webhook in webhooks:
        given_name = clean(webhook.name or webhook.kind, _LONGEST_NAME)
        name = given_name
        number = 1
        while name in names:
            number += 1
            name = f"{given_name} {number}"
        names.append(name)
    return names


def rule_of(webhook: Webhook) -> WebhookRule:
    """The settings of a webhook as its ledger takes them."""
    return WebhookRule(
        level=webhook.level,
        silences=tuple(map(parse_silence, webhook.silence)),
        group_s=webhook.group_s,
        repeat_s=repeat_interval_s(webhook),
        by_incident=webhook.kind == "pagerduty",
        renews=webhook.kind == "alertmanager",
    )


def webhooks_of(config: Config, options: Options, announce: Callable[[str], None] | None = None) -> Webhooks | None:
    """The webhooks of this run; None where there are none. `announce` gets a line when one fails or works again."""
    channels = []
    for webhook, name in zip(config.webhook, webhook_names(config.webhook), strict=True):
        if options.demo and not webhook.simulated:
            continue
        path = webhook_file(os.environ, name, webhook)
        if options.demo:
            store: WebhookStore = DemoStore(sender_file(path, Side.DEMO))
        else:
            store = WebhookStore(path)
        channels.append(Channel(webhook, name, store))
    if not channels or options.for_fleet:
        return None
    return Webhooks(channels, announce)


class Channel:
    """One webhook: a ledger, shared by the tick and the thread, and a receiver, which is the thread's alone.

    The tick's methods come first and return at once; those of the thread follow, from `run` on.
    """

    def __init__(self, webhook: Webhook, name: str, store: WebhookStore) -> None:
        self.name = name
        self.counts: Counter[str] = Counter()
        """One of `RESULTS` -> how many there were in this run."""
        self.refused: Fault | None = None
        """The last message that the receiver refused for good."""
        self._webhook = webhook
        self._store = store
        self._store_fault = ""
        """End of the fault's text while the file cannot be written."""
        self._written = b""
        """Content of the file as it was written last."""
        self._receiver = Receiver(webhook, name)
        self._lock = threading.Lock()
        """Held for each look at the ledger and each change of it, by the tick and the thread."""
        self._writing = threading.Lock()
        """Held by the thread that writes the file: at the end the last writing may come upon one under way."""
        self._ledger: Ledger | None = None
        """None until the file was read, and while another gpumon sends."""
        self._bug: Fault | None = None
        """An error of gpumon's own that ended the sending."""
        self._closing = False
        self._events: _Events | None = None
        """None until the thread runs."""

    # The tick's side: in the event loop of gpumon.

    def see(self, snapshot: Snapshot) -> None:
        """Take in a snapshot; returns at once."""
        ledger = self._ledger
        if ledger is None:
            return
        local = time.localtime(snapshot.wall_s)
        with self._lock:
            changed = ledger.see(snapshot, local.tm_hour * 60 + local.tm_min)
        if changed and self._events is not None:
            self._events.tell_news()

    def flush(self, now_s: float) -> None:
        """Close the group window and have the rest sent: gpumon ends."""
        ledger = self._ledger
        if ledger is not None:
            with self._lock:
                ledger.flush(now_s)
        self._closing = True
        if self._events is not None:
            self._events.tell_end()

    def failure(self) -> Fault | None:
        """Why nothing is delivered, with what waits; None where nothing fails."""
        if self._bug is not None:
            return self._bug
        ledger = self._ledger
        if ledger is None:
            return None
        with self._lock:
            text = failure_text(ledger.kept)
            since_s = ledger.kept.failing_since_s
        if not text:
            return None
        return Fault(f"webhook {self.name}", clean(text + self._store_fault, MOST_FAULT), since_s)

    def fault(self, wall_s: float) -> Fault | None:
        """Why nothing is delivered, else a message that was refused just now."""
        failure = self.failure()
        if failure is not None:
            return failure
        refused = self.refused
        if refused is not None and 0.0 <= wall_s - refused.since_wall_s < REFUSED_S:
            return refused
        return None

    def samples(self) -> Iterator[ExportedSample]:
        """The counters for a Prometheus; while another gpumon sends, this one does not know how that goes."""
        labels = {"webhook": self.name}
        for result in RESULTS:
            yield ExportedSample(
                f"{PREFIX}webhook_messages_total", {**labels, "result": result}, float(self.counts[result])
            )
        is_up = self.failure() is None
        ledger = self._ledger
        if ledger is None:
            if not is_up:
                yield ExportedSample(f"{PREFIX}webhook_up", labels, 0.0)
            return
        with self._lock:
            waiting = ledger.waiting_changes
        yield ExportedSample(f"{PREFIX}webhook_waiting_changes", labels, float(waiting))
        yield ExportedSample(f"{PREFIX}webhook_up", labels, float(is_up))

    # The thread's side: in an event loop of its own.

    async def run(self) -> None:
        """Send until gpumon ends. A bug here ends this webhook alone, and becomes its fault."""
        events = _Events(asyncio.get_running_loop())
        self._events = events
        try:
            if not self._closing and await self._wait_for_turn(events):
                await self._work(events)
        except Exception as error:  # whatever it is, the other webhooks go on
            # The text of the error stays out: it may repeat a URL that is a secret.
            text = f"gpumon failed on this webhook, please report: {type(error).__name__}"
            self._bug = Fault(f"webhook {self.name}", clean(text, MOST_FAULT), time.time())

    async def _work(self, events: _Events) -> None:
        """Send and keep, until the end and `LAST_REQUEST_S` after it."""
        keeping = asyncio.create_task(self._keep_written(events))
        sending = asyncio.create_task(self._send_all(events))
        ending = asyncio.create_task(events.ended())
        try:
            await asyncio.wait({sending, ending}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({sending}, timeout=LAST_REQUEST_S)
            if sending.done():
                sending.result()
        finally:
            tasks = (keeping, sending, ending)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await self._receiver.close()
            await in_daemon_thread(self._write_if_changed)
            self._store.release()

    async def _wait_for_turn(self, events: _Events) -> bool:
        """Wait until no other gpumon sends, then read what it kept; returns False if gpumon ends before that."""
        while not self._closing:
            try:
                is_taken = await in_daemon_thread(self._store.take)
            except OSError as error:  # it sends all the same, and remembers nothing beyond this run
                self._store_fault = _not_kept_text(error, self._store)
                self._store = WebhookStore(None)
                is_taken = True
            if is_taken:
                self._ledger = Ledger(rule_of(self._webhook), await in_daemon_thread(self._store.read))
                return True
            await events.ended_within(STANDBY_S)
        return False

    async def _send_all(self, events: _Events) -> None:
        """Send the messages in their order, each until it is delivered or refused."""
        failures = 0
        while True:
            message = self._oldest_message()
            if message is None:
                if self._closing:
                    return
                await events.news()
                continue
            attempt = await self._receiver.send(message)
            self._note_attempt(message, attempt)
            events.tell_to_write()
            if attempt.result is not DeliveryResult.AGAIN:
                failures = 0
                continue
            failures += 1
            if self._closing:
                return
            await events.ended_within(self._retry_wait_s(failures, attempt.wait_s))

    def _retry_wait_s(self, failures: int, asked_s: float) -> float:
        """Seconds to the next attempt: twice as long each time, and as long as the receiver asks for."""
        doubled_s = self._webhook.retry_s * 2.0 ** min(failures - 1, _MOST_DOUBLINGS)
        return max(min(doubled_s, MOST_RETRY_S), asked_s)

    def _oldest_message(self) -> Message | None:
        """The oldest message that waits; None where none does."""
        assert self._ledger is not None
        with self._lock:
            waiting = self._ledger.kept.waiting
            if waiting:
                return waiting[0]
        return None

    def _note_attempt(self, message: Message, attempt: Attempt) -> None:
        """Take in what came of an attempt."""
        assert self._ledger is not None
        now_s = time.time()
        with self._lock:
            kept = self._ledger.kept
            kept.last = attempt.outcome(now_s)
            if attempt.result is DeliveryResult.AGAIN:
                self.counts["failed"] += 1
                kept.failing_since_s = kept.failing_since_s or now_s
                kept.failure = attempt.text
                return
            self._ledger.take_off_queue(message)
            kept.failing_since_s = 0.0
            kept.failure = ""
            self.counts[attempt.result.value] += 1
            self.counts["dropped"] += message.dropped
            if attempt.result is DeliveryResult.REFUSED:
                given_up = counted(len(message.changes), "change")
                text = f"{attempt.text}; {given_up} given up"
                self.refused = Fault(f"webhook {self.name}", clean(text, MOST_FAULT), now_s)
            else:
                kept.delivered_s = now_s

    async def _keep_written(self, events: _Events) -> None:
        """Write the file whenever something changed, also while a request is under way."""
        while True:
            await events.to_write()
            await in_daemon_thread(self._write_if_changed)

    def _write_if_changed(self) -> None:
        """Write the file, if there is one and something changed."""
        with self._writing:
            self._write_file()

    def _write_file(self) -> None:
        """Write the ledger's state where it differs from the file; a failure is told with the webhook's faults."""
        ledger = self._ledger
        if ledger is None or self._store.path is None:
            return
        with self._lock:
            data = msgspec.json.encode(ledger.kept)
        if data == self._written:
            return
        try:
            self._store.write(data)
        except OSError as error:
            self._store_fault = _not_kept_text(error, self._store)
            return
        self._store_fault = ""
        self._written = data


class _Events:
    """The events that the thread of the webhooks waits for; news and the end are told from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._news = asyncio.Event()
        self._ended = asyncio.Event()
        self._to_write = asyncio.Event()

    def tell_news(self) -> None:
        """Tell that a message was made."""
        self._set(self._news, self._to_write)

    def tell_end(self) -> None:
        """Tell that gpumon ends."""
        self._set(self._news, self._to_write, self._ended)

    def tell_to_write(self) -> None:
        """Tell that the file is older than the ledger; only in the event loop of the thread."""
        self._to_write.set()

    async def news(self) -> None:
        """Wait for a message, or the end."""
        await self._news.wait()
        self._news.clear()

    async def to_write(self) -> None:
        """Wait until the file is older than the ledger."""
        await self._to_write.wait()
        self._to_write.clear()

    async def ended(self) -> None:
        """Wait for the end."""
        await self._ended.wait()

    async def ended_within(self, seconds: float) -> None:
        """Wait `seconds`, or until the end."""
        with contextlib.suppress(asyncio.TimeoutError):
            async with timeout(seconds):
                await self._ended.wait()

    def _set(self, *events: asyncio.Event) -> None:
        """Set events in the loop of the thread, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            for event in events:
                self._loop.call_soon_threadsafe(event.set)


def failure_text(kept: KeptState) -> str:
    """Why a webhook delivers nothing, with what waits; empty where nothing fails."""
    if not kept.failing_since_s:
        return ""
    if not kept.waiting:
        return kept.failure
    waiting = counted(sum(len(message.changes) for message in kept.waiting), "change")
    return f"{kept.failure}; {waiting} waiting, the oldest of {clock_utc(kept.waiting[0].wall_s)}"


def _not_kept_text(error: OSError, store: WebhookStore) -> str:
    """The end of a fault's text where the file of a webhook cannot be written."""
    return f"; nothing is kept on disk ({error.strerror}): check {store.path}"


class Webhooks:
    """All webhooks of a run."""

    def __init__(self, channels: Sequence[Channel], announce: Callable[[str], None] | None = None) -> None:
        self.channels = tuple(channels)
        self._announce = announce
        self._failing: set[str] = set()
        """Names of the webhooks that were announced to fail."""
        self._refused: dict[str, Fault] = {}
        """Name of a webhook -> its last refused message that was announced."""
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()

    def see(self, snapshot: Snapshot) -> None:
        """Take in a snapshot of now; returns at once. The first one starts the thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="webhooks", daemon=True)
            self._thread.start()
        for channel in self.channels:
            channel.see(snapshot)
        if self._announce is not None:
            self._announce_changes()

    @property
    def troubles(self) -> list[Callable[[float], Fault | None]]:
        """Return a callable for each webhook that is asked at each tick (Unix time) why nothing arrives there."""
        return [channel.fault for channel in self.channels]

    def samples(self) -> Iterator[ExportedSample]:
        """Counters of all webhooks."""
        for channel in self.channels:
            yield from channel.samples()

    async def close(self) -> None:
        """Send what waits, within `FLUSH_S`; what does not go stays on disk."""
        if self._thread is None:
            return
        now_s = time.time()
        for channel in self.channels:
            channel.flush(now_s)
        with contextlib.suppress(asyncio.TimeoutError):
            async with timeout(FLUSH_S):
                await in_daemon_thread(self._ended.wait)
        if self._announce is not None:
            self._announce_changes()

    def _work(self) -> None:
        """Send for all webhooks until gpumon ends, in a thread and an event loop of its own."""
        try:
            asyncio.run(self._run_all())
        finally:
            self._ended.set()

    async def _run_all(self) -> None:
        """Run all channels side by side."""
        await asyncio.gather(*(channel.run() for channel in self.channels))

    def _announce_changes(self) -> None:
        """Announce in one line that a webhook begins to fail, works again, or had a message refused."""
        assert self._announce is not None
        for channel in self.channels:
            failure = channel.failure()
            was_failing = channel.name in self._failing
            if failure is not None and not was_failing:
                self._announce(f"{failure.source}: {failure.text}")
                self._failing.add(channel.name)
            elif failure is None and was_failing:
                self._announce(f"webhook {channel.name}: delivers again")
                self._failing.discard(channel.name)
            refused = channel.refused
            if refused is not None and self._refused.get(channel.name) is not refused:
                self._announce(f"{refused.source}: {refused.text}")
                self._refused[channel.name] = refused
