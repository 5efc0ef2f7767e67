"""Which settings need or exclude each other, and the tables whose keys the user chooses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from gpumon.config import feed_rules, keymap, urls
from gpumon.config.checks import (
    FieldRule,
    find_same_gpu,
    find_same_hours,
    gpu_type_problem,
    host_server,
    hours_problem,
)
from gpumon.config.errors import KeyPath
from gpumon.config.schema import (
    Config,
    Dcgm,
    Endpoint,
    Exporter,
    Feed,
    Gpu,
    Host,
    HttpServer,
    Levels,
    Model,
    PerEngine,
    Price,
    Prometheus,
    Webhook,
)
from gpumon.specs.dimensions import used_parameters

SECRET_NAMES: Final = frozenset(
    ("api_key", "apikey", "key", "token", "api_token", "access_token", "auth_token", "bearer", "password", "secret")
)
"""Keys that somebody may put a secret under."""
SECRET_ADVICE: Final = (
    "a secret must not stand in this file: name an environment variable with api_key_env, or a file with api_key_file"
)


class OpenTable(msgspec.Struct, frozen=True):
    """A table whose keys are no fields of the schema; names with dots may be written without quotes, too."""

    names: tuple[str, ...] = ()
    """The names that there are; empty: `name_problem` decides."""
    problem: Callable[[str, Any], str] = lambda *_: ""
    """Fault of a name's value; empty: none."""
    clash: Callable[[Mapping[str, Any]], tuple[str, str] | None] = lambda _: None
    """The name to blame for what is wrong with all values together, and the text; None: nothing."""
    kind: Any = str
    """Type of the values."""
    name_problem: Callable[[str], str] = lambda _: ""
    """Fault of a name; empty: none."""


Faults = Iterator[tuple[str, str]]
"""Faults of a table, each of whose settings fits by itself: the key to blame, and the text."""


class Rulebook(msgspec.Struct, frozen=True):
    """All that a file has to keep to, apart from the types of its Structs and the rules beside those types."""

    root: type[msgspec.Struct]
    """Type of the whole file."""
    fields: Mapping[str, FieldRule] = {}
    """Further rules, by `Type.field`."""
    tables: Mapping[type, tuple[Callable[[Any], Faults], ...]] = {}
    """Rules on settings together, by the type of their table."""
    unique: Mapping[str, tuple[tuple[str, Callable[[str], str]], ...]] = {}
    """Keys that must differ between the entries of an array of tables, and what is compared; empty may repeat."""
    open_tables: Mapping[str, OpenTable] = {}
    """Name of a field -> the rules of the table that it holds."""
    text_problem: Callable[[str], str] = lambda _: ""
    """Fault of any text, whichever key it stands under; empty: none."""
    types: Mapping[str, Any] = {}
    """`Type.field` -> the annotated type that is checked in the place of the field's own."""
    moved: Mapping[KeyPath, str] = {}
    """Settings of earlier versions -> where they stand now."""


def _levels_faults(table: Levels) -> Faults:
    """Faults of `[levels]`: a warning above its critical level."""
    for warn in ("vram_warn", "kv_warn", "temperature_warn_c"):
        critical = warn.replace("warn", "critical")
        if getattr(table, warn) > getattr(table, critical):
            yield critical, f"must be at least {warn}"


def _keyed_faults(table: Endpoint | Feed | Dcgm | Prometheus | Webhook) -> Faults:
    """Faults of tables with an API key: two sources of the key, and those of `_http_server_faults`."""
    if table.api_key_env and table.api_key_file:
        yield "api_key_file", "give one: api_key_env or api_key_file"
    yield from _http_server_faults(table)


def _http_server_faults(table: HttpServer) -> Faults:
    """Faults of tables with a server that is reached over the network: a CA that nothing checks."""
    if table.tls_ca and not table.tls_verify:
        yield "tls_ca", "has no use with tls_verify = false: leave one out"


def _basic_auth_faults(table: Prometheus | Host | Exporter) -> Faults:
    """Faults of tables with a user and a password: one without the other, or two sources of the password."""
    if table.password_env and table.password_file:
        yield "password_file", "give one: password_env or password_file"
    if bool(table.user) != bool(table.password_env or table.password_file):
        yield "user", "and a password go together: give user and one of password_env, password_file"


def _remote_gpus_faults(table: Endpoint | Feed) -> Faults:
    """Faults of tables that say which GPUs an engine has: GPUs of this host, or type and number of those elsewhere."""
    if table.gpu_type and not table.gpu_count:
        yield "gpu_type", "needs gpu_count beside it"
    if table.gpu_count and not table.gpu_type:
        yield "gpu_count", "needs gpu_type beside it"
    if table.gpu_type and table.gpus != "auto":
        yield "gpus", "names GPUs of this host, gpu_type those of another: give one"


def _prometheus_faults(table: Prometheus) -> Faults:
    """Faults of `[prometheus]`: those of a key and a login, and both of them at once."""
    yield from _keyed_faults(table)
    yield from _basic_auth_faults(table)
    if table.user and (table.api_key_env or table.api_key_file):
        yield "user", "and a bearer token exclude each other: leave one out"


def _exporter_faults(table: Exporter) -> Faults:
    """Faults of `[exporter]`: those of a login, and a certificate without its key."""
    yield from _basic_auth_faults(table)
    if bool(table.tls_cert) != bool(table.tls_key):
        yield "tls_cert", "and tls_key go together: give both"


def _webhook_faults(table: Webhook) -> Faults:
    """Faults of a `[[webhook]]`: those of a key and the URL, and a key that its kind does not take or lacks."""
    yield from _keyed_faults(table)
    yield from _webhook_url_faults(table)
    has_key = bool(table.api_key_env or table.api_key_file)
    if table.kind == "slack" and has_key:
        yield "kind", "has its key in its URL: leave api_key_env and api_key_file out"
    if table.kind == "pagerduty" and not has_key:
        yield "kind", "needs the routing key: give api_key_env or api_key_file"


def _webhook_url_faults(table: Webhook) -> Faults:
    """Faults of the settings that a webhook's URL is taken from."""
    keys_given = [key for key in ("url", "url_env", "url_file") if getattr(table, key)]
    if len(keys_given) > 1:
        yield keys_given[1], "give one: url, url_env or url_file"
    if not keys_given and table.kind != "pagerduty":
        yield "kind", "needs one of url_file, url_env and url beside it"
    if table.kind == "slack" and table.url:
        yield (
            "url",
            "is a secret of Slack's: put it into a file and name that as url_file, or name a variable as url_env",
        )


def _gpu_faults(table: Gpu) -> Faults:
    """Faults of a `[[gpu]]`: no name, or no figure."""
    if not table.name.strip():
        yield "name", "must not be empty"
    if all(getattr(table, field) is None for field in table.__struct_fields__ if field != "name"):
        yield "name", "has no figure beside it: give bf16_tflops, fp8_tflops, bandwidth_gbs, ..."


def _model_faults(model: Model) -> Faults:
    """Faults of a `[[model]]`: dimensions that contradict each other."""
    if not model.match:
        yield "match", "must not be empty"
    if model.active_params_b is not None and model.active_params_b > model.params_b:
        yield "active_params_b", "must be at most params_b"
    if model.kv_heads is not None and model.heads % model.kv_heads != 0:
        yield "kv_heads", "must divide heads"
    if model.head_dim is None and model.hidden % model.heads != 0:
        yield "head_dim", "must be given where heads does not divide hidden"
    yield from _model_size_faults(model)
    yield from _model_parts_faults(model)


def _model_size_faults(model: Model) -> Faults:
    """Fault of a size that the dimensions do not give: a figure ten times too high would make the MFU so, too."""
    kv_heads = model.kv_heads or model.heads
    head_dim = model.head_dim or model.hidden // model.heads
    parameters = used_parameters(
        layers=model.layers,
        hidden=model.hidden,
        heads=model.heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=model.vocab,
    )
    least = parameters.least / 1e9
    typical = parameters.typical / 1e9
    most = parameters.most / 1e9
    if model.active_params_b is None:
        key = "params_b"
        given = model.params_b
        fix = " (of a mixture of experts give active_params_b, too)"
    else:
        key = "active_params_b"
        given = model.active_params_b
        fix = ""
    if not least <= given <= most:
        yield (
            key,
            f"is not the size of {model.layers} layers with hidden = {model.hidden} and heads = {model.heads}: these "
            f"have about {typical:.2g}, from {least:.2g} to {most:.2g}: correct the figure that is wrong{fix}",
        )


def _model_parts_faults(model: Model) -> Faults:
    """Faults of experts, windows and MLA: settings that lack another one, or exceed it."""
    if model.experts_per_token > model.experts:
        yield "experts_per_token", "must be at most experts"
    if model.experts > 0 and model.experts_per_token == 0:
        yield "experts", "needs experts_per_token beside it"
    if model.window_layers > model.layers:
        yield "window_layers", "must be at most layers"
    if (model.window_layers > 0) != (model.window > 0):
        yield "window", "goes with window_layers: give both or neither"
    if model.rope_dim > 0 and model.kv_lora_rank == 0:
        yield "rope_dim", "is of MLA models: it needs kv_lora_rank"


def _password_problem(text: str) -> str:
    """Fault of a text with a user or a password in a URL; empty: none."""
    if urls.holds_password(text):
        return "must hold no user or password: use api_key_env or api_key_file"
    return ""


CONFIG_RULES: Final = Rulebook(
    root=Config,
    tables={
        Levels: (_levels_faults,),
        Endpoint: (_keyed_faults, _remote_gpus_faults),
        Feed: (feed_rules.faults_of_feed, _keyed_faults, _remote_gpus_faults),
        Config: (feed_rules.faults_of_sources,),
        Dcgm: (_keyed_faults,),
        Prometheus: (_prometheus_faults,),
        Host: (_basic_auth_faults, _http_server_faults),
        Exporter: (_exporter_faults,),
        Webhook: (_webhook_faults,),
        Model: (_model_faults,),
        Gpu: (_gpu_faults,),
    },
    unique={
        "endpoint": (("url", urls.server_of_url), ("name", str)),
        "feed": (("name", str),),
        "host": (("address", host_server), ("name", str)),
        "model": (("match", str),),
        "gpu": (("name", str),),
        "webhook": (("name", str),),
    },
    open_tables={
        "keys": OpenTable(names=keymap.IDS, problem=keymap.keys_problem, clash=keymap.find_clash),
        "quantities": OpenTable(problem=feed_rules.source_problem, name_problem=feed_rules.quantity_problem),
        "gpus_per_engine": OpenTable(kind=PerEngine),
        "by_type": OpenTable(kind=Price, name_problem=gpu_type_problem, clash=find_same_gpu),
        "kwh_hours": OpenTable(kind=Price, name_problem=hours_problem, clash=find_same_hours),
    },
    text_problem=_password_problem,
    moved={
        ("sizing", "prices"): "is [prices.by_type] now: write the prices there",
        ("sizing", "price_per_gpu_hour"): "is gpu_hour of [prices] now: write the price there",
    },
)
"""Rules of the config file."""
