"""Frames as bytes: nothing is lost, older and damaged bytes are told apart."""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import zlib
from collections.abc import Callable
from functools import cache

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.history import codec
from gpumon.history.frame_store import Points
from gpumon.readings.frame import EndpointState, EngineReading, Frame, GpuProcess, GpuReading, GpuState, HostReading
from gpumon.readings.missing import Missing, Reason
from tests.each_row import each_row
from tests.history.frames import captured, served
from tests.records import replace

NOISE = random.Random(1)
CAPTURES = ("vllm-poisson", "vllm-dp2", "vllm-hang-and-dead-engine")


@cache
def frames(name: str) -> list[Frame]:
    return list(served(70)) if name == "simulator" else list(captured(name))[:120]


def packed(given: list[Frame]) -> list[codec.PackedFrame]:
    packer = codec.Packer()
    return [packer.pack(frame) for frame in given]


@each_row("name", ["simulator", *CAPTURES])
@each_row("level", [codec.QUICK, codec.SMALL])
def test_a_block_gives_back_the_frames_that_went_in(name: str, level: int) -> None:
    given = frames(name)
    assert codec.unpack_frames(codec.unpack_block(codec.pack_block(packed(given), level))) == given


def test_engines_that_were_not_polled_anew_are_kept_once() -> None:
    given = packed(frames("simulator"))
    assert given[1].engines[0] is given[0].engines[0]
    assert given[2].engines[0] is not given[0].engines[0]
    read = codec.unpack_frames(given[:2])
    assert read[1].engines[0] is read[0].engines[0]


def values_in(part: object) -> int:
    if isinstance(part, dict):
        return sum(map(values_in, part.values()))
    if isinstance(part, list):
        return sum(map(values_in, part))
    return 1


def test_a_value_takes_less_than_a_byte() -> None:
    """The bound is on a value: a figure more makes a day larger, which `tests.perf.bench_recording` measures."""
    minute = packed(frames("simulator")[:60])
    parts = [frame.head for frame in minute]
    for before, frame in itertools.pairwise([codec.PackedFrame(b"", ()), *minute]):
        parts += [engine for engine in frame.engines if engine not in before.engines]
    values = sum(values_in(msgspec.msgpack.decode(part)) for part in parts)
    assert len(codec.pack_block(minute)) < 0.85 * values


def with_figures(frame: codec.PackedFrame, figure: Callable[[int], object]) -> codec.PackedFrame:
    """The frame with a further figure of each GPU, as a later gpumon writes it."""
    fields = msgspec.msgpack.decode(frame.head)
    for gpu in fields[5]:
        gpu.append(figure(gpu[0]))
    return frame._replace(head=msgspec.msgpack.encode(fields))


@each_row(
    ("figure", "most_bytes"),
    [
        (lambda _: ["not_supported", ""], 0.5),  # one that these GPUs do not have
        (lambda index: 300.0 + index, 0.5),  # one that stays as it is
        (lambda _: NOISE.random(), 9.0),  # one of which every digit is another at each tick: its 9 bytes in MessagePack
    ],
)
def test_a_further_figure_of_a_gpu_takes_little_unless_it_changes(
    figure: Callable[[int], object], most_bytes: float
) -> None:
    minute = packed(frames("simulator")[:60])
    more = codec.pack_block([with_figures(frame, figure) for frame in minute])
    readings = 60 * len(frames("simulator")[0].gpus)
    assert (len(more) - len(codec.pack_block(minute))) / readings < most_bytes


def test_times_are_read_without_the_rest() -> None:
    given = frames("vllm-poisson")
    assert [codec.frame_time(each) for each in packed(given)] == [(frame.seq, frame.wall_s) for frame in given]


reals = st.floats(allow_nan=False) | st.builds(Missing, st.sampled_from(Reason), st.text(max_size=8))
texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20)
processes = st.builds(GpuProcess, st.integers(0, 2**22), texts, texts, reals, sm_ratio=reals)
gpus = st.builds(
    GpuReading,
    st.integers(0, 15),
    texts,
    texts,
    st.sampled_from(GpuState),
    st.floats(0, 1e9),
    busy_ratio=reals,
    energy_j=reals,
    throttle=st.lists(texts, max_size=3).map(tuple),
    processes=st.lists(processes, max_size=2).map(tuple),
)
engines = st.builds(EngineReading, texts, texts, st.sampled_from(EndpointState), st.floats(0, 1e9), fault=texts)
any_frames = st.builds(
    Frame,
    st.integers(0, 2**40),
    st.floats(0, 4e9),
    st.floats(0, 1e9),
    st.floats(0.25, 3600),
    st.builds(HostReading, texts, cpu_ratio=reals),
    st.lists(gpus, max_size=2).map(tuple),
    st.lists(engines, max_size=2).map(tuple),
)


@given(st.lists(any_frames, max_size=3))
def test_any_frames_come_back_however_they_differ(given: list[Frame]) -> None:
    assert codec.unpack_frames(codec.unpack_block(codec.pack_block(packed(given)))) == given


def test_a_frame_of_an_older_gpumon_lacks_its_last_fields() -> None:
    frame = frames("simulator")[0]
    fields = msgspec.msgpack.decode(packed([frame])[0].head)
    fields[4] = fields[4][:8]  # a host reading before it told of the busiest core
    fields[5] = [gpu[:36] for gpu in fields[5]]
    older = codec.PackedFrame(msgspec.msgpack.encode(fields[:7]), ())
    (read,) = codec.unpack_frames([older])
    assert read.host.cpu_ratio == frame.host.cpu_ratio
    assert isinstance(read.host.busiest_core_ratio, Missing)
    assert (read.gpus[3].energy_j, read.faults) == (frame.gpus[3].energy_j, ())


def test_readings_from_before_the_start_are_kept_once() -> None:
    first = EngineReading("run", "file:run", EndpointState.OK, 1.0)
    newest = EngineReading("run", "file:run", EndpointState.OK, 2.0, earlier=(first,))
    later = replace(newest, monotonic_s=3.0)
    given = [Frame(at, at, at, 1.0, HostReading(), (), (each,)) for at, each in ((1, newest), (2, newest), (3, later))]
    read = codec.unpack_frames(packed(given))
    assert [len(frame.engines[0].earlier) for frame in read] == [1, 1, 0]


@each_row("cut", ["end", "half", "all", "other", "no_block"])
def test_a_damaged_block_is_said_to_be_one(cut: str) -> None:
    whole = codec.pack_block(packed(frames("vllm-poisson")))
    half = whole[: len(whole) // 2]
    others = {"all": b"", "other": b"x" * 40, "no_block": zlib.compress(b"\x93\x01\x02\x03")}
    with pytest.raises(ValueError, match="damaged"):
        codec.unpack_block({"end": whole[:-5], "half": half, **others}[cut])


@given(st.integers(0, 600), st.integers(0, 255))
def test_a_changed_byte_raises_nothing_else(at: int, value: int) -> None:
    inside = bytearray(zlib.decompress(codec.pack_block(packed(frames("vllm-poisson")[:5]))))
    inside[at] = value
    found: list[codec.PackedFrame] = []
    with contextlib.suppress(ValueError):
        found = codec.unpack_block(zlib.compress(inside))
    assert len(found) <= 255


@each_row(
    ("wall_s", "seconds", "fits"),
    [
        (5.0, 5.0, True),
        (5.0, 0.0, True),
        (5.0, 99_999.0, True),
        (5.0, -1.0, False),
        (5.0, 100_001.0, False),
        (5.0, math.nan, False),
        (math.inf, 5.0, False),
        (math.nan, 5.0, False),
    ],
)
def test_points_at_times_that_cannot_be_are_damaged(wall_s: float, seconds: float, fits: bool) -> None:
    data = codec.pack_points([Points(wall_s, seconds, {"busy": 0.5})])
    if fits:
        assert codec.unpack_points(data) == [Points(wall_s, seconds, {"busy": 0.5})]
        return
    with pytest.raises(ValueError, match="times that cannot be"):
        codec.unpack_points(data)


def test_points_keep_gaps_and_single_precision() -> None:
    given = [Points(5.0, 5.0, {"busy": 0.1, "mfu": 1e12}), Points(10.0, 4.0, {"mfu": 2.0, "late": 3.0})]
    read = codec.unpack_points(codec.pack_points(given))
    assert [(each.wall_s, each.seconds, set(each.values)) for each in read] == [
        (5.0, 5.0, {"busy", "mfu"}),
        (10.0, 4.0, {"mfu", "late"}),
    ]
    assert math.isclose(read[0].values["busy"], 0.1, rel_tol=1e-7)
    with pytest.raises(ValueError, match="damaged"):
        codec.unpack_points(codec.pack_points(given)[:-3])
    with pytest.raises(ValueError, match="zip"):
        codec.unpack_points(zlib.compress(msgspec.msgpack.encode((["a"], [(1.0, 1.0, bytes(8))]))))
