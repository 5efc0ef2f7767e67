"""Engines in other network and PID namespaces, and of other users: real ones, by ip netns, unshare and setresuid."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from gpumon.readings.check import CheckState
from gpumon.readings.frame import EndpointState
from gpumon.sources.discovery.network import addresses_of, leads_out, network_of, published
from tests.sources.discovery.servers import ROOT, Server, Servers, free_port, gpus
from tests.sources.discovery.test_following import CORE, OK, PAGES, following

NETWORK = f"198.{18 + os.getpid() // 256 % 2}.{os.getpid() % 256}"
"""Addresses that nobody has (RFC 2544), others for each process that runs tests."""


def permitted(*command: str) -> bool:
    """Whether this user and kernel may make such a namespace."""
    return subprocess.run([*command, "true"], capture_output=True).returncode == 0


needs_network = pytest.mark.skipif(
    not permitted("unshare", "--net"), reason="making a network namespace is not permitted here (needs root)"
)
needs_pids = pytest.mark.skipif(
    not permitted("unshare", "--pid", "--fork", "--mount-proc"),
    reason="making a PID namespace is not permitted here (needs root)",
)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


@pytest.fixture
def container() -> Iterator[list[str]]:
    """A network namespace with a cable to this one, as Docker's bridge gives a container; the words to run inside."""
    name = f"t{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        for words in (
            f"ip link add {name}h type veth peer name {name}c netns {name}",
            f"ip addr add {NETWORK}.1/24 dev {name}h",
            f"ip link set {name}h up",
            f"ip -n {name} addr add {NETWORK}.2/24 dev {name}c",
            f"ip -n {name} link set {name}c up",
            f"ip -n {name} link set lo up",
        ):
            subprocess.run(words.split(), check=True, capture_output=True)
        yield ["ip", "netns", "exec", name]
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


@needs_network
async def test_an_engine_in_a_container_is_polled_at_the_containers_address(
    engines: Servers, container: list[str]
) -> None:
    server = engines.start(
        "vllm", "serve", "m", "--port", "8000", pages=PAGES, workers=CORE, address="0.0.0.0", inside=container
    )
    assert network_of(server.pid) not in (0, network_of())
    assert list(map(str, addresses_of(server.pid))) == [f"{NETWORK}.2"]
    async with following() as followed:
        followed.see(gpus(server.workers))
        await followed.until(lambda: followed.states() == [OK])
        assert followed.readings[0].url == f"http://{NETWORK}.2:8000"
        assert followed.readings[0].gpus == ("GPU-0",)


@needs_network
@pytest.mark.parametrize(
    ("address", "words"),
    [("127.0.0.1", "a published port neither: start it with --host 0.0.0.0"), ("0.0.0.0", "publish its port, and add")],
)
async def test_a_container_that_can_not_be_reached_is_named(engines: Servers, address: str, words: str) -> None:
    alone = ["unshare", "--net", "sh", "-c", 'ip link set lo up; exec "$@"', "sh"]
    server = engines.start("vllm", "serve", "m", "--port", "8000", workers=CORE, address=address, inside=alone)
    async with following() as followed:
        followed.see(gpus(server.workers))
        await followed.until(lambda: followed.readings)
        (row,) = followed.readings
        checks = followed.discovery.checks(followed.readings)
    assert (row.name, row.state, row.model, row.gpus) == ("vllm:8000", EndpointState.REFUSED, "m", ("GPU-0",))
    assert row.fault.startswith(f"server {server.pid} (vllm serve m) listens ")
    assert words in row.fault
    assert followed.faults == [], "the row says it"
    assert [(check.state, check.text.endswith("see engine vllm:8000")) for check in checks] == [(CheckState.OK, True)]
    assert server.asked == []


def neighbour() -> str:
    """An address that a network card of this host leads straight to, and that is not its own; empty: none does."""
    for line in Path("/proc/net/route").read_text().splitlines()[1:]:
        card, *numbers = line.split()
        network, gateway, mask = (int.from_bytes(bytes.fromhex(numbers[at])[::-1], "big") for at in (0, 1, 6))
        if mask and not gateway and leads_out(Path("/sys/class/net") / card):
            hosts = (ipaddress.IPv4Address(network + number) for number in (77, 78))
            return str(next(host for host in hosts if host not in addresses_of()))
    return ""


@needs_network
@pytest.mark.skipif(not neighbour(), reason="no network card leads straight to other hosts")
async def test_a_namespace_with_the_address_of_another_host_has_that_host_asked_for_nothing(engines: Servers) -> None:
    """Any user may make one, without root."""
    address = neighbour()
    alone = ["unshare", "--net", "sh", "-c", f'ip link set lo up; ip addr add {address}/32 dev lo; exec "$@"', "sh"]
    server = engines.start("vllm", "serve", "m", "--port", "8000", workers=CORE, address=address, inside=alone)
    assert list(map(str, addresses_of(server.pid))) == [address]
    async with following() as followed:
        followed.see(gpus(server.workers))
        await followed.until(lambda: followed.readings)
        (row,) = followed.readings
    assert (row.state, address in row.url) == (EndpointState.REFUSED, False)
    assert "that no network of this one leads to" in row.fault


def test_bonds_and_vlans_of_a_card_lead_out_and_bridges_and_cables_do_not(tmp_path: Path) -> None:
    """Folders as the kernel has them in /sys/class/net."""
    for name in ("eth0/device", "bond0", "bond0.7", "veth1", "docker0/bridge", "br0/bridge"):
        (tmp_path / name).mkdir(parents=True)
    for upper, lower in (("bond0", "eth0"), ("bond0.7", "bond0"), ("docker0", "veth1"), ("br0", "eth0")):
        (tmp_path / upper / f"lower_{lower}").symlink_to(tmp_path / lower)
    assert {folder.name for folder in tmp_path.iterdir() if leads_out(folder)} == {"eth0", "bond0", "bond0.7"}


@needs_network
async def test_a_published_port_in_the_config_is_the_containers(engines: Servers, container: list[str]) -> None:
    server = engines.start(
        "vllm", "serve", "m", "--port", "8000", pages=PAGES, workers=CORE, address="0.0.0.0", inside=container
    )
    proxy = engines.start(
        "proxy", "-host-ip", "127.0.0.1", "-host-port", str(port := free_port()),
        "-container-ip", f"{NETWORK}.2", "-container-port", "8000", comm="docker-proxy", port=port,
    )  # fmt: skip
    async with following(proxy.url) as followed:
        followed.see(gpus(server.workers))
        await followed.until(lambda: followed.discovery.chains and followed.discovery.chains[0].configured == proxy.url)
        assert followed.readings == ()
        assert followed.owner.pids_of(proxy.url) == set(server.workers)
    assert server.asked == []


PROXY = """
import os, sys
with open("/proc/self/comm", "w") as comm:
    comm.write("docker-proxy")
os.setresuid(*[int(sys.argv[1])] * 3)
print("ready", flush=True)
sys.stdin.read()
"""


@needs_root
@pytest.mark.parametrize("uid", [0, 12_345])
def test_a_process_hands_on_no_port_of_another_user(uid: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        words = ["-host-port", str(port), "-container-ip", f"{NETWORK}.2", "-container-port", "8000"]
        command = [sys.executable, "-c", PROXY, str(uid), *words]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as proxy:
            assert proxy.stdout is not None
            proxy.stdout.readline()
            told = port in {one.host_port for one in published()}
            proxy.kill()
    assert told is (uid == 0)


@needs_pids
async def test_a_container_with_pids_of_its_own_is_seen_from_the_host(engines: Servers) -> None:
    server = engines.start(
        "vllm", "serve", "m", "--port", str(free_port()), pages=PAGES, inside=["unshare", "--pid", "--fork"]
    )
    outer = _child(server.process.pid)
    assert server.pid == 1
    async with following() as followed:
        followed.see(gpus([outer]))
        await followed.until(lambda: followed.states() == [OK])
        assert followed.readings[0].url == server.url


def _child(pid: int) -> int:
    """The child that `unshare` forked."""
    (child,) = psutil.Process(pid).children()
    return child.pid


@needs_pids
def test_processes_of_the_host_are_named_inside_a_container(engines: Servers) -> None:
    server = engines.start("vllm", "serve", "m", "--port", str(free_port()), pages=PAGES, workers=CORE)
    code = (
        "import asyncio\nfrom gpumon.sources.discovery.source import EngineDiscovery\n"
        "from tests.sources.discovery.servers import gpus\n"
        "async def main():\n"
        "    found = EngineDiscovery(0.1, again_s=0.1, soonest_s=0.05)\n"
        f"    found.see(gpus({server.workers!r}))\n"
        "    await found.start()\n"
        "    await found.ready(60.0)\n"
        "    print([fault.text for fault in (await found.poll(0.0)).faults])\n"
        "    print([check.text for check in found.checks(())])\n"
        "    await found.close()\n"
        "asyncio.run(main())"
    )
    inside = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", code]
    done = subprocess.run(inside, capture_output=True, text=True, timeout=90)
    fault, check = done.stdout.splitlines()
    assert f"GPU 0: process {server.workers[0]} is not in /proc here" in fault, done.stderr
    assert f"pid {server.workers[0]} -> not in /proc here" in check
    assert "another PID namespace" in fault
    assert "add its URL as [[endpoint]]" in fault
    assert server.asked == []


AS_NOBODY = """
import asyncio, os, sys
from tests.sources.discovery.servers import gpus
from tests.sources.discovery.test_following import following
from tests.sources.polling import first, vllm
from gpumon.sources.packaged import llm_catalogue

async def main():
    await first(vllm)
    llm_catalogue()  # with the modules that this user may not read any more
    user = int(sys.argv[2])
    os.setgroups([]); os.setresgid(user, user, user); os.setresuid(user, user, user)
    async with following() as followed:
        followed.see(gpus(*eval(sys.argv[1])))
        shown = lambda: [state.value for state in followed.states()]
        await followed.until(lambda: followed.faults or shown() in (["ok"], ["refused"]))
        refusals = [reading.fault for reading in followed.readings if reading.fault]
        print([(reading.url, reading.gpus) for reading in followed.readings], followed.faults + refusals)
asyncio.run(main())
"""


def seen_by_nobody(*pids: list[int], user: int = 65534, inside: Sequence[str] = ()) -> str:
    words = [*inside, sys.executable, "-c", AS_NOBODY, repr(pids), str(user)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@needs_root
def test_another_users_engine_is_found_by_the_port_of_its_command_line(engines: Servers) -> None:
    server = engines.start("vllm", "serve", "m", "--port", str(free_port()), pages=PAGES, workers=CORE)
    assert seen_by_nobody(server.workers) == f"[({server.url!r}, ('GPU-0',))] []"


@needs_root
def test_a_port_that_belongs_to_a_third_user_is_not_asked(engines: Servers) -> None:
    """The command line of one user's server names a port that another user's process holds."""
    bind = "import os, socket; os.setuid(12345); s = socket.create_server(('127.0.0.1', 0))"
    listen = f"{bind}; print(s.getsockname()[1], flush=True); s.accept()"
    stranger = subprocess.Popen([sys.executable, "-c", listen], stdout=subprocess.PIPE, text=True)
    try:
        assert stranger.stdout is not None
        server = engines.start("vllm", "serve", "m", "--port", stranger.stdout.readline().strip(), late=True)
        assert "is held by another process" in seen_by_nobody([server.pid])
        assert stranger.poll() is None, "it would have ended with a connection"
    finally:
        stranger.kill()
        stranger.communicate()


BESIDE = """
import asyncio, sys
from tests.sources.discovery.servers import gpus
from tests.sources.discovery.test_following import following

async def look(pids, configured):
    async with following(*configured) as followed:
        followed.see(gpus(pids))
        polled = followed.polled
        await followed.until(lambda: followed.faults or configured or [s.value for s in followed.states()] == ["ok"])
        await followed.until(lambda: not configured or followed.owner.gpus_of(polled[0].url.base, followed.gpus)[1])
        if configured:
            print(followed.owner.gpus_of(polled[0].url.base, followed.gpus)[0])
        print([(reading.url, reading.gpus) for reading in followed.readings], followed.faults)

async def main():
    for pids, configured in eval(sys.argv[1]):
        await look(pids, configured)
asyncio.run(main())
"""


def seen_beside(server: Server, *looks: tuple[Sequence[int], Sequence[str]]) -> list[str]:
    """What gpumon finds, look by look, that was started inside the container of this server (`docker exec`).

    Each look has the processes on the GPU, and the configured URLs.
    """
    inside = ["nsenter", "--target", str(_child(server.process.pid)), "--pid", "--mount"]
    done = subprocess.run(
        [*inside, sys.executable, "-c", BESIDE, repr(looks)], capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@needs_pids
def test_the_first_process_of_a_container_is_the_server_of_its_workers(engines: Servers) -> None:
    """An image whose entry point is `vllm serve`, and gpumon started beside it."""
    alone = ["unshare", "--pid", "--fork", "--mount-proc"]
    server = engines.start("vllm", "serve", "m", "--port", str(free_port()), pages=PAGES, workers=CORE, inside=alone)
    assert server.pid == 1
    found = f"[({server.url!r}, ('GPU-0',))] []"
    seen = seen_beside(server, (server.workers, []), ([1], []), (server.workers, [server.url]))
    assert seen == [found, found, "('GPU-0',)", "[] []"]


POD = (ROOT / "docs" / "kubernetes.yaml").read_text()
APART = {"hostNetwork": ["unshare", "--net"], "hostPID": ["unshare", "--pid", "--fork", "--mount-proc"]}
"""What the container's runtime does where a pod does not ask for the host's."""


def namespaces_of(pod: str) -> list[str]:
    return [word for asked, words in APART.items() if f"\n      {asked}: true" not in pod for word in words]


@needs_root
@needs_network
@needs_pids
def test_the_pod_of_the_shipped_daemon_set_sees_an_engine_in_another_pod(
    engines: Servers, container: list[str]
) -> None:
    """Its user and its namespaces, as `docs/kubernetes.yaml` has them, beside an engine with an address of its own."""
    server = engines.start(
        "vllm", "serve", "m", "--port", "8000", pages=PAGES, workers=CORE, address="0.0.0.0", inside=container
    )
    found = re.search(r"\n +runAsUser: (\d+)\n", POD)
    assert found is not None
    user = int(found[1])
    assert user != 0
    seen = seen_by_nobody(server.workers, user=user, inside=namespaces_of(POD))
    assert seen == f"[('http://{NETWORK}.2:8000', ('GPU-0',))] []"
    asked = len(server.asked)
    assert asked > 0

    for setting, words in (("hostNetwork", "another network namespace"), ("hostPID", "another PID namespace")):
        pod = POD.replace(f"      {setting}: true", "")
        blind = seen_by_nobody(server.workers, user=user, inside=namespaces_of(pod))
        assert words in blind, setting
    assert len(server.asked) == asked, "without both it asks nobody"
