"""`gpumon models`, as it is typed: list, search and show, with files of this host, a config, and names of nobody."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tomli

from gpumon import cli
from gpumon.sources.packaged import llm_catalogue

DATA = Path(__file__).parents[1] / "data"
CONFIGS = json.loads((DATA / "model_configs.json").read_text("utf-8"))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("GPUMON_CONFIG", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "OLLAMA_MODELS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = cli.main(["models", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


def parsed(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(capsys, *words, "--json")[1])
    assert found["schema"] == 1
    return found


def entry(home: Path, text: str) -> None:
    path = home / ".config" / "gpumon" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(text)


def test_the_catalogue_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys)
    assert (code, err) == (0, "")
    assert run(capsys, "list")[1] == out
    lines = out.splitlines()
    rows = llm_catalogue().rows
    assert [line.split()[0] for line in lines[1 : len(rows) + 1]] == [row.name for row in rows]
    assert "gpt-oss-120b                     117B    5.1B      36     37  mxfp4   128k  MoE+SWA" in lines
    assert [line.split()[0:2] + line.split()[-1:] for line in lines if line.startswith("diffusiongemma-26B-A4B ")] == [
        ["diffusiongemma-26B-A4B", "26.5B", "refused"]
    ]
    assert (
        "no MFU and MBU for diffusiongemma-26B-A4B: config.json: model_type 'diffusion_gemma_text' is not modelled: "
        in out
    )


def test_json_has_every_row_with_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    found = {row["name"]: row for row in parsed(capsys)["models"]}
    assert len(found) == len(llm_catalogue().rows)
    deepseek = found["DeepSeek-V3"]
    assert deepseek["kv_bytes_per_token"] == 70272
    assert (deepseek["params"], deepseek["experts"]) == (pytest.approx(671.03e9, rel=1e-4), 256)
    assert deepseek["no_figures"] is None
    refused = found["diffusiongemma-26B-A4B"]
    assert "model_type 'diffusion_gemma_text' is not modelled" in refused["no_figures"]
    assert "params" not in refused


def test_a_search(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "search", "qwen3", "a3b")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:4]] == [
        "Qwen3-30B-A3B",
        "Qwen3-Next-80B-A3B",
        "Qwen3-Omni-30B-A3B",
    ]
    code, out, err = run(capsys, "search", "quen3-32b")
    assert (code, err) == (1, "")
    assert out.startswith("no model of the catalogue is named quen3-32b; nearest: Qwen3-32B")
    assert parsed(capsys, "search", "nothing-like-it")["models"] == []


def test_a_further_token_costs_nothing_in_layers_whose_window_is_full(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "show", "gpt-oss-120b")[1]
    assert "a sequence of 4,096 tokens holds 156MB, each further token 36,864 bytes (bf16)" in out
    assert "each further token 73,728 bytes" in run(capsys, "show", "gpt-oss-120b", "--context", "100")[1]


def test_a_config_file_and_a_folder_without_a_slash_are_found(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "config.json").write_text(json.dumps(CONFIGS["Qwen3-0.6B"]))
    monkeypatch.chdir(tmp_path)
    for name in ("own", "./own", "own/config.json", f"{tmp_path}/own/config.json"):
        code, out, _ = run(capsys, "show", name)
        assert code == 0
        assert f"from          {tmp_path}/own/config.json" in out


def test_integers_say_how_many_bits_they_have(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    saved = {"quant_method": "gptq", "bits": 3, "group_size": 128, "sym": True, "lm_head": True}
    (tmp_path / "config.json").write_text(json.dumps({**CONFIGS["Qwen2.5-72B"], "quantization_config": saved}))
    out = run(capsys, "show", str(tmp_path))[1]
    assert "weights       int4 (3.1 bits per weight on average), arithmetic at 16 bit: " in out


def test_the_cure_is_that_of_what_is_wrong(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = run(capsys, "show", f"{tmp_path}/nowhere/")
    assert (code, out.splitlines()[-1]) == (1, "no such file or folder on this host")
    (tmp_path / "config.json").write_text('{"model_type": ')
    out = " ".join(run(capsys, "show", str(tmp_path))[1].split())
    assert "Mend that file, then start gpumon again" in out
    assert "[[model]] match" not in out
    (tmp_path / "config.json").write_text(json.dumps({**CONFIGS["Qwen3-0.6B"], "num_hidden_layers": "thirty"}))
    assert "mend the file where it is wrong" in " ".join(run(capsys, "show", str(tmp_path))[1].split())
    out = run(capsys, "show", "mistral-large")[1]
    assert '  if it is one  model = "Mistral-Large-4" in the [[endpoint]] that serves it under this name' in out


def test_an_encoder_decodes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "show", "bge-m3")[1]
    assert "per token of a text of 4,096 tokens" in out
    assert not any(word in out for word in ("  KV cache", "in decode", "its LM head"))


def test_a_model_of_the_catalogue_is_shown_with_its_sources(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    code, out, _ = run(capsys, "show", "meta-llama/Llama-3.3-70B-Instruct-FP8")
    assert code == 0
    for line in (
        "  from          catalogue row Llama-3.3-70B, fp8 by its name",
        "  published in  litgpt litgpt/config.py @26857050",
        "  parameters    70.552e9, 69.502e9 multiplied per token",
        "  attention     64 heads of 128, 8 KV heads; 80 layers see the whole context",
        "  weights       fp8: 72.7GB; a step reads 70.6GB at batch 1",
        "  KV cache      a sequence of 4,096 tokens holds 1.34GB, each further token 327,680 bytes (bf16)",
        "  looked at     config: no [[model]] entry matches",
        "                catalogue: row Llama-3.3-70B, fp8 by its name",
    ):
        assert line in out.splitlines()
    assert f"files: none in {home}/.cache/huggingface/hub" in out


def test_figures_are_for_the_context_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    short = parsed(capsys, "show", "Qwen3-30B-A3B")["model"]
    long = parsed(capsys, "show", "Qwen3-30B-A3B", "--context", "32768")["model"]
    assert (short["context_tokens"], long["context_tokens"]) == (4096, 32768)
    assert short["kv_read_bytes_per_step"] == 4096 * short["kv_bytes_per_token"]
    grown = long["decode_flops_per_token"] - short["decode_flops_per_token"]
    assert grown == 4 * 32 * 128 * 48 * (32768 - 4096)
    assert short["step_read_bytes"]["1"] < short["step_read_bytes"]["64"] < short["weight_bytes"]


def test_what_is_refused_gives_no_figure_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "show", "google/diffusiongemma-26B-A4B-it")
    assert code == 1
    assert "it computes a block of tokens several times over" in " ".join(out.split())
    assert "nearest" not in out
    found = parsed(capsys, "show", "google/diffusiongemma-26B-A4B-it")
    assert found["model"] is None
    assert found["catalogue"]["no_figures"] in found["why_unknown"]
    _, out, _ = run(capsys, "show", "google/gemma-3-27b-it")
    assert "  not counted   vision encoder" in out.splitlines()


def test_a_folder_of_this_host_and_the_hugging_face_cache(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    folder = home / "models" / "mine"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIGS["Qwen3-30B-A3B"]))
    code, out, _ = run(capsys, "show", str(folder))
    assert code == 0
    assert f"  from          {folder}/config.json" in out.splitlines()
    assert "  experts       8 of 128 per token, 226.49e6 parameters each over all layers" in out.splitlines()
    snapshot = home / ".cache" / "huggingface" / "hub" / "models--acme--mine" / "snapshots" / "c0ffee"
    snapshot.parent.mkdir(parents=True)
    folder.rename(snapshot)
    assert f"{snapshot}/config.json" in run(capsys, "show", "acme/mine")[1]


def test_a_gguf_file_also_by_a_relative_path(
    capsys: pytest.CaptureFixture[str], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "tiny.gguf").write_bytes(gzip.decompress((DATA / "gguf" / "tiny-llama.header.gz").read_bytes()))
    monkeypatch.chdir(home)
    for name in ("tiny.gguf", "./tiny.gguf", "~/tiny.gguf"):
        model = parsed(capsys, "show", name)["model"]
        assert (model["params"], model["weight_bytes"]) == (19_335_424, 38_675_456)
    (home / "cut.gguf").write_bytes((home / "tiny.gguf").read_bytes()[:999])
    code, out, _ = run(capsys, "show", "cut.gguf")
    assert code == 1
    assert "cut.gguf: GGUF header ends before it is complete: a download that was cut off?" in " ".join(out.split())


def test_a_config_entry_wins_and_is_listed(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    entry(
        home,
        '[[model]]\nmatch = "meta-llama/*"\nparams_b = 8.0\nlayers = 32\nhidden = 4096\nheads = 32\nkv_heads = 8\n',
    )
    assert parsed(capsys)["configured"] == ["meta-llama/*"]
    assert "in the config, ahead of these: meta-llama/*" in run(capsys)[1].splitlines()
    found = parsed(capsys, "show", "meta-llama/Llama-3.1-8B")
    assert found["model"]["source"] == "config [[model]] 'meta-llama/*'"
    assert found["looked"] == [{"place": "config", "found": "[[model]] 'meta-llama/*'"}]


def test_an_unknown_one_gives_the_nearest_names_and_the_lines_to_add(
    capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    code, out, err = run(capsys, "show", "acme/llama-70b-tuned")
    assert (code, err) == (1, "")
    assert "  nearest       Llama-2-70B, Llama-3-70B, Llama-3.1-70B, Llama-3.3-70B" in out
    lines = tomli.loads(out[out.index("\n[[model]]\n") :])
    assert lines["model"][0]["match"] == "acme/llama-70b-tuned"
    found = parsed(capsys, "show", "acme/llama-70b-tuned")
    assert found["model"] is None
    assert found["add"][0] == "[[model]]"
    assert "gpumon models show" not in out + json.dumps(found), "it would send the reader where he is"
    assert found["why_unknown"].startswith("unknown model (no config entry")


def test_names_from_nowhere_are_shown_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("\x1b[31mred", "a\u202eb", "x" * 10_000, "", "\0", "/", "~", "~nobody/x"):
        code, out, err = run(capsys, "show", name)
        assert code == 1
        assert "\x1b" not in out + err
        assert "\u202e" not in out + err
        assert all(len(line) < 300 for line in out.splitlines())


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("foo",), "gpumon models: no such action: 'foo'; known: list, search, show"),
        (("serch", "x"), "did you mean search?"),
        (("search",), "the following arguments are required: WORD"),
        (("show",), "the following arguments are required: NAME"),
        (("show", "a", "b"), "unrecognized arguments: 'b'"),
        (("list", "x"), "unrecognized arguments: 'x'"),
        (("--context", "5"), "did you mean gpumon models show --context?"),
        (("show", "x", "--context", "0"), "must be a number from 1 to 100000000, not '0'"),
    ],
)
def test_bad_usage_is_told(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], problem: str) -> None:
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert problem in err
    assert err.count("\n") == 1


def test_the_installed_command(home: Path) -> None:
    command = Path(sys.executable).with_name("gpumon")
    done = subprocess.run(
        [command, "models", "show", "gpt-oss-20b", "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        env={"HOME": str(home)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["model"]["params"] == pytest.approx(20.91e9, rel=1e-3)


def test_every_row_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for row in llm_catalogue().rows:
        code, out, err = run(capsys, "show", row.hf_id)
        assert (code, err) == (1 if row.unusable else 0, ""), row.name
        assert (row.unusable or f"row {row.name}") in " ".join(out.split())
