"""Text from outside (labels, process names, model ids) made safe to print."""

from __future__ import annotations

import re
import unicodedata

MOST = 256
"""Characters kept of one text; the cut is marked with an ellipsis."""

_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def clean(text: str, most: int = MOST) -> str:
    r"""`text` without characters that a terminal interprets: controls, bidi and zero-width marks become `\x1b` forms.

    The result is at most `most` characters long.
    """
    if text.isascii() and text.isprintable() and len(text) <= most:
        return text
    cut = text[: most + 1]
    safe = "".join(_visible(character) for character in cut)
    return safe if len(safe) <= most and len(text) <= most else safe[: most - 1] + "…"


def _visible(character: str) -> str:
    if unicodedata.category(character) not in _UNSAFE:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_NAMES = r"(?:^|(?<=[\s_'\"-]))(?:api[-_]?keys?|token|secret|passw(?:or)?d|credentials?)"
_ASSIGNED = re.compile(rf"({_NAMES})=\S+", re.IGNORECASE)
_FOLLOWED = re.compile(rf"(-[\w-]*?{_NAMES})((?:\s+(?!-)\S+)+)", re.IGNORECASE)


def unsaid(command: str) -> str:
    """A command line without its secrets: `--api-key ***`, `--hf-token=***`, `VLLM_API_KEY=***`.

    Everything up to the next option goes, as an option may take several keys. `--max-tokens` and `--tokenizer` stay.
    """
    return _FOLLOWED.sub(r"\1 ***", _ASSIGNED.sub(r"\1=***", command))
