"""Pastes as a terminal brackets them: text up to their end, whatever stands in it."""

from __future__ import annotations

import re
from typing import Final

MOST_PASTED: Final = 1 << 16
"""Bytes of one paste that are kept: no field takes more, and what is behind them would only cost time."""
_MOST_HELD: Final = 4 * MOST_PASTED
"""Bytes of one that are held until it ends: a log in colours is colours for the most part."""
_BEGIN: Final = b"\x1b[200~"
_END: Final = b"\x1b[201~"
_NO_TEXT: Final = re.compile(
    rb"\x1b\[[0-?]*[ -/]*[@-~]"  # control sequences, as those that colour a log
    rb"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles and links
    rb"|\x1b[NO][ -~]"  # keys
    rb"|\x1b[ -/]*[0-~]?"  # other escapes, and an escape alone
    rb"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
)


class PasteFilter:
    """Takes what a terminal sends, and gives it on with each paste as plain text, in its brackets.

    Textual reads an escape inside of a paste as keys, character by character.
    """

    def __init__(self) -> None:
        self._before = b""
        """End of what was given on last, which may be the begin of a bracket."""
        self._pasted: bytearray | None = None
        """The paste that has begun, as it came; None outside of one."""
        self._searched = 0
        """Bytes of it in which its end does not begin."""
        self._is_cut = False
        """Whether more of it came than is kept."""

    @property
    def is_open(self) -> bool:
        """Whether a paste has begun that has not ended."""
        return self._pasted is not None

    def feed(self, data: bytes) -> tuple[bytes, bool]:
        """The bytes to be read in the place of those from a terminal, and whether a paste that ends there was cut."""
        given = bytearray()
        cut = False
        while data:
            if self._pasted is None:
                data = self._give_keys(data, given)
            else:
                data = self._take_paste(data, given)
                cut = cut or (self._is_cut and not self.is_open)
        return bytes(given), cut

    def end(self) -> tuple[bytes, bool]:
        """The end of a paste whose end did not come, as from `feed`."""
        return self.feed(_END) if self.is_open else (b"", False)

    def _give_keys(self, data: bytes, given: bytearray) -> bytes:
        """Give on what comes before a paste, with its opening bracket; returns what comes behind that."""
        known = self._before + data
        place = known.find(_BEGIN)
        if place < 0:
            given += data
            self._before = known[-(len(_BEGIN) - 1) :]
            return b""
        begin = place + len(_BEGIN) - len(self._before)
        given += data[:begin]
        self._before = b""
        self._pasted = bytearray()
        self._searched = 0
        self._is_cut = False
        return data[begin:]

    def _take_paste(self, data: bytes, given: bytearray) -> bytes:
        """Take more of a paste, and give it on where that is its end; returns what comes behind it."""
        assert self._pasted is not None
        self._pasted += data
        place = self._pasted.find(_END, self._searched)
        if place < 0:
            self._searched = max(0, len(self._pasted) - len(_END) + 1)
            if self._searched > _MOST_HELD:  # what may be the begin of its end stays
                del self._pasted[_MOST_HELD : self._searched]
                self._searched = _MOST_HELD
                self._is_cut = True
            return b""
        rest = bytes(self._pasted[place + len(_END) :])
        text = _NO_TEXT.sub(b"", bytes(self._pasted[:place]))
        given += text[:MOST_PASTED].decode("utf-8", "ignore").encode() + _END
        self._is_cut = self._is_cut or len(text) > MOST_PASTED
        self._pasted = None
        return rest
