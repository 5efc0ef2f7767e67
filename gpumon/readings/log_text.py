"""Lines of an engine's log as they may be shown: without escape sequences, prompts, answers and keys."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Final, NamedTuple

from gpumon.readings.text import clean

STRUCK: Final = "***"
"""Stands for what is not shown."""
MOST_LINE_CHARACTERS: Final = 4096
"""Most characters of a line that are looked at; a line that goes on is cut there."""
MOST_SHOWN_CHARACTERS: Final = 1000
"""Most characters of a line that are shown."""

_ESCAPES: Final = re.compile(
    r"\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]"  # CSI: colours, cursor
    r"|\x1b\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)?"  # OSC: titles, links, the clipboard
    r"|\x1b[PX^_][^\x1b]{0,4096}(?:\x1b\\)?"  # DCS, SOS, PM, APC
    r"|\x1b[ -/]{0,8}[0-~]"
)
"""Sequences of characters that a terminal obeys."""
_RECORD: Final = re.compile(
    r"(?:\([\w. -]{1,40} pid=\d+\)\s*)?(?:"
    r"(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)\b"  # vLLM, uvicorn
    r"|\[?\d{4}-\d\d-\d\d[T ]\d\d:"  # SGLang, TGI
    r"|\[?\d\d[/:-]\d\d[/:-]"
    r"|[IWEF]\d{4} "  # Triton
    r"|time=|ts=|\[GIN\]"  # Ollama
    r'|\{"(?:timestamp|time|ts|level|asctime|function|tid)"'
    r"|\[(?:TensorRT|TRT)|\[rank\d|Traceback \("
    r"|(?:\[\d{1,7}\] )?\d{1,6}\.\d\d\.\d{3}\.\d{3} [A-Z] "  # llama.cpp since 2026: time since its start, and level
    r"|(?:srv|slot|que)\s{1,12}\w{1,40}:"  # llama.cpp
    r"|(?:main|common|load|print_info|llama|ggml|system_info|build)\w{0,60}:"
    r")"
)
"""How a record of an engine's log begins; other lines go on with the record before them."""
_LEVEL_CHARACTERS: Final = 200
"""Characters of the beginning of a record in which its level stands."""

_PROMPTS: Final = re.compile(
    r"(?<![A-Za-z0-9])(?P<key>prompts?|inputs?|outputs?|texts?|contents?|generated|completions?|input_value"
    r"|responses?|requests?|messages|quer(?:y|ies)|documents|reasoning|system|instructions?|arguments"
    r"|body|choices|delta|(?:prompt_|input_|output_)?token_ids|(?:input|output)_ids|tokens)"
    r"(?P<sign>[\"'\\]{0,8}\s?[:=]\s{0,4})",
    re.IGNORECASE,
)
"""Names of values that hold what users wrote or got."""
_UNQUOTED: Final = frozenset(
    ("prompt", "prompts", "input", "inputs", "output", "outputs", "text", "texts", "content", "contents", "generated")
)
"""Names of values that are prompts or answers without quotes as well; they last to the end of their record."""
_OBJECT_BEGINNINGS: Final = re.compile(
    r"\b(?:obj=\w{1,64}\((?:rid=(?:'[^']{0,128}'|\"[^\"]{0,128}\"|None), )?|out=(?=[\[{]))"
)
"""Beginnings of requests and answers as SGLang logs them. Their texts are not escaped: all behind these is left out."""
_SECRETS: Final = re.compile(
    r"(?P<key>api[_-]?keys?|secret|passw(?:or)?d|passphrase|authorization|credentials?|private[_-]?key"
    r"|(?:hf|access|auth|refresh|api|bearer)[_-]?token"
    r"|(?<![A-Za-z0-9_])(?-i:[A-Z][A-Z0-9_]{0,64}_(?:KEY|TOKEN)(?==)))"
    r"(?P<sign>[\w-]{0,32}[\"'\\]{0,8}(?:\s?[:=]\s{0,4}|\s+(?=[^\s=:])))",
    re.IGNORECASE,
)
"""Names of values that are keys; on a command line a blank stands before the value."""
_TOKENS: Final = re.compile(
    r"\b(?:Bearer|Basic)\s+[\w.~+/=-]{6,}"
    r"|\b(?:sk|hf|ghp|gho|ghs|glpat|xox[bpa]|nvapi|rk|pk)[-_][A-Za-z0-9_-]{8,}"
    r"|\bAKIA[0-9A-Z]{16}\b"
    r"|\beyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?"
    r"|(?<=://)[^/\s@\"']{1,256}(?=@)"
    r"|(?<=[?&]key=)[^&\s\"']+|(?<=[?&]token=)[^&\s\"']+|(?<=[?&]sig=)[^&\s\"']+"
)
"""Keys that are known by their form."""
_HARMLESS: Final = re.compile(r"(?:None|null|[Tt]rue|[Ff]alse|-?\d[\d.,_%]{0,32})(?=[\s,;)\]}]|\Z)")
"""Values that are nobody's text."""
_CLOSING_OF: Final = {"[": "]", "{": "}", "(": ")"}
"""Opening bracket -> closing one."""
_BARE_VALUE: Final = re.compile(r"[^\s,;)\]}\"']+")
"""A value without quotes."""
_SCHEME: Final = re.compile(r"(?:Bearer|Basic)\s+")
"""Word of an `Authorization` header before its key."""
_NO_VALUE: Final = re.compile(r"(?:None|null)\b")
"""A field that is there without a value."""
_QUOTE: Final = re.compile(r"[bruBRU]{0,2}(?P<escapes>\\{0,7})(?P<mark>[\"'])")
"""The begin of a quoted string as Python, Rust or JSON in JSON write it."""


class LogLevel(str, Enum):
    """Level of a line."""

    ERROR = "error"
    WARNING = "warning"
    PLAIN = "plain"
    DEBUG = "debug"


_LEVELS: Final = (
    (
        LogLevel.ERROR,
        re.compile(
            r"\b(?:ERROR|CRITICAL|FATAL|PANIC|panicked at)\b|Traceback \(most recent|level=(?:error|fatal)"
            r"|\A[EF]\d{4} |\[[EF]\]|\"level\": ?\"(?:error|fatal|ERROR|FATAL)\"|\berror:"
            r"|\A[\w.]{0,80}(?:Error|Exception)(?::|\Z)"
        ),
    ),
    (
        LogLevel.WARNING,
        re.compile(r"\b(?:WARN|WARNING)\b|level=warn|\A[W]\d{4} |\[W\]|\"level\": ?\"(?:warn|WARN)|\b\w{0,40}Warning:"),
    ),
    (LogLevel.DEBUG, re.compile(r"\b(?:DEBUG|TRACE)\b|level=debug|\"level\": ?\"(?:debug|trace|DEBUG|TRACE)")),
)
"""Levels and what a line of each has in it; the first that fits counts."""


class LogLine(NamedTuple):
    """A line of a log, safe to show."""

    text: str
    level: LogLevel = LogLevel.PLAIN
    is_record: bool = True
    """A record begins with it; else it goes on with the one before."""


class LogView(NamedTuple):
    """A log as far as it was read."""

    place: str = ""
    """Place of the log, in words. Text from outside, safe to show."""
    lines: Sequence[LogLine] = ()
    unfinished: int = 0
    """How many of the last lines have no end yet: 0 or 1."""
    dropped: int = 0
    """Lines before these that were read and are not kept any more."""
    generation: int = 0
    """Grows whenever the lines are others: the log was truncated, or another one is read."""
    fault: str = ""
    """Why it cannot be read; empty where it can."""
    command: str = ""
    """Command that shows it."""
    logs: int = 1
    """How many logs the engine has."""


class LogReader:
    """Makes lines of a log safe, one after the other: a prompt may go on in the next line."""

    def __init__(self) -> None:
        self._level = LogLevel.PLAIN
        self._is_masking = False
        """The line before ended inside of a prompt or an answer."""

    def copy(self) -> LogReader:
        """A reader in the same state, for a line that is not complete yet."""
        reader = LogReader()
        reader._level = self._level
        reader._is_masking = self._is_masking
        return reader

    def lines(self, texts: Iterable[str]) -> Iterator[LogLine]:
        """The lines, in their order."""
        for text in texts:
            yield self.line(text)

    def goes_on_in(self, plain: str) -> bool:
        """Whether a line without escape sequences goes on with a prompt or an answer of the lines before it."""
        return self._is_masking and _RECORD.match(plain) is None

    def line(self, text: str) -> LogLine:
        """One line, without its end; of one that was written over and over (a progress bar) its last state."""
        *overwritten, last = text[:MOST_LINE_CHARACTERS].rstrip("\r\n").split("\r")
        for state in overwritten:
            self._read_state(state)  # a prompt may begin in it
        return self._read_state(last)

    def _read_state(self, text: str) -> LogLine:
        """One state of a line, made safe."""
        plain = without_escapes(text)
        is_record = _RECORD.match(plain) is not None
        if is_record:
            self._is_masking = False
            self._level = LogLevel.PLAIN
        elif self._is_masking:
            return LogLine(f"  {STRUCK}", self._level, is_record=False)
        own_level = _level_of(plain)
        if own_level is not LogLevel.PLAIN:
            self._level = own_level
        masked, ends_inside = masked_line(plain)
        self._is_masking = ends_inside
        return LogLine(clean(masked.rstrip(), MOST_SHOWN_CHARACTERS), self._level, is_record)


def begins_record(text: str) -> bool:
    """Whether a line begins a record of a log."""
    return _RECORD.match(without_escapes(text[:MOST_LINE_CHARACTERS])) is not None


def without_escapes(text: str) -> str:
    """The text without sequences that a terminal obeys, and tabs as blanks."""
    return _ESCAPES.sub("", text).expandtabs(4)


def _level_of(text: str) -> LogLevel:
    """The level that a line names; plain where it names none."""
    beginning = text[:_LEVEL_CHARACTERS]
    for level, pattern in _LEVELS:
        if pattern.search(beginning):
            return level
    return LogLevel.PLAIN


def masked_line(text: str) -> tuple[str, bool]:
    """The line with `***` in the place of prompts, answers and keys; and whether it ends inside of one."""
    text = without_keys(text)
    behind = _OBJECT_BEGINNINGS.search(text)
    if behind is not None:
        return text[: behind.end()] + STRUCK, True
    pieces: list[str] = []
    copied_to = 0
    for match in _PROMPTS.finditer(text):
        if match.start() < copied_to:
            continue  # inside of a value that is left out already
        value = _value_end(text, match.end(), unquoted=match["key"].lower() in _UNQUOTED)
        if value is None:
            continue
        pieces.append(text[copied_to : match.end()])
        pieces.append(STRUCK)
        copied_to = value.end
        if not value.is_closed:
            return "".join(pieces), True
    pieces.append(text[copied_to:])
    return "".join(pieces), False


def without_keys(text: str) -> str:
    """The text without API keys, passwords and tokens."""
    pieces: list[str] = []
    copied_to = 0
    for match in _SECRETS.finditer(text):
        if match.start() < copied_to:
            continue
        end = _end_of_secret(text, match.end())
        if end == match.end():
            continue
        pieces.append(text[copied_to : match.end()])
        pieces.append(STRUCK)
        copied_to = end
    pieces.append(text[copied_to:])
    return _TOKENS.sub(STRUCK, "".join(pieces))


def _end_of_secret(text: str, begin: int) -> int:
    """End of a key's value; `begin` if there is none."""
    scheme = _SCHEME.match(text, begin)
    if scheme is not None:
        begin = scheme.end()
    if _NO_VALUE.match(text, begin):
        return begin
    value = _value_end(text, begin, unquoted=False)
    if value is not None:
        return value.end
    bare = _BARE_VALUE.match(text, begin)
    if bare is None:
        return begin
    return bare.end()


class _ValueEnd(NamedTuple):
    """End of a value in a line."""

    end: int
    is_closed: bool
    """False: the value goes on in the next line."""


def _value_end(text: str, begin: int, *, unquoted: bool) -> _ValueEnd | None:
    """End of the value of a name that begins at `begin`; None where it is no text of a user.

    `unquoted`: it may be a text without quotes, which lasts to the end of the record.
    """
    if _HARMLESS.match(text, begin):
        return None
    quote = _QUOTE.match(text, begin)
    if quote is not None:
        return _end_of_string(text, quote.end(), quote["mark"], len(quote["escapes"]))
    if text[begin : begin + 1] in _CLOSING_OF:
        return _end_of_brackets(text, begin)
    if unquoted and begin < len(text):
        return _ValueEnd(len(text), is_closed=False)
    return None


def _end_of_string(text: str, begin: int, mark: str, escapes: int) -> _ValueEnd:
    """The end of a string; with `escapes` backslashes before its quotes it stands inside of other strings."""
    period = 2 * (escapes + 1)  # backslashes of one escaped backslash at this depth
    backslashes = 0
    for position in range(begin, len(text)):
        character = text[position]
        if character == mark and backslashes % period == escapes:
            return _ValueEnd(position + 1, is_closed=True)
        if character == "\\":
            backslashes += 1
        else:
            backslashes = 0
    return _ValueEnd(len(text), is_closed=False)


def _end_of_brackets(text: str, begin: int) -> _ValueEnd:
    """The end of a list, an object or a call, strings in it passed over."""
    closing: list[str] = []  # brackets that are open, by what closes them
    position = begin
    while position < len(text):
        character = text[position]
        if character in "\"'":
            string = _end_of_string(text, position + 1, character, 0)
            if not string.is_closed:
                return string
            position = string.end
            continue
        if character in _CLOSING_OF:
            closing.append(_CLOSING_OF[character])
        elif closing and character == closing[-1]:
            closing.pop()
            if not closing:
                return _ValueEnd(position + 1, is_closed=True)
        position += 1
    return _ValueEnd(len(text), is_closed=False)
