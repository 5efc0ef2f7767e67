"""`gpumon serve-metrics` as others use it: a real process, a fake driver, replayed engines, a real Prometheus."""

from __future__ import annotations

import base64
import json
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpumon.readings.exported import EXPORTED_METRICS
from tests.exporter.metrics_table import table
from tests.exporter.served import MODERN, Served, classic, get, modern, quick, ups
from tests.fakes.engine import FakeEngine
from tests.fakes.http_server import LoopbackServer, Reply, self_signed
from tests.fakes.nvml.driver import FakeDriver
from tests.fakes.prometheus import Prometheus, promtool
from tests.program import run_gpumon

DOCS = Path(__file__).parents[2] / "docs"
SMALL = ("--demo", "--scenario", "thermal")
"""A simulated server of two GPUs and one engine: where what it shows is not the subject."""
DECODES = "gpumon_engine_decode_tokens_per_second"
REPLICAS = "gpumon_model_replica_info"
SCRAPED_EVERY = "4s"
"""It is the time that a scrape may take as well: a machine that is busy needs more than two seconds for some."""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that the tests only ask."""
    with Served(quick(tmp_path_factory.mktemp("small")), *SMALL, "--interval=30") as served:
        served.until(lambda page: ups(page)["collector", ""] == 1.0)
        yield served


def names(page: list[tuple[str, dict[str, str], float]]) -> set[str]:
    return {name for name, _, _ in page}


def test_a_demo_is_served_in_both_formats_and_promtool_has_nothing_to_say(tmp_path: Path) -> None:
    with Served(quick(tmp_path), "--demo", "--interval=0.25") as served:
        assert len(served.lines) == 1
        page = served.until(lambda page: "gpumon_engine_mfu_ratio" in names(page))
        old = get(f"{served.url}/metrics")
        packed = get(f"{served.url}/metrics", Accept=MODERN, Accept_Encoding="gzip")
        checked = promtool("check", "metrics", text=old.body.decode())
        assert served.end() == (0, "")
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    assert old.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert packed.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert packed.headers["Content-Encoding"] == "gzip"
    assert names(page) <= {name for metric in EXPORTED_METRICS for name in metric.samples}
    assert names(classic(old.body)) <= {name for metric in EXPORTED_METRICS for name in metric.samples}
    assert {one.labels["uuid"] for one in page if one.name == "gpumon_gpu_info"} == {
        f"GPU-00000000-0000-4000-8000-{at:012}" for at in range(8)
    }
    tokens = {one.labels["kind"] for one in page if one.name == "gpumon_engine_tokens_total"}
    assert tokens == {"prefill", "cached", "decode"}
    assert len([one for one in page if one.name == "gpumon_engine_gpu_info"]) == 7


def test_other_paths_and_methods_are_refused(small: Served) -> None:
    assert get(f"{small.url}/").body.count(b"<a href=") == 3
    assert get(f"{small.url}/other").status == 404
    refused = get(f"{small.url}/metrics", method="POST")
    assert (refused.status, refused.headers["Allow"]) == (405, "GET, HEAD")
    head = get(f"{small.url}/metrics", method="HEAD")
    assert (head.status, head.body) == (200, b"")
    healthy = get(f"{small.url}/healthz")
    assert (healthy.status, healthy.body) == (200, b"ok\n")
    snapshot = json.loads(get(f"{small.url}/snapshot.json").body)
    assert (len(snapshot["gpus"]), {len(gpu["processes"]) for gpu in snapshot["gpus"]}) == (2, {0})


def test_a_page_under_a_name_of_its_own_gets_nothing_of_a_server_of_this_host_alone(small: Served) -> None:
    for path in ("metrics", "snapshot.json", "healthz", ""):
        refused = get(f"{small.url}/{path}", Host="evil.example")
        assert (refused.status, b"gpumon_" in refused.body) == (403, False)
    for host in ("localhost:9454", "127.0.0.1", "[::1]:9454", "gpu.localhost"):
        assert get(f"{small.url}/metrics", Host=host).status == 200
    assert get(f"{small.url}/metrics", Host="127.0.0.1.evil.example").status == 403


def test_with_nothing_to_monitor_it_goes_on_and_says_so(tmp_path: Path) -> None:
    with Served(quick(tmp_path), "--no-nvml", "--interval=0.25") as served:
        assert served.line().startswith("nothing to monitor yet")
        page = served.page()
        assert ups(page) == {("collector", ""): 1.0}
        assert "gpumon_host_info" in names(page)
        assert get(f"{served.url}/healthz").status == 200


def test_a_hung_driver_has_no_series_and_comes_back(tmp_path: Path, fake_driver: FakeDriver) -> None:
    well = "gpus 2\ngpu * busy 50\n"
    fake_driver.write(well)
    with Served(fake_driver.env(**quick(tmp_path)), "--interval=0.25") as served:
        served.until(lambda page: "gpumon_gpu_busy_ratio" in names(page))
        fake_driver.write(f"{well}gpu * call nvmlDeviceGetUtilizationRates hang\n")
        hung = served.until(lambda page: ups(page).get(("nvml", "")) == 0.0)
        assert not {name for name in names(hung) if re.match("gpumon_gpu_.*(ratio|bytes|watts|celsius)$", name)}
        states = {one.labels["state"] for one in hung if one.name == "gpumon_gpu_state"}
        assert states == {"stale"}
        served.until(
            lambda page: any(one.name == "gpumon_faults" and one.labels.get("source") == "nvml" for one in page)
        )
        # What hangs goes on hanging: another worker reads the driver that is well again.
        fake_driver.write(well)
        served.until(lambda page: ups(page)["nvml", ""] == 1.0 and "gpumon_gpu_busy_ratio" in names(page))


def test_a_driver_that_hangs_from_the_start_is_down(tmp_path: Path, fake_driver: FakeDriver) -> None:
    fake_driver.write("init hang\n")
    with Served(fake_driver.env(**quick(tmp_path)), "--interval=0.25") as served:
        page = served.until(lambda page: ups(page).get(("nvml", "")) == 0.0)
        assert ups(page)["collector", ""] == 1.0


def test_a_driver_that_is_loaded_later_is_found(tmp_path: Path, fake_driver: FakeDriver) -> None:
    fake_driver.write("init driver_not_loaded\n")
    with Served(fake_driver.env(**quick(tmp_path)), "--interval=0.25") as served:
        served.until(lambda page: ups(page).get(("nvml", "")) == 0.0)
        assert served.line().startswith("nothing to monitor yet")
        fake_driver.write("gpus 2\n")
        page = served.until(lambda page: ups(page)["nvml", ""] == 1.0)
        assert len([one for one in page if one.name == "gpumon_gpu_info"]) == 2


def test_a_hung_engine_has_no_series_and_the_other_of_its_model_goes_on(tmp_path: Path) -> None:
    hang: list[bool] = []

    def change(path: str, reply: Reply) -> Reply:
        return reply._replace(delay_s=60.0) if hang else reply

    first = FakeEngine("vllm-staircase", speed=4.0, start_s=60.0, change=change)
    second = FakeEngine("vllm-staircase", speed=4.0, start_s=60.0)
    with first, second:
        options = ("--no-nvml", "--interval=0.25", "--endpoint", first.url, "--endpoint", second.url)
        with Served(quick(tmp_path), *options) as served:
            page = served.until(lambda page: [one.name for one in page].count(DECODES) == 2 and REPLICAS in names(page))
            engines = {one.labels["engine"] for one in page if one.name == "gpumon_engine_info"}
            models = {one.labels["model"] for one in page if one.name == REPLICAS}
            assert (len(engines), len(models)) == (2, 1)
            hang.append(True)
            hung = served.until(lambda page: 0.0 in ups(page).values())
            dead = [name for (source, name), up in ups(hung).items() if source == "engine" and not up]
            assert len(dead) == 1
            about = {one.name for one in hung if one.labels.get("engine") == dead[0]}
            assert about <= {
                "gpumon_engine_info",
                "gpumon_engine_state",
                "gpumon_engine_state_since_timestamp_seconds",
                "gpumon_engine_age_seconds",
                "gpumon_engine_restarts_total",
                REPLICAS,
            }
            alive = (engines - set(dead)).pop()
            assert (DECODES, alive) in {(one.name, one.labels.get("engine")) for one in hung}


def test_labels_from_outside_stay_inside_their_quotes(tmp_path: Path) -> None:
    evil = r"m\"} 1\n# EOF\n\\" + "\u202e\x1b[31m" + "x" * 600

    def change(path: str, reply: Reply) -> Reply:
        assert isinstance(reply.body, bytes)
        named = re.sub(rb'model_name="[^"]*"', lambda _: f'model_name="{evil}"'.encode(), reply.body)
        return reply._replace(body=named) if path == "/metrics" else Reply(404)

    with FakeEngine("vllm-staircase", speed=4.0, start_s=60.0, change=change) as engine:
        options = ("--no-nvml", "--interval=0.25", "--endpoint", engine.url)
        with Served(quick(tmp_path), *options) as served:
            page = served.until(lambda page: "gpumon_engine_requests_running" in names(page))
            old = get(f"{served.url}/metrics").body
    model = next(one.labels["model"] for one in page if one.name == "gpumon_engine_info")
    assert 100 < len(model) <= 128
    assert model.startswith('m"} 1')
    assert model.isprintable()
    assert len(classic(old)) == sum(not line.startswith(b"#") for line in old.splitlines())


def test_the_scrape_configs_of_the_docs_work(tmp_path: Path) -> None:
    """The plain one, and the one with TLS and a password, in one Prometheus."""
    certificate, key = self_signed(tmp_path)
    password = tmp_path / "password"
    password.write_text("s3cret wörd\n")
    config = tmp_path / "gpumon.toml"
    config.write_text(
        f'[exporter]\nuser = "prometheus"\npassword_file = "{password}"\n'
        f'tls_cert = "{certificate}"\ntls_key = "{key}"\n'
    )
    with (
        Served(quick(tmp_path), "--demo", "--interval=0.25") as plain,
        Served(quick(tmp_path), *SMALL, "--interval=0.25", "--config", str(config)) as secured,
    ):
        assert_refuses_strangers(secured, certificate)
        jobs = [*plain_jobs(plain), secured_job(secured, certificate, password)]
        with Prometheus(tmp_path, jobs) as prometheus:
            assert_queries_of_the_docs_work(prometheus)
            found = prometheus.until('gpumon_gpu_busy_ratio{job="gpumon-remote"}', results=2)
            assert prometheus.query('up{job="gpumon-remote"} == 1')
    assert found[0]["metric"]["node"] == "127.0.0.1"  # type: ignore[index]


def assert_refuses_strangers(served: Served, certificate: Path) -> None:
    """It serves by TLS, and only to who knows the password; under any name of its own."""
    assert served.url.startswith("https://")
    trusting = ssl.create_default_context(cafile=str(certificate))
    refused = get(f"{served.url}/metrics", tls=trusting)
    assert (refused.status, refused.headers["WWW-Authenticate"]) == (401, 'Basic realm="gpumon"')
    assert get(f"{served.url}/metrics", tls=trusting, Authorization="Basic cHJvbWV0aGV1czo=").status == 401
    assert get(f"{served.url}/healthz", tls=trusting, Authorization="Basic ²").status == 401
    known = "Basic " + base64.b64encode("prometheus:s3cret wörd".encode()).decode()
    assert get(f"{served.url}/metrics", tls=trusting, Host="gpu.example", Authorization=known).status == 200


def secured_job(served: Served, certificate: Path, password: Path) -> str:
    """The scrape config of the docs for a server with TLS and a password, for this one."""
    job = (DOCS / "prometheus-scrape.yml").read_text().partition("job_name: gpumon-remote")[2]
    for before, after in (
        ("15s", SCRAPED_EVERY),
        ("/etc/prometheus/gpumon-ca.pem", str(certificate)),
        ("/etc/prometheus/gpumon-password", str(password)),
        ('"gpu01.example:9454", "gpu02.example:9454"', f'"{served.url.removeprefix("https://")}"'),
    ):
        assert before in job
        job = job.replace(before, after)
    return f"  - job_name: gpumon-remote{job}"


def plain_jobs(served: Served) -> list[str]:
    """The plain scrape config of the docs for this server, and a second job under two names of the same host."""
    text = (DOCS / "prometheus-scrape.yml").read_text()
    job = text[text.index("  - job_name: gpumon\n") : text.index("  # Other hosts")]
    assert "127.0.0.1:9454" in job
    job = job.replace("127.0.0.1:9454", served.url.removeprefix("http://")).replace("15s", SCRAPED_EVERY)
    again = job.replace("job_name: gpumon", "job_name: again")
    hosts = '["127.0.0.1:PORT", "localhost:PORT"]'.replace("PORT", served.url.rpartition(":")[2])
    return [job, re.sub(r"targets: \[.*?\]", f"targets: {hosts}", again)]


def assert_queries_of_the_docs_work(prometheus: Prometheus) -> None:
    """Each has a result for each of the three targets of the demo, or for each of its engines there."""
    prometheus.until('rate(gpumon_engine_tokens_total{job=~"gpumon|again"}[5m]) > 0', results=27)
    for query in re.findall("^    ((?:sum|count) by .*)$", (DOCS / "serve-metrics.md").read_text(), re.MULTILINE):
        wanted = 9 if "instance, engine) (gpumon" in query else 3 if query.startswith("sum") else 0
        found = prometheus.until(query, results=wanted)
        assert len({str(one["metric"]) for one in found}) >= wanted
    assert query.startswith("count by (code)")
    assert prometheus.query("scrape_samples_scraped > 300")


def test_the_docs_are_valid() -> None:
    checked = promtool("check", "config", str(DOCS / "prometheus-scrape.yml"), "--syntax-only")
    assert (checked.returncode, "SUCCESS" in checked.stdout) == (0, True), checked.stderr


REFUSED = {
    'tls_cert = "/nope.pem"\ntls_key = "/nope.key"': r"exporter\.tls_cert: /nope\.pem cannot be read: No such file",
    'tls_cert = "/dev/null"\ntls_key = "/dev/null"': r"exporter\.tls_cert: /dev/null is no file: put the path",
    'tls_cert = "/etc/passwd"\ntls_key = "/etc/passwd"': r"exporter\.tls_cert, tls_key: no certificate with its own",
    'user = "a"\npassword_env = "GPUMON_TEST_NONE"': r"password_env: environment variable GPUMON_TEST_NONE is not set",
    'user = "a"\npassword_file = "/nope/here"': r"exporter\.password_file: /nope/here is no file",
    'user = "a"\npassword_file = "/dev/null"': r"exporter\.password_file: /dev/null is no file",
    'user = "a"': r"user.*password go together",
    'user = "a:b"\npassword_env = "HOME"': r"user = .*must be a name without a colon",
    'tls_cert = "/nope.pem"': r"tls_key go together",
    'listen = "203.0.113.77:0"': r"203\.0\.113\.77:0'?: this host has no such address",
    'listen = "no-such-host.invalid:0"': r"no address of that name is known",
    'listen = "9454"': r"must be address:port",
    'listen = "127.0.0.1:65536"': r"must be address:port",
}


@pytest.mark.parametrize("settings", REFUSED)
def test_it_refuses_to_start_in_one_line(settings: str, tmp_path: Path) -> None:
    config = tmp_path / "gpumon.toml"
    config.write_text(f"[exporter]\n{settings}\n")
    done = run_gpumon("serve-metrics", "--demo", "--config", str(config), env=quick(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert re.search(REFUSED[settings], done.stderr)
    assert done.stderr.count("\n") == 1


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with LoopbackServer(lambda _: Reply()) as other:
        done = run_gpumon("serve-metrics", "--demo", "--listen", f"127.0.0.1:{other.port}", env=quick(tmp_path))
    assert done.returncode == 2
    assert "the port is in use" in done.stderr


def test_it_warns_where_it_listens_to_everybody(tmp_path: Path) -> None:
    with Served(quick(tmp_path), *SMALL, "--listen", "0.0.0.0:0") as served:
        assert served.lines[0].startswith("0.0.0.0 is no loopback address")
        assert len(served.lines) == 2
        assert served.end(signal.SIGINT) == (0, "")


def test_no_command_but_this_one_loads_prometheus_client(tmp_path: Path) -> None:
    code = "import sys, gpumon.cli, gpumon.session; print('prometheus_client' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=quick(tmp_path))
    assert done.stdout == "False\n"


def test_a_page_reads_the_same_in_both_formats(small: Served) -> None:
    assert modern(get(f"{small.url}/metrics", Accept=MODERN).body) == classic(get(f"{small.url}/metrics").body)


def test_the_table_of_the_docs_is_that_of_the_code() -> None:
    page = (DOCS / "serve-metrics.md").read_text(encoding="utf-8")
    assert table() in page, "run: python -m tests.exporter.metrics_table"
