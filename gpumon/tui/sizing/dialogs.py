"""Questions of the sizing panel: a model to add, a type of GPU, a value from a list, a file to load or save."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from textual.worker import WorkType

from gpumon.config.errors import ConfigError
from gpumon.readings.format import cut, period
from gpumon.readings.text import clean
from gpumon.sizing.compare import USUAL
from gpumon.sizing.peaks import PastLoads, PeakLoad, in_flight, request_rates
from gpumon.sizing.profile import Observed
from gpumon.sizing.scenario import Catalogues, Workload
from gpumon.specs.gpu import GpuSpec
from gpumon.tui.control import Files, Measured, Playback, Timeline
from gpumon.tui.screens.questions import Choice, Question
from gpumon.tui.sizing.effects import SEEN
from gpumon.tui.sizing.fields import SERVER, TARGETS, typed_value
from gpumon.tui.sizing.state import PanelState
from gpumon.tui.sizing.versions import Version
from gpumon.tui.sizing.what_ifs import add_server, add_workload, plan_for, plan_for_what_runs
from gpumon.tui.table import clock
from gpumon.tui.view import View

_START: Final = 32.0
"""Target of a workload that is added: the cursor stands on it."""
_MOST: Final = 200
"""Choices that are listed; who looks for another one types a part of its name."""
_MOMENTS: Final = 120
"""Moments of the past that are looked at for a peak: each costs up to 0.3 s, in a thread."""
_LEAST_STEP_S: Final = 10.0
_MOMENTS_A_NOTICE: Final = 10
"""Moments after which it is said how many were read."""
_WHAT_RUNS: Final = "what runs now"


class SizingScreen(Protocol):
    """The screen as the sizing panel knows it."""

    files: Files | None

    @property
    def control(self) -> Measured:
        """Measurements made here, and the catalogues as they are by now."""

    @property
    def timeline(self) -> Timeline | None:
        """The past that is kept of one machine; None without one."""

    @property
    def playback(self) -> Playback | None:
        """The recording that is shown; None where this is no replay."""

    @property
    def gone_back(self) -> bool:
        """Whether a moment is shown that the user went to."""

    def ask(self, question: Question) -> None:
        """Ask at the foot of the screen."""

    def say(self, text: str) -> None:
        """Show a notice."""

    def renew_choices(self) -> None:
        """Renew the choices of the question."""

    def show_keys(self) -> None:
        """Name the keys that do something here."""

    def run_alone(self, group: str, work: WorkType[None]) -> None:
        """Work beside the screen, in place of what is left of the same group."""


class AskingPanel(Protocol):
    """The sizing panel as its questions know it."""

    view: View
    monitor: SizingScreen

    @property
    def state(self) -> PanelState:
        """The panel without its looks."""

    def changed(self) -> None:
        """Show what is another now."""

    def update(self) -> object:
        """Paint it again."""


class Dialogs:
    """Asks, and does with the panel's state what is chosen there."""

    def __init__(self, panel: AskingPanel) -> None:
        self._panel = panel
        self._files: Sequence[str] = ()
        """Names of saved scenarios, as of the last time that someone asked."""

    def add_model(self) -> None:
        """Choose a model: one that runs here, an imported profile, one of the catalogue, or any name."""
        panel = self._panel
        catalogues = panel.state.calculation.catalogues
        observed = panel.monitor.control.calibration.observed()
        models = list(_models(catalogues, observed))

        def choices(text: str) -> Sequence[Choice]:
            listed = _matching(models, text)
            name = text.strip()
            if name and all(choice.name.casefold() != name.casefold() for choice in listed):
                listed.append(_by_its_name(name, catalogues))
            return listed[:_MOST]

        def chosen(choice: Choice | None, text: str) -> None:  # noqa: ARG001 - the signature of Question.on_choose
            if choice is not None and isinstance(choice.value, Workload):
                add_workload(panel.state, choice.value, observed)
                panel.changed()

        hint = "type a part of the model's name · Enter: add · Esc: close"
        self._ask(Question("add a workload:", choices, chosen, hint=hint))

    def add_server(self) -> None:
        """Choose the type of GPU of more servers."""
        self._choose_gpu("add servers with:", partial(add_server, self._panel.state))

    def choose_gpu(self, typed: str = "") -> None:
        """Choose a type of GPU; `typed` stands in the field at first."""
        self._choose_gpu("GPU type:", self._panel.state.use_gpu, typed)

    def _choose_gpu(self, title: str, use: Callable[[str], object], typed: str = "") -> None:
        """Ask for a type of GPU, and use it."""
        panel = self._panel
        now = _gpu_now(panel.state)
        specs = {spec.name: spec for spec in panel.state.calculation.catalogues.gpus.by_short.values()}
        names = sorted(specs)

        def choices(text: str) -> Sequence[Choice]:
            return [Choice(name, _about_gpu(specs[name], now), name) for name in _matching_gpus(names, text)]

        def chosen(choice: Choice | None, text: str) -> None:  # noqa: ARG001 - the signature of Question.on_choose
            if choice is not None:
                use(choice.name)
                panel.changed()

        first = 0
        if now in names and not typed:
            first = names.index(now)
        hint = "type a part of its name · Enter: use it · Esc: close"
        self._ask(Question(title, choices, chosen, text=typed, first_choice=first, hint=hint))

    def choose_by_digit(self, digit: str) -> bool:
        """Open the list of the choice under the cursor with a digit typed; returns whether a choice has the digit."""
        place = self._panel.state.place
        listed = place.field.choices(self._panel.state.calculation.catalogues)
        if not any(digit in name for name in listed):
            return False
        if place.field.key == "gpu":
            self.choose_gpu(digit)
        else:
            self.choose_value(digit)
        return True

    def choose_value(self, typed: str = "") -> None:
        """Choose one of a field's values; what the cursor is on is shown at once. `typed`: a part of its name."""
        panel = self._panel
        state = panel.state
        place = state.place
        now = str(typed_value(state.present, place) or "")
        listed = []
        for name in place.field.choices(state.calculation.catalogues):
            listed.append(_value_choice(name, now))
        first = 0
        if not typed:
            first = next((number for number, choice in enumerate(listed) if choice.value == now), 0)

        def choices(text: str) -> Sequence[Choice]:
            return _matching(listed, text)

        def show(value: str) -> None:
            state.put_value(place, value)
            panel.changed()

        def point(choice: Choice | None) -> None:
            if choice is not None and isinstance(choice.value, str):
                show(choice.value)
            else:
                show(now)

        question = Question(
            place.field.name,
            choices,
            lambda choice, _: point(choice),
            on_drop=lambda: show(now),
            on_point=point,
            text=typed,
            first_choice=first,
            has_field=bool(typed),
            hint="Enter: use it · Esc: as before",
        )
        self._ask(question)

    def plan_for(self) -> None:
        """Choose a load for the targets: the one that runs now, or the p95 of what is kept of the past."""
        past = [*self._recorded(), *self._in_the_prometheus()]
        runs = Choice(_WHAT_RUNS, "peak of the last 5 minutes; follows the engines", None)

        def chosen(choice: Choice | None, text: str) -> None:  # noqa: ARG001 - the signature of Question.on_choose
            if choice is not None and callable(choice.value):
                self._panel.monitor.run_alone("peak", partial(self._plan_for, choice.value, choice.name))
            elif choice is not None:
                self._plan_for_what_runs()

        if past:
            hint = "Enter: take it; goals and TP stay · Esc: close"
        else:
            hint = "nothing of the past is kept · Esc: close"
        first = 1 if past else 0
        self._ask(Question("plan for", lambda _: [runs, *past], chosen, first_choice=first, has_field=False, hint=hint))

    def _recorded(self) -> Iterator[Choice]:
        """The p95 of the past that this program keeps, or of the recording that is played."""
        timeline = self._panel.monitor.timeline
        playback = self._panel.monitor.playback
        span = timeline.span() if timeline is not None else None
        if timeline is None or span is None:
            return
        begin_s, end_s = span
        name = "what is recorded"
        if playback is not None:
            name = clean(playback.file, 20)
        note = f"in flight of each model, {period(round(end_s - begin_s))} up to {clock(end_s)}"
        yield Choice(f"p95 of {name}", note, partial(self._past_loads, timeline, span))

    def _in_the_prometheus(self) -> Iterator[Choice]:
        """The p95 of the last week in the Prometheus of the settings."""
        files = self._panel.monitor.files
        config = self._panel.view.config
        if files is not None and config.prometheus.url:
            note = "in flight of each model on all hosts, last 7 days"
            yield Choice("p95 in the Prometheus", note, partial(files.prometheus_loads, config))

    def _plan_for_what_runs(self) -> None:
        """Let the targets follow the engines again."""
        panel = self._panel
        changed = plan_for_what_runs(panel.state)
        panel.changed()
        reset = panel.view.keymap.first("sizing.reset")
        if changed:
            panel.monitor.say(f"targets: {_WHAT_RUNS}; goals and TP as they were")
        else:
            panel.monitor.say(f"no target changed; {reset} begins anew with what runs")

    async def _plan_for(self, loads: Callable[[], Awaitable[Mapping[str, PeakLoad]]], source: str) -> None:
        """Take the p95 of the past for the targets, once it is there."""
        panel = self._panel
        panel.monitor.say(f"{source}: reading …")
        try:
            past = await loads()
        except ConfigError as error:
            panel.monitor.say(str(error))
            return
        changed = plan_for(panel.state, past, "p95 recorded")
        panel.changed()
        if changed:
            panel.monitor.say(f"targets: {source}; goals and TP as they were")
        else:
            panel.monitor.say(f"{source}: no other load of these models was seen")

    async def _past_loads(self, timeline: Timeline, span: tuple[float, float]) -> Mapping[str, PeakLoad]:
        """Loads of moments of the whole span, a step apart."""
        begin_s, end_s = span
        loads = PastLoads()
        step_s = max(_LEAST_STEP_S, (end_s - begin_s) / _MOMENTS)
        moments = int((end_s - begin_s) / step_s) + 1
        for number in range(moments):
            moment = await timeline.at(begin_s + number * step_s)
            if moment is not None:
                snapshot = moment.snapshot
                loads.take(snapshot.wall_s, in_flight(snapshot), request_rates(snapshot))
            if (number + 1) % _MOMENTS_A_NOTICE == 0:
                self._panel.monitor.say(f"reading the past: {number + 1} of {moments} moments")
        return loads.peak_loads()

    def save(self) -> None:
        """Ask for a name for the scenario; then write it."""
        panel = self._panel
        files = panel.monitor.files
        if files is None:
            return

        def chosen(choice: Choice | None, text: str) -> None:  # noqa: ARG001 - the signature of Question.on_choose
            if text.strip():
                panel.monitor.run_alone("scenario", partial(self._save, files, text.strip()))

        name = clean(panel.state.present.name, 60)
        hint = "a name or a path; overwrites nothing"
        self._ask(Question("save scenario as:", on_choose=chosen, text=name, fresh=True, hint=hint))

    async def _save(self, files: Files, name: str) -> None:
        panel = self._panel
        state = panel.state
        written, text = await files.save_scenario(state.calculation.catalogues.with_profiles(state.present), name)
        if written:
            state.undo.mark_saved()
        panel.update()
        if written:
            panel.monitor.say(text)
        else:
            panel.monitor.say(f"not saved: {text}")

    def load(self) -> None:
        """Choose one of the scenarios there are, or type the path of a file; then read it."""
        panel = self._panel
        files = panel.monitor.files
        if files is None:
            return

        def choices(text: str) -> Sequence[Choice]:
            typed = text.strip()
            saved = _matching([Choice(clean(name, 120), "", name) for name in self._files], text)
            if typed and typed not in self._files:
                saved.append(Choice(clean(typed, 120), "this file", typed))
            return saved

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
        self._panel.monitor.renew_choices()

    async def _load(self, files: Files, name: str) -> None:
        panel = self._panel
        try:
            scenario = await files.load_scenario(name)
        except ConfigError as error:
            panel.monitor.say(str(error))
            return
        panel.state.load(Version.of(scenario, runs=False))
        panel.changed()
        panel.monitor.say(f"loaded {cut(clean(name, 60), 60)}")

    def _ask(self, question: Question) -> bool:
        """Ask, unless something is being typed that is no value; returns whether it was asked."""
        accepted = self._panel.state.accept_typing()
        if accepted:
            self._panel.monitor.ask(question)
        return accepted


def _has_words(name: str, words: Sequence[str]) -> bool:
    """Whether a name has all these parts, in any order; `words` in small letters."""
    return all(word in name.casefold() for word in words)


def _matching(choices: Sequence[Choice], text: str) -> list[Choice]:
    """The choices whose names have all words of a text."""
    words = text.casefold().split()
    matching = []
    for choice in choices:
        if _has_words(choice.name, words):
            matching.append(choice)
    return matching


def _gpu_now(state: PanelState) -> str:
    """The type of GPU of the server under the cursor, of the first one on another row; empty if there is none."""
    place = state.stop.number if state.stop.section == SERVER else 0
    servers = state.present.server
    if place < len(servers):
        return servers[place].gpu
    return ""


def _matching_gpus(names: Sequence[str], text: str) -> list[str]:
    """The names that have all words of a text; those that begin with the first one come first."""
    words = text.casefold().split()
    matching = [name for name in names if _has_words(name, words)]
    if words:
        matching.sort(key=partial(_far_from, words[0]))
    return matching


def _far_from(begin: str, name: str) -> tuple[bool, bool, bool]:
    """Order of GPU names: those that begin as it is typed come first, of these the usual and the SXM boards."""
    return (not name.casefold().startswith(begin), name not in USUAL, "SXM" not in name)


def _value_choice(name: str, now: str) -> Choice:
    """One value of a field that has choices; an empty one is looked up."""
    words = clean(TARGETS.get(name, name), 60)
    return Choice(words or "look it up", "now" if name == now else "", name)


def _by_its_name(name: str, catalogues: Catalogues) -> Choice:
    """A model that is in no list."""
    note = "add it under this name"
    if catalogues.llm(name) is None:
        note = "not known: capacity and memory have to be typed"
    return Choice(clean(name, 120), note, Workload(model=name, target=_START))


def _models(catalogues: Catalogues, observed: Sequence[Observed]) -> Iterator[Choice]:
    """Models to add, the most certain first: measured here, of a profile, served here, of the catalogue."""
    measured: dict[str, Observed] = {}
    for seen in observed:
        if seen.model:
            measured.setdefault(seen.model, seen)
    for model, seen in measured.items():
        note = f"{SEEN[seen.origin]}: {clean(seen.name, 60)}"
        yield Choice(clean(model, 120), note, Workload(model=model, target=_START))
    for name, profile in sorted(catalogues.profiles.items()):
        note = f"profile: {SEEN[profile.origin]} {clean(profile.tool, 40)}"
        yield Choice(clean(name, 120), note, Workload(model=profile.model or name, target=_START, profile=name))
    for model in sorted(set(catalogues.own) - set(measured)):
        yield Choice(clean(model, 120), "served here", Workload(model=model, target=_START))
    yield from _of_catalogue(catalogues, {*measured, *catalogues.own})


def _of_catalogue(catalogues: Catalogues, listed: set[str]) -> Iterator[Choice]:
    """Models of the catalogue that are not listed yet."""
    for row in sorted(catalogues.llms.rows, key=lambda row: row.hf_id.casefold()):
        if row.hf_id not in listed and not row.unusable:
            note = f"catalogue: {row.params_b:.3g}B, {row.native.narrowest.precision.value}"
            yield Choice(row.hf_id or row.name, note, Workload(model=row.hf_id or row.name, target=_START))


def _about_gpu(spec: GpuSpec, now: str) -> str:
    """Memory and bandwidth of a GPU, and whether it is the present one."""
    bandwidth = spec.bandwidth_bytes_per_s
    rate = "bandwidth not known"
    if bandwidth:
        rate = f"{bandwidth / 1e12:.2f} TB/s"
    text = f"{spec.memory_bytes / 1e9:.0f} GB, {rate}"
    if spec.name == now:
        return f"{text}, now"
    return text
