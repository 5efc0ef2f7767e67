"""The scanner against prometheus_client's parser, line by line against the format's odd corners, and its bounds."""

from __future__ import annotations

import json
import math
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from gpumon.sources import exposition
from gpumon.sources.engines.vllm import VllmAdapter
from gpumon.sources.exposition import Scanner
from tests.each_row import each_row
from tests.fakes.engine import Capture

CAPTURES = (
    "vllm-apikey",
    "vllm-basic",
    "vllm-dp2",
    "vllm-hang-and-dead-engine",
    "vllm-lifecycle",
    "vllm-mfu-queue-prefix-abort",
    "vllm-nostats",
    "vllm-poisson",
    "vllm-starved-host",
    "prometheus-api",
)
Key = tuple[str, frozenset[tuple[str, str]]]


def scanned(scanner: Scanner, body: bytes) -> dict[Key, float]:
    return {
        (series.name, frozenset(series.labels.items())): value for series, value in scanner.scan(body).values.items()
    }


def parsed(body: str, names: frozenset[str]) -> dict[Key, float]:
    """What prometheus_client makes of a page; of duplicates the last."""
    return {
        (sample.name, frozenset(sample.labels.items())): float(sample.value)
        for family in text_string_to_metric_families(body)
        for sample in family.samples
        if sample.name in names
    }


def same(ours: dict[Key, float], theirs: dict[Key, float]) -> bool:
    return ours.keys() == theirs.keys() and all(
        value == theirs[key] or (math.isnan(value) and math.isnan(theirs[key])) for key, value in ours.items()
    )


@each_row("name", CAPTURES)
def test_recorded_pages_read_as_prometheus_client_reads_them(name: str) -> None:
    """Every tenth: the pages of a capture have the same lines and other values, and its client takes long."""
    wanted = VllmAdapter().wanted_names | {"http_requests_total", "python_info", "process_cpu_seconds_total"}
    scanner = Scanner(wanted)
    pages = [scrape.body for scrape in Capture(name).scrapes if scrape.status == 200]
    assert pages
    for body in pages[::10]:
        assert same(scanned(scanner, body), parsed(body.decode(), wanted))
        assert scanner.scan(body)[1:] == (0, 0, False, False)


SAMPLES = [
    ("x 1", 1.0),
    ("x +Inf", math.inf),
    ("x NaN", math.nan),
    ("x -nan(ind)", math.nan),
    ("x 1.0 1700000000000", 1.0),
    ("x 1.0\r", 1.0),
    ("x{} 1.0", 1.0),
    ("x 9007199254740993", 9007199254740992.0),
    ('x 5 # {trace_id="a b"} 0.5 1.7e9', 5.0),
    ("x 5 1700000000 # {} 0.5", 5.0),
]


@each_row(("line", "value"), SAMPLES, named=[line for line, _ in SAMPLES])
def test_a_value_in_every_spelling(line: str, value: float) -> None:
    for page in (line, f"{line}\n", f"{line}\n# EOF\n"):
        scan = Scanner({"x"}).scan(page.encode())
        assert [(series.name, series.labels) for series in scan.values] == [("x", {})]
        assert list(scan.values.values()) == pytest.approx([value], nan_ok=True)
        assert scan.skipped == 0


LABELS = [
    (r'x{a="b",} 1', {"a": "b"}),
    (r'x{ a = "b" , c = "d" } 1', {"a": "b", "c": "d"}),
    (r'x{a="b"}1', {"a": "b"}),
    (r'x{a="q\"q"} 1', {"a": 'q"q'}),
    (r'x{a="line\nfeed"} 1', {"a": "line\nfeed"}),
    (r'x{a="not\\na feed"} 1', {"a": r"not\na feed"}),
    (r'x{a="\x kept"} 1', {"a": r"\x kept"}),
    (r'x{a="}",b=","} 1', {"a": "}", "b": ","}),
    (r'x{a="org/model: v 1 # {no exemplar} 2"} 1', {"a": "org/model: v 1 # {no exemplar} 2"}),
    (r'x{a="模型 é"} 1', {"a": "模型 é"}),
    (r'{"x",a="b"} 1', {"a": "b"}),
    (r'x{"a.b"="c"} 1', {"a.b": "c"}),
    (r'x{a="b"} 1 1700000000000', {"a": "b"}),
]


@each_row(("line", "labels"), LABELS, named=[line for line, _ in LABELS])
def test_labels_in_every_spelling(line: str, labels: dict[str, str]) -> None:
    scanner = Scanner({"x"})
    for _ in range(2):
        scan = scanner.scan(line.encode())
        assert [(series.name, series.labels) for series in scan.values] == [("x", labels)]
        assert list(scan.values.values()) == [1.0]
        assert scan.skipped == 0


def test_comments_blanks_and_families_without_samples_are_no_garbage() -> None:
    body = (
        b"# HELP x what\\nit is\n# TYPE x gauge\n#\n\n   \n# free words\nx 1\n# TYPE y histogram\n\t# indented\n# EOF"
    )
    scan = Scanner({"x", "y_bucket"}).scan(body)
    assert [(series.name, value) for series, value in scan.values.items()] == [("x", 1.0)]
    assert scan.skipped == 0


def test_of_a_series_that_stands_twice_the_last_value_holds_and_it_is_flagged() -> None:
    scanner = Scanner({"x"})
    for _ in range(2):
        scan = scanner.scan(b'x{a="1",b="2"} 1\nx{a="3"} 7\nx{b="2", a="1"} 5\n')
        assert sorted(scan.values.values()) == [5.0, 7.0]
        assert scan.duplicates == 1


@pytest.mark.parametrize(
    "line", ['x{a="1",a="2"} 3', 'x{a="1",b="2",a="1"} 3', '{"x","y"} 1', '{"x",a="1","y"} 1', 'x{"x"} 1', 'x{"y"} 1']
)
def test_a_series_with_a_label_or_a_name_twice_is_none(line: str) -> None:
    scanner = Scanner({"x", "y"})
    for _ in range(2):
        scan = scanner.scan(f"{line}\nx 7\n".encode())
        assert [*scan.values.values()] == [7.0]
        assert scan.skipped == 1


def test_a_series_that_stands_twice_counts_once_on_a_page_of_more_series_than_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exposition, "MOST_KNOWN_BYTES", 1)
    scan = Scanner({"x"}).scan(b'x{a="3"} 7\nx{a="1",b="2"} 1\nx{b="2",a="1"} 5\n')
    assert [*scan.values.values()] == [7.0, 5.0]
    assert scan.duplicates == 1


names = st.sampled_from(["x", "y_total", "vllm:z_bucket", "unwanted"])
label_names = st.sampled_from(["a", "engine", "le", "model_name"])
label_values = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
numbers = st.one_of(
    st.floats().map(repr),
    st.integers(-(2**60), 2**60).map(str),
    st.sampled_from(["+Inf", "-Inf", "NaN", "nan", "1e+06"]),
)
gaps = st.sampled_from([" ", "  "])
noise = st.sampled_from(
    ["", "   ", "# a comment", "# HELP x words \\n of \\\\ help", "# TYPE x gauge", "# TYPE y_total counter"]
)


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


@st.composite
def sample_lines(draw: st.DrawFn) -> str:
    labels = draw(st.dictionaries(label_names, label_values, max_size=3))
    comma = draw(st.sampled_from([",", ", ", " ,"]))
    inside = comma.join(f'{name}="{escaped(value)}"' for name, value in labels.items())
    braces = f"{{{inside}{draw(st.sampled_from(['', ',']))}}}" if labels else draw(st.sampled_from(["", "{}"]))
    stamp = draw(st.sampled_from(["", " 1700000000000"]))
    return f"{draw(names)}{braces}{draw(gaps)}{draw(numbers)}{stamp}"


@st.composite
def pages(draw: st.DrawFn) -> str:
    lines = draw(st.lists(st.one_of(sample_lines(), noise), max_size=12))
    end = draw(st.sampled_from(["\n", "\r\n"]))
    return end.join(lines) + draw(st.sampled_from(["", end]))


WANTED = frozenset({"x", "y_total", "vllm:z_bucket"})


@given(st.lists(pages(), min_size=1, max_size=3))
def test_made_up_pages_read_as_prometheus_client_reads_them(made: list[str]) -> None:
    scanner = Scanner(WANTED)
    for page in [*made, *made]:
        assert same(scanned(scanner, page.encode()), parsed(page, WANTED))
        assert scanner.scan(page.encode()).skipped == 0


@given(st.lists(st.one_of(st.binary(max_size=60), sample_lines().map(str.encode)), max_size=8))
def test_any_bytes_at_all_raise_nothing_and_are_read_the_same_twice(lines: list[bytes]) -> None:
    page, scanner = b"\n".join(lines), Scanner(WANTED)
    first, second = scanner.scan(page), scanner.scan(page)
    assert {series.name for series in first.values} <= WANTED
    assert json.dumps(list(first.values.values())) == json.dumps(list(second.values.values()))
    assert first[1:] == second[1:]


def test_a_line_beyond_the_bound_is_skipped() -> None:
    long = b'x{a="' + b"m" * exposition.MOST_LINE_BYTES + b'"} 1\n'
    scan = Scanner({"x"}).scan(long + b"x 2\n")
    assert list(scan.values.values()) == [2.0]
    assert scan.skipped == 1


def test_a_long_label_value_is_cut_and_the_series_kept() -> None:
    scan = Scanner({"x"}).scan(b'x{model_name="' + b"m" * 10_000 + b'",engine="0"} 1\n')
    assert [len(series.labels["model_name"]) for series in scan.values] == [exposition.MOST_LABEL_CHARS]


def test_samples_beyond_the_bound_are_left_out_and_that_is_said() -> None:
    body = b"".join(b'x{n="%d"} 1\n' % n for n in range(exposition.MOST_SAMPLES + 5))
    scan = Scanner({"x"}).scan(body)
    assert len(scan.values) == exposition.MOST_SAMPLES
    assert scan.cut


def test_lines_beyond_the_bound_are_left_out_and_that_is_said() -> None:
    scan = Scanner({"x"}).scan(b"x 1\n" + b"\n" * exposition.MOST_LINES + b"x 2\n")
    assert list(scan.values.values()) == [1.0]
    assert scan.cut


def test_pages_of_ever_new_series_do_not_grow_the_memory_without_bound() -> None:
    scanner = Scanner({"x"})

    def page(number: int) -> bytes:
        return b"".join(
            b'x{id="%d-%d-%s"} 1\nother{id="%d-%d"} 1\n' % (number, n, b"f" * 3000, number, n) for n in range(300)
        )

    pages = [page(number) for number in range(12)]
    tracemalloc.start()
    try:
        for body in pages:
            assert len(scanner.scan(body).values) == 300
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < 8 * 2**20


tails = st.sampled_from(
    ["1", "2", "10", "3.5", "NaN", "-nan(ind)", "1_0", " 4", "5 ", "6 1700000000", "\t7", "8\r", "x", "9 # {} 1"]
)
heads = st.sampled_from(
    ["x ", 'x{a="1"} ', 'x{a="#"} ', 'y_total{a="b c"} ', "unwanted ", "unwanted_too{} ", "# x ", ""]
)


@given(
    st.lists(heads, max_size=7),
    st.lists(st.tuples(st.lists(tails, min_size=7, max_size=7), st.integers(0, 6), heads), min_size=2, max_size=6),
    st.sampled_from(["", "\n"]),
)
def test_pages_that_differ_here_and_there_are_read_as_they_stand(
    starts: list[str], made: list[tuple[list[str], int, str]], end: str
) -> None:
    """Line by line the same but for the values, and one line in some of them."""
    scanner = Scanner(WANTED)
    for number, (values, at, other) in enumerate(made):
        lines = [head + value for head, value in zip(starts, values, strict=False)]
        if number % 3 == 2:
            lines[at : at + 1] = [other + "1"]
        body = ("\n".join(lines) + end).encode()
        found, fresh = scanner.scan(body), Scanner(WANTED).scan(body)
        told, anew = ([(one.name, one.labels, value) for one, value in scan.values.items()] for scan in (found, fresh))
        assert str(told) == str(anew)
        assert found[1:] == fresh[1:]


def test_a_number_with_an_underscore_is_none_in_any_page() -> None:
    """Python reads `1_000` as 1000; no exporter means that."""
    fresh = Scanner({"x"}).scan(b"x 1_000\n")
    assert (fresh.values, fresh.skipped) == ({}, 1)
    scanner = Scanner({"x"})
    values = [[*scanner.scan(body).values.values()] for body in (b"x 5\ny 1\n", b"x 6\ny 1\n", b"x 1_000\ny 1\n")]
    assert values == [[5.0], [6.0], []]


@each_row(("count", "kept"), [(128, True), (129, False)])
def test_a_series_with_more_labels_than_the_bound_is_skipped(count: int, kept: bool) -> None:
    labels = ",".join(f'a{number}="b"' for number in range(count))
    scan = Scanner({"x"}).scan(f"x{{{labels}}} 1\n".encode())
    assert (len(scan.values), scan.skipped) == ((1, 0) if kept else (0, 1))
