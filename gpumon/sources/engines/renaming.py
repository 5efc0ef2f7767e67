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
    """Renames series from the names of a page to those of an adapter's tables, and back.

    `names`: page's name -> table's name, of those that differ in more than their prefix. One without a name in the
    tables is left out, as it means something else than its namesake.
    """

    def __init__(self, page_prefix: str, table_prefix: str, names: Mapping[str, str] = SAME_REST) -> None:
        self._page_prefix = page_prefix
        self._table_prefix = table_prefix
        self._names = names
        self._last: dict[Series, Series] = {}
        """The series of the last page -> the same under the tables' name."""

    def table_name(self, page_name: str) -> str:
        """The tables' name for a name of the page; its own, which no table has, where it is left out."""
        if page_name in self._names:
            return self._names[page_name] or page_name
        if page_name.startswith(self._page_prefix):
            return self._table_prefix + page_name[len(self._page_prefix) :]
        return page_name

    def page_names(self, table_names: Iterable[str]) -> frozenset[str]:
        """The page's names for names of the tables."""
        wanted_names = frozenset(table_names)
        names = {page_name for page_name, table_name in self._names.items() if table_name in wanted_names}
        for table_name in wanted_names:
            page_name = table_name
            if table_name.startswith(self._table_prefix):
                page_name = self._page_prefix + table_name[len(self._table_prefix) :]
            if page_name not in self._names:
                names.add(page_name)
        return frozenset(names)

    def rename_page(self, scan: Scan) -> Scan:
        """The page with the tables' names."""
        renamed = {}
        values = {}
        for series, value in scan.values.items():
            table_series = self._last.get(series) or Series(self.table_name(series.name), series.labels)
            renamed[series] = table_series
            values[table_series] = value
        self._last = renamed
        return scan._replace(values=values)

    def rename_sources(self, reading: EngineReading) -> EngineReading:
        """The reading with the page's names in its sources."""
        live = {quantity: self._page_source(source) for quantity, source in reading.live.items()}
        return msgspec.structs.replace(reading, live=live)

    def _page_source(self, source: str) -> str:
        """The source of a figure with the page's names."""
        for page_name, table_name in self._names.items():
            if table_name:
                source = source.replace(table_name, page_name)
        return source.replace(self._table_prefix, self._page_prefix)
