"""Text from outside never reaches the terminal as anything but text."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpumon.readings.missing import Missing, Reason
from gpumon.readings.text import clean, unsaid


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("meta-llama/Llama-3.3-70B", "meta-llama/Llama-3.3-70B"),
        ("\x1b[31mred\x1b]0;title\x07", "\\x1b[31mred\\x1b]0;title\\x07"),
        ("\x9b2J", "\\x9b2J"),
        ("a\nb\rc\td", "a\\x0ab\\x0dc\\x09d"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("模型-7B", "模型-7B"),
        ("[bold]markup[/bold]", "[bold]markup[/bold]"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_a_terminal_would_interpret_is_made_visible(hostile: str, shown: str):
    assert clean(hostile) == shown


def test_long_text_is_cut_and_marked():
    assert clean("x" * 10_000) == "x" * 255 + "…"
    assert clean("x" * 40, 10) == "x" * 9 + "…"


@given(st.text())
def test_nothing_unsafe_is_left_and_it_is_never_too_long(text: str):
    shown = clean(text, 64)
    assert len(shown) <= 64
    assert not {unicodedata.category(character) for character in shown} & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("vllm serve m --api-key sesame --port 8000", "vllm serve m --api-key *** --port 8000"),
        ("vllm serve m --api-key one two --port 8000", "vllm serve m --api-key *** --port 8000"),
        ("python -m sglang.launch_server --api-key=sesame", "python -m sglang.launch_server --api-key=***"),
        ("env VLLM_API_KEY=sesame HF_TOKEN=x vllm serve m", "env VLLM_API_KEY=*** HF_TOKEN=*** vllm serve m"),
        ("sh -c 'serve --hf-token x -v'", "sh -c 'serve --hf-token *** -v'"),
        ("run --max-tokens 5 --tokenizer t --token-limit 3", "run --max-tokens 5 --tokenizer t --token-limit 3"),
        ("serve --password", "serve --password"),
        ("serve --api-key one --hf_token two three -v four", "serve --api-key *** --hf_token *** -v four"),
        ("serve --name x;--api-key one", "serve --name x;--api-key ***"),
        ("serve --api-key=one --api-key\ttwo", "serve --api-key=*** --api-key ***"),
        ("serve --stop-token-ids 1 --mytoken 5 token 7", "serve --stop-token-ids 1 --mytoken 5 token 7"),
        ("tritonserver --http-restricted-api a:token=x", "tritonserver --http-restricted-api a:token=***"),
        ("train.py trainer.wandb.api_key=x --lr 1", "train.py trainer.wandb.api_key=*** --lr 1"),
        ("aws --aws-secret-access-key x -v", "aws --aws-secret-access-key *** -v"),
        ("env AWS_SECRET_ACCESS_KEY=x aws", "env AWS_SECRET_ACCESS_KEY=*** aws"),
        ("get https://b.s3/x?X-Amz-Signature=x", "get https://b.s3/x?X-Amz-Signature=***"),
        ("get http://h/?api_key=x http://h/?token=x", "get http://h/?api_key=*** http://h/?token=***"),
        ("get http://h/?a=b&sig=x", "get http://h/?a=b&sig=***"),
        ('serve {"api_key": "x y", "model": "m"}', 'serve {"api_key": ***, "model": "m"}'),
        ("serve {'hf_token':'x y','model':'m'}", "serve {'hf_token':***,'model':'m'}"),
        ('serve {\\"api_key\\": \\"x\\"}', 'serve {\\"api_key\\": ***}'),
        ("python -c openai.api_key='x y' z", "python -c openai.api_key=*** z"),
        ("python -c openai.api_key = 'x y' z", "python -c openai.api_key = *** z"),
        ("run --access-key x -a --private-key y -b", "run --access-key *** -a --private-key *** -b"),
        ("run --pass x -a --key y -b", "run --pass *** -a --key *** -b"),
        ("curl --auth u:p -v -u u:p http://h", "curl --auth *** -v -u *** http://h"),
        ("curl -u 'u:p' http://h", "curl -u *** http://h"),
        ("wandb login x; wandb login --relogin x", "wandb login *** wandb login --relogin ***"),
        ("run xoxb-123456789 glpat-123456789 gho_123456789", "run xoxb-*** glpat-*** gho_***"),
        ("run github_pat_123456789", "run github_pat_***"),
        (
            "python -u train.py --passes 3 --sort-key=name --signal 9",
            "python -u train.py --passes 3 --sort-key=name --signal 9",
        ),
        ("docker run -u 1000:1000 --keyspace 5 design=3", "docker run -u 1000:1000 --keyspace 5 design=3"),
    ],
)
def test_a_command_line_is_shown_without_its_secrets(command: str, shown: str):
    assert unsaid(command) == shown


@pytest.mark.parametrize(
    "part",
    [
        "-",
        "-a",
        "a-",
        "--api-key ",
        "_token",
        "token=",
        "-token",
        " -token x",
        '"token":',
        'token="',
        "wandb login -a ",
        "-u a",
        "'a",
    ],
)
def test_a_hostile_command_line_takes_no_time(part: str):
    assert len(unsaid(part * (400_000 // len(part)))) <= 500_000


def test_a_missing_reading_has_no_truth_value():
    with pytest.raises(TypeError, match="isinstance"):
        bool(Missing(Reason.STALE))
