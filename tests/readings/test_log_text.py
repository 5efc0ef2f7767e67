"""What of an engine's log may be shown: no prompt, no answer, no key, no sequence that a terminal obeys."""

from __future__ import annotations

import random
import string

from hypothesis import given
from hypothesis import strategies as st

from gpumon.readings.log_masking import masked_line
from gpumon.readings.log_text import (
    MOST_SHOWN_CHARACTERS,
    LogLevel,
    LogReader,
    begins_record,
    without_escapes,
)
from tests.each_row import each_row

SECRET = "swordfish"


@each_row(
    ("line", "kept"),
    [
        (
            "INFO 11-26 18:00:00 [logger.py:39] Received request cmpl-1: prompt: 'it\\'s swordfish', params: "
            "SamplingParams(n=1, temperature=0.7), prompt_token_ids: [1, 2, 3], lora_request: None.",
            "temperature=0.7",
        ),
        ('INFO 11-26 18:00:00 Received request c-1: prompt: "don\'t swordfish", params: None', "params: None"),
        ("INFO 11-26 18:00:00 Generated response c-1: output: 'swordfish', finish_reason: stop", "finish_reason: stop"),
        (
            '[2025-11-26 18:00:00] Receive: obj=GenerateReqInput(rid=\'4f\', text="a swordfish " ... "swordfish", n=1)',
            "rid='4f'",
        ),
        ("[2025-11-26 18:00:00] Finish: obj=GenerateReqInput(rid=None, text='swordfish'), out={'text': 'swordfish'}",
         "Finish:"),
        ('2025-11-26T18:00:00.1Z DEBUG generate{inputs="swordfish" n=2}: Success', "Success"),
        ("2025-11-26T18:00:00.1Z DEBUG text_generation_router: Input: tell me of swordfish", "text_generation_router"),
        ('srv  log_server_r: request: {"messages":[{"role":"user","content":"swordfish"}],"n":1}', "log_server_r"),
        ('{"time":"","level":"INFO","fields":{"message":"\\"prompt\\": \\"a \\\\\\"swordfish\\" end"}}', "end"),
        ("INFO body={'messages': [{'content': ['swordfish]', \"swordfish'\"]}], 'model': 'm'} served", "served"),
        ("pydantic: [type=missing, input_value={'prompt': 'swordfish'}, input_type=dict]", "input_type=dict"),
        ('INFO: 127.0.0.1 - "GET /generate?prompt=swordfish HTTP/1.1" 200', "/generate"),
        ("INFO non-default args: {'api_key': ['swordfish'], 'model': 'm'}", "'model': 'm'"),
        ("vllm serve m --api-key swordfish --port 8000", "--port 8000"),
        ("curl -H 'Authorization: Bearer swordfish' http://h", "http://h"),
        ("HF_TOKEN=swordfish python -m sglang", "python -m sglang"),
        ("OPENAI_KEY=swordfish WANDB_TOKEN=swordfish python -m sglang", "python -m sglang"),
        ("hf_token='swordfish', model='m'", "model='m'"),
        ("GET http://user:swordfish@h/metrics", "@h/metrics"),
        ("GET http://h/metrics?key=swordfish&n=1", "n=1"),
        ("loaded with hf_swordfishswordfish from hub", "from hub"),
        ("password: 'swordfish' refused", "refused"),
        ('INFO request user_message="tell me of the swordfish" status=200', "status=200"),
        ('{"level":"INFO","question":"what is swordfish?","status":"ok"}', '"status":"ok"'),
        ('{"level":"INFO","chat_turn":"the swordfish","status":"ok"}', '"status":"ok"'),
        ("xgrammar: Grammar: root ::= swordfish", "xgrammar"),
        ("ValueError: 'please tell me of swordfish' is not of type 'object'", "is not of type 'object'"),
        ("GET https://b.s3.amazonaws.com/m?X-Amz-Signature=swordfish&part=1", "part=1"),
        ("frage='天気 swordfish' status=200", "status=200"),
        ("INFO user_message=tell me of the swordfish status=200", "status=200"),
        ('{"level":"INFO","topic":"swordfish","status":"ok"}', '"status":"ok"'),
        ("INFO SamplingParams(n=1, stop=['swordfish'], temperature=0.7)", "temperature=0.7"),
        ("time=2025-11-26T18:00:00Z level=INFO msg=chat utterance=swordfish model=llama3", "model=llama3"),
        ('INFO guided_json={"type":"swordfish"} x=1', "x=1"),
        ('INFO kwargs: {"ask": "swordfish", "dtype": "bf16"}', '"dtype": "bf16"'),
        ("INFO user=swordfish logit_bias={1: 2}", "logit_bias={1: 2}"),
        ('INFO tools=[{"name":"swordfish"}] n=1', "n=1"),
        ("INFO wishes=['swordfish', 'b'] n=1", "n=1"),
        ("json.decoder.JSONDecodeError: Expecting value: swordfish", "JSONDecodeError"),
        ("RuntimeError: Worker failed with error 'CUDA error: swordfish of mine', please check", "please check"),
        ("RuntimeError: failed with 'CUDA out of memory. Tried to allocate 2.00 GiB. My swordfish', check", "check"),
        ('level=ERROR msg=x error="llama runner process has terminated: the swordfish" n=1', "n=1"),
        ("KeyError: 'swordfish' in 'x'", "KeyError"),
        ("Permission denied: 'a/swordfish' for b", "for b"),
        ("jinja2.exceptions.TemplateError: swordfish roles must alternate", "TemplateError"),
    ],
)  # fmt: skip
def test_what_users_wrote_and_keys_are_masked(line: str, kept: str) -> None:
    shown = LogReader().line(line).text
    assert SECRET not in shown
    assert kept in shown
    assert "***" in shown


@each_row(
    "line",
    [
        "INFO 11-26 18:00:00 Avg prompt throughput: 100.0 tokens/s, Running: 3 reqs, GPU KV cache usage: 12.1%",
        "[2025-11-26 18:00:00 TP0] Decode batch, #running-req: 1, #token: 512, token usage: 0.01, gen throughput: 99.1",
        "[2025-11-26 18:00:00] Prefill batch, #new-seq: 1, #new-token: 512, #cached-token: 0, input: 5",
        "slot print_timing: id 0 | prompt eval time = 100.2 ms / 5 tokens (20.0 ms per token, 49.9 tokens per second)",
        "srv  log_server_r: request: GET /metrics 127.0.0.1 200",
        'INFO:     127.0.0.1:1234 - "POST /v1/completions HTTP/1.1" 200 OK',
        "INFO max_tokens=512, prompt_logprobs=None, output=12, text: None",
        'I1126 18:00:00.1 1 server.cc:1] "Started GRPCInferenceService at 0.0.0.0:8001 now"',
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "ValueError: the model's max seq len (131072) is larger than the KV cache's (65536)",
        "RuntimeError: Worker failed with error 'CUDA error: out of memory', please check the stack trace above",
        "RuntimeError: Worker failed with error 'CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
        "capacity of 79.10 GiB of which 1.20 GiB is free. Process 4242 has 77.90 GiB memory in use. Of the allocated "
        "memory 76.01 GiB is allocated by PyTorch, and 512.00 MiB is reserved by PyTorch but unallocated. If reserved "
        "but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid "
        "fragmentation.  See documentation for Memory Management  "
        "(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)', please check the stack trace above",
        "RuntimeError: Worker failed with error 'NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for "
        "details)', please check the stack trace above for the root cause",
        'time=2025-11-26T18:00:00Z level=ERROR source=sched.go:456 msg="error loading llama server" error="llama '
        'runner process has terminated: cudaMalloc failed: out of memory"',
        "KeyError: 'model.layers.0.mlp.gate_up_proj.weight_scale'",
        "AttributeError: 'NoneType' object has no attribute 'shape'",
        "PermissionError: [Errno 13] Permission denied: '/models/llama/config.json'",
        'level=WARN source=gpu.go:1 msg="unable to refresh memory" error="nvml: driver/library version mismatch"',
        '{"timestamp":"2025-11-26T18:00:00","level":"INFO","fields":{"message":"Loading weights took 15 s"}}',
        "INFO 11-26 18:00:00 [core.py:77] with config: model='Qwen/Qwen3-8B', tokenizer_mode=auto, dtype=torch.bf16, "
        "load_format=auto, device_config=cuda, decoding_config=DecodingConfig(backend='auto'), served_model_name=m",
        'time=2025-11-26T18:00:00Z level=INFO source=types.go:130 msg="inference compute" id=GPU-1 library=cuda '
        'variant=v12 compute=8.9 name="NVIDIA L4" total="22.0 GiB" memory.available="[21.8 GiB]"',
        'INFO generate{parameters=GenerateParameters { best_of: None } total_time="1.2s" seed="None"}: Success',
        "[rank0]: [Rank 0] Watchdog caught timeout: WorkNCCL(SeqNum=10, OpType=ALLREDUCE, NumelIn=8192)",
        "INFO 11-26 18:00:00 [core.py:1] 'GET /v1/models HTTP/1.1' by 'FlashInfer', served_model_name=['m-1']",
    ],
)
def test_what_says_how_the_engine_does_stays(line: str) -> None:
    assert LogReader().line(line).text == line


def test_a_prompt_goes_on_until_the_next_record() -> None:
    reader = LogReader()
    texts = [
        "2025-11-26T18:00:00Z DEBUG router: Input: swordfish",
        "swordfish in a second line",
        "",
        '  File "swordfish.py"',
        "2025-11-26T18:00:01Z INFO router: Success",
        "and on",
    ]
    shown = [line.text for line in reader.lines(texts)]
    assert not [text for text in shown if SECRET in text]
    assert shown[4:] == ["2025-11-26T18:00:01Z INFO router: Success", "and on"]


@each_row("pasted", ["ERROR: swordfish", "Traceback (most recent call last): swordfish", "2026-01-01 10:00: swordfish"])
def test_a_log_of_another_program_in_a_prompt_ends_no_prompt(pasted: str) -> None:
    first = "INFO 11-26 18:00:00 [logger.py:39] prompt: why does this fail?"
    record = "ERROR 11-26 18:00:01 [core.py:1] boom"
    shown = [line.text.strip() for line in LogReader().lines([first, pasted, record])]
    assert shown == ["INFO 11-26 18:00:00 [logger.py:39] prompt: ***", "***", record]


@each_row("line", ["build a swordfish", "main idea: swordfish", "load swordfish: now", "common swordfish"])
def test_a_line_of_a_prompt_that_begins_with_a_word_of_an_engine_is_no_record(line: str) -> None:
    first, second = LogReader().lines(["INFO prompt: tell me", line])
    assert (first.text, second.text.strip()) == ("INFO prompt: ***", "***")


@each_row(
    "line",
    [
        "srv    load_model: loading model '/m.gguf'",
        "slot   load_model: id  0 | task -1 | new slot",
        "que    start_loop: waiting for new tasks",
        "main: server is listening on http://127.0.0.1:8080",
        "load_tensors: offloaded 33/33 layers to GPU",
        "llama_model_load_from_file_impl: using device CUDA0",
        "system_info: n_threads = 8",
    ],
)
def test_a_prompt_ends_at_a_record_of_llama_cpp(line: str) -> None:
    assert [shown.text for shown in LogReader().lines(["prompt: swordfish", line])] == ["prompt: ***", line]


def test_a_prompt_goes_on_behind_a_carriage_return() -> None:
    assert SECRET not in LogReader().line("prompt: tell me\rof the swordfish").text
    assert LogReader().line("Loading: 10%\rLoading: 100%\r\n").text == "Loading: 100%"


def test_a_line_that_is_too_long_ends_inside_of_its_prompt() -> None:
    reader = LogReader()
    first = reader.line("INFO prompt: '" + "x" * 10_000_000)
    assert first.text == "INFO prompt: ***"
    assert reader.line("swordfish'").text.strip() == "***"
    assert len(LogReader().line("INFO " + "y " * 100_000).text) == MOST_SHOWN_CHARACTERS


@given(st.text(string.printable + "\\'\"[]{}", max_size=60))
def test_no_repr_of_a_prompt_is_shown(prompt: str) -> None:
    line = f"INFO 11-26 18:00:00 Received request c: prompt: {prompt + SECRET!r}, params: {{}}"
    assert LogReader().line(line).text == "INFO 11-26 18:00:00 Received request c: prompt: ***, params: {}"


def test_masking_takes_time_by_the_length_of_a_line() -> None:
    rng = random.Random(1)
    for alphabet in ("prompt:'\"\\", "api_key= -", "[{('\"", "a_", "\x1b]["):
        text = "".join(rng.choices(alphabet, k=4096))
        masked, _ = masked_line(without_escapes(text))
        assert len(masked) <= 8 * len(text)


@each_row(
    ("line", "shown"),
    [
        ("\x1b[32mINFO\x1b[0m: up", "INFO: up"),
        ("INFO \x1b]52;c;cm0gLXJmIC8=\x07copied", "INFO copied"),
        ("INFO \x1b]0;title\x1b\\x", "INFO x"),
        ("INFO \x1bPq#0\x1b\\x \x1b[2J\x1b[H\x1bc", "INFO x"),
        ("INFO \x1b[", "INFO"),
        ("INFO \x1b", "INFO \\x1b"),
        ("INFO \u202eevil\u200b \x07\x00", "INFO \\u202eevil\\u200b \\x07\\x00"),
        ("Loading:  10%\rLoading: 100%\r", "Loading: 100%"),
        ("a\tb", "a   b"),
    ],
)
def test_no_sequence_reaches_the_terminal(line: str, shown: str) -> None:
    text = LogReader().line(line).text
    assert text == shown
    assert text.isprintable()


@each_row(
    ("line", "level"),
    [
        ("ERROR 11-26 18:00:00 [core.py:1] boom", LogLevel.ERROR),
        ("(EngineCore_DP0 pid=12) ERROR 11-26 18:00:00 [core.py:1] boom", LogLevel.ERROR),
        ("Traceback (most recent call last):", LogLevel.ERROR),
        ("torch.OutOfMemoryError: CUDA out of memory", LogLevel.ERROR),
        ("E0126 18:00:00.000 1 server.cc:1] boom", LogLevel.ERROR),
        ("time=2025 level=ERROR source=x", LogLevel.ERROR),
        ("time=2025 level=error source=x", LogLevel.ERROR),
        ("WARNING 11-26 18:00:00 slow", LogLevel.WARNING),
        ("[2025-11-26 18:00:00] WARNING: slow", LogLevel.WARNING),
        ("/x/y.py:1: UserWarning: slow", LogLevel.WARNING),
        ("DEBUG 11-26 x", LogLevel.DEBUG),
        ("INFO 11-26 no errors", LogLevel.PLAIN),
    ],
)
def test_a_line_has_the_level_that_it_names(line: str, level: LogLevel) -> None:
    assert LogReader().line(line).level is level


def test_what_follows_an_error_belongs_to_it() -> None:
    texts = [
        "ERROR 11-26 18:00:00 boom",
        "Traceback (most recent call last):",
        "  File x, line 1",
        "INFO 11-26 ok",
        "y",
    ]
    lines = list(LogReader().lines(texts))
    assert [line.level for line in lines] == [LogLevel.ERROR] * 3 + [LogLevel.PLAIN] * 2
    assert [begins_record(text) for text in texts] == [True, True, False, True, False]


@each_row(
    "frame",
    [
        '  File "/venv/lib/python3.12/site-packages/starlette/routing.py", line 716, in app',
        '  File "/venv/lib/python3.12/site-packages/vllm/entrypoints/openai/serving_chat.py", line 199, in create',
        '  File "/venv/lib/python3.12/site-packages/jinja2/environment.py", line 1295, in render',
    ],
)
def test_the_text_of_an_exception_of_a_request_is_masked(frame: str) -> None:
    lines = ["Traceback (most recent call last):", frame, "ValueError: no tool is called swordfish", "swordfish, too"]
    shown = [line.text.strip() for line in LogReader().lines(lines)]
    assert shown == [lines[0], frame.strip(), "ValueError: ***", "***"]


def test_the_text_of_an_exception_of_the_engine_stays() -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "/venv/lib/python3.12/site-packages/starlette/routing.py", line 716, in app',
        "ValueError: no tool is called swordfish",
        "Traceback (most recent call last):",
        '  File "/venv/lib/python3.12/site-packages/vllm/v1/engine/core.py", line 700, in run',
        "ValueError: the KV cache is too small",
    ]
    shown = [line.text for line in LogReader().lines(lines)]
    assert shown[2:] == ["ValueError: ***", *lines[3:]]


@each_row(
    "error",
    [
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 96.00 MiB.",
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the "
        "root cause.",
    ],
)
def test_the_text_of_a_driver_stays_where_a_server_computes_in_its_request(error: str) -> None:
    """As transformers-serve does, whose traceback begins in FastAPI."""
    frame = '  File "/venv/lib/python3.12/site-packages/fastapi/routing.py", line 716, in app'
    lines = ["Traceback (most recent call last):", frame, error, "CUDA kernel errors might be asynchronously reported"]
    assert [line.text for line in LogReader().lines(lines)] == lines


def test_a_prompt_whose_lines_all_begin_like_a_record_is_masked_to_its_end() -> None:
    """vLLM writes the begin of a record before each of its lines."""
    begin = "INFO 11-26 18:00:00 [logger.py:39]"
    lines = [f"{begin} prompt: tell me", f"{begin} of the swordfish", "INFO 11-26 18:00:00 [core.py:1] ready"]
    shown = [line.text.strip() for line in LogReader().lines(lines)]
    assert shown == [f"{begin} prompt: ***", "***", lines[2]]
