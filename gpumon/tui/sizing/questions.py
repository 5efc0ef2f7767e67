"""What the sizing panel asks in the drawer: a model to add, a type of GPU, a file name, a value from a list."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from gpumon.readings.text import clean
from gpumon.sizing.plan import USUAL
from gpumon.sizing.profile import Observed
from gpumon.sizing.scenario import Known, Workload
from gpumon.tui.sizing.effects import SEEN
from gpumon.tui.sizing.fields import TARGETS, Place
from gpumon.tui.widgets.drawer import Choice, Question

_START: Final = 32.0
"""Target of a workload that is added: the cursor stands on it."""
_MOST: Final = 200
"""Choices that are listed; who looks for another one types a part of its name."""


def model_to_add(known: Known, observed: Sequence[Observed], add: Callable[[Workload], None]) -> Question:
    """Choose a model: one that runs here, an imported profile, one of the catalogue, or any name."""
    every = list(_models(known, observed))

    def choices(text: str) -> Sequence[Choice]:
        words = text.casefold().split()
        found = [choice for choice in every if all(word in choice.name.casefold() for word in words)]
        name = text.strip()
        if name and all(choice.name.casefold() != name.casefold() for choice in found):
            own = known.llm(name) is not None
            note = "add it under this name" if own else "not known: capacity and memory have to be typed"
            found.append(Choice(clean(name, 120), note, Workload(model=name, target=_START)))
        return found[:_MOST]

    def choose(choice: Choice | None, text: str) -> None:  # noqa: ARG001
        if choice is not None and isinstance(choice.value, Workload):
            add(choice.value)

    return Question(
        "add a workload:", choices, choose, hint="type a part of the model's name · Enter: add · Esc: close"
    )


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


def gpu_type(known: Known, now: str, use: Callable[[str], None]) -> Question:
    """Choose a type of GPU."""
    specs = sorted({spec.name: spec for spec in known.gpus.by_short.values()}.values(), key=lambda spec: spec.name)

    def choices(text: str) -> Sequence[Choice]:
        words = text.casefold().split()
        return [
            Choice(spec.name, _about_gpu(spec.name == now, spec.memory_bytes, spec.bandwidth_bytes_per_s), spec.name)
            for spec in sorted(specs, key=lambda spec: _far(spec.name, words))
            if all(word in spec.name.casefold() for word in words)
        ]

    def choose(choice: Choice | None, text: str) -> None:  # noqa: ARG001
        if choice is not None:
            use(choice.name)

    at = next((at for at, spec in enumerate(specs) if spec.name == now), 0)
    return Question("GPU type:", choices, choose, at=at, hint="type a part of its name · Enter: use it · Esc: close")


def _far(name: str, words: Sequence[str]) -> tuple[bool, ...]:
    """Sorts what begins as it is typed to the front, of these the usual and the SXM boards; else nothing."""
    if not words:
        return ()
    return (not name.casefold().startswith(words[0]), name not in USUAL, "SXM" not in name)


def _about_gpu(now: bool, memory_bytes: float, bandwidth: float) -> str:
    rate = f"{bandwidth / 1e12:.2f} TB/s" if bandwidth else "bandwidth not known"
    return f"{memory_bytes / 1e9:.0f} GB, {rate}{', now' if now else ''}"


def file_to_load(listed: Callable[[], Sequence[str]], load: Callable[[str], None]) -> Question:
    """Choose one of the scenarios there are, or type the path of a file."""

    def choices(text: str) -> Sequence[Choice]:
        words, names = text.casefold().split(), listed()
        found = [Choice(clean(name, 120), "", name) for name in names if all(each in name.casefold() for each in words)]
        typed = text.strip()
        return [*found, Choice(clean(typed, 120), "this file", typed)] if typed and typed not in names else found

    def choose(choice: Choice | None, text: str) -> None:
        name = choice.value if choice is not None else text.strip()
        if isinstance(name, str) and name:
            load(name)

    return Question("load scenario:", choices, choose, hint="a name, or a path of a file · Enter: load · Esc: close")


def file_to_save(name: str, save: Callable[[str], None]) -> Question:
    """A name for the scenario."""

    def choose(choice: Choice | None, text: str) -> None:  # noqa: ARG001
        if text.strip():
            save(text.strip())

    hint = "a name or a path; overwrites nothing"
    return Question("save scenario as:", chosen=choose, text=name, fresh=True, hint=hint)


def value_from_list(place: Place, now: str, known: Known, put: Callable[[str], None]) -> Question:
    """One of a field's choices; what the cursor is on is shown at once."""
    listed = list(place.field.choices(known))

    def choices(text: str) -> Sequence[Choice]:  # noqa: ARG001
        return [
            Choice(clean(TARGETS.get(name, name), 60) or "look it up", "now" if name == now else "", name)
            for name in listed
        ]

    def show(choice: Choice | None) -> None:
        value = now if choice is None else choice.value
        assert isinstance(value, str)
        put(value)

    return Question(
        place.field.name,
        choices,
        lambda choice, _: show(choice),
        dropped=lambda: show(None),
        pointed=show,
        at=listed.index(now) if now in listed else 0,
        types=False,
        hint="Enter: use it · Esc: as before",
    )
