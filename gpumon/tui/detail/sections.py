"""The sections of a thing's page, whatever the thing is."""

from __future__ import annotations

from gpumon.readings.history import History
from gpumon.readings.snapshot import Engine, Gpu, Replicas, Snapshot, Verdict
from gpumon.tui.detail import engine, gpu, process, replicas, verdict
from gpumon.tui.detail.blocks import Section, without_missing
from gpumon.tui.detail.gpu import ThrottleWatch
from gpumon.tui.detail.things import Thing, is_blank
from gpumon.tui.view import View


def sections_of(
    thing: Thing, snapshot: Snapshot, view: View, *, watch: ThrottleWatch | None = None, history: History | None = None
) -> list[Section]:
    """All sections of a page; of a thing whose figures are all missing only its facts.

    `watch`: how long a GPU was throttled since its page was opened. `history`: series for the evidence of a verdict.
    """
    if isinstance(thing, Gpu):
        sections = gpu.sections(thing, snapshot, view, watch)
    elif isinstance(thing, Engine):
        sections = engine.sections(thing, snapshot, view)
    elif isinstance(thing, Verdict):
        sections = verdict.sections(thing, history, snapshot.verdicts)
    elif isinstance(thing, Replicas):
        sections = replicas.sections(thing, snapshot, view)
    else:
        sections = process.sections(thing, snapshot, view)
    if is_blank(thing):
        return without_missing(sections)
    return sections
