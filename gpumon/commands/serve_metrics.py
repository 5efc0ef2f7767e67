"""`gpumon serve-metrics`: everything in the snapshot as OpenMetrics, over HTTP."""

from __future__ import annotations

import argparse
import asyncio
import errno
import ipaddress
import os
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, Final

from gpumon import __version__
from gpumon.commands.options import add_monitor
from gpumon.commands.scenarios import add_demo
from gpumon.commands.settings import settings
from gpumon.commands.streams import note, write
from gpumon.commands.watch import stop_on_signals
from gpumon.config.errors import ConfigError
from gpumon.config.load import file_name
from gpumon.config.options import Options
from gpumon.config.prices import goals_of
from gpumon.config.schema import Config, Exporter
from gpumon.outputs.http import HttpResponse, HttpServer, Login, host_in_header, listening_socket
from gpumon.outputs.openmetrics import MetricsPage
from gpumon.outputs.samples import need_samples
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.text import clean
from gpumon.session.autoscaler import Autoscaler
from gpumon.session.build import build, has_nothing_to_show
from gpumon.session.hardware import open_hardware
from gpumon.sources.checked_open import UntrustedFileError, open_trusted, path_of_open

MOST_PASSWORD_BYTES: Final = 4096
"""Bytes that are read of a file with a password."""
_NOTHING: Final = "nothing to monitor yet: no GPU was found and no endpoint is given; it goes on looking"
FRONT_PAGE: Final = (
    b'<!DOCTYPE html><html lang="en"><title>gpumon</title><h1>gpumon</h1>'
    b'<p><a href="/metrics">Metrics</a> for a Prometheus</p>'
    b'<p><a href="/snapshot.json">The snapshot</a> as JSON</p><p><a href="/healthz">Health</a></p></html>\n'
)
FOREIGN_HOST: Final = HttpResponse(
    403, b"ask by an address or as localhost; a proxy has to set Host so, or give a login\n"
)
"""Answer to a request under a name of somebody else's (`is_addressed_here`)."""
_LISTEN_ADVICE: Final = {
    errno.EADDRINUSE: "the port is in use: stop what listens there, or give another with --listen",
    errno.EADDRNOTAVAIL: "this host has no such address: give one of its own, 127.0.0.1, or 0.0.0.0 for all",
    errno.EACCES: "this user may not listen there: give a port of 1024 or more",
}
"""Number of the error of a socket that cannot listen -> what is wrong, and what to do."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add options: the sources, and the address to serve them at."""
    add_monitor(parser)
    add_demo(parser)
    parser.add_argument("--listen", metavar="ADDRESS", help="address:port to serve at (default 127.0.0.1:9454)")
    parser.add_argument("--detail", action="store_true", help="export every series, about four times as many")


def run(chosen: argparse.Namespace) -> int:
    """Serve until a signal comes."""
    loaded, run_options = settings(chosen)
    config = loaded.config
    exporter = config.exporter
    login = _read_login(exporter, os.environ)
    tls = _tls_context(exporter)
    listener = _open_listener(exporter.listen)
    address, port = listener.getsockname()[:2]
    local_only = _is_loopback(address) and login is None
    page = MetricsPage(detail=exporter.detail, goals=goals_of(config.goals))

    def respond(path: str, headers: Mapping[str, str]) -> HttpResponse:
        if local_only and not is_addressed_here(headers):
            return FOREIGN_HOST
        return answer(page, path, headers)

    server = HttpServer(listener, respond, tls=tls, login=login)
    try:
        _warn_if_open(address, login)
        server.start()
        greeting = f"serving metrics at {_url(address, port, tls)}; Ctrl+C ends it\n"
        asyncio.run(_collect(config, run_options, page, greeting))
    finally:
        server.close()
    return 0


def _warn_if_open(address: str, login: Login | None) -> None:
    """Say so if whoever reaches the address may read the figures."""
    if not _is_loopback(address) and login is None:
        write(f"{address} is no loopback address: whoever reaches it reads the figures; set user in [exporter]\n")


def _url(address: str, port: int, tls: ssl.SSLContext | None) -> str:
    """The URL of the metrics."""
    scheme = "https" if tls else "http"
    host = f"[{address}]" if ":" in address else address
    return f"{scheme}://{host}:{port}/metrics"


class _SnapshotIntake:
    """Takes snapshots for a page and the autoscaler, and says so when there is nothing to monitor."""

    def __init__(self, page: MetricsPage, autoscaler: Autoscaler) -> None:
        self._page = page
        self._autoscaler = autoscaler
        self._notice_shown = False

    def take(self, snapshot: Snapshot) -> None:
        """Take one snapshot; returns at once."""
        self._autoscaler.take(snapshot)
        self._page.take(snapshot)
        is_empty = has_nothing_to_show(snapshot)
        if is_empty and not self._notice_shown:
            write(f"{_NOTHING}\n")
        self._notice_shown = is_empty


async def _collect(config: Config, run_options: Options, page: MetricsPage, greeting: str) -> None:
    """Collect snapshots for the page until a signal, even while there is nothing to monitor yet."""
    done = asyncio.Event()
    stop_on_signals(done)
    write(greeting)
    push = None
    if config.webhook:
        from gpumon.push.webhooks import webhooks_of

        push = webhooks_of(config, run_options, note)
    if push is not None:
        page.count_also(push.samples)
    autoscaler = Autoscaler(config)
    page.count_also(lambda: need_samples(autoscaler.needs) if page.newest is not None else ())
    autoscaler.start()
    # The page keeps each tick for the histograms of its engines, and takes the snapshot that is made of it.
    collector = build(config, run_options, await open_hardware(config, run_options), keepers=(page,), push=push)
    stop_task = asyncio.create_task(done.wait())
    try:
        await collector.start(_SnapshotIntake(page, autoscaler).take)
        ticks = collector.ended()
        await asyncio.wait((stop_task, ticks), return_when=asyncio.FIRST_COMPLETED)
        if not done.is_set():
            ticks.result()  # raises what ended it
    finally:
        stop_task.cancel()
        await autoscaler.stop()
        await collector.stop()


def answer(page: MetricsPage, path: str, headers: Mapping[str, str]) -> HttpResponse:
    """The answer at a path. `headers`: the header lines of the request, by name in lower case."""
    if path == "/metrics":
        metrics = page.page(headers.get("accept", ""), headers.get("accept-encoding", ""))
        answer_headers = {"Vary": "Accept, Accept-Encoding"}
        if metrics.encoding:
            answer_headers["Content-Encoding"] = metrics.encoding
        return HttpResponse(200, metrics.body, metrics.content_type, answer_headers)
    if path == "/healthz":
        trouble = page.trouble()
        if trouble:
            return HttpResponse(503, f"{trouble}\n".encode())
        return HttpResponse(200, b"ok\n")
    if path == "/snapshot.json":
        body = page.json()
        if body is None:
            return HttpResponse(503, f"{page.trouble()}\n".encode())
        # The screen of a fleet reads the version of this gpumon in the header.
        return HttpResponse(200, body, "application/json", {"Server": f"gpumon/{__version__}"})
    if path == "/":
        return HttpResponse(200, FRONT_PAGE, "text/html; charset=utf-8")
    return HttpResponse(404, b"there are /metrics, /snapshot.json and /healthz\n")


def _open_listener(address: str) -> socket.socket:
    """A socket that listens at `host:port`. Raises ConfigError."""
    host, _, port = address.rpartition(":")
    try:
        return listening_socket(host.removeprefix("[").removesuffix("]"), int(port))
    except (OSError, UnicodeError, OverflowError) as failure:
        error_number = getattr(failure, "errno", None) or 0
        why = getattr(failure, "strerror", None) or str(failure)
        if isinstance(failure, socket.gaierror):
            why = "no address of that name is known: give an IP address of this host"
        raise ConfigError(
            f"exporter.listen = {clean(address, 80)!r}: {_LISTEN_ADVICE.get(error_number, clean(why))}"
        ) from None


def is_addressed_here(headers: Mapping[str, str]) -> bool:
    """Whether `Host` is an address or localhost, against DNS rebinding: a page elsewhere can point a name at 127.0.0.1.

    Every browser sends a `Host`; what sends none is no browser.
    """
    host = host_in_header(headers["host"]) if "host" in headers else "localhost"
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return bool(ipaddress.ip_address(host))
    except ValueError:
        return False


def _is_loopback(address: str) -> bool:
    """Whether only this host can reach an address, which may have a zone behind a `%`."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _read_login(exporter: Exporter, environ: Mapping[str, str]) -> Login | None:
    """Name and password that clients have to give; None where there is no `user`. Raises ConfigError."""
    if not exporter.user:
        return None
    if exporter.password_env:
        where = f"exporter.password_env: environment variable {exporter.password_env}"
        text = environ.get(exporter.password_env)
        if text is None:
            raise ConfigError(f"{where} is not set: export it before starting gpumon")
    else:
        path = Path(exporter.password_file).expanduser()
        where = f"exporter.password_file: {file_name(path)}"
        try:
            if not path.is_file():
                raise ConfigError(f"{where} is no file: put the path of the file that holds the password")
            with open_trusted(path, "choose the password of {}") as file:
                text = file.read(MOST_PASSWORD_BYTES).decode("utf-8")
        except UntrustedFileError as fault:
            raise ConfigError(f"{where} {fault}") from None
        except OSError as failure:
            raise ConfigError(f"{where} cannot be read: {failure.strerror}: check path and permission") from None
        except UnicodeDecodeError:
            raise ConfigError(f"{where} is no UTF-8 text: put the bare password there") from None
    password = text.rstrip("\r\n")
    if not password:
        raise ConfigError(f"{where} holds no password: put one there, or leave user out")
    return Login.of(exporter.user, password)


def _tls_context(exporter: Exporter) -> ssl.SSLContext | None:
    """The TLS context; None for plain HTTP. Raises ConfigError."""
    if not exporter.tls_cert:
        return None
    with (
        _open_pem(exporter.tls_cert, "exporter.tls_cert") as certificate,
        _open_pem(exporter.tls_key, "exporter.tls_key") as key,
    ):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            # An encrypted key would ask at the terminal, which a service does not have.
            context.load_cert_chain(path_of_open(certificate), path_of_open(key), password=lambda: "")
        except (ssl.SSLError, ValueError) as failure:
            why = clean(getattr(failure, "reason", None) or str(failure), 80)
            raise ConfigError(
                f"exporter.tls_cert, tls_key: no certificate with its own, unencrypted key in PEM form ({why})"
            ) from None
        return context


def _open_pem(name: str, setting: str) -> BinaryIO:
    """The file of a certificate or its key, checked for its owner. Raises ConfigError, which names the setting."""
    path = Path(name).expanduser()
    where = f"{setting}: {file_name(path)}"
    try:
        if path.exists() and not path.is_file():
            raise ConfigError(f"{where} is no file: put the path of the file in PEM form")
        return open_trusted(path, "read what {} serves")
    except UntrustedFileError as fault:
        raise ConfigError(f"{where} {fault}") from None
    except OSError as failure:
        raise ConfigError(f"{where} cannot be read: {failure.strerror}: check path and permission") from None
