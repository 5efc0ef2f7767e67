"""Every adapter on every page of tests/data/pages, whole and broken in every way."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from gpumon.sources.engines.adapter import EngineRow, FirstAnswer
from gpumon.sources.engines.detect import sample_names
from gpumon.sources.engines.registry import ENGINE_ROWS, claiming_row
from tests.sources.engines.contract import END, Case, Reader, cases, check, differences, figures, sources, told, wanted
from tests.sources.engines.table import DOC

CASES: Final = cases()
WHOLE: Final = [case for case in CASES if case.expected]
"""Those whose page is one of a running engine."""
EXAMPLES: Final = settings.default.max_examples // 12
"""Examples of each case; its pages are broken in other ways than in tests/accuracy, where each is shown to its end."""
ANY: Final = st.integers(0, 1 << 16)
"""Drawn first, and not 0: hypothesis begins with the least of each choice, which is the same fault for every page."""
BROKEN_TEXTS: Final = (
    b"NaN",
    b"nan",
    b"-nan(ind)",
    b"-1",
    b"+Inf",
    b"-Inf",
    b"1e400",
    b"1e308",
    b"",
    b"x",
    b"0x10",
    b"1_000",
    b"\xff\xfe\x00",
)
"""What stands where a value was."""
BROKEN_VALUES: Final[tuple[Any, ...]] = (
    None,
    True,
    -1,
    -0.5,
    1e308,
    10**400,
    2**64,
    "",
    "x",
    "\x1b[31m\x00\ud800",
    [],
    {},
    [[]],
    [{}],
    {"": None},
)


def test_the_engine_that_the_docs_add_is_read() -> None:
    """docs/engines.md shows how an engine is added: what stands there is an adapter."""
    (code,) = re.findall(r"```python\n(.*?)```", DOC.read_text(encoding="utf-8"), re.DOTALL)
    module: dict[str, Any] = {}
    exec(code.replace("EngineKind.ACME", "EngineKind.GENERIC"), module)
    page = b'acme_tokens_out_total{dp_rank="1",model="m"} 7\nacme_queue{model="m"} 2\n'
    row: EngineRow = module["ENGINE"]
    (part,) = Reader(row).read({"/metrics": page})
    check((part,))
    assert (part.model, [rank.rank for rank in part.ranks]) == ("m", ["0", "1"])
    assert figures((part,)) == {("", "1", "decode_tokens"): 7.0, ("", "0", "waiting"): 2.0}
    assert claiming_row(FirstAnswer("/metrics", frozenset(sample_names(page)), page), (row,)) is row


def named(case: Case) -> str:
    return case.name


@pytest.mark.parametrize("case", CASES, ids=named)
def test_a_page_becomes_its_canonical_reading(case: Case):
    """A companion of its page that does not answer takes nothing but its own."""
    reader = Reader(case.row)
    for bodies in case.polls:
        parts = reader.read(bodies)
        check(parts)
    assert len(parts) == len(case.expected)
    for part, expected in zip(parts, case.expected, strict=True):
        found = list(differences(told(part, expected), wanted(expected)))
        assert found == [], f"{case.name}{END}: {'; '.join(found)}"
    if case.expected:
        assert claiming_row(case.page, tuple(row for row in ENGINE_ROWS if case.page.path in row.paths)) is case.row
    for bodies in case.polls:
        for path in bodies.keys() - set(case.row.paths[:1]):
            rest = {other: body for other, body in bodies.items() if other != path}
            if any(other in rest for other in case.row.paths):
                check(Reader(case.row, reader.scanner).read(rest))


@pytest.mark.parametrize("case", WHOLE, ids=named)
def test_a_metric_that_is_not_there_is_no_zero(case: Case):
    bodies = case.polls[0]
    reader = Reader(case.row)
    whole = reader.read(bodies)
    before = figures(whole)
    from_ = sources(whole)
    for path, body in bodies.items():
        for name in _names_read(case, body):
            lines = [line for line in body.splitlines(keepends=True) if _name(line) != name]
            parts = Reader(case.row, reader.scanner).read({**bodies, path: b"".join(lines)})
            check(parts)
            now_from = sources(parts)
            for (part, rank, quantity), value in figures(parts).items():
                zeroed = value == 0.0 and before.get((part, rank, quantity), 0.0) != 0.0
                same = now_from[part, quantity] == from_.get((part, quantity))
                assert not (zeroed and same), f"{quantity} reads 0 without {name.decode()}"


@pytest.mark.parametrize("case", CASES, ids=named)
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_a_broken_page_is_read_without_a_fault(case: Case, data: st.DataObject):
    """Lines dropped, doubled, moved, cut or replaced; JSON values dropped, doubled or replaced; bytes cut."""
    assume(data.draw(ANY))
    reader = Reader(case.row)
    for bodies in case.polls[-2:]:
        broken = dict(bodies)
        for path in data.draw(st.lists(st.sampled_from(sorted(bodies)), min_size=1, max_size=2)):
            broken[path] = data.draw(_breaks(broken[path]))
        check(reader.read(broken))
        check(reader.read(bodies))


def _is_text(body: bytes) -> bool:
    return body.lstrip()[:1] not in (b"{", b"[")


def _names_read(case: Case, body: bytes) -> list[bytes]:
    """Sample names of a page that the adapter wants: the scanner gives it no others."""
    if not _is_text(body):
        return []
    wanted_names = {name.encode() for name in case.row.adapter().wanted_names}
    return sorted(wanted_names.intersection(map(_name, body.splitlines())))


def _name(line: bytes) -> bytes:
    return b"" if line.startswith(b"#") else line.split(b"{")[0].split(b" ")[0].strip()


@st.composite
def _breaks(draw: Callable[..., Any], body: bytes) -> bytes:
    if draw(st.integers(0, 3)) == 0:
        return body[: draw(st.integers(0, len(body)))]
    if _is_text(body):
        lines = body.splitlines(keepends=True)
        for _ in range(draw(st.integers(1, 4))):
            if lines:
                _break_line(draw, lines)
        return b"".join(lines)
    try:
        tree = json.loads(body)
    except ValueError:
        return body
    for _ in range(draw(st.integers(1, 3))):
        tree = _broken(draw, tree)
    return json.dumps(tree).encode()


def _break_line(draw: Callable[..., Any], lines: list[bytes]) -> None:
    at = draw(st.integers(0, len(lines) - 1))
    how = draw(st.integers(0, 5))
    if how == 0:
        del lines[at]
    elif how == 1:
        lines.append(lines[at])
    elif how == 2:
        lines.insert(draw(st.integers(0, len(lines) - 1)), lines.pop(at))
    elif how == 3:
        lines[at] = draw(st.binary(max_size=40)) + b"\n"
    elif how == 4:
        lines[at] = lines[at][: draw(st.integers(0, len(lines[at])))] + b"\n"
    else:
        lines[at] = lines[at].rpartition(b" ")[0] + b" " + draw(st.sampled_from(BROKEN_TEXTS)) + b"\n"


def _broken(draw: Callable[..., Any], tree: Any) -> Any:
    """The tree with one value dropped, doubled or replaced, at a random depth."""
    if not isinstance(tree, (dict, list)) or not tree or draw(st.integers(0, 4)) == 0:
        return copy.deepcopy(draw(st.sampled_from(BROKEN_VALUES)))
    key = draw(st.sampled_from(sorted(tree) if isinstance(tree, dict) else range(len(tree))))
    how = draw(st.integers(0, 5))
    if how == 0:
        del tree[key]
    elif how == 1 and isinstance(tree, list):
        tree.append(tree[key])
    else:
        tree[key] = _broken(draw, tree[key])
    return tree
