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


_NAMES = r"(?:api[-_]?keys?|token|secret|passw(?:or)?d|credentials?)"
_ASSIGNED = re.compile(rf"((?:^|(?<=[\s_'\":-])){_NAMES})=\S+", re.IGNORECASE)
_WORD = re.compile(r"[\w-]+")
_SECRET = re.compile(rf"(?<=[_-]){_NAMES}$", re.IGNORECASE)
_VALUES = re.compile(r"(?:\s+(?!-)\S+)+")
_USER = re.compile(r"://[^\s/]*@")
_HEADER = re.compile(r"\b((?:Proxy-)?Authorization|X-Api-Key)\b([\"']?\s*[:=]\s*).*", re.IGNORECASE)
_TOKEN = re.compile(r"\b(Bearer\s+|hf_|sk-|nvapi-|ghp_|AKIA)[\w.~+/=-]{8,}", re.IGNORECASE)


def unsaid(command: str) -> str:
    """A command line without its secrets: `--api-key ***`, `--hf-token=***`, `VLLM_API_KEY=***`, `redis://***@host`.

    Everything up to the next option goes, as an option may take several keys, and all that follows the name of an
    authorization header; so do words that look like keys of known services. `--max-tokens` and `--tokenizer` stay.
    Takes time in proportion to the length: a command line is anybody's text.
    """
    command = _HEADER.sub(r"\1\2***", _USER.sub("://***@", _ASSIGNED.sub(r"\1=***", command)))
    command = _TOKEN.sub(r"\1***", command)
    kept, at = [], 0
    for word in _WORD.finditer(command):
        name = _SECRET.search(word[0]) if word.start() >= at else None
        if name is not None and "-" in word[0][: name.start()] and (values := _VALUES.match(command, word.end())):
            kept += [command[at : word.end()], " ***"]
            at = values.end()
    return "".join((*kept, command[at:]))
