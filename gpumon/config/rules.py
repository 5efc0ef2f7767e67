"""Which settings need or exclude each other, and the tables whose keys the user chooses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from gpumon.config import feed_rules, keymap, urls
from gpumon.config.checks import FieldRule, gpu_type_problem, hours_problem, same_gpu, same_hours
from gpumon.config.errors import KeyPath
from gpumon.config.schema import (
    Config,
    Dcgm,
    Endpoint,
    Exporter,
    Feed,
    Gpu,
    Host,
    Levels,
    Model,
    PerEngine,
    Price,
    Prometheus,
    Reached,
    Webhook,
)
from gpumon.specs.dimensions import used_parameters

SECRET_NAMES: Final = frozenset(
    ("api_key", "apikey", "key", "token", "api_token", "access_token", "auth_token", "bearer", "password", "secret")
)
SECRET_ADVICE: Final = (
    "a secret must not stand in this file: name an environment variable with api_key_env, or a file with api_key_file"
)


class OpenTable(msgspec.Struct, frozen=True):
    """A table whose keys are no fields of the schema; names with dots may be written without quotes, too."""

    names: tuple[str, ...]
    """Known names, for hints; empty: `problem` decides."""
    problem: Callable[[str, Any], str]
    """Fault of a name's value; empty: none."""
    clash: Callable[[Mapping[str, Any]], tuple[str, str] | None]
    """The name to blame for what is wrong with all values together, and the text."""
    kind: Any = str
    """Type of the values."""
    named: Callable[[str], str] = lambda _: ""
    """Fault of a name; empty: none."""


Wrong = Iterator[tuple[str, str]]
"""Faults of a table whose settings each fit: the key to blame, and the text."""


class Rulebook(msgspec.Struct, frozen=True):
    """All that a file has to keep to beside the types of its Structs and the rules that stand beside those."""

    root: type[msgspec.Struct]
    fields: Mapping[str, FieldRule]
    """Further rules, by `Type.field`."""
    tables: Mapping[type, tuple[Callable[[Any], Wrong], ...]]
    """Rules on settings together, by the type of their table."""
    unique: Mapping[str, tuple[tuple[str, Callable[[str], str]], ...]]
    """Keys that must differ between the entries of an array of tables, and what is compared; empty may repeat."""
    open_tables: Mapping[str, OpenTable]
    text: Callable[[str], str]
    """Fault of any text, whichever key it stands under; empty: none."""
    types: Mapping[str, Any] = {}
    """Ranges of fields whose own type has none."""
    moved: Mapping[KeyPath, str] = {}
    """Settings of earlier versions -> where they stand now."""


def _levels(table: Levels) -> Wrong:
    for warn in ("vram_warn", "kv_warn", "temperature_warn_c"):
        critical = warn.replace("warn", "critical")
        if getattr(table, warn) > getattr(table, critical):
            yield critical, f"must be at least {warn}"


def _keyed(table: Endpoint | Feed | Dcgm | Prometheus | Webhook) -> Wrong:
    if table.api_key_env and table.api_key_file:
        yield "api_key_file", "give one: api_key_env or api_key_file"
    yield from _reached(table)


def _reached(table: Reached) -> Wrong:
    if table.tls_ca and not table.tls_verify:
        yield "tls_ca", "has no use with tls_verify = false: leave one out"


def _basic_auth(table: Prometheus | Host | Exporter) -> Wrong:
    if table.password_env and table.password_file:
        yield "password_file", "give one: password_env or password_file"
    if bool(table.user) != bool(table.password_env or table.password_file):
        yield "user", "and a password go together: give user and one of password_env, password_file"


def _gpus(table: Endpoint | Feed) -> Wrong:
    if table.gpu_type and not table.gpu_count:
        yield "gpu_type", "needs gpu_count beside it"
    if table.gpu_count and not table.gpu_type:
        yield "gpu_count", "needs gpu_type beside it"
    if table.gpu_type and table.gpus != "auto":
        yield "gpus", "names GPUs of this host, gpu_type those of another: give one"


def _prometheus(table: Prometheus) -> Wrong:
    yield from _keyed(table)
    yield from _basic_auth(table)
    if table.user and (table.api_key_env or table.api_key_file):
        yield "user", "and a bearer token exclude each other: leave one out"


def _exporter(table: Exporter) -> Wrong:
    yield from _basic_auth(table)
    if bool(table.tls_cert) != bool(table.tls_key):
        yield "tls_cert", "and tls_key go together: give both"


def _webhook(table: Webhook) -> Wrong:
    yield from _keyed(table)
    yield from _webhook_url(table)
    has_key = bool(table.api_key_env or table.api_key_file)
    if table.kind == "slack" and has_key:
        yield "kind", "has its key in its URL: leave api_key_env and api_key_file out"
    if table.kind == "pagerduty" and not has_key:
        yield "kind", "needs the routing key: give api_key_env or api_key_file"


def _webhook_url(table: Webhook) -> Wrong:
    """Problems of the URL of a webhook."""
    given = [key for key in ("url", "url_env", "url_file") if getattr(table, key)]
    if len(given) > 1:
        yield given[1], "give one: url, url_env or url_file"
    if not given and table.kind != "pagerduty":
        yield "kind", "needs one of url_file, url_env and url beside it"
    if table.kind == "slack" and table.url:
        yield (
            "url",
            "is a secret of Slack's: put it into a file and name that as url_file, or name a variable as url_env",
        )


def _gpu(table: Gpu) -> Wrong:
    if not table.name.strip():
        yield "name", "must not be empty"
    if all(getattr(table, field) is None for field in table.__struct_fields__ if field != "name"):
        yield "name", "has no figure beside it: give bf16_tflops, fp8_tflops, bandwidth_gbs, ..."


def _model(m: Model) -> Wrong:
    if not m.match:
        yield "match", "must not be empty"
    if m.active_params_b is not None and m.active_params_b > m.params_b:
        yield "active_params_b", "must be at most params_b"
    if m.kv_heads is not None and m.heads % m.kv_heads != 0:
        yield "kv_heads", "must divide heads"
    if m.head_dim is None and m.hidden % m.heads != 0:
        yield "head_dim", "must be given where heads does not divide hidden"
    yield from _model_size(m)
    yield from _model_parts(m)


def _model_size(m: Model) -> Wrong:
    """Refuses a figure ten times too high: it would make the MFU so, too."""
    kv_heads = m.kv_heads or m.heads
    head_dim = m.head_dim or m.hidden // m.heads
    parameters = used_parameters(m.layers, m.hidden, m.heads, kv_heads, head_dim, m.vocab)
    least = parameters.least / 1e9
    typical = parameters.typical / 1e9
    most = parameters.most / 1e9
    if m.active_params_b is None:
        key = "params_b"
        given = m.params_b
        fix = " (of a mixture of experts give active_params_b, too)"
    else:
        key = "active_params_b"
        given = m.active_params_b
        fix = ""
    if not least <= given <= most:
        yield (
            key,
            f"is not the size of {m.layers} layers with hidden = {m.hidden} and heads = {m.heads}: these have about "
            f"{typical:.2g}, from {least:.2g} to {most:.2g}: correct the figure that is wrong{fix}",
        )


def _model_parts(m: Model) -> Wrong:
    """Refuses settings of experts, windows and MLA that lack another one."""
    if m.experts_per_token > m.experts:
        yield "experts_per_token", "must be at most experts"
    if m.experts > 0 and m.experts_per_token == 0:
        yield "experts", "needs experts_per_token beside it"
    if m.window_layers > m.layers:
        yield "window_layers", "must be at most layers"
    if (m.window_layers > 0) != (m.window > 0):
        yield "window", "goes with window_layers: give both or neither"
    if m.rope_dim > 0 and m.kv_lora_rank == 0:
        yield "rope_dim", "is of MLA models: it needs kv_lora_rank"


CONFIG_RULES: Final = Rulebook(
    root=Config,
    fields={},
    tables={
        Levels: (_levels,),
        Endpoint: (_keyed, _gpus),
        Feed: (feed_rules.faults_of_feed, _keyed, _gpus),
        Config: (feed_rules.faults_of_sources,),
        Dcgm: (_keyed,),
        Prometheus: (_prometheus,),
        Host: (_basic_auth, _reached),
        Exporter: (_exporter,),
        Webhook: (_webhook,),
        Model: (_model,),
        Gpu: (_gpu,),
    },
    unique={
        "endpoint": (("url", urls.server_of_url), ("name", str)),
        "feed": (("name", str),),
        "host": (("address", str), ("name", str)),
        "model": (("match", str),),
        "gpu": (("name", str),),
        "webhook": (("name", str),),
    },
    open_tables={
        "keys": OpenTable(keymap.IDS, keymap.keys_problem, keymap.clash),
        "quantities": OpenTable((), feed_rules.mapped, lambda _: None, named=feed_rules.quantity_problem),
        "gpus_per_engine": OpenTable((), lambda *_: "", lambda _: None, PerEngine),
        "by_type": OpenTable((), lambda *_: "", same_gpu, Price, gpu_type_problem),
        "kwh_hours": OpenTable((), lambda *_: "", same_hours, Price, hours_problem),
    },
    text=lambda text: (
        "must hold no user or password: use api_key_env or api_key_file" if urls.holds_password(text) else ""
    ),
    moved={
        ("sizing", "prices"): "is [prices.by_type] now: write the prices there",
        ("sizing", "price_per_gpu_hour"): "is gpu_hour of [prices] now: write the price there",
    },
)
"""Rules of the config file."""
