"""What the sizing panel asks: a model to add, a type of GPU, a value from a list, a file to load or save."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from gpumon.config.errors import ConfigError
from gpumon.readings.format import cut, period
from gpumon.readings.text import clean
from gpumon.sizing.peaks import PastLoads, PeakLoad, in_flight, request_rates
from gpumon.sizing.plan import USUAL
from gpumon.sizing.profile import Observed
from gpumon.sizing.scenario import Known, Workload
from gpumon.tui.control import Files, Timeline
from gpumon.tui.screens.questions import Choice, Question
from gpumon.tui.sizing.fields import SERVER, TARGETS, value_of
from gpumon.tui.sizing.state import SEEN, Version, add, plan_for
from gpumon.tui.table import clock

if TYPE_CHECKING:
    from gpumon.tui.sizing.panel import SizingPanel

_START: Final = 32.0
"""Target of a workload that is added: the cursor stands on it."""
_MOST: Final = 200
"""Choices that are listed; who looks for another one types a part of its name."""


_MOMENTS: Final = 120
"""Of the past that are looked at for a peak: each costs up to 0.3 s, in a thread."""
_LEAST_STEP_S: Final = 10.0


class Dialogs:
    """Asks, and does with the panel's state what is chosen there."""

    def __init__(self, panel: SizingPanel) -> None:
        self._panel = panel
        self._files: Sequence[str] = ()
        """Names of saved scenarios, as of the last time that someone asked."""

    def add_model(self) -> None:
        """Choose a model: one that runs here, an imported profile, one of the catalogue, or any name."""
        panel, state = self._panel, self._panel.state
        observed, known = panel.monitor.control.calibration.observed(), state.calculation.known
        every = list(_models(known, observed))

        def choices(text: str) -> Sequence[Choice]:
            words, name = text.casefold().split(), text.strip()
            found = [choice for choice in every if all(word in choice.name.casefold() for word in words)]
            if name and all(choice.name.casefold() != name.casefold() for choice in found):
                note = "not known: capacity and memory have to be typed"
                note = "add it under this name" if known.llm(name) is not None else note
                found.append(Choice(clean(name, 120), note, Workload(model=name, target=_START)))
            return found[:_MOST]

        def chosen(choice: Choice | None, text: str) -> None:  # noqa: ARG001
            if choice is not None and isinstance(choice.value, Workload):
                add(state, choice.value, observed)
                panel.changed()

        hint = "type a part of the model's name · Enter: add · Esc: close"
        self._ask(Question("add a workload:", choices, chosen, hint=hint))

    def choose_gpu(self) -> None:
        """Choose a type of GPU."""
        panel, state = self._panel, self._panel.state
        at = state.stop.at if state.stop.section == SERVER else 0
        now = next((server.gpu for server in state.present.server[at : at + 1]), "")
        specs = {spec.name: spec for spec in state.calculation.known.gpus.by_short.values()}
        names = sorted(specs)

        def choices(text: str) -> Sequence[Choice]:
            words = text.casefold().split()

            def far(name: str) -> tuple[bool, ...]:
                """What begins as it is typed comes first, of these the usual and the SXM boards."""
                return (not name.casefold().startswith(words[0]), name not in USUAL, "SXM" not in name) if words else ()

            return [
                Choice(name, _about_gpu(specs[name].memory_bytes, specs[name].bandwidth_bytes_per_s, name == now), name)
                for name in sorted(names, key=far)
                if all(word in name.casefold() for word in words)
            ]

        def chosen(choice: Choice | None, text: str) -> None:  # noqa: ARG001
            if choice is not None:
                state.use_gpu(choice.name)
                panel.changed()

        hint = "type a part of its name · Enter: use it · Esc: close"
        first = names.index(now) if now in names else 0
        self._ask(Question("GPU type:", choices, chosen, at=first, hint=hint))

    def choose_value(self) -> None:
        """One of a field's choices; what the cursor is on is shown at once."""
        panel, state, place = self._panel, self._panel.state, self._panel.state.place
        now = str(value_of(state.present, place) or "")
        listed = list(place.field.choices(state.calculation.known))

        def choices(text: str) -> Sequence[Choice]:  # noqa: ARG001
            return [
                Choice(clean(TARGETS.get(name, name), 60) or "look it up", "now" if name == now else "", name)
                for name in listed
            ]

        def show(choice: Choice | None) -> None:
            state.put_value(place, now if choice is None else choice.value)
            panel.changed()

        self._ask(
            Question(
                place.field.name,
                choices,
                lambda choice, _: show(choice),
                dropped=lambda: show(None),
                pointed=show,
                at=listed.index(now) if now in listed else 0,
                types=False,
                hint="Enter: use it · Esc: as before",
            )
        )

    def plan_for(self) -> None:
        """Take the load that runs now for the targets, or the p95 of what is kept of the past."""
        panel, control, files = self._panel, self._panel.monitor.control, self._panel.monitor.files
        timeline, playback = getattr(control, "timeline", None), getattr(control, "playback", None)
        span = timeline.span() if timeline is not None else None
        found = [Choice("what runs now", "peak of the last 5 minutes; follows the engines", None)]
        if timeline is not None and span is not None:
            name = clean(playback.file, 20) if playback is not None else "what is recorded"
            note = f"requests in flight of each model, {period(span[1] - span[0])} up to {clock(span[1])}"
            found.append(Choice(f"p95 of {name}", note, partial(self._past_loads, timeline, span)))
        config = panel.view.config
        if files is not None and config.prometheus.url:
            note = "requests in flight of each model on all hosts, the last 7 days"
            found.append(Choice("p95 in the Prometheus", note, partial(files.prometheus_loads, config)))

        def chosen(choice: Choice | None, text: str) -> None:  # noqa: ARG001
            if choice is not None and callable(choice.value):
                panel.monitor.run_alone("peak", partial(self._plan_for, choice.value, choice.name))
            elif choice is not None:
                panel.run("reset")

        hint = "Enter: take it · Esc: close" if len(found) > 1 else "nothing of the past is kept · Esc: close"
        at = min(1, len(found) - 1)
        self._ask(Question("plan for", lambda _: found, chosen, at=at, types=False, hint=hint))

    async def _plan_for(self, loads: Callable[[], Awaitable[Mapping[str, PeakLoad]]], source: str) -> None:
        """Take the p95 of the past for the targets, once it is there."""
        panel = self._panel
        panel.monitor.say(f"{source}: reading …")
        try:
            found = await loads()
        except ConfigError as refused:
            panel.monitor.say(str(refused))
            return
        changed = plan_for(panel.state, found, "p95 recorded")
        panel.changed()
        panel.monitor.say(f"targets: {source}" if changed else f"{source}: no other load of these models was seen")

    async def _past_loads(self, timeline: Timeline, span: tuple[float, float]) -> Mapping[str, PeakLoad]:
        """Of moments of the whole span, a step apart."""
        loads, step_s = PastLoads(), max(_LEAST_STEP_S, (span[1] - span[0]) / _MOMENTS)
        moments = int((span[1] - span[0]) / step_s) + 1
        for number in range(moments):
            moment = await timeline.at(span[0] + number * step_s)
            if moment is not None:
                shot = moment.snapshot
                loads.take(shot.wall_s, in_flight(shot), request_rates(shot))
            if number % 10 == 9:
                self._panel.monitor.say(f"reading the past: {number + 1} of {moments} moments")
        return loads.found()

    def save(self) -> None:
        """A name for the scenario; then write it."""
        panel, files = self._panel, self._panel.monitor.files
        if files is None:
            return

        def chosen(choice: Choice | None, text: str) -> None:  # noqa: ARG001
            if text.strip():
                panel.monitor.run_alone("scenario", partial(self._save, files, text.strip()))

        name, hint = clean(panel.state.present.name, 60), "a name or a path; overwrites nothing"
        self._ask(Question("save scenario as:", chosen=chosen, text=name, fresh=True, hint=hint))

    async def _save(self, files: Files, name: str) -> None:
        panel, state = self._panel, self._panel.state
        written, text = await files.save_scenario(state.calculation.known.kept(state.present), name)
        if written:
            state.undo.settle()
        panel.update()
        panel.monitor.say(text if written else f"not saved: {text}")

    def load(self) -> None:
        """Choose one of the scenarios there are, or type the path of a file; then read it."""
        panel, files = self._panel, self._panel.monitor.files
        if files is None:
            return

        def choices(text: str) -> Sequence[Choice]:
            words, names, typed = text.casefold().split(), self._files, text.strip()
            found = [Choice(clean(name, 120), "", name) for name in names if all(w in name.casefold() for w in words)]
            return [*found, Choice(clean(typed, 120), "this file", typed)] if typed and typed not in names else found

        def chosen(choice: Choice | None, text: str) -> None:
            name = choice.value if choice is not None else text.strip()
            if isinstance(name, str) and name:
                panel.monitor.run_alone("scenario", partial(self._load, files, name))

        hint = "a name, or a path of a file · Enter: load · Esc: close"
        if self._ask(Question("load scenario:", choices, chosen, hint=hint)):
            panel.monitor.run_alone("scenario", partial(self._list, files))

    async def _list(self, files: Files) -> None:
        """Which files there are is known only when the disk has answered."""
        self._files = await files.scenarios()
        self._panel.monitor.renew()

    async def _load(self, files: Files, name: str) -> None:
        panel = self._panel
        try:
            scenario = await files.load_scenario(name)
        except ConfigError as refused:
            panel.monitor.say(str(refused))
            return
        panel.state.load(Version.of(scenario, runs=False))
        panel.changed()
        panel.monitor.say(f"loaded {cut(clean(name, 60), 60)}")

    def _ask(self, question: Question) -> bool:
        """Ask, unless something is being typed that is no value; returns whether it was asked."""
        accepted = self._panel.state.accept()
        if accepted:
            self._panel.monitor.ask(question)
        return accepted


def _models(known: Known, observed: Sequence[Observed]) -> Iterator[Choice]:
    """The most certain first."""
    listed: set[str] = set()
    for seen in observed:
        if seen.model and seen.model not in listed:
            listed.add(seen.model)
            note = f"{SEEN[seen.origin]}: {clean(seen.name, 60)}"
            yield Choice(clean(seen.model, 120), note, Workload(model=seen.model, target=_START))
    for name, profile in sorted(known.profiles.items()):
        note = f"profile: {SEEN[profile.origin]} {clean(profile.tool, 40)}"
        yield Choice(clean(name, 120), note, Workload(model=profile.model or name, target=_START, profile=name))
    for model in sorted(known.own):
        if model not in listed:
            listed.add(model)
            yield Choice(clean(model, 120), "served here", Workload(model=model, target=_START))
    for row in sorted(known.llms.rows, key=lambda row: row.hf_id.casefold()):
        if row.hf_id not in listed and not row.unusable:
            note = f"catalogue: {row.params_b:.3g}B, {row.native.narrowest.precision.value}"
            yield Choice(row.hf_id or row.name, note, Workload(model=row.hf_id or row.name, target=_START))


def _about_gpu(memory_bytes: float, bandwidth: float, now: bool) -> str:
    rate = f"{bandwidth / 1e12:.2f} TB/s" if bandwidth else "bandwidth not known"
    return f"{memory_bytes / 1e9:.0f} GB, {rate}{', now' if now else ''}"
