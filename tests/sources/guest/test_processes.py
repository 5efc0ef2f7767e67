"""The engines among the processes of a host without gpumon, from what its shell tells of /proc."""

from __future__ import annotations

from gpumon.sources.guest.processes import parse_look

US = "\x1f"
VLLM = US.join(
    ("/usr/bin/python3", "/usr/local/bin/vllm", "serve", "Qwen/Qwen3-8B", "--port", "8101", "--api-key", "s3")
)
WORKER = "VLLM::EngineCore"
INODE = "00000000:00000000 00:00000000 00000000"


def listens(address: str, port: int, uid: int) -> str:
    return (
        f"listens    0: {address}:{port:04X} 00000000:0000 0A {INODE} {uid:5} 0 784047 1 0000000000000000 100 0 0 10 0"
    )


ANY = "00000000"
LOOPBACK = "0100007F"
LOOPBACK_6 = "00000000000000000000000001000000"
LINES = (
    "app 4201, GPU-a, 70000, /usr/bin/python3",
    "app 4201, GPU-b, 70000, /usr/bin/python3",
    "app 4300, GPU-b, [N/A], notebook",
    f"process 4201 4200 1001 {WORKER}{US}",
    f"process 4200 77 1001 {VLLM}{US}",
    f"process 77 1 1001 bash{US}",
    f"process 4300 1 1002 python{US}train.py{US}",
)


def test_a_server_is_found_through_the_process_on_its_gpus() -> None:
    (server,) = parse_look([*LINES, listens(ANY, 8101, 1001)]).servers()
    assert server.pid == 4200
    assert server.url == "http://127.0.0.1:8101"
    assert server.target == "127.0.0.1:8101"
    assert server.uuids == ("GPU-a", "GPU-b")
    assert server.launch.model == "Qwen/Qwen3-8B"


def test_addresses_are_those_that_lead_there_on_the_host() -> None:
    for address, target in ((LOOPBACK, "127.0.0.1:8101"), (LOOPBACK_6, "[::1]:8101"), ("0501A8C0", "192.168.1.5:8101")):
        (server,) = parse_look([*LINES, listens(address, 8101, 1001)]).servers()
        assert server.target == target
    (server,) = parse_look([*LINES, listens("0501A8C0", 8101, 1001), listens(LOOPBACK, 8101, 1001)]).servers()
    assert server.target == "127.0.0.1:8101"


def test_a_port_that_another_user_holds_is_not_the_servers() -> None:
    (server,) = parse_look([*LINES, listens(ANY, 8101, 1002)]).servers()
    assert server.url == ""
    assert "another user" in server.why
    (server,) = parse_look([*LINES, listens(ANY, 8101, 0)]).servers()
    assert server.url, "root's proxy of a container's port"


def test_a_port_that_is_not_open_is_said() -> None:
    (server,) = parse_look([*LINES, listens(ANY, 8000, 1001)]).servers()
    assert server.url == ""
    assert server.why.startswith("port 8101 is not open")


def test_processes_stand_on_their_gpus_without_what_may_be_secret() -> None:
    processes = parse_look(LINES).by_uuid()
    assert [process.pid for process in processes["GPU-b"]] == [4201, 4300]
    assert processes["GPU-a"][0].vram_bytes == 70000 * 2.0**20
    assert processes["GPU-a"][0].name == "python3"
    assert not any("s3" in process.command for process in processes["GPU-a"])


def test_lines_that_are_none_of_it_are_left_out() -> None:
    junk = ("app x", "app 1", "process", "process a b c d", "listens", "listens 0: zz:1 0A", "\x00", "app -1, a, b, c")
    found = parse_look(junk)
    assert (found.apps, found.processes, found.listeners) == ((), {}, ())


def test_a_circle_of_parents_ends() -> None:
    lines = ("app 5, GPU-a, 1, x", f"process 5 6 0 a{US}", f"process 6 5 0 b{US}")
    assert parse_look(lines).servers() == ()


def test_digits_that_are_no_decimals_are_no_pids() -> None:
    seen = parse_look(["app \u00b2, GPU-a, 1, x", f"process \u00b2 1 1001 x{US}", f"process 7 1 \u00b2 x{US}"])
    assert seen.apps == ()
    assert [process.uid for process in seen.processes.values()] == [-1]


def test_what_is_more_than_a_host_sends_is_left_out() -> None:
    """Each line of the list, each argument and each command line costs time: a host that lies has no end of them."""
    long = US.join(["vllm", "serve", *(f"--option-{number}" for number in range(2000))])
    lines = [f"process {pid} {pid + 1} 0 {long}" for pid in range(5, 405)]
    lines += [f"app {5 + number % 400}, GPU-{number % 4}, 1, x" for number in range(20_000)]
    look = parse_look(lines)
    assert len(look.apps) == 1024
    assert sum(len(US.join(process.argv)) for process in look.processes.values()) <= 512 << 10
    assert sum(map(len, look.by_uuid().values())) == 1024
    assert sum(bool(process.argv) for process in look.processes.values()) > 16, "honest ones are all read"
