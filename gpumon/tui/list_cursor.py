"""The cursor of a list, which stays on its thing wherever that goes."""

from __future__ import annotations

from collections.abc import Sequence


class ListCursor:
    """A place among the rows of a list, and the thing there, which it follows from one list to the next."""

    def __init__(self) -> None:
        self.place = 0
        """Place among the rows that are listed."""
        self.key: str | None = None
        """Key of the thing that it follows; None: it was never moved, and keeps its place, whatever comes there."""
        self._keys: Sequence[str] = ()
        """Keys of the rows that are listed."""

    def follow(self, keys: Sequence[str]) -> None:
        """Go where its thing is among the rows that are listed now; a thing that is gone leaves it where it was."""
        self._keys = keys
        self._find_thing()

    def _find_thing(self) -> None:
        """Go where the thing is, or stay, on the last row at most."""
        if self.key in self._keys:
            self.place = self._keys.index(self.key)
        elif self._keys:
            self.place = min(self.place, len(self._keys) - 1)

    def go_to(self, key: str) -> None:
        """Follow another thing from now on."""
        self.key = key
        self._find_thing()

    def put_on(self, place: int) -> None:
        """Go to the row at a place, or the one nearest to it, and follow its thing from now on."""
        if self._keys:
            self.place = max(0, min(len(self._keys) - 1, place))
            self.key = self._keys[self.place]

    def take_row(self) -> None:
        """Follow the row that it is on, where its thing is gone."""
        if self.key is not None:
            self.key = self._keys[self.place]

    def begin(self, key: str | None = None) -> None:
        """Go to the first row, until the thing of `key` is listed; None: whatever thing that will be of."""
        self.place = 0
        self.key = key
