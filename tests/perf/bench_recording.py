"""A day of 8 GPUs at 1 s and 4 vLLM engines at 2 s in fast time through the real recorder: size and cost.

python -m tests.perf.bench_recording [--hours 24] [--file FILE]

One hour of frames is made by the simulator's physics and the real vLLM adapter, with noise on every moving field
(`tests.history.frames`), derived and judged as for the screen: for charts and events. The other hours are
that hour with all times and counters moved on; a block never holds more than a minute: the repetition saves nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gpumon.history import codec
from gpumon.history.file import choose_journal, make_recording, open_connection
from gpumon.history.frame_store import Tick
from gpumon.history.recorder import Recorder, Writer
from gpumon.readings.frame import EngineReading, Frame, GpuReading, HistogramReading, RankReading
from tests.history.frames import served
from tests.history.pasts import lived
from tests.records import replace

HOUR_S: Final = 3600
LIMIT_MB: Final = 175.0
"""For 24 hours: a tenth more than the figures of today take. What one more of them costs is bounded by
`tests/history/test_codec.py`."""
LIMIT_ENCODE_MS: Final = 0.5
"""For a tick, its share of the minute's block with it, on a quiet machine."""
MOST_AHEAD: Final = 32
TRIES: Final = 3
"""The best counts: others use this machine too."""


def made(seconds: int) -> list[Tick]:
    """What the collector would keep in that time."""
    ticks = _Ticks()
    lived(served(seconds), ticks)
    return ticks.kept


class _Ticks:
    def __init__(self) -> None:
        self.kept: list[Tick] = []

    def keep(self, kept: Tick) -> None:
        self.kept.append(kept)

    def fault(self, _wall_s: float) -> None:
        return None


def moved(kept: Tick, times: int, by_s: float, last: Frame, known: dict[int, EngineReading]) -> Tick:
    """The tick, so much later. `last` tells how far counters go, `times` how often; `known` are moved already."""
    frame = kept.frame
    gpus = tuple(_gpu(gpu, by_s, times * 1e6) for gpu in frame.gpus)
    engines = []
    for engine, end in zip(frame.engines, last.engines, strict=True):
        if id(engine) not in known:
            known[id(engine)] = _engine(engine, end, by_s, times)
        engines.append(known[id(engine)])
    moved = replace(
        frame,
        seq=frame.seq + int(by_s),
        wall_s=frame.wall_s + by_s,
        monotonic_s=frame.monotonic_s + by_s,
        gpus=gpus,
        engines=tuple(engines),
    )
    events = tuple(replace(event, wall_s=event.wall_s + by_s) for event in kept.events)
    return kept._replace(frame=moved, events=events)


def _gpu(gpu: GpuReading, by_s: float, by_j: float) -> GpuReading:
    assert isinstance(gpu.energy_j, float)
    energy_j = round(gpu.energy_j + by_j, 3)
    return replace(gpu, monotonic_s=gpu.monotonic_s + by_s, energy_j=energy_j)


def _engine(engine: EngineReading, end: EngineReading, by_s: float, times: int) -> EngineReading:
    ranks = tuple(_rank(rank, there, times) for rank, there in zip(engine.ranks, end.ranks, strict=True))
    return replace(engine, monotonic_s=engine.monotonic_s + by_s, ranks=ranks)


def _rank(rank: RankReading, end: RankReading, times: int) -> RankReading:
    return RankReading(
        rank.rank,
        {name: value + times * end.counters[name] for name, value in rank.counters.items()},
        rank.gauges,
        {name: _histogram(each, end.histograms[name], times) for name, each in rank.histograms.items()},
    )


def _histogram(reading: HistogramReading, end: HistogramReading, times: int) -> HistogramReading:
    counts = tuple(count + times * last for count, last in zip(reading.counts, end.counts, strict=True))
    return HistogramReading(reading.bounds, counts, reading.sum + times * end.sum, reading.count + times * end.count)


def day(hours: int, made_s: int = HOUR_S) -> Iterator[Tick]:
    """One tick a second: those of the first `made_s`, again and again."""
    first = made(made_s)
    for times in range(hours * HOUR_S // made_s):
        known: dict[int, EngineReading] = {}
        for kept in first:
            yield moved(kept, times, float(times * made_s), first[-1].frame, known)


def record(path: Path, hours: int) -> None:
    """Write a day."""
    recorder = Recorder(path, {"host": "bench"})
    given = 0
    for kept in day(hours):
        recorder.keep(kept)
        given += 1
        while given - recorder.written > MOST_AHEAD:
            time.sleep(0.0005)
            assert recorder.fault() is None, recorder.fault()
    recorder.close()
    assert (recorder.written, recorder.dropped) == (given, 0), (recorder.written, recorder.dropped)


def encode_ms(minutes: int = 5) -> tuple[float, float, float]:
    """CPU in ms: of packing a frame, of its row, and of its share of the minute's block."""
    frames = list(served(60 * minutes))
    packer = codec.Packer()
    began_s = time.process_time()
    packed = [packer.pack(frame) for frame in frames]
    packed_s = time.process_time()
    for each in packed:
        codec.pack_block([each], codec.QUICK)
    rows_s = time.process_time()
    for at in range(0, len(packed), 60):
        codec.pack_block(packed[at : at + 60])
    ended_s = time.process_time()
    return tuple(seconds / len(frames) * 1e3 for seconds in (packed_s - began_s, rows_s - packed_s, ended_s - rows_s))  # type: ignore[return-value]


def write_ms(folder: Path, minutes: int = 5) -> float:
    """CPU in ms of all that the recorder's thread does with a tick, SQLite included."""
    path = folder / "write.sqlite"
    make_recording(path, {})
    ticks = [Tick(frame, {}, ()) for frame in served(60 * minutes)]
    with contextlib.closing(open_connection(path, "rw")) as connection:
        choose_journal(connection, path)
        writer = Writer(connection)
        began_s = time.process_time()
        for kept in ticks:
            writer.write([kept])
        return (time.process_time() - began_s) / len(ticks) * 1e3


def main() -> None:
    """Print the figures; ends with 1 where one is above its limit."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--hours", type=int, default=24)
    arguments.add_argument("--file", type=Path, help="keep the recording there")
    given = arguments.parse_args()
    began_s = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path = given.file or Path(folder, "day.sqlite")
        record(path, given.hours)
        size_mb = path.stat().st_size / 1e6
        limit_mb = LIMIT_MB * given.hours / 24
        print(f"{given.hours} h of 8 GPUs at 1 s and 4 engines at 2 s: {size_mb:.1f} MB (limit {limit_mb:.1f} MB)")
        print(f"{size_mb * 1e6 / given.hours / HOUR_S:.0f} bytes per tick, all in")
        pack_ms, row_ms, block_ms = min((encode_ms() for _ in range(TRIES)), key=sum)
        encoded_ms = pack_ms + row_ms + block_ms
        print(
            f"encoding a tick: {encoded_ms:.2f} ms (limit {LIMIT_ENCODE_MS} ms): frame {pack_ms:.2f}, row {row_ms:.2f},"
            f" share of the minute's block {block_ms:.2f}"
        )
        print(f"the recorder's thread: {write_ms(Path(folder)):.2f} ms CPU per tick, SQLite included")
        print(f"made in {time.perf_counter() - began_s:.0f} s")
    sys.exit(size_mb > limit_mb or encoded_ms > LIMIT_ENCODE_MS)


if __name__ == "__main__":
    main()
