"""Scenario files: what is written reads back to the last bit, and whatever is wrong is refused with an exact line."""

from __future__ import annotations

import io
import math
import os
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.config.errors import ConfigError
from gpumon.config.load import MOST_CONFIG_BYTES
from gpumon.config.save import NotSavedError
from gpumon.config.scenario_file import (
    parse_scenario,
    read_scenario,
    save_scenario,
    scenario_from_stream,
    scenario_toml,
)
from gpumon.config.scenario_rules import MOST_POINTS, MOST_SERVERS, MOST_WORKLOADS, SCENARIO_RULES
from gpumon.sizing.latency import Speculation
from gpumon.sizing.length_tail import Lengths, LengthShare
from gpumon.sizing.profile import Observed, Origin, Point
from gpumon.sizing.scenario import (
    DISAGGREGATED_RANGES,
    RANGES,
    SCENARIO_RANGES,
    SEEN_RANGES,
    SERVER_RANGES,
    Disaggregated,
    Scenario,
    Server,
    Workload,
)
from gpumon.specs.llm import Attention, LlmSpec, Reach, State
from gpumon.specs.precision import Precision
from tests.each_row import each_row

BAD = Path(__file__).parent / "bad_scenarios"
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
KEYS = (
    "name, note, packing, planning_factor, usable_memory_ratio, spare_instances, spare_servers, "
    "tpot_p95_ms, itl_p95_ms, itl_mean_ms, ttft_p95_ms, e2e_p95_ms, assume_ttft, server, workload"
)

MESSAGES = {
    "busy_above_one": "4: workload[0].busy_ratio = 1.01: must be a number from 0 to 1",
    "capacity_zero": "4: workload[0].capacity_per_instance = 0: must be a number from 1 to 1e+06",
    "config_file": f"1: general: unknown key; known here: {KEYS}",
    "control_characters": rf"1: \x1b[31m\u202e[bold]: unknown key; known here: {KEYS}",
    "date": "3: workload[0].target = 2026-01-01: must be a number above 0, at most 1e+12",
    "empty": " needs at least one [[workload]], with model and target",
    "goal_zero": "1: itl_p95_ms = 0: must be a number from 0.001 to 1e+07",
    "gpu_empty": '2: server[0].gpu = "": must be the type of its GPUs, such as "H100 SXM 80GB"',
    "gpu_missing": "1: server[0]: needs gpu: text in quotes",
    "gpu_unknown": "2: server[0].gpu = \"V100\": GPU type 'V100' is several, give the whole name: "
    "V100 SXM2 16GB, V100 SXM2 32GB, V100 PCIe 16GB, V100 PCIe 32GB",
    "gpus_fraction": "3: server[0].gpus = 1.5: must be a whole number from 1 to 576",
    "gpus_zero": "3: server[0].gpus = 0: must be a whole number from 1 to 576",
    "lengths_fall": "4: workload[0].lengths.prompt = [{...}, {...}]: "
    "lengths must rise from step to step: 50 is behind 100",
    "lengths_open": "4: workload[0].lengths.answer = [{...}]: the share of the last step is 0.9: it must be 1",
    "speculative_more": "4: workload[0].speculative.accepted = 4: "
    "accepted 4 is more than the 3 tokens that are drafted",
    "link_zero": "4: workload[0].disaggregated.link_gb_per_s = 0: must be a number from 0.001 to 1e+06",
    "inline": '1: workload[0].target = "1": must be a number above 0, at most 1e+12',
    "key_at_top": "1: target: unknown key; did you mean workload.target (in [[workload]])?",
    "key_unknown": "3: workload[0].targt: unknown key; did you mean target?",
    "key_unknown_in_point": "8: workload[0].seen.points[0].itl_ms: unknown key; did you mean itl_s?",
    "kind_unknown": '4: workload[0].target_kind = "user": must be "concurrency" or "requests_per_s" or "users"',
    "model_empty": '2: workload[0].model = " ": must not be empty',
    "model_missing": "1: workload[0]: needs model: text in quotes",
    "model_number": "2: workload[0].model = 7: must be text in quotes",
    "name_twice": '6: workload[1].model = "m": is the name of workload[0] as well: give each a name of its own',
    "name_twice_named": '6: workload[1].name = "m": is the name of workload[0] as well: give each a name of its own',
    "not_utf8": "2: is not UTF-8 text",
    "nvlink": "4: server[0].nvlink_gpus = 4: must be at most gpus",
    "origin": '5: workload[0].seen.origin = "lve": must be "live" or "sweep" or "table"',
    "packing": '1: packing = "tight": must be "busy" or "memory"',
    "planning_factor": "1: planning_factor = 80: must be a number from 0.001 to 1",
    "point_nan": "8: workload[0].seen.points[1].itl_s = nan: must be a number from 0 to 1e+15",
    "points_no_tables": "8: workload[0].seen.points = [1, 2]: must be tables: [[points]]",
    "points_too_many": "8: workload[0].seen.points: holds 65 points: at most 64",
    "precision": '4: workload[0].weight_precision = "fp7": must be one of fp32, bf16, fp16, fp8, int8, int4, mxfp4, '
    "nvfp4, or empty",
    "seen_gpus": "8: workload[0].seen.gpus = 3: must be at least tp x pp, or 0",
    "seen_incomplete": "4: workload[0].seen: needs name: text in quotes",
    "seen_lengths": "8: workload[0].seen.answer_tokens = 0.0: must be a number above 0, at most 1e+09",
    "seen_no_table": '4: workload[0].seen = "live": must be a table: [seen]',
    "share_negative": "4: workload[0].prefix_hit_ratio = -0.1: must be a number from 0 to 1",
    "target_bool": "3: workload[0].target = true: must be a number above 0, at most 1e+12",
    "target_digits": "3: workload[0].target = a number of many digits: must be a number above 0, at most 1e+12",
    "target_huge": "3: workload[0].target = 1e+300: must be a number above 0, at most 1e+12",
    "target_inf": "3: workload[0].target = inf: must be a number above 0, at most 1e+12",
    "target_missing": "1: workload[0]: needs target: a number above 0, at most 1e+12",
    "target_nan": "3: workload[0].target = nan: must be a number above 0, at most 1e+12",
    "target_negative": "3: workload[0].target = -64: must be a number above 0, at most 1e+12",
    "target_text": '3: workload[0].target = "64": must be a number above 0, at most 1e+12',
    "target_zero": "3: workload[0].target = 0: must be a number above 0, at most 1e+12",
    "tp_zero": "4: workload[0].tp = 0: must be a whole number from 1 to 1024",
    "workload_one_table": "1: workload = {...}: must be tables: [[workload]]",
}
SYNTAX_LINES = {"syntax_header": 1, "syntax_no_value": 2, "syntax_twice": 2, "syntax_unterminated": 1}
"""Files that are no TOML: the parser words the rest of the message."""

ONE = Scenario(workload=(Workload("m", 5.0),))


def refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        read_scenario(path)
    return str(caught.value)


@each_row("name", sorted(MESSAGES))
def test_a_bad_scenario_is_refused_with_file_line_key_value_and_what_is_allowed(name: str) -> None:
    path = BAD / f"{name}.toml"
    assert refusal(path) == f"{path}:{MESSAGES[name]}"


@each_row("name", sorted(SYNTAX_LINES))
def test_what_is_no_toml_is_refused_with_its_line(name: str) -> None:
    path = BAD / f"{name}.toml"
    assert refusal(path).startswith(f"{path}:{SYNTAX_LINES[name]}: is not TOML: ")


def test_every_bad_scenario_has_its_message() -> None:
    assert {path.stem for path in BAD.glob("*.toml")} == set(MESSAGES) | set(SYNTAX_LINES)


@each_row("path", sorted(BAD.glob("*.toml")), named=lambda path: path.stem)
def test_no_refusal_breaks_its_line(path: Path) -> None:
    assert refusal(path).isprintable()


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    absent, huge = tmp_path / "absent.toml", tmp_path / "huge.toml"
    assert refusal(absent) == f"{absent}: there is no such file"
    assert refusal(tmp_path) == f"{tmp_path}: cannot be read: Is a directory"
    huge.write_bytes(b"#" * 50_000_000)
    assert refusal(huge) == f"{huge}: is larger than 1 MiB: this is no scenario of gpumon"
    with pytest.raises(ConfigError, match="is larger than 1 MiB"):
        read_scenario("/dev/zero")
    with pytest.raises(ConfigError, match="is no file name"):
        read_scenario("a\0b")


def test_a_stream_is_read_as_a_file_is() -> None:
    text = '\ufeffworkload = [{model = "m", target = 5}]\r\n'
    assert scenario_from_stream(io.BytesIO(text.encode()), "standard input") == ONE
    for content, said in (
        (b"\xff", ":1: is not UTF-8 text"),
        (b" " * (MOST_CONFIG_BYTES + 1), ": is larger than 1 MiB"),
    ):
        with pytest.raises(ConfigError) as caught:
            scenario_from_stream(io.BytesIO(content), "standard input")
        assert str(caught.value).startswith(f"standard input{said}")


def test_too_many_are_refused() -> None:
    server, workload = '[[server]]\ngpu = "L4"\n', '[[workload]]\nmodel = "{}"\ntarget = 1\n'
    with pytest.raises(ConfigError, match=f"^scenario:1: server: holds {MOST_SERVERS + 1} shapes of server: at most"):
        parse_scenario(server * (MOST_SERVERS + 1) + workload)
    many = "".join(workload.format(at) for at in range(MOST_WORKLOADS + 1))
    with pytest.raises(ConfigError, match=f"workload: holds {MOST_WORKLOADS + 1} workloads: at most {MOST_WORKLOADS}"):
        parse_scenario(many)
    assert len(parse_scenario("".join(workload.format(at) for at in range(MOST_WORKLOADS))).workload) == MOST_WORKLOADS


PIECES = [
    *("[[server]]", "[[workload]]", "[workload.seen]", 'gpu = "L4"', 'model = "m"', "target = 1", "target = -1", "]"),
    *('origin = "live"', "points = [", "{running = 1},", "points = [{running = 1}]", "[workload]", "'''", "seen = {}"),
    *("[[workload.seen.points]]", "running = 0x10", "a.b = 1", 'name = "x"', '"\\u2028" = 1', "tp = 0", "#"),
]


@given(
    st.binary(max_size=200)
    | st.lists(st.sampled_from(PIECES), max_size=14).map(lambda lines: "\n".join(lines).encode())
)
def test_whatever_comes_in_it_is_read_or_refused(content: bytes) -> None:
    message = ""
    try:
        scenario = scenario_from_stream(io.BytesIO(content), "standard input")
        assert parse_scenario(scenario_toml(scenario)) == scenario
    except ConfigError as refused:
        message = str(refused)
    assert message.isprintable()
    assert not message or message.startswith("standard input:")


TEXT = st.text(max_size=12) | st.sampled_from(['a"b', "\\", "\x00\x1b\x7f\x80", "\u2028\u202e", "'''", "a\r\nb", "😀é"])
NUMBERS = {
    name: st.floats(max(low, 5e-324), min(high, 1e6))
    for table in (SEEN_RANGES, SERVER_RANGES, SCENARIO_RANGES, RANGES, DISAGGREGATED_RANGES)
    for name, (low, high, *_) in table.items()
} | {"target": st.floats(5e-324, 1e12)}
"""Numbers whose range is not plain from their name."""
NAMED = {
    **{name: st.sampled_from(["", *Precision]).map(str.__str__) for name in ("weight_precision", "kv_precision")},
    "target_kind": st.sampled_from(["concurrency", "users", "requests_per_s"]),
    "engine": st.sampled_from(["", "vllm", "sglang", "trtllm"]),
    "packing": st.sampled_from(["busy", "memory"]),
    "origin": st.sampled_from(Origin),
}


def number(name: str) -> st.SearchStrategy[Any]:
    if name in NUMBERS:
        return NUMBERS[name]
    return st.floats(5e-324, 1000.0) | st.sampled_from([0.1 + 0.2, 1e-7, 999.9999999999999, 5])


def structs(kind: type[msgspec.Struct], **given_: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields: dict[str, st.SearchStrategy[Any]] = {}
    for field in msgspec.structs.fields(kind):
        about = str(field.type)
        if field.name in given_:
            fields[field.name] = given_[field.name]
            continue
        if field.name in NAMED:
            value = NAMED[field.name]
        elif "bool" in about:
            value = st.booleans()
        elif "float" in about:
            value = number(field.name)
        else:
            value = st.integers(1, 1000) if "int" in about else TEXT
        fields[field.name] = value if field.required else st.just(field.default) | value
    return st.builds(kind, **fields)


def histogram(steps: dict[int, float]) -> tuple[LengthShare, ...]:
    """Rising lengths with rising shares, the last of which is 1."""
    shares = [*sorted(steps.values())[1:], 1.0]
    return tuple(LengthShare(float(tokens), share) for tokens, share in zip(sorted(steps), shares, strict=True))


HISTOGRAMS = st.just(()) | st.dictionaries(st.integers(1, 10**9), st.floats(0.0, 1.0), min_size=1, max_size=4).map(
    histogram
)
LENGTHS = st.builds(Lengths, HISTOGRAMS, HISTOGRAMS)
SPECULATIONS = st.builds(
    lambda tokens, share: Speculation(tokens, tokens * share), st.floats(0.0, 63.0), st.floats(0.0, 1.0)
)
SEEN = structs(
    Observed,
    points=st.lists(structs(Point), max_size=3).map(tuple),
    gpus=st.sampled_from([0, 32, 64]),
    tp=st.integers(0, 8),
    pp=st.integers(0, 4),
    lengths=st.none() | LENGTHS,
)
DIMENSIONS = structs(
    LlmSpec,
    attention=st.lists(structs(Attention, reach=st.sampled_from(Reach)), max_size=2).map(tuple),
    states=st.lists(structs(State), max_size=2).map(tuple),
    precision=st.sampled_from(Precision),
    kv_precision=st.sampled_from(Precision),
    activations=st.none() | st.sampled_from(Precision),
    not_modelled=st.lists(TEXT, max_size=2).map(tuple),
)
WORKLOADS = structs(
    Workload,
    dimensions=st.none() | DIMENSIONS,
    model=TEXT.filter(lambda text: text.strip() != ""),
    seen=st.none() | SEEN,
    lengths=st.none() | LENGTHS,
    speculative=st.none() | SPECULATIONS,
    disaggregated=st.none() | structs(Disaggregated),
)
SERVERS = structs(
    Server,
    gpu=st.sampled_from(["H100 SXM 80GB", "H100 SXM5 80GB", "L40S", "NVIDIA H100 PCIe"]),
    gpus=st.integers(1, 576),
    nvlink_gpus=st.just(0),
    network=st.sampled_from(["", "InfiniBand NDR 400", "RoCE"]),
)
SCENARIOS = structs(
    Scenario,
    server=st.lists(SERVERS, max_size=2).map(tuple),
    workload=st.lists(WORKLOADS, min_size=1, max_size=3, unique_by=lambda each: each.label).map(tuple),
)


@given(SCENARIOS)
def test_what_is_written_reads_back_as_the_same_scenario(scenario: Scenario) -> None:
    text = scenario_toml(scenario)
    assert parse_scenario(text) == scenario
    assert scenario_toml(parse_scenario(text)) == scenario_toml(parse_scenario(scenario_toml(parse_scenario(text))))


def test_the_written_form() -> None:
    seen = Observed(Origin.SWEEP, "run 1", "m", points=(Point(1.0, 0.02), Point(2.0, itl_s=0.1 + 0.2)))
    scenario = Scenario(
        name='a "b"\n', packing="memory", server=(Server("L40S", 2),), workload=(Workload("m", 5.0, seen=seen),)
    )
    assert scenario_toml(scenario).splitlines()[1:] == [
        'name = "a \\"b\\"\\n"',
        'packing = "memory"',
        "",
        "[[server]]",
        'gpu = "L40S"',
        "gpus = 2",
        "",
        "[[workload]]",
        'model = "m"',
        "target = 5.0",
        "",
        "[workload.seen]",
        'origin = "sweep"',
        'name = "run 1"',
        'model = "m"',
        "points = [",
        "    { running = 1.0, itl_s = 0.02 },",
        "    { running = 2.0, itl_s = 0.30000000000000004 },",
        "]",
    ]


DIMENSIONS_TEXT = """
[[workload]]
model = "tiny-llama"
target = 8

[workload.dimensions]
name = "tiny-llama"
source = "files"
params = 1.1e9
matmul_params = 1.0e9
head_params = 6.5e7
vocab = 32000
hidden = 2048
layers = 22
heads = 32
kv_heads = 4
head_dim = 64
attention = [
    { reach = "full", layers = 22, decode_flops = 8192.0, prefill_flops = 8192.0, elements = 512.0, kv_heads = 4 },
]
"""


def test_dimensions_of_a_model_are_a_table_and_what_cannot_be_is_refused_with_its_line() -> None:
    dimensions = parse_scenario(DIMENSIONS_TEXT).workload[0].dimensions
    assert dimensions is not None
    assert (dimensions.layers, dimensions.attention[0].reach) == (22, Reach.FULL)
    for before, after, message in (
        (
            "layers = 22\nheads",
            "layers = 0\nheads",
            "14: workload[0].dimensions.layers = 0: must be a whole number from 1",
        ),
        ("heads = 32\n", "", "workload[0].dimensions: needs heads: a whole number from 1"),
        ('reach = "full"', 'reach = "far"', "must be"),
        ("kv_heads = 4 }", "kv_heads = 0 }", "attention[0].kv_heads = 0: must be a whole number from 1"),
        ("params = 1.1e9", "params = -1.0", "dimensions.params = -1.0: must be a number from 0"),
    ):
        assert before in DIMENSIONS_TEXT
        with pytest.raises(ConfigError) as refused:
            parse_scenario(DIMENSIONS_TEXT.replace(before, after))
        assert message in str(refused.value)


def test_an_error_behind_many_points_has_its_line() -> None:
    points = tuple(Point(float(at)) for at in range(MOST_POINTS))
    seen = Observed(Origin.LIVE, "e", "m", points=points)
    text = scenario_toml(Scenario(workload=(Workload("m", 1.0, seen=seen), Workload("n", 2.0))))
    line = text[: text.index("target = 2.0")].count("\n") + 1
    with pytest.raises(ConfigError, match=rf"^scenario:{line}: workload\[1\]\.target = 0: "):
        parse_scenario(text.replace("target = 2.0", "target = 0"))


@pytest.mark.parametrize(
    ("scenario", "message"),
    [
        (Scenario(), "needs at least one [[workload]]"),
        (Scenario(workload=(Workload("m", 0.0),)), "workload[0].target = 0.0: must be a number above 0"),
        (Scenario(workload=(Workload("m", math.nan),)), "workload[0].target = nan: must be a finite number"),
        (Scenario(workload=(Workload("m", math.inf),)), "workload[0].target = inf: must be a finite number"),
        (Scenario(workload=(Workload("m", True),)), "workload[0].target = true: must be a number above 0"),
        (Scenario(workload=(Workload("m\ud800", 1.0),)), "workload[0].model: holds half a character"),
        (Scenario(workload=(Workload("m", 1.0), Workload("m", 2.0))), "is the name of workload[0] as well"),
        (Scenario(server=(Server("V100"),), workload=ONE.workload), "GPU type 'V100' is several"),
        (Scenario(packing="tight", workload=ONE.workload), 'must be "busy" or "memory"'),  # type: ignore[arg-type]
    ],
)
def test_what_no_file_may_hold_is_not_written(scenario: Scenario, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        scenario_toml(scenario)
    assert message in str(caught.value)
    file = tmp_path / "s.toml"
    with pytest.raises(NotSavedError):
        save_scenario(file, scenario, replace=True)
    assert list(tmp_path.iterdir()) == []


def test_saving_makes_folders_and_leaves_nothing_beside(tmp_path: Path) -> None:
    file = tmp_path / "new" / "deep" / "s.toml"
    before = os.umask(0o027)
    try:
        save_scenario(file, ONE, replace=False)
    finally:
        os.umask(before)
    assert read_scenario(file) == ONE
    assert [path.name for path in file.parent.iterdir()] == ["s.toml"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_nothing_is_written_over_unless_asked(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text("mine")
    with pytest.raises(NotSavedError, match=r"s\.toml is there already"):
        save_scenario(file, ONE, replace=False)
    assert file.read_text() == "mine"
    save_scenario(file, ONE, replace=True)
    assert read_scenario(file) == ONE
    assert [path.name for path in tmp_path.iterdir()] == ["s.toml"]


def test_a_file_system_without_links_is_as_safe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    file = tmp_path / "s.toml"
    save_scenario(file, ONE, replace=False)
    assert read_scenario(file) == ONE
    with pytest.raises(NotSavedError, match="is there already"):
        save_scenario(file, Scenario(workload=(Workload("other", 1.0),)), replace=False)
    assert read_scenario(file) == ONE
    assert [path.name for path in tmp_path.iterdir()] == ["s.toml"]


def test_a_link_stays_one(tmp_path: Path) -> None:
    file, link = tmp_path / "s.toml", tmp_path / "link.toml"
    file.write_text("")
    link.symlink_to(file)
    save_scenario(link, ONE, replace=True)
    assert link.is_symlink()
    assert read_scenario(file) == ONE


def test_what_can_not_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotSavedError, match=r"file/s\.toml cannot be written: "):
        save_scenario(tmp_path / "file" / "s.toml", ONE, replace=False)
    with pytest.raises(NotSavedError, match="cannot be written: Is a directory"):
        save_scenario(tmp_path, ONE, replace=True)
    with pytest.raises(NotSavedError, match="is no file name"):
        save_scenario("a\0b", ONE, replace=True)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@each_row("name", RANGES)
def test_what_the_plan_refuses_is_refused_in_the_file_with_its_line(name: str) -> None:
    low, high, *_ = RANGES[name]
    for value in (low - 1, high * 10 + 1):
        text = f'[[workload]]\nmodel = "m"\ntarget = 1\n{name} = {value:.12g}\n'
        with pytest.raises(
            ConfigError, match=rf"^scenario:4: workload\[0\]\.{name} = .*: must be a (whole )?number from"
        ):
            parse_scenario(text)
    assert (
        getattr(parse_scenario(f'[[workload]]\nmodel = "m"\ntarget = 1\n{name} = {low:g}\n').workload[0], name) == low
    )


def test_every_number_has_a_least_and_a_most() -> None:
    tables = (Scenario, Server, Workload, Observed, Point, Disaggregated, Speculation, LengthShare)
    for kind in (*tables, LlmSpec, Attention, State):
        for field in msgspec.structs.fields(kind):
            if {"int", "float"} & set(str(field.type).replace("<class '", "").replace("'>", "").split(" | ")):
                assert f"{kind.__name__}.{field.name}" in SCENARIO_RULES.types


@each_row("path", sorted(EXAMPLES.glob("*.toml")), named=lambda path: path.stem)
def test_the_examples_are_scenarios(path: Path) -> None:
    scenario = read_scenario(path)
    assert parse_scenario(scenario_toml(scenario)) == scenario
    assert scenario.name
