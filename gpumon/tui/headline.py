"""The line under the title: what the machine delivers, and the worst that is wrong with it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from gpumon.efficiency.points import in_use
from gpumon.efficiency.ratio import plus
from gpumon.figures.gpu import GPU
from gpumon.readings.format import ELLIPSIS, cells, count, counted, cut, left, memory, ratio, watts
from gpumon.readings.frame import Phase
from gpumon.readings.missing import Missing, Reading, number
from gpumon.readings.prices import price_of_hour
from gpumon.readings.snapshot import Level, Limit, Snapshot, Verdict, physical_gpus
from gpumon.triage.marks import URGENT
from gpumon.triage.render import NARROW_NAMES, NOT_KNOWN
from gpumon.triage.roots import name_together
from gpumon.triage.templates import price_per_hour_text
from gpumon.tui.gpu_table import IDLE_BELOW
from gpumon.tui.line import Piece, Row
from gpumon.tui.totals import MachineTotals, machine_totals
from gpumon.tui.triage_rows import HEALTHY, JUST_ENDED, NO_TOKEN, Item
from gpumon.tui.triage_words import LEVEL_MARKS
from gpumon.tui.view import View

_GAP: Final = "  "
"""Blanks between two figures, and behind the last."""
_FIGURES_SHARE: Final = 0.4
"""Share of the line that the figures get beside a problem."""
_LEAST_FIGURES: Final = 12
"""Cells for figures however long the words are: the decode rate."""
_BLANKS_OF_FIGURES: Final = 2
"""A blank before the figures, and one behind them."""
_LEAST_WORDS: Final = 16
"""Cells below which the beginning of a longer sentence says nothing."""
_LEAST_ACTION: Final = 20
"""The same of an action behind its arrow, which may begin with who is to do it."""
_END_OF_CLAUSE: Final = re.compile(r"[:;] | \(")
"""A colon, a semicolon or a bracket: what stands before it is read alone where there is no room for the rest."""
_LEAD: Final = re.compile(r"(?:gpu \d{1,6}: )?(?:seen until [\d:]+: )?")
"""The GPU that a sentence on several is about, and until when it held: with a colon, but no clause of their own."""
_NOT_SERVING: Final = {Limit.STARTING: "starting", Limit.DRAINING: "draining"}
"""Limit of an engine that serves nobody new, with which nothing is wrong -> its state."""
_LEAST_KEPT: Final = 0.5
"""Part of its room that whole words fill at least: where they do not, the next word is broken."""
_LEAST_FILLED: Final = 0.6
"""Share of the room that whole clauses fill at least where no more of the text is shown."""
_LINE_TONES: Final = {Level.CRITICAL: "alarm", Level.WARN: "warn"}
"""Tone of the whole line, by the worst level."""


class Sentence(NamedTuple):
    """The words of triage where there is no problem."""

    text: str
    tone: str
    gives_way: bool = False
    """Whether figures may take all of its room: triage only waits."""
    least: str = ""
    """Begin of the text before which figures give way; empty: its first clause."""


def headline(snapshot: Snapshot, items: Sequence[Item], prices: Mapping[str, float], width: int, view: View) -> Row:
    """One line of `width` cells.

    `items`: the rows of the triage pane, the worst first. `prices`: as `running_prices` gives them.
    """
    figures = _figures(snapshot, view, prices)
    troubles = [item for item in items if item.trouble]
    if troubles:
        return row_of_trouble(troubles[0], Counter(item.level for item in troubles), figures, width)
    return row_without_trouble(_sentence_without_trouble(items, snapshot.verdicts), figures, width)


def price_per_hour(snapshot: Snapshot, prices: Mapping[str, float]) -> float | None:
    """Price of one hour of all GPUs of the machine; None where the price of one of them is not known."""
    hourly = [price_of_hour(gpu.gpu_type, prices) for gpu in physical_gpus(snapshot.gpus)]
    if not hourly:
        return None
    return number(plus(*hourly))


def _figures(snapshot: Snapshot, view: View, prices: Mapping[str, float]) -> list[Piece]:
    """Texts and tones of the figures that there are, the most important first: what engines and training runs do, else
    what their GPUs do."""
    total = machine_totals(snapshot)
    figures = rate_figures(total.decode_tokens_per_s, total.trained_tokens_per_s, total.mfu_ratio, total.mbu_ratio)
    if not figures:
        figures = _gpu_figures(total, len(in_use(physical_gpus(snapshot.gpus))), view)
    figures += cost_figures(total.power_w, price_per_hour(snapshot, prices))
    if snapshot.engines or not snapshot.gpus:  # without engines their pane says so
        runs_only = all(engine.phase is Phase.TRAINING for engine in snapshot.engines)
        figures.append(engines_up(total.engines_up, total.engines, thing="runs" if runs_only else "engines"))
    return figures


def rate_figures(
    decode_tokens_per_s: Reading, trained_tokens_per_s: Reading, mfu: Reading, mbu: Reading
) -> list[Piece]:
    """Tokens per second of engines and of training runs, MFU and MBU, each where it is known."""
    texts = []
    if not isinstance(decode_tokens_per_s, Missing):
        texts.append(f"{count(decode_tokens_per_s)} tok/s")
    if not isinstance(trained_tokens_per_s, Missing):
        texts.append(f"{count(trained_tokens_per_s)} tok/s trained")
    if not isinstance(mfu, Missing):
        texts.append(f"MFU {ratio(mfu)}")
    if not isinstance(mbu, Missing):
        texts.append(f"MBU {ratio(mbu)}")
    return [(text, "strong") for text in texts]


def _gpu_figures(total: MachineTotals, gpus_used: int, view: View) -> list[Piece]:
    """Use of the GPUs: while they work how far into the chip it goes, and their memory. Where only `gpus_used` are, it
    says of how many the means are: those of the charts leave unused ones out."""
    texts = []
    if not isinstance(total.busy_ratio, Missing):
        basis = f" of all {total.gpus} GPUs" if gpus_used < total.gpus else ""
        texts.append(f"busy {ratio(total.busy_ratio)}{basis}")
        if total.busy_ratio >= IDLE_BELOW:
            texts += _activity_texts(total)
    used = total.vram_used_bytes
    if not isinstance(used, Missing):
        texts.append(
            f"VRAM {memory(used, view.memory_bytes)}/{memory(total.vram_total_bytes, view.memory_bytes)} "
            f"{view.memory_unit}"
        )
    return [(text, "strong") for text in texts]


def _activity_texts(total: MachineTotals) -> list[str]:
    """SM and tensor activity and memory bandwidth, each where it is known."""
    shares = (
        (GPU["sm_active_ratio"].short, total.sm_active_ratio),
        (GPU["tensor_active_ratio"].short, total.tensor_active_ratio),
        (GPU["bandwidth_bytes_per_s"].short, total.bandwidth_ratio),
    )
    return [f"{name} {ratio(share)}" for name, share in shares if not isinstance(share, Missing)]


def cost_figures(power_w: Reading, price_per_h: float | None) -> list[Piece]:
    """Power and cost, as far as they are known."""
    figures: list[Piece] = []
    if not isinstance(power_w, Missing):
        figures.append((watts(power_w), "text"))
    if price_per_h is not None:
        figures.append((price_per_hour_text(price_per_h), "text"))
    return figures


def engines_up(up: int, engines: int, *, thing: str = "engines") -> Piece:
    """`3/4 engines up`: a warning unless all are."""
    if not engines:
        return "no engine found", "muted"
    tone = "text" if up == engines else "warn"
    return f"{up}/{engines} {thing} up", tone


def row_without_trouble(sentence: Sentence, figures: Sequence[Piece], width: int) -> Row:
    """The figures, and what triage says where there is no problem: a figure that would cut its first words short is
    left out, unless it is a warning."""
    clause_cells = 0 if sentence.gives_way else cells(sentence.least or _first_clause(sentence.text))
    row: list[Piece] = [(" ", "text")]
    room = width - 1
    for text, tone_of_figure in figures:
        size = cells(text) + len(_GAP)
        least = 0 if tone_of_figure == "warn" else clause_cells
        if size + least <= room:
            row += [(text, tone_of_figure), (_GAP, "text")]
            room -= size
    if room >= min(_LEAST_WORDS, cells(sentence.text)):
        row.append((_cut_at_clause(sentence.text, room), sentence.tone))
    return tuple(row)


def sentence_of_notes(notes: int, title: str = "", words: str = "") -> Sentence:
    """`● no problem found; + 2 notes: gpu 1 VRAM held: ...`, with the `title` of the first one, before which figures
    give way, and its `words` as far as there is room; without a title the number of notes."""
    ok = LEVEL_MARKS[Level.OK]
    glyph_of_notes = LEVEL_MARKS[Level.NOTE].glyph
    text = f"{ok.glyph} no problem found; {glyph_of_notes} {counted(notes, 'note')}"
    if not title:
        return Sentence(text, ok.tone)
    return Sentence(f"{text}: {title}: {words}", ok.tone, least=f"{text}: {title}")


def _sentence_without_trouble(items: Sequence[Item], verdicts: Sequence[Verdict]) -> Sentence:
    """Triage's text on engines that have just ended or give no token, else what will be full soon, else the number of
    notes, else the text of its row for all that is healthy; empty where it has no row yet. Before notes: the engines
    that serve nobody new."""
    suspicion = next((item for item in items if item.key in (JUST_ENDED, NO_TOKEN)), None)
    if suspicion is not None:
        return Sentence(suspicion.text, suspicion.tone)
    acknowledged = sum(1 + len(item.same) for item in items if item.acknowledged)
    if acknowledged:
        ok = LEVEL_MARKS[Level.OK]
        return Sentence(f"{ok.glyph} {counted(acknowledged, 'verdict')} acknowledged; no other problem", ok.tone)
    forecast = next((item for item in items if item.label == NARROW_NAMES[Limit.FORECAST]), None)
    if forecast is not None:
        glyph = LEVEL_MARKS[Level.NOTE].glyph
        words = forecast.text.removeprefix(f"{forecast.scope} ")  # `host memory full`
        return Sentence(f"{glyph} {forecast.scope} {words}", "text")
    notes = [item for item in items if item.level is Level.NOTE]
    if notes:
        return _with_not_serving(_sentence_on_first(notes), verdicts)
    return _sentence_on_health(items)


def _sentence_on_first(notes: Sequence[Item]) -> Sentence:
    """The number of notes, and the first one; where a limit is not known, that, as nobody then knows that there is no
    problem: `? train unknown, + 1 note: what the GPUs wait for`."""
    unknown = next((item for item in notes if item.label == NARROW_NAMES[Limit.UNKNOWN]), None)
    if unknown is None:
        first = notes[0]
        return sentence_of_notes(len(notes), f"{first.scope} {first.label}".strip(), first.text)
    words = unknown.text.removeprefix(NOT_KNOWN)  # the label tells nothing by itself
    begin = f"? {unknown.scope} {unknown.label}"
    if len(notes) > 1:
        begin = f"{begin}, {LEVEL_MARKS[Level.NOTE].glyph} {counted(len(notes) - 1, 'note')}"
    return Sentence(f"{begin}: {words}", "text", least=f"{begin}: {_first_clause(words)}")


def _sentence_on_health(items: Sequence[Item]) -> Sentence:
    """Triage's text on all that is healthy; empty where it has no row yet."""
    healthy = next((item for item in items if item.key == HEALTHY), None)
    if healthy is None:
        return Sentence("", "text")
    if healthy.waits:
        return Sentence(healthy.text, "muted", gives_way=True)
    ok = LEVEL_MARKS[Level.OK]
    return Sentence(f"{ok.glyph} {healthy.text}", ok.tone)


def _with_not_serving(sentence: Sentence, verdicts: Sequence[Verdict]) -> Sentence:
    """`● llama-8b starting; no problem found; + 1 note`: the sentence after the engines that serve nobody new."""
    states: dict[str, list[str]] = {}
    for verdict in verdicts:
        if verdict.code in _NOT_SERVING:
            states.setdefault(_NOT_SERVING[verdict.code], []).append(verdict.scope)
    if not states:
        return sentence
    parts = [f"{name_together(names)} {state}" for state, names in states.items()]
    ok = LEVEL_MARKS[Level.OK].glyph
    return Sentence(f"{ok} {'; '.join(parts)}; {sentence.text.removeprefix(f'{ok} ')}", sentence.tone)


def row_of_trouble(worst: Item, counts: Mapping[Level, int], figures: Sequence[Piece], width: int) -> Row:
    """Number of problems by level (`✗ 1 ! 2`), the worst one in words and its first action; then as many figures as
    have room.

    The whole line has the colour of the worst level.
    """
    tone = _LINE_TONES[worst.level]
    counts_text = " ".join(f"{LEVEL_MARKS[level].glyph} {counts[level]}" for level in URGENT if counts.get(level))
    begin = f" {counts_text}  {worst.scope} {worst.label}".rstrip()
    least_words = cells(f"{begin}: {_in_short(worst)}") + _BLANKS_OF_FIGURES
    if worst.actions and least_words + _least_action(worst) + _LEAST_FIGURES <= width:
        least_words += _least_action(worst)
    room_of_figures = min(int(width * _FIGURES_SHARE), width - least_words)
    figures_text = _figures_that_fit([text for text, _ in figures], max(_LEAST_FIGURES, room_of_figures))
    if not figures_text:
        return ((left(_problem_text(begin, worst, width), width), tone),)
    room = width - cells(figures_text) - _BLANKS_OF_FIGURES
    problem = _problem_text(begin, worst, room)
    return ((left(problem, room + 1), tone), (f"{figures_text} ", tone))


def _problem_text(begin: str, worst: Item, room: int) -> str:
    """`llama-70b hung: no token for 3 min → restart it`: the action where enough of it fits behind the words."""
    room_of_text = room - cells(begin) - 2
    words = _cut_at_clause(worst.text, room_of_text)
    if worst.affected and words != worst.text and cells(_in_short(worst)) <= room_of_text:
        words = _in_short(worst)
    elif worst.actions and cells(words) + _least_action(worst) > room_of_text:
        first = _first_clause(worst.text)
        if cells(first) + _least_action(worst) <= room_of_text:
            words = first
    text = cut(f"{begin}: {words}", room)
    if not worst.actions:
        return text
    action = _action_text(worst)
    left_over = room - cells(text)
    if left_over < _least_action(worst):
        return text
    return text + _cut_at_word(action, left_over)


def _action_text(worst: Item) -> str:
    """The best action of an item that has one, as it stands behind the words."""
    return f" → {worst.actions[0]}"


def _least_action(worst: Item) -> int:
    """Cells that its best action takes at least."""
    return min(_LEAST_ACTION, cells(_action_text(worst)))


def _in_short(worst: Item) -> str:
    """The first words of an item, and what suffers from it: `Xid 79; 3 GPUs and llama-70b wait for it`."""
    first = _first_clause(worst.text)
    if worst.affected and first != worst.affected:
        return f"{first}; {worst.affected}"
    return first


def _first_clause(text: str) -> str:
    """The text before the first colon, semicolon or bracket behind its lead."""
    lead = _LEAD.match(text)
    end = _END_OF_CLAUSE.search(text, lead.end() if lead else 0)
    return text[: end.start()] if end else text


def _cut_at_clause(text: str, room: int) -> str:
    """The text where it fits; else as many whole clauses as do, or, where these would leave much room empty, its first
    words."""
    if cells(text) <= room:
        return text
    whole = ""
    for end in _END_OF_CLAUSE.finditer(text, len(_first_clause(text))):
        if cells(text[: end.start()]) <= room:
            whole = text[: end.start()]
    if cells(whole) >= _LEAST_FILLED * room:
        return whole
    return _cut_at_word(text, room)


def _cut_at_word(text: str, room: int) -> str:
    """The text where it fits; else its first words and an ellipsis, or, where a long word would leave much room empty,
    a part of that."""
    if cells(text) <= room:
        return text
    first_cells = cut(text, room)
    kept = first_cells.removesuffix(ELLIPSIS)
    words = kept.rpartition(" ")[0]
    ends_with_word = text.removeprefix(kept).startswith(" ")
    if ends_with_word or not words or cells(words) < _LEAST_KEPT * room:
        return first_cells
    return f"{words} {ELLIPSIS}"


def _figures_that_fit(figures: Sequence[str], room: int) -> str:
    """As many whole figures as fit, in their order."""
    text = ""
    for figure in figures:
        longer = f"{text}{_GAP}{figure}" if text else figure
        if cells(longer) > room:
            break
        text = longer
    return text
