"""Names of fields in traces: for the time of a request, its prompt, its answer, and its prefix hashes."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType
from typing import Final, NamedTuple

from gpumon.sizing.imports.files import FilePlace, refusal

TIME_UNITS: Final = MappingProxyType(
    {
        **dict.fromkeys(("timestamp", "time", "ts", "arrival", "arrivaltime", "arrivedat", "starttime"), 0.0),
        **dict.fromkeys(("requeststarttime", "starttimestamp", "t"), 0.0),
        **dict.fromkeys(("timestamps", "arrivals", "times", "timestampseconds", "arrivalseconds"), 1.0),
        **dict.fromkeys(("timestampms", "arrivalms", "timems", "arrivaltimems"), 1e-3),
    }
)
"""Plain name of a time -> its seconds; 0: the format says the unit."""
PROMPT_NAMES: Final = frozenset(
    {
        *("contexttokens", "requesttokens", "inputlength", "inputtokens", "inputlen", "input", "isl"),
        *("prompttokens", "promptlength", "promptlen", "prompt", "numprefilltokens"),
    }
)
ANSWER_NAMES: Final = frozenset(
    {
        *("generatedtokens", "responsetokens", "outputlength", "outputtokens", "outputlen", "output", "osl"),
        *("answertokens", "answerlength", "completiontokens", "answer", "response", "numdecodetokens"),
    }
)
HASH_NAMES: Final = frozenset(("hashids", "blockhashes", "prefixhashes"))


class Names(NamedTuple):
    """The fields of a format, as the file calls them."""

    time: str
    """Empty: the file has no times."""
    time_unit_s: float
    """Seconds of its unit; 0 where its name does not say it."""
    prompt: str
    answer: str
    hashes: str = ""


def names_of(fields: Iterable[str], place: FilePlace) -> Names:
    """The fields that a file has for each figure of a request. Raises ImportRefused without prompt or answer."""
    by_plain_name = {_plain(field): field for field in fields}
    time = next((name for name in by_plain_name if name in TIME_UNITS), "")
    found = []
    for what, known in (("prompt", PROMPT_NAMES), ("answer", ANSWER_NAMES)):
        name = next((name for name in by_plain_name if name in known), "")
        if not name:
            has = ", ".join(list(by_plain_name.values())[:10])[:200]
            raise refusal(place, "", f"has no tokens of the {what} (it has {has!a})", ", ".join(sorted(known)))
        found.append(by_plain_name[name])
    hashes = next((by_plain_name[name] for name in by_plain_name if name in HASH_NAMES), "")
    return Names(by_plain_name.get(time, ""), TIME_UNITS.get(time, 0.0), found[0], found[1], hashes)


def has_lengths(fields: Iterable[str]) -> bool:
    """Whether fields have both lengths of a request."""
    plain = {_plain(field) for field in fields}
    return bool(plain & PROMPT_NAMES) and bool(plain & ANSWER_NAMES)


def _plain(field: str) -> str:
    """A name without case, spaces and signs: `Request tokens` and `request_tokens` are one."""
    return "".join(letter for letter in field.casefold() if letter.isalnum())
