"""The live series of each engine as PromQL, one set of records for all of them: which counter, and what it repeats."""

from __future__ import annotations

from typing import Final, NamedTuple

from gpumon.efficiency import promql as p
from gpumon.outputs.rules_scope import Rule, Scope

WAITING: Final = "gpumon:engine_requests_waiting:sum"
KV_USAGE: Final = "gpumon:engine_kv_usage:ratio"
QUANTILES: Final = {"ttft": "time to first token", "itl": "gap between tokens of a request"}
ONE_TWO_FIVE: Final = tuple(digit * 10.0**zeros for zeros in range(7) for digit in (1, 2, 5))
"""vLLM's bounds of lengths (v1/metrics/loggers.py `build_1_2_5_buckets`), up to the longest model."""
SGLANG_BOUNDS: Final = (
    *(100.0, 300.0, 500.0, 700.0, 1000.0, 1500.0, 2000.0, 3000.0, 4000.0, 5000.0, 6000.0, 7000.0, 8000.0, 9000.0),
    *(10000.0, 12500.0, 15000.0, 17500.0, 20000.0, 22500.0, 25000.0, 27500.0, 30000.0, 35000.0, 40000.0, 60000.0),
    *(80000.0, 100000.0, 200000.0, 300000.0, 400000.0, 600000.0, 800000.0, 1e6, 1.1e6),
)
"""SGLang's (observability/metrics_collector.py)."""


class Family(NamedTuple):
    """The rules of one engine."""

    kind: str
    title: str
    rules: tuple[Rule, ...]


def families(scope: Scope) -> tuple[Family, ...]:
    """The engines that have rules."""
    return tuple(
        Family(kind, title, tuple(rule._replace(labels=(("engine_kind", kind),)) for rule in rules(scope)))
        for kind, title, rules in (
            ("vllm", "vLLM: data-parallel ranks by the label engine", _vllm),
            ("sglang", "SGLang from 0.5.7 on: ranks that repeat each other count once", _sglang),
            ("llamacpp", "llama.cpp: tokens are counted at an answer's end", _llamacpp),
        )
    )


def quantiles(scope: Scope) -> tuple[Rule, ...]:
    """Latencies of all engines that have histograms of them."""
    return tuple(
        rule._replace(labels=(("engine_kind", kind),))
        for kind, matchers in (("vllm", (_SERVED,)), ("sglang", ()))
        for rule in _quantiles(scope, _names(kind), *matchers)
    )


LEFT_OUT: Final = (
    "TensorRT-LLM, Triton, Ollama, LiteLLM: no token counter that moves while a request runs, so no rate of now.",
    "SGLang before 0.5.7: the same. TGI, LMDeploy, NIM, Dynamo and Ray: not written as rules yet;",
    "`gpumon --prometheus` and `gpumon serve-metrics` read them.",
)


_SERVED: Final = 'model_name!=""'
"""A router in front of vLLM has some series of the same names, without a model."""


def _vllm(s: Scope) -> list[Rule]:
    rank, by = s.also_by("engine"), s.by
    made, running = _own(s, p.DECODE, "vllm"), _own(s, p.RUNNING, "vllm")
    drafts, accepted = (_summed(s, f"spec_decode_num_{name}_total") for name in ("drafts", "accepted_tokens"))
    drafted = f"(1 + {accepted} / ({drafts} > 0))"
    usage = " or ".join(s.of(f"vllm:{name}_cache_usage_perc", _SERVED) for name in ("kv", "gpu"))
    fp8 = 'vllm:cache_config_info{cache_dtype=~"fp8.*"}'
    asked = s.of("vllm:num_requests_running", _SERVED)
    return [
        Rule(p.RUNNING, f"sum {by} ({asked})", "requests in decode or prefill"),
        Rule(p.RANKS, f"count {by} (count {rank} ({asked}))", "data-parallel ranks on the page"),
        Rule(WAITING, f"sum {by} ({s.of('vllm:num_requests_waiting', _SERVED)})", "requests in the queue"),
        Rule(KV_USAGE, f"avg {by} (max {rank} ({usage}))", "share of the KV cache in use, mean of the ranks"),
        *_vllm_tokens(s),
        *_vllm_steps(s),
        Rule(
            p.PER_STEP,
            f"{p.lower(drafted, f'({made} / ({made} - {accepted} > 0))')}\nor {running} * 0 + 1",
            "tokens per step and request: 1 without speculation",
        ),
        Rule(
            p.HELD,
            f"sum {by} (max {rank} ({usage})) {p.OF_MODEL} gpumon:model_kv_pool_tokens:const",
            "KV tokens in use, where the pool is known",
        ),
        Rule(p.FP8_CACHE, f"{running} * 0 + 1 and {_on_target(s)} {fp8}", "bytes of an element of an FP8 KV cache"),
        *_lengths(s, "vllm:request_prompt_tokens", "vllm:request_generation_tokens", (_SERVED,)),
    ]


def _vllm_tokens(s: Scope) -> list[Rule]:
    prompts, hits = _summed(s, "prompt_tokens_total"), _summed(s, "prefix_cache_hits_total")
    no_cache = 'vllm:cache_config_info{enable_prefix_caching="False"}'
    return [
        Rule(p.DECODE, _summed(s, "generation_tokens_total"), "generated tokens/s"),
        Rule(
            p.PREFILL,
            f"{_summed(s, 'prompt_tokens_by_source_total', _is('source', 'local_compute'))}\n"
            f"or clamp_min({prompts} - {hits}, 0)\nor ({prompts} and {_on_target(s)} {no_cache})",
            "computed prompt tokens/s; a whole prompt counts at its first token",
        ),
        Rule(
            p.CACHED,
            f"{_summed(s, 'prompt_tokens_cached_total')}\nor {hits}",
            "prompt tokens/s from the prefix cache",
        ),
        Rule(p.PROMPTS, _summed(s, "time_to_first_token_seconds_count"), "first tokens/s"),
    ]


def _vllm_steps(s: Scope) -> list[Rule]:
    """By the step counter where one API server counts: only that writes its start time; V0 has no label `engine`."""
    rank = s.also_by("engine")
    gaps, gap_s = (
        f"(sum {rank} ({s.per_s(f'vllm:inter_token_latency_seconds_{end}', _SERVED)})"
        f" or sum {rank} ({s.per_s(f'vllm:time_per_output_token_seconds_{end}', _SERVED)}))"
        for end in ("count", "sum")
    )
    duty = f"max {rank} (avg_over_time(({s.of('vllm:num_requests_running', _SERVED)} > bool 0)[{s.rate}:{s.step}]))"
    counted = s.per_s("vllm:iteration_tokens_total_count", _SERVED, 'engine!=""')
    exact = f"sum {rank} ({counted})\n  and {_on_target(s)} process_start_time_seconds"
    steps = f"(\n  {exact}\n  or {duty} * {gaps} / ({gap_s} > 0)\n)"
    return [
        Rule(p.STEPS, f"sum {s.by} {steps}", "steps/s of all ranks: counted; with several API servers duty / mean gap"),
        Rule(p.TOGETHER, f"max {s.by} {steps}", "steps/s of the ranks that share experts"),
    ]


def _summed(s: Scope, name: str, *matchers: str) -> str:
    """The rate of one of vLLM's counters, of all ranks."""
    return f"sum {s.by} ({s.per_s(f'vllm:{name}', _SERVED, *matchers)})"


def _on_target(s: Scope) -> str:
    return f"on ({', '.join(s.target)})"


_NO_PREFILL, _NO_DECODE = 'engine_type!="prefill"', 'engine_type!="decode"'
"""Of a server whose prefill and decode run apart each half counts what is the other's, too."""


def _sglang(s: Scope) -> list[Rule]:
    by, rank = s.by, s.also_by("dp_rank")
    queues = "num_(queue|grammar_queue|(prefill_bootstrap|prefill_infl?ight|decode_prealloc|decode_transfer)_queue)"
    waiting = s.of("", f'__name__=~"sglang:{queues}_reqs"')
    pools = s.of("", '__name__=~"sglang:(full_token|swa_token|mamba)_usage"')
    running = f"max {rank} ({s.of('sglang:num_running_reqs')})"
    held = f"(max {rank} ({s.of('sglang:decode_sum_seq_lens')}) or max {rank} ({s.of('sglang:num_used_tokens')}))"
    return [
        Rule(p.RUNNING, f"sum {by} ({running})", "requests in decode or prefill"),
        Rule(p.RANKS, f"count {by} ({running})", "data-parallel ranks on the page"),
        Rule(
            WAITING, f"sum {by} (max {s.also_by('dp_rank', '__name__')} ({waiting}))", "requests in all of its queues"
        ),
        Rule(
            KV_USAGE,
            f"avg {by} (max {rank} ({pools}))\nor avg {by} (max {rank} ({s.of('sglang:token_usage')}))",
            "share of the fullest KV pool in use",
        ),
        *_sglang_tokens(s),
        *_sglang_steps(s),
        Rule(p.HELD, f"sum {by} ({held} and {running} > 0)", "tokens in the contexts of the running requests"),
        *_lengths(s, "sglang:prompt_tokens_histogram", "sglang:generation_tokens_histogram", ()),
    ]


def _sglang_tokens(s: Scope) -> list[Rule]:
    def tokens(mode: str, role: str) -> str:
        return _once(s, s.per_s("sglang:realtime_tokens_total", _is("mode", mode), role))

    def firsts(role: str) -> str:
        return f"sum {s.by} ({s.per_s('sglang:time_to_first_token_seconds_count', role)})"

    made = tokens("decode", _NO_PREFILL)
    return [
        Rule(
            p.DECODE,
            f"{made} + {firsts(_NO_PREFILL)}\nor {made}",
            "generated tokens/s, the first of each request included",
        ),
        Rule(p.PREFILL, tokens("prefill_compute", _NO_DECODE), "computed prompt tokens/s"),
        Rule(p.CACHED, tokens("prefill_cache", _NO_DECODE), "prompt tokens/s from the prefix cache"),
        Rule(p.PROMPTS, firsts(_NO_DECODE), "first tokens/s"),
    ]


def _sglang_steps(s: Scope) -> list[Rule]:
    by, each = s.by, s.also_by("dp_rank", "tp_rank", "pp_rank", "moe_ep_rank")
    passes = _once(s, f"sum {each} ({s.per_s('sglang:cuda_graph_passes_total')})")
    gaps, gap_s = (
        f"sum {by} ({s.per_s(f'sglang:inter_token_latency_seconds_{end}', _NO_PREFILL)})" for end in ("count", "sum")
    )
    duty = f"max {by} (avg_over_time(({s.of('sglang:num_running_reqs')} > bool 0)[{s.rate}:{s.step}]))"
    accepted = f"max {by} (avg_over_time({s.of('sglang:spec_accept_length')}[{s.rate}]))"
    return [
        Rule(
            p.PER_STEP,
            f"clamp_min({accepted}, 1)\nor {_own(s, p.RUNNING, 'sglang')} * 0 + 1",
            "tokens per step and request",
        ),
        Rule(
            p.STEPS,
            f"({passes} > 0)\nor {duty} * {gaps} / ({gap_s} > 0) / {_own(s, p.PER_STEP, 'sglang')}",
            "forward passes/s; where they are not counted duty / mean gap",
        ),
        Rule(p.TOGETHER, _own(s, p.STEPS, "sglang"), "each rank has its own experts"),
    ]


def _once(s: Scope, vector: str) -> str:
    """Ranks that report the same count once, data-parallel ones are summed."""
    return f"sum {s.by} (max {s.also_by('dp_rank')} ({vector}))"


def _llamacpp(s: Scope) -> list[Rule]:
    by = s.by

    def summed(name: str) -> str:
        return f"sum {by} ({s.per_s(f'llamacpp:{name}')})"

    return [
        Rule(p.RUNNING, f"sum {by} ({s.of('llamacpp:requests_processing')})", "requests in decode or prefill"),
        Rule(WAITING, f"sum {by} ({s.of('llamacpp:requests_deferred')})", "requests in the queue"),
        Rule(p.DECODE, summed("tokens_predicted_total"), "tokens/s of answers; counted at an answer's end"),
        Rule(p.PREFILL, summed("prompt_tokens_total"), "computed prompt tokens/s; counted at a prompt's end"),
        Rule(p.CACHED, summed("prompt_tokens_cached_total"), "prompt tokens/s from the cache"),
        Rule(p.STEPS, summed("n_decode_total"), "decode steps/s"),
        Rule(p.TOGETHER, summed("n_decode_total"), "the same: it has one rank"),
        Rule(p.PER_STEP, f"{_own(s, p.RUNNING, 'llamacpp')} * 0 + 1", "without speculation"),
        Rule(p.RANKS, f"{_own(s, p.RUNNING, 'llamacpp')} * 0 + 1", "it has one"),
    ]


def _own(s: Scope, record: str, kind: str) -> str:
    """What this engine's rules have recorded already, with the labels of what is scraped."""
    return f'max {s.by} ({record}{{engine_kind="{kind}"}})'


def _names(prefix: str) -> dict[str, tuple[str, ...]]:
    gaps = f"{prefix}:inter_token_latency_seconds", f"{prefix}:time_per_output_token_seconds"
    return {"ttft": (f"{prefix}:time_to_first_token_seconds",), "itl": gaps}


def _is(label: str, value: str) -> str:
    return f'{label}="{value}"'


def _kept(s: Scope) -> str:
    return ", ".join((*s.target, "model_name"))


def _lengths(s: Scope, prompts: str, answers: str, matchers: tuple[str, ...]) -> list[Rule]:
    def per_s(name: str, *more: str) -> str:
        return s.per_s(name, *matchers, *more, window=s.quantile)

    def mean(name: str) -> str:
        return f"sum {s.by} ({per_s(f'{name}_sum')}) / (sum {s.by} ({per_s(f'{name}_count')}) > 0)"

    buckets = per_s(f"{prompts}_bucket", 'le!="+Inf"')
    below = f"sum {s.also_by('le')} ({buckets})"
    ended = f"sum {s.by} ({per_s(f'{prompts}_count')})"
    return [
        Rule(p.PROMPT_MEAN, mean(prompts), "mean prompt of the requests that ended"),
        Rule(p.ANSWER_MEAN, mean(answers), "mean answer of the requests that ended"),
        Rule(p.ENDED, f"{ended} > 0", "requests/s that ended"),
        Rule(
            p.LONGER,
            f'{ended} - on ({_kept(s)}) group_right () label_replace({below}, "le", "$1", "le", "(.+)[.]0")',
            "those whose prompt was longer than le",
        ),
    ]


def _quantiles(s: Scope, names: dict[str, tuple[str, ...]], *matchers: str) -> list[Rule]:
    found = []
    for level, by in (("engine", s.also_by("le")), ("model", "by (model_name, le)")):
        for short, metrics in names.items():
            buckets = " or ".join(
                f"sum {by} ({s.per_s(f'{name}_bucket', *matchers, window=s.quantile)})" for name in metrics
            )
            meaning = f"p95 of the {QUANTILES[short]}, in seconds"
            found.append(
                Rule(f"gpumon:{level}_{short}_seconds:p95", f"histogram_quantile(0.95, {buckets}) >= 0", meaning)
            )
    return found


def bounds_of(kind: str) -> tuple[float, ...]:
    """Bounds of an engine's histogram of prompts; empty where it has none."""
    return {"vllm": ONE_TWO_FIVE, "sglang": SGLANG_BOUNDS}.get(kind, ())
