"""Polls the metrics page of a [[feed]]: an endpoint of which the user says what it is and what its metrics mean."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final
from urllib.parse import urlsplit

from gpumon.config.schema import Feed
from gpumon.readings.frame import EndpointState, EngineKind
from gpumon.readings.text import clean
from gpumon.sources.endpoint import BACK_OFF, LIMITS, BackOff, EndpointSource
from gpumon.sources.engines.adapter import EnginePage
from gpumon.sources.engines.detect import Refusal, by_content
from gpumon.sources.exposition import Scan
from gpumon.sources.feeds.described import as_feed, endpoint_of
from gpumon.sources.feeds.generic import row_of
from gpumon.sources.fetch import Answer, Limits
from gpumon.sources.probe import Server, described

NO_PAGE: Final = "404: no such page: check the url of this [[feed]]"


class PageFeed(EndpointSource):
    """One feed with a url. `part` is its name where other feeds or endpoints read the same server."""

    def __init__(
        self,
        feed: Feed,
        part: str = "",
        clock: Callable[[], float] = time.monotonic,
        *,
        limits: Limits = LIMITS,
        back_off: BackOff = BACK_OFF,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Raises ValueError where the feed's URL is malformed."""
        self.feed = feed
        endpoint = endpoint_of(feed)
        super().__init__(endpoint, feed.interval_s, clock, limits=limits, back_off=back_off, wall=wall)
        self._row = row_of(feed, part, named_page=bool(urlsplit(endpoint.url).path.strip("/")))
        self._blank = as_feed(self._blank, feed, part)
        self.readings = (self._blank,)

    async def _probe(self) -> tuple[Server, Answer] | Refusal:
        return await described(self._fetcher, self.url, self.endpoint, self._row)

    def _fail(self, refusal: Refusal) -> None:
        off = refusal.state is EndpointState.METRICS_OFF
        super()._fail(Refusal(EndpointState.HTTP_ERROR, NO_PAGE) if off else refusal)

    def _unread(self, server: Server, answer: Answer) -> Refusal:  # noqa: ARG002
        refusal = by_content(answer.body, answer.content_type, EngineKind.UNKNOWN)
        if refusal.state is EndpointState.NOT_METRICS:
            return refusal
        return Refusal(
            EndpointState.WRONG_ENGINE, f"none of its metrics is on this page: {self._said(self.feed.quantities)}"
        )

    def _name(self, kind: EngineKind, part: str = "") -> str:  # noqa: ARG002
        return self.feed.name or f"{EngineKind.GENERIC.value}:{self.url.port}"

    def _notice(self, scan: Scan, pages: tuple[EnginePage, ...]) -> None:
        super()._notice(scan, pages)
        absent = [name for name in self.feed.quantities if not any(name in page.live for page in pages)]
        if absent:
            text = f"no series on the page for {self._said(absent)}"
            self._notices[text] = self._notices.get(text, self._wall())

    def _said(self, quantities: Iterable[str]) -> str:
        return clean(", ".join(f"{name} = {self.feed.quantities[name]}" for name in quantities), 200)
