"""Polls the metrics page of a [[feed]]: an endpoint of which the user says what it is and what its metrics mean."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Final
from urllib.parse import urlsplit

from gpumon.config.schema import Feed
from gpumon.config.selector import selector
from gpumon.readings.frame import EndpointState, EngineKind
from gpumon.readings.text import clean
from gpumon.sources.endpoint import BACK_OFF, LIMITS, BackOff, EndpointSource
from gpumon.sources.engines.detect import Refusal, by_content, sample_names
from gpumon.sources.exposition import Scan
from gpumon.sources.feeds.described import as_feed, endpoint_of
from gpumon.sources.feeds.generic import ENDS, row_of
from gpumon.sources.fetch import Answer, Limits
from gpumon.sources.probe import Server, described

NO_PAGE: Final = "404: no such page: check the url of this [[feed]]"
NEAR_BYTES: Final = 64 * 1024
"""Of a page, looked at for names that are like one that is not on it."""
MOST_NAMES: Final = 512
"""The same in names: each is compared with the one that is not there."""
ALIKE: Final = 0.75
"""Least likeness of a name (difflib) that may have been meant."""
MOST_NEAR: Final = 3
"""Quantities of which the nearest name is said."""


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
        self._body = b""

    def _fresh(self) -> None:
        super()._fresh()
        self._nearest: dict[str, str] = {}
        """By quantity without a series: what this process's page has instead, as it was found once."""

    async def _take(self, server: Server, answer: Answer) -> Refusal | None:
        self._body = answer.body
        return await super()._take(server, answer)

    async def _probe(self) -> tuple[Server, Answer] | Refusal:
        return await described(self._fetcher, self.url, self.endpoint, self._row)

    def _fail(self, refusal: Refusal) -> None:
        off = refusal.state is EndpointState.METRICS_OFF
        super()._fail(Refusal(EndpointState.HTTP_ERROR, NO_PAGE) if off else refusal)

    def _unread(self, server: Server, answer: Answer) -> Refusal:  # noqa: ARG002
        refusal = by_content(answer.body, answer.content_type, EngineKind.UNKNOWN)
        if refusal.state is EndpointState.NOT_METRICS:
            return refusal
        text = f"none of its metrics is on this page: {self._said(tuple(self.feed.quantities))}"
        return Refusal(EndpointState.NOT_METRICS, text)

    def _name(self, kind: EngineKind, part: str = "") -> str:  # noqa: ARG002
        return self.feed.name or f"{EngineKind.GENERIC.value}:{self.url.port}"

    def _notice(self, scan: Scan) -> None:
        super()._notice(scan)
        absent = [name for name in self.feed.quantities if not any(name in one.live for one in self.readings)]
        if absent:
            text = f"no series on the page for {self._said(absent)}"
            self._notices[text] = self._notices.get(text, self._wall())

    def _said(self, quantities: Sequence[str]) -> str:
        """Quantities with their series, and what the page has instead of the first ones."""
        said = clean(", ".join(f"{name} = {self.feed.quantities[name]}" for name in quantities), 200)
        if fresh := [name for name in quantities[:MOST_NEAR] if name not in self._nearest]:
            names = tuple(dict.fromkeys(sample_names(self._body[:NEAR_BYTES])))[:MOST_NAMES]
            self._nearest |= {name: _nearest(selector(self.feed.quantities[name]).name, names) for name in fresh}
        near = dict.fromkeys(self._nearest[name] for name in quantities[:MOST_NEAR])
        return "; ".join((said, *filter(None, near)))


def _nearest(name: str, names: Iterable[str]) -> str:
    """What of a page's names is most like this one, in words; empty where none is."""
    known = {each.removesuffix(end): None for each in names for end in ("", *ENDS) if each.endswith(end)}
    if name in known:
        return f"{clean(name, 80)} is there, with other labels"
    found = get_close_matches(name, known, n=1, cutoff=ALIKE)
    return f"did you mean {clean(found[0], 80)}?" if found else ""
