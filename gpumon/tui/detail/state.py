"""The top of every page: how the thing is, how old its figures are, since when, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from gpumon.config.schema import Levels
from gpumon.readings.format import DASH
from gpumon.readings.frame import EndpointState, GpuState
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Engine, FaultShown, Gpu, Kind, Level, Replicas, Snapshot, Verdict
from gpumon.readings.text import clean
from gpumon.triage.marks import peers_waited_for, states_by_key, urgent_by_gpu, urgent_by_key
from gpumon.triage.render import LIMIT_NAMES, NARROW_NAMES, WAITS, actions_text, evidence_text, verdict_text
from gpumon.tui.detail.blocks import Entry, Fact, Section, Sentence
from gpumon.tui.detail.things import ProcessOnGpus, ShownKey, Thing, blank_reason, is_blank
from gpumon.tui.detail.values import duration_text, shown_time, shown_time_of_rfc3339
from gpumon.tui.detail.why import Subject, make_explainer
from gpumon.tui.engine_table import STATES, ended_word
from gpumon.tui.gpu_table import gpu_state, judged_state
from gpumon.tui.line import Row
from gpumon.tui.table import clock
from gpumon.tui.triage_words import mark, remarked

_MOST_PEERS: Final = 60
"""Characters of the names of the GPUs that one waits for."""
_MEANINGS: Final = {
    "! low eff.": "busy, but MFU and MBU are both low: small batches, waiting for the host, or work unknown to gpumon",
    "! row remap": "a memory row waits for remapping: reset this GPU when it is free",
}
"""Meanings of those words of a GPU's state that do not explain themselves; shown where no fault does."""
_SILENT_STATES: Final = (GpuState.LOST, GpuState.STALE, GpuState.ERROR, GpuState.MUTE)
"""States of a GPU that began with its last answer."""
_VERDICT_INDENT: Final = 4
"""Cells before what stands below a verdict."""
FAULTS_TITLE: Final = "what does not work"
"""Title of the section of faults, and of figures that contradict each other."""
_LONGEST_FAULT: Final = 1000
"""Characters of a fault."""
_REASONS_OF_UNREAD: Final = frozenset({Reason.UNREACHABLE, Reason.WARMING_UP})
"""Why an engine that never answered has no figures."""
_STATES_WITH_VERDICT: Final = frozenset({EndpointState.DOWN, EndpointState.STARTING})
"""States of an engine that its verdict says all of."""
_REASONS_GONE: Final = {
    "gpu": "not listed by the driver",
    "engine": "no longer polled",
    "replicas": "fewer than two engines serve this model now",
    "process": "no longer on a GPU",
    "verdict": "no longer found",
}
"""Why a thing is not in the snapshot, by its kind."""


class Topic(NamedTuple):
    """The subject of a page at one moment."""

    key: ShownKey
    now: Thing | None
    """The thing as it is in the snapshot; None where it is not in it."""
    figures: Thing | None
    """The thing with the figures that are shown: the last ones, where it has none now; None before it was ever seen."""
    figures_wall_s: float
    """When those figures were read (Unix time)."""
    gone_wall_s: float
    """Time of the first snapshot without it (Unix time); 0 where it is there."""

    @property
    def old(self) -> bool:
        """Whether the figures are not those of now."""
        if self.figures is None or is_blank(self.figures):
            return False
        return self.now is None or is_blank(self.now)


def head_lines(topic: Topic, snapshot: Snapshot, levels: Levels) -> list[Row]:
    """The lines that stay while the rest of a page scrolls: the state, and a warning where the figures are old."""
    rows: list[Row] = [_state_row(topic, snapshot, levels)]
    if topic.old:
        read = shown_time(topic.figures_wall_s, snapshot.wall_s)
        warning = f" the figures below are OLD: read at {read.clock}, {duration_text(read.ago_s)} ago"
        rows.append(((warning, "warn"),))
    return rows


def _state_row(topic: Topic, snapshot: Snapshot, levels: Levels) -> Row:
    """The line of the thing as it is now; of one that is gone, since when it is."""
    thing = topic.now
    if thing is None:
        return _gone_row(topic, snapshot)
    if isinstance(thing, Verdict):
        return _verdict_row(thing, snapshot)
    if isinstance(thing, Replicas):
        return _replicas_row(thing, snapshot)
    if isinstance(thing, Gpu):
        return _gpu_row(thing, snapshot, levels)
    if isinstance(thing, Engine):
        return _engine_row(thing, snapshot)
    oldest, _ = max(thing.by_gpu, key=lambda listed: listed[0].age_s)
    return ((" ● on the GPU", "ok"), (_age_text(oldest), "text"))


def _gone_row(topic: Topic, snapshot: Snapshot) -> Row:
    """Why a thing is not in the snapshot, and since when."""
    if topic.figures is None:
        return ((f" ✗ not there at {shown_time(snapshot.wall_s, snapshot.wall_s).clock}", "warn"),)
    since = shown_time(topic.gone_wall_s, snapshot.wall_s)
    is_gpu_silent = _has_silent_gpu(topic.figures, snapshot)
    reason = "its GPU does not answer" if is_gpu_silent else _REASONS_GONE[topic.key[0]]
    return ((" ✗ GONE", "warn"), (f" · {reason} · since {since.clock} ({duration_text(since.ago_s)})", "text"))


def _verdict_row(verdict: Verdict, snapshot: Snapshot) -> Row:
    """Name of a verdict, its level, since when it stands, and its confidence."""
    glyph, tone, word = mark(verdict)
    details = f" · {word}{_since_text(verdict.since, snapshot)} · confidence {verdict.confidence.value}"
    for other in snapshot.verdicts:
        if other.id == verdict.caused_by:
            details = f"{details} · because of {clean(other.scope, _MOST_PEERS)}: {LIMIT_NAMES[other.code]}"
    return (f" {glyph} {LIMIT_NAMES[verdict.code]}", tone), (details, "text")


def _replicas_row(replicas: Replicas, snapshot: Snapshot) -> Row:
    """How many replicas answer, and which of them stand apart."""
    word, tone = _replicas_word(replicas, snapshot)
    basis = " · sums over the engines that answer" if replicas.answering < len(replicas.engines) else ""
    warning = f" · ! apart: {', '.join(replicas.deviating)}" if replicas.deviating else ""
    return (f" {word}", tone), (basis, "text"), (warning, "warn")


def _gpu_row(gpu: Gpu, snapshot: Snapshot, levels: Levels) -> Row:
    """The word of a GPU's row, the age of its reading, and since when it is in trouble."""
    urgent = urgent_by_gpu(snapshot).get(gpu.reading.uuid)
    of_state = states_by_key(snapshot.verdicts, Kind.GPU).get(gpu.reading.uuid)
    word, tone = judged_state(gpu, levels, urgent, of_state)
    if word.startswith(" "):  # the row has a blank in place of a mark: nothing is wrong
        word = f"● {word.strip()}"
        tone = "ok"
    if urgent is not None and word.endswith(WAITS):
        word = f"{word} for {clean(peers_waited_for(gpu, urgent), _MOST_PEERS)}"
    return ((f" {word}", tone), (f"{_age_text(gpu)}{_gpu_since_text(gpu, snapshot)}", "text"))


def _engine_row(engine: Engine, snapshot: Snapshot) -> Row:
    """The word of an engine's row, the age of its reading, and since when it is in its state."""
    word, tone = engine_word(engine, snapshot)
    since = _since_text(engine.since, snapshot)
    if engine.departure:
        # `! stopped since 14:05` has the time already: `since` takes its place, as it says how long ago that was.
        word_alone, _, _ = word.partition(" since")
        return ((f" {word_alone}", tone), (since.removeprefix(" ·"), "text"))
    if engine.state is EndpointState.OK and tone != "ok":
        # The word is that of a verdict, but `since` is when the engine began to answer.
        since = since.replace("since", "answers since", 1)
    return ((f" {word}", tone), (f"{_age_text(engine)}{since}", "text"))


def _age_text(thing: Gpu | Engine) -> str:
    """The age of the last reading; empty for a silent GPU, whose line says since when it is silent."""
    if isinstance(thing, Gpu) and thing.reading.state in _SILENT_STATES:
        return ""
    if _is_never_read(thing):
        return " · never read"
    return f" · read {duration_text(thing.age_s)} ago"


def _replicas_word(replicas: Replicas, snapshot: Snapshot) -> tuple[str, str]:
    """Word and tone of replicas: how many of them have ended, or give no figures."""
    count = len(replicas.engines)
    silent = count - replicas.answering
    if silent == 0:
        return "● all answer", "ok"
    ended = sum(1 for engine in snapshot.engines if engine.departure and engine.name in replicas.engines)
    if ended == silent:
        return f"! {ended} of {count} down", "warn"
    return f"! {silent} of {count} without figures", "warn"


def engine_word(engine: Engine, snapshot: Snapshot) -> tuple[str, str]:
    """Word and tone of an engine, as its row has them: of one that answers its worst verdict, else that it answers; of
    any other its state, marked as the verdict on that is."""
    verdicts = [verdict for verdict in snapshot.verdicts if verdict.key == engine.key]
    if engine.state is EndpointState.OK:
        worst = urgent_by_key(verdicts, Kind.ENGINE).get(engine.key)
        if worst is None:
            return _word_of_answering(engine)
        glyph, tone, _ = mark(worst)
        return f"{glyph} {NARROW_NAMES[worst.code]}", tone
    return _word_of_silent(engine, verdicts)


def _word_of_silent(engine: Engine, verdicts: Sequence[Verdict]) -> tuple[str, str]:
    """Word and tone of an engine that gives no figures; `verdicts`: those on it."""
    if engine.departure:
        word, tone = ended_word(engine)
    else:
        word, tone = STATES[engine.state]
    of_state = states_by_key(verdicts, Kind.ENGINE).get(engine.key)
    if of_state is None:
        return word, tone
    return remarked(word, tone, of_state.level)


def _word_of_answering(engine: Engine) -> tuple[str, str]:
    """Word and tone of an engine that answers and has no verdict: the first thing that its row is marked for."""
    if engine.asleep:
        return "… asleep", "muted"
    if engine.contradicts:
        return "! its figures contradict its GPUs", "warn"
    if engine.uneven:
        return "! its ranks are uneven", "warn"
    if engine.deviates:
        return "! apart from its replicas", "warn"
    return "● answering", "ok"


def _is_never_read(thing: Gpu | Engine) -> bool:
    """Whether an engine has not answered yet. Its age alone does not tell: a fresh answer is 0 s old, too."""
    if isinstance(thing, Gpu) or thing.age_s > 0.0:
        return False
    return isinstance(thing.load.running, Missing) and thing.load.running.reason in _REASONS_OF_UNREAD


def _gpu_since_text(gpu: Gpu, snapshot: Snapshot) -> str:
    """Since when a GPU is silent, or has the first of its faults; empty where it has none."""
    if gpu.reading.state in _SILENT_STATES:
        since = shown_time(snapshot.wall_s - gpu.age_s, snapshot.wall_s)
        return f" · has not answered since {since.clock}"
    begins = [fault.since for fault in snapshot.faults if fault.source == f"gpu {gpu.reading.index}"]
    if begins:
        return _since_text(min(begins), snapshot)
    return ""


def _since_text(rfc3339: str, snapshot: Snapshot) -> str:
    """` · since 03:05:00 (3 min)`; empty where the text is no time."""
    since = shown_time_of_rfc3339(rfc3339, snapshot.wall_s)
    if since is not None:
        return f" · since {since.clock} ({duration_text(since.ago_s)})"
    return ""


def _has_silent_gpu(thing: Thing, snapshot: Snapshot) -> bool:
    """Whether a GPU that a process was on shows nothing at all now, not even its processes."""
    if not isinstance(thing, ProcessOnGpus):
        return False
    uuids = {gpu.reading.uuid for gpu, _ in thing.by_gpu}
    for gpu in snapshot.gpus:
        if gpu.reading.uuid in uuids and is_blank(gpu):
            return True
    return False


def trouble_sections(topic: Topic, snapshot: Snapshot, levels: Levels) -> list[Section]:
    """Sections `FAULTS_TITLE` and `what limits it`, each only where there is something to say."""
    thing = topic.now or topic.figures
    if not isinstance(thing, (Gpu, Engine)):
        return []
    entries = _trouble_entries(thing, snapshot, levels)
    if not entries and thing is topic.now and not _has_state_verdict(thing, snapshot):
        entries = _no_figures_entries(thing)
    sections: list[Section] = []
    if entries:
        sections.append(Section(FAULTS_TITLE, entries))
    limits = _verdict_entries(thing, snapshot)
    if limits:
        sections.append(Section("what limits it", limits))
    return sections


def _trouble_entries(thing: Gpu | Engine, snapshot: Snapshot, levels: Levels) -> list[Entry]:
    """Faults of a thing; of a GPU without any the meaning of its state, and of an engine its contradictions."""
    entries = _fault_entries(thing, snapshot)
    if isinstance(thing, Engine):
        entries += _contradiction_entries(thing)
    elif not _faults_of(thing, snapshot):
        meaning = _MEANINGS.get(gpu_state(thing, levels)[0], "")
        if meaning:
            entries.append(Sentence(meaning, "warn"))
    return entries


def _fault_entries(thing: Gpu | Engine, snapshot: Snapshot) -> list[Entry]:
    """The faults that name a thing, after its own fault of now unless one of them or a verdict says the same."""
    faults = _faults_of(thing, snapshot)
    own = thing.reading.state_text if isinstance(thing, Gpu) else thing.fault
    is_said = _has_state_verdict(thing, snapshot) or any(own in fault.text for fault in faults)
    entries: list[Entry] = []
    if own and not is_said:
        entries.append(Fact("! now", clean(own, _LONGEST_FAULT), tone="warn"))
    for fault in faults:
        since = shown_time_of_rfc3339(fault.since, snapshot.wall_s)
        begin = since.clock if since is not None else DASH
        entries.append(Fact(f"! since {begin}", fault.text, tone="warn"))
    return entries


def _faults_of(thing: Gpu | Engine, snapshot: Snapshot) -> list[FaultShown]:
    """The faults of a snapshot that name a thing."""
    names = {f"gpu {thing.reading.index}", thing.reading.uuid} if isinstance(thing, Gpu) else {thing.name, thing.url}
    return [fault for fault in snapshot.faults if fault.source in names]


def _contradiction_entries(engine: Engine) -> list[Entry]:
    """Contradictions between an engine's figures and its GPUs, its ranks and its replicas."""
    evidence_by_subject = {
        "": engine.contradicts,
        "uneven ranks: ": engine.uneven,
        "beside its replicas: ": engine.deviates,
    }
    return [
        Sentence(f"! {subject}{evidence_text(figure)}", "warn")
        for subject, evidence in evidence_by_subject.items()
        for figure in evidence
    ]


def _no_figures_entries(thing: Gpu | Engine) -> list[Entry]:
    """The reason why a thing has no figures now, and what to do about it; empty where it has some."""
    missing = blank_reason(thing)
    if missing is None:
        return []
    why = make_explainer(Subject())(missing, "")
    return [Sentence(f"? no figures now: {why.sentence}", "text"), Sentence(f"→ {why.todo}", "accent")]


def _has_state_verdict(thing: Gpu | Engine, snapshot: Snapshot) -> bool:
    """Whether an engine has ended or starts, and a verdict of the page says so."""
    if not isinstance(thing, Engine) or thing.state not in _STATES_WITH_VERDICT:
        return False
    return thing.key in states_by_key(snapshot.verdicts, Kind.ENGINE)


def _verdict_entries(thing: Gpu | Engine, snapshot: Snapshot) -> list[Entry]:
    """Each verdict on a thing with what to try and its evidence; a verdict that all is well without its evidence."""
    entries: list[Entry] = []
    for verdict in verdicts_on(thing, snapshot):
        glyph, tone, _ = mark(verdict)
        text = verdict_text(verdict, clock)
        if isinstance(thing, Gpu) and verdict.kind is Kind.ENGINE:
            text = f"{verdict.scope}: {text}"
        entries.append(Fact(f"{glyph} {LIMIT_NAMES[verdict.code]}", text, tone=tone))
        if verdict.actions:
            entries.append(Sentence(f"→ {actions_text(verdict)}", "accent", indent=_VERDICT_INDENT))
        if verdict.level is not Level.OK:
            for figure in verdict.evidence:
                entries.append(Sentence(f"· {evidence_text(figure)}", indent=_VERDICT_INDENT))
    return entries


def verdicts_on(thing: Thing | None, snapshot: Snapshot) -> list[Verdict]:
    """The verdicts on a GPU or an engine; for a GPU after that on its engine, where its row shows that one as the more
    urgent. Other things have none."""
    verdicts = []
    if isinstance(thing, Gpu):
        subject = (Kind.GPU, thing.reading.uuid)
        urgent = urgent_by_gpu(snapshot).get(thing.reading.uuid)
        if urgent is not None and urgent.kind is Kind.ENGINE:
            verdicts.append(urgent)
    elif isinstance(thing, Engine):
        subject = (Kind.ENGINE, thing.key)
    else:
        return []
    for verdict in snapshot.verdicts:
        if (verdict.kind, verdict.key) == subject:
            verdicts.append(verdict)
    return verdicts
