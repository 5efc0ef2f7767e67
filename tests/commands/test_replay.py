"""A recording that plays on the same screen: what it shows, how fast, and what it refuses."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpumon.commands.replay import Replay, open_player
from gpumon.config.errors import ConfigError
from gpumon.config.schema import Config
from gpumon.demo.scenarios import DEMO
from gpumon.history.memory import MemoryStore
from gpumon.history.recorder import write_recording
from gpumon.readings.snapshot import Snapshot
from gpumon.session.host import HostSession
from tests.history.frames import WALL_S, served
from tests.history.pasts import apart, lived, without_longer
from tests.program import run_gpumon
from tests.records import replace
from tests.virtual_time import Clock
from tests.virtual_time import played as in_virtual_time

HOLE_S = 3600.0


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[float, Snapshot]]:
    """A minute, an hour of nothing, and 40 s, as another machine recorded them."""
    frames = list(served(100, cast=DEMO.cast[:2]))
    frames = [
        *frames[:60],
        *(replace(each, wall_s=each.wall_s + HOLE_S, monotonic_s=each.monotonic_s + HOLE_S) for each in frames[60:]),
    ]
    ring = MemoryStore(1e6, 1e9)
    shown = lived(frames, ring)
    file = tmp_path_factory.mktemp("recorded") / "night.sqlite"
    write_recording(file, ring, {"host": "gpu-17"})
    return file, {snapshot.wall_s: snapshot for snapshot in shown}


Ready = Callable[[list[Snapshot]], bool]


def played(replay: Replay, ready: Ready, then: Callable[[Replay], Ready] | None = None) -> list[Snapshot]:
    """What the screen gets until it is enough; then something may be done, and what comes until that is enough."""
    sent: list[Snapshot] = []

    async def until(enough: Ready) -> None:
        end_s = time.monotonic() + 60.0
        while not enough(sent):
            assert time.monotonic() < end_s, "it does not play"
            await asyncio.sleep(0.02)

    async def main() -> None:
        session = HostSession(Config(), replay)
        await session.start(sent.append)
        await until(ready)
        if then is not None:
            await until(then(replay))
        await session.stop()
        assert session.catalogues().own is not None
        assert session.calibration.observed()

    asyncio.run(main())
    return sent


def test_a_machine_that_slept_goes_on_where_it_was(recorded: tuple[Path, dict[float, Snapshot]]) -> None:
    """Ten minutes pass at once, as when a laptop is closed: the recording moves on by no more than half a second."""
    replay = open_player(str(recorded[0]), "", 1.0, Config())
    clock = Clock()
    sent: list[Snapshot] = []

    async def until_more(count: int) -> None:
        for _ in range(2000):
            if len(sent) > count:
                return
            await asyncio.sleep(0.1)
        raise AssertionError("it does not play")

    async def main() -> tuple[float, float]:
        session = HostSession(Config(), replay)
        await session.start(sent.append)
        await until_more(2)
        before = sent[-1]
        clock.now_s += 600.0
        await until_more(len(sent))
        after = sent[-1]
        await session.stop()
        return before.wall_s, after.wall_s

    before_s, after_s = in_virtual_time(main(), clock)
    assert before_s < after_s <= before_s + 2.0


def test_it_shows_what_the_live_screen_showed(recorded: tuple[Path, dict[float, Snapshot]]):
    file, live = recorded
    replay = open_player(str(file), "", 100.0, Config())
    # A busy machine may show few moments until the end: what is shown then stays.
    sent = played(replay, lambda sent: len(sent) >= 8 or any(one.wall_s == max(live) for one in sent))
    for snapshot in sent:
        assert apart(without_longer(live[snapshot.wall_s]), without_longer(snapshot)) == []
    assert [one.wall_s for one in sent] == sorted({one.wall_s for one in sent})
    assert replay.file == "night.sqlite"
    assert replay.playback is replay


def test_it_passes_over_a_hole_and_stays_at_the_end(recorded: tuple[Path, dict[float, Snapshot]]):
    file, live = recorded
    sent = played(
        open_player(str(file), "-42s", 100.0, Config()), lambda sent: any(s.wall_s == max(live) for s in sent)
    )
    assert sent[0].wall_s < WALL_S + 61.0
    assert sent[-1].wall_s == max(live)
    assert len(sent) == len({one.wall_s for one in sent})


def test_it_pauses_and_goes_on_from_where_it_is_told(recorded: tuple[Path, dict[float, Snapshot]]):
    file, live = recorded
    times = sorted(live)
    replay = open_player(str(file), "-42s", 1.0, Config())

    def then(replay: Replay) -> Ready:
        replay.pause()
        replay.go_on(times[20])
        return lambda sent: sum(one.wall_s < times[40] for one in sent) >= 2

    sent = played(replay, bool, then)
    again = [one.wall_s for one in sent if one.wall_s < times[40]]
    assert again[0] == times[20]
    assert again == sorted(again)
    known = replay.history.buckets("busy", int(times[20] // 5.0) - 1, 3, 5.0)
    assert all(value == value for value in known), "the charts go back before the moment that it went on from"


def test_its_speed_is_bounded(recorded: tuple[Path, dict[float, Snapshot]]):
    replay = open_player(str(recorded[0]), "", 1.0, Config())
    replay.set_speed(1e9)
    assert replay.speed == 100.0
    replay.set_speed(0.0)
    assert replay.speed == 0.1


@pytest.mark.parametrize(
    ("at", "words"), [("soon", "--at is no time.*soon"), ("2020-01-01T00:00", "outside of the recording.*it goes from")]
)
def test_a_time_that_can_not_be_is_refused(recorded: tuple[Path, dict[float, Snapshot]], at: str, words: str):
    with pytest.raises(ConfigError, match=words):
        open_player(str(recorded[0]), at, 1.0, Config())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], ".sqlite: this host has none of its own yet: name a file, or begin it: gpumon record"),
        (["no.sqlite", "--speed", "200"], "0.1 to 100"),
        (["no.sqlite"], "no.sqlite: there is no such file"),
        (["{}"], "needs a terminal for input and output: use `gpumon report FILE` (summed up) or `gpumon export FILE`"),
    ],
)
def test_the_command_refuses_in_one_line(
    recorded: tuple[Path, dict[float, Snapshot]], tmp_path: Path, words: list[str], said: str
):
    environ = {**os.environ, "HOME": str(tmp_path), "XDG_DATA_HOME": ""}
    done = run_gpumon("replay", *(word.format(recorded[0]) for word in words), env=environ)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_time_before_the_end_may_follow_its_option():
    from gpumon.commands.command_line import parse_command_line

    chosen, command = parse_command_line(["replay", "night.sqlite", "--at", "-10m", "--speed", "10"])
    assert (command, chosen.file, chosen.at, chosen.speed) == ("replay", "night.sqlite", "-10m", 10.0)


def test_it_plays_in_a_terminal_without_any_driver(recorded: tuple[Path, dict[float, Snapshot]], tmp_path: Path):
    from tests.terminal import Terminal

    env = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-m", "gpumon", "replay", str(recorded[0]), "--speed", "10"]
    with Terminal(command, env, 120, 40, loaded=True) as terminal:
        end_s = time.monotonic() + 60.0
        while time.monotonic() < end_s and "H100" not in "\n".join(terminal.screen()):
            terminal.run(0.5)
        screen = "\n".join(terminal.screen())
    assert "H100" in screen
    assert "night.sqlite" in screen
