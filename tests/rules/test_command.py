"""`gpumon rules` as a user runs it: names of every kind, what is refused and why, and what a real Prometheus has."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from gpumon import cli
from gpumon.outputs.dashboard import dashboard
from gpumon.outputs.rules import RuleInputs, RulePrices, Scope, quoted, rules_yaml
from tests.fakes.engine import FakeEngine
from tests.fakes.http_server import LoopbackServer, Reply
from tests.fakes.prometheus import Prometheus, promtool
from tests.rules.checked import expressions

GPU = ("--gpu", "H100 SXM 80GB", "--gpus-per-engine", "16")
CONFIG = """
[[model]]
match = "{match}"
params_b = 8.0
layers = 32
hidden = 4096
heads = 32
kv_heads = 8
vocab = 128256
"""
ODD = (
    'say "hi"',
    "back\\slash",
    "org/llama 3.1 (8B)",
    "模型-é-😀",
    "tab\there",
    "${x} {{ $labels }} %s",
    "a" * 300,
    "line\u2028two",
    "nel\x85",
    "'; drop",
)


@pytest.fixture(autouse=True)
def _own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "gpumon.toml"
    file.write_text("")
    monkeypatch.setenv("GPUMON_CONFIG", str(file))


def printed(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert cli.main(["rules", *words]) == code
    out, err = capsys.readouterr()
    warned = ("gpumon: no MFU and MBU of ", "gpumon: rules: assumed 1 GPU per engine")
    told = [line for line in err.splitlines() if code or not line.startswith(warned)]
    assert (code != 0) == bool(told)
    assert ("# No figures of " in out) == (not code and "no MFU and MBU of" in err)
    return err if code else out


def checked(folder: Path, text: str) -> int:
    """Rules that promtool found."""
    (folder / "rules.yml").write_text(text, encoding="utf-8")
    result = promtool("check", "rules", str(folder / "rules.yml"))
    assert result.returncode == 0, result.stdout + result.stderr
    return int(result.stdout.partition("SUCCESS: ")[2].split()[0])


def test_models_of_the_catalogue(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    names = ("Llama-3.1-70B", "Qwen3-235B-A22B", "DeepSeek-V3", "Qwen3-Next-80B-A3B", "gpt-oss-120b", "Gemma-3-27B")
    text = printed(capsys, *(word for name in names for word in ("--model", name)), *GPU, "--price", "2.5")
    assert checked(tmp_path, text) > 100
    assert text.count("record: gpumon:model_gpu_peak_flops:const\n") == len(names)
    assert "No figures of" not in text


def test_odd_names_stay_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "gpumon.toml").write_text(CONFIG.format(match="*"))
    words = [word for name in ODD for word in ("--model", name)]
    text = printed(capsys, *words, "--gpu", "H100 SXM 80GB")
    assert checked(tmp_path, text) > 50
    # What Prometheus understood, in its own words.
    constant = "gpumon:model_engine_gpus:const"
    lines = [
        "rule_files: [rules.yml]",
        "tests:",
        "- interval: 1m",
        "  promql_expr_test:",
        f"  - expr: count({constant} == 1)",
        "    eval_time: 2m",
        f"    exp_samples: [{{value: {len(ODD)}}}]",
    ]
    for name in ODD:
        lines.append(f"  - expr: {quoted(f'count({constant}{{model_name={json.dumps(name, ensure_ascii=False)}}})')}")
        lines.append("    eval_time: 2m")
        lines.append("    exp_samples: [{value: 1}]")
    (tmp_path / "test.yml").write_text("\n".join(lines) + "\n")
    result = promtool("test", "rules", str(tmp_path / "test.yml"))
    assert result.returncode == 0, result.stdout + result.stderr


def test_no_group_is_larger_than_what_mimir_takes(capsys: pytest.CaptureFixture[str]):
    more = ("--gpus-per-engine", "16/2", "--price", "2", "--context", "2000")
    text = printed(capsys, "--model", "Llama-3.1-70B", *GPU, *more)
    groups = text.split("  - name: ")[1:]
    assert len(groups) >= 8
    assert all(group.count("- record:") + group.count("- alert:") <= 20 for group in groups)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--model NAME"),
        (("--model", "Llama-3.1-8B"), "--gpu TYPE"),
        (("--model", "Llama-3.1-8B", "--gpu", "H101"), "near names"),
        (("--model", "Llama-3.1-8B", "--gpu", "other=H100 SXM 80GB"), "no such model here"),
        (("--model", "Llama-3.1-8B", *GPU, "--gpus-per-engine", "x"), "whole number"),
        (("--model", "Llama-3.1-8B", *GPU, "--gpus-per-engine", "8/3"), "evenly"),
        (("--model", "Llama-3.1-8B", *GPU, "--gpus-per-engine", "8/0"), "GPUS/RANKS"),
        (("--model", "Llama-3.1-8B", *GPU, "--gpus-per-engine", "8/4/2"), "GPUS/RANKS"),
        (("--model", "Llama-3.1-8B", *GPU, "--gpus-per-engine", "1025"), "1024"),
        (("--model", "\udcff", *GPU), "UTF-8"),
        (("--interval", "0"), "from 0.25"),
        (("--model", "Llama-3.1-8B", *GPU, "--join", 'pod"'), "name of a label"),
    ],
)
def test_what_is_refused_says_what_to_give(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str):
    err = printed(capsys, *words, code=2)
    assert said in err
    assert err.count("\n") == 1


def test_nobody_answers_at_the_url(capsys: pytest.CaptureFixture[str]):
    """A failure at run time: the words were right."""
    err = printed(capsys, "--prometheus", "http://127.0.0.1:9", code=1)
    assert "nothing listens" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("given", ["16/8", "acme/x=16/8"])
def test_gpus_and_ranks_of_an_engine_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str], given: str):
    (tmp_path / "gpumon.toml").write_text(CONFIG.format(match="acme/x"))
    text = printed(capsys, "--gpu", "H100 SXM 80GB", "--gpus-per-engine", given)
    assert checked(tmp_path, text) > 50
    expr = "        expr: vector({})\n".format
    assert f"record: gpumon:model_engine_gpus:const\n{expr(16)}" in text
    assert f"record: gpumon:model_engine_ranks:const\n{expr(8)}" in text
    assert "record: gpumon:model_engine_ranks:const" not in printed(capsys, "--gpu", "H100 SXM 80GB")


@pytest.mark.parametrize(
    ("match", "fine"),
    [
        ('cluster="a"', True),
        ('cluster = "a", env=~"prod.*|x{1}",', True),
        ("cluster='a',b!~`c\"}`", True),
        ('a="x\\"y"', True),
        ("", True),
        ("cluster=a", False),
        ('{cluster="a"}', False),
        ('cluster="a" env="b"', False),
        ('cluster="a"} or up{b="c"', False),
        ('a="b', False),
        ('my.label="b"', False),
        ('__name__="up"', False),
    ],
)
def test_matchers_of_the_config_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str], match: str, fine: bool):
    (tmp_path / "gpumon.toml").write_text(f"[prometheus]\nmatch = {json.dumps(match)}\n")
    words = ("--model", "Llama-3.1-8B", *GPU)
    if fine:
        assert checked(tmp_path, printed(capsys, *words)) > 50
        return
    err = printed(capsys, *words, code=2)
    assert "prometheus.match = " in err
    assert err.count("\n") == 1


def test_an_unknown_model_is_a_comment_with_the_lines_to_add(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    text = printed(capsys, "--model", "acme/secret-9b\ngroups: []", *GPU)
    assert checked(tmp_path, text) > 50
    assert "#   [[model]]" in text
    assert "record: gpumon:model_weight_bytes:const\n" not in text


def test_a_model_that_does_not_fit_costs_only_its_own_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    words = ("rules", "--model", "Llama-3.1-70B", "--model", "Llama-3.1-8B", "--gpu", "H100 SXM 80GB")
    assert cli.main([*words]) == 0
    text, said = capsys.readouterr()
    why = "its weights take 141 GB, and 1 x H100 SXM5 80GB has 86: give --gpus-per-engine 'Llama-3.1-70B=N'"
    assert f"gpumon: no MFU and MBU of Llama-3.1-70B: {why}\n" in said
    assert f"# No figures of Llama-3.1-70B:\n#   {why}\n" in text
    assert checked(tmp_path, text) > 50
    assert 'labels: {model_name: "Llama-3.1-8B"}' in text
    assert 'model_name: "Llama-3.1-70B"' not in text


class TestDashboard:
    def test_it_is_json_with_variables(self, capsys: pytest.CaptureFixture[str]):
        made = json.loads(printed(capsys, "--dashboard"))
        assert made["schemaVersion"] >= 36
        assert [one["name"] for one in made["templating"]["list"]] == ["datasource", "model", "cluster", "engine"]
        assert len({panel["id"] for panel in made["panels"]}) == len(made["panels"]) >= 12
        cells = [(x, y) for panel in made["panels"] for x, y in [(panel["gridPos"]["x"], panel["gridPos"]["y"])]]
        assert len(set(cells)) == len(cells)

    @pytest.mark.parametrize("priced", [False, True])
    def test_every_series_is_one_that_the_rules_make(self, priced: bool):
        inputs = RuleInputs((), Scope("", (), 15.0), RulePrices({}, "2" if priced else ""))
        made = set(re.findall(r"- record: (\S+)", rules_yaml(inputs)))
        for expr in expressions(dashboard(priced=priced)):
            names = {word for word in expr.replace("(", " ").replace("{", " ").replace(")", " ").split() if ":" in word}
            assert names
            assert names <= made, expr


def engine(model: str = "tiny-llama") -> str:
    own = f'{{model_name="{model}",engine="0"}}'
    return f"vllm:num_requests_running{own} 1\nvllm:generation_tokens_total{own} 7\n"


def cards(count: int, labels: str = "", name: str = "NVIDIA H100 80GB HBM3") -> str:
    uuid = re.sub("[^a-z0-9]", "", labels + name.lower())
    lines = (
        f'DCGM_FI_DEV_GPU_UTIL{{gpu="{at}",UUID="GPU-{uuid}{at}",modelName="{name}"{labels}}} 5\n'
        for at in range(count)
    )
    return "".join(lines)


IN_POD = ',namespace="llm",pod="{}"'.format
OWN = (
    'gpumon_build_info 1\ngpumon_source_up{source="collector"} 1\ngpumon_engine_gpus{engine="vllm:8000"} 2\n'
    'gpumon_engine_info{engine="vllm:8000",model="tiny-llama"} 1\n'
)
TARGETS = [
    *(("one", "", engine()), ("one", "", cards(1))),
    *(("two", "", engine()), ("two", "", cards(1)), ("two", "", cards(1, name="NVIDIA L40S"))),
    *(("strange", "", engine()), ("strange", "", cards(1, name="Matrox"))),
    *(("pods", "a-0", engine()), ("pods", "", cards(4, IN_POD("a-0")))),
    *(("pods", "b-0", engine("big-llama")), ("pods", "", cards(2, IN_POD("b-0")))),
    ("exported", "a-0", engine()),
    ("exported", "dcgm-x", cards(4, IN_POD("a-0"))),
    *(("uneven", "a-0", engine()), ("uneven", "", cards(4, IN_POD("a-0")))),
    *(("uneven", "a-1", engine()), ("uneven", "", cards(2, IN_POD("a-1"))), ("uneven", "a-2", engine())),
    *(("slices", "a-0", engine()), ("slices", "", cards(2, IN_POD("a-0") + ',GPU_I_ID="1",GPU_I_PROFILE="3g.40gb"'))),
    *(("both", "", engine()), ("both", "", cards(1)), ("both", "", OWN)),
    ("watched", "", "gpumon_build_info 1\n"),
]
"""Cluster, pod and page of each target."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory):
    """A Prometheus that scrapes an engine of cluster a, and `TARGETS`."""
    with contextlib.ExitStack() as stack:
        real = stack.enter_context(FakeEngine("vllm-basic", start_s=30.0)).server.port
        targets = [f"{{targets: ['127.0.0.1:{real}'], labels: {{cluster: a}}}}"]
        for cluster, pod, text in TARGETS:
            reply = Reply(200, text.encode(), "text/plain; version=0.0.4")
            target = LoopbackServer(lambda _, reply=reply: reply)
            stack.callback(target.close)
            target.listen()
            labels = f"cluster: {cluster}, node: node-{len(targets)}" + (f", namespace: llm, pod: {pod}" if pod else "")
            targets.append(f"{{targets: ['127.0.0.1:{target.port}'], labels: {{{labels}}}}}")
        scrape = f"  - {{job_name: all, static_configs: [{', '.join(targets)}]}}"
        server = stack.enter_context(Prometheus(tmp_path_factory.mktemp("prometheus"), [scrape]))
        server.until("up == 1", results=len(targets))
        server.until('vllm:num_requests_running{cluster="a"}')
        yield server


def of_cluster(folder: Path, cluster: str) -> None:
    """Settings of a user who has tiny-llama."""
    match = f"[prometheus]\nmatch = 'cluster=\"{cluster}\"'\n"
    (folder / "gpumon.toml").write_text(match + CONFIG.format(match="tiny-llama"))


def test_models_are_those_of_the_prometheus(tmp_path: Path, capsys: pytest.CaptureFixture[str], served: Prometheus):
    of_cluster(tmp_path, "a")
    text = printed(capsys, "--prometheus", served.url, "--gpu", "H100 SXM 80GB")
    assert checked(tmp_path, text) > 50
    assert 'labels: {model_name: "tiny-llama"}' in text
    assert "gpumon:model_kv_pool_tokens:const" in text.partition("gpumon-prompt-buckets")[0]


def test_a_model_that_nobody_knows_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str], served: Prometheus):
    (tmp_path / "gpumon.toml").write_text("[prometheus]\nmatch = 'cluster=\"a\"'\n")
    text = printed(capsys, "--prometheus", served.url)
    assert checked(tmp_path, text) > 50
    assert "# No figures of tiny-llama:" in text


def test_matchers_leave_out_other_engines(tmp_path: Path, capsys: pytest.CaptureFixture[str], served: Prometheus):
    (tmp_path / "gpumon.toml").write_text("[prometheus]\nmatch = 'cluster=\"b\"'\n")
    said = printed(capsys, "--prometheus", served.url, code=2)
    assert "has no series" in said
    assert "--prometheus" not in said, "it was given"


@pytest.mark.parametrize(
    ("cluster", "code", "said"),
    [
        ("one", 0, "tiny-llama: config [[model]] 'tiny-llama', on H100 SXM5 80GB"),
        ("two", 2, "several types (NVIDIA H100 80GB HBM3, NVIDIA L40S)"),
        ("strange", 2, "--gpu TYPE"),
    ],
)
def test_the_type_of_the_gpus_is_dcgms(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], served: Prometheus, cluster: str, code: int, said: str
):
    of_cluster(tmp_path, cluster)
    assert said in printed(capsys, "--prometheus", served.url, code=code)


@pytest.mark.parametrize(
    ("cluster", "gpus"),
    [
        ("pods", 4),
        ("exported", 4),
        ("uneven", 4),
        ("both", 2),
        ("one", 0),
    ],
)
def test_gpus_of_an_engine_are_those_of_its_pod_or_what_it_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], served: Prometheus, cluster: str, gpus: int
):
    """0: nothing tells, and one is taken with a warning."""
    of_cluster(tmp_path, cluster)
    words = ["rules", "--prometheus", served.url, "--gpu", "H100 SXM 80GB"]
    assert cli.main(words) == 0
    text, said = capsys.readouterr()
    assert f"record: gpumon:model_engine_gpus:const\n        expr: vector({gpus or 1})\n" in text
    assert ("--gpus-per-engine 'tiny-llama=N'" in said) == (gpus == 0)
    assert ("tiny-llama have different numbers of GPUs (1 on 2, 1 on 4)" in said) == (cluster == "uneven")
    assert cli.main([*words, "--gpus-per-engine", "tiny-llama=3"]) == 0
    text, said = capsys.readouterr()
    assert "vector(3)" in text
    assert "GPU" not in said.replace("no MFU and MBU", "")


def test_a_model_on_slices_has_no_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str], served: Prometheus):
    of_cluster(tmp_path, "slices")
    assert cli.main(["rules", "--prometheus", served.url, "--gpu", "H100 SXM 80GB"]) == 0
    text, said = capsys.readouterr()
    assert "its engines run on MIG slices" in said
    assert "# No figures of tiny-llama:\n#   its engines run on MIG slices" in text


@pytest.mark.parametrize(
    ("cluster", "groups"),
    [
        ("one", {"gpumon-alerts"}),
        ("watched", {"gpumon-served-alerts"}),
        ("both", {"gpumon-alerts", "gpumon-served-alerts"}),
    ],
)
def test_what_is_scraped_decides_which_rules_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], served: Prometheus, cluster: str, groups: set[str]
):
    of_cluster(tmp_path, cluster)
    text = printed(capsys, "--prometheus", served.url)
    assert checked(tmp_path, text) > 8
    assert {line.split()[-1] for line in text.splitlines() if line.endswith("-alerts")} == groups
    rows = [panel for panel in made_of(capsys, served)["panels"] if panel["type"] == "row"]
    assert len(rows) == (2 if len(groups) == 2 else 0)


def made_of(capsys: pytest.CaptureFixture[str], served: Prometheus) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(printed(capsys, "--dashboard", "--prometheus", served.url))
    places = [tuple(panel["gridPos"].values())[:2] for panel in made["panels"]]
    assert len(set(places)) == len(places) == len({panel["id"] for panel in made["panels"]})
    return made


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "made.yml"
    words = ("--model", "Llama-3.1-8B", *GPU, "-o", str(file))
    assert "near names" in printed(capsys, *words, "--gpu", "H101", code=2)
    assert not file.exists()
    assert printed(capsys, *words) == ""
    text = file.read_text()
    assert checked(tmp_path, text) > 50
    assert "made.yml is there already" in printed(capsys, *words, "--price", "2", code=2)
    assert file.read_text() == text
    assert "cannot be written" in printed(capsys, *words[:-1], "/dev/null/x", code=2)
