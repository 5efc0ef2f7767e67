"""What the sizing panel works on: scenario, undo list, cursor, what each key does, and where each value comes from."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from gpumon.readings.format import age, cells
from gpumon.readings.missing import Missing, Reading
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.text import clean
from gpumon.sizing.answer import NOT_KNOWN, Answer, Source, WorkloadPlan
from gpumon.sizing.capacity import kv_pool_tokens
from gpumon.sizing.instance import Instance
from gpumon.sizing.live import have, held, instances_here, kv_ratios
from gpumon.sizing.peaks import PeakLoad
from gpumon.sizing.plan import Column, Planned, compare, planned
from gpumon.sizing.profile import Observed, Origin, seen_of
from gpumon.sizing.scenario import Known, Scenario, Server, Workload
from gpumon.tui.line import Piece
from gpumon.tui.sizing.fields import (
    FIELDS,
    GOALS,
    SERVER,
    WORKLOAD,
    Place,
    default_of,
    field,
    holder,
    value_of,
    with_value,
)

MOST_STEPS: Final = 200
"""That can be undone."""
FROZEN_S: Final = 30.0
"""Seconds without an engine's figures from which its row says how old they are."""
_MOST_TYPED: Final = 40
_WEIGHTS: Final = ("", "fp8", "w8a8", "int4", "nvfp4")
"""Precisions that one key goes through."""
_CELLS: Final = {
    GOALS: ("itl_p95_ms", "ttft_p95_ms", "e2e_p95_ms"),
    SERVER: ("gpus", "gpu", "price_per_gpu_hour"),
    WORKLOAD: ("target",),
}
"""What can be changed in the row itself; the first is where the cursor comes to."""
SEEN: Final = {Origin.LIVE: "measured", Origin.SWEEP: "sweep", Origin.TABLE: "table"}
SOURCES: Final = {
    Source.MEASURED: "measured",
    Source.SWEEP: "sweep",
    Source.RESCALED: "re-scaled",
    Source.ROOFLINE: "roofline",
    Source.TYPED: "typed",
    Source.NONE: "",
}
_STARTED: Final = {
    WORKLOAD: ("target",),
    SERVER: ("gpu", "gpus"),
    GOALS: ("itl_p95_ms", "ttft_p95_ms", "e2e_p95_ms"),
}
"""Fields that are filled in from what runs, and from the settings."""
AS_IT_RUNS: Final = "live"
"""Source of a target that goes on with what runs here."""


class Newest(NamedTuple):
    """What the engines show now."""

    observed: Sequence[Observed] = ()
    targets: Mapping[str, float] = MappingProxyType({})
    """Served model name -> requests in flight to plan for (`live.targets`); none for one that falls silent."""


class Follows(NamedTuple):
    """What of a workload nobody typed."""

    figures: bool = False
    """What its engines showed; it goes on with what they show."""
    target: str = ""
    """Where its target comes from: `AS_IT_RUNS`, or a name for the p95 of the past; empty: it was typed."""

    def target_of(self, workload: Workload) -> str:
        """The source of its target: users and requests per second are none that run."""
        return self.target if workload.target_kind == "concurrency" else ""

    def updated(self, workload: Workload, newest: Newest) -> Workload:
        """The workload with the newest figures; the same one where nothing is new."""
        target = newest.targets.get(workload.model, workload.target)
        if self.target_of(workload) == AS_IT_RUNS and target != workload.target:
            workload = replace(workload, target=target)
        live = workload.seen is None or workload.seen.origin is Origin.LIVE
        if self.figures and live and not workload.profile:
            seen = seen_of(workload.model, newest.observed, workload.seen)
            if seen is not None and seen != workload.seen:
                workload = replace(workload, seen=seen)
        return workload


class Version(NamedTuple):
    """A scenario, and what of it nobody typed: a value that is only the same was typed."""

    scenario: Scenario
    follows: tuple[Follows, ...] = ()
    """One for each workload."""
    started: Scenario | None = None
    """What ran, without workloads: servers and goals that are the same were not typed. None for a file."""

    @classmethod
    def of(cls, scenario: Scenario, *, runs: bool, target: str = AS_IT_RUNS) -> Version:
        """Of what runs here, with targets of that source; or of a file."""
        follows = (Follows(runs, target if runs else ""),) * len(scenario.workload)
        return cls(scenario, follows, replace(scenario, workload=()) if runs else None)

    def typed(self, chosen: Collection[int]) -> Version:
        """With targets of these workloads that were typed."""
        follows = (each._replace(target="") if at in chosen else each for at, each in enumerate(self.follows))
        return self._replace(follows=tuple(follows))

    def followed(self, newest: Newest) -> Version:
        """With the newest figures; the same one where nothing is new.

        An engine that is not among the newest changes nothing: its row keeps what was seen last.
        """
        before = self.scenario.workload
        after = tuple(tie.updated(each, newest) for each, tie in zip(before, self.follows, strict=True))
        if all(now is each for now, each in zip(after, before, strict=True)):
            return self
        return self._replace(scenario=replace(self.scenario, workload=after))


class UndoList:
    """Versions and which of them is present. Changes of one place in a row are one version."""

    def __init__(self, version: Version) -> None:
        self._versions = [version]
        self._at = self._saved = 0
        self._place: Place | None = None

    @property
    def present(self) -> Version:
        """The version that is worked on."""
        return self._versions[self._at]

    @present.setter
    def present(self, version: Version) -> None:
        """Without a step of its own."""
        self._versions[self._at] = version

    @property
    def changes(self) -> int:
        """Versions between this one and the one that was saved, loaded, or is as it runs."""
        return abs(self._at - self._saved)

    def put(self, version: Version, place: Place | None = None) -> bool:
        """Go on with another version; returns whether it is another."""
        if version == self.present:
            return False
        same = place is not None and place == self._place and self._at > 0
        versions = [*self._versions[: self._at + (not same)], version]
        self._saved -= max(0, len(versions) - MOST_STEPS - 1)
        self._versions, self._place = versions[-MOST_STEPS - 1 :], place
        self._at = len(self._versions) - 1
        return True

    def seal(self) -> None:
        """The next change is a version of its own, whatever its place."""
        self._place = None

    def move(self, step: int) -> bool:
        """Undo (-1) or redo (1); returns whether there is something."""
        self.seal()
        there = 0 <= self._at + step < len(self._versions)
        self._at += step if there else 0
        return there

    def settle(self) -> None:
        """From this version on changes are counted."""
        self._saved = self._at
        self.seal()


class Edit:
    """One number being typed, over the scenario as it was before; Backspace takes the last character back."""

    def __init__(self, place: Place, before: Scenario, text: str = "") -> None:
        self.place = place
        self.text = text
        self.scenario: Scenario | None = None
        """With what is typed so far; None while that is no value."""
        self.reason = ""
        """Why it is none."""
        self.read(before)

    def take(self, key: str, character: str | None) -> bool:
        """One key; returns whether it was for the text: of characters only those that a number may have are."""
        kind = self.place.field.kind
        if key in ("backspace", "ctrl+u"):
            self.text = self.text[:-1] if key == "backspace" else ""
            return True
        if character is None or not character.isprintable() or (kind is not None and not kind.takes(character)):
            return False
        # A sign belongs behind an e only: 1e-3.
        if character in ("+", "-") and self.text[-1:].lower() != "e":
            return False
        self.text = (self.text + character)[:_MOST_TYPED]
        return True

    def read(self, before: Scenario) -> None:
        """Put what is typed into the scenario as it was before."""
        try:
            value: Any = self.place.field.read(self.text)
        except (ValueError, OverflowError) as wrong:
            self.scenario, self.reason = None, str(wrong)
        else:
            self.scenario, self.reason = with_value(before, self.place, value), ""

    def pieces(self, width: int) -> list[Piece]:
        """The text with its cursor in `width` cells; of one that is too long, its end."""
        shown = self.text[-max(0, width - 1) :] if width > 1 else ""
        blank = " " * max(0, width - cells(shown) - 1)
        return [(shown, "warn@" if self.reason else "strong@"), (" ", "badge_paused"), (blank, "strong@")]


class Stop(NamedTuple):
    """A row that the cursor goes to: the goals, a server or a workload."""

    section: str
    at: int

    def places(self, *, every: bool = False) -> list[Place]:
        """The fields that the row shows, or all of it."""
        fields = FIELDS[self.section] if every else [field(self.section, key) for key in _CELLS[self.section]]
        return [Place(self.section, self.at, each) for each in fields]


def stops(scenario: Scenario) -> list[Stop]:
    """Goals, server shapes, workloads; there is a row for a server even where none is given."""
    servers = [Stop(SERVER, at) for at in range(max(1, len(scenario.server)))]
    return [Stop(GOALS, 0), *servers, *(Stop(WORKLOAD, at) for at in range(len(scenario.workload)))]


class Here(NamedTuple):
    """What runs on the GPUs here."""

    gpus: Mapping[str, int] | None = None
    """Type -> GPUs that can be planned with; None: not looked yet."""
    instances: Mapping[str, int] = MappingProxyType({})
    """Served model name -> instances that answer."""
    kv_ratios: Mapping[str, float] = MappingProxyType({})
    """Served model name -> how full the fullest KV cache of its instances is."""
    in_use: tuple[str, ...] = ()
    """GPUs that something else than an engine uses."""

    @classmethod
    def of(cls, snapshot: Snapshot) -> Here:
        """As a snapshot shows it."""
        return cls(dict(have(snapshot)), instances_here(snapshot), kv_ratios(snapshot), held(snapshot))


class Calculation:
    """The answer to a scenario; worked out only where something that it depends on changed."""

    def __init__(self, known: Known, configured: bool = False) -> None:
        self.known = known
        self.configured = configured
        """Whether the servers at the start are those of the settings."""
        self.here = Here()
        self.answer: Answer | None = None
        self.failed = ""
        """A bug of ours that kept the newest scenario from being answered."""
        self._scenario: Scenario | None = None
        self._planned: Planned | None = None
        self._columns: tuple[Column, ...] | None = None

    def use(self, known: Known, here: Here) -> bool:
        """Take over what is known and what is here; returns whether the answer depends on what changed."""
        changed = known != self.known or here.gpus != self.here.gpus
        self.here = here
        if changed:
            self.known, self._scenario = known, None
        return changed

    def ask(self, scenario: Scenario) -> None:
        """Answer a scenario; where that fails the last answer stays, and `failed` says so."""
        if scenario is self._scenario:
            return
        try:
            self._planned = planned(scenario, self.known, self.here.gpus, self._planned)
            self.answer, self.failed = self._planned.answer, ""
        except Exception as error:  # whatever was typed, the panel and what it showed stay
            self.failed = clean(f"sizing failed, please report: {type(error).__name__}: {error}", 200)
        self._scenario, self._columns = scenario, None

    def instance(self, at: int) -> Instance | None:
        """One workload's instance as the answer has it; None where there is none."""
        demands = self._planned.demands if self._planned is not None and not self.failed else ()
        return demands[at].instance if 0 <= at < len(demands) else None

    def plan(self, at: int) -> WorkloadPlan | None:
        """The answer for one workload; None for one that was added since."""
        workloads = self.answer.workloads if self.answer is not None else ()
        return workloads[at] if 0 <= at < len(workloads) else None

    @property
    def columns(self) -> tuple[Column, ...]:
        """The same question on other types of GPU."""
        if self._columns is None:
            asked = self._scenario if not self.failed else None
            self._columns = () if asked is None else compare(asked, self.known)
        return self._columns


class Effect(NamedTuple):
    """A value (None: nothing is known of it) and where it comes from."""

    value: float | str | None
    origin: str


def effect(place: Place, version: Version, calculation: Calculation) -> Effect:
    """The value that a place has in a version of the scenario."""
    scenario, key = version.scenario, place.field.key
    typed = value_of(scenario, place)
    if typed not in (None, ""):
        default = typed == default_of(place) and not place.field.optional
        return Effect(typed, _started(place, version, calculation.configured) or ("default" if default else "typed"))
    if place.section == GOALS:
        return Effect(None, "no goal" if key.endswith("_p95_ms") else "not asked")
    if place.section == SERVER:
        if key == "price_per_gpu_hour" and place.at < len(scenario.server):
            price = calculation.known.prices.get(scenario.server[place.at].gpu)
            return Effect(price, "config" if price is not None else "no price")
        return Effect(None, "measured, else the board's limit" if key == "gpu_power_w" else "")
    if hasattr(scenario, key):  # goals and spares have a value for all workloads
        value = getattr(scenario, key)
        return Effect(value, "of all workloads" if value is not None else "no goal")
    instance = calculation.instance(place.at)
    if instance is None:
        return Effect(None, "")
    return _looked_up(instance, calculation.plan(place.at), scenario).get(key, Effect(None, ""))


def _started(place: Place, version: Version, configured: bool) -> str:
    """Where a value comes from that nobody changed since the panel was filled in; empty where it was changed."""
    of, key = holder(version.scenario, place.section, place.at), place.field.key
    if of is None or key not in _STARTED[place.section]:
        return ""
    if isinstance(of, Workload):
        return version.follows[place.at].target_of(of) if version.follows else ""
    before = holder(version.started, place.section, place.at) if version.started is not None else None
    same = before is not None and getattr(before, key) == getattr(of, key)
    if not same or (key == "gpus" and getattr(before, "gpu", "") != getattr(of, "gpu", "")):
        return ""
    return "as seen" if place.section == SERVER and not configured else "config"


def _looked_up(instance: Instance, plan: WorkloadPlan | None, scenario: Scenario) -> dict[str, Effect]:
    """What a workload has where nothing was typed: of the engine that was seen, of the plan, or of the formulas."""
    seen, llm, tail = instance.seen, instance.llm, instance.itl_tail
    measured = SEEN[seen.origin] if seen is not None else ""

    def own(key: str, value: float | None, otherwise: str, unknown: str = "not known") -> Effect:
        """A value of the instance; it was measured if what was seen has the same."""
        if not value and value != 0.0:
            return Effect(None, unknown)
        return Effect(value, measured if seen is not None and getattr(seen, key) == value else otherwise)

    def planned(value: Reading, unit: float, origin: str, unknown: str = "not known") -> Effect:
        return Effect(None, unknown) if isinstance(value, Missing) else Effect(value / unit, origin)

    def precision(key: str, published: Any) -> Effect:
        told = getattr(seen, key, "")
        return Effect(told, measured) if told else Effect(published and published.value, "as published")

    pool = kv_pool_tokens(instance, scenario)
    by_load = ", by load" if tail.mean_s is not None else ""
    capacity = plan.capacity_per_instance if plan is not None else NOT_KNOWN
    memory, busy = (plan.memory_bytes, plan.busy_ratio) if plan is not None else (NOT_KNOWN, NOT_KNOWN)
    most = seen.max_num_seqs if seen is not None else None
    return {
        "capacity_per_instance": planned(capacity, 1.0, SOURCES[plan.source] if plan is not None else ""),
        "prompt_tokens": own("prompt_tokens", instance.prompt_tokens, "not known"),
        "answer_tokens": own("answer_tokens", instance.answer_tokens, "not known"),
        "prefix_hit_ratio": own("prefix_hit_ratio", instance.hit_ratio, "none known"),
        "tp": own("tp", instance.tp, "fewest GPUs"),
        "pp": own("pp", instance.pp, "default"),
        "weight_precision": precision("weight_precision", llm and llm.precision),
        "kv_precision": precision("kv_precision", llm and llm.kv_precision),
        "memory_gb": planned(memory, 1e9, plan.memory_source if plan is not None else ""),
        "busy_ratio": planned(busy, 1.0, measured, "not known: a GPU of its own"),
        "itl_tail_ratio": Effect(
            instance.itl_tail_ratio, f"{measured}{by_load}" if tail.known else "not known: the mean"
        ),
        "kv_pool_tokens": Effect(pool[0], measured if pool[1] == "seen" else pool[1])
        if pool is not None
        else Effect(None, "not known"),
        "max_num_seqs": Effect(most, measured if most is not None else "no limit known"),
        "prefill_tokens_per_s": own("prefill_tokens_per_s", instance.prefill_tokens_per_s, "roofline"),
        "profile": Effect(None, "none"),
    }


class PanelState:
    """The panel without its looks. Whatever changes the question answers it at once."""

    def __init__(self, known: Known, scenario: Scenario, configured: bool = False) -> None:
        self.undo = UndoList(Version.of(scenario, runs=True))
        self.calculation = Calculation(known, configured)
        self.edit: Edit | None = None
        self.opened = False
        """Whether all fields of the row under the cursor are shown, instead of all rows."""
        self.cell = 0
        """Which value of the row the cursor is on; of the opened row which field."""
        self._newest = Newest()
        self.version = self.undo.present
        """What is asked now: with what is typed so far, as far as that is a value."""
        self.stops = stops(scenario)
        """The rows that the cursor goes to."""
        self._row = 0
        self.go_to()
        self.answer()

    @property
    def scenario(self) -> Scenario:
        """The scenario of that."""
        return self.version.scenario

    @property
    def present(self) -> Scenario:
        """The scenario without what is being typed."""
        return self.undo.present.scenario

    @property
    def stale(self) -> bool:
        """Whether the answer is an older one: what is typed is no value yet, or its answer failed."""
        return (self.edit is not None and self.edit.scenario is None) or bool(self.calculation.failed)

    @property
    def row(self) -> int:
        """The cursor's row."""
        return min(self._row, len(self.stops) - 1)

    @property
    def stop(self) -> Stop:
        """What the row is about."""
        return self.stops[self.row]

    @property
    def place(self) -> Place:
        """The field under the cursor."""
        places = self.stop.places(every=self.opened)
        return places[max(0, min(self.cell, len(places) - 1))]

    @property
    def workload(self) -> int:
        """The chosen workload; the first one where the cursor is on none."""
        return self.stop.at if self.stop.section == WORKLOAD else 0

    def answer(self) -> None:
        """Answer what is asked now."""
        edit, self.version = self.edit, self.undo.present
        if edit is not None and edit.scenario is not None:
            self.version = self._with(edit.place, edit.scenario)
        self.stops = stops(self.present)
        self.calculation.ask(self.scenario)

    def put(self, change: Scenario | Version, place: Place | None = None) -> bool:
        """Go on with another version, or another scenario of the same workloads; returns whether it is another."""
        version = change if isinstance(change, Version) else self.undo.present._replace(scenario=change)
        self.edit = None
        changed = self.undo.put(version, place)
        self.answer()
        return changed

    def _with(self, place: Place, scenario: Scenario) -> Version:
        """With another value in one place. A target that is typed follows no more, also where it is the same number."""
        version = self.undo.present._replace(scenario=scenario)
        return version.typed({place.at}) if place.section == WORKLOAD and place.field.key == "target" else version

    def renew(self, newest: Newest) -> None:
        """Take over what was measured since, and the targets that nobody typed."""
        self._newest = newest
        version = self.undo.present.followed(newest)
        if version is self.undo.present:
            return
        self.undo.present = version
        if self.edit is not None:
            self.edit.read(self.present)
        self.answer()

    def move(self, lines: int) -> bool:
        """Another row or field; what is typed is taken first. Returns whether it could be."""
        if not self.accept():
            return False
        self.undo.seal()
        if self.opened:
            self.cell = max(0, min(len(self.stop.places(every=True)) - 1, self.cell + lines))
        else:
            self.go_to(self.row + lines)
        return True

    def go_to(self, row: int | None = None) -> None:
        """Put the cursor on a row; by default on the first workload's, or that of the first server without one."""
        if row is None:
            row = next((at for at, stop in enumerate(self.stops) if stop.section == WORKLOAD), 1)
        self._row = max(0, min(len(self.stops) - 1, row))
        self.cell = 0

    def side(self, step: int) -> None:
        """The value beside; where there is none, a step of the value. What is typed is taken, and not stepped."""
        typed, several = self.edit is not None, not self.opened and len(self.stop.places()) > 1
        if not self.accept() or (typed and not several):
            return
        if several:
            self.cell = max(0, min(len(self.stop.places()) - 1, self.cell + step))
        else:
            self.step(step)

    def type(self, key: str, character: str | None) -> bool:
        """A key that may be part of a number; returns whether it was."""
        if self.edit is None:
            back, digit = key == "backspace", character is not None and character in "0123456789.,"
            if not (back or digit) or not self.begin(empty=not back):
                return False
        assert self.edit is not None
        taken = self.edit.take(key, character)
        self.edit.read(self.present)
        self.answer()
        return taken

    def paste(self, text: str) -> None:
        """A pasted text at once, where it is a number."""
        if self.edit is None and (text[:1] not in tuple("0123456789.,-") or not self.begin(empty=True)):
            return
        assert self.edit is not None
        self.edit.text = (self.edit.text + text)[:_MOST_TYPED]
        self.edit.read(self.present)
        self.answer()

    def begin(self, *, empty: bool = False) -> bool:
        """Edit what stands under the cursor; returns whether that is a number."""
        place = self.place
        if place.field.kind is None or not self._there(place):
            return False
        self.edit = Edit(place, self.present, "" if empty else place.field.typed(value_of(self.scenario, place)))
        self.answer()
        return True

    def accept(self) -> bool:
        """Take what is typed; returns False where that is no value."""
        edit = self.edit
        if edit is None:
            return True
        if edit.scenario is None:
            return False
        self.put(self.version, edit.place)
        self.undo.seal()
        return True

    def cancel(self) -> bool:
        """Drop what is typed; returns whether something was."""
        dropped, self.edit = self.edit is not None, None
        self.answer()
        return dropped

    def step(self, direction: int) -> None:
        """The next value up (1) or down (-1): of numbers a tenth, of choices the next one."""
        place = self.place
        if not self.accept() or not self._there(place):
            return
        kind, known = place.field.kind, self.calculation.known
        if kind is None:
            choices, value = list(place.field.choices(known)), value_of(self.scenario, place)
            at = choices.index(value) if value in choices else -1 if direction > 0 else 0
            self.put_value(place, choices[(at + direction) % len(choices)] if choices else value)
        else:
            now = effect(place, self.version, self.calculation).value
            number = kind.stepped(float(now), direction) if isinstance(now, (int, float)) else place.field.start
            self.put_value(place, int(number) if kind.whole else number)

    def put_value(self, place: Place, value: Any) -> bool:
        """Change one value; changes of the same one in a row are one step back. Returns whether it is another."""
        if place.section == SERVER and place.field.key == "gpu":
            return self.use_gpu(value, place)
        return self.put(self._with(place, with_value(self.present, place, value)), place)

    def _there(self, place: Place) -> bool:
        """Whether there is something that has this value: a server may not be given."""
        return place.section != SERVER or place.at < len(self.present.server)

    def remove(self) -> bool:
        """The workload or further server under the cursor; of any other value, what was typed there."""
        if not self.accept():
            return False
        place, now, version = self.place, self.present, self.undo.present
        rows: tuple[Any, ...] = getattr(now, place.section, ())
        whole = not self.opened and (place.section == WORKLOAD or (place.section == SERVER and len(rows) > 1))
        if whole and place.at < len(rows):
            left = (*rows[: place.at], *rows[place.at + 1 :])
            version = version._replace(scenario=replace(now, **{place.section: left}))
            if place.section == WORKLOAD:
                version = version._replace(follows=(*version.follows[: place.at], *version.follows[place.at + 1 :]))
            return self.put(version)
        if not self._there(place) or place.field.key == "gpu":
            return False
        open_value = None if place.field.kind is not None else ""
        return self.put(
            self._with(place, with_value(now, place, open_value if place.field.optional else default_of(place)))
        )

    def use_gpu(self, name: str, place: Place | None = None) -> bool:
        """Another type of GPU in all servers; price and power were of the old one."""
        servers = tuple(
            each if each.gpu == name else replace(each, gpu=name, price_per_gpu_hour=None, gpu_power_w=None)
            for each in self.present.server
        )
        return self.put(replace(self.present, server=servers or (Server(name),)), place)

    def load(self, version: Version) -> None:
        """Go on with a whole other scenario, of a file or of what runs here."""
        self.opened = False
        self.put(version)
        self.undo.settle()
        self.go_to()

    def turn(self, step: int) -> bool:
        """Undo (-1) or redo (1); returns whether there was something. What follows the engines is as it runs now."""
        self.edit = None
        turned = self.undo.move(step)
        self.undo.present = self.undo.present.followed(self._newest)
        self.answer()
        return turned

    def open(self) -> None:
        """All fields of the row under the cursor."""
        self.cell = next((at for at, place in enumerate(self.stop.places(every=True)) if place == self.place), 0)
        self.opened = True

    def close(self) -> bool:
        """All rows again; returns whether fields were shown."""
        if not self.opened:
            return False
        place, self.opened = self.place, False
        self.cell = next((at for at, each in enumerate(self.stop.places()) if each == place), 0)
        return True


# What-ifs of one key.


def add(state: PanelState, workload: Workload, observed: Sequence[Observed] = ()) -> None:
    """One more workload, and the cursor on it."""
    seen = seen_of(workload.model, observed)
    if seen is not None and not workload.profile:
        workload = replace(workload, seen=seen)
    version = state.undo.present
    scenario = replace(version.scenario, workload=(*version.scenario.workload, workload))
    state.opened = False
    state.put(version._replace(scenario=scenario, follows=(*version.follows, Follows(figures=seen is not None))))
    state.go_to(len(state.stops) - 1)


def double(state: PanelState, *, every: bool = False) -> bool:
    """Twice the target of the workload under the cursor, or of every one; returns whether there was one."""
    if not state.accept():
        return False
    now, stop = state.present, state.stop
    chosen = set(range(len(now.workload))) if every else {stop.at} if stop.section == WORKLOAD else set()
    doubled = (replace(each, target=each.target * 2) if at in chosen else each for at, each in enumerate(now.workload))
    return state.put(state.undo.present._replace(scenario=replace(now, workload=tuple(doubled))).typed(chosen))


def plan_for(state: PanelState, loads: Mapping[str, PeakLoad], source: str) -> bool:
    """Targets in flight or per second from loads (by served model name); `source` names where these come from. Returns
    whether that changed a target."""
    state.accept()
    version, rows, follows = state.undo.present, list[Workload](), list[Follows]()
    for workload, each in zip(version.scenario.workload, version.follows, strict=True):
        load, target = loads.get(workload.model), None
        if load is not None and workload.target_kind == "concurrency":
            target = max(1.0, float(round(load.peak)))
        elif load is not None and workload.target_kind == "requests_per_s":
            target = load.requests_per_s or None
        rows.append(workload if target is None else replace(workload, target=target))
        follows.append(each if target is None else each._replace(target=source))
    scenario = replace(version.scenario, workload=tuple(rows))
    return state.put(version._replace(scenario=scenario, follows=tuple(follows)))


def next_value(state: PanelState, section: str, key: str, values: Sequence[Any]) -> bool:
    """The next of some values of one field: of the chosen workload, or of the goals for all."""
    if not state.accept() or not state.present.workload:
        return False
    place = Place(section, state.workload if section == WORKLOAD else 0, field(section, key))
    now = value_of(state.present, place)
    return state.put_value(place, values[(values.index(now) + 1) % len(values)] if now in values else values[0])


def toggle_estimate(state: PanelState) -> bool:
    """Let a TTFT goal decide by an estimate, or no more."""
    if not state.accept():
        return False
    now = state.present
    return state.put(state.undo.present._replace(scenario=replace(now, assume_ttft=not now.assume_ttft)))


def next_weights(state: PanelState) -> bool:
    """The next of some precisions of the weights, without the one that they have where none is typed."""
    if not state.accept() or not state.present.workload:
        return False
    workload, known = state.present.workload[state.workload], state.calculation.known
    seen, llm = known.seen(workload), known.llm(workload.model)
    own = (seen.weight_precision if seen is not None else "") or (llm.precision.value if llm is not None else "")
    return next_value(state, WORKLOAD, "weight_precision", [each for each in _WEIGHTS if not each or each != own])


def next_tp(state: PanelState) -> bool:
    """The next TP that holds the model, after the one in effect; behind the last one the smallest. A typed one that has
    no answer is left open. Returns whether there is another."""
    instance = state.calculation.instance(state.workload)
    now = value_of(state.present, Place(WORKLOAD, state.workload, field(WORKLOAD, "tp")))
    if instance is None or not instance.tps:
        return now is not None and next_value(state, WORKLOAD, "tp", (now, None))
    after = next((tp for tp in instance.tps if tp > instance.tp), instance.tps[0])
    return after != instance.tp and next_value(state, WORKLOAD, "tp", (now, after))


def ages(scenario: Scenario, now_s: float) -> dict[int, str]:
    """Workloads that stand on figures of an engine that has none now -> how old they are."""
    found: dict[int, str] = {}
    for at, workload in enumerate(scenario.workload):
        seen = workload.seen
        if seen is None or seen.origin is not Origin.LIVE or workload.profile or not seen.time:
            continue
        try:
            old_s = now_s - datetime.fromisoformat(seen.time.replace("Z", "+00:00")).timestamp()
        except ValueError:
            old_s = now_s
        if old_s > FROZEN_S:
            found[at] = age(old_s)
    return found
