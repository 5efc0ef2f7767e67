"""The common contract of all engine adapters: cases from tests/data/pages, how one is read, and what must always hold.

A case is a file tests/data/pages/<kind>/<case>.expected.json, where <kind> is the value of the `EngineKind`:

    {"polls": [{"/metrics": "basic.prom", "/slots": "basic.slots.json"}, ...],
     "expected": [{"model": "m",
                   "ranks": {"0": {"counters": {...}, "gauges": {...}, "histograms": {"ttft_s": [3, 0.4]}}},
                   "live": {...}, "advance": {...}, "info": {...}, "exact_steps": true, "tp": 2, ...}]}

`polls` are read one after the other by one adapter, since it may remember; the first is what the engine is told by.
A body is a file beside the case, or {"capture": "llamacpp-basic", "t": 40, "of": "slots"}: what a recorded server
answered at that second (`of` is `metrics` where it is left out). `expected` holds a part for each model that the last
poll gives, none where it is no page of an engine yet. `ranks` and `advance` are compared whole (histograms as
[count, sum]); of `live` and `info` only the keys given; any other field of `EngineReading` where it is given.

    python -m tests.sources.engines.contract KIND/CASE          # prints what is read of a case
    python -m tests.sources.engines.contract KIND/CASE PAGE     # makes a case of a page: a file, or a URL

The second command writes CASE.prom and CASE.expected.json, to be checked by hand: what is expected is what was read.
"""

from __future__ import annotations

import argparse
import json
import math
import urllib.request
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from gpumon.figures.engine import ENGINE
from gpumon.readings import quantities
from gpumon.readings.frame import Advance, EngineReading, HistogramReading
from gpumon.sources.endpoint import NO_SCAN
from gpumon.sources.engines.adapter import Adapter, FirstAnswer
from gpumon.sources.engines.detect import sample_names
from gpumon.sources.engines.page_figures import Bodies
from gpumon.sources.engines.registry import BY_KIND, EngineRow
from gpumon.sources.exposition import Scanner
from tests.fakes.engine import Capture

PAGES: Final = Path(__file__).parent.parent.parent / "data" / "pages"
END: Final = ".expected.json"
QUANTITIES: Final = frozenset(
    [
        *(value for name, value in vars(quantities).items() if name.isupper()),
        *(name for row in ENGINE.values() for name in (row.counts, row.gauge) if name),
    ]
)
"""Names of quantities that some code reads, or that the row of a figure shows."""


class Case:
    """One case, by its file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.name = f"{file.parent.name}/{file.name.removesuffix(END)}"

    @property
    def row(self) -> EngineRow:
        """The engine that it is a case of."""
        return next(row for kind, row in BY_KIND.items() if kind.value == self.file.parent.name)

    @cached_property
    def _said(self) -> Mapping[str, Any]:
        said: Mapping[str, Any] = json.loads(self.file.read_text(encoding="utf-8"))
        return said

    @property
    def expected(self) -> Sequence[Mapping[str, Any]]:
        """The parts of the last poll."""
        found: Sequence[Mapping[str, Any]] = self._said["expected"]
        return found

    @cached_property
    def polls(self) -> tuple[Bodies, ...]:
        """What the server answered, poll by poll."""
        return tuple({path: self._body(body) for path, body in poll.items()} for poll in self._said["polls"])

    @property
    def page(self) -> FirstAnswer:
        """The first answer, by which the engine is told."""
        path = metrics_path(self.row, self.polls[0])
        body = self.polls[0][path]
        return FirstAnswer(path, frozenset(sample_names(body)), body)

    def _body(self, said: str | Mapping[str, Any]) -> bytes:
        if isinstance(said, str):
            return (self.file.parent / said).read_bytes()
        return Capture(said["capture"]).answer(said.get("of", "metrics"), said["t"]).body


class Reader:
    """An adapter with its scanner, as an endpoint holds them."""

    def __init__(self, row: EngineRow, scanner: Scanner | None = None) -> None:
        """`scanner`: one that has read pages of the engine before, which is faster."""
        self.row = row
        self.adapter: Adapter = row.adapter()
        self.scanner = scanner or Scanner(self.adapter.wanted_names)

    def read(self, bodies: Bodies) -> tuple[EngineReading, ...]:
        """All parts of one poll."""
        path = metrics_path(self.row, bodies)
        scan = NO_SCAN if path in self.row.json_paths else self.scanner.scan(bodies[path])
        return self.adapter.read_all(scan, bodies)


def metrics_path(row: EngineRow, bodies: Bodies) -> str:
    """The first of the engine's metrics pages that answered."""
    return next(path for path in row.paths if path in bodies)


def cases() -> list[Case]:
    """All cases of all engines."""
    return [Case(file) for file in sorted(PAGES.glob(f"*/*{END}"))]


def told(page: EngineReading, expected: Collection[str]) -> dict[str, Any]:
    """A part in the form of its expectation, as far as that says something of it."""
    said: dict[str, Any] = {
        **{name: getattr(page, name) for name in expected},
        "ranks": {
            rank.rank: {
                "counters": dict(rank.counters),
                "gauges": dict(rank.gauges),
                "histograms": {name: [one.count, one.sum] for name, one in rank.histograms.items()},
            }
            for rank in page.ranks
        },
        "advance": {quantity: advance.value for quantity, advance in page.advance.items()},
    }
    if "backends" in expected:
        said["backends"] = {
            backend.rank: {"counters": dict(backend.counters), "gauges": dict(backend.gauges)}
            for backend in page.backends
        }
    for name in {"live", "info"}.intersection(expected):
        wanted_keys = expected[name] if isinstance(expected, Mapping) else getattr(page, name)
        said[name] = {key: value for key, value in getattr(page, name).items() if key in wanted_keys}
    return said


def wanted(expected: Mapping[str, Any]) -> dict[str, Any]:
    """An expectation with what it leaves out filled in."""
    ranks = {
        name: {"counters": {}, "gauges": {}, "histograms": {}, **rank}
        for name, rank in expected.get("ranks", {}).items()
    }
    filled = {**expected, "ranks": ranks, "advance": expected.get("advance", {})}
    if "backends" in expected:
        blank: dict[str, Any] = {"counters": {}, "gauges": {}}
        filled["backends"] = {name: {**blank, **backend} for name, backend in expected["backends"].items()}
    return filled


def differences(read: Any, expected: Any, path: str = "") -> Iterator[str]:
    """Where a part is not as expected, as `ranks.0.gauges.waiting: read 3.0, expected 2.0`."""
    if isinstance(read, dict) and isinstance(expected, dict):
        for key in sorted({*read, *expected}):
            yield from differences(read.get(key, "nothing"), expected.get(key, "nothing"), f"{path}.{key}".lstrip("."))
    elif read != expected:
        yield f"{path}: read {read}, expected {expected}"


def check(parts: Sequence[EngineReading]) -> None:
    """What must hold of any answer, however broken its page: raises AssertionError."""
    assert len({part.part for part in parts}) == len(parts)
    for part in parts:
        quantities_seen = {
            name for rank in part.ranks for kind in (rank.counters, rank.gauges, rank.histograms) for name in kind
        }
        assert part.ranks, "a part without figures must be left out"
        assert len({rank.rank for rank in part.ranks}) == len(part.ranks)
        assert quantities_seen <= QUANTITIES, f"nothing shows {sorted(quantities_seen - QUANTITIES)}"
        assert quantities_seen <= part.live.keys(), "each figure names the metric that it was read from"
        assert all(part.live.values())
        assert part.advance.keys() <= part.live.keys()
        assert all(isinstance(advance, Advance) for advance in part.advance.values())
        assert not part.exact_steps or quantities.STEPS in part.live
        assert all(isinstance(text, str) for pair in part.info.items() for text in pair)
        assert all(isinstance(text, str) for text in (part.model, part.model_root, part.version, part.part))
        assert 0.0 <= part.started_wall_s < math.inf
        assert all(isinstance(count, int) and count >= 0 for count in (part.tp, part.pp, part.dp))
        for rank in part.ranks:
            _check_figures((rank.counters, rank.gauges))
            for histogram in rank.histograms.values():
                _check_histogram(histogram)
        assert len({backend.rank for backend in part.backends}) == len(part.backends)
        for backend in part.backends:
            assert {*backend.counters, *backend.gauges} <= QUANTITIES
            _check_figures((backend.counters, backend.gauges))


def _check_figures(kinds: Sequence[Mapping[str, float]]) -> None:
    for values in kinds:
        for quantity, value in values.items():
            assert 0.0 <= value < math.inf, (quantity, value)


def _check_histogram(histogram: HistogramReading) -> None:
    assert histogram.bounds[-1] == math.inf
    assert len(histogram.bounds) == len(histogram.counts)
    assert all(low < high for low, high in pairwise(histogram.bounds))
    assert all(0.0 <= low <= high < math.inf for low, high in pairwise(histogram.counts))
    assert 0.0 <= histogram.count < math.inf
    assert 0.0 <= histogram.sum < math.inf


def figures(parts: Sequence[EngineReading]) -> dict[tuple[str, str, str], float]:
    """(part, rank, quantity) -> value, of all counters and gauges."""
    return {
        (part.part, rank.rank, quantity): value
        for part in parts
        for rank in part.ranks
        for values in (rank.counters, rank.gauges)
        for quantity, value in values.items()
    }


def sources(parts: Sequence[EngineReading]) -> dict[tuple[str, str], str]:
    """(part, quantity) -> the metric that it was read from."""
    return {(part.part, quantity): metric for part in parts for quantity, metric in part.live.items()}


SHOWN: Final = (
    *("model", "model_root", "version", "part", "started_wall_s", "exact_steps", "live", "info", "tp", "pp", "dp"),
)
"""Fields of a reading that the commands show, beside its figures."""


def read_of(case: Case) -> list[dict[str, Any]]:
    """The parts that a case's last poll gives."""
    reader = Reader(case.row)
    parts = [reader.read(bodies) for bodies in case.polls][-1]
    return [told(part, (*SHOWN, "backends") if part.backends else SHOWN) for part in parts]


def make_case(name: str, page: str) -> Case:
    """Write a case of one page, with what is read of it. Exits where there is no such engine, or no page."""
    kind, _, stem = name.partition("/")
    known = {row.kind.value: row for row in BY_KIND.values()}
    if kind not in known or not stem:
        raise SystemExit(f"{name}: want KIND/CASE; KIND is one of {', '.join(sorted(known))}")
    file = PAGES / kind / f"{stem}{END}"
    file.parent.mkdir(exist_ok=True)
    file.with_name(f"{stem}.prom").write_bytes(_fetched(page))
    path = known[kind].paths[0]
    case = {"polls": [{path: f"{stem}.prom"}], "expected": []}
    _write(file, case)
    case["expected"] = read_of(Case(file))
    _write(file, case)
    return Case(file)


def _fetched(page: str) -> bytes:
    """The text of a metrics page. Raises OSError."""
    if "://" not in page:
        return Path(page).read_bytes()
    with urllib.request.urlopen(page, timeout=10.0) as answer:
        body: bytes = answer.read()
    return body


def _write(file: Path, case: Mapping[str, Any]) -> None:
    file.write_text(f"{json.dumps(case, indent=1)}\n", encoding="utf-8")


def main() -> None:
    """Print a case, or make one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", metavar="KIND/CASE")
    parser.add_argument("page", nargs="?", metavar="PAGE", help="metrics page to make a new case of: a file or a URL")
    given = parser.parse_args()
    if given.page:
        case = make_case(given.case, given.page)
        print(f"wrote {case.file.with_name(case.file.name.replace(END, '.prom'))} and {case.file}: check it by hand")
        return
    known = {case.name: case for case in cases()}
    if given.case not in known:
        raise SystemExit(f"there is no case {given.case}; to make it, give its page, too")
    for part in read_of(known[given.case]):
        print(json.dumps(part, indent=1))


if __name__ == "__main__":
    main()
