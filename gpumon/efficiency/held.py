"""What is true now and then must not flicker: it is said once it has held for a while, until it has not for as long."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

Claim = TypeVar("Claim", bound=Hashable)


class Held(Generic[Claim]):
    """The claims that are said, by what was true at each moment. Times are of one monotonic clock."""

    def __init__(self) -> None:
        self._said: dict[Claim, bool] = {}
        self._since_s: dict[Claim, float] = {}
        """Since when a claim is not what is said of it."""

    def at(self, now_s: float, claims: Mapping[Claim, bool], hold_s: float) -> set[Claim]:
        """Those that are said now; `claims` says which are true. One that is not in it is forgotten."""
        self._said = {claim: self._said.get(claim, False) for claim in claims}
        self._since_s = {
            claim: self._since_s.get(claim, now_s) for claim, true in claims.items() if true != self._said[claim]
        }
        for claim, since_s in [*self._since_s.items()]:
            if now_s - since_s >= hold_s:
                self._said[claim] = claims[claim]
                del self._since_s[claim]
        return {claim for claim, said in self._said.items() if said}
