"""Messages of engines that quote what users wrote or got, without a name for it and often without quotes."""

from __future__ import annotations

import re
from typing import Final

_ANSWER_FILES: Final = (
    r"(?:\w{0,60}(?:tool_parser|reasoning_parser|detector)|harmony_utils|chat_utils|serving(?:_\w{1,40})?"
    r"|detokenizer)"
)
"""Files of vLLM, SGLang and LMDeploy that take requests and answers apart."""
_QUOTING: Final = (
    # vLLM with VLLM_LOGGING_LEVEL=DEBUG: `got arguments diff: %s`, `Skipping text %s - no arguments`.
    rf"\b(?:DEBUG|TRACE)\b.{{0,80}}?[\[\s]{_ANSWER_FILES}\.py:\d+\]? (?:- )?",
    # Records at level TRACE hold contents in any form; time, module and line of the program stay.
    r"\A(?:\([\w. -]{1,40} pid=\d+\)\s*)?(?:\[?\d[\dT:.,Z+ -]{5,40}\]?\s{1,4})?\[?TRACE\b\]?"
    r"(?:\s\d\d-\d\d \d\d:\d\d:\d\d)?(?:\s\[[\w.]{1,60}:\d{1,6}\])?(?:\s{1,4}\w{1,60}(?:::\w{1,60}){1,8}:)?[\s:]{0,4}",
    r"\blevel[\"'\\]{0,8}[=:]\s?[\"'\\]{0,8}(?i:trace)\b[\"'\\,]{0,8}(?:\ssource=[\w./-]{1,80}:\d{1,6})?\s?",
    r"(?i:\bpars(?:e|ed|ing)\b(?! config| the config| arguments?| options?| command)[^:]{0,60}\b(?:json|input|output"
    r"|answer|response|prompt|template|tool|tool calls?|function call|reasoning|message)\b[^:]{0,40}: )",
    r"(?i:\berror in (?:function|tool) call parsing: |\btool call parsing error: "
    r"|\b(?:parsed|received|extracted) tool calls? )",
    # SGLang, with the whole picture in base64.
    r"\bError while loading data ",
    # llama.cpp: each token with -lv; the end of the kept and of the new prompt of a slot without it.
    r"\bGrammar still awaiting trigger after token -?\d+ \(",
    r"\bParsing input with format [^:]{1,40}:\s?",
    r"\bPartial parse: ",
    r"\bFailed to parse input at pos \d+: ",
    r"\b(?:next|prompt) token(?:\s{1,12}\d+)?:\s{1,12}-?\d+ (?=')",
    r"\| (?:old|new): \.\.\. ",
    # A prompt as a chat template writes it; the markers alone stand in lists of control tokens.
    r"<\|(?:im_start|start_header_id|start|turn)\|?>(?=\w)|<start_of_turn>(?=\w)|<\|(?:user|assistant|system)\|>(?![\"'])"
    r"|\[INST\]\s|### (?:Instruction|User|Human):\s",
    # Triton: what a model in Python says of a request. Runtime errors are those of the device and of Triton.
    r"\bFailed to process the request\(s\) for model[^:]{0,200}message: "
    r"(?!RuntimeError|TritonModelException|[\w.]{0,60}OutOfMemoryError)(?:[\w.]{1,80}: )?",
)
_QUOTED: Final = re.compile("|".join(f"(?:{form})" for form in _QUOTING))


def quote_begin(text: str) -> int | None:
    """Position at which the text of a user begins in such a message; None in all others."""
    message = _QUOTED.search(text)
    if message is None or message.end() == len(text):
        return None
    return message.end()
