"""Rules on the links of a GPU: a PCIe link below what its slot can do, NVLinks that are down, errors that grow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from gpumon.readings.snapshot import Gpu
from gpumon.readings.text import clean
from gpumon.readings.verdict import Action, Confidence, Evidence, Level, Limit, Team
from gpumon.triage.finding import Cause, Finding, Quantity, Remedy, params, yes_if
from gpumon.triage.gpu_figures import gpu_of
from gpumon.triage.onset import wall_s
from gpumon.triage.samples import Recent
from gpumon.triage.sentences import COUNT_NVLINK_ERRORS, SHOW_NVLINKS
from gpumon.triage.signals import Case, finite
from gpumon.triage.turns import Turn

_LOADED: Final = 0.3
"""Busy share of a GPU from which on its PCIe link is trained up: an idle one saves power at generation 1."""
_LOADED_S: Final = 10.0
"""Seconds of that load, for which the generation has to be low, too: it is read every 4 s."""
_SLOWER: Final = 0.5
"""Share of the speed that its slot allows up to which a link counts as slow, if it was faster or its peers are."""
_FAR_SLOWER: Final = 0.25
"""The same of a link that nothing is known of: half the lanes of a card are often all that a board has wired."""
_MOST_ERRORS: Final = 100.0
"""Errors of a link in 3 minutes that are many. A choice: sound links count a few in a day."""
_LEAST_EQUAL_PEERS: Final = 3
"""GPUs with as many NVLinks up as each other that show that one without any should have them, too."""
_MOST_LANES: Final = 8
"""NVLinks that a sentence names."""


PCIE_LINK: Final = Quantity("pcie_link", "PCIe {now} of {most}", field="pcie_width")
NVLINKS_UP: Final = Quantity(
    "nvlinks_up", "NVLinks: {value:count} of {limit:count} up[, on its peers {peers:count}][; down: {lanes}]"
)
LINK_ERRORS_FIGURE: Final = Quantity("link_errors", "{link}: {value:count} errors in the last 3 min")
SHOW_PCIE_LINK: Final = Remedy(
    "show_pcie_link",
    (
        "sudo lspci -vv[ -s {bus}] | grep -E 'LnkCap:|LnkSta:' shows what slot and card can, and "
        "what they do (downgraded)"
    ),
    team=Team.HARDWARE,
)
RESEAT_PCIE: Final = Remedy(
    "reseat_pcie",
    (
        "drain it, reseat the card, its riser and its cables; if it stays so: another slot, the link "
        "speed in the BIOS, another card"
    ),
    team=Team.HARDWARE,
)
RESEAT_NVLINK: Final = Remedy(
    "reseat_nvlink",
    (
        "drain the jobs that span GPUs, then nvidia-smi --gpu-reset -i {index:count} (with NVSwitch: "
        "all GPUs, and restart nvidia-fabricmanager); if they stay down: reseat or replace bridge, "
        "board or switch"
    ),
    team=Team.HARDWARE,
)

PCIE_SLOW: Final = Cause(
    "pcie_slow",
    Limit.HARDWARE_FAULT,
    (
        "its PCIe link runs at {now} of {most}: {share:percent} of what its slot can "
        "do[{loaded=yes}, under load][; {before} until {fell:clock}|{was=yes}; it was faster "
        "before][{alike=yes}, as those of its peers: the board, the BIOS or a virtual machine may be "
        "made so]"
    ),
)
NVLINKS_DOWN: Final = Cause(
    "nvlinks_down",
    Limit.HARDWARE_FAULT,
    (
        "{down:count} of its NVLinks are down[ ({lanes})]: {active:count} are up[, {before} until "
        "{fell:clock}|, {peers:count} on its peers|, {expected:count} before]"
    ),
)
LINK_ERRORS: Final = Cause(
    "link_errors",
    Limit.HARDWARE_FAULT,
    "errors of its {links} grow: {errors:count} in 3 min",
)
SLOW_LINKS: Final = frozenset({PCIE_SLOW.code, NVLINKS_DOWN.code})
"""Causes of verdicts on links that carry less than they should."""


def bad_link(case: Case) -> Finding | None:
    """Rule: NVLinks that are down, else a slow PCIe link, else errors of links that grow."""
    return _nvlinks_down(case) or _pcie_slow(case) or _link_errors(case)


def slow_links(case: Case) -> Iterator[Gpu]:
    """GPUs of an engine whose links carry less than they should, by their verdicts."""
    for gpu in case.gpus:
        for verdict in case.standing.get(gpu.reading.uuid, ()):
            if verdict.cause in SLOW_LINKS and not verdict.until:
                yield gpu


def _nvlinks_down(case: Case) -> Finding | None:
    """The finding on NVLinks that were up before, or are up on the GPU's peers; under MIG none is in use."""
    gpu = gpu_of(case)
    active = finite(gpu.reading.nvlinks_active)
    links = finite(gpu.reading.nvlinks)
    if active is None or not links or gpu.reading.parent_uuid or _is_split(case):
        return None
    peers_active = _nvlinks_of_peers(case, gpu, active)
    expected = max(case.recent.previous("nvlinks_active") or 0.0, peers_active)
    if active >= expected:
        return None
    figures = params(lanes=_lanes_down(case, gpu, peers_active), peers=peers_active or None)
    source = gpu.sources.get("nvlinks_active", "")
    evidence = NVLINKS_UP.evidence(active, limit=links, source=source, parameters=figures)
    index = float(gpu.reading.index)
    finding = _finding(
        case,
        NVLINKS_DOWN,
        (evidence, *_errors_evidence(case)),
        (SHOW_NVLINKS.action(index=index), RESEAT_NVLINK.action(index=index)),
        **figures,
        down=expected - active,
        active=active,
        expected=expected,
        link=f"{active:.0f} of {expected:.0f} NVLinks up",
    )
    turn = _last_turns(case).get("nvlinks")
    if turn is None or turn.after != f"{active:.0f}":
        return finding
    return _since(case, finding, turn.at_s, before=turn.before)


def _lanes_down(case: Case, gpu: Gpu, peers_active: float) -> str:
    """Numbers of the NVLinks that are down on a GPU, and up on one of its peers that are as they should be."""
    unused = set(gpu.reading.nvlinks_down)
    peers = [peer for peer in _peers(case, gpu) if finite(peer.reading.nvlinks_active) == peers_active]
    for peer in peers:
        unused &= set(peer.reading.nvlinks_down)
    return ", ".join(str(lane) for lane in gpu.reading.nvlinks_down[:_MOST_LANES] if lane not in unused)


def _last_turns(case: Case) -> dict[str, Turn]:
    """Setting of the GPU's links -> its last change, as far as it was watched."""
    return {turn.setting: turn for turn in case.recent.turns.noted}


def _since(case: Case, finding: Finding, began_s: float, before: str) -> Finding:
    """The finding on a link that was seen to change, with its words of before and the time (monotonic) of then."""
    known = params(before=before, fell=wall_s(case, began_s))
    return finding._replace(parameters=finding.parameters | known, began_s=began_s)


def _nvlinks_of_peers(case: Case, gpu: Gpu, active: float) -> float:
    """NVLinks that are up on most of the GPUs of its type; 0 where that says nothing of this one.

    One with none at all may have no bridge: only where three and more are alike, it should be like them.
    """
    counts = sorted(filter(None, (finite(peer.reading.nvlinks_active) for peer in _peers(case, gpu))))
    if not counts:
        return 0.0
    usual = counts[(len(counts) - 1) // 2]
    if not active and counts.count(usual) < _LEAST_EQUAL_PEERS:
        return 0.0
    return usual


def _peers(case: Case, gpu: Gpu) -> list[Gpu]:
    """The other GPUs of its type on this machine."""
    return [
        peer
        for peer in case.snapshot.gpus
        if peer.reading.uuid != gpu.reading.uuid
        and peer.reading.name == gpu.reading.name
        and peer.reading.host == gpu.reading.host
        and not peer.reading.parent_uuid
    ]


def _is_split(case: Case) -> bool:
    """Whether MIG is on."""
    return case.gpu_reading is not None and case.gpu_reading.mig


class _PcieLink(NamedTuple):
    """A PCIe link as it is, and the most that its slot allows."""

    lanes: float
    most_lanes: float
    generation: float | None
    """Under load; None: the GPU is idle, or it is not known."""
    newest: float | None

    @property
    def share(self) -> float:
        """Speed, of the most that the slot allows; as far as the generation is known."""
        share = self.lanes / self.most_lanes
        if self.generation is not None and self.newest:
            share *= 0.5 ** max(0.0, self.newest - self.generation)
        return share

    @property
    def text(self) -> str:
        """`x4 Gen1`."""
        return _link_text(self.lanes, self.generation)

    @property
    def most_text(self) -> str:
        """`x16 Gen5`, without the generation where that of the link is not known."""
        return _link_text(self.most_lanes, self.newest if self.generation is not None else None)


def _pcie_link(case: Case, gpu: Gpu) -> _PcieLink | None:
    """The PCIe link of a GPU; None where its lanes are not known."""
    lanes = finite(gpu.reading.pcie_width)
    most_lanes = finite(gpu.reading.pcie_width_max)
    if not lanes or not most_lanes or gpu.reading.parent_uuid:
        return None
    generation = _trained_generation(case.recent, gpu)
    return _PcieLink(lanes, most_lanes, generation, finite(gpu.reading.pcie_generation_max))


def _pcie_slow(case: Case) -> Finding | None:
    """The finding on a PCIe link with fewer lanes than its slot has, or that stays at a lower generation under load."""
    gpu = gpu_of(case)
    link = _pcie_link(case, gpu)
    if link is None or link.share > _SLOWER:
        return None
    was_faster = _was_faster(case.recent, link.lanes, link.generation)
    stands_out = was_faster or _have_faster_peers(case, gpu, link.lanes, link.generation)
    if link.share > _FAR_SLOWER and not stands_out:
        return None
    is_alike = not stands_out and bool(_peers(case, gpu))
    evidence = case.evidence(PCIE_LINK, link.share, now=link.text, most=link.most_text)
    finding = _finding(
        case,
        PCIE_SLOW,
        (evidence, *_errors_evidence(case)),
        (SHOW_PCIE_LINK.action(bus=_bus_of(case)), RESEAT_PCIE.action(index=float(gpu.reading.index))),
        now=link.text,
        most=link.most_text,
        share=link.share,
        loaded=yes_if(link.generation is not None),
        was=yes_if(was_faster),
        alike=yes_if(is_alike),
        link=f"{link.text} of {link.most_text}",
    )
    if is_alike:
        return finding._replace(level=Level.NOTE, confidence=Confidence.LOW)
    return _since_faster(case, finding, link) if was_faster else finding


def _since_faster(case: Case, finding: Finding, link: _PcieLink) -> Finding:
    """The finding on a link that was faster, with what it was and until when, where its change was seen under load."""
    turns = _last_turns(case)
    lanes = turns.get("pcie_width")
    generation = turns.get("pcie_generation")
    if lanes is None and generation is None:
        return finding
    before = _link_text(
        float(lanes.before) if lanes is not None else link.lanes,
        float(generation.before) if generation is not None else link.generation,
    )
    began_s = min(turn.at_s for turn in (lanes, generation) if turn is not None)
    return _since(case, finding, began_s, before)


def _bus_of(case: Case) -> str:
    """The address of the GPU on its bus; empty where it is not known."""
    return clean(case.gpu_reading.bus_id, 16) if case.gpu_reading is not None else ""


def _trained_generation(recent: Recent, gpu: Gpu) -> float | None:
    """Generation of the PCIe link under load; None while the GPU is idle, or was a moment ago."""
    if (recent.mean("busy_ratio", _LOADED_S) or 0.0) < _LOADED or recent.steady_s("pcie_generation") < _LOADED_S:
        return None
    return finite(gpu.reading.pcie_generation)


def _was_faster(recent: Recent, lanes: float, generation: float | None) -> bool:
    """Whether the link had more lanes before, or a higher generation than now under load."""
    if (recent.previous("pcie_width") or 0.0) > lanes:
        return True
    return generation is not None and (recent.previous("pcie_generation") or 0.0) > generation


def _have_faster_peers(case: Case, gpu: Gpu, lanes: float, generation: float | None) -> bool:
    """Whether the link of another GPU of its type has more lanes, or a higher generation while both work."""
    for peer in _peers(case, gpu):
        if (finite(peer.reading.pcie_width) or 0.0) > lanes:
            return True
        recent = case.recents.get(peer.reading.uuid)
        if generation is not None and recent is not None:
            peer_generation = _trained_generation(recent, peer)
            if peer_generation is not None and peer_generation > generation:
                return True
    return False


def _link_text(lanes: float, generation: float | None) -> str:
    """Lanes and, where it is known, generation of a PCIe link: `x16 Gen5`."""
    if generation is None:
        return f"x{lanes:.0f}"
    return f"x{lanes:.0f} Gen{generation:.0f}"


def _link_errors(case: Case) -> Finding | None:
    """The finding on errors of a link that grow."""
    index = float(gpu_of(case).reading.index)
    nvlink = case.recent.growth("nvlink_errors")
    replays = case.recent.growth("pcie_replays")
    if max(nvlink, replays) < _MOST_ERRORS:
        return None
    action = COUNT_NVLINK_ERRORS.action(index=index)
    link = "NVLinks"
    if replays > nvlink:
        action = SHOW_PCIE_LINK.action(bus=_bus_of(case))
        link = "PCIe link"
    evidence = tuple(_errors_evidence(case))
    return _finding(case, LINK_ERRORS, evidence, (action,), errors=max(nvlink, replays), links=link)._replace(
        level=Level.NOTE, confidence=Confidence.MEDIUM
    )


def _errors_evidence(case: Case) -> Iterator[Evidence]:
    """Evidence of errors that came in the last 3 minutes."""
    for field, link in (("nvlink_errors", "NVLink"), ("pcie_replays", "PCIe")):
        grown = case.recent.growth(field)
        if grown:
            yield case.evidence(LINK_ERRORS_FIGURE, grown, field=field, link=link)


def _finding(
    case: Case, cause: Cause, evidence: tuple[Evidence, ...], actions: tuple[Action, ...], **values: float | str | None
) -> Finding:
    """A finding on a link: a warning where an engine or a program uses its GPU."""
    gpu = gpu_of(case)
    level = Level.WARN if case.engines or gpu.reading.processes else Level.NOTE
    parameters = params(index=float(gpu.reading.index), **values)
    return cause.finding(parameters=parameters, evidence=evidence, actions=actions, level=level)
