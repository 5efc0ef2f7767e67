"""Which rows of a list pass, and their order: the filter of its pane, that of all panes, and what it is sorted by."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Generic, TypeVar

from gpumon.tui.everywhere import engines_that_match
from gpumon.tui.rows import Listing, ListScene, Order, matches, order_rows
from gpumon.tui.view import View

T = TypeVar("T")
"""Rows of a list."""


class ListFilter(Generic[T]):
    """The filter and the order of a list, as the user chose them."""

    def __init__(self, listing: Listing[T], view: View) -> None:
        self._listing = listing
        self._view = view
        self.text = ""
        """The filter of this list alone; empty shows all."""
        self.order: Order[T] | None = None
        """The order that the user chose; None: rows stand as they came."""
        self.turned = False
        """Whether the order is turned round."""

    @property
    def everywhere(self) -> str:
        """The filter of all panes, where it is for this one, too; else empty."""
        return self._view.everywhere if self._listing.engines is not None else ""

    @property
    def narrows(self) -> bool:
        """Whether a filter of this list or of all panes may hide rows."""
        return self.text != "" or self.everywhere != ""

    @property
    def state(self) -> tuple[object, ...]:
        """All that it was set to: while these are the same objects, the same rows pass in the same order."""
        return (self.text, self.everywhere, self.order, self.turned)

    def set_text(self, text: str) -> None:
        """Filter by the words of a text."""
        self.text = text.strip()

    def sort(self, order: Order[T] | None) -> None:
        """Sort by an order (None: as the rows came); the same order again turns it round."""
        self.turned = order is not None and order is self.order and not self.turned
        self.order = order

    def choose(self, items: Sequence[T], scene: ListScene) -> list[T]:
        """The rows that pass, in order."""
        if self.everywhere:
            items = self._passing_everywhere(items, scene)
        if self.text:
            items = self.passing(items, scene)
        return self.in_order(items)

    def _passing_everywhere(self, items: Sequence[T], scene: ListScene) -> list[T]:
        """The rows that the filter of all panes lets through: by their own words, or with their engine."""
        engines_of = self._listing.engines
        if engines_of is None or scene.snapshot is None:
            return list(items)
        text = self._view.everywhere
        engine_names = engines_that_match(scene.snapshot, text, self._view.memory_unit)
        return [
            item
            for item in items
            if not engine_names.isdisjoint(engines_of(item, scene)) or self._matches(item, text, scene)
        ]

    def passing(self, items: Sequence[T], scene: ListScene) -> list[T]:
        """The rows that the filter of this list lets through."""
        return [item for item in items if self._matches(item, self.text, scene)]

    def _matches(self, item: T, text: str, scene: ListScene) -> bool:
        """Whether a row passes a filter."""
        listing = self._listing
        figure_named = partial(listing.figure_named, item)
        return matches(
            listing.words(item, scene), text, listing.gpus(item, scene), figure_named, self._view.memory_unit
        )

    def in_order(self, items: Sequence[T]) -> list[T]:
        """The rows in the order that was chosen."""
        return order_rows(items, self.order, turned=self.turned)
