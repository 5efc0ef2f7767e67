"""Selections of hosts and rows, as a user types them: words and `label=glob`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import translate
from typing import Final, NamedTuple

from gpumon.fleet.owners import OF_SCRAPED_PODS, owners_on
from gpumon.fleet.row import FleetRow
from gpumon.fleet.snapshot import FleetSnapshot, HostShown
from gpumon.readings.snapshot import Engine, Gpu, Level, Verdict
from gpumon.triage.render import BRIEF_NAMES, LIMIT_NAMES, NARROW_NAMES

_MOST_CHARACTERS: Final = 500
"""Longest selection, in characters."""
_VERDICT: Final = "verdict"
KINDS: Final = ("host", "model", "engine", "gpu", _VERDICT)
"""Names that stand before the = of a term, beside labels."""
_TERM: Final = re.compile(r"""\s*((?:[^\s"']|"[^"]*"|'[^']*')+)""")
"""One term after spaces; within quotes it may have spaces."""
_LABELLED: Final = re.compile(r"([A-Za-z_][\w.\-/]*)(!?=)(.*)", re.DOTALL)
"""A term with a label: the label, = or !=, and the value."""
_GLOB_CHARACTERS: Final = re.compile(r"[*?\[]")
_QUOTED: Final = re.compile(r"\"([^\"]*)\"|'([^']*)'")
"""A text in quotes, in the first group or the second one."""


class SelectionError(ValueError):
    """The typed text is no selection; the message says why, in one line."""


class _Term(NamedTuple):
    """One condition of a selection."""

    label: str
    """A label, or one of `KINDS`. Empty: a bare word, which any name may match."""
    must_match: bool
    """False for `!=`."""
    pattern: Callable[[str], object]
    """Matches a text in lower case."""


class _Texts(NamedTuple):
    """Texts of a row that terms are matched with, in lower case."""

    labels: Mapping[str, tuple[str, ...]]
    """The values of each label on the row; an empty one where something has no such label."""
    by_kind: Mapping[str, tuple[str, ...]]
    """Kind (`KINDS`) -> the names of these things on the row; `verdict`: names of what is not well there."""


class Selection:
    """Terms that all have to match; an empty one matches everything.

    Capitals do not matter in names and values; they do in names of labels, which are those of Prometheus.
    """

    def __init__(self, terms: Iterable[_Term] = (), text: str = "") -> None:
        self.text = text
        self._terms = tuple(terms)

    @classmethod
    def parse(cls, text: str) -> Selection:
        """A selection such as `host=gpu0* model!=*llama* h100`. Raises SelectionError.

        `label=glob` and `label!=glob` go by a label of the host or of what is on it, or by `host`, `model`, `engine` or
        `gpu`: the names of its things, one of which has to match (or none of which may); `verdict=kv` by what is not
        well. A bare word is a part of one of these names, or a glob if it has `*`, `?` or `[` in it. Quotes hold words
        with spaces together.
        """
        text = text.strip()
        if len(text) > _MOST_CHARACTERS:
            raise SelectionError(f"a selection has at most {_MOST_CHARACTERS} characters, not {len(text)}")
        terms = []
        start = 0
        while start < len(text):
            term = _TERM.match(text, start)
            if term is None:
                raise SelectionError(f"a quote is not closed: {text[start : start + 40].strip()}")
            terms.append(_term(term[1]))
            start = term.end()
        return cls(terms, text)

    def __bool__(self) -> bool:
        return bool(self._terms)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels in its terms, without `KINDS`."""
        label_names = [term.label for term in self._terms if term.label and term.label.lower() not in KINDS]
        return tuple(dict.fromkeys(label_names))

    def matches(self, row: HostShown | FleetRow) -> bool:
        """Whether a host or a row is selected."""
        if not self._terms:
            return True
        if isinstance(row, FleetRow):
            texts = _texts_of_row(row, self.labels)
        else:
            texts = _texts_of_host(row, self.labels)
        return all(_matches(term, texts) for term in self._terms)

    def hosts(self, snapshot: FleetSnapshot) -> tuple[HostShown, ...]:
        """The selected hosts of a fleet."""
        matching_hosts = [host for host in snapshot.hosts if self.matches(host)]
        return tuple(matching_hosts)


def _term(text: str) -> _Term:
    """The term that a text is. Raises SelectionError."""
    labelled = _LABELLED.fullmatch(text)
    if labelled is None:
        return _bare_word(text)
    label, operator, value = labelled.groups()
    value = _unquoted(value)
    if value.startswith(("=", "~")):  # == and =~ of other languages
        raise SelectionError(f"{label}{operator}{value[:40]}: only = and != are known, with * and ? in the value")
    return _Term(label, must_match=operator == "=", pattern=_glob(value))


def _bare_word(text: str) -> _Term:
    """The term of a text without a label. Raises SelectionError where one is missing before a =."""
    is_quoted = text[0] in "\"'"
    if "=" in text and not is_quoted:
        raise SelectionError(f"no label stands before the = in {text[:40]}: write label=value, such as host=gpu0*")
    glob = _unquoted(text)
    if not _GLOB_CHARACTERS.search(glob):
        glob = f"*{glob}*"
    return _Term("", must_match=True, pattern=_glob(glob))


def _unquoted(text: str) -> str:
    """The text without its quotes."""
    return _QUOTED.sub(lambda quoted: quoted[1] or quoted[2] or "", text)


def _glob(glob: str) -> Callable[[str], object]:
    """A function that matches a whole text in lower case with a glob."""
    return re.compile(translate(glob.lower())).match


def _matches(term: _Term, texts: _Texts) -> bool:
    """Whether a row with these texts fulfils a term."""
    if not term.label:
        return _matches_any_name(term, texts)
    names = texts.by_kind.get(term.label.lower())
    if names is None:
        names = texts.labels.get(term.label, ("",))
    elif term.label in texts.labels:  # a label may be named as a kind is
        names = (*texts.labels[term.label], *names)
    return any(term.pattern(text) for text in names) is term.must_match


def _matches_any_name(term: _Term, texts: _Texts) -> bool:
    """Whether a bare word is in the name of anything. Verdicts are left out: they are no names."""
    for kind, names in texts.by_kind.items():
        if kind != _VERDICT and any(term.pattern(name) for name in names):
            return True
    return False


def _label_values(
    labels: Mapping[str, str], hosts: Sequence[HostShown], asked_labels: Iterable[str]
) -> dict[str, tuple[str, ...]]:
    """The values of a row's own labels and of those that a selection asks for, in lower case.

    For a label that the row itself does not have they are the owners of what is on its hosts.
    """
    values: dict[str, tuple[str, ...]] = {name: (value.lower(),) for name, value in labels.items()}
    for label in asked_labels:
        if label in values and label not in OF_SCRAPED_PODS:  # a host's own `namespace` is that of its exporters
            continue
        owners = {owner for host in hosts for owner in owners_on(host, label)}
        values[label] = tuple(owner.lower() for owner in sorted(owners)) or ("",)
    return values


def _texts_of_host(host: HostShown, asked_labels: Iterable[str]) -> _Texts:
    """The texts of a host that a selection compares."""
    snapshot = host.snapshot
    return _Texts(
        _label_values(host.labels, (host,), asked_labels),
        {
            "host": (host.name.lower(), *_lower([snapshot.host.name])),
            "model": _lower(engine.model for engine in snapshot.engines),
            "engine": _engine_names(snapshot.engines),
            "gpu": _gpu_names(snapshot.gpus),
            _VERDICT: _verdict_names(snapshot.verdicts),
        },
    )


def _texts_of_row(row: FleetRow, asked_labels: Iterable[str]) -> _Texts:
    """The texts of a row that a selection compares."""
    parts = row.parts
    return _Texts(
        _label_values(row.labels, parts.hosts, asked_labels),
        {
            "host": _lower(row.hosts),
            "model": _lower(row.models),
            "engine": _engine_names(row_engine.engine for row_engine in parts.engines),
            "gpu": _gpu_names(row_gpu.gpu for row_gpu in parts.gpus),
            _VERDICT: _verdict_names(_verdicts_on(row)),
        },
    )


def _engine_names(engines: Iterable[Engine]) -> tuple[str, ...]:
    """The engines' own names and those of their software."""
    return _lower(name for engine in engines for name in (engine.name, engine.kind.value))


def _gpu_names(gpus: Iterable[Gpu]) -> tuple[str, ...]:
    """The GPUs' names as the driver and the catalogue have them."""
    return _lower(name for gpu in gpus for name in (gpu.reading.name, gpu.gpu_type))


def _verdicts_on(row: FleetRow) -> Iterator[Verdict]:
    """The verdicts about a row: on its GPUs, on its engines and on its hosts as a whole."""
    keys = {row_gpu.gpu.reading.uuid for row_gpu in row.parts.gpus}
    keys |= {row_engine.engine.key for row_engine in row.parts.engines}
    for host in row.parts.hosts:
        for verdict in host.snapshot.verdicts:
            if not verdict.key or verdict.key in keys:
                yield verdict


def _verdict_names(verdicts: Iterable[Verdict]) -> tuple[str, ...]:
    """Names of the limits that are not well; where all is well, the names for that."""
    troubled = []
    well = []
    for verdict in verdicts:
        if verdict.level is Level.OK:
            well.append(verdict.code)
        else:
            troubled.append(verdict.code)
    return _lower(
        name
        for limit in dict.fromkeys(troubled or well)
        for name in (limit.value, LIMIT_NAMES[limit], NARROW_NAMES[limit], BRIEF_NAMES[limit])
    )


def _lower(names: Iterable[str]) -> tuple[str, ...]:
    """The names in lower case, each once; no empty one."""
    lower = dict.fromkeys(name.lower() for name in names)
    lower.pop("", None)
    return tuple(lower)
