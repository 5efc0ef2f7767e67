"""Which hosts and rows are shown: words and `label=glob` as a user types them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import translate
from typing import Final, NamedTuple

from gpumon.fleet.rows import Row
from gpumon.fleet.snapshot import FleetSnapshot, HostShown
from gpumon.readings.snapshot import Level, Verdict
from gpumon.triage.render import BRIEF, LIMITS, NARROW

MOST_CHARACTERS: Final = 500
KINDS: Final = ("host", "model", "engine", "gpu", "verdict")
"""Names that a term may go by beside labels."""
_VERDICT: Final = KINDS[-1]
_TERM: Final = re.compile(r"""\s*((?:[^\s"']|"[^"]*"|'[^']*')+)""")
_LABELLED: Final = re.compile(r"([A-Za-z_][\w.\-/]*)(!?=)(.*)", re.DOTALL)
_WHOLE: Final = re.compile(r"[*?\[]")


class SelectionError(ValueError):
    """The typed text is no selection; the message says why, in one line."""


class _Term(NamedTuple):
    label: str
    """Empty: one of the texts has it."""
    wanted: bool
    """False for `!=`."""
    pattern: Callable[[str], object]


class _Texts(NamedTuple):
    """Texts that a term is held against, lower case."""

    labels: Mapping[str, str]
    by_kind: Mapping[str, tuple[str, ...]]
    """`host`, `model`, `engine` and `gpu`: the names of those there; `verdict`: those of what is not well."""


class Selection:
    """Terms that all have to match; an empty one matches everything. Capitals do not matter."""

    def __init__(self, terms: Iterable[_Term] = (), text: str = "") -> None:
        self.text = text
        self._terms = tuple(terms)

    @classmethod
    def parse(cls, text: str) -> Selection:
        """A selection such as `host=gpu0* model!=*llama* h100`. Raises SelectionError.

        `label=glob` and `label!=glob` go by a label of the host, or by `host`, `model`, `engine` or `gpu`: the names
        of its things, one of which has to match (or none of which may); `verdict=kv` by what is not well.
        A bare word is a part of one of those names;
        with `*`, `?` or `[` in it, it is a glob. Quotes hold words with spaces together.
        """
        text = text.strip()
        if len(text) > MOST_CHARACTERS:
            raise SelectionError(f"a selection has at most {MOST_CHARACTERS} characters, not {len(text)}")
        terms = []
        at = 0
        while at < len(text):
            term = _TERM.match(text, at)
            if term is None:
                raise SelectionError(f"a quote is not closed: {text[at : at + 40].strip()}")
            terms.append(_term(term[1]))
            at = term.end()
        return cls(terms, text)

    def __bool__(self) -> bool:
        return bool(self._terms)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that it goes by, but those that everything has (`KINDS`)."""
        named = (term.label for term in self._terms if term.label)
        return tuple(dict.fromkeys(label for label in named if label.lower() not in KINDS))

    def matches(self, one: HostShown | Row) -> bool:
        """Whether a host, or a row, is among what was asked for."""
        if not self._terms:
            return True
        if isinstance(one, Row):
            texts = _of_row(one)
        else:
            texts = _of_host(one)
        return all(_matches(term, texts) for term in self._terms)

    def hosts(self, snapshot: FleetSnapshot) -> tuple[HostShown, ...]:
        """The hosts of a fleet that match."""
        hosts = []
        for host in snapshot.hosts:
            if self.matches(host):
                hosts.append(host)
        return tuple(hosts)


def _term(text: str) -> _Term:
    labelled = _LABELLED.fullmatch(text)
    if labelled is None:
        if text.startswith(("=", "!=")) or (("=" in text) and text[0] not in "\"'"):
            raise SelectionError(f"no label stands before the = in {text[:40]}: write label=value, such as host=gpu0*")
        word = _unquoted(text)
        return _Term("", True, _glob(word if _WHOLE.search(word) else f"*{word}*"))
    label, how, value = labelled.groups()
    value = _unquoted(value)
    if value.startswith(("=", "~")):
        raise SelectionError(f"{label}{how}{value[:40]}: only = and != are known, with * and ? in the value")
    return _Term(label, how == "=", _glob(value))


def _unquoted(text: str) -> str:
    return re.sub(r"\"([^\"]*)\"|'([^']*)'", lambda found: found[1] if found[1] is not None else found[2], text)


def _glob(glob: str) -> Callable[[str], object]:
    return re.compile(translate(glob.lower())).match


def _matches(term: _Term, texts: _Texts) -> bool:
    if not term.label:
        found = (names for kind, names in texts.by_kind.items() if kind != _VERDICT)
        return any(term.pattern(text) for names in found for text in names)
    names = texts.by_kind.get(term.label.lower())
    if names is None or term.label in texts.labels:
        names = (texts.labels.get(term.label, "").lower(), *(names or ()))
    return any(term.pattern(text) for text in names) is term.wanted


def _of_host(host: HostShown) -> _Texts:
    snapshot = host.snapshot
    return _Texts(
        host.labels,
        {
            "host": (host.name.lower(), *_lower([snapshot.host.name])),
            "model": _lower(engine.model for engine in snapshot.engines),
            "engine": _lower(text for engine in snapshot.engines for text in (engine.name, engine.kind.value)),
            "gpu": _lower(text for gpu in snapshot.gpus for text in (gpu.name, gpu.gpu_type)),
            _VERDICT: _verdicts(snapshot.verdicts),
        },
    )


def _of_row(row: Row) -> _Texts:
    parts = row.parts
    return _Texts(
        row.labels,
        {
            "host": _lower(row.hosts),
            "model": _lower(row.models),
            "engine": _lower(text for one in parts.engines for text in (one.engine.name, one.engine.kind.value)),
            "gpu": _lower(text for at in parts.gpus for text in (at.gpu.name, at.gpu.gpu_type)),
            _VERDICT: _verdicts(_of_things(row)),
        },
    )


def _of_things(row: Row) -> Iterator[Verdict]:
    """The verdicts on the hosts of a row, as far as they are about it."""
    keys = {at.gpu.uuid for at in row.parts.gpus} | {one.engine.key for one in row.parts.engines}
    for host in row.parts.hosts:
        yield from (each for each in host.snapshot.verdicts if not each.key or each.key in keys)


def _verdicts(verdicts: Iterable[Verdict]) -> tuple[str, ...]:
    """Names of what is not well; where all is, of that."""
    every = tuple(verdicts)
    limits = dict.fromkeys(each.code for each in every if each.level is not Level.OK) or {each.code for each in every}
    names = ((limit.value, LIMITS[limit], NARROW[limit], BRIEF[limit]) for limit in limits)
    return _lower(name for found in names for name in found)


def _lower(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.lower() for name in names if name))
