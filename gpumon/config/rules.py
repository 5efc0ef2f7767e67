"""What a type cannot say about a setting: the form of a text, and which settings need or exclude each other."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from gpumon import specs
from gpumon.config import feed_rules, keymap, matchers, urls
from gpumon.config.columns import NAMES
from gpumon.config.schema import Config, Model, Price
from gpumon.readings.text import clean
from gpumon.specs.dimensions import Size, size

if TYPE_CHECKING:
    from gpumon.specs.gpus import GpuCatalogue

SECRET_NAMES: Final = frozenset(
    ("api_key", "apikey", "key", "token", "api_token", "access_token", "auth_token", "bearer", "password", "secret")
)
SECRET_ADVICE: Final = (
    "a secret must not stand in this file: name an environment variable with api_key_env, or a file with api_key_file"
)


class FieldRule(msgspec.Struct, frozen=True):
    """How a text setting must look. `problem` gives the end of "KEY = VALUE: ...", or an empty text."""

    problem: Callable[[Any], str]
    hidden: bool = False
    """The value may be a secret in the wrong place: it is never printed."""
    read: Callable[[Any], Any] = lambda value: value
    """The value that gpumon goes on with; `problem` is asked of this one."""


def _matches(pattern: str, otherwise: str) -> Callable[[str], str]:
    compiled = re.compile(pattern)
    return lambda text: "" if compiled.fullmatch(text) else otherwise


def _gpus_problem(gpus: tuple[int, ...]) -> str:
    if not gpus:
        return 'must name at least one GPU, or be "auto"'
    return "names a GPU twice" if len(set(gpus)) < len(gpus) else ""


def _labels_problem(labels: tuple[str, ...]) -> str:
    wrong = next((label for label in labels if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", label)), None)
    if wrong is not None:
        return f"{clean(wrong, 40)!r} is no name of a label"
    return "" if labels else "must name at least one label"


def address_problem(address: str) -> str:
    """Why it is no address to listen at; empty where it is one."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 <= int(port[:6]) <= 65535:
        return "must be address:port, such as 127.0.0.1:9454, 0.0.0.0:9454 or [::1]:9454"
    return ""


def _columns_problem(columns: tuple[str, ...]) -> str:
    wrong = next((column for column in columns if column not in NAMES), None)
    if wrong is None:
        return ""
    near = difflib.get_close_matches(wrong.lower(), NAMES, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else "write pane.column, such as gpus.power"
    return f"{clean(urls.without_secrets(wrong), 40)} is no column; {hint}"


def _when_problem(text: str) -> str:
    from gpumon.triage.alerts import parse

    try:
        parse(text)
    except ValueError as wrong:
        return str(wrong)
    return ""


def _command_problem(command: tuple[str, ...]) -> str:
    return "must begin with the path or the name of a program" if command and not command[0].strip() else ""


@cache
def _gpus() -> GpuCatalogue:
    from gpumon.specs.gpus import parse_gpus

    return parse_gpus((Path(specs.__file__).parent / "data" / "gpus.csv").read_text(encoding="utf-8"))


def gpu_type_problem(name: str) -> str:
    """What is wrong with the name of a GPU type, near names with it; empty for one of the catalogue and for none."""
    if not name:
        return ""
    name = urls.without_secrets(name)
    try:
        _gpus().find(name)
    except ValueError as unknown:
        return str(unknown)
    return ""


def _same_gpu(prices: Mapping[str, Any]) -> tuple[str, str] | None:
    first: dict[str, str] = {}
    for name in prices:
        before = first.setdefault(_gpus().find(name).name, name)
        if before != name:
            return name, f"is the same GPU as {clean(before, 40)}"
    return None


class OpenTable(msgspec.Struct, frozen=True):
    """A table whose keys are no fields of the schema; names with dots may be written without quotes, too."""

    names: tuple[str, ...]
    """Those that are known, for hints; empty: `named` decides."""
    problem: Callable[[str, Any], str]
    """What is wrong with a name's value; empty: nothing."""
    clash: Callable[[Mapping[str, Any]], tuple[str, str] | None]
    """The name to blame for what is wrong with all values together, and the text."""
    kind: Any = str
    """Of the values."""
    named: Callable[[str], str] = lambda _: ""
    """What is wrong with a name; empty: nothing."""


ANY: Final = FieldRule(lambda _: "")
"""The rule of a field that has none of its own."""

TableRule = tuple[Callable[[Any], bool], str, str | Callable[[Any], str]]
"""When it is wrong, the key to blame, and the text, or what words it for that table."""


class Rulebook(msgspec.Struct, frozen=True):
    """All that a file has to keep to beside the types of its Structs. Fields go by `Type.field`."""

    root: type[msgspec.Struct]
    fields: Mapping[str, FieldRule]
    tables: Mapping[str, tuple[TableRule, ...]]
    """By type."""
    unique: Mapping[str, tuple[tuple[str, Callable[[str], str]], ...]]
    """Keys that must differ between the entries of an array of tables, and what is compared; empty may repeat."""
    open_tables: Mapping[str, OpenTable]
    text: Callable[[str], str]
    """What is wrong with any text, whichever key it stands under; empty: nothing."""
    types: Mapping[str, Any] = {}
    """Ranges of fields whose own type has none."""

    def rule(self, kind: type[msgspec.Struct], key: str) -> FieldRule:
        """The rule of a field."""
        return self.fields.get(f"{kind.__name__}.{key}", ANY)


_KEY_ENV: Final = FieldRule(
    _matches(r"([A-Za-z_][A-Za-z0-9_]*)?", "must be the name of an environment variable, never the key itself"),
    hidden=True,
)
_KEY_FILE: Final = FieldRule(
    _matches(r"(?s)(.*/.*)?", "is no path: put the path of the file that holds the key (./name for one right here)"),
    hidden=True,
)
_GPUS: Final = FieldRule(lambda value: "" if value == "auto" else _gpus_problem(value))
_FIELDS: Final = {
    "Endpoint.url": FieldRule(urls.problem, read=urls.with_scheme),
    "Endpoint.api_key_env": _KEY_ENV,
    "Endpoint.api_key_file": _KEY_FILE,
    "Dcgm.url": FieldRule(lambda url: urls.problem(url) if url else "", read=urls.with_scheme),
    "Dcgm.api_key_env": _KEY_ENV,
    "Dcgm.api_key_file": _KEY_FILE,
    "Prometheus.url": FieldRule(lambda url: urls.problem(url) if url else "", read=urls.with_scheme),
    "Prometheus.api_key_env": _KEY_ENV,
    "Prometheus.api_key_file": _KEY_FILE,
    "Prometheus.password_env": _KEY_ENV,
    "Prometheus.password_file": _KEY_FILE,
    "Prometheus.tenant": FieldRule(_matches(r"[!-~]{0,150}", "must be printable ASCII without spaces")),
    "Prometheus.match": FieldRule(matchers.problem),
    "Prometheus.host_labels": FieldRule(_labels_problem),
    "Exporter.listen": FieldRule(address_problem),
    "Exporter.user": FieldRule(_matches(r"[^:\x00-\x1f\x7f]{0,128}", "must be a name without a colon")),
    "Exporter.password_env": _KEY_ENV,
    "Exporter.password_file": _KEY_FILE,
    "Endpoint.gpu_type": FieldRule(gpu_type_problem),
    "Endpoint.gpus": _GPUS,
    "Feed.url": FieldRule(urls.problem, read=urls.with_scheme),
    "Feed.file": FieldRule(_matches(r"[^\0]+", "must be the path of a file")),
    "Feed.api_key_env": _KEY_ENV,
    "Feed.api_key_file": _KEY_FILE,
    "Feed.gpu_type": FieldRule(gpu_type_problem),
    "Feed.gpus": _GPUS,
    "General.theme": FieldRule(
        _matches(r"[a-z0-9][a-z0-9_-]{0,63}", "must be the name of a file in themes/, without .toml"),
    ),
    "Screen.hidden_columns": FieldRule(_columns_problem),
    "Sizing.gpu": FieldRule(gpu_type_problem),
    "Alert.when": FieldRule(_when_problem),
    "Alert.command": FieldRule(_command_problem),
}


def _levels(name: str, unit: str = "") -> TableRule:
    warn, critical = f"{name}_warn{unit}", f"{name}_critical{unit}"
    return lambda levels: getattr(levels, warn) > getattr(levels, critical), critical, f"must be at least {warn}"


def _size(model: Model) -> Size:
    """What its dimensions tell, in 1e9 parameters."""
    head_dim = model.head_dim or model.hidden // model.heads
    heads = model.kv_heads or model.heads
    found = size(model.layers, model.hidden, model.heads, heads, head_dim, model.vocab)
    return Size(*(parameters / 1e9 for parameters in found))


def _of_another_size(key: str) -> TableRule:
    """A figure ten times too high would make the MFU so, too."""

    def wrong(model: Model) -> bool:
        used = getattr(model, key)
        by = _size(model)
        told = key == "params_b" and model.active_params_b is not None
        return used is not None and not told and not by.least <= used <= by.most

    def text(model: Model) -> str:
        by = _size(model)
        fix = " (of a mixture of experts give active_params_b, too)" if model.active_params_b is None else ""
        return (
            f"is not the size of {model.layers} layers with hidden = {model.hidden} and heads = {model.heads}: these "
            f"have about {by.typical:.2g}, from {by.least:.2g} to {by.most:.2g}: correct the figure that is wrong{fix}"
        )

    return wrong, key, text


_ONE_KEY: Final[TableRule] = (
    lambda e: bool(e.api_key_env and e.api_key_file),
    "api_key_file",
    "give one: api_key_env or api_key_file",
)
_ONE_TLS: Final[TableRule] = (
    lambda e: bool(e.tls_ca) and not e.tls_verify,
    "tls_ca",
    "has no use with tls_verify = false: leave one out",
)
_BASIC_AUTH: Final[tuple[TableRule, ...]] = (
    (
        lambda e: bool(e.password_env and e.password_file),
        "password_file",
        "give one: password_env or password_file",
    ),
    (
        lambda e: bool(e.user) != bool(e.password_env or e.password_file),
        "user",
        "and a password go together: give user and one of password_env, password_file",
    ),
)
_ONE_LOGIN: Final[TableRule] = (
    lambda e: bool(e.user) and bool(e.api_key_env or e.api_key_file),
    "user",
    "and a bearer token exclude each other: leave one out",
)
_GPUS_RULES: Final[tuple[TableRule, ...]] = (
    (lambda e: bool(e.gpu_type) and not e.gpu_count, "gpu_type", "needs gpu_count beside it"),
    (lambda e: bool(e.gpu_count) and not e.gpu_type, "gpu_count", "needs gpu_type beside it"),
    (
        lambda e: bool(e.gpu_type) and e.gpus != "auto",
        "gpus",
        "names GPUs of this host, gpu_type those of another: give one",
    ),
)
_TABLES: Final[dict[str, tuple[TableRule, ...]]] = {
    "Levels": (_levels("vram"), _levels("kv"), _levels("temperature", "_c")),
    "Endpoint": (
        _ONE_KEY,
        *_GPUS_RULES,
        _ONE_TLS,
    ),
    "Feed": (*feed_rules.FEED, _ONE_KEY, *_GPUS_RULES, _ONE_TLS),
    "Config": feed_rules.CONFIG,
    "Dcgm": (_ONE_KEY, _ONE_TLS),
    "Prometheus": (_ONE_KEY, *_BASIC_AUTH, _ONE_TLS, _ONE_LOGIN),
    "Exporter": (
        *_BASIC_AUTH,
        (lambda e: bool(e.tls_cert) != bool(e.tls_key), "tls_cert", "and tls_key go together: give both"),
    ),
    "Model": (
        (lambda m: not m.match, "match", "must not be empty"),
        (
            lambda m: m.active_params_b is not None and m.active_params_b > m.params_b,
            "active_params_b",
            "must be at most params_b",
        ),
        (
            lambda m: m.kv_heads is not None and m.heads % m.kv_heads != 0,
            "kv_heads",
            "must divide heads",
        ),
        (
            lambda m: m.head_dim is None and m.hidden % m.heads != 0,
            "head_dim",
            "must be given where heads does not divide hidden",
        ),
        _of_another_size("params_b"),
        _of_another_size("active_params_b"),
        (lambda m: m.experts_per_token > m.experts, "experts_per_token", "must be at most experts"),
        (lambda m: m.experts > 0 and m.experts_per_token == 0, "experts", "needs experts_per_token beside it"),
        (lambda m: m.window_layers > m.layers, "window_layers", "must be at most layers"),
        (lambda m: (m.window_layers > 0) != (m.window > 0), "window", "goes with window_layers: give both or neither"),
        (lambda m: m.rope_dim > 0 and m.kv_lora_rank == 0, "rope_dim", "is of MLA models: it needs kv_lora_rank"),
    ),
    "Gpu": (
        (lambda g: not g.name.strip(), "name", "must not be empty"),
        (
            lambda g: all(getattr(g, each) is None for each in g.__struct_fields__ if each != "name"),
            "name",
            "has no figure beside it: give bf16_tflops, fp8_tflops, bandwidth_gbs, ...",
        ),
    ),
}

CONFIG: Final = Rulebook(
    root=Config,
    fields=_FIELDS,
    tables=_TABLES,
    unique={
        "endpoint": (("url", urls.server), ("name", str)),
        "feed": (("name", str),),
        "model": (("match", str),),
        "gpu": (("name", str),),
    },
    open_tables={
        "keys": OpenTable(keymap.IDS, keymap.problem, keymap.clash),
        "quantities": OpenTable((), feed_rules.mapped, lambda _: None, named=feed_rules.named),
        "prices": OpenTable((), lambda *_: "", _same_gpu, Price, gpu_type_problem),
    },
    text=lambda text: (
        "must hold no user or password: use api_key_env or api_key_file" if urls.holds_password(text) else ""
    ),
)
"""Of the config file."""
