"""`gpumon serve-metrics`: everything in the snapshot as OpenMetrics, over HTTP."""

from __future__ import annotations

import argparse
import asyncio
import errno
import ipaddress
import os
import socket
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from gpumon import __version__
from gpumon.commands.options import add_demo, add_monitor, settings
from gpumon.commands.streams import note, write
from gpumon.commands.watch import stop_on_signals
from gpumon.config.errors import ConfigError
from gpumon.config.load import file_name
from gpumon.config.options import Options
from gpumon.config.schema import Config, Exporter
from gpumon.outputs.http import HttpResponse, HttpServer, Login, host_in_header, listening_socket
from gpumon.outputs.json import encode
from gpumon.outputs.openmetrics import MetricsPage
from gpumon.outputs.private import without_processes
from gpumon.readings.snapshot import Snapshot
from gpumon.readings.text import clean
from gpumon.session.build import build, has_nothing_to_show, open_hardware

MOST_PASSWORD: Final = 4096
_NOTHING: Final = "nothing to monitor yet: no GPU was found and no endpoint is given; it goes on looking"
FRONT: Final = (
    b'<!DOCTYPE html><html lang="en"><title>gpumon</title><h1>gpumon</h1>'
    b'<p><a href="/metrics">Metrics</a> for a Prometheus</p>'
    b'<p><a href="/snapshot.json">The snapshot</a> as JSON</p><p><a href="/healthz">Health</a></p></html>\n'
)
STRANGE: Final = HttpResponse(403, b"ask by an address or as localhost; a proxy has to set Host so, or give a login\n")
_REFUSED: Final = {
    errno.EADDRINUSE: "the port is in use: stop what listens there, or give another with --listen",
    errno.EADDRNOTAVAIL: "this host has no such address: give one of its own, 127.0.0.1, or 0.0.0.0 for all",
    errno.EACCES: "this user may not listen there: give a port of 1024 or more",
}


def options(parser: argparse.ArgumentParser) -> None:
    """Add options: the sources, and the address to serve them at."""
    add_monitor(parser)
    add_demo(parser)
    parser.add_argument("--listen", metavar="ADDRESS", help="address:port to serve at (default 127.0.0.1:9454)")


def run(chosen: argparse.Namespace) -> int:
    """Serve until a signal comes."""
    loaded, given = settings(chosen)
    config = loaded.config
    exporter = loaded.config.exporter
    login = _login(exporter, os.environ)
    tls = _tls(exporter)
    listener = _listener(exporter.listen)
    address, port = listener.getsockname()[:2]
    page = MetricsPage()
    told = False

    def take(snapshot: Snapshot) -> None:
        nonlocal told
        page.take(snapshot)
        empty = has_nothing_to_show(snapshot)
        if empty and not told:
            write(f"{_NOTHING}\n")
        told = empty

    alone = _is_loopback(address) and login is None

    def answered(path: str, headers: Mapping[str, str]) -> HttpResponse:
        if alone and not is_own(headers):
            return STRANGE
        return answer(page, path, headers)

    server = HttpServer(listener, answered, tls=tls, login=login)
    try:
        if not _is_loopback(address) and login is None:
            write(f"{address} is no loopback address: whoever reaches it reads the figures; set user in [exporter]\n")
        if ":" in address:
            shown = f"[{address}]"
        else:
            shown = address
        server.start()
        greeting = f"serving metrics at {'https' if tls else 'http'}://{shown}:{port}/metrics; Ctrl+C ends it\n"
        asyncio.run(_collect(config, given, take, page, greeting))
    finally:
        server.close()
    return 0


async def _collect(
    config: Config, given: Options, take: Callable[[Snapshot], None], page: MetricsPage, greeting: str
) -> None:
    """Snapshots until a signal, from the first moment on, even while there is nothing to monitor yet."""
    done = asyncio.Event()
    stop_on_signals(done)
    write(greeting)
    push = None
    if config.webhook:
        from gpumon.push.webhooks import webhooks_of

        push = webhooks_of(config, given, note)
    if push is not None:
        page.count_also(push.samples)
    collector = build(config, given, await open_hardware(config, given), keepers=(page,), push=push)
    ended = asyncio.create_task(done.wait())
    try:
        await collector.start(take)
        await asyncio.wait((ended, collector.ended()), return_when=asyncio.FIRST_COMPLETED)
        if not done.is_set():
            collector.ended().result()
    finally:
        ended.cancel()
        await collector.stop()


def answer(page: MetricsPage, path: str, headers: Mapping[str, str]) -> HttpResponse:
    """The answer at a path."""
    if path == "/metrics":
        shown = page.page(headers.get("accept", ""), headers.get("accept-encoding", ""))
        encoding = {"Content-Encoding": shown.encoding} if shown.encoding else {}
        varying = {"Vary": "Accept, Accept-Encoding", **encoding}
        return HttpResponse(200, shown.body, shown.content_type, varying)
    if path == "/healthz":
        trouble = page.trouble()
        return HttpResponse(503 if trouble else 200, f"{trouble or 'ok'}\n".encode())
    if path == "/snapshot.json":
        snapshot = page.newest
        if snapshot is None:
            return HttpResponse(503, f"{page.trouble()}\n".encode())
        return HttpResponse(
            200, encode(without_processes(snapshot)) + b"\n", "application/json", {"Server": f"gpumon/{__version__}"}
        )
    if path == "/":
        return HttpResponse(200, FRONT, "text/html; charset=utf-8")
    return HttpResponse(404, b"there are /metrics, /snapshot.json and /healthz\n")


def _listener(address: str) -> socket.socket:
    """Raises ConfigError."""
    host, _, port = address.rpartition(":")
    try:
        return listening_socket(host.removeprefix("[").removesuffix("]"), int(port))
    except (OSError, UnicodeError, OverflowError) as failure:
        number = None
        if isinstance(failure, OSError):
            number = failure.errno
        why = getattr(failure, "strerror", None) or str(failure)
        if isinstance(failure, socket.gaierror):
            why = "no address of that name is known: give an IP address of this host"
        raise ConfigError(
            f"exporter.listen = {clean(address, 80)!r}: {_REFUSED.get(number or 0, clean(why))}"
        ) from None


def is_own(headers: Mapping[str, str]) -> bool:
    """Whether `Host` is an address or localhost: a page elsewhere can point a name of its own at 127.0.0.1.

    Every browser sends a `Host`; what sends none is no browser.
    """
    host = "localhost"
    if "host" in headers:
        host = host_in_header(headers["host"])
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return bool(ipaddress.ip_address(host))
    except ValueError:
        return False


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _login(settings: Exporter, environ: Mapping[str, str]) -> Login | None:
    """Name and password; None where none are asked for. Raises ConfigError."""
    if not settings.user:
        return None
    if settings.password_env:
        where = f"exporter.password_env: environment variable {settings.password_env}"
        text = environ.get(settings.password_env)
        if text is None:
            raise ConfigError(f"{where} is not set: export it before starting gpumon")
    else:
        path = Path(settings.password_file).expanduser()
        where = f"exporter.password_file: {file_name(path)}"
        try:
            if not path.is_file():
                raise ConfigError(f"{where} is no file: put the path of the file that holds the password")
            with path.open("rb") as file:
                text = file.read(MOST_PASSWORD).decode("utf-8")
        except OSError as failure:
            raise ConfigError(f"{where} cannot be read: {failure.strerror}: check path and permission") from None
        except UnicodeDecodeError:
            raise ConfigError(f"{where} is no UTF-8 text: put the bare password there") from None
    password = text.rstrip("\r\n")
    if not password:
        raise ConfigError(f"{where} holds no password: put one there, or leave user out")
    return Login.of(settings.user, password)


def _tls(settings: Exporter) -> ssl.SSLContext | None:
    """None where it speaks plain HTTP. Raises ConfigError."""
    if not settings.tls_cert:
        return None
    for key, text in (("tls_cert", settings.tls_cert), ("tls_key", settings.tls_key)):
        path = Path(text).expanduser()
        try:
            with path.open("rb") as file:
                file.read(1)
        except OSError as failure:
            raise ConfigError(
                f"exporter.{key}: {file_name(path)} cannot be read: {failure.strerror}: check path and permission"
            ) from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # An encrypted key would ask at the terminal, which a service does not have.
        certificate = Path(settings.tls_cert).expanduser()
        key_file = Path(settings.tls_key).expanduser()
        context.load_cert_chain(certificate, key_file, password=lambda: "")
    except (ssl.SSLError, ValueError) as failure:
        why = clean(getattr(failure, "reason", None) or str(failure), 80)
        raise ConfigError(
            f"exporter.tls_cert, tls_key: no certificate with its own, unencrypted key in PEM form ({why})"
        ) from None
    return context
