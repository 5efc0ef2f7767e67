"""Every recorded figure is what gpumon's own formulas give: promtool evaluates the rules on made series."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpumon.efficiency.promql import model_constants, peak_constants, told_constants
from gpumon.outputs.rules import ModelFacts, Prices, Ruled, quoted, rules_yaml
from gpumon.outputs.rules_engines import ONE_TWO_FIVE, SGLANG_BOUNDS
from gpumon.outputs.rules_scope import Scope
from gpumon.sources.packaged import llm_catalogue
from gpumon.specs.llm import LlmSpec
from tests.fakes.prometheus import promtool
from tests.rules.loads import BANDWIDTH, PEAK, Expected, Load, counter, expected, gauge, llamacpp, sglang, vllm

MODELS = {
    "dense": "Llama-3.1-70B",
    "moe": "Qwen3-235B-A22B",
    "mla": "DeepSeek-V3",
    "hybrid": "Qwen3-Next-80B-A3B",
    "window": "gpt-oss-120b",
    "few window": "Gemma-2-27B",
}
SCOPE = Scope("", ("Hostname", "instance"), 15.0)
AT = "10m"


def spec(name: str) -> LlmSpec:
    found = llm_catalogue().find(name)
    assert found is not None
    return found


def facts(llm: LlmSpec, name: str, load: Load, context: float = 0.0, pool: float | None = None) -> ModelFacts:
    told = told_constants(load.pool if pool is None else pool, context)
    return ModelFacts(name, "test", (*model_constants(llm, load.gpus), *peak_constants(PEAK, BANDWIDTH), *told), "x")


def check(folder: Path, ruled: Ruled, series: list[str], values: dict[str, float], at: str = AT) -> None:
    """Each expression has this value, to a millionth; NaN: it has none."""
    (folder / "rules.yml").write_text(rules_yaml(ruled))
    lines = ["rule_files: [rules.yml]", "evaluation_interval: 15s", "tests:", "- interval: 15s", "  input_series:"]
    lines += [*series, "  promql_expr_test:"]
    for expr, value in values.items():
        there = value == value
        near = f"abs({expr} - {value!r}) <= {abs(value) * 1e-6!r}" if there else expr
        lines += [f"  - expr: {quoted(f'count({near})')}", f"    eval_time: {at}"]
        lines.append(f"    exp_samples: {'[{value: 1}]' if there else '[]'}")
    (folder / "test.yml").write_text("\n".join(lines) + "\n")
    result = promtool("test", "rules", str(folder / "test.yml"))
    assert result.returncode == 0, result.stdout + result.stderr


def figures(kind: str, load: Load, found: Expected) -> dict[str, float]:
    def of(name: str) -> str:
        return f'gpumon:engine_{name}{{engine_kind="{kind}"}}'

    return {
        of("decode_tokens:rate"): load.decode,
        of("prefill_tokens:rate"): load.computed,
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
    }


@pytest.mark.parametrize("name", MODELS.values(), ids=list(MODELS))
def test_vllm(tmp_path: Path, name: str):
    llm, load = spec(name), Load()
    found = expected(llm, load, ONE_TWO_FIVE[:13])
    ruled = Ruled((facts(llm, "m", load),), SCOPE)
    check(tmp_path, ruled, vllm(load, "m"), figures("vllm", load, found))


@pytest.mark.parametrize("name", [MODELS["dense"], MODELS["moe"], MODELS["mla"]])
def test_data_parallel_ranks_share_the_experts_of_a_step(tmp_path: Path, name: str):
    llm, load = spec(name), Load(steps=(25.0, 20.0, 24.0))
    found = expected(llm, load, ONE_TWO_FIVE[:13])
    ruled = Ruled((facts(llm, "m", load),), SCOPE)
    check(tmp_path, ruled, vllm(load, "m"), figures("vllm", load, found))


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
    load, nan = Load(), float("nan")
    asked = {
        "gpumon:model_decode_tokens:rate": load.decode,
        "gpumon:model_mfu:ratio": nan,
        "gpumon:model_mbu:ratio": nan,
        "gpumon:engine_flops:rate": nan,
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
    check(tmp_path, ruled, vllm(load, "m"), dict.fromkeys(zero, float("nan")), at="30m")


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
    check(tmp_path, ruled, series, {"(gpumon:engine_decode_tokens:rate <= bool 1200.1)": 1.0})


def dcgm(host: str, gpu: int, busy: float, watts: float) -> list[str]:
    labels = f'job="dcgm", instance="{host}:9400", Hostname="{host}", gpu="{gpu}", UUID="GPU-{host}-{gpu}"'
    labels += ', modelName="NVIDIA H100 80GB HBM3"'
    return [
        # The exporter repeats a GPU for each pod that shares it.
        *(gauge("DCGM_FI_DEV_GPU_UTIL", f'{labels}, pod="{pod}"', busy * 100.0) for pod in ("a", "b")),
        counter("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", labels, watts * 1000.0),
        gauge("DCGM_FI_DEV_FB_USED", labels, 60000.0),
        gauge("DCGM_FI_DEV_FB_FREE", labels, 20000.0),
        gauge("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", labels, 0.3),
    ]


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
    }
    check(tmp_path, ruled, series, asked)


def test_gpus_of_two_models_are_neither_ones(tmp_path: Path):
    load, nan = Load(), float("nan")
    series = vllm(load, "m") + vllm(load, "n", 'job="vllm", instance="gpu01:8001"') + dcgm("gpu01", 0, 0.5, 400.0)
    asked = {"gpumon:model_tokens_per_joule:ratio": nan, "gpumon:model_idle_cost:per_hour": nan}
    check(tmp_path, Ruled((), SCOPE, Prices({}, "1.5")), series, asked | {"sum(gpumon:gpu_idle_cost:per_hour)": 0.75})


def test_pods_share_a_label_with_their_gpus(tmp_path: Path):
    load = Load()
    target = 'job="vllm", instance="10.0.0.7:8000", namespace="llm", pod="vllm-0"'
    gpus = 'job="dcgm", instance="10.0.0.9:9400", pod="dcgm-x", exported_pod="vllm-0", gpu="0", UUID="GPU-1"'
    series = [*vllm(load, "m", target), gauge("DCGM_FI_DEV_POWER_USAGE", gpus, 300.0)]
    ruled = Ruled((), SCOPE._replace(join="pod"))
    check(tmp_path, ruled, series, {'gpumon:model_tokens_per_joule:ratio{model_name="m"}': 4.0})


@pytest.mark.parametrize("window", [1.0, 15.0, 60.0, 0.3])
def test_windows_hold_four_scrapes(window: float):
    scope = Scope("", (), window)
    seconds = float(scope.rate.removesuffix("ms")) / 1000 if scope.rate.endswith("ms") else float(scope.rate[:-1])
    assert seconds >= 4 * window


@pytest.mark.parametrize(("cluster", "there"), [("z", False), ("a{1}", True)])
def test_matchers_stand_in_every_selector(tmp_path: Path, cluster: str, there: bool):
    load = Load(cached=0.0)
    series = [*vllm(load, "m"), *sglang(load, "m"), *llamacpp(load, "m"), *dcgm("gpu01", 0, 0.5, 100.0)]
    series = [line.replace("job=", 'cluster="a{1}", job=') for line in series]
    ruled = Ruled((), SCOPE._replace(match=f'cluster="{cluster}",'), Prices({}, "1"))
    kinds = {
        kind: f"count(count by (engine_kind) (gpumon:engine_{kind}))" for kind in ("decode_tokens:rate", "steps:rate")
    }
    asked = dict.fromkeys(kinds.values(), 3.0 if there else float("nan"))
    asked["count(gpumon:gpu_busy:ratio)"] = 1.0 if there else float("nan")
    asked['count({__name__=~"gpumon:(engine|gpu|place|gpus)_.*"}) > bool 0'] = 1.0 if there else float("nan")
    check(tmp_path, ruled, series, {f"({expr})": value for expr, value in asked.items()})


def raised(folder: Path, ruled: Ruled, series: list[str], names: dict[str, bool], at: str) -> None:
    """Whether each alert is raised."""
    asked = {
        f'count(ALERTS{{alertname="{name}", alertstate="firing"}}) > bool 0': there for name, there in names.items()
    }
    check(folder, ruled, series, {f"({expr})": 1.0 if there else float("nan") for expr, there in asked.items()}, at)


ALERTS = ("GpumonKvCacheFull", "GpumonLowUse", "GpumonGpuHeldIdle", "GpumonXid", "GpumonThrottled", "GpumonEngineDown")


@pytest.mark.parametrize("wrong", ["", *ALERTS])
def test_an_alert_is_raised_by_what_it_names_and_by_nothing_else(tmp_path: Path, wrong: str):
    llm = spec(MODELS["dense"])
    load = Load(decode=12000.0, steps=(250.0,), computed=20000.0, usage=0.95 if wrong == "GpumonKvCacheFull" else 0.25)
    if wrong == "GpumonLowUse":
        load = load._replace(decode=40.0, steps=(1.0,), computed=10.0)
    target = 'job="vllm", instance="gpu01:8000"'
    up = "1x20 0x40" if wrong == "GpumonEngineDown" else "1x60"
    busy = 0.01 if wrong == "GpumonGpuHeldIdle" else 0.9
    card = 'job="dcgm", instance="gpu01:9400", Hostname="gpu01", gpu="0"'
    xid = "0x30 79x30" if wrong == "GpumonXid" else "43x60"
    series = [
        *vllm(load, "m"),
        *dcgm("gpu01", 0, busy, 300.0),
        f"  - {{series: 'up{{{target}}}', values: '{up}'}}",
        f"  - {{series: 'DCGM_FI_DEV_XID_ERRORS{{{card}}}', values: '{xid}'}}",
        # 4: at its power limit, which is normal work; 64: the hardware slows down for heat.
        gauge("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", card, 68.0 if wrong == "GpumonThrottled" else 4.0),
    ]
    series = [line.replace("x60", "x240") for line in series]
    at = {"GpumonEngineDown": "8m", "GpumonXid": "9m"}.get(wrong, "45m")
    ruled = Ruled((facts(llm, "m", load),), SCOPE)
    raised(tmp_path, ruled, series, {name: name == wrong for name in ALERTS}, at)
