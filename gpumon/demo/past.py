"""The past of the simulated server: the same engines, pages and adapters as later, played in virtual time at the start.

Nothing is sent: the pages that a scrape over HTTP would bring are handed over. What is far back has fewer readings.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

from gpumon.demo.server import SILENCE
from gpumon.demo.source import SHORTEST_S, SimulatedEndpoint, SimulatedServer
from gpumon.readings.frame import EndpointState
from gpumon.sources.attachment import EngineResolver
from gpumon.sources.endpoint import ENDPOINT_LIMITS, EndpointSource
from gpumon.sources.fetch import Fetcher, FetchError, HttpAnswer
from gpumon.sources.source import Round

KNOWN_S: Final = 10.0
"""Longest wait for the names of the models."""


class PacedPart(NamedTuple):
    """Part of the past with one pace."""

    to_s: float
    """Simulated time at which it ends."""
    every_s: float
    """Seconds between two rounds."""


AFTER_S: Final = 1.0
"""Seconds between two rounds after simulated time zero, where the play is told to go on there."""
PACES: Final = (PacedPart(-300.0, 30.0), PacedPart(-60.0, 10.0), PacedPart(0.0, 6.0))
"""A chart shows five minutes at first, in columns of some seconds; the rates of now are means of 10 s."""


class RoundTime(NamedTuple):
    """Simulated time of a round, and the seconds since the one before."""

    at_s: float
    interval_s: float


def rounds(from_s: float, to_s: float = 0.0) -> Iterator[RoundTime]:
    """The rounds after `from_s`, up to simulated time zero, or `to_s` where that is later."""
    at_s = from_s
    for part in (*PACES, PacedPart(to_s, AFTER_S)):
        while at_s < part.to_s:
            next_s = min(part.to_s, at_s + part.every_s)
            yield RoundTime(next_s, next_s - at_s)
            at_s = next_s


class PageClient(Fetcher):
    """Client that gets the pages of one simulated port without a connection, on the clock of the past."""

    def __init__(self, source: EndpointSource, port: SimulatedEndpoint) -> None:
        super().__init__(source.url, tls_ca="", tls_verify=True, limits=ENDPOINT_LIMITS, clock=lambda: self.now_s)
        self._port = port
        self.now_s = 0.0
        """Monotonic time of the moment that is played."""

    async def get(self, url: str, key: str = "", most_bytes: int = 0) -> HttpAnswer:  # noqa: ARG002 - the signature of Fetcher
        """The page at `url`. Raises FetchError where nobody listens, or answers."""
        if not self._port.up:
            raise FetchError(EndpointState.REFUSED, f"nothing listens on {url}: down, or still loading")
        page = None if self._port.mute else self._port.answer(url.removeprefix(self._url.base))
        if page is None or page is SILENCE:
            raise FetchError(EndpointState.TIMEOUT, "no answer")
        return HttpAnswer(
            status=page.status,
            content_type=page.content_type,
            location="",
            body=page.body,
            sent_s=self.now_s,
            ended_s=self.now_s,
        )


def _catch_up_round(server: SimulatedServer) -> Iterator[RoundTime]:
    """A last round for the time that playing the past has taken, so that there is no gap before the first tick.

    A generator, so that this time is measured when the other rounds are done.
    """
    now_s = server.now_s()
    if now_s - server.at_s >= SHORTEST_S:
        yield RoundTime(now_s, now_s - server.at_s)


async def past_of(
    server: SimulatedServer, sources: Sequence[EndpointSource], facts: EngineResolver
) -> AsyncIterator[Round]:
    """Rounds of the past, up to now; then the server is open, and its sources poll it by HTTP.

    `sources` are those of its endpoints and feeds, in the order of its ports.
    """
    clients = [PageClient(source, port) for source, port in zip(sources, server.ports, strict=True)]
    originals = [(source.fetcher, source.interval_s) for source in sources]
    for source, client in zip(sources, clients, strict=True):
        source.fetcher = client
    server.in_past = True
    zero_s, zero_wall_s = server.date_zero()
    is_first = True
    for moment in chain(rounds(server.at_s, server.past_to_s), _catch_up_round(server)):
        monotonic_s = zero_s + moment.at_s
        server.advance(moment.at_s)
        for source, client in zip(sources, clients, strict=True):
            client.now_s = monotonic_s
            source.interval_s = moment.interval_s
            await source.scrape()
        if is_first:
            await _wait_for_models(sources, facts)
        is_first = False
        parts = [server.contribution(monotonic_s), *(source.newest() for source in sources)]
        yield Round(parts, zero_wall_s + moment.at_s, monotonic_s, moment.interval_s)
    for source, (fetcher, interval_s) in zip(sources, originals, strict=True):
        source.fetcher = fetcher
        source.interval_s = interval_s
    await server.open()


async def _wait_for_models(sources: Sequence[EndpointSource], facts: EngineResolver) -> None:
    """Wait until the models are known, so that the first figures are complete."""
    for source in sources:
        await source.ready(KNOWN_S)
    await facts.settle([source.reading for source in sources])
