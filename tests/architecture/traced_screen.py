"""The program on a terminal of its own, traced: writes as JSON the files that five things pass.

    python -m tests.architecture.traced_screen FILE CLOCK_HZ        (with the fake driver in its environment)

A pseudo-terminal gives it bytes and takes its screen, the fake of NVIDIA's library gives it a GPU, and a recording of
a real vLLM is served over HTTP. A thread beside it is the user, who waits for what is shown and types.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from gpumon.config.options import Options
from gpumon.config.schema import Config, Discovery, Endpoint, General
from gpumon.config.themes import load_theme
from gpumon.readings.format import ratio
from gpumon.readings.frame import Frame
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.verdict import Limit
from gpumon.session.host import HostSession, ThisHost
from gpumon.triage.thresholds import Thresholds
from gpumon.tui.app import MonitorApp
from gpumon.tui.app import run as run_screen
from tests.architecture.tracing import Called, Mark, Place, Recorder, Returned, Way, floats, way_of
from tests.fakes.engine import FakeEngine

PATIENCE_S: Final = 60.0
LINES: Final = 60
COLUMNS: Final = 120
CAPTURE: Final = "vllm-mfu-queue-prefix-abort"
QUEUE_FROM_S: Final = 20.0
"""Second of that recording from which on four requests run and eight wait."""
MODEL: Final = "meta-llama/Llama-3.1-8B-Instruct"
"""Taken in the place of the recorded model, which is too small to load a GPU."""
COUNTER: Final = b"vllm:generation_tokens_total"
VERDICT: Final = Limit.QUEUE_LIMIT
SENTENCE: Final = " wait while "
TYPED: Final = "37"
END_KEY: Final = "\x1b[F"
CHARTS: Final = (
    "efficiency/points.py",
    "readings/history.py",
    "history/",
    "tui/charts/",
    "tui/widgets/history_pane.py",
)
SUMS: Final = ("tui/headline.py", "tui/host_line.py", "tui/totals.py", "efficiency/service.py", "readings/flat.py")
KEPT: Final = (
    *("sources/last_seen/", "efficiency/since_start.py", "sizing/"),
    *("efficiency/facts.py", "triage/improvements.py"),  # every ten seconds: a trace may end before
    "tui/repaint.py",  # in the thread that writes to the terminal: so may it here
)
FACTS: Final = ("readings/missing.py",)
"""Asked for a GPU's clock by its facts alone, every ten seconds."""
VERDICTS: Final = ("triage/", "tui/triage_", "tui/widgets/triage_pane.py")
GPUS: Final = ("efficiency/gpu.py", "tui/gpu_", "tui/wall/", "tui/widgets/wall_pane.py")
KEY_ENTRIES: Final = (
    Place("tui/driver.py", "run_input_thread"),
    Place("tui/app.py", "_run_key"),
    Place("tui/screens/monitor.py", "action_do"),
)
"""Where Textual hands the key to the program."""
PAST: Final = Place("history/timeline.py", "at")
TICKS: Final = (
    *("sources/", "efficiency/", "triage/", "history/", "session/", "collector.py", "readings/merge.py"),
    *("readings/frame.py", "readings/history.py"),
)
"""Files of the ticks that go on while a digit is typed: some of their figures have the same value by chance."""
SHOWN: Final = ("tui/screens/",)
"""Files that those ticks pass on their way to the screen, where a tick comes before the trace ends."""
ENGINES: Final = ("tui/engine_table.py", "tui/replica_rows.py")
PROCESSES: Final = ("tui/process_table.py",)


class User:
    """What a user does at the terminal and waits for there."""

    def __init__(self, app: MonitorApp, recorder: Recorder, keyboard: int, clock_hz: float) -> None:
        self.ways: dict[str, Way] = {}
        self.error: BaseException | None = None
        self._app = app
        self._recorder = recorder
        self._keyboard = keyboard
        self._clock_hz = clock_hz

    def run(self) -> None:
        """Look, go back in time, size, then quit."""
        try:
            self._look()
            self._travel()
            self._size()
        except BaseException as error:  # raised again by the main thread
            self.error = error
        finally:
            self._app.call_from_thread(self._app.exit, 0)

    def _look(self) -> None:
        """From the first MBU to the first verdict on the engine; meanwhile the GPU takes another clock."""
        self._until(self._has_mbu)
        self._recorder.keeps_returned = True
        set_clock(self._clock_hz)
        self._until(lambda: self._has_clock() and self._has_verdict())
        self._until(lambda: self._has_painted(SENTENCE))
        self._until(self._has_painted_a_later_poll)
        returned = self._taken()
        counter_besides = (*CHARTS, *SUMS, *KEPT, *VERDICTS, *GPUS, *PROCESSES)
        sample_besides = (*CHARTS, *SUMS, *KEPT, *VERDICTS, *ENGINES, *PROCESSES, *FACTS)
        verdict_besides = (*CHARTS, *SUMS, *KEPT, *GPUS, *ENGINES, *PROCESSES)
        self.ways["counter"] = way_of(returned, counter_mark(returned), "sources/fetch.py", counter_besides)
        self.ways["sample"] = way_of(returned, sample_mark(self._clock_hz), "sources/driver/source.py", sample_besides)
        self.ways["verdict"] = way_of(returned, verdict_mark(returned), "sources/exposition.py", verdict_besides)

    def _travel(self) -> None:
        """Ten seconds back, until the past is asked for them; what is painted meanwhile is left out."""
        self._recorder.keeps_called = True
        self._type("[")
        self._until(lambda: any(called.place == PAST for called in self._recorder.called))
        self._recorder.keeps_called = False
        places = [called.place for called in self._recorder.called if is_of_key(called)]
        files = [place.file for place in places[: places.index(PAST) + 1]]
        self.ways["key"] = Way(list(dict.fromkeys(files)), [])

    def _size(self) -> None:
        """Back to now, then a digit behind another one, in the target of the first workload."""
        self._type(END_KEY)
        self._until(self._has_mbu)
        self._type("s")
        self._until(lambda: self._answer() is not None)
        self._type(TYPED[0])
        self._until(lambda: self._target() == float(TYPED[0]))
        before = self._app.call_from_thread(self._answer)
        self._recorder.keeps_returned = True
        self._type(TYPED[1])
        self._until(lambda: self._answer() is not before)
        self._until(lambda: self._has_painted(f"[{TYPED}"))
        mark = digit_mark(before, self._app.call_from_thread(self._answer))
        self.ways["digit"] = way_of(self._taken(), mark, "", (*TICKS, *SHOWN, *KEPT))

    def _type(self, key: str) -> None:
        os.write(self._keyboard, key.encode())

    def _until(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds, which is looked at where the program does its work."""
        end_s = time.monotonic() + PATIENCE_S
        while not self._app.call_from_thread(condition):
            assert time.monotonic() < end_s, "it never came to hold"
            time.sleep(0.03)

    def _has_painted(self, text: str) -> bool:
        """Whether a line with this text was returned."""
        return any(text in line for line in painted(self._recorder.returned))

    def _has_painted_a_later_poll(self) -> bool:
        """Whether the row of the engine was returned with what a poll after the first one seen says."""
        snapshot = later_snapshot(self._recorder.returned)
        if snapshot is None:
            return False
        engine = snapshot.engines[0]
        cell = ratio(engine.efficiency.mbu_ratio)
        return any(text_mark(line, cell, engine.name) == "row" for line in painted(self._recorder.returned))

    def _taken(self) -> list[Returned]:
        self._recorder.keeps_returned = False
        returned = list(self._recorder.returned)
        self._recorder.returned.clear()
        return returned

    def _has_mbu(self) -> bool:
        shown = self._app.monitor.shown
        return shown is not None and any(isinstance(engine.efficiency.mbu_ratio, float) for engine in shown.engines)

    def _has_clock(self) -> bool:
        shown = self._app.monitor.shown
        return shown is not None and any(gpu.reading.sm_clock_hz == self._clock_hz for gpu in shown.gpus)

    def _has_verdict(self) -> bool:
        shown = self._app.monitor.shown
        return shown is not None and any(verdict.code is VERDICT for verdict in shown.verdicts)

    def _answer(self) -> Any:
        panel = self._app.monitor.dock.panel
        if panel is None or not panel.is_mounted:
            return None
        return panel.state.calculation.answer

    def _target(self) -> float:
        panel = self._app.monitor.dock.panel
        assert panel is not None
        return panel.state.scenario.workload[0].target


def set_clock(clock_hz: float) -> None:
    """Let the fake driver give this clock from now on."""
    script = Path(os.environ["GPUMON_FAKE_NVML"])
    fresh = script.with_suffix(".fresh")
    fresh.write_text(f"{script.read_text()}gpu 0 sm_clock_mhz {clock_hz / 1e6:.0f}\n")
    fresh.rename(script)


def is_of_key(called: Called) -> bool:
    """Whether a call is made because of the key, and not to paint."""
    stack = {called.place, *called.callers}
    if any(place.file.startswith("tui/widgets/") for place in stack):
        return False
    return called.place == PAST or any(place in KEY_ENTRIES for place in stack)


def painted(returned: Sequence[Returned]) -> Iterator[str]:
    """The texts of painted lines."""
    for file, value in returned:
        if file == "tui/widgets/board.py" and isinstance(value, list):
            yield from (strip.text for strip in value if hasattr(strip, "text"))


def counter_mark(returned: Sequence[Returned]) -> Mark:
    """The counter of the first poll that was seen whole, and what is made of it up to the row of its engine."""
    frame = later_frame(returned)
    snapshot = later_snapshot(returned)
    assert frame is not None
    assert snapshot is not None
    engine = snapshot.engines[0]
    efficiency = engine.efficiency
    figures = {
        tokens_in(frame): "counter",
        engine.rates.decode_tokens_per_s: "tokens/s",
        engine.rates.steps_per_s: "steps/s",
        efficiency.kv_bytes_per_s: "bytes/s",
        efficiency.weight_bytes_per_s: "bytes/s",
        efficiency.bytes_per_s: "bytes/s",
        efficiency.mbu_ratio: "MBU",
    }
    text = ratio(efficiency.mbu_ratio)
    count = str(tokens_in(frame)).encode()

    def mark(value: Any) -> str:
        if isinstance(value, float):
            return figures.get(value, "")
        if isinstance(value, bytes):
            return "page" if COUNTER in value and count in value else ""
        if isinstance(value, str):
            return text_mark(value, text, engine.name)
        return ""

    return mark


def later_frame(returned: Sequence[Returned]) -> Frame | None:
    """First frame of a poll after the first one that was seen, which may have been seen in part, whose page was seen: a
    poll under way at the start had it before."""
    frames = [value for _, value in returned if isinstance(value, Frame)]
    pages = [value for _, value in returned if isinstance(value, bytes) and COUNTER in value]
    for frame in frames:
        count = str(tokens_in(frame)).encode()
        if tokens_in(frame) != tokens_in(frames[0]) and any(count in page for page in pages):
            return frame
    return None


def later_snapshot(returned: Sequence[Returned]) -> Snapshot | None:
    """What was made of that frame, with all that was added to it."""
    frame = later_frame(returned)
    if frame is None:
        return None
    snapshots = [value for _, value in returned if isinstance(value, Snapshot) and value.wall_s == frame.wall_s]
    return snapshots[-1] if snapshots else None


def tokens_in(frame: Frame) -> float:
    """Value of the counter."""
    return frame.engines[0].ranks[0].counters["decode_tokens"]


def text_mark(value: str, cell: str, row: str) -> str:
    """Whether a text is the cell, or the line of the row with it."""
    if value.strip() == cell:
        return "cell"
    return "row" if cell in value and row in value else ""


def sample_mark(clock_hz: float) -> Mark:
    """The GPU's clock, from the worker's report to the row of the GPU."""
    packed = struct.pack(">d", clock_hz)

    def mark(value: Any) -> str:
        if isinstance(value, float):
            return "clock" if value == clock_hz else ""
        if isinstance(value, bytes):
            return "packed" if packed in value else ""
        if isinstance(value, str):
            return text_mark(value, f"{clock_hz / 1e9:.2f}G", "91%")
        return ""

    return mark


def verdict_mark(returned: Sequence[Returned]) -> Mark:
    """A figure that the verdict names, its code, and its sentence."""
    snapshots = [value for _, value in returned if isinstance(value, Snapshot)]
    usage = {engine.load.kv_usage_ratio for snapshot in snapshots for engine in snapshot.engines}

    def mark(value: Any) -> str:
        if isinstance(value, Limit):
            return "code" if value is VERDICT else ""
        if isinstance(value, float):
            return "figure" if value in usage else ""
        if isinstance(value, str):
            return "sentence" if SENTENCE in value else ""
        return ""

    return mark


def digit_mark(before: Any, after: Any) -> Mark:
    """What was typed, and the figures of the answer that it changed."""
    figures = set(floats(after)) - set(floats(before))

    def mark(value: Any) -> str:
        if isinstance(value, float):
            if value == float(TYPED):
                return "number"
            return "answer" if value in figures else ""
        if isinstance(value, str):
            if value == TYPED:
                return "text"
            return "line" if f"[{TYPED}" in value else ""
        return ""

    return mark


def main(out: str, clock_hz: float) -> None:
    """Run the program, and write down the ways."""
    screen_end, program_end = pty.openpty()
    fcntl.ioctl(program_end, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    os.dup2(program_end, 0)
    os.dup2(program_end, 1)
    threading.Thread(target=drain, args=(screen_end,), daemon=True).start()
    recorder = Recorder()
    with FakeEngine(CAPTURE, start_s=QUEUE_FROM_S) as engine:
        config = Config(
            general=General(interval_s=0.25, engine_interval_s=0.5),
            discovery=Discovery(enabled=False),
            endpoint=(Endpoint(url=engine.url, model=MODEL, gpus=(0,)),),
            triage=Thresholds(hold_s=1.0, cpu_high_ratio=1.0, cpu_pressure_ratio=1.0),
        )
        app = MonitorApp(HostSession(config, ThisHost(config, Options())), load_theme("default"), config)
        user = User(app, recorder, screen_end, clock_hz)
        thread = threading.Thread(target=user.run)
        recorder.start()
        app.call_later(thread.start)
        run_screen(app)
        thread.join()
    sys.setprofile(None)
    if user.error is not None:
        raise user.error
    Path(out).write_text(json.dumps(user.ways))


def drain(screen_end: int) -> None:
    """Take what the program draws."""
    while os.read(screen_end, 1 << 16):
        pass


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
