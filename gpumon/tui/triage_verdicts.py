"""Verdicts as the triage pane paints them: those that stand keep their figures for some seconds."""

from __future__ import annotations

from typing import Final

from gpumon.readings.snapshot import Snapshot, Verdict

STANDS_S: Final = 10.0
"""Verdicts that stand are painted with newer figures this often, all at one beat: figures of each second would repaint
the pane."""
_MOST_INTERVALS: Final = 2.5
"""Intervals between two snapshots of which the second follows the first: one may be missed."""


def verdict_key(verdict: Verdict) -> str:
    """Identity of a verdict from one snapshot to the next, whatever its text is."""
    return f"{verdict.kind.value}/{verdict.family.value}/{verdict.key}"


class SteadyVerdicts:
    """The verdicts as they are painted: those that stand get newer figures together, once in `STANDS_S`."""

    def __init__(self) -> None:
        self._painted: dict[str, Verdict] = {}
        """Identity of a verdict -> the verdict with the figures that are painted."""
        self._beat_s = 0.0
        """Unix time at which all got new figures last."""
        self._held: tuple[Verdict, ...] = ()
        """The verdicts that `hold` returned last, for `_snapshot`."""
        self._snapshot: Snapshot | None = None

    def hold(self, snapshot: Snapshot) -> tuple[Verdict, ...]:
        """The verdicts of a snapshot; the same ones as before where all of them stand."""
        if snapshot is self._snapshot:
            return self._held
        follows = False
        if self._snapshot is not None:
            step_s = snapshot.wall_s - self._snapshot.wall_s
            follows = 0.0 < step_s <= _MOST_INTERVALS * snapshot.interval_s
        if not follows or snapshot.wall_s - self._beat_s >= STANDS_S:
            self._beat_s = snapshot.wall_s
            self._painted = {}
        painted_before = self._painted
        self._snapshot = snapshot
        self._painted = {}
        for verdict in snapshot.verdicts:
            key = verdict_key(verdict)
            painted = painted_before.get(key, verdict)
            if _shown_at_once(painted) != _shown_at_once(verdict):
                painted = verdict
            self._painted[key] = painted
        held = tuple(self._painted.values())
        # The same tuple while it holds the same verdicts: what is made of it is not made anew then.
        if len(held) != len(self._held) or any(new is not old for new, old in zip(held, self._held, strict=True)):
            self._held = held
        return self._held


def _shown_at_once(verdict: Verdict) -> tuple[object, ...]:
    """Parts of a verdict whose change is shown at once, its end as well; one on what is over (`was`) has ended, too."""
    is_over = bool(verdict.until or "was" in verdict.parameters)
    return verdict.code, verdict.level, verdict.scope, verdict.caused_by, verdict.acknowledged, is_over
