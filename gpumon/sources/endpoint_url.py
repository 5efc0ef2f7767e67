"""URLs at which an endpoint is polled, from what the user typed."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import urlsplit

from gpumon.config import urls

FILE: Final = "file:"
"""Begin of the URL of a file feed."""


class EndpointUrl(NamedTuple):
    """The URLs at which a server is polled."""

    base: str
    """Scheme, host, port and a gateway's path, without a final slash; `/v1/models` and `/version` stand below it."""
    metrics: str
    """The page with the metrics."""
    host: str
    port: int
    named_page: bool = False
    """Whether the user's URL names the metrics page itself."""

    @property
    def secure(self) -> bool:
        """Whether the server speaks TLS."""
        return self.base.startswith("https:")


def parse_url(text: str) -> EndpointUrl:
    """An endpoint's URL: a base URL, one with a path to the metrics page or to /v1, or host:port.

    Raises ValueError with what is wrong; the error never repeats the URL, which may hold a password.
    """
    url = urls.with_scheme(text.strip())
    problem = urls.url_problem(url)
    if problem:
        raise ValueError(f"the endpoint's URL {problem}")
    split = urlsplit(url)
    scheme = split.scheme.lower()
    host = split.hostname or ""
    port = int(urls.server_of_url(f"{scheme}://{split.netloc}").rpartition(":")[2])
    path = split.path.rstrip("/")
    is_ipv6 = ":" in host
    origin = f"{scheme}://[{host}]:{port}" if is_ipv6 else f"{scheme}://{host}:{port}"
    names_page = path.endswith("metrics")
    if names_page:
        root = path[: path.rindex("/")].removesuffix("/v1").removesuffix("/prometheus")
        return EndpointUrl(origin + root, origin + path, host, port, named_page=True)
    base = origin + path.removesuffix("/v1")
    return EndpointUrl(base, f"{base}/metrics", host, port)
