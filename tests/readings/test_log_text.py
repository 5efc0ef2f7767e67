"""What of an engine's log may be shown: no prompt, no answer, no key, no sequence that a terminal obeys."""

from __future__ import annotations

import random
import re
import string

import pytest
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
LEFT_OUT = re.compile(r"…\(\d+ characters?\)")


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
        ("2025-11-26T18:00:00.1Z  INFO text_generation_router: user_message: tell me of swordfish", "user_message:"),
        ("2025-11-26T18:00:00.1Z DEBUG text_generation_router: tell me of swordfish", "text_generation_router"),
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
        ("INFO user_message=tell me, of the swordfish status=200", "status=200"),
        ("INFO user_message=tell me this: the swordfish status=200", "status=200"),
        ("INFO user_message=how (if at all) to catch swordfish status=200", "status=200"),
        ("INFO user_message=don't tell of \"my swordfish\", please status=200", "status=200"),
        ("INFO user_message=7 ways to catch a swordfish status=200", "status=200"),
        ("INFO user_message=- tell me of the swordfish", "user_message="),
        ("INFO (wish=catch swordfish) status=200", ") status=200"),
        ("INFO user_message: tell me of the swordfish", "user_message:"),
        ("INFO userMessage: tell me of the swordfish", "userMessage:"),
        ("INFO question: what is a swordfish?", "question:"),
        ("INFO chat_turn = tell me of the swordfish", "chat_turn = "),
        ("INFO topic = swordfish", "topic = "),
        ("DEBUG router: utterance: swordfish", "router: utterance:"),
        ("DEBUG 11-26 18:00:00 [hermes_tool_parser.py:377] got arguments diff: swordfish", "hermes_tool_parser.py"),
        ("DEBUG 11-26 18:00:00 [hermes_tool_parser.py:301] Skipping text swordfish - no arguments", "DEBUG"),
        ('DEBUG 11-26 18:00:00 [hermes_tool_parser.py:345] Searching for swordfish in {"city": "Rom"}', "345"),
        ("DEBUG 11-26 18:00:00 [qwen3_reasoning_parser.py:45] thinks of swordfish", "45"),
        ("[2025-11-26 18:00:00] Failed to parse JSON part: tell me of swordfish, JSON parse error: x", "JSON part"),
        ("[2025-11-26 18:00:00] Tool call parsing error: at swordfish", "parsing error"),
        ("Grammar still awaiting trigger after token 248069 (`swordfish`)", "after token 248069 ("),
        ("Parsing input with format GPT-OSS: <|channel|>analysis<|message|>swordfish", "with format GPT-OSS"),
        ("srv  update_chat_: Parsing chat message: tell me of swordfish", "Parsing chat message"),
        ("Partial parse: swordfish", "Partial parse"),
        ("slot process_toke: id  0 | task 0 | n_decoded = 1, next token:   198 'swordfish'", "n_decoded = 1"),
        ("slot update_slots: id  0 | task 0 | old: ... tell me of swordfish", "| old: ..."),
        ("slot update_slots: id  0 | task 0 | prompt token  12:   198 'swordfish'", "prompt token  12"),
        ('srv  operator(): got: {"error":{"message":"Failed to parse input at pos 12: swordfish","code":500}}',
         "at pos 12"),
        ("2025-11-26T18:00:00.123Z TRACE router::validation: Received prompt swordfish of mine", "router::validation:"),
        ("(APIServer pid=7) TRACE 11-26 18:00:00 [serving.py:39] prompt (swordfish)", "[serving.py:39]"),
        ("[2025-11-26 18:00:00] TRACE: got `swordfish`", "TRACE"),
        ('{"timestamp":"2025-11-26T18:00:00Z","level":"TRACE","fields":{"message":"got swordfish"}}', '"TRACE"'),
        ("time=2025-11-26T18:00:00Z level=TRACE source=x.go:1 msg=swordfish", "source=x.go:1"),
        ("Failed to process the request(s) for model instance 'c_0', message: ValueError: not swordfish", "ValueError"),
        ("WARN AIzaSyswordfishswordfishswordfishswordfi refused", "refused"),
        ("WARN gsk_swordfish12345678901234567890 refused", "refused"),
        ("WARN github_pat_11swordfish1234567890 refused", "refused"),
        ("POST https://hooks.slack.com/services/T00/B00/swordfishswordfish failed", "failed"),
        ("token: swordfish12345678901 refused", "refused"),
        ("signature: swordfish refused", "refused"),
        ("RuntimeError: Error while loading data swordfish: cannot identify image file", "loading data"),
        ("RuntimeError: Error while loading data ImageData(url='https://h/swordfish.png')", "loading data"),
        ("ERROR Failed to fetch data:image/png;base64,swordfishswordfish/+== refused", "image/png;base64,*** refused"),
        ('INFO text_generation_launcher: Args { api_key: Some("swordfish"), port: 80 }', "port: 80"),
        ('{"message":"Args { api_key: Some(\\"swordfish\\"), port: 80 }","target":"tgi"}', "port: 80"),
        ("INFO runtime_env: {'AWS_SESSION_TOKEN': 'swordfish', 'N': '1'}", "'N': '1'"),
        ("INFO env: DATA_ENCRYPTION_KEY: swordfish N: 1", "N: 1"),
        ("INFO REDIS_PASS=swordfish N=1", "N=1"),
        ("INFO AccountKey=0swordfish; n=1", "n=1"),
        ("INFO session_token=0swordfish n=1", "n=1"),
        ('DEBUG tgi: query: Some("my swordfish"), n: 1', "n: 1"),
        ("authorization: bearer swordfish", "authorization: ***"),
        ("Authorization: Token 9swordfish n=1", "n=1"),
        ('Authorization: Digest username="u", response="swordfish"', "Authorization: ***"),
        ("Authorization: AWS4-HMAC-SHA256 Credential=a/s3, SignedHeaders=host, Signature=swordfish", "Authorization"),
        ("headers=[(b'host', b'h'), (b'x-api-key', b'swordfish')] n=1", "n=1"),
        ("headers=[('cookie', 'sid=swordfish; n=1'), ('accept', '*/*')]", "'*/*'"),
        ("Cookie: session=9swordfish; b=swordfish", "Cookie: ***"),
        ("token=9swordfish n=1", "n=1"),
        ("serve --token 9swordfish --port 1", "--port 1"),
        ("TOKEN=9swordfish n=1", "n=1"),
        ("invalid token 9d8swordfish7f6a5b4c refused", "refused"),
        ("Incorrect API key provided: 9swordfish. You can find it", "You can find it"),
        ('API key "9d8swordfish7f6a5b4c" rejected', "rejected"),
        ("password is 9swordfish n=1", "n=1"),
        ("db_pass: 9swordfish n=1", "n=1"),
        ("pwd=9swordfish n=1", "n=1"),
        ("encryption_key=9swordfish n=1", "n=1"),
        ("Ocp-Apim-Subscription-Key: 9swordfish n=1", "n=1"),
        ("key=9d8swordfish7f6a5b4c n=1", "n=1"),
        ("sessionid=9swordfish n=1", "n=1"),
        ("bearer 9d8swordfish7f6a5b4c refused", "refused"),
        ("WARN ya29.swordfish9swordfish refused", "refused"),
        ("WARN hvs.swordfish9swordfish refused", "refused"),
        ("postgres://u:a@swordfish@h/d refused", "@h/d refused"),
        ("INFO -----BEGIN PRIVATE KEY-----swordfish-----END PRIVATE KEY----- refused", "refused"),
        ("INFO Prompt[0]: tell me of swordfish", "Prompt[0]:"),
        ("INFO prompt (12 chars): tell me of swordfish", "(12 chars):"),
        ("INFO Prompt -> tell me of swordfish", "Prompt ->"),
        ("INFO <prompt>tell me of swordfish</prompt>", "<prompt>"),
        ("INFO <|im_start|>user tell me of swordfish<|im_end|>", "<|im_start|>"),
        ("INFO <|start_header_id|>user<|end_header_id|>swordfish", "<|start_header_id|>"),
        ("INFO <s>[INST] tell me of swordfish [/INST]", "[INST]"),
    ],
)  # fmt: skip
def test_what_users_wrote_and_keys_are_masked(line: str, kept: str) -> None:
    shown = LogReader().line(line).text
    assert SECRET not in shown
    assert kept in shown
    assert "***" in shown or LEFT_OUT.search(shown)


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
        "n1:123:456 [0] misc/socket.cc:58 NCCL WARN socketProgress: Connection closed by remote peer n2<40001>",
        "n1:12:34 [0] init.cc:1500 NCCL WARN ncclCommInitRank: failed with internal error on this rank",
        "ERROR 10-02 10:11:12 [core.py:1] cudaErrorIllegalAddress: an illegal memory access was encountered",
        "nvmlInit: Driver/library version mismatch",
        "ibv_reg_mr: Cannot allocate memory",
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
        "max_model_len: must be at least 1, got -3",
        "ValueError: tensor_parallel_size: must divide the number of attention heads (40)",
        "gpu_memory_utilization: Input should be less than or equal to 1 [type=less_than_equal, input_value=1.5]",
        "AssertionError: mem_fraction_static: must be between 0 and 1",
        'Error: ArgumentValidation("`max_input_tokens` must be < `max_total_tokens`. Given: 4096 and 2048")',
        "load: control token: 128098 '<|reserved_special_token_90|>' is not marked as EOG",
        "DEBUG 11-26 18:00:00 [core.py:1] EngineCore waiting for work.",
        "Failed to process the request(s) for model instance 'c_0', message: RuntimeError: CUDA failed with error out "
        "of memory",
        "INFO 11-26 18:00:00 [serving_chat.py:78] Using default chat sampling params from model: {'temperature': 0.7}",
        "Error parsing config: /etc/tgi.json: no such file",
        "load: special token 151644 '<|im_start|>' has no attribute",
        "Missing key q_proj_12 in state dict; unexpected key: model.layers.0.q_proj.weight_scale_inv2",
        "INFO session_id=17, pass=3, token: 1234, pin=5, key=0x7f3a2b1c9d00, req key: cmpl-8f7c2a",
        "API key authentication enabled; forward pass: 12 ms; basic settings of everything",
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
    omitted = f"…({len(pasted)} characters)"
    assert shown == ["INFO 11-26 18:00:00 [logger.py:39] prompt: …(19 characters)", omitted, record]


@each_row("line", ["build a swordfish", "main idea: swordfish", "load swordfish: now", "common swordfish"])
def test_a_line_of_a_prompt_that_begins_with_a_word_of_an_engine_is_no_record(line: str) -> None:
    first, second = LogReader().lines(["INFO prompt: tell me", line])
    assert (first.text, second.text.strip()) == ("INFO prompt: …(7 characters)", f"…({len(line)} characters)")


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
    assert [shown.text for shown in LogReader().lines(["prompt: swordfish", line])] == ["prompt: …(9 characters)", line]


def test_a_text_without_quotes_goes_on_until_the_next_record() -> None:
    lines = ["INFO user_message=tell me all of it", "of the swordfish", "INFO done"]
    shown = [line.text.strip() for line in LogReader().lines(lines)]
    assert shown == ["INFO user_message=…(17 characters)", "…(16 characters)", "INFO done"]


def test_a_private_key_of_several_lines_is_masked_up_to_the_next_record() -> None:
    texts = ["INFO up", "-----BEGIN RSA PRIVATE KEY-----", "MIIEswordfish", "-----END RSA PRIVATE KEY-----", "INFO on"]
    assert [line.text.strip() for line in LogReader().lines(texts)] == ["INFO up", "***", "***", "***", "INFO on"]


def test_a_key_does_not_tell_its_length() -> None:
    assert LogReader().line("api_key=swordfish, topic=swordfish").text == "api_key=***, topic=…(9 characters)"


@each_row("begin", ["    api_key: Some(", '  "api_key": [', '  "private_key": "-----BEGIN PRIVATE KEY-----'])
def test_a_key_goes_on_until_the_next_record_and_does_not_tell_its_length(begin: str) -> None:
    texts = [
        "2025-11-26T18:00:00Z INFO launcher: Args {",
        begin,
        '        "swordfish",',
        "2025-11-26T18:00:01Z INFO done",
    ]
    *_, key, value, record = LogReader().lines(texts)
    assert key.text.endswith("***")
    assert (value.text, record.text) == ("  ***", texts[-1])


def test_a_prompt_goes_on_behind_a_carriage_return() -> None:
    assert SECRET not in LogReader().line("prompt: tell me\rof the swordfish").text
    assert LogReader().line("Loading: 10%\rLoading: 100%\r\n").text == "Loading: 100%"


def test_a_line_that_is_too_long_ends_inside_of_its_prompt() -> None:
    reader = LogReader()
    first = reader.line("INFO prompt: '" + "x" * 10_000_000)
    assert first.text == "INFO prompt: …(10000001 characters)"
    assert reader.line("swordfish'").text.strip() == "…(10 characters)"
    assert len(LogReader().line("INFO " + "y " * 100_000).text) == MOST_SHOWN_CHARACTERS


@given(st.text(string.printable + "\\'\"[]{}", max_size=60))
def test_no_repr_of_a_prompt_is_shown(prompt: str) -> None:
    line = f"INFO 11-26 18:00:00 Received request c: prompt: {prompt + SECRET!r}, params: {{}}"
    omitted = f"…({len(repr(prompt + SECRET))} characters)"
    assert LogReader().line(line).text == f"INFO 11-26 18:00:00 Received request c: prompt: {omitted}, params: {{}}"


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
        '  File "/venv/lib/python3.12/site-packages/vllm/entrypoints/openai/chat_completion/serving.py", line 9, in x',
        '  File "/venv/lib/python3.12/site-packages/vllm/entrypoints/openai/speech_to_text.py", line 9, in x',
        '  File "/venv/lib/python3.12/site-packages/tensorrt_llm/serve/openai_server.py", line 9, in openai_chat',
    ],
)
def test_the_text_of_an_exception_of_a_request_is_masked(frame: str) -> None:
    lines = ["Traceback (most recent call last):", frame, "ValueError: no tool is called swordfish", "swordfish, too"]
    shown = [line.text.strip() for line in LogReader().lines(lines)]
    assert shown == [lines[0], frame.strip(), "ValueError: …(27 characters)", "…(14 characters)"]


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
    assert shown[2:] == ["ValueError: …(27 characters)", *lines[3:]]


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
    assert shown == [f"{begin} prompt: …(7 characters)", f"…({len(lines[1])} characters)", lines[2]]


ORDINARY_LINES = {
    "TGI": [
        "2025-11-26T18:00:00.123456Z  INFO text_generation_launcher: Default `max_batch_prefill_tokens` to 4096",
        "2025-11-26T18:00:00.123456Z  INFO text_generation_launcher: Args {",
        "2025-11-26T18:00:00.123456Z  INFO text_generation_launcher: Starting Webserver",
        "2025-11-26T18:00:00.123456Z  INFO text_generation_router: router/src/main.rs:317: Using config Some(Llama)",
        "2025-11-26T18:00:00.123456Z ERROR text_generation_launcher: Error when initializing model",
        "2025-11-26T18:00:00.123456Z  WARN text_generation_router::validation: Tokenizer is slow",
    ],
    "vLLM": [
        "INFO 11-26 18:00:00 [__init__.py:235] Automatically detected platform cuda.",
        "INFO 11-26 18:00:00 [api_server.py:1755] vLLM API server version 0.10.0",
        "(APIServer pid=4242) INFO 11-26 18:00:00 [model.py:547] Resolved architecture: Qwen3ForCausalLM",
        "(EngineCore_DP0 pid=4243) INFO 11-26 18:00:00 [gpu_model_runner.py:2653] Model loading took 15.2683 GiB and "
        "4.201 seconds",
        "INFO 11-26 18:00:00 [cuda.py:290] Using Flash Attention backend on V1 engine.",
        "INFO 11-26 18:00:00 [gpu_worker.py:276] Available KV cache memory: 52.31 GiB",
        "INFO 11-26 18:00:00 [kv_cache_utils.py:864] GPU KV cache size: 380,912 tokens",
        "INFO 11-26 18:00:00 [kv_cache_utils.py:868] Maximum concurrency for 40,960 tokens per request: 9.30x",
        "INFO 11-26 18:00:00 [loggers.py:123] Engine 000: Avg prompt throughput: 1034.5 tokens/s, Avg generation "
        "throughput: 512.3 tokens/s, Running: 12 reqs, Waiting: 3 reqs, GPU KV cache usage: 81.2%, Prefix cache hit "
        "rate: 34.0%",
        "WARNING 11-26 18:00:00 [scheduler.py:1752] Sequence group cmpl-12 is preempted by "
        "PreemptionMode.RECOMPUTE mode "
        "because there is not enough KV cache space.",
        "ERROR 11-26 18:00:00 [core.py:632] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 "
        "GiB. GPU 0 "
        "has a total capacity of 79.10 GiB of which 1.20 GiB is free. Process 4242 has 77.90 GiB memory in use.",
        "ERROR 11-26 18:00:00 [core.py:632] ValueError: To serve at least one request with the models's max seq len "
        "(131072), (16.00 GiB KV cache is needed, which is larger than the available KV cache memory (7.61 GiB). Based "
        "on the available memory, the estimated maximum model length is 62320. Try increasing `gpu_memory_utilization` "
        "or decreasing `max_model_len` when initializing the engine.",
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
        "initializing "
        "the engine.",
        "ValueError: Free memory on device (3.21/79.10 GiB) on startup is less than desired GPU memory "
        "utilization (0.9, "
        "71.19 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
        "OSError: [Errno 98] Address already in use",
        "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use",
        "RuntimeError: Cannot find any model weights with `/models/Qwen3-8B`",
        "OSError: /models/Qwen3 does not appear to have a file named config.json. Checkout "
        "'https://huggingface.co//models/Qwen3/tree/main' for available files.",
        "[rank1]:[E1126 18:00:00.123456789 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=1234, OpType=ALLREDUCE, NumelIn=8192, NumelOut=8192, Timeout(ms)=600000) ran for "
        "600021 milliseconds before timing out.",
        "torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:77, "
        "unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.27.3",
        "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.",
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): "
        "{'EngineCore_0': 1}",
        "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE): 100%|██████████| 67/67 [00:04<00:00, 14.12it/s]",
    ],
    "SGLang": [
        "[2025-11-26 18:00:00] Attention backend not specified. Use fa3 backend by default.",
        "[2025-11-26 18:00:00 TP0] Init torch distributed begin.",
        "[2025-11-26 18:00:00 TP0] Load weight end. type=Qwen3ForCausalLM, dtype=torch.bfloat16, avail mem=62.31 "
        "GB, mem "
        "usage=15.28 GB.",
        "[2025-11-26 18:00:00 TP0] KV Cache is allocated. #tokens: 380912, K size: 26.15 GB, V size: 26.15 GB",
        "[2025-11-26 18:00:00 TP0] Capture cuda graph end. Time elapsed: 4.21 s. mem usage=1.02 GB. avail mem=8.01 GB.",
        "[2025-11-26 18:00:00 TP0] max_total_num_tokens=380912, chunked_prefill_size=8192, max_prefill_tokens=16384, "
        "max_running_requests=2048, context_len=40960, available_gpu_mem=8.01 GB",
        "[2025-11-26 18:00:00 TP0] Decode batch. #running-req: 12, #token: 48213, token usage: 0.13, cuda graph: "
        "True, gen "
        "throughput (token/s): 812.34, #queue-req: 3",
        "[2025-11-26 18:00:00 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 2, #new_token_ratio: "
        "0.7103 "
        "-> 0.8012",
        "[2025-11-26 18:00:00 TP0] Scheduler hit an exception: Traceback (most recent call last):",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 594.00 MiB. GPU 1 has a total capacity of 79.10 "
        "GiB of which 401.00 MiB is free. Including non-PyTorch memory, this process has 78.70 GiB memory in use.",
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        "ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes.",
        "[2025-11-26 18:00:00] ERROR:    [Errno 98] error while attempting to bind on address ('127.0.0.1', "
        "30000): address "
        "already in use",
        "[2025-11-26 18:00:00] Received sigquit from a child process. It usually means the child failed.",
        "[2025-11-26 18:00:00] Watchdog timeout (self.watchdog_timeout=300)",
        "[2025-11-26 18:00:00] The server is fired up and ready to roll!",
        "RuntimeError: Cannot find any model weights with `/models/Qwen3-8B`",
        "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
    ],
    "llama.cpp": [
        "build: 6527 (7f766929) with cc (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0 for x86_64-linux-gnu",
        "ggml_cuda_init: found 1 CUDA devices:",
        "  Device 0: NVIDIA GeForce RTX 4090, compute capability 8.9, VMM: yes",
        "llama_model_loader: loaded meta data with 28 key-value pairs and 399 tensors from /m.gguf (version GGUF "
        "V3 (latest))",
        "llama_model_loader: - kv   0:                       general.architecture str              = qwen3",
        "print_info: arch             = qwen3",
        "print_info: model type       = 8B",
        "print_info: general.name     = Qwen3 8B Instruct",
        "print_info: file type   = Q4_K - Medium",
        "print_info: rope scaling     = linear",
        "print_info: rope_finetuned   = unknown",
        "load_tensors: offloaded 37/37 layers to GPU",
        "load_tensors:        CUDA0 model buffer size =  4455.34 MiB",
        "llama_kv_cache:      CUDA0 KV buffer size =  5760.00 MiB",
        "llama_context: n_ctx_per_seq (4096) < n_ctx_train (40960) -- the full capacity of the model will not be "
        "utilized",
        "common_init_from_params: setting dry_penalty_last_n to ctx_size = 40960",
        "srv    load_model: loading model '/models/m.gguf'",
        "srv  update_slots: all slots are idle",
        "slot launch_slot_: id  0 | task 12 | processing task",
        "slot      release: id  0 | task 12 | stop processing: n_past = 812, truncated = 0",
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 8192.00 MiB on device 0: cudaMalloc failed: out "
        "of memory",
        "alloc_tensor_range: failed to allocate CUDA0 buffer of size 8589934592",
        "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache",
        "common_init_from_params: failed to create context with model '/models/m.gguf'",
        "gguf_init_from_file: failed to open GGUF file '/models/none.gguf'",
        "llama_model_load: error loading model: llama_model_loader: failed to load model from /models/none.gguf",
        "main: error loading model",
        "start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 8080",
        "main: exiting due to HTTP server error",
        "CUDA error: an illegal memory access was encountered",
        "  current device: 0, in function ggml_backend_cuda_synchronize at "
        "/llama.cpp/ggml/src/ggml-cuda/ggml-cuda.cu:2491",
        "/llama.cpp/ggml/src/ggml-cuda/ggml-cuda.cu:84: CUDA error",
        "error: the request exceeds the available context size. try increasing the context size or enable context "
        "shift",
    ],
}  # fmt: skip
"""Lines that engines write when they start, serve and fail, with the words by which their trouble is found."""


@pytest.mark.parametrize("engine", sorted(ORDINARY_LINES))
def test_what_engines_say_of_themselves_and_their_faults_stays_readable(engine: str) -> None:
    reader = LogReader()
    lines = ORDINARY_LINES[engine]
    shown = {text: line.text for text, line in zip(lines, reader.lines(lines), strict=True)}
    assert {text: line for text, line in shown.items() if line != text} == {}
