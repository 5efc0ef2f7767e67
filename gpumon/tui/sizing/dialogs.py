"""Questions of the sizing panel: a model to add, a type of GPU, a value from a list, a file to load or save."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from gpumon.config.errors import ConfigError
from gpumon.readings.format import cut, period
from gpumon.readings.text import clean
from gpumon.sizing.compare import USUAL
from gpumon.sizing.peaks import PastLoads, PeakLoad, in_flight, request_rates
from gpumon.sizing.plan import names_taken, with_server
from gpumon.sizing.profile import Observed
from gpumon.sizing.scenario import Catalogues, Workload
from gpumon.specs.gpu import GpuSpec
from gpumon.specs.gpus import GpuCatalogue
from gpumon.tui.control import Files, Timeline
from gpumon.tui.screens.context import ChoicesChanged, ScreenContext, WorkWanted
from gpumon.tui.screens.questions import Choice, Question
from gpumon.tui.sizing.effective_values import ORIGIN_WORDS
from gpumon.tui.sizing.fields import SERVER, TARGETS, typed_value
from gpumon.tui.sizing.state import PanelState
from gpumon.tui.sizing.versions import FrozenFigures, Version
from gpumon.tui.sizing.what_ifs import add_server, add_workload, plan_for, plan_for_what_runs
from gpumon.tui.table import clock

_NEW_TARGET: Final = 32.0
"""Requests in flight of a workload that is added: the cursor stands on them, to be typed over."""
_MOST_CHOICES: Final = 200
"""Choices that are listed; who looks for another one types a part of its name."""
_MOST_MOMENTS: Final = 120
"""Moments of the past that are looked at for a peak: each costs up to 0.3 s, in a thread."""
_LEAST_STEP_S: Final = 10.0
"""Seconds between two of these moments, at least."""
_MOMENTS_A_NOTICE: Final = 10
"""Moments after which it is said how many were read."""
_WHAT_RUNS: Final = "what runs now"
"""Name of the choice that takes the load of now for the targets."""


class AskingPanel(Protocol):
    """The sizing panel as its questions know it."""

    @property
    def state(self) -> PanelState:
        """The panel without its looks."""

    def newest_figures(self) -> FrozenFigures:
        """Figures of the engines and GPUs by now."""

    def changed(self) -> None:
        """Show the changed state."""

    def update(self) -> object:
        """Paint it again."""


class Dialogs:
    """The questions of the panel; each changes the panel's state as it is answered."""

    def __init__(self, context: ScreenContext, panel: AskingPanel) -> None:
        self._screen_context = context
        self._panel = panel
        self._files: Sequence[str] = ()
        """Names of saved scenarios, as the disk had them when it was asked last."""

    def add_model(self) -> None:
        """Choose a model: one that runs here, an imported profile, one of the catalogue, or any name."""
        panel = self._panel
        catalogues = panel.state.calculation.catalogues
        observed = panel.state.frozen.observed
        models = list(_model_choices(catalogues, observed))

        def choices(text: str) -> Sequence[Choice]:
            listed = _matching_choices(models, text)
            name = text.strip()
            if name and all(choice.name.casefold() != name.casefold() for choice in listed):
                listed.append(_choice_by_name(name, catalogues))
            return listed[:_MOST_CHOICES]

        def on_choose(choice: Choice | None, text: str) -> None:  # noqa: ARG001 - the signature of Question.on_choose
            if choice is not None and isinstance(choice.value, Workload):
                add_workload(panel.state, choice.value, observed)
                panel.changed()

        hint = "type a part of the model's name · Enter: add · Esc: close"
        self._ask(Question("add a workload:", choices, on_choose, hint=hint))

    def add_server(self) -> None:
        """Choose the type of GPU of more servers."""
        self._choose_gpu("add servers with:", partial(add_server, self._panel.state))

    def choose_gpu(self, typed: str = "") -> None:
        """Choose a type of GPU; `typed` stands in the field at first."""
        self._choose_gpu("GPU type:", self._panel.state.use_gpu, typed)

    def _choose_gpu(self, title: str, use: Callable[[str], object], typed: str = "") -> None:
        """Ask for a type of GPU, and use it."""
        panel = self._panel
        present = _present_gpu(panel.state)
        gpus = panel.state.calculation.catalogues.gpus
        specs = {spec.name: spec for spec in gpus.by_short.values()}
        names = sorted(specs)

        def choices(text: str) -> Sequence[Choice]:
            matching = _matching_gpus(names, text) or _meant_gpu(gpus, text)
            of_gpus = [Choice(name, _gpu_note(specs[name], present), name) for name in matching]
            return [*of_gpus, *_cloud_choices(gpus, text)]

        def on_choose(choice: Choice | None, text: str) -> None:  # noqa: ARG001 - the signature of Question.on_choose
            if choice is not None:
                use(choice.name)
                panel.changed()

        first = names.index(present) if present in names and not typed else 0
        hint = "type a part of its name · Enter: use it · Esc: close"
        self._ask(Question(title, choices, on_choose, text=typed, first_choice=first, hint=hint))

    def choose_by_digit(self, digit: str) -> bool:
        """Open the list of the choice under the cursor with a digit typed; returns whether a choice has the digit."""
        place = self._panel.state.place
        names = place.field.choices(self._panel.state.calculation.catalogues)
        if not any(digit in name for name in names):
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
        value_before = str(typed_value(state.present, place) or "")
        all_choices = [_value_choice(name, value_before) for name in place.field.choices(state.calculation.catalogues)]
        first = 0
        if not typed:
            first = next((number for number, choice in enumerate(all_choices) if choice.value == value_before), 0)

        def choices(text: str) -> Sequence[Choice]:
            return _matching_choices(all_choices, text)

        def show(value: str) -> None:
            state.put_value(place, value)
            panel.changed()

        def on_point(choice: Choice | None) -> None:
            if choice is not None and isinstance(choice.value, str):
                show(choice.value)
            else:
                show(value_before)

        question = Question(
            place.field.name,
            choices,
            lambda choice, _: on_point(choice),
            on_drop=lambda: show(value_before),
            on_point=on_point,
            text=typed,
            first_choice=first,
            has_field=bool(typed),
            hint="Enter: use it · Esc: as before",
        )
        self._ask(question)

    def plan_for(self) -> None:
        """Choose a load for the targets: the one that runs now, or the p95 of what is kept of the past."""
        past = [*self._recorded_choices(), *self._prometheus_choices()]
        runs = Choice(_WHAT_RUNS, "the larger of now and of the peak of 5 minutes", value=None)

        def on_choose(choice: Choice | None, text: str) -> None:  # noqa: ARG001 - the signature of Question.on_choose
            if choice is None:
                return
            if callable(choice.value):
                self._screen_context.post_message(
                    WorkWanted("peak", partial(self._plan_for, choice.value, choice.name))
                )
            else:
                self._plan_for_what_runs()

        hint = "nothing of the past is kept · Esc: close"
        first = 0
        if past:
            hint = "Enter: use it; goals and TP stay · Esc: close"
            first = 1  # the first of the past: what runs now is planned for anyway
        self._ask(
            Question("plan for", lambda _: [runs, *past], on_choose, first_choice=first, has_field=False, hint=hint)
        )

    def _recorded_choices(self) -> Iterator[Choice]:
        """The choice of the p95 of the past that this program keeps, or of the recording that is played."""
        timeline = self._screen_context.timeline
        playback = self._screen_context.playback
        span = timeline.span() if timeline is not None else None
        if timeline is None or span is None:
            return
        begin_s, end_s = span
        name = clean(playback.file, 20) if playback is not None else "what is recorded"
        note = f"in flight of each model, {period(round(end_s - begin_s))} up to {clock(end_s)}"
        yield Choice(f"p95 of {name}", note, partial(self._past_loads, timeline, span))

    def _prometheus_choices(self) -> Iterator[Choice]:
        """The choice of the p95 of the last week in the Prometheus of the settings."""
        files = self._screen_context.files
        config = self._screen_context.view.config
        if files is not None and config.prometheus.url:
            note = "in flight of each model on all hosts, last 7 days"
            yield Choice("p95 in the Prometheus", note, partial(files.prometheus_loads, config))

    def _plan_for_what_runs(self) -> None:
        """Take the load of now for the targets, and say so."""
        panel = self._panel
        changed = plan_for_what_runs(panel.state, panel.newest_figures().targets)
        panel.changed()
        reset = self._screen_context.view.keymap.first("sizing.reset")
        if changed:
            self._screen_context.say(f"targets: {_WHAT_RUNS}; goals and TP as they were")
        else:
            self._screen_context.say(f"no target changed; {reset} begins anew with what runs")

    async def _plan_for(self, loads: Callable[[], Awaitable[Mapping[str, PeakLoad]]], source: str) -> None:
        """Read the loads of the past, take their p95 for the targets, and say so; `source`: their name."""
        panel = self._panel
        self._screen_context.say(f"{source}: reading …")
        try:
            peak_loads = await loads()
        except ConfigError as error:
            self._screen_context.say(str(error))
            return
        changed = plan_for(panel.state, peak_loads, "p95 recorded")
        panel.changed()
        if changed:
            self._screen_context.say(f"targets: {source}; goals and TP as they were")
        else:
            self._screen_context.say(f"{source}: no other load of these models was seen")

    async def _past_loads(self, timeline: Timeline, span: tuple[float, float]) -> Mapping[str, PeakLoad]:
        """Served model name -> the peak of its load at moments of a span (Unix times), a step apart."""
        begin_s, end_s = span
        loads = PastLoads()
        step_s = max(_LEAST_STEP_S, (end_s - begin_s) / _MOST_MOMENTS)
        moments = int((end_s - begin_s) / step_s) + 1
        for number in range(moments):
            moment = await timeline.at(begin_s + number * step_s)
            if moment is not None:
                snapshot = moment.snapshot
                loads.take(snapshot.wall_s, in_flight(snapshot), request_rates(snapshot))
            if (number + 1) % _MOMENTS_A_NOTICE == 0:
                self._screen_context.say(f"reading the past: {number + 1} of {moments} moments")
        return loads.peak_loads()

    def save(self) -> None:
        """Ask for a name for the scenario; then write it."""
        panel = self._panel
        files = self._screen_context.files
        if files is None:
            return

        def on_choose(choice: Choice | None, text: str) -> None:  # noqa: ARG001 - the signature of Question.on_choose
            if text.strip():
                self._screen_context.post_message(WorkWanted("scenario", partial(self._save, files, text.strip())))

        name = clean(panel.state.present.name, 60)
        hint = "a name or a path; overwrites nothing"
        self._ask(Question("save scenario as:", on_choose=on_choose, text=name, replaces_text=True, hint=hint))

    async def _save(self, files: Files, name: str) -> None:
        """Write the scenario, and say whether that went well."""
        panel = self._panel
        state = panel.state
        written, text = await files.save_scenario(state.calculation.catalogues.self_contained(state.present), name)
        notice = f"not saved: {text}"
        if written:
            state.undo.mark_saved()
            notice = text
        panel.update()
        self._screen_context.say(notice)

    def load(self) -> None:
        """Choose one of the scenarios there are, or type the path of a file; then read it."""
        files = self._screen_context.files
        if files is None:
            return

        def choices(text: str) -> Sequence[Choice]:
            typed = text.strip()
            all_saved = [Choice(clean(name, 120), "", name) for name in self._files]
            saved = _matching_choices(all_saved, text)
            if typed and typed not in self._files:
                saved.append(Choice(clean(typed, 120), "this file", typed))
            return saved

        def on_choose(choice: Choice | None, text: str) -> None:
            name = choice.value if choice is not None else text.strip()
            if isinstance(name, str) and name:
                self._screen_context.post_message(WorkWanted("scenario", partial(self._load, files, name)))

        hint = "a name, or a path of a file · Enter: load · Esc: close"
        if self._ask(Question("load scenario:", choices, on_choose, hint=hint)):
            self._screen_context.post_message(WorkWanted("scenario", partial(self._list, files)))

    async def _list(self, files: Files) -> None:
        """Read the names of saved scenarios, and renew the choices of the open question with them."""
        self._files = await files.scenarios()
        self._screen_context.post_message(ChoicesChanged())

    async def _load(self, files: Files, name: str) -> None:
        """Read a scenario and go on with it, or say why it cannot be read."""
        panel = self._panel
        try:
            scenario = await files.load_scenario(name)
        except ConfigError as error:
            self._screen_context.say(str(error))
            return
        catalogues = panel.state.calculation.catalogues
        taken = names_taken(scenario, catalogues)
        if taken:  # the fields show what the names stand for
            scenario = with_server(scenario, catalogues)
        panel.state.load(Version.of_file(scenario))
        panel.changed()
        self._screen_context.say("; ".join((f"loaded {cut(clean(name, 60), 60)}", *map(clean, taken))))

    def _ask(self, question: Question) -> bool:
        """Ask, after what is being typed was taken; returns False where that is no value, and nothing is asked."""
        accepted = self._panel.state.accept_typing()
        if accepted:
            self._screen_context.ask(question)
        return accepted


def _has_words(name: str, words: Sequence[str]) -> bool:
    """Whether a name has all these parts, in any order; `words` in small letters."""
    return all(word in name.casefold() for word in words)


def _matching_choices(choices: Sequence[Choice], text: str) -> list[Choice]:
    """The choices whose names have all words of a text."""
    words = text.casefold().split()
    return [choice for choice in choices if _has_words(choice.name, words)]


def _present_gpu(state: PanelState) -> str:
    """The type of GPU of the server under the cursor, else that of the first one; empty if there is none."""
    number = state.stop.number if state.stop.section == SERVER else 0
    servers = state.present.server
    if number < len(servers):
        return servers[number].gpu
    return ""


def _matching_gpus(names: Sequence[str], text: str) -> list[str]:
    """The names that have all words of a text; those that begin with the first one come first."""
    words = text.casefold().split()
    matching = [name for name in names if _has_words(name, words)]
    if words:
        matching.sort(key=partial(_gpu_order, words[0]))
    return matching


def _meant_gpu(gpus: GpuCatalogue, text: str) -> list[str]:
    """The name of the GPU that a plan may call by this text (`RTX 5090 32GB`); none where it may not."""
    try:
        return [gpus.find_planned(text).name]
    except ValueError:
        return []


def _cloud_choices(gpus: GpuCatalogue, text: str) -> list[Choice]:
    """The servers of clouds whose names have all words of a text; none before something is typed."""
    words = text.casefold().split()
    servers = {server.name: server for server in gpus.servers.by_name.values()}
    matching = [server for name, server in sorted(servers.items()) if words and _has_words(name, words)]
    return [Choice(one.name, f"{one.cloud}: {one.gpus} x {one.gpu}", one.name) for one in matching]


def _gpu_order(begin: str, name: str) -> tuple[bool, bool, bool]:
    """Sort key of the name of a GPU: those that begin as it is typed come first, of these the usual ones, then SXM
    boards."""
    return (not name.casefold().startswith(begin), name not in USUAL, "SXM" not in name)


def _value_choice(value: str, present_value: str) -> Choice:
    """The choice of one value of a field; with an empty one the value is looked up."""
    name = clean(TARGETS.get(value, value), 60) or "look it up"
    note = "now" if value == present_value else ""
    return Choice(name, note, value)


def _choice_by_name(name: str, catalogues: Catalogues) -> Choice:
    """The choice of a model that is in no list."""
    is_known = catalogues.llm(name) is not None
    note = "add it under this name" if is_known else "not known: capacity and memory have to be typed"
    return Choice(clean(name, 120), note, Workload(model=name, target=_NEW_TARGET))


def _model_choices(catalogues: Catalogues, observed: Sequence[Observed]) -> Iterator[Choice]:
    """Models to add, the most certain first: measured here, of a profile, served here, of the catalogue."""
    measured: dict[str, Observed] = {}
    for seen in observed:
        if seen.model:
            measured.setdefault(seen.model, seen)
    for model, seen in measured.items():
        note = f"{ORIGIN_WORDS[seen.origin]}: {clean(seen.name, 60)}"
        yield Choice(clean(model, 120), note, Workload(model=model, target=_NEW_TARGET))
    for name, profile in sorted(catalogues.profiles.items()):
        note = f"profile: {ORIGIN_WORDS[profile.origin]} {clean(profile.tool, 40)}"
        yield Choice(clean(name, 120), note, Workload(model=profile.model or name, target=_NEW_TARGET, profile=name))
    for model in sorted(set(catalogues.own) - set(measured)):
        yield Choice(clean(model, 120), "served here", Workload(model=model, target=_NEW_TARGET))
    listed = {*measured, *catalogues.own}
    for row in sorted(catalogues.llms.rows, key=lambda row: row.hf_id.casefold()):
        if row.hf_id not in listed and not row.unusable:
            note = f"catalogue: {row.params_b:.3g}B, {row.native.narrowest.precision.value}"
            yield Choice(row.hf_id or row.name, note, Workload(model=row.hf_id or row.name, target=_NEW_TARGET))


def _gpu_note(spec: GpuSpec, present: str) -> str:
    """Memory and bandwidth of a GPU, and whether it is the present one."""
    bandwidth = spec.bandwidth_bytes_per_s
    rate = f"{bandwidth / 1e12:.2f} TB/s" if bandwidth else "bandwidth not known"
    text = f"{spec.memory_bytes / 1e9:.0f} GB, {rate}"
    if spec.name == present:
        return f"{text}, now"
    return text
