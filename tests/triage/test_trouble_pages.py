"""Pages of a vLLM server that gets into trouble, through scanner, adapter, deriver and rules in virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gpumon.efficiency.deriver import Deriver
from gpumon.readings.frame import EndpointState, Frame, GpuProcess, GpuReading, HostReading
from gpumon.readings.snapshot import Kind, Level, Limit, Snapshot, Verdict
from gpumon.readings.verdict import EventKind
from gpumon.sources.engines.vllm import VllmAdapter
from gpumon.sources.exposition import Scanner
from gpumon.sources.packaged import gpu_catalogue
from gpumon.triage.render import verdict_text
from gpumon.triage.triage import Triage
from tests.each_row import each_row
from tests.efficiency.polls import LLAMA_8B, gpu
from tests.records import replace

URL: Final = "http://127.0.0.1:8000"
BEGAN_S: Final = 1_767_225_600.0
POLL_S: Final = 5
"""Seconds between two polls."""
WELL: Final[Mapping[str, Any]] = {
    "requests": 4.0,
    "errors": 0.0,
    "given_up": 0.0,
    "given_up_early": 0.0,
    "refused": 0.0,
    "cut": 0.0,
    "corrupted": None,
    "broken": 0.0,
    "prompt": 600.0,
    "hits": 0.85,
    "answer": 150.0,
    "running": 12.0,
    "waiting": 0.0,
    "kv": 0.3,
    "ttft_s": 0.2,
    "gap_s": 0.02,
    "drafts": 0.0,
    "accepted": 0.0,
    "idle_ranks": (),
    "ranks": 1,
    "loras": ("", ""),
}
"""What a server does per second, its gauges and latencies. `given_up_early`: the part of `given_up` without a first
token; `cut`: the share of answers that end at their limit; `corrupted`: None where it does not look. `idle_ranks` get
no request."""
TTFT_BOUNDS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 40.0)
GAP_BOUNDS: Final = (0.01, 0.025, 0.05, 0.1, 0.2)


class Server:
    """The counters of a vLLM server, and its page."""

    def __init__(self) -> None:
        self._counts: dict[str, float] = {}
        self._gauges: dict[str, float] = {}

    def run(self, seconds: float, now_s: float, does: Mapping[str, Any]) -> None:
        """Serve for so long."""
        ranks = [str(rank) for rank in range(does["ranks"])]
        working = [rank for rank in ranks if int(rank) not in does["idle_ranks"]]
        self._gauges = {}
        for rank in ranks:
            works = rank in working
            part = seconds / len(working) if works else 0.0
            self._serve(rank, part, does)
            labels = f'{{engine="{rank}",model_name="m"}}'
            self._gauges[f"vllm:num_requests_running{labels}"] = does["running"] / len(working) if works else 0.0
            self._gauges[f"vllm:num_requests_waiting{labels}"] = does["waiting"] / len(working) if works else 0.0
            self._gauges[f"vllm:kv_cache_usage_perc{labels}"] = does["kv"] if works else 0.0
        post = 'http_requests_total{handler="/v1/chat/completions",method="POST",'
        self._add(f'{post}status="2xx"}}', seconds * (does["requests"] + does["errors"]))
        self._add(f'{post}status="5xx"}}', seconds * does["broken"])
        self._add(f'{post}status="4xx"}}', seconds * does["refused"])
        if does["loras"][0]:
            running, waiting = does["loras"]
            told = f'max_lora="2",running_lora_adapters="{running}",waiting_lora_adapters="{waiting}"'
            self._gauges[f"vllm:lora_requests_info{{{told}}}"] = BEGAN_S + now_s

    def _serve(self, rank: str, seconds: float, does: Mapping[str, Any]) -> None:
        label = f'engine="{rank}",model_name="m"'
        finished = does["requests"] - does["given_up"]
        cut = finished * does["cut"]
        reasons = (("stop", finished - cut), ("length", cut), ("error", does["errors"]), ("abort", 0.0))
        if does["corrupted"] is not None:
            self._add(f"vllm:corrupted_requests_total{{{label}}}", seconds * does["corrupted"])
        for reason, per_s in reasons:
            self._add(f'vllm:request_success_total{{{label},finished_reason="{reason}"}}', seconds * per_s)
        prompts = seconds * does["requests"]
        tokens = prompts * does["answer"]
        for name, more in (
            ("prompt_tokens_total", prompts * does["prompt"]),
            ("prompt_tokens_cached_total", prompts * does["prompt"] * does["hits"]),
            ("generation_tokens_total", tokens),
            ("iteration_tokens_total_count", seconds / does["gap_s"] if does["running"] else 0.0),
            ("num_preemptions_total", 0.0),
            ("spec_decode_num_drafts_total", seconds * does["drafts"]),
            ("spec_decode_num_draft_tokens_total", seconds * does["drafts"] * 4.0),
            ("spec_decode_num_accepted_tokens_total", seconds * does["drafts"] * 4.0 * does["accepted"]),
        ):
            self._add(f"vllm:{name}{{{label}}}", more)
        source = "prompt_tokens_by_source_total"
        computed = prompts * does["prompt"] * (1.0 - does["hits"])
        self._add(f'vllm:{source}{{{label},source="local_compute"}}', computed)
        first_tokens = prompts - seconds * does["given_up_early"]
        self._observe("time_to_first_token_seconds", label, TTFT_BOUNDS, does["ttft_s"], first_tokens)
        answers = seconds * finished
        self._add(f"vllm:request_generation_tokens_sum{{{label}}}", answers * does["answer"])
        self._add(f"vllm:request_generation_tokens_count{{{label}}}", answers)
        self._add(f'vllm:request_generation_tokens_bucket{{{label},le="+Inf"}}', answers)
        self._observe("inter_token_latency_seconds", label, GAP_BOUNDS, does["gap_s"], tokens)
        self._observe("request_queue_time_seconds", label, TTFT_BOUNDS, 0.001, prompts)

    def _observe(self, name: str, label: str, bounds: tuple[float, ...], value: float, times: float) -> None:
        for bound in (*bounds, float("inf")):
            le = "+Inf" if bound == float("inf") else f"{bound:g}"
            self._add(f'vllm:{name}_bucket{{{label},le="{le}"}}', times if value <= bound else 0.0)
        self._add(f"vllm:{name}_sum{{{label}}}", value * times)
        self._add(f"vllm:{name}_count{{{label}}}", times)

    def _add(self, series: str, more: float) -> None:
        self._counts[series] = self._counts.get(series, 0.0) + more

    def page(self) -> bytes:
        """What it answers at /metrics."""
        lines = [f"{series} {value!r}" for series, value in (self._counts | self._gauges).items()]
        config = 'vllm:cache_config_info{block_size="16",num_gpu_blocks="20000",engine="0"} 1.0'
        started = f"process_start_time_seconds {BEGAN_S - 9000.0}"
        return "\n".join([*lines, config, started, ""]).encode()


class Play:
    """One server on GPUs, polled and judged every `POLL_S`."""

    def __init__(self, **of_gpu: Any) -> None:
        self._server = Server()
        self._adapter = VllmAdapter()
        self._scanner = Scanner(self._adapter.wanted_names)
        self._deriver = Deriver(gpu_catalogue())
        self._triage = Triage()
        self._of_gpu = of_gpu
        self.now_s = 0
        self.verdicts: list[Verdict] = []
        self.told: list[Limit] = []

    def play(self, seconds: int, **changes: Any) -> Snapshot:
        """The last snapshot after so many seconds in which the server did this."""
        does = {**WELL, **changes}
        for _ in range(0, seconds, POLL_S):
            self._server.run(POLL_S, self.now_s, does)
            snapshot = self._tick(does)
            self.now_s += POLL_S
        self.verdicts = [one for one in snapshot.verdicts if one.kind is Kind.ENGINE]
        return snapshot

    def _tick(self, does: Mapping[str, Any]) -> Snapshot:
        cards = tuple(self._card(index, does) for index in range(does["ranks"]))
        at_s = 100.0 + self.now_s
        read = self._adapter.read(self._scanner.scan(self._server.page()))
        about = {"name": "vllm:8000", "url": URL, "state": EndpointState.OK, "monotonic_s": at_s, "interval_s": POLL_S}
        reading = replace(read, **about, llm=LLAMA_8B, gpus=tuple(card.uuid for card in cards))
        host = HostReading("box", cpu_ratio=0.1)
        frame = Frame(int(self.now_s), BEGAN_S + self.now_s, at_s, POLL_S, host, gpus=cards, engines=(reading,))
        judged = self._triage.judge(frame, self._deriver.derive(frame).snapshot)
        for event in judged.events:
            if event.kind is EventKind.VERDICT and event.verdict is not None and event.verdict.kind is Kind.ENGINE:
                self.told.append(event.verdict.code)
        return judged

    def _card(self, index: int, does: Mapping[str, Any]) -> GpuReading:
        works = bool(does["running"]) and index not in does["idle_ranks"]
        activity = 0.3 if works else 0.0
        own = GpuProcess(4711 + index, "vllm", vram_bytes=6e10, engine="vllm:8000")
        facts = {
            "busy_ratio": 0.95 if works else 0.0,
            "sm_active_ratio": 2.0 * activity,
            "tensor_active_ratio": activity / 2.0,
            "dram_active_ratio": activity,
            "processes": (own,),
            **self._of_gpu,
        }
        return gpu(index, 100.0 + self.now_s, **facts)


SPECULATES: Final = {"drafts": 200.0, "accepted": 0.72, "gap_s": 0.03}


@each_row(
    ("before", "then", "code", "cause", "level"),
    [
        ({}, {"requests": 0.4, "errors": 3.6}, Limit.FAILING, "errors", Level.CRITICAL),
        ({}, {"broken": 40.0, "requests": 0.0}, Limit.FAILING, "errors", Level.CRITICAL),
        ({}, {"given_up": 3.8, "given_up_early": 3.8}, Limit.FAILING, "aborts", Level.WARN),
        ({}, {"given_up": 3.6, "given_up_early": 3.6, "ttft_s": 8.0}, Limit.FAILING, "aborts", Level.CRITICAL),
        ({}, {"given_up": 3.8, "ttft_s": 8.0}, Limit.FAILING, "aborts_midway", Level.WARN),
        ({}, {"given_up": 1.2}, Limit.FAILING, "aborts_midway", Level.NOTE),
        ({}, {"refused": 2.0}, Limit.FAILING, "refusals", Level.WARN),
        ({}, {"refused": 0.7}, Limit.FAILING, "refusals", Level.NOTE),
        ({"corrupted": 0.0}, {"corrupted": 0.05}, Limit.FAILING, "corrupted", Level.WARN),
        ({"corrupted": 0.0}, {"corrupted": 3.9}, Limit.FAILING, "corrupted", Level.CRITICAL),
        ({}, {"cut": 1.0}, Limit.ODD_ANSWERS, "answers_cut", Level.NOTE),
        ({}, {"answer": 1.0}, Limit.ODD_ANSWERS, "one_token_answers", Level.NOTE),
        ({}, {"hits": 0.02, "ttft_s": 0.8}, Limit.PREFIX_CACHE_LOST, "prefix_hits_fell", Level.WARN),
        (SPECULATES, {**SPECULATES, "accepted": 0.04}, Limit.SPECULATION_LOW, "acceptance_fell", Level.WARN),
        ({}, {"waiting": 9.0, "loras": ("a,b", "b,c")}, Limit.LORA_SLOTS_FULL, "lora_slots", Level.WARN),
        (
            {"ranks": 3, "running": 128.0, "requests": 12.0},
            {"ranks": 3, "idle_ranks": (2,), "running": 128.0, "waiting": 40.0, "requests": 9.0},
            Limit.STRAGGLER,
            "uneven_ranks",
            Level.WARN,
        ),
        (
            {},
            {"requests": 0.0, "running": 0.0, "kv": 0.0},
            Limit.TRAFFIC_FELL,
            "traffic_stopped",
            Level.WARN,
        ),
    ],
)
def test_a_server_in_trouble_is_not_called_healthy(
    before: dict[str, Any], then: dict[str, Any], code: Limit, cause: str, level: Level
) -> None:
    play = Play()
    play.play(150, **before)
    assert [one.code for one in play.verdicts] == [Limit.HEALTHY], [verdict_text(one) for one in play.verdicts]
    play.play(170, **then)
    first = play.verdicts[0]
    assert (first.code, first.cause, first.level) == (code, cause, level), [verdict_text(one) for one in play.verdicts]
    assert first.actions
    assert Limit.HEALTHY not in [one.code for one in play.verdicts]
    assert code in play.told, "it is an event"


def test_a_day_of_small_changes_is_healthy() -> None:
    """Traffic, hits and acceptance vary by a third, and one in a hundred fails or is given up."""
    play = Play()
    usual: dict[str, Any] = {**SPECULATES, "errors": 0.02, "given_up": 0.1}
    for factor in (1.0, 0.75, 1.2, 0.7, 1.0, 0.8):
        some = {"refused": 0.1 * factor, "cut": 0.7 * factor, "corrupted": 0.0}
        play.play(90, **usual, **some, requests=4.0 * factor, hits=0.8 * factor, answer=150.0)
        assert {one.code for one in play.verdicts} <= {Limit.HEALTHY, Limit.EVALUATING}
