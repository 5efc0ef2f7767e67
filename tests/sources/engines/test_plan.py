"""A page that is read by the plan of the one before: as one that is read anew, whatever changed between them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpumon.readings import quantities as q
from gpumon.readings.frame import EngineReading
from gpumon.sources.engines.sglang import SglangAdapter
from gpumon.sources.engines.vllm import VllmAdapter
from gpumon.sources.exposition import Scanner
from tests.each_row import each_row
from tests.fakes.engine import Capture

PAGE_WITH_NAN = b'sglang:num_running_reqs{tp_rank="0"} 1\nsglang:num_transfer_failed_reqs_total{tp_rank="0"} NaN\n'
TTFT = "vllm:time_to_first_token_seconds"


class Reader:
    """An adapter with its scanner; `anew`: both forget how the last page was read, and nothing else."""

    def __init__(self, *, anew: bool = False) -> None:
        self._anew = anew
        self._adapter = VllmAdapter()
        self._scanner = Scanner(self._adapter.wanted_names)

    def read(self, page: bytes) -> EngineReading:
        if self._anew:
            self._scanner = Scanner(self._adapter.wanted_names)
            self._adapter._layout = None
        return self._adapter.read(self._scanner.scan(page))


def recorded(name: str) -> list[bytes]:
    return [scrape.body for scrape in Capture(name).scrapes if scrape.status == 200]


@each_row("name", ["vllm-dp2", "vllm-lifecycle", "vllm-mfu-queue-prefix-abort", "vllm-0.9"])
def test_recorded_pages_read_as_ones_read_anew(name: str) -> None:
    """Every third: the pages between differ in their values alone."""
    by_plan = Reader()
    anew = Reader(anew=True)
    for page in recorded(name)[::3]:
        assert by_plan.read(page) == anew.read(page)


def series(rank: int, value: str, bucket: str) -> str:
    """The lines of one rank: a counter in two parts, a gauge, and a histogram."""
    of = f'engine="{rank}"'
    return (
        f'vllm:generation_tokens_total{{{of},model_name="m"}} {value}\n'
        f'vllm:request_success_total{{{of},finished_reason="stop"}} 4\n'
        f'vllm:request_success_total{{{of},finished_reason="length"}} {value}\n'
        f"vllm:num_requests_running{{{of}}} {value}\n"
        f'{TTFT}_bucket{{{of},le="0.5"}} {bucket}\n'
        f'{TTFT}_bucket{{{of},le="+Inf"}} 9\n'
        f"{TTFT}_sum{{{of}}} 3.5\n"
        f"{TTFT}_count{{{of}}} 9\n"
    )


values = st.sampled_from(["5", "5", "6", "7.0", "NaN", "-1", "+Inf", "0", "1e40"])
buckets = st.sampled_from(["2", "2", "3", "10", "NaN"])
ranks = st.lists(st.builds(series, st.sampled_from([0, 0, 1, 2]), values, buckets), max_size=3, unique=True)
lost = st.one_of(st.none(), st.none(), st.integers(0, 23))


@st.composite
def pages(draw: st.DrawFn) -> bytes:
    lines = "".join(draw(ranks)).splitlines(keepends=True)
    at = draw(lost)
    return "".join(lines if at is None else lines[:at] + lines[at + 1 :]).encode()


@given(st.lists(pages(), min_size=2, max_size=10))
def test_pages_that_change_in_every_way_read_as_ones_read_anew(made: list[bytes]) -> None:
    by_plan, anew = Reader(), Reader(anew=True)
    for page in made:
        assert by_plan.read(page) == anew.read(page)


def test_a_value_that_is_none_for_a_while_leaves_its_figure_out_for_that_long() -> None:
    reader = Reader()
    read = [
        reader.read(series(0, value, "2").encode()).ranks[0].counters.get(q.DECODE_TOKENS)
        for value in ("5", "NaN", "6")
    ]
    assert read == [5.0, None, 6.0]


def test_a_histogram_without_a_new_observation_is_the_same_object() -> None:
    reader = Reader()
    first, second, third = (
        reader.read(series(0, value, bucket).encode()).ranks[0].histograms[q.TTFT]
        for value, bucket in (("5", "2"), ("6", "2"), ("7", "3"))
    )
    assert second is first
    assert (third.counts, third.bounds) == ((3.0, 9.0), first.bounds)


def test_a_sample_that_no_table_has_may_be_no_number() -> None:
    adapter = SglangAdapter()
    scanner = Scanner(adapter.wanted_names)
    for _ in range(2):
        assert adapter.read(scanner.scan(PAGE_WITH_NAN)).ranks
        assert adapter._layout is not None, "the next page is read by the plan all the same"
