"""One row of a document."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """A row of a document: what it is about, and what is known of it. A row without a text says nothing: leave it out.

    `gpumon size` joins the parts to a sentence, the panel sets them side by side in its width.
    """

    label: str
    """Empty for a further row about the thing above."""
    parts: tuple[str, ...]

    @property
    def text(self) -> str:
        """The parts that say something, with commas between them."""
        return ", ".join(filter(None, self.parts))
