"""The card of an incident as one picture (SVG) and one page of Markdown: what people post in the channel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Final
from urllib.parse import quote
from xml.sax.saxutils import escape

from gpumon.figures import unit
from gpumon.figures.charted import CHARTED
from gpumon.figures.unit import Unit
from gpumon.outputs import markdown as md
from gpumon.outputs.units import FORMAT_BY_UNIT
from gpumon.readings import format as human
from gpumon.readings.format import wall_of
from gpumon.readings.incident_card import CardChart, IncidentCard
from gpumon.readings.missing import Reading
from gpumon.readings.period import Incident
from gpumon.readings.text import clean
from gpumon.triage.chain import chain_text

_WIDTH: Final = 960
_MARGIN: Final = 24
_LINE: Final = 20
"""Pixels from one line of text to the next."""
_PLOT_LEFT: Final = 92
_PLOT_HEIGHT: Final = 84
_CHART_HEIGHT: Final = 130
_MOST_CHARACTERS: Final = 118
"""Characters of a line of text."""
_CLOCK_WIDTH: Final = 60
"""Pixels of a time of day."""
_GAP_S: Final = 15.0
"""Seconds between two points up to which the curve is never broken: points are means of 5 s, or of longer times."""
_GAP_STEPS: Final = 2.5
"""A longer time breaks the curve where it is so many times the longer of the steps beside it (a choice): the past that
a bundle keeps is thinner than what came last."""
_COLOURS: Final = {"critical": "#c62828", "warn": "#b26a00"}
_PLAIN: Final = "#444444"
_STYLE: Final = (
    "text{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:13px;fill:#222}"
    ".big{font-size:18px;font-weight:bold}.dim{fill:#777}.small{font-size:11px}"
)
_OTHER_NAMES: Final = {"dram": "memory bandwidth", "cpu": "CPU", "core": "busiest core", "iowait": "iowait"}
"""Name of a series without a figure's row -> its name; all are shares."""


def files(card: IncidentCard, name: str) -> dict[str, str]:
    """Name of each of its two files -> its text."""
    picture = f"{name}.svg"
    return {picture: _svg(card), f"{name}.md": "\n".join(_markdown_lines(card, picture)) + "\n"}


def _markdown_lines(card: IncidentCard, picture: str) -> Iterator[str]:
    yield f"# {md.safe(_title(card))}"
    yield ""
    yield md.safe(_facts(card))
    yield ""
    if card.chain:
        yield f"**{md.safe(chain_text(card.chain, _clock))}**"
        yield ""
    cause, *consequences = _chain(card)
    yield f"- {md.safe(cause)}"
    for line in consequences:
        yield f"  - {md.safe(line)}"
    for heading, texts in (("Evidence", card.evidence), ("Advised", card.actions)):
        if texts:
            yield ""
            yield f"**{heading}**"
            yield ""
            for text in texts:
                yield f"- {md.safe(text)}"
    if card.events:
        yield ""
        yield "**What happened meanwhile**"
        yield ""
        for line in _event_lines(card):
            yield f"- {md.safe(line)}"
    if card.charts:
        yield ""
        yield from md.header_lines("mean of|before:|during:|after:")
        for chart in card.charts:
            means = (chart.before, chart.during, chart.after)
            yield md.table_line(md.safe(_chart_name(chart)), *(md.safe(_written(chart, mean)) for mean in means))
    yield ""
    yield f"![{md.safe(_title(card))}]({quote(picture)})"


def _svg(card: IncidentCard) -> str:
    """The picture: title, chain, charts with the time of the incident in red, what happened meanwhile."""
    parts = list(_svg_texts(card))
    height = _MARGIN + _LINE * len(parts)
    drawn = []
    for at, (text, style, fill) in enumerate(parts):
        y = _MARGIN + _LINE * at + 12
        drawn.append(_text(_MARGIN, y, human.cut(text, _MOST_CHARACTERS), style, fill))
    for chart in card.charts:
        drawn += _chart_parts(card, chart, height)
        height += _CHART_HEIGHT
    for line in _event_lines(card):
        drawn.append(_text(_MARGIN, height + 12, human.cut(line, _MOST_CHARACTERS)))
        height += _LINE
    height += _MARGIN
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
            f'viewBox="0 0 {_WIDTH} {height}" role="img">',
            f"<title>{escape(_title(card))}</title>",
            f"<style>{_STYLE}</style>",
            f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
            *drawn,
            "</svg>\n",
        )
    )


def _svg_texts(card: IncidentCard) -> Iterator[tuple[str, str, str]]:
    """The lines above the charts: text, class and colour."""
    yield _title(card), "big", _COLOURS.get(card.root.level.value, _PLAIN)
    yield _facts(card), "dim", ""
    if card.chain:
        yield chain_text(card.chain, _clock), "", ""
    cause, *consequences = _chain(card)
    yield cause, "", ""
    for line in consequences:
        yield f"  -> {line}", "", ""
    if card.actions:
        yield f"try: {card.actions[0]}", "", ""
    yield "", "", ""


def _chart_parts(card: IncidentCard, chart: CardChart, top: int) -> Iterator[str]:
    """One chart: the incident's time as a red field, the axis, the curve, its name and means."""
    most = max((value for _, value in chart.points), default=0.0)
    scale = most or 1.0
    bottom = top + 20 + _PLOT_HEIGHT
    seconds = max(card.to_s - card.from_s, 1.0)
    plot_width = _WIDTH - _MARGIN - _PLOT_LEFT

    def x(at_s: float) -> float:
        return round(_PLOT_LEFT + plot_width * (at_s - card.from_s) / seconds, 1)

    means = f"before {_written(chart, chart.before)}, during {_written(chart, chart.during)}"
    yield _text(_PLOT_LEFT, top + 12, f"{_chart_name(chart)}: {means}, after {_written(chart, chart.after)}")
    red_width = max(x(card.end_s) - x(card.begin_s), 2.0)
    yield (
        f'<rect x="{x(card.begin_s)}" y="{top + 20}" width="{red_width:.1f}" height="{_PLOT_HEIGHT}" '
        f'fill="#c62828" fill-opacity="0.13"/>'
    )
    yield (
        f'<path d="M{_PLOT_LEFT} {top + 20}V{bottom}H{_WIDTH - _MARGIN}" fill="none" stroke="#999" stroke-width="1"/>'
    )
    yield _text(_MARGIN, top + 30, _written(chart, most), "small")
    yield _text(_MARGIN, bottom, "0", "small")
    yield _text(_PLOT_LEFT, bottom + 14, _clock(card.from_s), "small dim")
    if x(card.begin_s) > _PLOT_LEFT + _CLOCK_WIDTH:
        yield _text(x(card.begin_s), bottom + 14, _clock(card.begin_s), "small")
    yield _text(_WIDTH - _MARGIN - _CLOCK_WIDTH, bottom + 14, _clock(card.to_s), "small dim")
    steps = []
    pens = _pens([at_s for at_s, _ in chart.points])
    for pen, (at_s, value) in zip(pens, chart.points, strict=True):
        steps.append(f"{pen}{x(at_s)} {bottom - _PLOT_HEIGHT * value / scale:.1f}")
    if steps:
        yield f'<path d="{"".join(steps)}" fill="none" stroke="#1565c0" stroke-width="1.6"/>'


def _pens(times: Sequence[float]) -> list[str]:
    """For each point whether the curve goes on to it (`L`) or begins there (`M`), as at the first and behind a gap."""
    steps_s = [later - earlier for earlier, later in pairwise(times)]
    pens = ["M"] * len(times[:1])
    for number, step_s in enumerate(steps_s):
        beside_s = steps_s[max(0, number - 1) : number] + steps_s[number + 1 : number + 2]
        longest_s = max(_GAP_S, _GAP_STEPS * max(beside_s, default=0.0))
        pens.append("M" if step_s > longest_s else "L")
    return pens


def _text(x: float, y: float, text: str, style: str = "", fill: str = "") -> str:
    """A line of text; text from outside is no markup."""
    attributes = f' class="{style}"' if style else ""
    attributes += f' style="fill:{fill}"' if fill else ""
    return f'<text x="{x}" y="{y}"{attributes} xml:space="preserve">{escape(clean(text))}</text>'


def _title(card: IncidentCard) -> str:
    return f"{clean(card.root.scope, 60)}: {clean(card.root.text, 200)}"


def _facts(card: IncidentCard) -> str:
    """Host, level, day and length."""
    day = datetime.fromtimestamp(card.begin_s).astimezone()
    length = human.age(card.end_s - card.begin_s)
    over = "over" if _is_over(card) else "not over when the recording ends"
    simulated = ", SIMULATED" if card.simulated else ""
    when = f"{day:%Y-%m-%d %H:%M:%S %Z}"
    return f"{card.host or 'host not named'}, {card.root.level.value}, {when}, {length}, {over}{simulated}"


def _is_over(card: IncidentCard) -> bool:
    return all(incident.ended for incident in (card.root, *card.consequences))


def _chain(card: IncidentCard) -> Iterator[str]:
    """The cause, then each consequence with the time after it."""
    yield f"{_clock(card.begin_s)} {_thing_line(card.root)}"
    for incident in card.consequences:
        after_s = wall_of(incident.begin) - card.begin_s
        yield f"{'+' if after_s >= 0.0 else '-'}{human.age(abs(after_s))} {_thing_line(incident)}"


def _thing_line(incident: Incident) -> str:
    return f"{clean(incident.scope, 60)}: {clean(incident.text, 200)}"


def _event_lines(card: IncidentCard) -> list[str]:
    return [f"{_clock(event.wall_s)} {clean(event.scope, 60)}: {clean(event.text, 200)}" for event in card.events]


def _clock(wall_s: float) -> str:
    """Local time of day."""
    return datetime.fromtimestamp(wall_s).astimezone().strftime("%H:%M:%S")


def _chart_name(chart: CardChart) -> str:
    """The name of the figure, and of its thing."""
    base = _base(chart)
    name = CHARTED[base][0].name if base in CHARTED else _OTHER_NAMES.get(base, base)
    return f"{chart.thing} {name}".strip()


def _written(chart: CardChart, value: Reading) -> str:
    """A value of a chart with its unit; the history has bytes as shares of all there is."""
    base = _base(chart)
    kind = CHARTED[base][0].unit if base in CHARTED else unit.SHARE
    if kind is unit.BYTES:  # the history has the share of all there is
        kind = unit.SHARE
    return FORMAT_BY_UNIT[_format_name(kind)](value)


def _format_name(kind: Unit) -> str:
    return kind.endings[-1].removeprefix("_") if kind.endings else "number"


def _base(chart: CardChart) -> str:
    """The series without its thing."""
    return chart.series.partition("@")[0].partition(":")[0]
