"""Front ends in the engines' pane and on their page: requests as clients see them, backends, and no GPU's figures."""

from __future__ import annotations

from gpumon.efficiency.service import NO_WORK
from gpumon.readings.frame import EndpointState, EngineKind, Phase
from gpumon.readings.missing import Missing, Reason
from gpumon.readings.snapshot import Backend, Efficiency, Engine, EngineRates, Latency, Load, Quantiles
from tests.each_row import each_row
from tests.records import replace
from tests.tui import scenes
from tests.tui.detail_scenes import flat, page_of, whole
from tests.tui.feed import Still
from tests.tui.painted import engine_row, text
from tests.tui.running import running, text_of
from tests.tui.test_lists import below

URL = "http://127.0.0.1:29000"
BACKENDS = (
    Backend("http://127.0.0.1:8000", "vllm:8000", 1.0, running=4.0, requests_per_s=2.1, failures_per_s=0.0),
    Backend("http://user:pw@10.0.0.7:8000/v1", "", 0.0, running=0.0, requests_per_s=0.2, failures_per_s=0.2),
)
FRONT = Engine(
    "smg:29000",
    EngineKind.SMG,
    Phase.INFERENCE,
    URL,
    EndpointState.OK,
    0.4,
    model="Qwen/Qwen3-8B",
    backends=BACKENDS,
    load=Load(running=6.0, backends_known=2.0, backends_ready=1.0),
    rates=EngineRates(
        requests_per_s=2.3, failures_per_s=0.1, decode_tokens_per_s=NO_WORK, prefill_tokens_per_s=NO_WORK
    ),
    latency=Latency(e2e_s=Quantiles(p95=1.2, mean=0.8, p95_low=1.0, p95_high=2.5, first_bound_s=0.001)),
    efficiency=Efficiency(mfu_ratio=NO_WORK, mbu_ratio=NO_WORK),
)


def page_text(front: Engine, width: int = 120) -> str:
    snapshot = replace(scenes.snapshot(), engines=(scenes.engine(0), front))
    return flat(page_of(snapshot, "engine", URL), width)


@each_row(("width", "model"), [(80, "1/2 ready"), (200, "1/2 ready of Qwen/Qwen3-8B, 0.1/s fail")])
def test_its_row_has_requests_in_place_of_tokens_and_how_many_backends_are_ready(width: int, model: str) -> None:
    line = text(engine_row(FRONT, width))
    assert model in line
    assert "2.3 req/s" in line
    assert "n/a" not in line


def test_a_long_name_leaves_room_for_what_fails() -> None:
    line = text(engine_row(replace(FRONT, model="some-organisation/a-model-with-a-long-name-70B-Instruct"), 200))
    assert "1/2 ready of some-organis" in line
    assert "…, 0.1/s fail" in line
    well = replace(FRONT, failures_per_s=0.0)
    assert "fail" not in text(engine_row(well, 200))


async def test_two_front_ends_are_told_apart_by_their_ports_at_120_columns() -> None:
    fronts = []
    for port in (30001, 30002):
        name = f"vllm_router:{port}"
        fronts.append(replace(FRONT, name=name, kind=EngineKind.VLLM_ROUTER, url=f"http://127.0.0.1:{port}"))
    async with running(Still(replace(scenes.snapshot(), engines=tuple(fronts))), 120, 40) as (app, _):
        lines = below(text_of(app), "engines")
    assert [line.split()[0] for line in lines if "ready" in line] == ["vllm_…:30001", "vllm_…:30002"]


@each_row(
    ("known", "ready", "said"),
    [
        (3.0, Missing(Reason.NOT_EXPOSED), "3 backends"),
        (Missing(Reason.NOT_EXPOSED), 4.0, "4 ready"),
        (Missing(Reason.NOT_EXPOSED), Missing(Reason.NOT_EXPOSED), "front end"),
    ],
)
def test_its_row_says_what_it_tells_of_its_backends(known: float | Missing, ready: float | Missing, said: str) -> None:
    front = replace(FRONT, backends_known=known, backends_ready=ready)
    assert said in text(engine_row(front))


def test_its_page_lists_the_backends_and_how_those_that_are_not_polled_are_added() -> None:
    said = page_text(FRONT)
    assert "127.0.0.1:8000 ready · 2.1 req/s · running 4 · polled as vllm:8000" in said
    assert "10.0.0.7:8000 gets no requests · 0.2 req/s · running 0 · 0.2 req/s failed · not polled" in said
    assert "1 backend not polled" in said
    assert '[[endpoint]] url = "http://10.0.0.7:8000"' in said
    assert "pw" not in said


def test_its_page_has_no_section_of_gpus_and_tokens() -> None:
    said = page_text(FRONT)
    for absent in ("MFU, MBU", "MBU: memory", "energy", "KV cache", "decode", "number of GPUs"):
        assert absent not in said
    assert "its requests are those of its backends (never added)" in said
    assert "E2E" in said


def test_pods_are_named_and_not_offered_as_urls() -> None:
    front = replace(FRONT, kind=EngineKind.GATEWAY, backends=(Backend("llama-0", requests_per_s=2.0),))
    said = page_text(front)
    assert "llama-0 2.0 req/s · not polled" in said
    assert "no URLs: add their engines by the URLs of their metrics" in said
    assert "url =" not in said


def test_of_many_backends_the_first_have_a_line() -> None:
    many = tuple(Backend(f"http://10.0.0.{number}:8000", requests_per_s=1.0) for number in range(40))
    said = page_text(replace(FRONT, backends=many))
    assert "and 8 more" in said
    assert "40 backends not polled" in said
    assert "and 36 more" in said


def test_what_a_backends_state_means_is_said_for_its_kind() -> None:
    assert "10.0.0.7:8000 its last request failed" in page_text(replace(FRONT, kind=EngineKind.LITELLM))
    assert "running requests are left out" in page_text(replace(FRONT, kind=EngineKind.VLLM_STACK))


@each_row("width", [80, 120, 200])
def test_its_page_fits(width: int) -> None:
    snapshot = replace(scenes.snapshot(), engines=(FRONT,))
    assert whole(page_of(snapshot, "engine", URL), width)
