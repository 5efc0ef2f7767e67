"""What the tables of the smaller engines cannot say, over polls and over HTTP; and exporters that are no engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance, EndpointState, EngineKind, EngineReading
from gpumon.sources.engines.adapter import MOST_PARTS, FirstAnswer
from gpumon.sources.engines.detect import sample_names
from gpumon.sources.engines.page_figures import MOST_RANKS
from gpumon.sources.engines.registry import BY_KIND, claiming_row
from gpumon.sources.prometheus.queries import sign_names
from tests.each_row import each_row
from tests.fakes.engine import FakeEngine
from tests.fakes.http_server import LoopbackServer, Reply, Request
from tests.sources.engines.contract import PAGES, Reader, figures
from tests.sources.polling import always, first, polling, until

OK = EndpointState.OK


def body(name: str) -> bytes:
    return (PAGES / name).read_bytes()


def read(kind: EngineKind, *pages: str | bytes) -> tuple[EngineReading, ...]:
    """The parts of the last of these pages."""
    reader = Reader(BY_KIND[kind])
    path = reader.row.paths[0]
    return [reader.read({path: page.encode() if isinstance(page, str) else page}) for page in pages][-1]


def page(text: bytes, path: str = "/metrics") -> FirstAnswer:
    return FirstAnswer(path, frozenset(sample_names(text)), text)


# TensorRT-LLM

TRTLLM = body("trtllm/iterations.prom")
ITL = "trtllm_time_per_output_token_seconds"


def changed(**values: float) -> bytes:
    """The page of TensorRT-LLM with other values of these metrics."""
    lines = (line.rpartition(" ") for line in TRTLLM.decode().splitlines())
    return "".join(f"{head} {values.get(head.partition('{')[0], tail)}\n" for head, _, tail in lines).encode()


def decode_rate(*pages: bytes) -> float:
    return read(EngineKind.TENSORRT_LLM, *pages)[0].ranks[0].gauges[q.DECODE_RATE]


def test_the_time_per_token_is_that_of_the_requests_that_ended_last() -> None:
    few = changed(**{f"{ITL}_sum": 0.46875 + 9 * 0.5, f"{ITL}_count": 49})
    more = changed(**{f"{ITL}_sum": 0.46875 + 15 * 0.03125, f"{ITL}_count": 55})
    assert decode_rate(TRTLLM) == decode_rate(TRTLLM, few) == 1280.0
    assert decode_rate(TRTLLM, few, more) == pytest.approx(15 / 0.03125)


def test_a_gauge_that_stayed_behind_is_no_running_request() -> None:
    """Its gauges are of the last iteration: an idle server goes on saying that a request runs."""
    pages = (TRTLLM, changed(trtllm_scheduled_batch_size=0))
    busy, idle = (read(EngineKind.TENSORRT_LLM, each)[0].ranks[0].gauges for each in pages)
    assert (busy[q.RUNNING], idle[q.RUNNING], idle[q.DECODE_RATE]) == (17.0, 0.0, 0.0)


# Triton

STEPS = 'nv_trt_llm_general_metrics{general_type="iteration_counter",model="m",version="1"}'
GENERATING = (
    'nv_trt_llm_inflight_batcher_metrics{inflight_batcher_specific_metric="generation_requests",model="m",version="1"}'
)


async def test_each_model_of_triton_is_an_engine_of_its_own() -> None:
    with FakeEngine("triton-basic", start_s=41.5) as fake:
        async with polling(fake.url, interval_s=60.0) as source:
            readings = {reading.part: reading for reading in source.readings}
    assert readings.keys() == {"embed", "flaky"}
    embed = readings["embed"]
    assert (embed.state, embed.kind, embed.model) == (OK, EngineKind.TRITON, "embed")
    assert embed.name.endswith("/embed")
    assert readings["flaky"].ranks[0].counters[q.FAILURES] > 0


def test_a_request_that_its_client_took_back_or_that_was_turned_away_is_no_failure() -> None:
    (part,) = read(
        EngineKind.TRITON,
        'nv_inference_request_success{model="m",version="1"} 5\n'
        'nv_inference_request_failure{model="m",reason="CANCELED",version="1"} 2\n'
        'nv_inference_request_failure{model="m",reason="REJECTED",version="1"} 1\n',
    )
    assert part.ranks[0].counters == {q.REQUESTS: 7.0, q.FAILURES: 0.0, q.ABORTS: 2.0, q.REJECTIONS: 1.0}


def test_tokens_of_the_tensorrt_llm_backend_add_up_over_polls() -> None:
    pages, tokens = [], []
    for steps, generating in ((1000, 4), (1100, 8), (1100, 0), (1150, 0), (1160, 2)):
        pages.append(f"{STEPS} {steps}\n{GENERATING} {generating}\n")
        (part,) = read(EngineKind.TRITON, *pages)
        tokens.append(part.ranks[0].counters[q.DECODE_TOKENS])
    assert tokens == [0.0, 600.0, 600.0, 600.0, 610.0]
    assert (part.advance[q.DECODE_TOKENS], part.exact_steps) == (Advance.DERIVED, True)


def test_versions_of_a_model_make_steps_of_their_own() -> None:
    """100 steps of 2 requests and 10 of 8: 280 tokens, not 110 x 10."""
    pages = []
    for one, two in ((100, 50), (200, 60)):
        text = f"{STEPS} {one}\n{GENERATING} 2\n"
        pages.append(text + text.replace('"1"', '"2"').replace(f" {one}", f" {two}").replace(" 2\n", " 8\n"))
    (part,) = read(EngineKind.TRITON, *pages)
    assert (part.ranks[0].counters[q.DECODE_TOKENS], part.ranks[0].counters[q.STEPS]) == (280.0, 260.0)


# NIM


def test_names_without_a_prefix_alone_are_nobodys() -> None:
    generic, nim = body("not_engines/generic-names.prom"), BY_KIND[EngineKind.NIM]
    assert claiming_row(page(generic)) is None
    assert claiming_row(page(generic + b'gpu_cache_usage_perc{model_name="m"} 0.5\n')) is nim
    assert claiming_row(page(generic + b'num_request_max{model_name="m"} 64\n')) is nim
    assert claiming_row(page(b"gpu_cache_usage_perc 0.5\n")) is None


def test_the_engine_inside_a_newer_container_is_told_by_the_path() -> None:
    lines = body("nim/2.0-vllm.prom").splitlines(keepends=True)
    text = b"".join(line for line in lines if b"num_request_max" not in line)
    kinds = [row.kind for path in ("/v1/metrics", "/metrics") if (row := claiming_row(page(text, path))) is not None]
    assert kinds == [EngineKind.NIM, EngineKind.VLLM]


async def test_a_nim_is_found_on_its_own_path() -> None:
    pages = {
        "/v1/metrics": Reply(200, body("nim/1.8.prom")),
        "/v1/version": Reply(200, b'{"release":"1.8.4","api":"3.1.0"}', "application/json"),
    }
    reading = (await first(lambda request: pages.get(request.path, Reply(404, b"no")))).reading
    assert (reading.kind, reading.state, reading.version) == (EngineKind.NIM, OK, "1.8.4")
    assert reading.from_documentation
    assert reading.ranks[0].counters[q.FAILURES] == 5.0, "aborted ones are in it"
    assert "NIM_ENABLE_KV_CACHE_REUSE" in reading.live[q.PREFILL_COMPUTED]


# TGI

TGI = body("tgi/running.prom")


async def test_model_and_version_of_tgi_come_from_its_own_page_asked_once() -> None:
    def server(request: Request) -> Reply:
        info = Reply(200, body("tgi/info.json"), "application/json")
        return {"/metrics": Reply(200, TGI), "/info": info}.get(request.path, Reply(404, b""))

    with LoopbackServer(server) as loopback:
        async with polling(loopback.url) as source:
            assert await until(lambda: "identity" in source.reading.info and len(loopback.requests) > 10)
            reading = source.reading
        asked = [request.path for request in loopback.requests]
    assert (reading.state, reading.kind, reading.version) == (OK, EngineKind.TGI, "3.3.6")
    assert reading.model == reading.model_root == "meta-llama/Llama-3.1-8B-Instruct"
    assert (asked.count("/info"), asked.count("/version")) == (1, 0)


def test_half_of_the_tokens_is_no_restart() -> None:
    cut = b"\n".join(line for line in TGI.splitlines() if not line.startswith(b"tgi_request_skipped_tokens_sum"))
    (whole,), (half,) = read(EngineKind.TGI, TGI), read(EngineKind.TGI, TGI, cut)
    assert whole.ranks[0].counters[q.DECODE_TOKENS] == 700.0
    assert q.DECODE_TOKENS not in {**half.ranks[0].counters, **half.live}


# LMDeploy


def lmdeploy(*tokens: tuple[int, int]) -> EngineReading:
    """After pages with these prompt and cached tokens."""
    labels = '{engine="0",model_name="m"}'
    names = ("lmdeploy:prompt_tokens_total", "lmdeploy:cached_tokens_total")
    pages = ("".join(f"{name}{labels} {value}\n" for name, value in zip(names, both, strict=True)) for both in tokens)
    return read(EngineKind.LMDEPLOY, *pages)[0]


def test_cached_tokens_come_when_a_request_ends_and_do_not_make_the_prefill_fall() -> None:
    """A prompt of 1000 counts at its first token, the 600 of it that were cached at its end."""
    polls = ((1000, 0), (1000, 600), (2000, 600), (2000, 1200), (4000, 1200))
    parts = [lmdeploy(*polls[: n + 1]) for n in range(len(polls))]
    computed = [part.ranks[0].counters[q.PREFILL_COMPUTED] for part in parts]
    assert computed == [1000.0, 1000.0, 1400.0, 1400.0, 2800.0]
    # Once anything was cached it is no rate of now: a burst of prompts would be too much until they end.
    moves = [part.advance[q.PREFILL_COMPUTED] for part in parts]
    assert moves == [Advance.PROMPT, *[Advance.END] * 4]


# Ray Serve


def test_the_gauge_and_the_counter_of_one_count_are_not_added() -> None:
    text = body("ray/vllm.prom")
    lines = [line for line in text.splitlines(keepends=True) if b"ray_vllm_generation_tokens{" not in line]
    twice = figures(read(EngineKind.RAY, text))
    assert twice == figures(read(EngineKind.RAY, b"".join(lines)))
    assert twice["qwen3-8b", "k3v9x2ab", q.DECODE_TOKENS] == 3000.0


async def test_a_node_of_ray_is_an_engine_for_each_model() -> None:
    source = await first(always(Reply(200, body("ray/vllm.prom"))))
    found = [(reading.kind, reading.state, reading.model) for reading in source.readings]
    assert found == [(EngineKind.RAY, OK, "llama-70b"), (EngineKind.RAY, OK, "qwen3-8b")]
    assert len({reading.name for reading in source.readings}) == 2


# Dynamo


def traffic(requests: int, cached_share: float, lag: int) -> Iterator[tuple[bytes, float]]:
    """Pages of a frontend, and the prefill computed till then: what was cached is told `lag` requests later."""
    prompts = [400.0 + 37.0 * (n % 11) for n in range(requests)]
    for booked in (*range(1, requests + 1), *[requests] * lag):
        told = max(0, booked - lag) if booked < requests else requests
        values = {
            'output_tokens_total{model="m"}': booked,
            'input_sequence_tokens_bucket{model="m",le="+Inf"}': booked,
            'input_sequence_tokens_sum{model="m"}': sum(prompts[:booked]),
            'input_sequence_tokens_count{model="m"}': booked,
            'cached_tokens_sum{model="m"}': sum(cached_share * n for n in prompts[:told]),
            'cached_tokens_count{model="m"}': told,
        }
        text = "".join(f"dynamo_frontend_{name} {value}\n" for name, value in values.items())
        yield text.encode(), sum((1.0 - cached_share) * n for n in prompts[:booked])


@each_row("cached_share", [0.0, 0.3, 0.9])
def test_computed_prefill_is_right_though_input_is_booked_before_what_of_it_was_cached(cached_share: float) -> None:
    reader, seen = Reader(BY_KIND[EngineKind.DYNAMO]), []
    for text, truth in traffic(400, cached_share, lag=20):
        (part,) = reader.read({"/metrics": text})
        if (computed := part.ranks[0].counters.get(q.PREFILL_COMPUTED)) is not None and truth > 20_000.0:
            seen.append(computed / truth - 1.0)
    assert max(map(abs, seen)) < 0.03
    assert abs(seen[-1]) < 0.01, "in all, once every request has been told of"


async def test_a_frontend_says_that_it_is_one() -> None:
    llama, qwen = (await first(always(Reply(200, body("dynamo/frontend-1.prom"))))).readings
    assert {llama.kind, qwen.kind} == {EngineKind.DYNAMO}
    assert qwen.info["frontend"] == "yes"
    assert (qwen.model, qwen.part, qwen.state) == ("Qwen/Qwen3-0.6B", "qwen/qwen3-0.6b", OK)
    idle = (await first(always(Reply(200, body("dynamo/idle.prom"))))).reading
    assert (idle.state, "Dynamo answers" in idle.fault) == (EndpointState.STARTING, True)


async def test_a_worker_is_its_engine_with_its_place_in_the_deployment() -> None:
    reading = (await first(always(Reply(200, body("vllm/dynamo-worker.prom"))))).reading
    assert (reading.kind, reading.info["dynamo_component"]) == (EngineKind.VLLM, "backend")
    assert "frontend" not in reading.info
    assert reading.ranks[0].gauges[q.KV_USAGE] == 0.125


# Engines that the same command starts

OF_ONE_COMMAND = [
    ("vllm", "vllm_omni/image.prom", EngineKind.VLLM_OMNI),
    ("vllm", "vllm_omni/speech.prom", EngineKind.VLLM_OMNI),
    ("vllm", "vllm/pooling.prom", EngineKind.VLLM),
    ("sglang", "sglang_diffusion/serving.prom", EngineKind.SGLANG_DIFFUSION),
    ("sglang", "sglang/dp2.prom", EngineKind.SGLANG),
]


@pytest.mark.parametrize(("engine", "name", "kind"), OF_ONE_COMMAND)
async def test_the_page_tells_which_of_the_engines_of_a_command_it_is(engine: str, name: str, kind: EngineKind) -> None:
    """Discovery knows the command alone: `vllm serve --omni`, and `sglang serve` with a diffusion model."""
    reading = (await first(always(Reply(200, body(name))), engine=engine)).reading
    assert (reading.kind, reading.state) == (kind, OK)


async def test_another_fork_is_no_vllm() -> None:
    reading = (await first(always(Reply(200, body("tokenspeed/serving.prom"))), engine="vllm")).reading
    assert reading.state is EndpointState.WRONG_ENGINE
    assert "metrics of TokenSpeed, and the config says vLLM" in reading.fault


def test_a_prometheus_is_asked_for_the_names_that_forks_write() -> None:
    found = sign_names()
    assert {"aphrodite:generation_tokens_total", "tokenspeed:num_requests_total"} <= found
    assert "tokenspeed:request_success_total" not in found, "its meaning is another"
    assert "trtllm:num_requests_running" in found


# MAX


def test_milliseconds_are_read_as_seconds_and_an_unchanged_histogram_stays_the_same_object() -> None:
    text = body("max/serving.prom").decode()
    reader = Reader(BY_KIND[EngineKind.MAX])
    pages = [text, text, text.replace(" 89600.0", " 89700.0")]
    seen = [reader.read({"/metrics": each.encode()})[0].ranks[0].histograms[q.ITL] for each in pages]
    assert seen[0] is seen[1]
    assert [histogram.sum for histogram in seen[1:]] == pytest.approx([89.6, 89.7])
    assert seen[2].bounds is seen[0].bounds
    assert seen[0].bounds[:3] == pytest.approx((0.001, 0.005, 0.01))


# All of them


@each_row(
    ("kind", "line", "most"),
    [
        (EngineKind.VLLM, 'vllm:generation_tokens_total{{engine="{}"}} 1\n', MOST_RANKS),
        (EngineKind.RAY, 'ray_vllm_generation_tokens_total{{ReplicaId="r{}",model_name="m"}} 1\n', MOST_RANKS),
        (EngineKind.DYNAMO, 'dynamo_frontend_output_tokens_total{{model="m{}"}} 1\n', MOST_PARTS),
    ],
)
def test_ever_more_ranks_replicas_and_models_are_bounded(kind: EngineKind, line: str, most: int) -> None:
    reader = Reader(BY_KIND[kind])
    parts = reader.read({"/metrics": "".join(map(line.format, range(most + 5))).encode()})
    assert sum(len(part.ranks) for part in parts) == most
    assert reader.adapter.cut
    reader.read({"/metrics": line.format(0).encode()})
    assert not reader.adapter.cut


FOLDER = PAGES / "not_engines"
SAID = {
    "smg-engine-metrics": ("the workers of SGLang's router", "add the workers, and the router by its metrics port"),
    "queue-proxy": ("KServe's queue-proxy", "add the port of the model's own container"),
    "dynamo-worker": ("a Dynamo worker without its engine's", "start it with the option that publishes them"),
    "ray-without-llm": ("Ray", "is log_engine_metrics on"),
    "xinference-supervisor": ("Xinference's supervisor", "add the metrics page of its workers"),
    "generic-names": ("no engine that gpumon knows", "[[feed]]"),
}


@pytest.mark.parametrize("name", sorted(file.stem for file in FOLDER.iterdir()))
async def test_what_is_no_engine_is_named_with_what_to_do_instead(name: str) -> None:
    text = (FOLDER / f"{name}.prom").read_bytes()
    assert claiming_row(page(text)) is None
    reading = (await first(always(Reply(200, text)))).reading
    assert (reading.state, reading.ranks) == (EndpointState.WRONG_ENGINE, ())
    assert all(words in reading.fault for words in SAID[name]), reading.fault
