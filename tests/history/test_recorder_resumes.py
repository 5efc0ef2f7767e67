"""Writers one after another: a minute that one did not end is gone on with by the next."""

from __future__ import annotations

from pathlib import Path

from gpumon.history.file import make_recording, open_connection
from gpumon.history.reader import Recording
from gpumon.history.recorder import Writer
from tests.history.frames import WALL_S
from tests.history.ticks import FACTS, tick


def rows(path: Path, kind: int) -> int:
    found: int = (
        open_connection(path, "ro").execute("SELECT COUNT(*) FROM pieces WHERE kind = ?", (kind,)).fetchone()[0]
    )
    return found


def test_restarts_leave_no_single_rows(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    make_recording(path, FACTS)
    for start in range(0, 300, 50):
        with open_connection(path, "rw") as connection:
            writer = Writer(connection)  # the one before never ended its minute
            writer.write([tick(number) for number in range(start, start + 50)])
            if start == 100:
                writer.finish()
        connection.close()
    minutes = {(WALL_S + number) // 60 for number in range(300)}
    newest = sum((WALL_S + number) // 60 == max(minutes) for number in range(300))
    assert rows(path, 1) == len(minutes) - 1 + newest
    with open_connection(path, "rw") as connection:
        Writer(connection).finish()
    assert rows(path, 1) == len(minutes)
    assert rows(path, 2) <= len(minutes)
    past = Recording(path)
    assert [frame.seq for frame in past.frames(0.0, 4e9)] == [*range(300)]
    seen = past.points(0.0, 4e9)
    assert len({point.wall_s for point in seen}) == len(seen) > 50
    assert past.damaged == 0


def test_a_damaged_row_stays_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    make_recording(path, FACTS)
    with open_connection(path, "rw") as connection:
        Writer(connection).write([tick(number) for number in range(10)])
        connection.execute("UPDATE pieces SET data = x'00' WHERE kind = 1 AND first_s = ?", (WALL_S + 5,))
        Writer(connection).finish()
    past = Recording(path)
    assert [frame.seq for frame in past.frames(0.0, 4e9)] == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert past.damaged == 1


def test_a_clock_set_back_at_a_restart_begins_another_run(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    make_recording(path, FACTS)
    with open_connection(path, "rw") as connection:
        Writer(connection).write([tick(number) for number in range(30)])
        later = Writer(connection)
        later.write([tick(number, WALL_S + number - 20) for number in range(30, 40)])
        later.finish()
    past = Recording(path)
    assert past.turns() == 2
    assert [frame.seq for frame in past.frames(0.0, WALL_S + 19)] == [*range(10), *range(30, 40)]
    assert rows(path, 1) == 2
