"""Series under the names of another engine: forks and older versions put a prefix of their own before them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from gpumon.readings.frame import EngineReading
from gpumon.sources.exposition import Scan, Series

SAME_REST: Final[Mapping[str, str]] = MappingProxyType({})
"""All names differ in their prefix only."""


class Renaming:
    """From the names that a page has to those that an adapter reads.

    `names` holds those that differ in more than their prefix; one without a name to be read under is left out, as it
    means something else than its namesake.
    """

    def __init__(self, own: str, read: str, names: Mapping[str, str] = SAME_REST) -> None:
        self._own = own
        self._read = read
        self._names = names
        self._last: dict[Series, Series] = {}
        """The series of the last page -> the same under the other name."""

    def name(self, own: str) -> str:
        """The name that a series is read under; its own, which no adapter reads, where it is left out."""
        if own in self._names:
            return self._names[own] or own
        if own.startswith(self._own):
            return self._read + own[len(self._own) :]
        return own

    def own(self, names: Iterable[str]) -> frozenset[str]:
        """The names of a page that are read under one of these."""
        wanted = frozenset(names)
        own_names = {own for own, read in self._names.items() if read in wanted}
        for name in wanted:
            own = name
            if name.startswith(self._read):
                own = self._own + name[len(self._read) :]
            if own not in self._names:
                own_names.add(own)
        return frozenset(own_names)

    def page(self, scan: Scan) -> Scan:
        """The page under the other names."""
        renamed = {}
        values = {}
        for series, value in scan.values.items():
            other = self._last.get(series) or Series(self.name(series.name), series.labels)
            renamed[series] = other
            values[other] = value
        self._last = renamed
        return scan._replace(values=values)

    def sources(self, reading: EngineReading) -> EngineReading:
        """The reading with the names that the page has in its sources."""
        live = {quantity: self._source(source) for quantity, source in reading.live.items()}
        return msgspec.structs.replace(reading, live=live)

    def _source(self, text: str) -> str:
        for own, read in self._names.items():
            if read:
                text = text.replace(read, own)
        return text.replace(self._read, self._own)
