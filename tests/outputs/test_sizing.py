"""The text and the Markdown of a sizing: every figure with its unit, no line too wide, nothing interpreted."""

from __future__ import annotations

from typing import Any

from gpumon.outputs.sizing import markdown, report
from gpumon.outputs.sizing_data import SameGpus, group_servers
from gpumon.readings.format import cells
from gpumon.sizing.answer import Answer, GpuSlot, Limit, LimitKind, PlacedServer, Plans, Source
from gpumon.sizing.document.forms import amount_of_money, figure_text, gigabytes, watts
from tests.each_row import each_row
from tests.outputs import answers
from tests.records import replace

FULL = """\
sizing: chat
for 2027

need                9 instances, 22 GPUs, 4 servers, packed by memory and busy share; by memory alone 21 GPUs,
                    3 servers
warning             planning factor 1: no headroom for bursts
memory              796.5 GB
price               79.68 per hour for 4 whole servers
power               12.6 kW (the boards' limit, at most)
not known           price of tokens (not given), output (not given), energy (not given)

workload     target  per instance  instances  GPUs       servers  limit  memory each  source
large     500 users            16          5    20  3 (1 shared)  ITL       143.3 GB  measured -10..+10% !
small      12 req/s            16          4     2    1 (shared)  -         20.00 GB  roofline -15..+38%

plan                                instances  GPUs  servers    memory  price/h
by memory alone                             9    21        3  796.5 GB    59.76
by memory and busy share <- needed          9    22        4  796.5 GB    79.68

servers, by memory and busy share (these instances need no fewer)
  2 x server of 8 x H100 SXM 80GB: [large on 4 GPUs] x2
  1 x server of 8 x H100 SXM 80GB: [large on 4 GPUs] [small, small] x2 [free] x2
  1 x spare server of 8 x H100 SXM 80GB

servers, by memory alone (these instances need no fewer than 2)
  2 x server of 8 x H100 SXM 80GB: [large on 4 GPUs] x2
  1 x server of 8 x H100 SXM 80GB: [large on 4 GPUs] [small, small] x2 [free] x2

large
  model               acme/70b
  capacity            16 in flight each, 80% of the first limit (planning_factor); measured on vllm:8000, 16
                      is extrapolated, -10% to +10% on 955 reference rows, seen at 2026-01-02T14:03:22+01:00
  limits              20.7 in flight: ITL 40.0 ms at 20.7, goal 40.0 ms
                      85.2 in flight, KV: the KV cache holds 419,430 tokens, 5,500 a request
  each instance       4 GPUs, TP 4, 143.3 GB (seen), busy 90%, 1 spare
  at the target       60 in flight; 12 running each, ITL mean 31ms p95 45ms, TTFT mean 210ms p95 420ms, E2E
                      mean 8.4s; all together 1,234 tok/s, 7.14 req/s, 11.2 kW (the boards' limit, at most)
  goals               TPOT p95 33ms of 40ms (simulated), TTFT p95 – of 2.0s (unknown)
  one server lost     3 left, ITL mean 41ms p95 52ms: the ITL goal would be missed
  note                the p95 is not known

small
  model               acme/8b
  capacity            16 in flight each; roofline, -15% to +38% on 215 reference rows
  each instance       1 GPU, 20.00 GB (seen), busy 90%
  at the target       60 in flight; 12 running each, ITL mean 31ms p95 45ms, TTFT mean 210ms p95 420ms, E2E
                      mean 8.4s; all together 1,234 tok/s, 7.14 req/s, 11.2 kW (the boards' limit, at most)
  goals               TPOT p95 33ms of 40ms (simulated), TTFT p95 – of 2.0s (unknown)
"""


def test_the_whole_text() -> None:
    assert report(answers.full(), answers.SCENARIO, width=110) == FULL


def test_types_of_gpu_side_by_side_stand_below_the_sums() -> None:
    lines = report(answers.compared(), answers.SCENARIO, width=120).splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("GPU "))
    assert "  ".join(lines[at].split()) == "GPU  TP  inst  GPUs  servers  $/h  TPOT  p95  limit  max  power  from"
    planned, h100, l40s, marks, *words = lines[at + 1 : at + 7]
    assert planned.startswith("H100 SXM5 80GB + L40S (as planned)  4/1     9   22 ")
    assert "  ".join(h100.split()[3:]) == "4/1  9  22*  4  79.68  33ms/33ms  ITL/-  12.6  kW*  measured/roofline"
    assert l40s.split() == ["L40S", *["-"] * 9]
    assert marks == "L40S                large: no room"
    assert words[0] == "best                * fewest GPUs, least power"
    assert words[1].startswith("compared            same servers; TP of the fewest GPUs on each type")
    assert "| H100 SXM5 80GB | 4/1 | 9 | 22\\* |" in markdown(answers.compared(), answers.SCENARIO)


def test_without_an_answer_it_says_why_and_shows_no_number() -> None:
    text = report(answers.infeasible(), answers.SCENARIO, width=120)
    assert "no answer           large: not even one request at a time: TTFT 2.1 s, goal 1.0 s; more TP" in text
    assert "\nneed " not in text
    assert "by memory alone" not in text
    assert "\nservers" not in text
    assert "at the target" not in text


def test_where_one_workload_has_no_answer_it_says_what_the_others_take() -> None:
    text = report(answers.partly(), answers.SCENARIO)
    said = "4 instances, 2 GPUs, 1 server, packed by memory and busy share"
    assert text.splitlines()[3:5] == [
        "no answer           large: no room",
        f"need                without large: {said}",
    ]
    assert "memory              80.00 GB (without 1 of 2 workloads)" in text
    assert "power               1,400 W (the boards' limit, at most) (without 1 of 2 workloads)" in text
    assert "not known           price (no price), price of tokens (no price)" in text
    page = markdown(answers.partly(), answers.SCENARIO)
    assert f"- **need:** without large: {said}\n" in page
    assert "- **output:** 1,234 tok/s (without 1 of 2 workloads)\n" in page


def test_many_workloads_without_an_answer_are_counted() -> None:
    many = replace(answers.partly(), without=("a", "b", "c", "d", "e"))
    assert "need                without a, b, c and 2 more: 4 instances" in report(many, answers.SCENARIO)
    assert "without" not in report(answers.full(), answers.SCENARIO)


def test_alike_packings_are_told_once() -> None:
    alike = replace(answers.full(), plans=Plans(answers.packed(), answers.packed()))
    text = report(alike, answers.SCENARIO)
    assert "servers (both packings are the same; these instances need no fewer)\n" in text
    assert "packed by memory and busy share\n" in text


def test_a_price_of_servers_that_are_full_needs_no_word() -> None:
    full = answers.packed(layout=(PlacedServer(0, answers.LARGE),) * 2, gpus=16.0, servers=2.0, servers_least=2.0)
    answer = replace(answers.full(), plans=Plans(full, full))
    assert "price               79.68 per hour\n" in report(answer, answers.SCENARIO)


@each_row("width", [60, 80, 100, 200])
@each_row("name", answers.ALL)
def test_no_line_is_wider_than_it_may_be_and_nothing_is_a_control(name: str, width: int) -> None:
    for line in report(answers.ALL[name](), answers.SCENARIO, width=width).splitlines():
        assert cells(line) <= width
        assert line.isprintable()
        assert line == line.rstrip()


def test_a_power_that_is_not_known_has_no_source() -> None:
    nothing = dict.fromkeys(("running", "itl_s", "ttft_s", "e2e_s", "tokens_per_s", "requests_per_s", "power_w"))
    plan = replace(
        answers.workload(), **dict.fromkeys(nothing, answers.INFEASIBLE), power_source="limit", source=Source.NONE
    )
    text = report(replace(answers.full(), workloads=(plan,)), answers.SCENARIO, width=100)
    assert "the boards' limit" not in text
    assert "capacity  " not in text


def test_wide_characters_count_as_they_are_drawn() -> None:
    plan = replace(answers.workload(), name="模型" * 30)
    answer = replace(answers.full(), workloads=(plan, answers.SMALL))
    lines = report(answer, answers.SCENARIO, width=80).splitlines()
    assert all(cells(line) <= 80 for line in lines)
    header = next(line for line in lines if line.startswith("workload"))
    first, second = lines[lines.index(header) + 1 : lines.index(header) + 3]
    assert cells(header[: header.index("target") + 6]) == cells(second[: second.index("req/s") + 5])
    assert "模型" in first


def test_ten_thousand_alike_servers_are_one_line() -> None:
    text = report(answers.hostile(), answers.SCENARIO, width=200)
    assert text.count("\n") < 40
    assert "10,000 x server of 1 GPUs: [" in text


def test_many_different_servers_are_cut_and_counted() -> None:
    servers = tuple(PlacedServer(0, (GpuSlot((0,) * (at + 1)),)) for at in range(60))
    plans = answers.packed(layout=servers, servers=60.0)
    answer = replace(answers.full(), plans=replace(answers.full().plans, busy_aware=plans))
    assert "  and 20 more servers (--json has them all)\n" in report(answer, answers.SCENARIO)


def test_alike_gpus_and_servers_are_told_once_the_largest_instance_first() -> None:
    slots = (GpuSlot((1, 0), 5.0, 0.5), GpuSlot(), GpuSlot((0, 1), 5.0, 0.5))
    other = (GpuSlot((0, 1), 5.0, 0.5), GpuSlot((1, 0), 5.0, 0.5), GpuSlot())
    found = group_servers((PlacedServer(0, slots), PlacedServer(0, other)), (answers.workload(), answers.SMALL))
    assert [(same.times, same.gpus) for same in found] == [(2, 3)]
    assert found[0].filled == (SameGpus(2, 1, (0, 1), 5.0, 0.5), SameGpus(1, 1, (), 0.0, 0.0))


def test_markdown_has_the_parts_of_the_text() -> None:
    text = markdown(answers.full(), answers.SCENARIO)
    assert text.startswith(
        "## Sizing: chat\n\nfor 2027\n\n- **need:** 9 instances, 22 GPUs, 4 servers, packed by memory"
    )
    row = "| large | 500 users | 16 | 5 | 20 | 3 (1 shared) | ITL | KV | 143.3 GB | measured -10..+10% ! |"
    assert row in text
    assert "; by memory alone 21 GPUs, 3 servers\n" in text
    assert "- **price:** 79.68 per hour for 4 whole servers\n" in text
    assert "| by memory and busy share &lt;- needed | 9 | 22 | 4 | 796.5 GB | 79.68 |" in text
    assert "- 1 x spare server of 8 x H100 SXM 80GB" in text
    assert "\n- **warning:** planning factor 1: no headroom for bursts\n" in text


def tables(text: str) -> list[list[str]]:
    blocks = [block.splitlines() for block in text.split("\n\n")]
    return [block for block in blocks if block[0].startswith("|")]


@each_row("name", answers.ALL)
def test_every_row_of_a_markdown_table_has_the_columns_of_its_header(name: str) -> None:
    found = tables(markdown(answers.ALL[name](), answers.SCENARIO))
    assert 1 <= len(found) <= (3 if name == "compared" else 2)
    for table in found:
        assert len({row.replace("\\|", "").count("|") for row in table}) == 1


def test_nothing_from_outside_becomes_markup() -> None:
    text = markdown(answers.hostile(), answers.SCENARIO)
    assert "<b>" not in text
    assert "](http" not in text.replace("\\](http", "")
    assert "@all" not in text
    assert "#1" not in text
    assert all(line.isprintable() for line in text.splitlines())


@each_row("answer", [answers.full(), answers.infeasible()])
def test_a_problem_is_the_first_thing_that_markdown_says(answer: Answer) -> None:
    assert ("- **no answer:** large: not even one" in markdown(answer, answers.SCENARIO)) == bool(answer.problem)


@each_row(
    ("form", "value", "text"),
    [
        (figure_text, 24.0, "24"),
        (figure_text, 1024.0, "1,024"),
        (figure_text, 85.53, "85.5"),
        (figure_text, 120.4, "120"),
        (figure_text, 0.0612, "0.0612"),
        (figure_text, float("inf"), ""),
        (figure_text, answers.NOT_GIVEN, ""),
        (gigabytes, 12.41e9, "12.41 GB"),
        (gigabytes, 556.64e9, "556.6 GB"),
        (gigabytes, 1.25e12, "1.25 TB"),
        (gigabytes, 999.97e9, "1.00 TB"),
        (gigabytes, 2181744.33e12, "2.18 EB"),
        (gigabytes, 45.6e15, "45.60 PB"),
        (gigabytes, 1e300, "1e+282 EB"),
        (figure_text, 28169010.0, "28,169,010"),
        (figure_text, 1e300, "1e+300"),
        (amount_of_money, 0.0, "0.00"),
        (amount_of_money, 0.00423, "0.0042"),
        (amount_of_money, 1234.5, "1,234.50"),
        (watts, 2800.0, "2,800 W"),
        (watts, 12345.0, "12.3 kW"),
        (watts, 1.5e6, "1.5 MW"),
        (watts, 2.1e9, "2.1 GW"),
    ],
)
def test_figures(form: object, value: object, text: str) -> None:
    assert form(value) == text  # type: ignore[operator]


@each_row(
    ("factor", "changes", "said"),
    [
        (0.8, {}, "16 in flight each, 80% of the first limit (planning_factor); measured"),
        (1.0, {}, "16 in flight each; measured"),
        (0.8, {"source": Source.TYPED}, "16 in flight each; typed"),
        (0.8, {"limits": (Limit(LimitKind.KNEE, 16.0, "at its best at 16"),)}, "16 in flight each; measured"),
    ],
)
def test_the_headroom_of_a_capacity_is_named(factor: float, changes: dict[str, Any], said: str) -> None:
    answer = replace(answers.full(), workloads=(answers.workload(**changes), answers.SMALL))
    scenario = replace(answers.SCENARIO, planning_factor=factor)
    assert f"  capacity            {said}" in report(answer, scenario, width=200)
