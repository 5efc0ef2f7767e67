"""A dcgm-exporter polled over real HTTP: what its GPUs say, how old that is, and every way in which it fails."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from gpumon.config.schema import Dcgm
from gpumon.readings.dcgm import NOT_READ
from gpumon.readings.frame import GpuReading, GpuState
from gpumon.sources.dcgm import DcgmSource
from gpumon.sources.dcgm_gpus import EXPORTER_S, ChangePace
from gpumon.sources.fetch import Limits
from tests.each_row import each_row
from tests.fakes.http_server import LoopbackServer, Reply, Request, self_signed
from tests.sources.polling import HURRIED, PATIENT, QUICK, always, until

PAGES = Path(__file__).parents[1] / "data" / "pages" / "dcgm"
ALL = (PAGES / "a100-all.prom").read_bytes()
KEY = "sk-not-in-any-text"


@contextlib.asynccontextmanager
async def polling(
    url: str, *, interval_s: float = 0.03, limits: Limits = PATIENT, **more: Any
) -> AsyncIterator[DcgmSource]:
    """A started source that has had its first answer or failure."""
    source = DcgmSource(Dcgm(url=url, interval_s=interval_s, **more), limits=limits, back_off=HURRIED)
    await source.start()
    try:
        await source.ready(60.0)
        yield source
    finally:
        await source.close()


async def gpus(source: DcgmSource) -> tuple[GpuReading, ...]:
    return (await source.poll(0.0)).gpus


async def faults(source: DcgmSource) -> str:
    found = [fault.text for fault in (await source.poll(0.0)).faults]
    assert all(text.isprintable() and len(text) < 250 for text in found)
    return "; ".join(found)


async def falls(source: DcgmSource, words: str) -> None:
    """Wait until a fault with these words is there."""
    end_s = time.monotonic() + 60.0
    while words not in await faults(source):
        assert time.monotonic() < end_s
        await asyncio.sleep(0.01)


async def read(name: str) -> tuple[GpuReading, ...]:
    with LoopbackServer(always(Reply(body=(PAGES / name).read_bytes()))) as server:
        async with polling(server.url, interval_s=60.0) as source:
            assert await faults(source) == ""
            return await gpus(source)


def moving(page: bytes, *names: str) -> Callable[[], bytes]:
    """Makes the page anew, with other numbers under these names at each call."""
    calls = count()

    def make() -> bytes:
        n = next(calls)
        lines = page.decode().splitlines()
        return "\n".join(
            f"{line[: line.rindex(' ')]} {float(line.rsplit(' ', 1)[1]) * (1 + n / 1000):.6f}"
            if line.startswith(tuple(f"{name}{{" for name in names))
            else line
            for line in lines
        ).encode()

    return make


async def test_the_readings_of_a_page() -> None:
    busy, idle = await read("a100-all.prom")
    assert (busy.index, busy.name, busy.state) == (0, "NVIDIA A100-SXM4-80GB", GpuState.OK)
    assert (busy.source, busy.host, busy.activity_source) == ("dcgm", "gpu-07", "dcgm")
    assert (busy.sm_active_ratio, busy.dram_active_ratio, busy.power_w) == (0.714302, 0.603125, 287.413)
    assert {"sm_active_ratio", "dram_active_ratio", "pcie_tx_bytes_per_s"} < set(busy.from_dcgm)
    assert busy.monotonic_s == busy.activity_monotonic_s == pytest.approx(time.monotonic(), abs=5)
    assert busy.activity_interval_s == 60.0, "never shorter than its polls"
    assert (idle.busy_ratio, idle.xid) == (0.0, ())


async def test_what_gpumon_does_not_read_from_an_exporter_is_no_claim_about_the_hardware() -> None:
    for gpu in (*await read("a100-all.prom"), *await read("mig.prom")):
        assert {gpu.fan_ratio, gpu.ecc_mode, gpu.persistence_mode, gpu.power_default_w} == {NOT_READ}


async def test_slices_are_readings_of_their_own_behind_their_gpu() -> None:
    parent, *slices, whole = await read("mig.prom")
    assert (parent.mig, parent.power_w, parent.activity_source) == (True, 171.905, "")
    assert [one.mig_instance for one in slices] == ["3", "5", "6"]
    assert {one.parent_uuid for one in slices} == {parent.uuid}
    assert len({one.uuid for one in (parent, *slices, whole)}) == 5
    assert {one.mig_profile for one in slices} == {"2g.20gb"}
    assert [one.index for one in slices] == [0, 0, 0]
    assert (whole.index, whole.mig, whole.activity_source) == (1, False, "dcgm")


async def test_without_profiling_fields_nothing_is_said_to_be_measured() -> None:
    for one in await read("old.prom"):
        assert (one.activity_source, one.from_dcgm, one.busy_ratio) == ("", (), 0.64)


async def test_hosts_of_one_page_stand_in_order_and_share_no_driver() -> None:
    with LoopbackServer(always(Reply(body=(PAGES / "federated.prom").read_bytes()))) as server:
        async with polling(server.url, interval_s=60.0) as source:
            found = await source.poll(0.0)
    assert [(one.host[:6], one.index) for one in found.gpus] == [
        ("node-0", 0),
        ("node-0", 1),
        ("node-1", 0),
        ("node-1", 1),
    ]
    assert found.driver == ""


async def test_held_values_grow_old_however_often_they_are_asked_for() -> None:
    with LoopbackServer(always(Reply(body=ALL))) as server:
        async with polling(server.url) as source:
            first = await gpus(source)
            assert await until(lambda: len(server.requests) > 5)
            assert await gpus(source) == first
            assert first[0].activity_interval_s == EXPORTER_S


async def test_the_exporters_interval_is_learnt_from_its_changes() -> None:
    make = moving(ALL, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_PROF_DRAM_ACTIVE")
    pages = [make() for _ in range(400)]
    began_s = time.monotonic()
    with LoopbackServer(lambda _: Reply(body=pages[int((time.monotonic() - began_s) / 0.2)])) as server:
        async with polling(server.url) as source:

            async def interval_s() -> float:
                return (await gpus(source))[0].activity_interval_s

            assert await interval_s() == EXPORTER_S
            while (learnt_s := await interval_s()) == EXPORTER_S:
                assert time.monotonic() - began_s < 60.0
                await asyncio.sleep(0.02)
            assert 0.1 < learnt_s < EXPORTER_S / 2
            one = (await gpus(source))[0]
            assert one.monotonic_s == one.activity_monotonic_s
            assert began_s <= one.monotonic_s <= time.monotonic()


async def test_activity_that_stands_still_while_the_rest_moves_is_old() -> None:
    """As when a profiler takes the counters away: the busy GPU's are held, the idle one's are still 0."""
    make = moving(ALL, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")
    with LoopbackServer(lambda _: Reply(body=make())) as server:
        async with polling(server.url) as source:
            before = await gpus(source)
            assert await until(lambda: len(server.requests) > 8)
            busy, idle = await gpus(source)
    assert busy.monotonic_s > before[0].monotonic_s
    assert busy.activity_monotonic_s == before[0].activity_monotonic_s
    assert idle.activity_monotonic_s == idle.monotonic_s > before[1].monotonic_s


async def test_xid_errors_are_those_that_come_while_it_is_watched() -> None:
    def page(code: int) -> bytes:
        return ALL + b'DCGM_FI_DEV_XID_ERRORS{gpu="5",UUID="GPU-x",Hostname="gpu-07"} %d\n' % code

    code = [43]
    with LoopbackServer(lambda _: Reply(body=page(code[0]))) as server:
        async with polling(server.url) as source:
            assert (await gpus(source))[2].xid == (), "it came before gpumon did"
            for code[0] in (79, 0, 79):
                seen = len(server.requests)
                assert await until(lambda seen=seen: len(server.requests) > seen + 2)
            assert [event.code for event in (await gpus(source))[2].xid] == [79, 79]


async def test_an_exporter_that_comes_back_under_another_name_has_the_same_gpus() -> None:
    name = [b"exporter-8x2kp"]
    with LoopbackServer(lambda _: Reply(body=ALL.replace(b"gpu-07", name[0]))) as server:
        async with polling(server.url) as source:
            before = [one.uuid for one in await gpus(source)]
            name[0] = b"exporter-q7d4z"
            seen = len(server.requests)
            assert await until(lambda: len(server.requests) > seen + 2)
            after = await gpus(source)
    assert [one.uuid for one in after] == before
    assert {one.host for one in after} == {"exporter-q7d4z"}


async def test_a_gpu_that_leaves_the_page_stays_with_its_age() -> None:
    lines = ALL.splitlines()
    page = [ALL]
    with LoopbackServer(lambda _: Reply(body=page[0])) as server:
        async with polling(server.url) as source:
            before = await gpus(source)
            page[0] = b"\n".join(line for line in lines if b'gpu="1"' not in line)
            seen = len(server.requests)
            assert await until(lambda: len(server.requests) > seen + 2)
            after = await gpus(source)
    assert after[1] == before[1]
    assert after[0].monotonic_s > before[0].monotonic_s


ANSWERS = {
    "not found": (Reply(404, b"no"), ("404", "/metrics", "9400")),
    "login": (Reply(401, b"who are you"), ("401", "api_key_env", "[dcgm]")),
    "forbidden": (Reply(403, b"no"), ("403",)),
    "broken": (Reply(500, b"oops"), ("500", "log")),
    "elsewhere": (Reply(302, b"", headers={"Location": "https://user:pw@sso/?token=abc"}), ("302", "URL")),
    "html": (Reply(200, b"<html>hello</html>", "text/html"), ("no GPU of a dcgm-exporter", "9400")),
    "empty": (Reply(200, b""), ("no GPU of a dcgm-exporter", "30 s")),
    "an engine": (Reply(200, b'vllm:num_requests_running{engine="0"} 1\n'), ("no GPU of a dcgm-exporter",)),
    "binary": (Reply(200, b"\x00\x7fELF\xff" * 100), ("no GPU of a dcgm-exporter",)),
    "gzip that is none": (Reply(200, ALL, headers={"Content-Encoding": "gzip"}), ("marked as compressed",)),
    "half": (Reply(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\nDCGM"), ("broke off",)),
    "endless": (Reply(200, iter(lambda: b"x" * 100, b""), delay_s=0.1), ("no complete answer",)),
    "too large": (Reply(200, b"# \n" * 4_000_000), ("larger than 8 MiB",)),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_what_is_no_page_of_it_is_named_with_the_fix(name: str) -> None:
    reply, words = ANSWERS[name]
    limits = QUICK if name == "endless" else PATIENT
    with LoopbackServer(always(reply)) as server:
        async with polling(server.url, interval_s=60.0, limits=limits) as source:
            text = await faults(source)
            assert all(word in text for word in words), text
            assert "pw" not in text
            assert "abc" not in text
            assert await gpus(source) == ()


async def test_an_exporter_that_goes_and_comes_back() -> None:
    make = moving(ALL, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")
    with LoopbackServer(lambda _: Reply(body=make())) as server:
        async with polling(server.url) as source:
            before = await gpus(source)
            server.refuse()
            await falls(source, "nothing listens")
            assert "9400" in await faults(source)
            held = await gpus(source)
            assert [one.uuid for one in held] == [one.uuid for one in before]
            server.listen()
            asked = len(server.requests)
            assert await until(lambda: len(server.requests) > asked + 2)
            assert await faults(source) == ""
            assert (await gpus(source))[0].monotonic_s > held[0].monotonic_s


async def test_the_key_goes_out_only_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def guarded(request: Request) -> Reply:
        return Reply(body=ALL) if request.headers.get("authorization") == f"Bearer {KEY}" else Reply(401, b"no")

    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    with LoopbackServer(guarded) as server:
        async with polling(server.url, api_key_file=str(file)) as source:
            assert len(await gpus(source)) == 2
            assert await until(lambda: len(server.requests) > 4)
            assert [bool(one.headers.get("authorization")) for one in server.requests[:4]] == [False, True, True, True]
            assert KEY not in repr(source)
        monkeypatch.setenv("WRONG", "wrong")
        async with polling(server.url, interval_s=60.0, api_key_env="WRONG") as source:
            assert "the key was refused: check what WRONG holds" in await faults(source)
        async with polling(server.url, interval_s=60.0, api_key_env="ABSENT_KEY") as source:
            assert "ABSENT_KEY" in await faults(source)


async def test_polling_that_is_stopped_ends_at_whatever_moment_that_comes() -> None:
    """A cancellation that came as a request ended was lost once in 25 to 100 times, and the polling went on."""
    chance = random.Random(7)
    before = asyncio.all_tasks()

    async def stopped() -> None:
        async with polling(server.url, interval_s=0.01):
            await asyncio.sleep(chance.uniform(0.0, 0.1))

    with LoopbackServer(always(Reply(body=ALL))) as server:
        for _ in range(20):
            await asyncio.gather(*(stopped() for _ in range(20)))
    await until(lambda: asyncio.all_tasks() <= before)
    assert asyncio.all_tasks() <= before


async def test_a_certificate_that_nobody_trusts(tmp_path: Path) -> None:
    pair = self_signed(tmp_path)
    with LoopbackServer(always(Reply(body=ALL)), tls=pair) as server:
        async with polling(server.url, interval_s=60.0) as source:
            assert "tls_ca" in await faults(source)
        async with polling(server.url, interval_s=60.0, tls_ca=str(pair[0])) as source:
            assert len(await gpus(source)) == 2


async def test_a_page_with_more_gpus_than_are_read_says_so() -> None:
    body = b"".join(b'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="%d"} 40\n' % n for n in range(2000))
    with LoopbackServer(always(Reply(body=body))) as server:
        async with polling(server.url, interval_s=60.0) as source:
            assert "more GPUs or series" in await faults(source)
            assert len(await gpus(source)) == 1024


async def test_other_gpus_on_every_page_do_not_add_up() -> None:
    pages = count()

    def other(_: Request) -> Reply:
        n = next(pages)
        rows = (f'DCGM_FI_DEV_GPU_TEMP{{gpu="{i}",UUID="{n}-{i}",Hostname="{n}"}} 40\n' for i in range(900))
        return Reply(body="".join(rows).encode())

    with LoopbackServer(other) as server:
        async with polling(server.url) as source:
            assert await until(lambda: len(server.requests) > 4)
            assert len(await gpus(source)) <= 1024


async def test_a_hanging_exporter_holds_nothing_up() -> None:
    with LoopbackServer(always(Reply(200, [b"x"], delay_s=60.0))) as server:
        source = DcgmSource(Dcgm(url=server.url), limits=PATIENT, back_off=HURRIED)
        began_s = time.monotonic()
        await source.start()
        assert (await source.poll(0.0)).gpus == ()
        await source.close()
        assert time.monotonic() - began_s < 55.0


def test_a_malformed_url_is_an_error_that_does_not_repeat_it() -> None:
    with pytest.raises(ValueError, match="no user or password") as caught:
        DcgmSource(Dcgm(url=f"http://me:{KEY}@h"))
    assert KEY not in str(caught.value)


def learnt(*seen: tuple[float, int] | None) -> ChangePace:
    """A pace after answers (moment, value); None is an answer that did not come."""
    pace = ChangePace(5.0)
    for one in seen:
        pace.miss() if one is None else pace.see(one[1], one[0])
    return pace


def polled(interval_s: float, *, seconds: int = 600) -> ChangePace:
    """A pace after polls each 5 s of an exporter that measures each `interval_s`, from its 7th second on."""
    return learnt(*((float(at), int((at + 7) / interval_s)) for at in range(0, seconds, 5)))


@each_row(("interval_s", "low", "high"), [(30, 30, 30), (10, 10, 10), (1, 5, 5), (12, 10, 15), (60, 60, 60)])
def test_an_interval_is_learnt_as_well_as_the_polls_can_tell(interval_s: float, low: float, high: float) -> None:
    assert low <= polled(interval_s).interval_s <= high


def test_a_change_is_dated_to_the_poll_that_saw_it() -> None:
    assert learnt((0, 1), (5, 1), (10, 2), (15, 2)).changed_s == 10


def test_before_two_changes_were_seen_the_default_holds() -> None:
    assert learnt((0, 1)).interval_s == EXPORTER_S
    assert learnt((0, 1), (5, 1), (10, 2)).interval_s == EXPORTER_S, "the first page may be of any age"
    assert learnt((0, 1), (5, 2), (10, 2), (15, 3)).interval_s == 10


def test_a_page_caught_in_the_middle_and_a_long_freeze_do_not_decide() -> None:
    torn = learnt(*((at, v) for start in range(0, 300, 30) for at, v in ((start, start), (start + 5, start + 1))))
    assert torn.interval_s == 25, "5 and 25 in turn"
    frozen = learnt(*((float(at), at // 30 if at < 150 or at >= 750 else 4) for at in range(0, 900, 5)))
    assert frozen.interval_s == 30


def test_changes_in_an_outage_are_not_dated() -> None:
    pace = learnt((0, 1), (5, 2), None, None, (120, 3), (125, 3), (150, 4), (180, 5))
    assert pace.interval_s == 30
