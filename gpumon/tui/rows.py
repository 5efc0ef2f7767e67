"""Which rows of a table are shown, and in which order: filter and sort, without a screen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from gpumon.readings.missing import Missing, Reading

T = TypeVar("T")


@dataclass(frozen=True)
class Order(Generic[T]):
    """A way to sort: its name, and what rows are compared by. What is missing comes last either way."""

    name: str
    value: Callable[[T], Reading | str]
    descending: bool = True
    """At first; choosing it again turns it round."""
    means: str = ""
    """What the name does not say."""


def matches(words: str, wanted: str) -> bool:
    """Whether a row whose text is `words` passes: every word of `wanted` is in it, and no `-word` is."""
    words = words.casefold()
    for term in wanted.casefold().split():
        if term.startswith("-") and len(term) > 1:
            if term[1:] in words:
                return False
        elif term not in words:
            return False
    return True


def ordered(items: Sequence[T], order: Order[T] | None, *, turned: bool) -> list[T]:
    """The rows by `order` (None: as they came), turned round where that is wanted; equal ones keep their order."""
    if order is None:
        return list(items)
    known = [(value, item) for item in items if not isinstance(value := order.value(item), Missing)]
    known.sort(key=lambda pair: pair[0], reverse=order.descending is not turned)
    return [item for _, item in known] + [item for item in items if isinstance(order.value(item), Missing)]
