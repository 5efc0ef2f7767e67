"""Text from outside (labels, process names, model ids) made safe to print."""

from __future__ import annotations

import re
import unicodedata

MOST = 256
"""Characters kept of one text; the cut is marked with an ellipsis."""
MOST_FAULT = 1024
"""The same of what is wrong: its last words are what to do about it."""

_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def clean(text: str, most: int = MOST) -> str:
    r"""`text` without characters that a terminal interprets: controls, bidi and zero-width marks become `\x1b` forms,
    all kinds of spaces plain ones.

    The result is at most `most` characters long.
    """
    if len(text) <= most and text.isprintable():
        return text
    cut = text[: most + 1]
    safe = "".join(_visible(character) for character in cut)
    return safe if len(safe) <= most and len(text) <= most else safe[: most - 1] + "…"


def _visible(character: str) -> str:
    category = unicodedata.category(character)
    if category == "Zs":
        return " "
    if category not in _UNSAFE:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


_NAMES = r"(?:(?:api|access|private)[-_]?keys?|token|secret|pass(?:w(?:or)?d)?|credentials?|auth|sig(?:nature)?)"
_VALUE = r"(?:\\?\"[^\"]*\"|\\?'[^']*'|\S+)"
_ASSIGNED = re.compile(rf"((?:^|(?<=[\s_'\":.?&;,({{-])){_NAMES})(\s?=\s?){_VALUE}", re.IGNORECASE)
_FIELD = re.compile(rf"([\"'][\w.-]*{_NAMES}\\?[\"']\s*:\s*){_VALUE}", re.IGNORECASE)
_WORD = re.compile(r"[\w-]+")
_SECRET = re.compile(rf"(?<=[_-]){_NAMES}$|(?<=^--)key$", re.IGNORECASE)
_LOGIN = re.compile(r"(?<!\S)((?:-u|--user|--proxy-user)[ =])(?!\d+:\d+\b)[^\s:]+:\S+")
_WANDB = re.compile(r"\b(wandb\s+login\s+(?:-\S+\s+)*)[^\s-]\S*")
_VALUES = re.compile(r"(?:\s+(?!-)\S+)+")
_USER = re.compile(r"://[^\s/]*@")
_HEADER = re.compile(r"\b((?:Proxy-)?Authorization|X-Api-Key)\b([\"']?\s*[:=]\s*).*", re.IGNORECASE)
_TOKEN = re.compile(
    r"\b(Bearer\s+|hf_|sk-|nvapi-|gh[opsur]_|github_pat_|glpat-|xox[a-z]-|AKIA)[\w.~+/=-]{8,}", re.IGNORECASE
)


def unsaid(command: str) -> str:
    """A command line without its secrets: `--api-key ***`, `--hf-token=***`, `VLLM_API_KEY=***`, `redis://***@host`.

    Everything up to the next option goes, as an option may take several keys, and all that follows the name of an
    authorization header; so do fields of JSON, and words that look like keys of known services. `--max-tokens` and
    `--tokenizer` stay.
    Takes time in proportion to the length: a command line is anybody's text.
    """
    command = _HEADER.sub(r"\1\2***", _USER.sub("://***@", _ASSIGNED.sub(r"\1\2***", _FIELD.sub(r"\1***", command))))
    command = _TOKEN.sub(r"\1***", _WANDB.sub(r"\1***", _LOGIN.sub(r"\1***", command)))
    kept, at = [], 0
    for word in _WORD.finditer(command):
        name = _SECRET.search(word[0]) if word.start() >= at else None
        if name is not None and "-" in word[0][: name.start()] and (values := _VALUES.match(command, word.end())):
            kept += [command[at : word.end()], " ***"]
            at = values.end()
    return "".join((*kept, command[at:]))
