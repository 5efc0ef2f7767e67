"""An engine by its process's arguments, title and variables: kind, port, model, ranks. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from gpumon.readings.engine_options import NO_OPTIONS, EngineOptions
from gpumon.readings.frame import EngineKind
from gpumon.readings.text import clean
from gpumon.sources.discovery.engine_parsers import MOST_WORDS, parser_options
from gpumon.sources.discovery.launch_options import (
    FALSE,
    MOST_CHARACTERS,
    MOST_WORD,
    TRUE_WORDS,
    Settings,
    canonical_option,
    launch_options,
    optimisation_option,
    option_names,
)
from gpumon.sources.engines.launch_form import UNIX_SOCKET, LaunchForm
from gpumon.sources.engines.registry import BY_KIND, LAUNCH_FORMS

_MOST_RANKS: Final = 65536
"""A larger number of an option is no number of ranks."""
MOST_PORT: Final = 65535
_MOST_DIGITS: Final = 7
"""Digits of a number that are read: more than any port or number of ranks has."""


def all_names(tables: Iterable[Mapping[str, str]]) -> frozenset[str]:
    """All names that stand in these tables, of which a text may hold several."""
    names: set[str] = set()
    for table in tables:
        names.update(" ".join(table.values()).split())
    return frozenset(names)


LAUNCH_VARIABLES: Final = all_names(form.variables for form in LAUNCH_FORMS)
"""Variables of the environment that tell something; no other is ever looked at."""
SECRETS: Final = all_names({"key": form.variables.get("key", "")} for form in LAUNCH_FORMS)
"""Variables of which only the presence counts."""

LIST_OPTIONS: Final = frozenset(
    {
        "--served-model-name",
        "--lora-modules",
        "--lora-paths",
        "--api-key",
        "--api-keys",
        "--allowed-origins",
        "--middleware",
        "--cudagraph-capture-sizes",
        "--cuda-graph-bs",
    }
)
"""Options that take any number of words."""

_PYTHON: Final = re.compile(r"(?:python|pypy)[0-9.]*[td]?")
SHELLS: Final = frozenset({"bash", "sh", "dash"})
_PYTHON_OPTION: Final = re.compile(r"-(?!-)[^cmWX]*(?P<letter>[cmWX]?)(?P<value>.*)", re.DOTALL)
"""Python's own short options: letters in one word, of which the last may take a value, glued to it or the next word."""
_PYTHON_LONG_OPTION: Final = "--check-hash-based-pycs"
"""The only long option of Python that takes a value."""
_NUMBER: Final = re.compile(r"-?[0-9.]+")
_TITLES: Final = (
    (re.compile(r"sglang::"), EngineKind.SGLANG, "SGLang"),
    (re.compile(r"APHRODITE::"), EngineKind.APHRODITE, "Aphrodite"),
    (re.compile(r"tokenspeed::"), EngineKind.TOKENSPEED, "TokenSpeed"),
    (re.compile(r"ray::(?:ServeReplica|RayWorkerWrapper)"), EngineKind.RAY, "Ray Serve LLM"),
    (
        re.compile(r"(?!ray::)[\w.-]*::(?:EngineCore|Worker|APIServer|DPCoordinator)(?![^\W_])"),
        EngineKind.VLLM,
        "vLLM",
    ),
)
"""How engines name their processes (vLLM's prefix can be chosen; Ray's actors have their classes' names)."""
_RANK: Final = re.compile(r"(?<![A-Z])_(TP|PP|DP)(\d{1,5})")
"""A rank in a worker's title, but not SGLang's `_MOE_DP0`, which is a split of the experts."""
_PATH_PREFIX: Final = re.compile(r"/?([\w.~-]+(?:/[\w.~-]+)*)/?", re.ASCII)


def _commands() -> Iterator[tuple[LaunchForm, str]]:
    """Each command of each form."""
    for form in LAUNCH_FORMS:
        for command in form.commands:
            yield form, command


COMMANDS: Final = tuple(_commands())
"""All commands that start an engine, each with its form, the surest first."""


class Launch(NamedTuple):
    """An engine's process by its command line. Texts come from outside: clean them before showing."""

    kind: EngineKind
    title: str
    """The engine's name as its makers write it."""
    host: str = ""
    """Address or name that it listens on; empty: not said."""
    port: int = 0
    """Port of the page with the metrics; 0: not said."""
    secure: bool = False
    """Whether it speaks TLS."""
    prefix: str = ""
    """Path that all its pages stand below, as in `/chat`; empty: none."""
    model: str = ""
    """Path or Hugging Face id that it loads; a path may be one of its container's file system."""
    served_name: str = ""
    stored_as: str = ""
    """Ollama's name of the file that it was given; the command line has none."""
    tp: int = 0
    """Tensor-parallel ranks; 0: not said, as for the next two."""
    pp: int = 0
    dp: int = 0
    metrics: bool | None = None
    """Whether it exports metrics; None: not said."""
    why_no_page: str = ""
    """Why it has no page to read, and the fix; empty where it has one."""
    part: bool = False
    """A process of an engine, not its server."""
    quantization: str = ""
    kv_dtype: str = ""
    state_dtype: str = ""
    convolution_dtype: str = ""
    """How weights, KV cache and states are stored, in the engine's own words."""
    gpu_layers: str = ""
    """Layers on the GPUs: `99`, `all`; empty: not said."""
    weights_on_cpu: str = ""
    """Option that leaves some weights to the CPU, as given: `--cpu-moe`; empty: none is known."""
    cpu_offload_gb: str = ""
    """GiB of each GPU's weights that are in the host's memory."""
    embeds: bool = False
    """It turns texts into vectors or scores, and generates nothing."""
    servers_below: tuple[EngineKind, ...] = ()
    """As in its form, as are the next two."""
    wrapper: bool = False
    takes_usual_port: bool = True
    command: str = ""
    """Its program and command, as in `vllm serve`: never an argument that could be a secret."""
    options: EngineOptions = NO_OPTIONS
    """The engine's limits, switches and formats, as far as it sets them."""
    file: str = ""
    """File in which options stand that were not read; empty: there is none."""

    @property
    def usual_port(self) -> int:
        """The port on which an engine of this kind listens by default; 0 where this one is not started so."""
        row = BY_KIND.get(self.kind)
        if row is None or not self.takes_usual_port:
            return 0
        return row.port


def launch(argv: Sequence[str], variables: Mapping[str, str] | None = None) -> Launch | None:
    """The engine that is started by these arguments, or that a process with this title is part of; else None.

    A title is one argument, or one cut into words. An option stands above a variable of the environment; `variables`
    is None where these cannot be read.
    """
    words = words_of(argv)
    if words:
        for form, command in COMMANDS:
            arguments = arguments_after(words, command)
            if arguments is None:
                continue
            if not arguments or arguments[0] not in form.other_commands:
                return _launch_of(form, command, arguments, variables)
    title = " ".join(argv).strip()
    for pattern, kind, engine_title in _TITLES:
        if pattern.match(title):
            return Launch(kind, engine_title, part=True, takes_usual_port=False, command=title.split(" ")[0])
    return None


_FILE_FIELDS: Final = (
    "host", "port", "secure", "prefix", "model", "served_name", "tp", "pp", "dp", "quantization",
    "kv_dtype", "state_dtype", "convolution_dtype", "cpu_offload_gb", "embeds",
)  # fmt: skip
"""Fields of a launch that the file of a command line may give, too."""


def with_file(launched: Launch, argv: Sequence[str], words: Iterable[str]) -> Launch:
    """The launch with what its file gives, as words; what its command line gives stands above that."""
    own_words = words_of(argv)
    for form, command in COMMANDS:
        if form.kind is launched.kind and command == launched.command and own_words:
            file_words = [*words]
            below = _launch_of(form, command, file_words, {})
            options, _ = _split_options(form, file_words)
            in_file = launch_options(Settings(form, options, {}), clean(PurePosixPath(launched.file).name, MOST_WORD))
            fields = {name: getattr(below, name) for name in _FILE_FIELDS if not getattr(launched, name)}
            metrics = below.metrics if launched.metrics is None else launched.metrics
            completed = launched.options.completed_by(in_file)
            return launched._replace(**fields, metrics=metrics, options=completed, file="")
    return launched


def is_option(word: str) -> bool:
    """Whether a word begins an option: `-1` is a value."""
    return word.startswith("-") and len(word) > 1 and not _NUMBER.fullmatch(word)


def option_key(name: str) -> str:
    """The name of an option as `_SHOWN_OPTIONS` spells it."""
    if name.startswith("--"):
        base, dot, key = name.partition(".")  # the keys of an object, as in `--speculative-config.method`, keep theirs
        return f"{base.replace('_', '-')}{dot}{key}"
    return name


def ranks(titles: Iterable[str]) -> tuple[int, int, int]:
    """Tensor-parallel, pipeline and data-parallel ranks that worker titles tell of; 0 for each that none names."""
    counts = {"TP": 0, "PP": 0, "DP": 0}
    for title in titles:
        for name, rank in _RANK.findall(title):
            counts[name] = max(counts[name], int(rank) + 1)
    return counts["TP"], counts["PP"], counts["DP"]


def words_of(argv: Sequence[str]) -> tuple[str, ...]:
    """The program or module (a script's path with dots for slashes), and its arguments; empty for inline code.

    A shell or a Python in front of it is left out.
    """
    if not argv:
        return ()
    program = PurePosixPath(argv[0].lstrip("-")).name
    arguments = list(argv[1:])
    if program in SHELLS:
        # A script with its full path; anything else is inline code, or a script that is not known.
        if arguments and arguments[0].startswith("/"):
            return tuple(arguments)
        return ()
    if _PYTHON.fullmatch(program):
        return _python_words(arguments)
    return (program, *arguments)


def _python_words(arguments: list[str]) -> tuple[str, ...]:
    """The script or module that Python runs with these arguments, and those behind it; empty for inline code."""
    words = arguments
    while words:
        word, *words = words
        if word.startswith("--"):
            if word == _PYTHON_LONG_OPTION:
                words = words[1:]  # its value
            continue
        option = _PYTHON_OPTION.fullmatch(word)
        if option is None:
            module = word.removesuffix(".py").strip("/").replace("/", ".")
            return (module, *words)
        letter = option["letter"]
        if letter == "c" or word == "-":  # the code is in the next word, or comes from the standard input
            return ()
        value = option["value"]
        if letter and not value:
            value, *words = words or [""]
        if letter == "m":
            return (value, *words)
    return ()


def arguments_after(words: Sequence[str], command: str) -> tuple[str, ...] | None:
    """The arguments of `command`, where these words begin with it; else None."""
    first, *more = command.split()
    if words[0] != first and not words[0].endswith(f".{first}"):
        return None
    end = 1 + len(more)
    if list(words[1:end]) == more:
        return tuple(words[end:])
    return None


def _launch_of(form: LaunchForm, command: str, arguments: Sequence[str], variables: Mapping[str, str] | None) -> Launch:
    """The engine that this command starts with these arguments; `variables`: None where they cannot be read."""
    options, free_words = _split_options(form, arguments)
    settings = Settings(form, options, variables or {})
    host, port = _host_and_port(settings)
    model = settings.first("model")
    if not model and form.positional and free_words:
        model = free_words[0][:MOST_CHARACTERS]
    return Launch(
        form.kind,
        form.title,
        host=host,
        port=port,
        secure=settings.has("tls"),
        prefix=_path_prefix(settings.values("prefix")),
        model=model,
        served_name=settings.first("served_name"),
        tp=_count(settings.values("tp")),
        pp=_count(settings.values("pp")),
        dp=_count(settings.values("dp")),
        metrics=_exports_metrics(settings),
        why_no_page=_why_no_page(form, options, host, lacks_port=variables is not None and not port),
        part=form.part,
        quantization=settings.first("quantization"),
        kv_dtype=settings.first("kv_dtype"),
        state_dtype=settings.first("state_dtype"),
        convolution_dtype=settings.first("convolution_dtype"),
        gpu_layers=settings.first("gpu_layers"),
        weights_on_cpu=_weights_on_cpu(settings.values("experts_on_cpu"), settings.values("placement")),
        cpu_offload_gb=settings.first("cpu_offload_gb"),
        embeds=_embeds(settings),
        servers_below=form.servers_below,
        wrapper=form.wrapper,
        takes_usual_port=form.takes_usual_port,
        command=command,
        options=launch_options(settings),
        file=settings.first("file"),
    )


def _host_and_port(settings: Settings) -> tuple[str, int]:
    """Host and port that it listens on, as far as they are given; 0 where no port is."""
    host = settings.first("host")
    port = 0
    if "address" in settings.form.variables:
        host, port = _host_and_port_of(settings.values("address"))
    if not port:
        port = _count(settings.values("port"), MOST_PORT)
    return host, port


def _embeds(settings: Settings) -> bool:
    """Whether it makes vectors or scores, and generates nothing."""
    values = settings.values("embeds")
    return bool(values) and values[0].lower() in ("", *TRUE_WORDS)


def _weights_on_cpu(experts: Sequence[str], placement: Sequence[str]) -> str:
    """The option that leaves weights to the CPU; empty where none does."""
    if experts and _first_value(experts).lower() not in ("0", "false", "off"):
        return "experts on the CPU: --cpu-moe or --n-cpu-moe"
    if any("=CPU" in value.upper() for value in placement):
        return "tensors on the CPU: --override-tensor"
    return ""


def _split_options(form: LaunchForm, arguments: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Each option (the last of its name) with its values, and the words that belong to none."""
    options: dict[str, list[str]] = {}
    free_words: list[str] = []
    words_by_option = parser_options(form.kind)
    names = option_names(form) | frozenset(words_by_option)
    name = ""
    words_left = 0
    for word in map(optimisation_option, arguments):
        if is_option(word):
            name, equals, value = word.partition("=")
            name, is_on = canonical_option(option_key(name), names, abbreviates=form.abbreviates)
            options[name] = [] if is_on else [FALSE]
            words_left = _words_after(name, words_by_option) if is_on else 0
            if equals:
                options[name] = [value]
                words_left = 0
        elif words_left:
            options[name].append(word)
            words_left -= 1
        else:
            free_words.append(word)
    return options, free_words


def _words_after(name: str, words_by_option: Mapping[str, int]) -> int:
    """The most words behind an option that are its values; of one that no parser's table has, one, or any number."""
    if name in words_by_option:
        return words_by_option[name]
    return MOST_WORDS if name in LIST_OPTIONS else 1


def _exports_metrics(settings: Settings) -> bool | None:
    """Whether it exports metrics; None: not said."""
    switch_values = settings.values("on")
    if switch_values:
        return switch_values[0].lower() in TRUE_WORDS or not switch_values[0]
    if settings.has("off"):
        return False
    options = settings.form.options
    if settings.has("file") or not {"on", "off"} & set(options):
        return None
    # With neither option given: an engine that can switch them off has them on.
    return "off" in options


def _why_no_page(form: LaunchForm, options: Mapping[str, list[str]], host: str, *, lacks_port: bool) -> str:
    """Why it has no page to read, and the fix; empty where it has one."""
    if form.why_no_page:
        return form.why_no_page
    if host.endswith(".sock"):
        return UNIX_SOCKET
    for catch in form.catches:
        if catch.option in options and _first_value(options[catch.option]) not in catch.harmless:
            return catch.why
    if lacks_port:
        return form.why_no_port
    return ""


def _first_value(values: Sequence[str]) -> str:
    """The first of several values, cut; empty where there is none."""
    if values:
        return values[0][:MOST_CHARACTERS]
    return ""


def _path_prefix(values: Sequence[str]) -> str:
    """The path below which all pages stand, as `/chat`; empty where it is none."""
    match = _PATH_PREFIX.fullmatch(_first_value(values))
    if match:
        return f"/{match[1]}"
    return ""


def _count(values: Sequence[str], most: int = _MOST_RANKS) -> int:
    """The number in the first value; 0 where it is none from 1 to `most`."""
    text = _first_value(values).strip()
    if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS and 0 < int(text) <= most:
        return int(text)
    return 0


def _host_and_port_of(values: Sequence[str]) -> tuple[str, int]:
    """Host and port of `[scheme://]host[:port]` (Ollama's OLLAMA_HOST)."""
    text = _first_value(values).partition("://")[2] or _first_value(values)
    host, colon, port = text.rstrip("/").rpartition(":")
    if not colon or (text.startswith("[") and text.endswith("]")):
        host = text.rstrip("/")
        port = ""
    return host.strip("[]"), _count([port], MOST_PORT)
