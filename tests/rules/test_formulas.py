"""Every recorded figure is what gpumon's own formulas give: promtool evaluates the rules on made series."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from gpumon.outputs.rules import ONE_TWO_FIVE, SGLANG_BOUNDS, ModelFacts, RuleInputs, RulePrices, Scope, rules_yaml
from gpumon.sources.engines.sglang import QUEUES
from gpumon.specs.llm import LlmSpec
from tests.rules.checked import AT, NAN, SCOPE, check, check_times, facts, spec
from tests.rules.loads import PEAK, Expected, Load, counter, dcgm, expected, gauge, llamacpp, sglang, vllm

MODELS = {
    "dense": "Llama-3.1-70B",
    "moe": "Qwen3-235B-A22B",
    "mla": "DeepSeek-V3",
    "hybrid": "Qwen3-Next-80B-A3B",
    "window": "gpt-oss-120b",
    "few window": "Gemma-2-27B",
}


BUCKETS = ONE_TWO_FIVE[:13]
"""Bounds of the lengths that vLLM and llama.cpp tell."""


class Case(NamedTuple):
    """An engine that serves a model of its own."""

    series: list[str]
    told: tuple[ModelFacts, ...]
    """Facts of its model; none of one that is not known."""
    asked: dict[str, float]
    """Expressions that name its model, and their values."""


def figures(kind: str, model: str, load: Load, found: Expected) -> dict[str, float]:
    """All that is recorded of an engine and its model."""

    def of(name: str) -> str:
        return f'gpumon:engine_{name}{{engine_kind="{kind}", model_name="{model}"}}'

    def of_model(name: str) -> str:
        return f'gpumon:model_{name}{{model_name="{model}"}}'

    cached = load.cached if kind != "llamacpp" else NAN
    return {
        of("decode_tokens:rate"): load.decode,
        of("prefill_tokens:rate"): load.computed,
        of("cached_tokens:rate"): cached,
        of("steps:rate"): sum(load.steps),
        of("requests_running:sum"): load.running,
        of("requests_waiting:sum"): 2.0 * len(load.steps),
        of("context_tokens:mean"): found.context,
        of("prompt_tokens:biased"): found.biased,
        of("decode_flops:rate"): found.decode_flops,
        of("prefill_flops:rate"): found.prefill_flops,
        of("mfu:ratio"): found.mfu,
        of("mfu_decode:ratio"): found.decode_flops / load.gpus / PEAK,
        of("mfu_prefill:ratio"): found.prefill_flops / load.gpus / PEAK,
        of("mbu:ratio"): found.mbu,
        of_model("mfu:ratio"): found.mfu,
        of_model("mbu:ratio"): found.mbu,
        of_model("decode_tokens:rate"): load.decode,
        of_model("prefill_tokens:rate"): load.computed,
        of_model("cached_tokens:rate"): cached,
    }


def of_vllm(model: str, llm: LlmSpec, load: Load, **told: float) -> Case:
    """A vLLM with every figure that the formulas give."""
    context = 900.0 + 120.0 if told.get("pool") == 0.0 else None
    found = expected(llm, load, BUCKETS, context=context)
    return Case(vllm_of(model, load), (facts(llm, model, load, **told),), figures("vllm", model, load, found))


def vllm_of(model: str, load: Load) -> list[str]:
    """The series of a vLLM on a host of its own."""
    return vllm(load, model, f'job="vllm", instance="{model}:8000"')


def each_architecture() -> Iterator[Case]:
    """Every kind of model, served by vLLM and by SGLang."""
    for name in MODELS:
        yield of_vllm(f"vllm {name}", spec(MODELS[name]), Load())
    for name in MODELS:
        llm = spec(MODELS[name])
        load = Load()
        model = f"sglang {name}"
        found = expected(llm, load, SGLANG_BOUNDS[:20])
        told = facts(llm, model, load)
        yield Case(sglang(load, model), (told,), figures("sglang", model, load, found))


def prompts_that_outgrow_the_window() -> Iterator[Case]:
    """A window of 128: the first tokens of a prompt see less, unless as many are cached."""
    llm = spec(MODELS["window"])
    for cached in (0.0, 20.0, 1000.0):
        load = Load(cached=cached)
        model = f"{cached:g} cached"
        engine = of_vllm(model, llm, load)
        hit = cached / (cached + load.computed)
        whole = expected(llm, load, BUCKETS).biased
        begin = whole * hit
        seen = sum(min(begin + (whole - begin) * (at + 0.5) / 1e4, 128.0) for at in range(10_000)) / 1e4
        assert (begin < 128.0) == (seen < 127.999)
        window = f'gpumon:engine_prefill_window_tokens:mean{{model_name="{model}"}}'
        near = f"(abs({window} - {seen!r}) <= bool 0.001)"
        yield engine._replace(asked=engine.asked | {near: 1.0})


def data_parallel_ranks() -> Iterator[Case]:
    """Of 8 GPUs with 8 ranks each reads the KV cache of its own requests alone, of MLA, too; experts are shared."""
    for name in ("dense", "moe", "mla"):
        for steps in ((25.0, 20.0, 24.0, 21.0), (25.0,) * 8):
            yield of_vllm(f"{len(steps)} ranks {name}", spec(MODELS[name]), Load(steps=steps))


def ranks_that_the_page_does_not_show() -> Case:
    """They are told."""
    llm = spec(MODELS["mla"])
    load = Load(ranks=4)
    one_rank = load._replace(ranks=0)
    assert expected(llm, one_rank, BUCKETS).mbu > 1.02 * expected(llm, load, BUCKETS).mbu
    return of_vllm("told ranks", llm, load)


def sglang_ranks() -> Case:
    """Each has a KV cache of its own."""
    model = "sglang ranks"
    load = Load()
    lines = sglang(load, model)
    second = [line.replace('tp_rank="', 'dp_rank="1", tp_rank="') for line in lines if 'tp_rank="' in line]
    first = [line.replace('tp_rank="', 'dp_rank="0", tp_rank="') for line in lines]
    asked = {
        f'gpumon:engine_ranks:count{{model_name="{model}"}}': 2.0,
        f'gpumon:engine_kv_copies:ratio{{model_name="{model}"}}': 4.0,
        f'gpumon:engine_requests_running:sum{{model_name="{model}"}}': 2.0 * load.running,
    }
    return Case([*first, *second], (facts(spec(MODELS["mla"]), model, load),), asked)


def steps_that_prefill_alone() -> Iterator[Case]:
    """They read no weights for decode."""
    load = Load(decode=0.0)
    for name in ("dense", "moe"):
        model = f"prefill {name}"
        asked = {
            f'gpumon:engine_steps:rate{{model_name="{model}"}}': 25.0,
            f'gpumon:engine_weight_read_bytes:rate{{model_name="{model}"}}': 0.0,
            f'gpumon:engine_kv_read_bytes:rate{{model_name="{model}"}}': 0.0,
            f'gpumon:engine_mbu:ratio{{model_name="{model}"}}': 0.0,
            f'gpumon:model_mbu:ratio{{model_name="{model}"}}': 0.0,
        }
        yield Case(vllm_of(model, load), (facts(spec(MODELS[name]), model, load),), asked)


def speculation_and_an_fp8_cache() -> Case:
    load = Load(accepted_per_draft=1.5, fp8_cache=True)
    engine = of_vllm("speculation", spec(MODELS["dense"]), load)
    tokens = 'gpumon:engine_tokens_per_step:ratio{model_name="speculation"}'
    return engine._replace(asked=engine.asked | {tokens: 2.5})


def without_a_pool() -> Case:
    """The context is the prompt and half the answer."""
    return of_vllm("no pool", spec(MODELS["dense"]), Load(), pool=0.0)


def of_llamacpp() -> Case:
    llm = spec(MODELS["dense"])
    load = Load(cached=0.0, steps=(120.0,))
    found = expected(llm, load, BUCKETS, context=700.0, apart=True)
    told = facts(llm, "llamacpp", load, context=700.0)
    return Case(llamacpp(load, "llamacpp"), (told,), figures("llamacpp", "llamacpp", load, found))


def of_an_unknown_model() -> Case:
    """Tokens are there, and no share of a peak is."""
    load = Load()
    asked = {
        'gpumon:model_decode_tokens:rate{model_name="unknown"}': load.decode,
        'gpumon:model_mfu:ratio{model_name="unknown"}': NAN,
        'gpumon:model_mbu:ratio{model_name="unknown"}': NAN,
        'gpumon:engine_flops:rate{model_name="unknown"}': NAN,
    }
    return Case(vllm_of("unknown", load), (), asked)


def several_api_servers() -> Case:
    """Each would count every step, so there is no step counter: then it is duty / mean gap."""
    llm = spec(MODELS["dense"])
    load = Load()
    model = "api servers"
    series = [line for line in vllm_of(model, load) if "process_start_time" not in line]
    labels = f'job="vllm", instance="{model}:8000", model_name="{model}", engine="0"'
    series.append(counter("vllm:inter_token_latency_seconds_count", labels, load.decode))
    series.append(counter("vllm:inter_token_latency_seconds_sum", labels, load.decode / 20.0))
    found = expected(llm, load._replace(steps=(20.0,)), BUCKETS)
    asked = {
        f'gpumon:engine_steps:rate{{model_name="{model}"}}': 20.0,
        f'gpumon:engine_mbu:ratio{{model_name="{model}"}}': found.mbu,
    }
    return Case(series, (facts(llm, model, load),), asked)


def cases() -> Iterator[Case]:
    """All of them."""
    yield from each_architecture()
    yield from prompts_that_outgrow_the_window()
    yield from data_parallel_ranks()
    yield ranks_that_the_page_does_not_show()
    yield sglang_ranks()
    yield from steps_that_prefill_alone()
    yield speculation_and_an_fp8_cache()
    yield without_a_pool()
    yield of_llamacpp()
    yield of_an_unknown_model()
    yield several_api_servers()


def test_every_figure_of_every_engine_is_that_of_the_formulas(tmp_path: Path):
    """The engines are one fleet: promtool evaluates the rules once for all, and names the expressions that are off."""
    series: list[str] = []
    told: list[ModelFacts] = []
    asked: dict[str, float] = {}
    for case in cases():
        assert not case.asked.keys() & asked.keys()
        series += case.series
        told += case.told
        asked |= case.asked
    check(tmp_path, RuleInputs(tuple(told), SCOPE), series, asked)


def test_an_idle_engine_does_no_work_and_an_engine_that_is_gone_has_no_figure(tmp_path: Path):
    llm = spec(MODELS["dense"])
    load = Load(decode=0.0, computed=0.0, cached=0.0, prompts=0.0, steps=(0.0,), running=0.0)
    ruled = RuleInputs((facts(llm, "m", load),), SCOPE)
    zero = {"gpumon:engine_mfu:ratio": 0.0, "gpumon:engine_mbu:ratio": 0.0}
    gone = dict.fromkeys(zero, NAN)
    check_times(tmp_path, ruled, vllm(load, "m"), {AT: zero, "26m": gone})


def test_two_engines_of_one_model_add_up_and_two_models_do_not_mix(tmp_path: Path):
    llm, small, load = spec(MODELS["dense"]), spec("Qwen3-8B"), Load()
    other = load._replace(decode=300.0, running=12.0, steps=(10.0,))
    series = vllm(load, "m") + vllm(other, "m", 'job="vllm", instance="gpu02:8000"')
    series += vllm(load, "n", 'job="vllm", instance="gpu03:8000"')
    one, two = (expected(llm, each, BUCKETS) for each in (load, other))
    third = expected(small, load, BUCKETS)
    ruled = RuleInputs((facts(llm, "m", load), facts(small, "n", load)), SCOPE)
    asked = {
        'gpumon:model_decode_tokens:rate{model_name="m"}': 1500.0,
        'gpumon:model_mfu:ratio{model_name="m"}': (one.mfu + two.mfu) / 2,
        'gpumon:model_mbu:ratio{model_name="m"}': (one.mbu + two.mbu) / 2,
        'gpumon:model_mfu:ratio{model_name="n"}': third.mfu,
        'gpumon:model_engines:count{model_name="m"}': 2.0,
        'gpumon:model_kv_usage:max{model_name="m"}': 0.25,
    }
    check(tmp_path, ruled, series, asked)


def test_a_restart_is_no_spike(tmp_path: Path):
    llm, load = spec(MODELS["dense"]), Load()
    rising = f"0+{load.decode * 15!r}x38"
    series = [line.replace(f"0+{load.decode * 15!r}x60", f"{rising} {rising}") for line in vllm(load, "m")]
    assert any(rising in line for line in series)
    ruled = RuleInputs((facts(llm, "m", load),), SCOPE)
    # What came between the last scrape and the restart is lost: it is less, never more.
    check(tmp_path, ruled, series, {"(gpumon:engine_decode_tokens:rate <= bool 1200.1)": 1.0}, "10m")


def test_energy_and_money_of_the_gpus_beside_an_engine(tmp_path: Path):
    load = Load()
    series = (
        vllm(load, "m") + dcgm("gpu01", 0, 0.75, 400.0) + dcgm("gpu01", 1, 0.25, 200.0) + dcgm("gpu09", 0, 0.0, 80.0)
    )
    ruled = RuleInputs((), SCOPE, RulePrices({"4": ("h100 80gb hbm3",)}))
    asked = {
        "sum(gpumon:gpu_power:watts)": 680.0,
        "count(gpumon:gpu_busy:ratio)": 3.0,
        "sum(gpumon:gpu_idle_cost:per_hour)": 4.0 * (0.25 + 0.75 + 1.0),
        "gpumon:gpus_idle:sum": 2.0,
        'gpumon:place_idle_cost:per_hour{place="gpu01"}': 4.0,
        'gpumon:model_idle_cost:per_hour{model_name="m"}': 4.0,
        'gpumon:model_tokens_per_joule:ratio{model_name="m"}': 2.0,
        'gpumon:place_tokens_per_joule:ratio{place="gpu01"}': 2.0,
        'gpumon:gpu_memory_used:ratio{Hostname="gpu09"}': 0.75,
        'gpumon:gpu_tensor_active:ratio{Hostname="gpu09"}': 0.3,
        'gpumon:gpu_dram_active:ratio{Hostname="gpu09"}': 0.45,
        "gpumon:gpus_idle_cost:per_hour": 8.0,
    }
    check(tmp_path, ruled, series, asked)


@pytest.mark.parametrize("named", [True, False])
def test_two_scrape_jobs_of_one_exporter_count_its_gpus_once(tmp_path: Path, named: bool):
    load = Load()
    gpus = dcgm("gpu01", 0, 0.75, 400.0) + dcgm("gpu01", 1, 0.25, 200.0) + dcgm("gpu09", 0, 0.0, 80.0)
    gpus += [line.replace('job="dcgm"', 'job="other"') for line in gpus]
    series = vllm(load, "m") + (gpus if named else [re.sub(', UUID="[^"]*"', "", line) for line in gpus])
    asked = {
        "count(gpumon:gpu_busy:ratio)": 6.0,
        "gpumon:gpus_idle:sum": 2.0,
        "gpumon:gpus_idle_cost:per_hour": 8.0,
        'gpumon:place_idle_cost:per_hour{place="gpu01"}': 4.0,
        'gpumon:place_power:watts{place="gpu01"}': 600.0,
        'gpumon:model_power:watts{model_name="m"}': 600.0,
        'gpumon:model_idle_cost:per_hour{model_name="m"}': 4.0,
        'gpumon:model_tokens_per_joule:ratio{model_name="m"}': 2.0,
    }
    check(tmp_path, RuleInputs((), SCOPE, RulePrices({}, "4")), series, asked)


def test_hosts_of_the_same_name_in_two_clusters_are_two_places(tmp_path: Path):
    load = Load()
    here = [line.replace("job=", 'cluster="a", job=') for line in vllm(load, "m") + dcgm("gpu01", 0, 0.5, 400.0)]
    there = [
        line.replace("job=", 'cluster="b", job=').replace("GPU-gpu01-0", "GPU-b")
        for line in vllm(load, "n") + dcgm("gpu01", 0, 0.25, 800.0)
    ]
    asked = {
        'gpumon:model_power:watts{model_name="m"}': 400.0,
        'gpumon:model_power:watts{model_name="n"}': 800.0,
        'gpumon:model_tokens_per_joule:ratio{model_name="m"}': 3.0,
        'gpumon:model_tokens_per_joule:ratio{model_name="n"}': 1.5,
        'gpumon:place_tokens_per_joule:ratio{cluster="b", place="gpu01"}': 1.5,
        'gpumon:model_idle_cost:per_hour{model_name="n"}': 1.5,
        "gpumon:gpus_idle:sum": 1.25,
    }
    check(tmp_path, RuleInputs((), SCOPE, RulePrices({}, "2")), here + there, asked)


def test_quantiles_are_those_of_the_buckets(tmp_path: Path):
    """Of 10 per second 8 are up to 0.1 s, all up to 0.5 s: rank 9.5 is 3/4 of the way from one to the other."""
    series = []
    for engine, more in (("vllm", ', engine="0"'), ("sglang", ', engine_type="unified"')):
        for name in ("time_to_first_token_seconds", "inter_token_latency_seconds"):
            slower = 1.0 if name.startswith("time") else 0.1
            labels = f'job="{engine}", instance="gpu01:8000", model_name="{engine}"{more}'
            for bound, count in ((0.1 * slower, 8.0), (0.5 * slower, 10.0), ("+Inf", 10.0)):
                series.append(counter(f"{engine}:{name}_bucket", f'{labels}, le="{bound}"', count))
    asked = {
        f'gpumon:{level}_{name}_seconds:p95{{model_name="{engine}"}}': value
        for level in ("engine", "model")
        for engine in ("vllm", "sglang")
        for name, value in (("ttft", 0.4), ("itl", 0.04))
    }
    check(tmp_path, RuleInputs((), SCOPE), series, asked)


def test_sglangs_queues_are_all_that_the_screen_counts_and_no_others(tmp_path: Path):
    labels = 'job="sglang", instance="gpu02:30000", model_name="m"'
    queues = ("sglang:num_queue_reqs", *QUEUES)
    series = [gauge(name, labels, 2.0**at) for at, name in enumerate(queues)]
    others = ("sglang:num_running_reqs", "sglang:num_retracted_reqs", "sglang:num_used_tokens", "sglang:queue_time")
    series += [gauge(name, labels, 1000.0) for name in others]
    check(tmp_path, RuleInputs((), SCOPE), series, {"gpumon:engine_requests_waiting:sum": 2.0 ** len(queues) - 1.0})


def test_gpus_of_two_models_are_neither_ones(tmp_path: Path):
    load = Load()
    series = vllm(load, "m") + vllm(load, "n", 'job="vllm", instance="gpu01:8001"') + dcgm("gpu01", 0, 0.5, 400.0)
    asked = {"gpumon:model_tokens_per_joule:ratio": NAN, "gpumon:model_idle_cost:per_hour": NAN}
    check(
        tmp_path,
        RuleInputs((), SCOPE, RulePrices({}, "1.5")),
        series,
        asked | {"sum(gpumon:gpu_idle_cost:per_hour)": 0.75},
    )


def test_pods_share_a_label_with_their_gpus(tmp_path: Path):
    load = Load()
    target = 'job="vllm", instance="10.0.0.7:8000", namespace="llm", pod="vllm-0"'
    gpus = 'job="dcgm", instance="10.0.0.9:9400", pod="dcgm-x", exported_pod="vllm-0", gpu="0", UUID="GPU-1"'
    series = [*vllm(load, "m", target), gauge("DCGM_FI_DEV_POWER_USAGE", gpus, 300.0)]
    ruled = RuleInputs((), SCOPE._replace(join="pod"))
    check(tmp_path, ruled, series, {'gpumon:model_tokens_per_joule:ratio{model_name="m"}': 4.0})


@pytest.mark.parametrize(
    ("scrape_s", "window"), [(1.0, "10s"), (15.0, "60s"), (60.0, "240s"), (0.3, "10s"), (7.7, "30800ms")]
)
def test_windows_hold_four_scrapes(scrape_s: float, window: str):
    text = rules_yaml(RuleInputs((), Scope("", ("instance",), scrape_s)))
    assert f'rate(vllm:generation_tokens_total{{model_name!=""}}[{window}])' in text


def test_no_group_has_more_rules_than_mimir_takes_and_no_series_dies_between_two_evaluations():
    """A series is gone after 5 minutes without a sample."""
    text = rules_yaml(RuleInputs((), Scope("", ("instance",), 3600.0), RulePrices({}, "1"), served=True))
    groups = text.split("  - name: ")[1:]
    assert max(group.count("- record:") for group in groups) <= 20
    assert all(float(found) <= 240.0 for found in re.findall("interval: ([0-9.]+)s", text))
    assert all("    interval: " in group for group in groups)


@pytest.mark.parametrize(("cluster", "there"), [("z", False), ("a{1}", True)])
def test_matchers_stand_in_every_selector(tmp_path: Path, cluster: str, there: bool):
    load = Load(cached=0.0)
    series = [*vllm(load, "m"), *sglang(load, "m"), *llamacpp(load, "m"), *dcgm("gpu01", 0, 0.5, 100.0)]
    series = [line.replace("job=", 'cluster="a{1}", job=') for line in series]
    ruled = RuleInputs((), SCOPE._replace(match=f'cluster="{cluster}",'), RulePrices({}, "1"))
    kinds = {
        kind: f"count(count by (engine_kind) (gpumon:engine_{kind}))" for kind in ("decode_tokens:rate", "steps:rate")
    }
    asked = dict.fromkeys(kinds.values(), 3.0 if there else NAN)
    asked["count(gpumon:gpu_busy:ratio)"] = 1.0 if there else NAN
    asked['count({__name__=~"gpumon:(engine|gpu|place|gpus)_.*"}) > bool 0'] = 1.0 if there else NAN
    check(tmp_path, ruled, series, {f"({expr})": value for expr, value in asked.items()})


def test_a_matcher_on_a_label_of_engines_leaves_the_other_rules_alive(tmp_path: Path):
    """`up`, the start of a process and the settings of a cache have no model_name."""
    llm, load = spec(MODELS["dense"]), Load(fp8_cache=True)
    target = 'job="vllm", instance="gpu01:8000"'
    series = [
        *vllm(load, "m"),
        f"  - {{series: 'up{{{target}}}', values: '1x35 0x25'}}",
        *vllm(load, "n", 'job="vllm", instance="gpu02:8000"'),
    ]
    ruled = RuleInputs((facts(llm, "m", load),), SCOPE._replace(match='model_name="m"'))
    found = expected(llm, load, BUCKETS)
    asked = {
        "gpumon:engine_mbu:ratio": found.mbu,
        "gpumon:engine_steps:rate": 25.0,
        "count(gpumon:engine_requests_running:sum)": 1.0,
        'count(ALERTS{alertname="GpumonEngineDown", alertstate="firing", instance="gpu01:8000"})': 1.0,
    }
    check(tmp_path, ruled, series, asked, at="11m", evaluated="30s")
