"""Lines of an engine's log as they may be shown: without escape sequences, prompts, answers and keys."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Final, NamedTuple

from gpumon.readings.log_masking import STRUCK, is_fault, left_out, masked_line
from gpumon.readings.text import clean

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
_PROCESS: Final = r"(?:\([\w. -]{1,40} pid=\d+\)\s*)?"
"""The process that some engines write before a record."""
_LEVEL_WORDS: Final = "(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)"
_RECORD_FORMS: Final = tuple(
    re.compile(_PROCESS + form)
    for form in (
        rf"{_LEVEL_WORDS} \d\d-\d\d \d\d:",  # vLLM
        rf"{_LEVEL_WORDS}:\s{{4,9}}",  # uvicorn, which fills its level up to nine characters
        rf"{_LEVEL_WORDS}\b",
        r"\[?\d{4}-\d\d-\d\d[T ]\d\d:",  # SGLang, TGI
        r"\[?\d\d[/:-]\d\d[/:-]",
        r"[IWEF]\d{4} ",  # Triton
        r"time=|ts=|\[GIN\]",  # Ollama
        r'\{"(?:timestamp|time|ts|level|asctime|function|tid)"',
        r"\[(?:TensorRT|TRT)|\[rank\d",
        r"Traceback \(",
        r"(?:\[\d{1,7}\] )?\d{1,6}\.\d\d\.\d{3}\.\d{3} [A-Z] "  # llama.cpp since 2026: time since its start, and level
        r"|(?:srv|slot|que)\s{1,12}\w{1,40}:"
        r"|(?:main|common|load|print_info|llama|ggml|system_info|build)\w{0,60}:",
    )
)
"""How a record of an engine's log begins; other lines go on with the record before them."""
_TRACEBACK: Final = re.compile(r"Traceback \(most recent call last\)")
_REQUEST_FRAME: Final = re.compile(
    r"\A.{0,120}?File \"[^\"]{0,300}"
    r"(?:/fastapi/|/starlette/|/uvicorn/protocols/|/jinja2/|/serving(?:_\w{1,40})?\.py|/speech_to_text\w{0,40}\.py"
    r"|/chat_utils\.py|/openai_server\.py\", line \d{1,6}, in openai_\w)"
)
"""A line of a traceback in code that handles a request: what was raised there may say what was in the request."""
_RAISED: Final = re.compile(r"\A(?P<name>.{0,120}?\b[A-Za-z_][\w.]{0,120}(?:Error|Exception|Invalid\w{0,40})): (?=\S)")
"""The last line of a traceback, up to the text of its exception."""
_RAISED_BY_TEXT: Final = re.compile(r"\b(?:JSONDecode|Template\w{0,20}|Unicode(?:De|En)code|RequestValidation)Error\Z")
"""Exceptions whose text repeats what could not be read."""
_LINE_PREFIX: Final = re.compile(_PROCESS + rf"{_LEVEL_WORDS} \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]{{1,80}}\]")
"""Begin of each line of one record of vLLM, which it repeats before the further ones."""
_LEVEL_CHARACTERS: Final = 200
"""Characters of the beginning of a record in which its level stands."""


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
        """The line before ended inside of a prompt, an answer or a key."""
        self._is_in_key = False
        """The line before ended inside of a key, whose length nobody is to know."""
        self._forms: frozenset[int] = frozenset()
        """Forms of the records so far: a prompt may hold lines that begin as records of other programs do."""
        self._is_of_request = False
        """The lines are those of a traceback through code that handles a request."""
        self._prefix = ""
        """Begin of the line in which a prompt began, where all lines of its record begin so; empty for others."""

    def copy(self) -> LogReader:
        """A reader in the same state, for a line that is not complete yet."""
        reader = LogReader()
        reader._level = self._level
        reader._is_masking = self._is_masking
        reader._is_in_key = self._is_in_key
        reader._forms = self._forms
        reader._is_of_request = self._is_of_request
        reader._prefix = self._prefix
        return reader

    def lines(self, texts: Iterable[str]) -> Iterator[LogLine]:
        """The lines, in their order."""
        for text in texts:
            yield self.line(text)

    def goes_on_in(self, plain: str) -> bool:
        """Whether a line without escape sequences goes on with a prompt or an answer of the lines before it."""
        return self._is_masking and not self._ends_prompt(_record_form(plain), plain)

    def pass_record(self, plain: str) -> None:
        """Take a line as a whole record with which a prompt has ended, without looking at its text."""
        self._is_masking = False
        form = _record_form(plain)
        if form is not None:
            self._forms |= {form}

    def _ends_prompt(self, form: int | None, plain: str) -> bool:
        """Whether a line of this form is a record of this log, though the line before ended inside of a prompt."""
        if form is None or (self._prefix and plain.startswith(self._prefix)):
            return False
        return not self._forms or form in self._forms

    def line(self, text: str) -> LogLine:
        """One line, without its end; of one that was written over and over (a progress bar) its last state."""
        whole = text.rstrip("\r\n")
        *overwritten, last = whole[:MOST_LINE_CHARACTERS].rstrip("\r\n").split("\r")
        for state in overwritten:
            self._read_state(state)  # a prompt may begin in it
        return self._read_state(last, max(0, len(whole) - MOST_LINE_CHARACTERS))

    def _read_state(self, text: str, beyond: int = 0) -> LogLine:
        """One state of a line, made safe; `beyond` characters of it were cut off."""
        plain = without_escapes(text)
        form = _record_form(plain)
        if self._is_masking and not self._ends_prompt(form, plain):
            omitted = STRUCK if self._is_in_key else left_out(len(plain) + beyond)
            return LogLine(f"  {omitted}", self._level)
        if form is not None:
            self._forms |= {form}
            self._level = LogLevel.PLAIN
        own_level = _level_of(plain)
        if own_level is not LogLevel.PLAIN:
            self._level = own_level
        if _TRACEBACK.search(plain):
            self._is_of_request = False
        elif _REQUEST_FRAME.match(plain):
            self._is_of_request = True
        prefix = _LINE_PREFIX.match(plain)
        self._prefix = prefix[0] if prefix else ""
        raised = _RAISED.match(plain)
        may_repeat = raised is not None and (self._is_of_request or _RAISED_BY_TEXT.search(raised["name"]))
        if raised is not None and may_repeat and not is_fault(plain[raised.end() :].rstrip()):
            self._is_masking = True
            self._is_in_key = False
            omitted = left_out(len(plain) - raised.end() + beyond)
            return LogLine(clean(f"{raised['name']}: {omitted}", MOST_SHOWN_CHARACTERS), self._level)
        masked, ends_inside = masked_line(plain, beyond)
        self._is_masking = ends_inside
        self._is_in_key = masked.endswith(STRUCK)
        return LogLine(clean(masked.rstrip(), MOST_SHOWN_CHARACTERS), self._level)


def begins_record(text: str) -> bool:
    """Whether a line begins a record of a log."""
    return _record_form(without_escapes(text[:MOST_LINE_CHARACTERS])) is not None


def _record_form(plain: str) -> int | None:
    """Number of the form in which a line begins a record; None where it begins none."""
    for number, form in enumerate(_RECORD_FORMS):
        if form.match(plain):
            return number
    return None


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
