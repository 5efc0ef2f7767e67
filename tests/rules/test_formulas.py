"""Every recorded figure is what gpumon's own formulas give: promtool evaluates the rules on made series."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpumon.outputs.rules import ONE_TWO_FIVE, SGLANG_BOUNDS, Prices, Ruled, Scope, rules_yaml
from gpumon.sources.engines.sglang import QUEUES
from tests.rules.checked import NAN, SCOPE, check, facts, spec
from tests.rules.loads import PEAK, Expected, Load, counter, dcgm, expected, gauge, llamacpp, sglang, vllm

MODELS = {
    "dense": "Llama-3.1-70B",
    "moe": "Qwen3-235B-A22B",
    "mla": "DeepSeek-V3",
    "hybrid": "Qwen3-Next-80B-A3B",
    "window": "gpt-oss-120b",
    "few window": "Gemma-2-27B",
}


def figures(kind: str, load: Load, found: Expected) -> dict[str, float]:
    def of(name: str) -> str:
        return f'gpumon:engine_{name}{{engine_kind="{kind}"}}'

    return {
        of("decode_tokens:rate"): load.decode,
        of("prefill_tokens:rate"): load.computed,
        of("cached_tokens:rate"): load.cached if kind != "llamacpp" else NAN,
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
        "gpumon:model_mfu:ratio": found.mfu,
        "gpumon:model_mbu:ratio": found.mbu,
        "gpumon:model_decode_tokens:rate": load.decode,
        "gpumon:model_prefill_tokens:rate": load.computed,
        "gpumon:model_cached_tokens:rate": load.cached if kind != "llamacpp" else NAN,
    }


@pytest.mark.parametrize("name", MODELS.values(), ids=list(MODELS))
def test_vllm(tmp_path: Path, name: str):
    llm, load = spec(name), Load()
    found = expected(llm, load, ONE_TWO_FIVE[:13])
    ruled = Ruled((facts(llm, "m", load),), SCOPE)
    check(tmp_path, ruled, vllm(load, "m"), figures("vllm", load, found))


@pytest.mark.parametrize("cached", [0.0, 20.0, 1000.0])
def test_prompts_outgrow_the_window_while_they_are_prefilled(tmp_path: Path, cached: float):
    """A window of 128: the first tokens of a prompt see less, unless as many are cached."""
    llm, load = spec(MODELS["window"]), Load(cached=cached)
    found = expected(llm, load, ONE_TWO_FIVE[:13])
    hit = cached / (cached + load.computed)
    begin, whole = found.biased * hit, found.biased
    seen = sum(min(begin + (whole - begin) * (at + 0.5) / 1e5, 128.0) for at in range(100_000)) / 1e5
    asked = figures("vllm", load, found) | {"gpumon:engine_cached_tokens:rate": cached}
    assert (begin < 128.0) == (seen < 127.999)
    near = f"(abs(gpumon:engine_prefill_window_tokens:mean - {seen!r}) <= bool 0.001)"
    check(tmp_path, Ruled((facts(llm, "m", load),), SCOPE), vllm(load, "m"), asked | {near: 1.0})


@pytest.mark.parametrize("name", [MODELS["dense"], MODELS["moe"], MODELS["mla"]])
@pytest.mark.parametrize("steps", [(25.0, 20.0, 24.0, 21.0), (25.0,) * 8])
def test_data_parallel_ranks_share_experts_and_have_their_own_kv_cache(
    tmp_path: Path, name: str, steps: tuple[float, ...]
):
    """Of 8 GPUs with 8 ranks each reads the KV cache of its own requests alone, of MLA, too."""
    llm, load = spec(name), Load(steps=steps)
    found = expected(llm, load, ONE_TWO_FIVE[:13])
    ruled = Ruled((facts(llm, "m", load),), SCOPE)
    check(tmp_path, ruled, vllm(load, "m"), figures("vllm", load, found))


def test_ranks_that_the_page_does_not_show_are_told(tmp_path: Path):
    llm, load = spec(MODELS["mla"]), Load(ranks=4)
    found = expected(llm, load, ONE_TWO_FIVE[:13])
    one = expected(llm, load._replace(ranks=0), ONE_TWO_FIVE[:13])
    assert one.mbu > 1.02 * found.mbu
    check(tmp_path, Ruled((facts(llm, "m", load),), SCOPE), vllm(load, "m"), figures("vllm", load, found))


def test_sglang_ranks_have_their_own_kv_cache(tmp_path: Path):
    llm, load = spec(MODELS["mla"]), Load()
    lines = sglang(load, "m")
    second = [line.replace('tp_rank="', 'dp_rank="1", tp_rank="') for line in lines if 'tp_rank="' in line]
    first = [line.replace('tp_rank="', 'dp_rank="0", tp_rank="') for line in lines]
    asked = {
        "gpumon:engine_ranks:count": 2.0,
        "gpumon:engine_kv_copies:ratio": 4.0,
        "gpumon:engine_requests_running:sum": 2.0 * load.running,
    }
    check(tmp_path, Ruled((facts(llm, "m", load),), SCOPE), [*first, *second], asked)


@pytest.mark.parametrize("name", [MODELS["dense"], MODELS["moe"]])
def test_steps_that_prefill_alone_read_no_weights_for_decode(tmp_path: Path, name: str):
    llm, load = spec(name), Load(decode=0.0)
    asked = {
        "gpumon:engine_steps:rate": 25.0,
        "gpumon:engine_weight_read_bytes:rate": 0.0,
        "gpumon:engine_kv_read_bytes:rate": 0.0,
        "gpumon:engine_mbu:ratio": 0.0,
        "gpumon:model_mbu:ratio": 0.0,
    }
    check(tmp_path, Ruled((facts(llm, "m", load),), SCOPE), vllm(load, "m"), asked)


def test_speculation_and_an_fp8_cache(tmp_path: Path):
    llm, load = spec(MODELS["dense"]), Load(accepted_per_draft=1.5, fp8_cache=True)
    found = expected(llm, load, ONE_TWO_FIVE[:13])
    ruled = Ruled((facts(llm, "m", load),), SCOPE)
    asked = figures("vllm", load, found) | {"gpumon:engine_tokens_per_step:ratio": 2.5}
    check(tmp_path, ruled, vllm(load, "m"), asked)


def test_without_a_pool_the_context_is_the_prompt_and_half_the_answer(tmp_path: Path):
    llm, load = spec(MODELS["dense"]), Load()
    found = expected(llm, load, ONE_TWO_FIVE[:13], context=900.0 + 120.0)
    ruled = Ruled((facts(llm, "m", load, pool=0.0),), SCOPE)
    check(tmp_path, ruled, vllm(load, "m"), figures("vllm", load, found))


@pytest.mark.parametrize("name", MODELS.values(), ids=list(MODELS))
def test_sglang(tmp_path: Path, name: str):
    llm, load = spec(name), Load()
    found = expected(llm, load, SGLANG_BOUNDS[:20])
    ruled = Ruled((facts(llm, "m", load),), SCOPE)
    check(tmp_path, ruled, sglang(load, "m"), figures("sglang", load, found))


def test_llamacpp(tmp_path: Path):
    llm, load = spec(MODELS["dense"]), Load(cached=0.0, steps=(120.0,))
    found = expected(llm, load, ONE_TWO_FIVE[:13], context=700.0, apart=True)
    ruled = Ruled((facts(llm, "m", load, context=700.0),), SCOPE)
    check(tmp_path, ruled, llamacpp(load, "m"), figures("llamacpp", load, found))


def test_of_an_unknown_model_tokens_are_there_and_no_share_is(tmp_path: Path):
    load = Load()
    asked = {
        "gpumon:model_decode_tokens:rate": load.decode,
        "gpumon:model_mfu:ratio": NAN,
        "gpumon:model_mbu:ratio": NAN,
        "gpumon:engine_flops:rate": NAN,
    }
    check(tmp_path, Ruled((), SCOPE), vllm(load, "m"), asked)


def test_an_idle_engine_does_no_work_and_an_engine_that_is_gone_has_no_figure(tmp_path: Path):
    llm, load = (
        spec(MODELS["dense"]),
        Load(decode=0.0, computed=0.0, cached=0.0, prompts=0.0, steps=(0.0,), running=0.0),
    )
    ruled = Ruled((facts(llm, "m", load),), SCOPE)
    zero = {"gpumon:engine_mfu:ratio": 0.0, "gpumon:engine_mbu:ratio": 0.0}
    check(tmp_path, ruled, vllm(load, "m"), zero)
    check(tmp_path, ruled, vllm(load, "m"), dict.fromkeys(zero, NAN), at="26m")


def test_two_engines_of_one_model_add_up_and_two_models_do_not_mix(tmp_path: Path):
    llm, small, load = spec(MODELS["dense"]), spec("Qwen3-8B"), Load()
    other = load._replace(decode=300.0, running=12.0, steps=(10.0,))
    series = vllm(load, "m") + vllm(other, "m", 'job="vllm", instance="gpu02:8000"')
    series += vllm(load, "n", 'job="vllm", instance="gpu03:8000"')
    one, two = (expected(llm, each, ONE_TWO_FIVE[:13]) for each in (load, other))
    third = expected(small, load, ONE_TWO_FIVE[:13])
    ruled = Ruled((facts(llm, "m", load), facts(small, "n", load)), SCOPE)
    asked = {
        'gpumon:model_decode_tokens:rate{model_name="m"}': 1500.0,
        'gpumon:model_mfu:ratio{model_name="m"}': (one.mfu + two.mfu) / 2,
        'gpumon:model_mbu:ratio{model_name="m"}': (one.mbu + two.mbu) / 2,
        'gpumon:model_mfu:ratio{model_name="n"}': third.mfu,
        'gpumon:model_engines:count{model_name="m"}': 2.0,
        'gpumon:model_kv_usage:max{model_name="m"}': 0.25,
    }
    check(tmp_path, ruled, series, asked)


def test_several_api_servers_have_no_step_counter(tmp_path: Path):
    """Each would count every step: then it is duty / mean gap."""
    llm, load = spec(MODELS["dense"]), Load()
    series = [line for line in vllm(load, "m") if "process_start_time" not in line]
    labels = 'job="vllm", instance="gpu01:8000", model_name="m", engine="0"'
    series.append(counter("vllm:inter_token_latency_seconds_count", labels, load.decode))
    series.append(counter("vllm:inter_token_latency_seconds_sum", labels, load.decode / 20.0))
    found = expected(llm, load._replace(steps=(20.0,)), ONE_TWO_FIVE[:13])
    asked = {"gpumon:engine_steps:rate": 20.0, "gpumon:engine_mbu:ratio": found.mbu}
    check(tmp_path, Ruled((facts(llm, "m", load),), SCOPE), series, asked)


def test_a_restart_is_no_spike(tmp_path: Path):
    llm, load = spec(MODELS["dense"]), Load()
    rising = f"0+{load.decode * 15!r}x38"
    series = [line.replace(f"0+{load.decode * 15!r}x60", f"{rising} {rising}") for line in vllm(load, "m")]
    assert any(rising in line for line in series)
    ruled = Ruled((facts(llm, "m", load),), SCOPE)
    # What came between the last scrape and the restart is lost: it is less, never more.
    check(tmp_path, ruled, series, {"(gpumon:engine_decode_tokens:rate <= bool 1200.1)": 1.0}, "10m")


def test_energy_and_money_of_the_gpus_beside_an_engine(tmp_path: Path):
    load = Load()
    series = (
        vllm(load, "m") + dcgm("gpu01", 0, 0.75, 400.0) + dcgm("gpu01", 1, 0.25, 200.0) + dcgm("gpu09", 0, 0.0, 80.0)
    )
    ruled = Ruled((), SCOPE, Prices({"4": ("h100 80gb hbm3",)}))
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
    check(tmp_path, Ruled((), SCOPE, Prices({}, "4")), series, asked)


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
    check(tmp_path, Ruled((), SCOPE, Prices({}, "2")), here + there, asked)


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
    check(tmp_path, Ruled((), SCOPE), series, asked)


def test_sglangs_queues_are_all_that_the_screen_counts_and_no_others(tmp_path: Path):
    labels = 'job="sglang", instance="gpu02:30000", model_name="m"'
    queues = ("sglang:num_queue_reqs", *QUEUES)
    series = [gauge(name, labels, 2.0**at) for at, name in enumerate(queues)]
    others = ("sglang:num_running_reqs", "sglang:num_retracted_reqs", "sglang:num_used_tokens", "sglang:queue_time")
    series += [gauge(name, labels, 1000.0) for name in others]
    check(tmp_path, Ruled((), SCOPE), series, {"gpumon:engine_requests_waiting:sum": 2.0 ** len(queues) - 1.0})


def test_gpus_of_two_models_are_neither_ones(tmp_path: Path):
    load = Load()
    series = vllm(load, "m") + vllm(load, "n", 'job="vllm", instance="gpu01:8001"') + dcgm("gpu01", 0, 0.5, 400.0)
    asked = {"gpumon:model_tokens_per_joule:ratio": NAN, "gpumon:model_idle_cost:per_hour": NAN}
    check(tmp_path, Ruled((), SCOPE, Prices({}, "1.5")), series, asked | {"sum(gpumon:gpu_idle_cost:per_hour)": 0.75})


def test_pods_share_a_label_with_their_gpus(tmp_path: Path):
    load = Load()
    target = 'job="vllm", instance="10.0.0.7:8000", namespace="llm", pod="vllm-0"'
    gpus = 'job="dcgm", instance="10.0.0.9:9400", pod="dcgm-x", exported_pod="vllm-0", gpu="0", UUID="GPU-1"'
    series = [*vllm(load, "m", target), gauge("DCGM_FI_DEV_POWER_USAGE", gpus, 300.0)]
    ruled = Ruled((), SCOPE._replace(join="pod"))
    check(tmp_path, ruled, series, {'gpumon:model_tokens_per_joule:ratio{model_name="m"}': 4.0})


@pytest.mark.parametrize(
    ("scrape_s", "window"), [(1.0, "10s"), (15.0, "60s"), (60.0, "240s"), (0.3, "10s"), (7.7, "30800ms")]
)
def test_windows_hold_four_scrapes(scrape_s: float, window: str):
    text = rules_yaml(Ruled((), Scope("", ("instance",), scrape_s)))
    assert f'rate(vllm:generation_tokens_total{{model_name!=""}}[{window}])' in text


def test_no_group_has_more_rules_than_mimir_takes_and_no_series_dies_between_two_evaluations():
    """A series is gone after 5 minutes without a sample."""
    text = rules_yaml(Ruled((), Scope("", ("instance",), 3600.0), Prices({}, "1"), served=True))
    groups = text.split("  - name: ")[1:]
    assert max(group.count("- record:") for group in groups) <= 20
    assert all(float(found) <= 240.0 for found in re.findall("interval: ([0-9.]+)s", text))
    assert all("    interval: " in group for group in groups)


@pytest.mark.parametrize(("cluster", "there"), [("z", False), ("a{1}", True)])
def test_matchers_stand_in_every_selector(tmp_path: Path, cluster: str, there: bool):
    load = Load(cached=0.0)
    series = [*vllm(load, "m"), *sglang(load, "m"), *llamacpp(load, "m"), *dcgm("gpu01", 0, 0.5, 100.0)]
    series = [line.replace("job=", 'cluster="a{1}", job=') for line in series]
    ruled = Ruled((), SCOPE._replace(match=f'cluster="{cluster}",'), Prices({}, "1"))
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
    ruled = Ruled((facts(llm, "m", load),), SCOPE._replace(match='model_name="m"'))
    found = expected(llm, load, ONE_TWO_FIVE[:13])
    asked = {
        "gpumon:engine_mbu:ratio": found.mbu,
        "gpumon:engine_steps:rate": 25.0,
        "count(gpumon:engine_requests_running:sum)": 1.0,
        'count(ALERTS{alertname="GpumonEngineDown", alertstate="firing", instance="gpu01:8000"})': 1.0,
    }
    check(tmp_path, ruled, series, asked, at="11m", evaluated="30s")
