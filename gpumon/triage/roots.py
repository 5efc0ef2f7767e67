"""Verdicts as a person counts them: one item for one cause, with its consequences, and one for what is alike."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from gpumon.readings.format import clock_utc, counted, spans
from gpumon.readings.snapshot import Gpu, Snapshot
from gpumon.readings.text import clean
from gpumon.readings.verdict import Acknowledged, Action, Kind, Level, RootShown, Verdict
from gpumon.triage.marks import GPU_DEGRADED, URGENCY, URGENT, peers_waited_for
from gpumon.triage.render import ACTION_WORDS, shown_text

_GPU: Final = re.compile(r"gpu (\d{1,6})")
"""Scope of what is about one whole GPU."""
MOST_NAMES: Final = 3
"""Things that are named; of more the first ones are, and the others counted."""
_WAITING: Final = frozenset({"hung_lost_gpu", "kv_transfer_waits"})
"""Causes of verdicts on an engine that waits for what is broken."""
_GPU_OPTION: Final = "-i {index:count}"
"""Option of `nvidia-smi` in an action; `nvidia-smi --help`: it takes several GPUs, parted by commas."""


class Root(NamedTuple):
    """A cause with all that comes of it, and other things in which the same is wrong."""

    verdicts: tuple[Verdict, ...]
    """The verdict; several where they are alike: the first one's words stand for all."""
    consequences: tuple[Verdict, ...] = ()
    """Verdicts that this is the cause of, the most urgent first."""

    @property
    def first(self) -> Verdict:
        """The verdict whose words stand for the item."""
        return self.verdicts[0]

    @property
    def level(self) -> Level:
        """The level of the most urgent of its verdicts and consequences: whoever suffers, suffers from this.

        A consequence that somebody has acknowledged by itself does not count.
        """
        levels = [verdict.level for verdict in self.verdicts]
        for verdict in self.consequences:
            if self.acknowledged is not None or verdict.acknowledged is None:
                levels.append(verdict.level)
        return min(levels, key=URGENCY.__getitem__)

    @property
    def acknowledged(self) -> Acknowledged | None:
        """Who knows of it; None: nobody said so."""
        return self.first.acknowledged

    @property
    def scope(self) -> str:
        """Names of its things: `gpu 2`, `GPUs 2-63`."""
        return name_together([verdict.scope for verdict in self.verdicts])

    @property
    def advised(self) -> Verdict:
        """The first verdict, with actions for all: a command that each of them has for its own GPU names all GPUs."""
        actions = list(self.first.actions)
        for place, action in enumerate(actions):
            alike = [verdict.actions[place] for verdict in self.verdicts if place < len(verdict.actions)]
            if 1 < len(alike) == len(self.verdicts):
                actions[place] = _for_all_gpus(action, alike)
        return replace(self.first, actions=tuple(actions))


def _for_all_gpus(first: Action, alike: Sequence[Action]) -> Action:
    """The first of these actions for the GPUs of all, where they differ in nothing else."""
    if _GPU_OPTION not in ACTION_WORDS.get(first.code, ""):
        return first
    indices = []
    for action in alike:
        index = action.parameters.get("index")
        if not isinstance(index, float) or (action.code, _without_index(action)) != (first.code, _without_index(first)):
            return first
        indices.append(f"{index:.0f}")
    return Action(first.code, {**first.parameters, "index": ",".join(indices)})


def _without_index(action: Action) -> dict[str, object]:
    """The parameters of an action beside the GPU that it is for."""
    return {name: value for name, value in action.parameters.items() if name != "index"}


def roots_of(verdicts: Sequence[Verdict]) -> list[Root]:
    """The items that these verdicts make, the most urgent first, those that are acknowledged last; what is well is
    left out.

    A verdict whose cause is not among them is an item of its own, and so is one that counts while its cause is
    acknowledged: it got worse.
    """
    troubles = [verdict for verdict in verdicts if verdict.level is not Level.OK]
    by_id = {verdict.id: verdict for verdict in troubles}
    alike: dict[object, list[Verdict]] = {}
    consequences: dict[str, list[Verdict]] = {}
    for verdict in troubles:
        if _is_consequence(verdict, by_id.get(verdict.caused_by)):
            consequences.setdefault(verdict.caused_by, []).append(verdict)
        else:
            alike.setdefault(_meaning(verdict), []).append(verdict)
    roots = []
    for group in alike.values():
        own = [consequence for verdict in group for consequence in consequences.get(verdict.id, ())]
        own.sort(key=lambda verdict: URGENCY[verdict.level])
        roots.append(Root(tuple(group), tuple(own)))
    roots.sort(key=lambda root: (root.acknowledged is not None, URGENCY[root.level]))
    return roots


def _is_consequence(verdict: Verdict, cause: Verdict | None) -> bool:
    """Whether a verdict belongs to its cause, where that stands; not if it counts while the cause is acknowledged."""
    if cause is None or cause.id == verdict.id:
        return False
    return cause.acknowledged is None or verdict.acknowledged is not None


def _meaning(verdict: Verdict) -> object:
    """Key that verdicts share which say the same of several things: what is wrong, how urgent it is, and what is to be
    done first. Numbers of an action are those of each thing."""
    action: tuple[object, ...] = ()
    if verdict.actions:
        first = verdict.actions[0]
        names = tuple(item for item in sorted(first.parameters.items()) if isinstance(item[1], str))
        action = (first.code, names)
    return (
        verdict.kind,
        verdict.family,
        verdict.code,
        verdict.cause,
        verdict.level,
        bool(verdict.until),
        action,
        verdict.acknowledged,
    )


def split_gpus(scopes: Iterable[str]) -> tuple[list[int], list[str]]:
    """Numbers of the whole GPUs among the scopes, and the other scopes: a MIG slice is one of these."""
    gpus = []
    others = []
    for scope in scopes:
        gpu = _GPU.fullmatch(scope)
        if gpu is not None:
            gpus.append(int(gpu[1]))
        else:
            others.append(scope)
    return gpus, others


def name_together(names: Iterable[str]) -> str:
    """Several things as one subject: `GPUs 0-7`, `vllm:8000, vllm:8001`, `a, b, c and 5 more`."""
    distinct = list(dict.fromkeys(names))
    gpus, others = split_gpus(distinct)
    if len(gpus) > 1 and not others:
        return f"GPUs {spans(gpus)}"
    first_names = ", ".join(distinct[:MOST_NAMES])
    if len(distinct) > MOST_NAMES:
        return f"{first_names} and {len(distinct) - MOST_NAMES} more"
    return first_names


def root_text(root: Root, snapshot: Snapshot, time_text: Callable[[float], str] = clock_utc) -> str:
    """The sentence of a root, with what suffers from it; of several things whose figures differ the first is named."""
    sentence = shown_text(root.first, time_text)
    if any(shown_text(verdict, time_text) != sentence for verdict in root.verdicts[1:]):
        sentence = f"{root.first.scope}: {sentence}"
    affected = affected_by(root, snapshot).text
    return "; ".join(text for text in (sentence, affected) if text)


_NOT_FELT_YET: Final = frozenset({"reset_required", "remap_failed", "remap_pending", "ecc"})
"""Causes of verdicts on a GPU that goes on to work, so that nothing is known to be worse on it."""


class Affected(NamedTuple):
    """Things that the consequences of a root are about, beside those of the root itself."""

    gpus: int
    """GPUs that wait for those of the root."""
    names: tuple[str, ...]
    """Names of the engines, and of GPUs and the host that have a verdict of their own because of it."""
    waits: bool
    """All of it waits for the root, and does nothing meanwhile."""
    suffers: bool = True
    """It is worse because of the root; else it is only in danger."""

    @property
    def text(self) -> str:
        """`3 GPUs and llama-70b wait for it`, `vllm:8001 suffers from it`; empty where nothing is affected."""
        parts = list(self.names[:MOST_NAMES])
        if len(self.names) > MOST_NAMES:
            parts.append(f"{len(self.names) - MOST_NAMES} more")
        if self.gpus:
            parts.insert(0, counted(self.gpus, "GPU"))
        if not parts:
            return ""
        subject = f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[-1]
        is_one = len(parts) == 1 and self.gpus <= 1
        if self.waits:
            return f"{subject} {'waits' if is_one else 'wait'} for it"
        if not self.suffers:
            return f"{subject} {'runs' if is_one else 'run'} on it"
        return f"{subject} {'suffers' if is_one else 'suffer'} from it"


def affected_by(root: Root, snapshot: Snapshot) -> Affected:
    """Things that suffer from a root: a GPU that is free because of it suffers nothing, nor does an engine of which its
    sentence says that it still gives tokens."""
    working = str(root.first.parameters.get("engines", "")).split(" and ")
    own = {verdict.key for verdict in root.verdicts}
    names: dict[str, None] = {}
    waiting: set[str] = set()
    waits = True
    suffers = root.first.cause not in _NOT_FELT_YET
    for verdict in root.consequences:
        if verdict.level not in URGENT or verdict.scope in working:
            continue
        if verdict.key not in own:
            names[clean(verdict.scope)] = None
        peers = _waiting_gpus(verdict, snapshot.gpus)
        waiting.update(gpu.reading.uuid for gpu in peers)
        waits = waits and (bool(peers) or verdict.cause in _WAITING)
        suffers = suffers or verdict.cause != GPU_DEGRADED
    return Affected(len(waiting - own), tuple(names), waits, suffers)


def _waiting_gpus(verdict: Verdict, gpus: Iterable[Gpu]) -> list[Gpu]:
    """The GPUs of an engine that wait for those which its verdict names."""
    if verdict.kind is not Kind.ENGINE or "waits" not in verdict.parameters:
        return []
    return [gpu for gpu in gpus if verdict.scope in gpu.engines and peers_waited_for(gpu, verdict)]


def shown_roots(snapshot: Snapshot) -> tuple[RootShown, ...]:
    """The items of a snapshot as they are printed: which verdicts each is made of, and what it affects."""
    shown = []
    for root in roots_of(snapshot.verdicts):
        affected = affected_by(root, snapshot)
        shown.append(
            RootShown(
                id=root.first.id,
                scope=root.scope,
                code=root.first.code,
                level=root.level,
                verdicts=tuple(verdict.id for verdict in root.verdicts),
                consequences=tuple(verdict.id for verdict in root.consequences),
                affected_gpus=affected.gpus,
                affected=affected.names,
                text=affected.text,
                acknowledged=root.acknowledged is not None,
            )
        )
    return tuple(shown)
