"""Options of a command line as facts of its engine: numbers, switches and JSON, as the engine reads them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from gpumon.readings.engine_options import NO_OPTIONS, SWITCHES, TEXT_OPTIONS, EngineOptions
from gpumon.readings.text import clean
from gpumon.sources.engines.launch_form import LaunchForm

MOST_CHARACTERS: Final = 1024
"""Characters of a value that are read."""
MOST_WORD: Final = 64
"""Characters of a word, such as a draft model, that an option keeps."""
TRUE_WORDS: Final = frozenset({"1", "true", "on", "yes", "enabled"})
_FALSE_WORDS: Final = frozenset({"0", "false", "off", "no", "disabled"})
FALSE: Final = "false"
"""Value of an option that was given as `--no-...`."""
_STRUCK: Final = "***"
"""Stands in a shown command line where a value was left out."""
_NUMBER: Final = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)([kKmMgG]?)", re.ASCII)
_UNITS: Final = {"": 1.0, "k": 1e3, "K": 2.0**10, "m": 1e6, "M": 2.0**20, "g": 1e9, "G": 2.0**30}
"""End of a number -> its factor, as vLLM reads `32k` and `1M`."""
_COUNTS: Final = ("slots", "step_tokens", "context_tokens", "lora_slots", "draft_tokens", "tp", "pp", "dp")
_LEVEL_OF_OPTIMISATION: Final = re.compile(r"-O=?(\d)")
_OPTIMISATION: Final = "--optimization-level"
NO_WORDS: Final = frozenset({"", "none", "null", "auto", "default", _STRUCK})
"""Words of an option that set nothing."""


class Settings(NamedTuple):
    """The options of a command line, and the variables of the environment that count where these are not given."""

    form: LaunchForm
    options: Mapping[str, list[str]]
    variables: Mapping[str, str]

    def given(self, setting: str) -> tuple[str, list[str]]:
        """The option that gives a setting, else its variable, and its values; both empty where neither is given.

        An option without a value has the value "".
        """
        for name in self.form.options.get(setting, "").split():
            if name in self.options:
                return name, self.options[name] or [""]
        for name in self.form.variables.get(setting, "").split():
            if name in self.variables:
                return name, [self.variables[name]]
        return "", []

    def values(self, setting: str) -> list[str]:
        """The values of a setting's option, else of its variable; empty where neither is given."""
        _, values = self.given(setting)
        return values

    def first(self, setting: str) -> str:
        """The option's first value, cut; empty where it is not given."""
        values = self.values(setting)
        return values[0][:MOST_CHARACTERS] if values else ""

    def has(self, setting: str) -> bool:
        """Whether the option or its variable is given, and not switched off."""
        values = self.values(setting)
        return bool(values) and values != [FALSE]

    def json(self, setting: str) -> tuple[str, Mapping[str, Any]]:
        """The option that gives an object as JSON, or as `--option.key value`, and the object; empty without one."""
        for name in self.form.options.get(setting, "").split():
            entries: dict[str, Any] = {}
            for text in self.options.get(name, ()):
                entries |= _json_object(text)
            for option, values in self.options.items():
                if option.startswith(f"{name}.") and values:
                    entries[option.removeprefix(f"{name}.")] = values[0]
            if entries or name in self.options:
                return name, entries
        return "", {}


def option_names(form: LaunchForm) -> frozenset[str]:
    """The names of all options that this form knows."""
    names: set[str] = set()
    for table in (form.options, form.inverse):
        names.update(" ".join(table.values()).split())
    names.update(catch.option for catch in form.catches)
    return frozenset(names)


def canonical_option(name: str, names: frozenset[str], *, abbreviates: bool) -> tuple[str, bool]:
    """The option of these `names` that a word stands for, and whether it switches it on: `--no-x` switches `--x` off.

    The beginning of a name stands for it where the engine takes that (`abbreviates`), and only one name begins so: it
    would not have started with an ambiguous one.
    """
    if not name.startswith("--"):
        return name, True
    base, dot, key = name.partition(".")
    positive = f"--{base.removeprefix('--no-')}"
    is_negative = base.startswith("--no-") and positive in names
    if is_negative:
        return positive, False
    if name in names:
        return name, True
    if base not in names and abbreviates and len(base) > 3:
        longer = [candidate for candidate in names if candidate.startswith(base)]
        if len(longer) == 1:
            base = longer[0]
    return f"{base}{dot}{key}", True


def optimisation_option(word: str) -> str:
    """`-O3`, `-O=3` as the long option; other words as they are."""
    level = _LEVEL_OF_OPTIMISATION.fullmatch(word)
    return f"{_OPTIMISATION}={level[1]}" if level else word


def launch_options(settings: Settings, place: str = "its command line") -> EngineOptions:
    """The options that a command line and its environment give, or another `place` where options stand."""
    fields: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, value, option in _told_options(settings):
        if name not in fields:
            fields[name] = value
            sources[name] = _source(settings, option, place)
    if not fields:
        return NO_OPTIONS
    return EngineOptions(**fields, sources=sources)


def _source(settings: Settings, option: str, place: str) -> str:
    """Who tells an option: the environment, or the place where options stand."""
    if option in settings.variables:
        return f"{option} of its environment"
    return f"{option} of {place}"


def _told_options(settings: Settings) -> Iterator[tuple[str, float | str, str]]:
    """Name, value and source of each option that is given, what is surer first."""
    yield from _counts(settings)
    yield from _switches(settings)
    yield from _words(settings)
    yield from _speculation(settings)
    yield from _compilation(settings)
    yield from _chunks(settings)


def _counts(settings: Settings) -> Iterator[tuple[str, float | str, str]]:
    """Options that are numbers."""
    for name in _COUNTS:
        option, values = settings.given(name)
        value = count_of(values)
        if value is not None:
            yield name, value, option
    option, values = settings.given("memory_share")
    share = count_of(values)
    if share is not None and 0.0 < share <= 1.0:
        yield "memory_share_ratio", share, option
    option, values = settings.given("context_of_all")
    tokens = count_of(values)
    slots = count_of(settings.values("slots"))
    if tokens and slots:
        yield "context_tokens", float(tokens // slots), option


def _switches(settings: Settings) -> Iterator[tuple[str, float | str, str]]:
    """Options that are on or off."""
    for name in SWITCHES:
        option, values = settings.given(name)
        state = switch_of(values)
        if state is not None:
            yield name, state, option
        for opposite in settings.form.inverse.get(name, "").split():
            opposite_state = switch_of(settings.options[opposite] or [""]) if opposite in settings.options else None
            if opposite_state is not None:
                yield name, 1.0 - opposite_state, opposite
    option, values = settings.given("ep_size")
    ranks = count_of(values)
    if ranks:
        yield "expert_parallel", float(ranks > 1.0), option


def _words(settings: Settings) -> Iterator[tuple[str, float | str, str]]:
    """Options that are words."""
    for name in TEXT_OPTIONS:
        option, _ = settings.given(name)
        text = clean(settings.first(name), MOST_WORD)
        if text.lower() not in NO_WORDS:
            yield name, text, option


def _speculation(settings: Settings) -> Iterator[tuple[str, float | str, str]]:
    """Method and number of draft tokens of speculation that is given as an object."""
    option, config = settings.json("speculation_config")
    if not option:
        return
    method = config.get("method") or config.get("model") or ""
    if isinstance(method, str) and method:
        yield "speculation", clean(method, MOST_WORD), option
    drafted = count_of([str(config.get("num_speculative_tokens", ""))])
    if drafted:
        yield "draft_tokens", drafted, option


def _compilation(settings: Settings) -> Iterator[tuple[str, float | str, str]]:
    """Eager mode by settings of the compilation: optimisation level 0, or no CUDA graphs."""
    option, values = settings.given("optimisation")
    if values == ["0"]:
        yield "eager", 1.0, option
    option, config = settings.json("compilation_config")
    if str(config.get("cudagraph_mode", "")).upper() == "NONE":
        yield "eager", 1.0, option


def _chunks(settings: Settings) -> Iterator[tuple[str, float | str, str]]:
    """Chunked prefill as SGLang has it: the size of a chunk, where -1 is none."""
    option, values = settings.given("chunk_tokens")
    if values[:1] == ["-1"]:
        yield "chunked_prefill", 0.0, option
    tokens = count_of(values)
    if tokens:
        yield "chunked_prefill", 1.0, option
        yield "step_tokens", tokens, option


def count_of(values: Sequence[str]) -> float | None:
    """The number in the first value, with its unit; None where it is none."""
    match = _NUMBER.fullmatch(values[0].strip()) if values else None
    if match is None:
        return None
    return float(match[1]) * _UNITS[match[2]]


def switch_of(values: Sequence[str]) -> float | None:
    """1 or 0 by the first value, where none is on; None where the option is not given, or says neither."""
    if not values:
        return None
    word = values[0].strip().lower()
    if word in _FALSE_WORDS:
        return 0.0
    return 1.0 if not word or word in TRUE_WORDS else None


def _json_object(text: str) -> dict[str, Any]:
    """The object of a JSON text; empty where it is none."""
    if len(text) > MOST_CHARACTERS:
        return {}
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def with_place(options: EngineOptions, place: str) -> EngineOptions:
    """The options, whose sources name the process: `--max-num-seqs of its command line (pid 48)`."""
    if not options.sources:
        return options
    sources = {name: f"{source} ({place})" for name, source in options.sources.items()}
    return msgspec.structs.replace(options, sources=sources)
