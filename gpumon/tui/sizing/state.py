"""What the sizing panel works on: scenario, cursor, and what each of its keys does to them. Knows no screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from gpumon.readings.text import clean
from gpumon.sizing.answer import Answer
from gpumon.sizing.instance import Instance
from gpumon.sizing.live import Held
from gpumon.sizing.plan import USUAL, Column, Planned, compare, planned
from gpumon.sizing.profile import Observed, Origin, seen_of
from gpumon.sizing.scenario import Known, Scenario, Server, Workload
from gpumon.tui.sizing.edits import Edit, Follower, Newest, Page, Tie, Undo
from gpumon.tui.sizing.effects import Asked, effect
from gpumon.tui.sizing.field_list import places
from gpumon.tui.sizing.fields import SERVER, WORKLOAD, Place, default_of, field, left_open, value_of, with_value
from gpumon.tui.sizing.sheet import Stop, stops


class LastAnswer:
    """Calculates only where something it depends on is another than the last time."""

    def __init__(self, known: Known) -> None:
        self.known = known
        self._given = known
        self._prices: dict[str, float] = {}
        self.have: Mapping[str, int] | None = None
        self.here: Mapping[str, int] = {}
        """Served model name -> instances that run now."""
        self.kv_ratios: Mapping[str, float] = {}
        """Served model name -> how full the fullest KV cache of its instances is now."""
        self.held = Held()
        """GPUs here that something else holds."""
        self.answer: Answer | None = None
        """Of `scenario`."""
        self.scenario: Scenario | None = None
        self.failed = ""
        """A bug of ours that kept the newest scenario from being answered."""
        self._planned: Planned | None = None
        self._columns: tuple[Column, ...] | None = None

    def use(self, known: Known, have: Mapping[str, int] | None) -> bool:
        """Take over what is known and what is here; returns whether that changed."""
        if known == self._given and have == self.have:
            return False
        self._given, self.have = known, have
        self._price()
        self.forget()
        return True

    def price(self, gpu: str) -> float | None:
        """What was typed for a type of GPU since the panel was opened first."""
        return self._prices.get(gpu)

    def keep_price(self, gpu: str, price: float | None) -> None:
        """What was typed for a type of GPU holds until something else is; None: nothing is."""
        if price is None:
            self._prices.pop(gpu, None)
        else:
            self._prices[gpu] = price
        self._price()

    def _price(self) -> None:
        self.known = self._given._replace(prices={**self._given.prices, **self._prices})
        self.forget()

    def forget(self) -> None:
        """The next question is worked out anew."""
        self.scenario = None

    def ask(self, scenario: Scenario) -> None:
        """Answer a scenario; where that fails the last answer stays, and `failed` says so."""
        if scenario is self.scenario:
            return
        try:
            self._planned = planned(scenario, self.known, self.have, self._planned)
            self.answer = self._planned.answer
            self.failed = ""
        except Exception as error:  # whatever was typed, the panel and what it showed stay
            self.failed = clean(f"sizing failed, please report: {type(error).__name__}: {error}", 200)
        self.scenario = scenario
        self._columns = None

    def instance(self, at: int) -> Instance | None:
        """One workload's instance, as the answer has it; None where there is none."""
        instances = self._planned.instances if self._planned is not None and not self.failed else ()
        return instances[at] if 0 <= at < len(instances) else None

    def columns(self, also: tuple[str, ...] = ()) -> tuple[Column, ...]:
        """The same question on other types of GPU, `also` on those that were planned with before."""
        if self._columns is None:
            failed = self.failed or self.scenario is None
            self._columns = (
                () if failed or self.scenario is None else compare(self.scenario, self.known, (*also, *USUAL))
            )
        return self._columns


BEGINS: Final = frozenset("0123456789.,")
"""What begins a number."""
PRICE: Final = "price_per_gpu_hour"
TARGET: Final = "target"
_WEIGHTS: Final = ("", "fp8", "w8a8", "int4", "nvfp4")
"""Precisions that one key goes through."""


class PanelState:
    """The panel without its looks. Whatever changes the question answers it at once."""

    def __init__(self, known: Known, scenario: Scenario, configured: bool = False) -> None:
        self.undo = Undo(Page.of(scenario, runs=True))
        self.last = LastAnswer(known)
        self.edit: Edit | None = None
        self.opened = False
        """Whether all fields of the row under the cursor are shown, instead of all rows."""
        self.cell = 0
        """Which value of the row the cursor is on; of the opened row which field."""
        self.configured = configured
        """Whether its servers are those of the settings."""
        self.gpus_before: tuple[str, ...] = ()
        """The type of GPU that another one was chosen for: it stays in the comparison."""
        self._less = False
        self._stepped_from: Page | None = None
        """Whether the last key was one step less: with a digit behind it was a sign."""
        self._row = 0
        self._row = next((at for at, stop in enumerate(self.stops) if stop.section == WORKLOAD), 1)
        self.answer()

    @property
    def page(self) -> Page:
        """What is asked now: with what is typed so far, as far as that is a value."""
        edit = self.edit
        if edit is None or edit.scenario is None:
            return self.undo.page
        return self._with(edit.place, edit.scenario)

    @property
    def scenario(self) -> Scenario:
        """The scenario of that."""
        return self.page.scenario

    @property
    def live(self) -> bool:
        """Whether a row follows the engines that run here."""
        return any(tie.figures for tie in self.undo.page.ties)

    @property
    def stale(self) -> bool:
        """Whether the answer is an older one: what is typed is no value yet, or its answer failed."""
        return (self.edit is not None and self.edit.scenario is None) or bool(self.last.failed)

    @property
    def stops(self) -> list[Stop]:
        """The rows that the cursor goes to."""
        return stops(self.undo.present)

    @property
    def row(self) -> int:
        """The cursor's row."""
        return min(self._row, len(self.stops) - 1)

    @property
    def stop(self) -> Stop:
        """What it is about."""
        return self.stops[self.row]

    @property
    def place(self) -> Place:
        """The field under the cursor."""
        if self.opened:
            fields = places(self.stop)
            return fields[min(self.cell, len(fields) - 1)]
        return self.stop.place(self.cell)

    @property
    def workload(self) -> int:
        """The chosen workload; the first one where the cursor is on none."""
        return self.stop.at if self.stop.section == WORKLOAD else 0

    @property
    def asked(self) -> Asked:
        """What the values in effect under the cursor are worked out from."""
        asked = self.asked_of_workload
        return asked if self.stop.section == WORKLOAD else asked._replace(instance=None, plan=None)

    @property
    def asked_of_workload(self) -> Asked:
        """The same of the chosen workload, wherever the cursor is."""
        answer, at = self.last.answer, self.workload
        plan = answer.workloads[at] if answer is not None and at < len(answer.workloads) else None
        page, known = self.page, self.last.known
        return Asked(page.scenario, known, self.last.instance(at), plan, page.begun, self.configured, page.ties)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The same question on other types of GPU."""
        return self.last.columns(self.gpus_before)

    @property
    def seen(self) -> tuple[int, float | None, float | None]:
        """Of the chosen workload: instances that run here as they are planned, the most that was measured, and how full
        the fullest KV cache of them is."""
        at, instance = self.workload, self.last.instance(self.workload)
        seen = instance.seen if instance is not None else None
        if instance is None or seen is None:
            return 0, None, None
        same = not seen.gpu or (instance.gpu is not None and seen.gpu == instance.gpu.name)
        alike = same and seen.origin is Origin.LIVE and seen.parallel == (instance.tp, instance.pp)
        model = self.scenario.workload[at].model
        running = self.last.here.get(model, 0) if alike else 0
        kv_ratio = self.last.kv_ratios.get(model) if alike else None
        return running, instance.fitted.high if instance.fitted is not None else None, kv_ratio

    def answer(self) -> None:
        """Answer what is asked now."""
        self.last.ask(self.scenario)

    def put(self, scenario: Scenario, field: str = "") -> bool:
        """Go on with another scenario of the same workloads; returns whether it is another."""
        return self._put(self.undo.page._replace(scenario=scenario), field)

    def _put(self, page: Page, field: str = "") -> bool:
        self.edit = None
        changed = self.undo.put(page, field)
        self.answer()
        return changed

    def _with(self, place: Place, scenario: Scenario) -> Page:
        """The page with a scenario that has another value in one place. A target that is typed follows no more, also
        where it is the same number."""
        page = self.undo.page._replace(scenario=scenario)
        return page.typed({place.at}) if place.section == WORKLOAD and place.field.key == TARGET else page

    def renew(self, newest: Newest) -> bool:
        """Take over what was measured since, and the targets that nobody typed; returns whether that changed a row."""
        changed = self.undo.renew(Follower(newest).renewed)
        edit = self.edit
        if changed and edit is not None:
            text = edit.text
            self.edit = Edit(edit.place, self.undo.present, text.text)
            self.edit.text, self.edit.fresh = text, edit.fresh
        if changed:
            self.answer()
        return changed

    def move(self, lines: int) -> bool:
        """Another row or field; what is typed is taken first. Returns whether it could be."""
        if not self.accept():
            return False
        self.undo.seal()
        if self.opened:
            self.cell = max(0, min(len(places(self.stop)) - 1, self.cell + lines))
        else:
            self.go_to(self.row + lines, 0)
        return True

    def go_to(self, row: int, cell: int) -> None:
        """Put the cursor on a row."""
        self._row = max(0, min(len(self.stops) - 1, row))
        self.cell = cell

    def side(self, step: int) -> None:
        """The value beside; where there is none, a step of the value. What is typed is taken, and not stepped."""
        typed = self.edit is not None
        if not self.accept() or (typed and (self.opened or self.stop.cells == 1)):
            return
        if not self.opened and self.stop.cells > 1:
            self.cell = max(0, min(self.stop.cells - 1, self.cell + step))
        else:
            self.step(step)

    def type(self, key: str, character: str | None) -> bool:
        """A key that may be part of a number; returns whether it was."""
        self._stepped_from = self._stepped_from if self._less else None
        signed, self._less = self._less, self.edit is None and character == "-" and not self._less
        if self.edit is not None:
            exponent = self.edit.text.text[-1:].lower() == "e"
            if character in ("+", "-") and not exponent:
                return False
            taken = self.edit.take(key, character)
            self.answer()
            return taken
        begins = (character is not None and character in BEGINS) or key == "backspace"
        if not begins or self.place.field.kind is None or not self._there(self.place):
            return False
        text = self.place.field.typed(value_of(self.scenario, self.place)) if key == "backspace" else ""
        if signed and self._stepped_from is not None and key != "backspace":
            self.undo.put(self._stepped_from, self.place.id)
        self.edit = Edit(self.place, self.undo.present, text)
        if signed and key != "backspace":
            self.edit.insert("-")
        self.edit.take(key, character)
        self.answer()
        return True

    def paste(self, text: str) -> bool:
        """A pasted text at once; returns whether it is taken as a number."""
        if self.edit is None:
            if self.place.field.kind is None or not self._there(self.place) or text[:1] not in (*BEGINS, "-"):
                return False
            self.edit = Edit(self.place, self.undo.present)
        self.edit.insert(text)
        self.answer()
        return True

    def begin(self) -> None:
        """Edit what stands under the cursor."""
        if self.place.field.kind is not None and self._there(self.place):
            self.edit = Edit(self.place, self.undo.present, self.place.field.typed(value_of(self.scenario, self.place)))
            self.answer()

    def accept(self) -> bool:
        """Take what is typed; returns whether nothing is left that is no value."""
        edit = self.edit
        if edit is None:
            return True
        if edit.scenario is None:
            return False
        self._put(self.page, edit.place.id)
        self.undo.seal()
        return True

    def cancel(self) -> bool:
        """Drop what is typed; returns whether something was."""
        dropped, self.edit = self.edit is not None, None
        self.answer()
        return dropped

    def step(self, direction: int) -> None:
        """The next value up (1) or down (-1): of numbers a tenth, of choices the next one."""
        if not self.accept():
            return
        place = self.place
        if not self._there(place):
            return
        self._stepped_from = self.undo.page
        value = effect(place, self.asked).value if place.field.kind is not None else value_of(self.scenario, place)
        self.put_value(place, self._stepped(place, value, direction))

    def _stepped(self, place: Place, value: Any, direction: int) -> Any:
        kind = place.field.kind
        if kind is None:
            choices = list(place.field.choices(self.last.known))
            at = choices.index(value) if value in choices else -1 if direction > 0 else 0
            return choices[(at + direction) % len(choices)] if choices else value
        number = kind.stepped(float(value), direction) if isinstance(value, (int, float)) else place.field.start
        return int(number) if kind.whole else number

    def put_value(self, place: Place, value: Any) -> None:
        """Change one value; changes of the same one in a row are one step back."""
        if place.section == SERVER and place.field.key == "gpu":
            self.use_gpu(value, place.id)
        else:
            self._put(self._with(place, with_value(self.undo.present, place, value)), place.id)

    def _there(self, place: Place) -> bool:
        """Whether there is something that has this value: a server may not be given."""
        return place.section != SERVER or place.at < len(self.undo.present.server)

    def double(self, *, every: bool = False) -> bool:
        """Twice the target of the workload under the cursor, or of every one; returns whether there was one."""
        if not self.accept():
            return False
        now, stop = self.undo.present, self.stop
        chosen = set(range(len(now.workload))) if every else {stop.at} if stop.section == WORKLOAD else set()
        doubled = (
            replace(each, target=each.target * 2) if at in chosen else each for at, each in enumerate(now.workload)
        )
        return self._put(self.undo.page._replace(scenario=replace(now, workload=tuple(doubled))).typed(chosen))

    def what_if(self, section: str, key: str, values: Sequence[Any]) -> bool:
        """The next of some values of one field: of the workload under the cursor, else of the first, or of all."""
        if not self.accept() or not self.undo.present.workload:
            return False
        place = Place(section, self.workload if section == WORKLOAD else 0, field(section, key))
        now = value_of(self.undo.present, place)
        after = values[(values.index(now) + 1) % len(values)] if now in values else values[0]
        return self._put(self._with(place, with_value(self.undo.present, place, after)), place.id)

    def other_weights(self) -> bool:
        """The next of some precisions of the weights, without the one that they have where none is typed."""
        if not self.accept() or not self.undo.present.workload:
            return False
        workload, known = self.undo.present.workload[self.workload], self.last.known
        seen, llm = known.seen(workload), known.llm(workload.model)
        own = (seen.weight_precision if seen is not None else "") or (llm.precision.value if llm is not None else "")
        return self.what_if(WORKLOAD, "weight_precision", [each for each in _WEIGHTS if not each or each != own])

    def other_tp(self) -> bool:
        """The next TP that holds the model, after the one in effect; behind the last one the smallest. A typed one that
        has no answer is left open. Returns whether there is another."""
        instance = self.last.instance(self.workload)
        now = value_of(self.undo.present, Place(WORKLOAD, self.workload, field(WORKLOAD, "tp")))
        if instance is None or not instance.tps:
            return now is not None and self.what_if(WORKLOAD, "tp", (now, None))
        after = next((tp for tp in instance.tps if tp > instance.tp), instance.tps[0])
        return after != instance.tp and self.what_if(WORKLOAD, "tp", (now, after))

    def add(self, workload: Workload, observed: Sequence[Observed] = ()) -> None:
        """One more workload, and the cursor on it."""
        seen = seen_of(workload.model, observed)
        if seen is not None and not workload.profile:
            workload = replace(workload, seen=seen)
        now, ties = self.undo.present, self.undo.page.ties
        scenario = replace(now, workload=(*now.workload, workload))
        self.opened = False
        self._put(self.undo.page._replace(scenario=scenario, ties=(*ties, Tie(figures=seen is not None))))
        self.go_to(len(self.stops) - 1, 0)

    def remove(self) -> bool:
        """The workload or further server under the cursor; of any other value, what was typed there."""
        if not self.accept():
            return False
        place, now = self.place, self.undo.present
        rows: tuple[Any, ...] = getattr(now, place.section, ())
        whole = not self.opened and (place.section == WORKLOAD or (place.section == SERVER and len(rows) > 1))
        if whole and place.at < len(rows):
            page = self.undo.page._replace(scenario=replace(now, **{place.section: _without(rows, place.at)}))
            return self._put(page._replace(ties=_without(page.ties, place.at)) if place.section == WORKLOAD else page)
        if not self._there(place) or (place.field.key == "gpu"):
            return False
        value = left_open(place.field) if place.field.optional else default_of(place)
        if place.field.key == PRICE:
            self.last.keep_price(now.server[place.at].gpu, None)
        return self._put(self._with(place, with_value(now, place, value)))

    def use_gpu(self, name: str, field: str = "") -> None:
        """Another type of GPU, in the server under the cursor, else in the first; price and power were of the old.

        A price that was typed for a type comes back with it.
        """
        now = self.undo.present
        at = self.stop.at if self.stop.section == SERVER else 0
        if at >= len(now.server):
            self.put(replace(now, server=(*now.server, Server(name))))
        elif now.server[at].gpu != name:
            of = now.server[at]
            if of.price_per_gpu_hour is not None:
                self.last.keep_price(of.gpu, of.price_per_gpu_hour)
            if not self.gpus_before:
                self.gpus_before = (of.gpu,)
            changed = replace(of, gpu=name, price_per_gpu_hour=self.last.price(name), gpu_power_w=None)
            self.put(replace(now, server=(*now.server[:at], changed, *now.server[at + 1 :])), field)

    def load(self, scenario: Scenario, *, runs: bool = False) -> None:
        """Go on with a whole other scenario, of a file or of what runs here."""
        self.opened = False
        self.gpus_before = ()
        self._put(Page.of(scenario, runs=runs))
        self.undo.settle()
        self._row = next((at for at, stop in enumerate(self.stops) if stop.section == WORKLOAD), 0)
        self.cell = 0

    def turn(self, forth: bool) -> bool:
        """Undo, or redo; returns whether there was something."""
        self.edit = None
        turned = self.undo.redo() if forth else self.undo.undo()
        self.answer()
        return turned

    def open(self) -> None:
        """All fields of the row under the cursor."""
        self.cell = next((at for at, place in enumerate(places(self.stop)) if place == self.place), 0)
        self.opened = True

    def close(self) -> bool:
        """All rows again; returns whether fields were shown."""
        if not self.opened:
            return False
        key = self.place.field.key
        self.opened = False
        self.cell = next((at for at in range(self.stop.cells) if self.stop.place(at).field.key == key), 0)
        return True


def _without(rows: tuple[Any, ...], at: int) -> tuple[Any, ...]:
    return (*rows[:at], *rows[at + 1 :])
