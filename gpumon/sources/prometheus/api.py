"""The HTTP API of a Prometheus, or of what answers as one: bounded queries; every failure is one line with its fix."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Final, TypeVar
from urllib.parse import urlencode, urlsplit

from gpumon.config.schema import Endpoint, Prometheus
from gpumon.config.urls import with_scheme
from gpumon.readings.frame import EndpointState
from gpumon.readings.text import clean
from gpumon.sources.api_key import refused_key_text
from gpumon.sources.endpoint_url import EndpointUrl, parse_url
from gpumon.sources.fetch import Fetcher, FetchError, HttpAnswer, Limits
from gpumon.sources.probe import api_key
from gpumon.sources.prometheus.answers import AnswerDecoder, Matrix, QueryResult, Vector, envelope_of

T = TypeVar("T")
_CONNECT_S: Final = 5.0
"""Longest time to connect."""
_MOST_ANSWER_BYTES: Final = 256 * 1024 * 1024
"""Largest answer."""
CONNECTIONS: Final = 8
"""Queries at once: one for each of a frame, and some to spare."""
LATENCY_OFFSET: Final = "1s"
"""VictoriaMetrics answers as of 30 s ago unless it is told this; a Prometheus does not know the parameter."""
_MOST_POINTS: Final = 11_000
"""Points of one series: Prometheus refuses a range query with more."""
_HALF_SECOND_S: Final = 0.5
"""From the second that a Date header names, which is cut off, to its middle."""
_FORM: Final = "application/x-www-form-urlencoded"
NO_POST: Final = frozenset({403, 405, 501})
"""Refusals of a POST: a proxy may forbid it (403) and let a GET through."""
WITH_REASON: Final = frozenset({400, 422, 500, 503})
"""Answers that carry Prometheus' own words."""
_OF_THIS_QUERY: Final = frozenset({400, 413, 414, 422})
"""Refusals of one query by a server that is well: wrong, too large, too long, or beyond a limit of the server."""
_PREFIX: Final = (
    "set [prometheus].url with the server's path prefix (Mimir: /prometheus; vmselect: /select/0/prometheus)"
)
_BY_STATUS: Final = {
    401: "401: it wants a login: set api_key_env or api_key_file, or user and password_env, in [prometheus]",
    403: "403: it is forbidden: check the key, the user and the tenant in [prometheus]",
    404: f"404: no Prometheus API at {{base}}/api/v1: {_PREFIX}",
    414: "414: the query is too long for a GET: let POST through to it",
    429: "429: it asks for fewer requests: raise [prometheus].interval_s",
    502: "502: the proxy in front of it gets no answer: is the server behind it up?",
    503: "503: it is not ready or overloaded: is it still reading its log (WAL)?",
    504: "504: the proxy in front of it waited too long: raise its limit, or narrow [prometheus].match",
}
NO_TENANT: Final = "401: it wants a tenant (no org id): set [prometheus].tenant"
"""Mimir, Loki and Cortex answer so where the header X-Scope-OrgID is missing."""
TOO_SLOW: Final = "no answer of {at} within {limit:g} s: raise [prometheus].timeout_s, or narrow [prometheus].match"
_TOO_LARGE: Final = f"an answer is larger than {_MOST_ANSWER_BYTES >> 20} MiB: narrow [prometheus].match"


class ApiFault(Exception):  # noqa: N818 (no fault of the program)
    """A query without a usable answer: one line with the fix, safe to show, without any secret."""

    def __init__(self, text: str, *, refused: bool = False) -> None:
        """`refused`: the server is well and does not want this very query."""
        super().__init__(text)
        self.text = text
        self.refused = refused


class PrometheusApi:
    """One server. `warnings` are what it said of partial answers since they were last taken."""

    def __init__(self, config: Prometheus, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises ValueError where the URL is malformed."""
        self.url: EndpointUrl = parse_url(config.url)
        self.base = _base_url(config.url, self.url)
        self.requests = 0
        """Sent so far."""
        self.date_s: float | None = None
        """The server's clock as the header of its newest answer says it (Unix time, to a second); None without one."""
        self.warnings: dict[str, None] = {}
        self.reader = AnswerDecoder()
        self._config = config
        limits = Limits(min(_CONNECT_S, config.timeout_s), config.timeout_s, _MOST_ANSWER_BYTES)
        if config.user:
            env = "password_env"
            file = "password_file"
        else:
            env = "api_key_env"
            file = "api_key_file"
        self._secret = Endpoint(
            url=config.url,
            api_key_env=getattr(config, env),
            api_key_file=getattr(config, file),
            api_key_user=config.api_key_user,
            tls_verify=config.tls_verify,
            trust_other_namespace=config.trust_other_namespace,
        )
        """The settings of the password, or of the key."""
        self._fetcher = Fetcher(
            self.url,
            tls_ca=config.tls_ca,
            tls_verify=config.tls_verify,
            limits=limits,
            clock=clock,
            connections=CONNECTIONS,
            secret=self._secret,
        )
        self._login: dict[str, str] | None = None
        """The headers that say who asks; None: to be read, again."""
        self._uses_get = False
        """Queries go by GET, as POST is not allowed."""

    def __repr__(self) -> str:
        return f"PrometheusApi({self.base!r})"

    async def query(self, promql: str, at_s: float | None = None, partial: list[str] | None = None) -> list[Vector]:
        """The series of an instant query at `at_s` (Unix time; None: the server's now). Raises ApiFault.

        `partial` takes the query where its answer may lack series: the server warns of it, or it is too long to be
        read.
        """
        form = {"query": promql}
        if at_s is not None:
            form["time"] = f"{at_s:.3f}"
        return await self._query_series("query", form, ("vector", "scalar"), self.reader.vectors, partial)

    async def samples(self, promql: str, at_s: float) -> list[Matrix]:
        """The stored samples of an instant query for a range, such as `up[5m]`. Raises ApiFault."""
        form = {"query": promql, "time": f"{at_s:.3f}"}
        return await self._query_series("query", form, ("matrix",), self.reader.matrices)

    async def query_range(self, promql: str, start_s: float, end_s: float, step_s: float) -> list[Matrix]:
        """The series of a range query, a point every `step_s`. Raises ApiFault; ValueError for an impossible range."""
        if not (step_s > 0.0 and start_s <= end_s and (end_s - start_s) / step_s < _MOST_POINTS):
            raise ValueError(f"a range has 1 to {_MOST_POINTS} points: {start_s} to {end_s} by {step_s} s")
        form = {"query": promql, "start": f"{start_s:.3f}", "end": f"{end_s:.3f}", "step": f"{step_s:.3f}"}
        return await self._query_series("query_range", form, ("matrix",), self.reader.matrices)

    async def close(self) -> None:
        """Hang up."""
        await self._fetcher.close()

    def take_warnings(self) -> tuple[str, ...]:
        """The server's words on partial answers since the last call; each is given once."""
        warnings = tuple(self.warnings)
        self.warnings = {}
        return warnings

    async def _query_series(
        self,
        path: str,
        form: Mapping[str, str],
        types: tuple[str, ...],
        decode: Callable[[QueryResult], list[T]],
        partial: list[str] | None = None,
    ) -> list[T]:
        """The decoded answer to a query. Raises ApiFault.

        It is decoded in a thread, however small it is: another answer may hold the decoder for long.
        """
        words = urlencode({**form, "latency_offset": LATENCY_OFFSET})
        answer = await self._send_query(f"{self.base}/api/v1/{path}", words.encode("ascii"))
        result = self._check_result(answer, await asyncio.to_thread(envelope_of, answer.body), types)
        if partial is not None and (result.warnings or result.cut):
            partial.append(form["query"])
        return await asyncio.to_thread(decode, result)

    def _check_result(self, answer: HttpAnswer, result: QueryResult | None, types: tuple[str, ...]) -> QueryResult:
        """The result, if it is one of these types; what the server warns of is noted. Raises ApiFault."""
        if answer.status != 200:
            raise ApiFault(self._refusal_text(answer, result), refused=answer.status in _OF_THIS_QUERY)
        if result is None:
            raise ApiFault(self._no_api_text(answer))
        if result.error:
            raise ApiFault(f"{self._server} refuses the query: {result.error}", refused=True)
        if result.type not in types:
            kind = clean(result.type, 20) or "nothing"
            raise ApiFault(f"{self._server} answered a query with a {kind}, not with a {types[0]}: is it a Prometheus?")
        self.warnings |= dict.fromkeys(result.warnings)
        if result.cut:
            self.warnings["an answer has more series than gpumon reads: narrow [prometheus].match"] = None
        return result

    @property
    def _server(self) -> str:
        """Host and port of the server, safe to show."""
        return clean(f"{self.url.host}:{self.url.port}", 90)

    def _refusal_text(self, answer: HttpAnswer, result: QueryResult | None) -> str:
        """The fault behind a status other than 200."""
        status = answer.status
        if status in WITH_REASON and result is not None and result.error:
            return f"{status}: {self._server} refuses the query: {result.error}"
        if 300 <= status < 400:
            # Without query and password, which may be secret.
            target = clean(answer.location.split("?")[0].split("#")[0].rpartition("@")[2], 80) or "another place"
            return f"{status}: redirected to {target}, which gpumon does not follow: give the final URL (a login page?)"
        if status == 401 and b"no org id" in answer.body[:500].lower():
            return NO_TENANT
        if status == 401 and "Authorization" in (self._login or {}):
            what = "the login of user and password" if self._config.user else "the key"
            return f"401: [prometheus] {refused_key_text(self._secret, what)}"
        text = _BY_STATUS.get(status, f"{status}: {self._server} does not answer the query: see its log")
        return text.format(base=clean(self.base, 120))

    def _no_api_text(self, answer: HttpAnswer) -> str:
        """The fault of an answer that is none of Prometheus' API."""
        start = answer.body[:500].lstrip(b"\xef\xbb\xbf \t\r\n")
        if start[:1] == b"<" or "html" in answer.content_type:
            return f"{self._server} answers with a web page: a login in front of it? Else {_PREFIX}"
        fix = "check host, port and path in [prometheus].url"
        return f"the answer of {self._server} is not that of a Prometheus API: {fix}"

    async def _send_query(self, url: str, form: bytes) -> HttpAnswer:
        """The answer to a query, by POST, or by GET where that is not allowed; a login is read anew once refused."""
        try:
            login_is_fresh = self._login is None
            answer = await self._send(url, form)
            if answer.status in NO_POST and not self._uses_get:
                self._uses_get = True
                answer_to_get = await self._send(url, form)
                # Where a GET is forbidden (403) as well, the method is not what is wrong.
                self._uses_get = answer.status != 403 or answer_to_get.status == 200
                if self._uses_get:
                    answer = answer_to_get
            if answer.status in (401, 403) and not login_is_fresh:
                self._login = None
                answer = await self._send(url, form)
            return answer
        except FetchError as fault:
            raise ApiFault(self._fetch_fault_text(fault)) from None

    async def _send(self, url: str, form: bytes) -> HttpAnswer:
        """Send a query once. Raises FetchError; ApiFault where the login cannot be had."""
        if self._login is None:
            self._login = await self._read_login()
        headers = {**self._login, "Accept": "application/json", "Accept-Encoding": self._accepted_encoding}
        self.requests += 1
        if self._uses_get:
            answer = await self._fetcher.send("GET", f"{url}?{form.decode('ascii')}", headers)
        else:
            answer = await self._fetcher.send("POST", url, {**headers, "Content-Type": _FORM}, form)
        self.date_s = _date_s(answer.date)
        return answer

    @property
    def _accepted_encoding(self) -> str:
        """Value of Accept-Encoding: packing costs the server more time than loopback takes."""
        try:
            is_loopback = ipaddress.ip_address(self.url.host).is_loopback
        except ValueError:
            is_loopback = self.url.host == "localhost"
        return "identity" if is_loopback else "gzip"

    async def _read_login(self) -> dict[str, str]:
        """The headers that say who asks. Raises ApiFault where the config names a secret that cannot be had."""
        config = self._config
        headers = {"X-Scope-OrgID": config.tenant} if config.tenant else {}
        if config.user:
            password, fault = await api_key(self._secret, "password")
            pair = base64.b64encode(f"{config.user}:{password}".encode()).decode("ascii")
            headers["Authorization"] = f"Basic {pair}"
        else:
            key, fault = await api_key(self._secret)
            if key:
                headers["Authorization"] = f"Bearer {key}"
        if fault:
            raise ApiFault(f"[prometheus] {fault}")
        return headers

    def _fetch_fault_text(self, fault: FetchError) -> str:
        """The fault of a query that got no answer, with the fix."""
        if fault.state is EndpointState.REFUSED:
            return (
                f"nothing listens on {self._server}: is the Prometheus up? Its port is 9090 unless it was told another"
            )
        if fault.state is EndpointState.TIMEOUT and "complete answer" in fault.text:
            return TOO_SLOW.format(at=self._server, limit=self._config.timeout_s)
        if fault.state is EndpointState.TOO_LARGE:
            return _TOO_LARGE
        return fault.text


def _date_s(text: str) -> float | None:
    """The middle of the second that a Date header names, as Unix time; None where it names none."""
    try:
        return parsedate_to_datetime(text).timestamp() + _HALF_SECOND_S
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _base_url(text: str, url: EndpointUrl) -> str:
    """Scheme, host, port and path prefix, whichever page below it the user copied."""
    path = urlsplit(with_scheme(text.strip())).path.rstrip("/")
    for page in ("/api/v1", "/query", "/graph"):
        path = path.removesuffix(page)
    host = f"[{url.host}]" if ":" in url.host else url.host
    return f"{url.base.partition('://')[0]}://{host}:{url.port}{path}"
