"""How the text of a setting must look: checks that stand beside its type in the schema."""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from gpumon import specs
from gpumon.config import urls
from gpumon.config.selector import matchers_problem
from gpumon.readings.text import clean

if TYPE_CHECKING:
    from gpumon.specs.gpus import GpuCatalogue


_HIGHEST_PORT: Final = 65535
_MOST_PORT_DIGITS: Final = 6
"""Digits of a port that are read: one more than the highest has, so that it is too high whatever follows."""
_SECRET_HOSTS: Final = ("hooks.slack.com", "webhook.office.com", "discord.com", "hooks.zapier.com", "logic.azure.com")
"""Servers whose URLs are secrets: whoever knows one can send."""
_SECRET_URL: Final = (
    "is a secret: put the whole URL into a file and name that as url_file, or name a variable as url_env"
)

_NO_NAME: Final = "must be the name of an environment variable, never the key itself"
_NO_PATH: Final = "is no path: put the path of the file that holds the key (./name for one right here)"


class FieldRule(msgspec.Struct, frozen=True):
    """How a setting must look. `problem` gives the end of "KEY = VALUE: ...", or an empty text."""

    problem: Callable[[Any], str]
    hidden: bool = False
    """The value may be a secret in the wrong place: it is never printed."""
    read: Callable[[Any], Any] = lambda value: value
    """The value that gpumon goes on with; `problem` is asked of this one."""


def _field_rule(
    problem: Callable[[Any], str], read: Callable[[Any], Any] = lambda value: value, *, hidden: bool = False
) -> Meta:
    """A `FieldRule` beside a type: `Annotated[str, _field_rule(...)]`."""
    return Meta(extra={"rule": FieldRule(problem, hidden, read)})


def pattern_rule(pattern: str, otherwise: str, *, hidden: bool = False) -> Meta:
    """A `FieldRule` beside a type: the text matches a pattern, else its fault is `otherwise`."""
    compiled = re.compile(pattern)
    return _field_rule(lambda text: "" if compiled.fullmatch(text) else otherwise, hidden=hidden)


def _gpus_problem(gpus: Literal["auto"] | tuple[int, ...]) -> str:
    """Fault of the indices of GPUs, as the end of an error; empty: none."""
    if not gpus:
        return 'must name at least one GPU, or be "auto"'
    if gpus != "auto" and len(set(gpus)) < len(gpus):
        return "names a GPU twice"
    return ""


def _labels_problem(labels: tuple[str, ...]) -> str:
    """Fault of names of labels, of which there must be one at least; empty: none."""
    for label in labels:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", label):
            return f"{clean(label, 40)!r} is no name of a label"
    if not labels:
        return "must name at least one label"
    return ""


def _owners_problem(labels: tuple[str, ...]) -> str:
    """Fault of names of labels, of which there may be none; empty: none."""
    if labels:
        return _labels_problem(labels)
    return ""


def host_address(address: str) -> str:
    """The address that gpumon goes on with: host:port is a URL here, too, as ssh takes its port from its own config."""
    if re.fullmatch(r"[\w.-]+:\d+", address, re.ASCII):
        return f"http://{address}"
    return address


def host_server(address: str) -> str:
    """A text that is equal for two addresses of the same host: letter case and final `/` of a URL do not matter.

    An address that has a fault is returned as it is.
    """
    url = host_address(address)
    if "://" not in url or urls.url_problem(url):
        return url
    return urls.server_of_url(url).removesuffix("/snapshot.json")


def _host_problem(address: str) -> str:
    """Fault of a fleet's host; empty: none.

    Whatever begins with a dash, or holds what a shell would read, is no host: it stands in a command line of ssh.
    """
    if "://" in address:
        return urls.url_problem(address)
    user, separator, host = address.rpartition("@")
    is_user = not separator or re.fullmatch(r"\w[\w.+-]*", user, re.ASCII) is not None
    if is_user and (re.fullmatch(r"\w[\w.-]*", host, re.ASCII) or _is_ipv6(host)):
        return ""
    return (
        "must be a host as ssh takes it (gpu-07, user@gpu-08) or the URL of its gpumon serve-metrics "
        "(https://gpu-07:9454)"
    )


def _is_ipv6(host: str) -> bool:
    """Whether it is an IPv6 address as ssh takes it, with its interface (`fe80::1%eth0`) if it has one."""
    address, percent, interface = host.partition("%")
    if percent and re.fullmatch(r"[A-Za-z0-9][\w.-]{0,14}", interface, re.ASCII) is None:
        return False
    try:
        ipaddress.IPv6Address(address)
    except ValueError:
        return False
    return True


def address_problem(address: str) -> str:
    """Why a text is no address to listen at; empty where it is one."""
    host, colon, port = address.rpartition(":")
    is_number = port.isascii() and port.isdigit()
    if not colon or not host or not is_number or int(port[:_MOST_PORT_DIGITS]) > _HIGHEST_PORT:
        return "must be address:port, such as 127.0.0.1:9454, 0.0.0.0:9454 or [::1]:9454"
    return ""


def _columns_problem(columns: tuple[str, ...]) -> str:
    """Fault of the names of hidden columns, with a near one; empty: none."""
    if not columns:
        return ""
    from gpumon.config.columns import HIDEABLE_NAMES  # most configs hide none, and start without the tables

    for column in columns:
        if column in HIDEABLE_NAMES:
            continue
        near = difflib.get_close_matches(column.lower(), HIDEABLE_NAMES, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else "write pane.column, such as gpus.power"
        return f"{clean(urls.without_secrets(column), 40)} is no column; {hint}"
    return ""


def _when_problem(text: str) -> str:
    """Fault of the condition of an alert; empty: none."""
    from gpumon.triage.alerts import parse

    try:
        parse(text)
    except ValueError as wrong:
        return str(wrong)
    return ""


def _webhook_url_problem(url: str) -> str:
    """Why a webhook's URL may not stand in the config; empty where it may."""
    if not url:
        return ""
    if "@" in url or "?" in url:
        return _SECRET_URL
    fault = urls.url_problem(url)
    if fault:
        return fault
    server = urls.server_of_url(url).split("://")[1]
    host = server.partition("/")[0].partition(":")[0]
    if host.endswith(_SECRET_HOSTS):
        return _SECRET_URL
    return ""


def _silences_problem(silences: tuple[str, ...]) -> str:
    """Fault of the silences of a webhook, with the one that is wrong; empty: none."""
    from gpumon.triage.silence import parse_silence

    text = ""
    try:
        for text in silences:
            parse_silence(text)
    except ValueError as wrong:
        return f"{clean(text, 60)!r} {wrong}"
    return ""


def _command_problem(command: tuple[str, ...]) -> str:
    """Fault of a command with its arguments; empty: none, as without a command."""
    if command and not command[0].strip():
        return "must begin with the path or the name of a program"
    return ""


@cache
def _catalogue() -> GpuCatalogue:
    """The packaged types of GPUs, which the checks read by themselves: they know no config."""
    from gpumon.specs.gpus import parse_gpus

    folder = Path(specs.__file__).parent / "data"
    texts = [(folder / name).read_text(encoding="utf-8") for name in ("gpus.csv", "cloud_servers.csv")]
    return parse_gpus(*texts)


def network_problem(name: str) -> str:
    """Why a name is no network of the catalogue, with near names; empty for one that is, and for none."""
    if not name:
        return ""
    from gpumon.specs.networks import parse_networks

    rows = (Path(specs.__file__).parent / "data" / "networks.csv").read_text(encoding="utf-8")
    try:
        parse_networks(rows).find(urls.without_secrets(name))
    except ValueError as unknown:
        return str(unknown)
    return ""


def gpu_type_problem(name: str) -> str:
    """Why a name is no GPU type of the catalogue, with near names; empty for one that is, and for none."""
    return _gpu_problem(name, is_planned=False)


def planned_gpu_problem(name: str) -> str:
    """Why a name is no GPU that a plan may have, with near names; empty for one that is, and for none."""
    return _gpu_problem(name, is_planned=True)


def rented_gpus(name: str) -> int:
    """GPUs of a cloud's server of that name; 0 where it is the name of none."""
    rented = _catalogue().servers.find(name)
    return rented.gpus if rented is not None else 0


def _gpu_problem(name: str, *, is_planned: bool) -> str:
    """The words in which the catalogue refuses a name; empty where it knows it, and, unread, for no name."""
    if not name:
        return ""
    catalogue = _catalogue()
    find = catalogue.find_planned if is_planned else catalogue.find
    try:
        find(urls.without_secrets(name))
    except ValueError as unknown:
        return str(unknown)
    return ""


def find_same_gpu(prices: Mapping[str, Any]) -> tuple[str, str] | None:
    """A type of GPU that has a price under two names: the second, and why it is wrong. None: there is none."""
    first_names: dict[str, str] = {}
    for name in prices:
        first_name = first_names.setdefault(_catalogue().find(name).name, name)
        if first_name != name:
            return name, f"is the same GPU as {clean(first_name, 40)}"
    return None


def hours_problem(text: str) -> str:
    """Why a text is no span of hours of the day (`22:00-06:00`); empty where it is one."""
    from gpumon.readings.prices import parse_hours

    try:
        parse_hours(text)
    except ValueError as wrong:
        return str(wrong)
    return ""


def find_same_hours(prices: Mapping[str, Any]) -> tuple[str, str] | None:
    """Hours of the day that have two prices: the second, and why it is wrong. None: there are none."""
    from gpumon.readings.prices import DAY_MINUTES, parse_hours

    owners: dict[int, str] = {}
    for text in prices:
        hours = parse_hours(text)
        for minute in range(DAY_MINUTES):
            if hours.covers(minute) and owners.setdefault(minute, text) != text:
                return text, f"overlaps with {clean(owners[minute], 40)}"
    return None


def _optional_url_problem(url: str) -> str:
    """Fault of a URL that may be left out; empty: none."""
    if url:
        return urls.url_problem(url)
    return ""


KeyEnv = Annotated[str, pattern_rule(r"([A-Za-z_][A-Za-z0-9_]*)?", _NO_NAME, hidden=True)]
KeyFile = Annotated[str, pattern_rule(r"(?s)(.*/.*)?", _NO_PATH, hidden=True)]
Url = Annotated[str, _field_rule(urls.url_problem, urls.with_scheme)]
UrlOrNone = Annotated[str, _field_rule(_optional_url_problem, urls.with_scheme)]
"""A URL; empty: none."""
Matchers = Annotated[str, _field_rule(matchers_problem)]
LabelNames = Annotated[tuple[str, ...], _field_rule(_labels_problem)]
OwnerLabels = Annotated[tuple[str, ...], _field_rule(_owners_problem)]
Tenant = Annotated[str, pattern_rule(r"[!-~]{0,150}", "must be printable ASCII without spaces")]
HostAddress = Annotated[str, _field_rule(_host_problem, host_address, hidden=True)]
CommandText = Annotated[str, pattern_rule(r"[^\x00-\x1f\x7f]*\S[^\x00-\x1f\x7f]*", "must be a command, in one line")]
ListenAddress = Annotated[str, _field_rule(address_problem)]
UserName = Annotated[str, pattern_rule(r"[^:\x00-\x1f\x7f]{0,128}", "must be a name without a colon")]
FileName = Annotated[str, pattern_rule(r"[^\0]+", "must be the path of a file")]
ThemeName = Annotated[
    str, pattern_rule(r"[a-z0-9][a-z0-9_-]{0,63}", "must be the name of a file in themes/, without .toml")
]
GpuType = Annotated[str, _field_rule(gpu_type_problem)]
PlannedGpu = Annotated[str, _field_rule(planned_gpu_problem)]
GpuChoice = Annotated[Literal["auto"] | tuple[Annotated[int, Meta(ge=0, le=1023)], ...], _field_rule(_gpus_problem)]
ColumnNames = Annotated[tuple[str, ...], _field_rule(_columns_problem)]
When = Annotated[str, _field_rule(_when_problem)]
Program = Annotated[tuple[str, ...], _field_rule(_command_problem)]
WebhookUrl = Annotated[str, _field_rule(_webhook_url_problem, urls.with_scheme, hidden=True)]
Silences = Annotated[tuple[str, ...], _field_rule(_silences_problem)]
