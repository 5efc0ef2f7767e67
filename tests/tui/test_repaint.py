"""A repainted frame shows what the frame shows, in fewer bytes: judged by a terminal emulator."""

from __future__ import annotations

import pyte
from hypothesis import given
from hypothesis import strategies as st

from gpumon.tui.repaint import repainted
from tests.each_row import each_row

WIDTH = 30
HEIGHT = 6
CODES = st.sampled_from(
    [
        "38;2;216;222;230",
        "38;2;86;180;233",
        "48;2;16;20;24",
        "48;5;17",
        "0",
        "",
        "1",
        "7",
        "31",
        "97",
        "41",
        "0;1;38;5;9;44",
    ]
)
TEXTS = st.one_of(st.text("ab 019%", min_size=1, max_size=4), st.sampled_from(["⣿⣀", "█", "日", "e\u0301"]))
RUNS = st.lists(
    st.tuples(st.integers(1, HEIGHT), st.integers(1, WIDTH - 8), st.lists(CODES, max_size=2), TEXTS),
    min_size=1,
    max_size=12,
)

Place = tuple[int, int, list[str], str]


def shown(*frames: str) -> list[list[pyte.screens.Char]]:
    """Every cell of a terminal that was written full before these frames came."""
    screen = pyte.Screen(WIDTH, HEIGHT + 1)
    stream = pyte.Stream(screen)
    for line in range(1, HEIGHT + 1):
        stream.feed(f"\x1b[{line};1H" + "." * WIDTH)
    for frame in frames:
        stream.feed(frame)
    return [[screen.buffer[y][x] for x in range(WIDTH)] for y in range(HEIGHT)]


def frame_of(places: list[Place]) -> str:
    """The frame that writes these texts in this order, each with its codes, which add to those before."""
    parts = []
    for line, column, codes, text in places:
        parts.append(f"\n\x1b[{line};1H\x1b[{column}C")
        parts += [f"\x1b[{code}m" for code in codes]
        parts.append(text)
    return "".join(parts) + "\x1b[0m"


@given(RUNS)
def test_any_frame_shows_the_same(places: list[Place]) -> None:
    frame = frame_of(places)
    assert shown(repainted(frame)) == shown(frame)


@given(RUNS)
def test_a_frame_in_order_shows_the_same(places: list[Place]) -> None:
    frame = frame_of(sorted(places, key=lambda place: place[:2]))
    assert shown(repainted(frame)) == shown(frame)


def test_a_colour_is_named_once_and_near_cells_are_reached_by_a_step() -> None:
    light = "38;2;216;222;230"
    blue = "38;2;86;180;233"
    frame = (
        f"\x1b[1;1H\x1b[4C\x1b[{light}m7\x1b[3C5\x1b[2C\x1b[{blue}m66\x1b[0m\r\n"
        f"\x1b[2;1H\x1b[4C\x1b[{light}m8\x1b[6C\x1b[{blue}m67\x1b[0m"
    )
    assert repainted(frame) == (f"\x1b[1;5H\x1b[{light}m7\x1b[3C5\x1b[2;5H8\x1b[1;12H\x1b[{blue}m66\x1b[2;12H67\x1b[m")


def test_a_long_frame_is_written_from_the_top_down() -> None:
    line = "\x1b[{0};1H\x1b[31maaaa\x1b[32mbbbb\x1b[0m"
    short = "".join(line.format(number) for number in range(1, 4))
    long = "".join(line.format(number) for number in range(1, 400))
    assert repainted(short).count("\x1b[31m") == 1
    assert repainted(long).index("\x1b[2;1H") < repainted(long).index("\x1b[3;1H")
    assert repainted(long).count("\x1b[31m") == 399


@each_row(
    "frame",
    [
        "\x1b[?1049h\x1b[?25l",
        "\x1b[2;2H\x1b]8;;https://a.example\x1b\\link\x1b]8;;\x1b\\",
        "\x1b[2;2H\x1b[38;9mred",
        "\x1b[2;2H\x1b[38mred",
        "\x1b[2;2Ha\x07b",
        "text without a place",
        "",
    ],
)
def test_what_is_not_cells_alone_is_left_as_it_is(frame: str) -> None:
    assert repainted(frame) == frame


def test_the_cursor_stays_where_the_frame_left_it() -> None:
    assert repainted("\x1b[3;4Ha\x1b[0m\x1b[2;9H") == "\x1b[3;4Ha\x1b[2;9H"
