"""The top of every page: how the thing is, how old its figures are, since when, and what is wrong with it."""

from __future__ import annotations

from typing import Final, NamedTuple

from gpumon.config.schema import Levels
from gpumon.readings.format import DASH
from gpumon.readings.frame import EndpointState, GpuState
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Engine, Gpu, Kind, Level, Replicas, Snapshot, Verdict
from gpumon.readings.text import clean
from gpumon.triage.marks import states_by_key, urgent_by_key
from gpumon.triage.render import LIMIT_NAMES, NARROW, actions_text, evidence_text, verdict_text
from gpumon.tui.detail.blocks import Entry, Fact, Section, Sentence
from gpumon.tui.detail.things import ProcessOnGpus, Thing, blank_reason, is_blank
from gpumon.tui.detail.values import duration_text, shown_time, shown_time_of_rfc3339
from gpumon.tui.detail.why import Subject, explain
from gpumon.tui.engine_table import STATES, ended_word
from gpumon.tui.gpu_table import gpu_state
from gpumon.tui.line import Row
from gpumon.tui.table import clock
from gpumon.tui.triage_words import mark, remarked

_MEANINGS: Final = {
    "! low eff.": "busy, but MFU and MBU are both low: small batches, waiting for the host, or work unknown to gpumon",
    "! row remap": "a memory row waits for remapping: reset this GPU when it is free",
}
"""Words of the state that need one, where no fault explains them."""
_AGED: Final = (GpuState.LOST, GpuState.STALE, GpuState.ERROR)
"""States of a GPU that count from its last answer."""
_BELOW: Final = 4
"""Cells before what stands below a verdict."""
_UNREAD: Final = frozenset({Reason.UNREACHABLE, Reason.WARMING_UP})
"""Why an engine that never answered has no figures."""
_JUDGED: Final = frozenset({EndpointState.DOWN, EndpointState.STARTING})
"""States of an engine that a verdict tells whole."""
_GONE: Final = {
    "gpu": "not listed by the driver",
    "engine": "no longer polled",
    "replicas": "fewer than two engines serve this model now",
    "process": "no longer on a GPU",
    "verdict": "no longer found",
}


class Topic(NamedTuple):
    """The subject of a page at one moment."""

    key: tuple[str, str]
    now: Thing | None
    """As it is in the snapshot; None where it is not in it."""
    figures: Thing | None
    """The thing whose figures are shown: the last ones, where it has none now."""
    figures_wall_s: float
    """When those figures were read (Unix time)."""
    gone_wall_s: float
    """First snapshot without it; 0 where it is there."""

    @property
    def old(self) -> bool:
        """Whether the figures are not those of now."""
        return self.figures is not None and (self.now is None or is_blank(self.now)) and not is_blank(self.figures)


def head_lines(topic: Topic, snapshot: Snapshot, levels: Levels) -> list[Row]:
    """One line, or two where the figures are old ones: these lines stay while the rest scrolls."""
    rows: list[Row] = [_now(topic, snapshot, levels)]
    if topic.old:
        read = shown_time(topic.figures_wall_s, snapshot.wall_s)
        warning = f" the figures below are OLD: read at {read.clock}, {duration_text(read.ago_s)} ago"
        rows.append(((warning, "warn"),))
    return rows


def _now(topic: Topic, snapshot: Snapshot, levels: Levels) -> Row:
    """The line of the thing as it is now; of one that is gone, since when it is."""
    thing = topic.now
    if thing is None:
        return _gone(topic, snapshot)
    if isinstance(thing, Verdict):
        glyph, tone, word = mark(thing)
        standing = f" · {word}{_since(thing.since, snapshot)} · confidence {thing.confidence.value}"
        return (f" {glyph} {LIMIT_NAMES[thing.code]}", tone), (standing, "text")
    if isinstance(thing, Replicas):
        return _replicas_now(thing, snapshot)
    if isinstance(thing, Gpu):
        return _gpu_now(thing, snapshot, levels)
    if isinstance(thing, Engine):
        return _engine_now(thing, snapshot)
    oldest_s = max(gpu.age_s for gpu, _ in thing.by_gpu)
    oldest = next(gpu for gpu, _ in thing.by_gpu if gpu.age_s == oldest_s)
    return ((" ● on the GPU", "ok"), (_age(oldest), "text"))


def _gone(topic: Topic, snapshot: Snapshot) -> Row:
    if topic.figures is None:
        return ((f" ✗ not there at {shown_time(snapshot.wall_s, snapshot.wall_s).clock}", "warn"),)
    since = shown_time(topic.gone_wall_s, snapshot.wall_s)
    if _dark(topic.figures, snapshot):
        reason = "its GPU does not answer"
    else:
        reason = _GONE[topic.key[0]]
    return ((" ✗ GONE", "warn"), (f" · {reason} · since {since.clock} ({duration_text(since.ago_s)})", "text"))


def _replicas_now(replicas: Replicas, snapshot: Snapshot) -> Row:
    word, tone = _answering(replicas, snapshot)
    basis = ""
    if replicas.answering < len(replicas.engines):
        basis = " · sums over the engines that answer"
    names = ", ".join(replicas.deviating)
    apart = ""
    if names:
        apart = f" · ! apart: {names}"
    return (f" {word}", tone), (basis, "text"), (apart, "warn")


def _gpu_now(gpu: Gpu, snapshot: Snapshot, levels: Levels) -> Row:
    word, tone = gpu_state(gpu, levels)
    if word.startswith(" "):
        word = f"● {word.strip()}"
        tone = "ok"
    return ((f" {word}", tone), (f"{_age(gpu)}{_gpu_since(gpu, snapshot)}", "text"))


def _engine_now(engine: Engine, snapshot: Snapshot) -> Row:
    word, tone = engine_word(engine, snapshot)
    since = _since(engine.since, snapshot)
    if engine.departure:
        return ((f" {word.partition(' since')[0]}", tone), (since.removeprefix(" ·"), "text"))
    if engine.state is EndpointState.OK and tone != "ok":
        since = since.replace("since", "answers since", 1)
    return ((f" {word}", tone), (f"{_age(engine)}{since}", "text"))


def _age(thing: Gpu | Engine) -> str:
    """The age of the last reading; empty where the state of a GPU counts from it."""
    if isinstance(thing, Gpu) and thing.state in _AGED:
        return ""
    if _never_read(thing):
        return " · never read"
    return f" · read {duration_text(thing.age_s)} ago"


def _answering(replicas: Replicas, snapshot: Snapshot) -> tuple[str, str]:
    """Word and tone of replicas: how many of them have ended, or give no figures."""
    every = len(replicas.engines)
    if replicas.answering == every:
        return "● all answer", "ok"
    ended = sum(1 for engine in snapshot.engines if engine.departure and engine.name in replicas.engines)
    if ended == every - replicas.answering:
        return f"! {ended} of {every} down", "warn"
    return f"! {every - replicas.answering} of {every} without figures", "warn"


def engine_word(engine: Engine, snapshot: Snapshot) -> tuple[str, str]:
    """Word and tone of an engine, as its row has them: its worst verdict, else its state."""
    verdicts = []
    for verdict in snapshot.verdicts:
        if verdict.key == engine.key:
            verdicts.append(verdict)
    if engine.state is EndpointState.OK:
        worst = urgent_by_key(verdicts, Kind.ENGINE).get(engine.key)
        if worst is None:
            return _doubt(engine)
        glyph, tone, _ = mark(worst)
        return f"{glyph} {NARROW[worst.code]}", tone
    if engine.departure:
        word, tone = ended_word(engine)
    else:
        word, tone = STATES[engine.state]
    of_state = states_by_key(verdicts, Kind.ENGINE).get(engine.key)
    if of_state is None:
        return (word, tone)
    return remarked(word, tone, of_state.level)


def _doubt(engine: Engine) -> tuple[str, str]:
    """Word and tone of an engine that answers: what its row is marked for stands below."""
    if engine.asleep:
        return "… asleep", "muted"
    if engine.contradicts:
        return "! its figures contradict its GPUs", "warn"
    if engine.uneven:
        return "! its ranks are uneven", "warn"
    if engine.deviates:
        return ("! apart from its replicas", "warn")
    return ("● answering", "ok")


def _never_read(thing: Gpu | Engine) -> bool:
    """Whether an engine has not given any answer yet: its age is 0 then, as is that of no answer."""
    if isinstance(thing, Gpu) or thing.age_s > 0.0:
        return False
    return isinstance(thing.load.running, Missing) and thing.load.running.reason in _UNREAD


def _gpu_since(gpu: Gpu, snapshot: Snapshot) -> str:
    if gpu.state in _AGED:
        since = shown_time(snapshot.wall_s - gpu.age_s, snapshot.wall_s)
        return f" · has not answered since {since.clock}"
    dated = []
    for fault in snapshot.faults:
        if fault.source == f"gpu {gpu.index}":
            dated.append(fault.since)
    if dated:
        return _since(min(dated), snapshot)
    return ""


def _since(rfc3339: str, snapshot: Snapshot) -> str:
    since = shown_time_of_rfc3339(rfc3339, snapshot.wall_s)
    if since is not None:
        return f" · since {since.clock} ({duration_text(since.ago_s)})"
    return ""


def _dark(figures: Thing | None, snapshot: Snapshot) -> bool:
    """Whether a GPU that a process was on shows nothing at all now."""
    if not isinstance(figures, ProcessOnGpus):
        return False
    uuids = {gpu.uuid for gpu, _ in figures.by_gpu}
    for gpu in snapshot.gpus:
        if gpu.uuid in uuids and is_blank(gpu):
            return True
    return False


def trouble_sections(topic: Topic, snapshot: Snapshot, levels: Levels) -> list[Section]:
    """Sections `what does not work` and `what limits it`, each only where there is something to say."""
    thing = topic.now or topic.figures
    if not isinstance(thing, (Gpu, Engine)):
        return []
    entries = _faults(thing, snapshot, levels)
    if isinstance(thing, Engine):
        entries += _doubts(thing)
    if not entries and thing is topic.now and not _is_judged(thing, snapshot):
        entries = _no_figures(thing)
    sections: list[Section] = []
    if entries:
        sections.append(Section("what does not work", entries))
    limits = _limits(thing, snapshot)
    if limits:
        sections.append(Section("what limits it", limits))
    return sections


def _faults(thing: Gpu | Engine, snapshot: Snapshot, levels: Levels) -> list[Entry]:
    """The faults that name a thing, after its own fault of now unless one of them or a verdict says the same."""
    if isinstance(thing, Gpu):
        names = {f"gpu {thing.index}", thing.uuid}
        own = thing.state_text
    else:
        names = {thing.name, thing.url}
        own = thing.fault
    faults = [fault for fault in snapshot.faults if fault.source in names]
    entries: list[Entry] = []
    if own and not _is_judged(thing, snapshot) and not any(own in fault.text for fault in faults):
        entries.append(Fact("! now", clean(own, 1000), tone="warn"))
    for fault in faults:
        since = shown_time_of_rfc3339(fault.since, snapshot.wall_s)
        clock = DASH if since is None else since.clock
        entries.append(Fact(f"! since {clock}", fault.text, tone="warn"))
    if isinstance(thing, Gpu) and not faults:
        entries += _meaning(thing, levels)
    return entries


def _meaning(gpu: Gpu, levels: Levels) -> list[Entry]:
    """The meaning of the word that the state of a GPU shows, where it is a trouble."""
    meaning = _MEANINGS.get(gpu_state(gpu, levels)[0], "")
    if meaning:
        return [Sentence(meaning, "warn")]
    return []


def _doubts(engine: Engine) -> list[Entry]:
    """Contradictions between an engine's figures and its GPUs, its ranks and its replicas."""
    entries: list[Entry] = []
    for subject, evidence in (
        ("", engine.contradicts),
        ("uneven ranks: ", engine.uneven),
        ("beside its replicas: ", engine.deviates),
    ):
        entries += [Sentence(f"! {subject}{evidence_text(figure)}", "warn") for figure in evidence]
    return entries


def _no_figures(thing: Gpu | Engine) -> list[Entry]:
    """The reason why a thing has no figures now, and what to do about it; empty where it has some."""
    missing = blank_reason(thing)
    if missing is None:
        return []
    why = explain(Subject())(missing, "")
    return [Sentence(f"? no figures now: {why.sentence}", "text"), Sentence(f"→ {why.todo}", "accent")]


def _is_judged(thing: Gpu | Engine, snapshot: Snapshot) -> bool:
    """Whether an engine has ended or starts, and the verdict below says so."""
    if not isinstance(thing, Engine) or thing.state not in _JUDGED:
        return False
    return thing.key in states_by_key(snapshot.verdicts, Kind.ENGINE)


def _limits(thing: Gpu | Engine, snapshot: Snapshot) -> list[Entry]:
    """Each verdict with its evidence and what to try; of one without any limit the text alone."""
    if isinstance(thing, Gpu):
        subject = (Kind.GPU, thing.uuid)
    else:
        subject = (Kind.ENGINE, thing.key)
    entries: list[Entry] = []
    for verdict in snapshot.verdicts:
        if (verdict.kind, verdict.key) == subject:
            glyph, tone, _ = mark(verdict)
            entries.append(Fact(f"{glyph} {LIMIT_NAMES[verdict.code]}", verdict_text(verdict, clock), tone=tone))
            if verdict.level is not Level.OK:
                entries += [Sentence(f"· {evidence_text(figure)}", indent=_BELOW) for figure in verdict.evidence]
            if verdict.actions:
                entries.append(Sentence(f"→ {actions_text(verdict)}", "accent", indent=_BELOW))
    return entries
