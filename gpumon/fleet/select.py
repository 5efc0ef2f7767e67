"""Which hosts and rows are shown: words and `label=glob` as a user types them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import translate
from typing import Final, NamedTuple

from gpumon.fleet.owners import OF_SCRAPED_PODS, owners_on
from gpumon.fleet.rows import FleetRow
from gpumon.fleet.snapshot import FleetSnapshot, HostShown
from gpumon.readings.snapshot import Engine, Gpu, Level, Verdict
from gpumon.triage.render import BRIEF, LIMIT_NAMES, NARROW

_MOST_CHARACTERS: Final = 500
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
    """Empty: a bare word, which any name may match."""
    wanted: bool
    """False for `!=`."""
    pattern: Callable[[str], object]


class _Texts(NamedTuple):
    """Texts that a term is held against, lower case."""

    labels: Mapping[str, tuple[str, ...]]
    """The values of each label on the row; an empty one where something has no such label."""
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

        `label=glob` and `label!=glob` go by a label of the host or of what is on it, or by `host`, `model`, `engine` or
        `gpu`: the names of its things, one of which has to match (or none of which may); `verdict=kv` by what is not
        well.
        A bare word is a part of one of those names;
        with `*`, `?` or `[` in it, it is a glob. Quotes hold words with spaces together.
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
        """The labels that it goes by, but those that everything has (`KINDS`)."""
        labels = []
        for term in self._terms:
            if term.label and term.label.lower() not in KINDS:
                labels.append(term.label)
        return tuple(dict.fromkeys(labels))

    def matches(self, row: HostShown | FleetRow) -> bool:
        """Whether a host, or a row, is among what was asked for."""
        if not self._terms:
            return True
        if isinstance(row, FleetRow):
            texts = _texts_of_row(row, self.labels)
        else:
            texts = _texts_of_host(row, self.labels)
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
    return re.sub(r"\"([^\"]*)\"|'([^']*)'", lambda quoted: quoted[1] or quoted[2] or "", text)


def _glob(glob: str) -> Callable[[str], object]:
    return re.compile(translate(glob.lower())).match


def _matches(term: _Term, texts: _Texts) -> bool:
    if not term.label:
        return _matches_any_name(term, texts)
    names = texts.by_kind.get(term.label.lower())
    if names is None or term.label in texts.labels:
        names = (*texts.labels.get(term.label, ("",)), *(names or ()))
    return any(term.pattern(text) for text in names) is term.wanted


def _matches_any_name(term: _Term, texts: _Texts) -> bool:
    """Whether a bare word is in the name of anything; what is wrong with a thing is no name of it."""
    for kind, names in texts.by_kind.items():
        if kind != _VERDICT and any(term.pattern(name) for name in names):
            return True
    return False


def _label_values(
    labels: Mapping[str, str], hosts: Sequence[HostShown], wanted: Iterable[str]
) -> dict[str, tuple[str, ...]]:
    """The labels of a row, and the owners by each of the wanted ones that it has not."""
    values: dict[str, tuple[str, ...]] = {name: (value.lower(),) for name, value in labels.items()}
    for label in wanted:
        if label in values and label not in OF_SCRAPED_PODS:
            continue
        owners: set[str] = set()
        for host in hosts:
            owners |= owners_on(host, label)
        values[label] = tuple(owner.lower() for owner in sorted(owners)) or ("",)
    return values


def _texts_of_host(host: HostShown, wanted: Iterable[str]) -> _Texts:
    snapshot = host.snapshot
    return _Texts(
        _label_values(host.labels, (host,), wanted),
        {
            "host": (host.name.lower(), *_lower([snapshot.host.name])),
            "model": _lower(engine.model for engine in snapshot.engines),
            "engine": _engine_names(snapshot.engines),
            "gpu": _gpu_names(snapshot.gpus),
            _VERDICT: _verdict_names(snapshot.verdicts),
        },
    )


def _texts_of_row(row: FleetRow, wanted: Iterable[str]) -> _Texts:
    parts = row.parts
    return _Texts(
        _label_values(row.labels, parts.hosts, wanted),
        {
            "host": _lower(row.hosts),
            "model": _lower(row.models),
            "engine": _engine_names(served.engine for served in parts.engines),
            "gpu": _gpu_names(placed.gpu for placed in parts.gpus),
            _VERDICT: _verdict_names(_verdicts_on(row)),
        },
    )


def _engine_names(engines: Iterable[Engine]) -> tuple[str, ...]:
    """The engines' own names and those of their software."""
    names = []
    for engine in engines:
        names += [engine.name, engine.kind.value]
    return _lower(names)


def _gpu_names(gpus: Iterable[Gpu]) -> tuple[str, ...]:
    """The GPUs' names as the driver and the catalogue have them."""
    names = []
    for gpu in gpus:
        names += [gpu.name, gpu.gpu_type]
    return _lower(names)


def _verdicts_on(row: FleetRow) -> Iterator[Verdict]:
    """The verdicts on the hosts of a row, as far as they are about it."""
    keys = {placed.gpu.uuid for placed in row.parts.gpus}
    keys |= {served.engine.key for served in row.parts.engines}
    for host in row.parts.hosts:
        for verdict in host.snapshot.verdicts:
            if not verdict.key or verdict.key in keys:
                yield verdict


def _verdict_names(verdicts: Iterable[Verdict]) -> tuple[str, ...]:
    """Names of what is not well; where all is, of that."""
    bad = []
    good = []
    for verdict in verdicts:
        if verdict.level is Level.OK:
            good.append(verdict.code)
        else:
            bad.append(verdict.code)
    names = []
    for limit in dict.fromkeys(bad or good):
        names += [limit.value, LIMIT_NAMES[limit], NARROW[limit], BRIEF[limit]]
    return _lower(names)


def _lower(names: Iterable[str]) -> tuple[str, ...]:
    """The names in lower case, each once; no empty one."""
    lower = dict.fromkeys(name.lower() for name in names)
    lower.pop("", None)
    return tuple(lower)
