"""Leaves out of a line of a log what users wrote or got, and keys.

Prompts, answers and keys are known by their names. A text under another name is shown where that name is one of the
fields of log records (`_RECORD_FIELDS`), a single word also where it is that of an option (`_OPTION_WORDS`). Without
quotes and behind a colon it is taken for a person's where its name is compound, as `user_message`: programs write
sentences behind single words (`error: out of memory`).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from gpumon.readings.format import counted
from gpumon.readings.log_quotes import quote_begin

STRUCK: Final = "***"
"""Stands for a key, whose length nobody is to know."""

_PROMPTS: Final = re.compile(
    r"(?<![A-Za-z0-9])(?P<key>prompts?|inputs?|outputs?|texts?|contents?|generated|completions?|input_value"
    r"|responses?|requests?|messages|quer(?:y|ies)|documents|reasoning|system|instructions?|arguments"
    r"|body|choices|delta|questions?|answers?|transcri(?:pts?|ptions?)|conversations?|chats?|histor(?:y|ies)|grammar|ebnf"
    r"|guided_(?:json|regex|choice|grammar)|json_schema|structural_tag|tools|stop|regex"
    r"|(?:prompt_|input_|output_)?token_ids|(?:input|output)_ids|tokens)"
    r"(?P<sign>(?:\[\d{1,6}\]|\s?#\d{1,6}|\s?\(\d{1,9} \w{1,12}\))?[\"'\\]{0,8}\s?(?:[=-]?>{1,3}|[:=])\s{0,4})",
    re.IGNORECASE,
)
"""Names of values that hold what users wrote or got, each with its number or size where it has one."""
_UNQUOTED: Final = frozenset(
    {
        *("prompt", "prompts", "input", "inputs", "output", "outputs", "text", "texts", "content", "contents"),
        *("generated", "grammar", "ebnf", "json_schema", "regex", "guided_regex", "guided_grammar", "guided_json"),
    }
)
"""Names of values that are prompts or answers without quotes as well; they last to the end of their record."""
_OBJECT_BEGINNINGS: Final = re.compile(
    r"\b(?:obj=\w{1,64}\((?:rid=(?:'[^']{0,128}'|\"[^\"]{0,128}\"|None), )?|out=(?=[\[{]))"
)
"""Beginnings of requests and answers as SGLang logs them. Their texts are not escaped: all behind these is left out."""
_RECORD_FIELDS: Final = frozenset(
    {
        *("message", "msg", "event", "level", "severity", "time", "timestamp", "ts", "asctime", "date", "logger"),
        *("name", "module", "function", "file", "filename", "target", "source", "thread", "process", "backend"),
        *("device", "gpu", "status", "state", "reason", "version", "method", "kernel", "arch", "driver", "dtype"),
        *("model", "path", "command"),
    }
)
"""Names of fields of log records in which a program writes its own words."""
_SENTENCE_FIELDS: Final = frozenset({"message", "msg", "event"})
"""Fields that are a program's own only under this very name: `user_message` is not."""
_OPTION_WORDS: Final = frozenset(
    {
        *("address", "algo", "algorithm", "architecture", "args", "cache", "class", "code", "compute", "config"),
        *("connector", "cuda", "dir", "directory", "engine", "executor", "exe", "family", "folder", "format", "graph"),
        *("group", "host", "hostname", "id", "impl", "interface", "ip", "kind", "lib", "library", "loader", "loc"),
        *("mode", "node", "parser", "platform", "policy", "port", "quant", "quantization", "rank", "repo", "revision"),
        *("rid", "role", "runner", "runtime", "scheduler", "size", "sku", "strategy", "tag", "to", "tokenizer", "type"),
        *(
            "types",
            "unit",
            "url",
            "uuid",
            "variant",
            "vendor",
            "visible",
            "devices",
            "worker",
            "dist",
            "default",
            "optype",
        ),
    }
)
"""Last words of the names of options and of facts of a server, whose values are words of its own."""
_QUOTED_TEXTS: Final = re.compile(
    r"(?:(?P<name>[A-Za-z_][\w.-]{0,63})[\"'\\]{0,8}\s?[:=]\s{0,4}|(?<![^\s(\[{,:=]))"
    r"(?P<quote>[bruBRU]{0,2}(?P<escapes>\\{0,7})(?P<mark>[\"']))"
)
"""The begin of a quoted text, with its name where it has one."""
_NAMED_LISTS: Final = re.compile(
    r"(?P<name>[A-Za-z_][\w.-]{0,63})[\"'\\]{0,8}\s?[:=]\s?\[(?=\s?[bruBRU]{0,2}\\{0,7}[\"'])"
)
"""The begin of a list of texts, with its name."""
_FREE_TEXTS: Final = re.compile(
    r"(?<![\w.?&/-])(?P<name>[A-Za-z_][\w.-]{0,63})(?P<sign>=|:\s{1,4}|\s{1,20}=\s{1,4})"
    r"(?!\*\*\*|…\(|(?:None|null|[Tt]rue|[Ff]alse|inf|nan|auto)\b)(?=[^\s\"'\[\](){},;=<>])"
)
"""The begin of a text without quotes, up to its first character."""
_RECORD_IN_VALUE: Final = re.compile(
    r"[\w.:]{1,128}\s?[({](?=\s?(?:[\w.]{1,64}\s?[=:(]|[\"'\[{)}\d-]|None\b|[Tt]rue\b|[Ff]alse\b))"
)
"""The begin of a record as Python and Rust write it: `SamplingParams(n=1`, whose fields are looked at one by one."""
_NEXT_FIELD: Final = re.compile(r"[,;]?\s+[\"']?[A-Za-z_][\w.-]{0,63}[\"']?=(?=[^\s=])")
"""The next field of a record, with which a text without quotes ends."""
_PERSONS_FIELDS: Final = frozenset(
    {
        *("question", "questions", "answer", "answers", "query", "queries", "messages", "utterance", "user", "topic"),
        *("assistant", "chat", "conversation", "completion", "completions", "response", "responses", "reasoning"),
        *("instruction", "instructions", "transcript", "history", "documents", "turn"),
    }
)
"""Names of what persons write, of one word: other words before a colon begin sentences of programs."""
_COMPOUND_NAME: Final = re.compile(
    r"(?!\w*(?:Error|Exception|Warning)\Z|(?:cu|cuda|cublas|cudnn|nv|nvml|nccl|rccl|hip|hsa|ib|ibv|rdma|socket|net|shm"
    r"|p2p|bootstrap|proxy|dist|comm|mpi|ucx|gloo|tcp)[A-Z_])_*[a-z][a-z0-9]*(?:(?:_[a-z0-9]+)+|[a-z](?:[A-Z][a-z0-9]+)+)",
    re.ASCII,
)
"""`user_message` or `userMessage`: before a colon a name of a field, and no word of a sentence. Functions of CUDA, NCCL
and the like are none: `socketProgress: Connection closed by remote peer`."""
_SETTINGS: Final = re.compile(
    r"(?:max|min|num|gpu|kv|mem|hf|tp|dp|pp|ep|tensor|pipeline|data|context|chunked|cpu|block|page|swap|rope|quant|cuda"
    r"|model|served|trust|load|lora|speculative|draft|scheduler?|attention|moe|mamba|enable|disable|decode|prefill|batch"
    r"|device|cache|offload|tokenizer|dtype|port|host|distributed|parallel|compilation|n)(?:_[a-z0-9]+){1,8}",
    re.ASCII,
)
"""Names of options of engines by their first word: `max_model_len`, `tensor_parallel_size`."""
_VALIDATOR_SAYS: Final = re.compile(
    r"(?:must (?:be|divide|not|match|have)|should (?:be|have)|Input should be|cannot be|can't be|is (?:not|too|larger)"
    r"|not (?:supported|divisible|a valid)|unsupported|expected|required|invalid|already (?:used|in use|set)|has to be"
    r"|unknown|Extra inputs are not permitted|Field required)\b"
)
"""How a check of an engine's own options begins: `max_model_len: must be at least 1`."""
_CHECK_OF_OPTION: Final = re.compile(rf"`{_SETTINGS.pattern}`? (?=must be [<>=\d]){_VALIDATOR_SAYS.pattern}", re.ASCII)
"""The same as TGI writes it, in quotes."""
_FUNCTION: Final = re.compile(
    r"\A(?:[\d.]{1,20} [A-Z] )?(?:(?:srv|slot|que)\s{1,12})?"
    r"(?:(?:main|common|load|print_info|llama|ggml|system_info|build|init|create|get|set|done|graph|sched|clip|alloc"
    r"|warmup|kv_cache|tokenize|mtmd|rpc|whisper)\w{0,60}|(?<=\s)\w{1,60}):(?:\s|\Z)"
)
"""The function before a record of llama.cpp."""
_MODULE: Final = re.compile(
    r"\A\d{4}-\d\d-\d\dT[\d:.]{8,24}Z?\s{1,4}(?:INFO|WARN|ERROR)\s{1,4}\w{1,64}(?:::\w{1,64}){0,8}:\s"
)
"""The module before a message of TGI and others in Rust, which looks like a name; at DEBUG it may be a prompt's."""
_LETTERS: Final = re.compile(r"(?<!\S)[^\W\d_]{2,}(?=[\s.,;:!?]|\Z)")
"""A word of a sentence."""
_LOOKED_AT: Final = 256
"""Characters of a text that tell whether it is one."""
_LEAST_WORDS: Final = 3
"""Words from which on a text is a sentence though it begins with a number or a sign."""
_KLOG: Final = re.compile(r"[IWEF]\d{4} [^\]]{0,200}\] \"")
"""A record of Triton up to its own message, which stands in quotes."""
_SINGLE_WORD: Final = re.compile(r"[!-~]*")
"""A quoted text that is a word of a program: an option, a path, a model; printable ASCII without blanks."""
_QUANTITY: Final = re.compile(
    r"\[?-?\d[\d.,:]{0,32}\s?(?:[KMGTP]i?B|[munµ]?s|[mh]|%|\w{0,3}/s)?\]?|None|null|[Tt]rue|[Ff]alse"
)
"""A quoted number, with its unit, or a word that stands for none."""
_REQUEST_LINE: Final = re.compile(r"[A-Z]{3,7} \S{1,2048} HTTP/[\d.]{1,3}")
"""The first line of an HTTP request, which servers write in quotes."""
_BYTES: Final = r"\d[\d.]{0,11} [KMGT]i?B"
_FAULT_TEXTS: Final = (
    r"(?:CUDA|HIP) error: (?:out of memory|an illegal memory access was encountered|device-side assert triggered"
    r"|unspecified launch failure|uncorrectable ECC error encountered|misaligned address|an illegal instruction was"
    r" encountered|the launch timed out and was terminated|no kernel image is available for execution on the device"
    r"|invalid device ordinal|invalid argument|initialization error|system not yet initialized|unknown error)",
    rf"(?:CUDA|HIP) out of memory\. Tried to allocate {_BYTES}\."
    rf"(?: {{1,2}}(?:GPU (?:\d+ )?has a total capaci?ty of {_BYTES} of which {_BYTES} is free\."
    rf"|(?:Process \d+|Including non-PyTorch memory, this process) has {_BYTES} memory in use\."
    rf"|Of the allocated memory {_BYTES} is allocated by PyTorch,(?: with {_BYTES} allocated in private pools"
    rf" \(e\.g\., CUDA Graphs\),)? and {_BYTES} is reserved by PyTorch but unallocated\."
    r"|If reserved but unallocated memory is large try setting [\w=:]{1,80} to avoid fragmentation\."
    r"|See documentation for Memory Management {1,2}\(https://pytorch\.org/[\w./#-]{1,100}\))){0,12}",
    r"NCCL error(?: in)?: (?:[\w./-]{1,200}:\d+, )?(?:unhandled (?:cuda|system) error|internal error|invalid usage"
    r"|remote process exited or there was a network error)(?: \(run with NCCL_DEBUG=INFO for details\))?"
    r"(?:, NCCL version [\w.+]{1,20})?",
    r"nvml: driver/library version mismatch",
    r"EngineCore encountered an issue\. See stack trace \(above\) for the root cause\.",
    # Ollama's own, of the runner that it starts.
    r"(?:llama runner process has terminated: )?(?:exit status \d+|signal: [a-z ]{1,40}"
    r"|cudaMalloc failed: out of memory"
    r"|error loading model: unable to allocate \w{1,20} buffer|failed to allocate compute pp buffers)",
    r"timed out waiting for llama runner to start(?: - progress [\d.]{1,6})?",
    rf"model requires more system memory \({_BYTES}\) than is available \({_BYTES}\)",
)
_FAULT: Final = re.compile("|".join(_FAULT_TEXTS), re.ASCII)
"""Texts of drivers and frameworks themselves, which engines quote: the cause stands in no other place of a log."""
_NAMES_IN_ERRORS: Final = {
    "KeyError": re.compile(r"[A-Za-z]\w{0,63}(?:\.\w{1,64}){1,16}", re.ASCII),
    "AttributeError": re.compile(r"[A-Za-z_]\w{0,63}", re.ASCII),
    "denied": re.compile(r"/[\w./@:-]{1,256}", re.ASCII),
}
"""Error, or its last word -> what it names in quotes: a tensor that a loader misses, a type, a file."""
_SENTENCE_WORDS: Final = 4
"""Words from which on a quoted text without a name is one that somebody wrote."""
_QUERY_VALUES: Final = re.compile(r"(?<=[?&])(?P<name>[A-Za-z][\w.-]{0,63})=(?P<value>[^&\s\"'<>]+)")
"""Parameters in the query of a URL: searches, and signatures such as `X-Amz-Signature`."""
_SECRETS: Final = re.compile(
    r"(?P<key>api[_-]?keys?|secret|passw(?:or)?d|passphrase|(?P<words>authorization|cookie)|credentials?"
    r"|private[_-]?key|(?:hf|access|auth|refresh|api|bearer|session|security)[_-]?token"
    r"|(?:account|access|encryption|signing|master|salt|licen[cs]e|subscription)[_-]?key"
    r"|(?<![\w-])--(?:[a-z]{1,16}-){0,2}(?:token|pass|pwd)(?=[\s=]\S{0,64}[a-z])"
    r"|(?<![A-Za-z0-9_])(?-i:[A-Z][A-Z0-9_]{0,64}_(?:KEY|TOKEN|PASS|PWD)(?=[\"'\\]{0,8}\s?[:=])))"
    r"(?P<sign>[\w-]{0,32}(?:(?:\s(?:is|was|provided|given))?[\"'\\]{0,8}(?:\s?[:=]\s{0,4}|\s+(?=[^\s=:]))"
    r"|[\"'\\]{1,8},\s{0,4}(?=[bB]?[\"'\\])))",
    re.IGNORECASE,
)
"""Names of values that are keys; on a command line a blank stands before the value, in a list of headers a comma."""
_MIXED: Final = r"(?=[\w+/=~-]{0,512}?\d)(?=[\w+/=~-]{0,512}?[a-zA-Z])"
"""Letters and digits both stand in the word that follows."""
_LIKELY_SECRETS: Final = re.compile(
    r"(?<![A-Za-z0-9])(?P<key>(?:[A-Za-z0-9]{1,24}[_-]){0,3}"
    r"(?:(?:token|pass|pwd|pin|otp|jwt|session|session_?id|sid|csrf_?token|signature|(?:api|private)\skeys?)"
    r"(?:\s(?:is|was|provided|given))?[\"'\\]{0,8}(?:\s?[:=]|,(?=\s?b?[\"'\\]))\s{0,4}b?[\"'\\]{0,8}"
    rf"(?!0x){_MIXED}(?=[\w+/=~-]{{6}})"
    r"|(?:token|key|pass|pwd|session|bearer|basic)[\"'\\]{0,8}\s?[:=]?\s{0,4}(?<=[\s:=])b?[\"'\\]{0,8}"
    rf"(?=(?-i:[A-Z0-9]{{16}}|[a-z0-9]{{16}})|[a-z0-9]{{20}}){_MIXED}))"
    r"[\w+/=~-]+(?![\w+/=~(-]|\.\w)",
    re.IGNORECASE | re.ASCII,
)
"""Values that are keys by their names and by their form: `token: 1234` is none, `token=9f8e7d` is one."""
_PRIVATE_KEY: Final = re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?P<end>.*?-----END [A-Z ]{0,40}-----)?")
"""The begin of a private key in PEM, with its end where it is in the same line."""
_TOKENS: Final = re.compile(
    r"\b(?:Bearer|Basic)\s+[\w.~+/=-]{6,}|\b(?i:bearer|basic|token)\s+(?=[\w.~+/=-]{0,512}?\d)[\w.~+/=-]{16,}"
    r"|\b(?:sk|hf|gh[oprsu]|github_pat|gsk|glpat|xox[abeprs]|nvapi|rk|pk|whsec|npm|pypi|r8|tgp_v1|dckr_pat)"
    r"[-_][A-Za-z0-9_-]{8,}|\b(?:ya29|SG|hv[sbr])\.[\w.-]{16,}|\bAGE-SECRET-KEY-1\w+"
    r"|\bAIza[\w-]{30,}|(?<=hooks\.slack\.com/services/)\S+|(?<=/api/webhooks/)\S+"
    r"|(?<=\b[Tt]oken: )(?=[A-Za-z_.-]*\d)[\w.~+/=-]{16,}|(?<=\b[Ss]ignature: )\S+"
    r"|\bA(?:KIA|SIA)[0-9A-Z]{16}\b"
    r"|(?<=;base64,)[\w+/=%-]{16,}"
    r"|\beyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?"
    r"|(?<=://)[^/\s\"']{1,256}(?=@)"
    r"|(?<=[?&]key=)[^&\s\"']+|(?<=[?&]token=)[^&\s\"']+|(?<=[?&]sig=)[^&\s\"']+"
)
"""Keys that are known by their form, and pictures in a URL of their own."""
_HARMLESS: Final = re.compile(r"(?:None|null|[Tt]rue|[Ff]alse|-?\d[\d.,_%]{0,32})(?=[\s,;)\]}]|\Z)")
"""Values that are nobody's text."""
_CLOSING_OF: Final = {"[": "]", "{": "}", "(": ")"}
"""Opening bracket -> closing one."""
_BARE_VALUE: Final = re.compile(r"[^\s,;)\]}\"']+")
"""A value without quotes."""
_SCHEME: Final = re.compile(
    r"(?:Bearer|Basic|Token|Api-?Key|Key|Negotiate|NTLM|Digest|OAuth|Hawk|Signature|Shared\w{1,24}|AWS4-[\w-]{1,24})\s+",
    re.IGNORECASE,
)
"""Word of an `Authorization` header before its key."""
_WORDS: Final = re.compile(r"(?:[\w.-]{1,64}=(?:\"[^\"]{0,1024}\"|[^\s,;\"']+)[,;]?\s{0,4})+")
"""Words of a header as `name=value`: those of a cookie, or of a signature."""
_CALL: Final = re.compile(r"[A-Za-z_][\w.:]{0,63}(?=\()")
"""Name of a call around a value: Rust writes a value that may be absent as `Some("...")`."""
_NO_VALUE: Final = re.compile(r"(?:None|null)\b")
"""A field that is there without a value."""
_QUOTE: Final = re.compile(r"[bruBRU]{0,2}(?P<escapes>\\{0,7})(?P<mark>[\"'])")
"""The begin of a quoted string as Python, Rust or JSON in JSON write it."""


def left_out(characters: int) -> str:
    """The text in the place of a prompt or an answer of so many characters."""
    return f"…({counted(characters, 'character')})"


def masked_line(text: str, beyond: int = 0) -> tuple[str, bool]:
    """The line with `…(212 characters)` in the place of prompts and answers, and `***` in that of keys; and whether it
    ends inside of one. A line that ends inside of a key ends in `***`.

    `beyond`: characters of the line that are not in `text`, as it is cut.
    """
    text, ends_inside_key = _without_keys(text)
    if ends_inside_key:
        begin, _ = _without_texts(text.removesuffix(STRUCK), 0)
        return begin + STRUCK, True
    return _without_texts(text, beyond)


def _without_texts(text: str, beyond: int) -> tuple[str, bool]:
    """The line without prompts and answers; and whether it ends inside of one."""
    behind = _OBJECT_BEGINNINGS.search(text)
    begin = behind.end() if behind else quote_begin(text)
    if begin is not None and not is_fault(text[begin:].rstrip()):
        return text[:begin] + left_out(len(text) - begin + beyond), True
    for without in (_without_prompts, _without_lists, _without_quoted_texts, _without_free_texts):
        text, ends_inside = without(text, beyond)
        if ends_inside:
            return text, True
    return text, False


def is_fault(text: str) -> bool:
    """Whether a text is one of a driver or a framework itself."""
    return _FAULT.fullmatch(text) is not None


def _without_prompts(text: str, beyond: int) -> tuple[str, bool]:
    """The line without values whose names are those of prompts and answers; and whether it ends inside of one."""
    pieces: list[str] = []
    copied_to = 0
    for match in _PROMPTS.finditer(text):
        if match.start() < copied_to:
            continue  # inside of a value that is left out already
        value = _value_end(text, match.end(), unquoted=match["key"].lower() in _UNQUOTED)
        if value is None:
            continue
        pieces.append(text[copied_to : match.end()])
        copied_to = value.end
        if not value.is_closed:
            pieces.append(left_out(value.end - match.end() + beyond))
            return "".join(pieces), True
        pieces.append(left_out(value.end - match.end()))
    pieces.append(text[copied_to:])
    return "".join(pieces), False


def _without_quoted_texts(text: str, beyond: int) -> tuple[str, bool]:
    """The line without other quoted texts that are no words of a program; and whether it ends inside of one."""
    pieces: list[str] = []
    copied_to = 0
    own_message = _KLOG.match(text)
    match = _QUOTED_TEXTS.search(text, own_message.end() if own_message else 0)
    while match is not None:
        value = _end_of_string(text, match.end(), match["mark"], len(match["escapes"]))
        searched_to = match.end()
        content = text[match.end() : value.end]
        if not _may_be_shown(match["name"], content, is_closed=value.is_closed):
            pieces.append(text[copied_to : match.start("quote")])
            copied_to = value.end
            searched_to = value.end
            if not value.is_closed:
                pieces.append(left_out(value.end - match.start("quote") + beyond))
                return "".join(pieces), True
            pieces.append(left_out(value.end - match.start("quote")))
        match = _QUOTED_TEXTS.search(text, searched_to)
    pieces.append(text[copied_to:])
    return "".join(pieces), False


def _may_be_shown(name: str | None, content: str, *, is_closed: bool) -> bool:
    """Whether a quoted text, up to its closing quote, is a program's own; `name` is None where it has none."""
    is_word = bool(_SINGLE_WORD.fullmatch(content))
    words = content.rstrip("\"'\\")
    if is_closed and (_QUANTITY.fullmatch(words) or is_fault(words)):
        return True
    if name in _NAMES_IN_ERRORS:
        return bool(_NAMES_IN_ERRORS[name].fullmatch(words))
    if name is None:
        if _CHECK_OF_OPTION.match(content):
            return True
        # An apostrophe is no quote: what is not closed has no end that one could leave out up to.
        is_short = not is_closed or len(content.split()) < _SENTENCE_WORDS
        return is_word or is_short or bool(_REQUEST_LINE.match(content))
    if name.rpartition(".")[2].lower() in _RECORD_FIELDS:
        return True
    return is_word and (_is_option(name) or not content.strip("\"'"))


def _is_option(name: str) -> bool:
    """Whether the last word of a name is that of a field, an option or a fact of a server."""
    if name.isupper():  # a variable of the environment: keys are struck before
        return True
    last = re.split(r"[_.-]", name)[-1].lower()
    return last in _OPTION_WORDS or last in _RECORD_FIELDS - _SENTENCE_FIELDS or name.lower() in _RECORD_FIELDS


def _without_free_texts(text: str, beyond: int) -> tuple[str, bool]:
    """The line without texts that stand without quotes under a name that is no field and no option; and whether it
    ends inside of one."""
    function = _FUNCTION.match(text)
    before_message = function or _MODULE.match(text)
    pieces: list[str] = []
    copied_to = 0
    match = _FREE_TEXTS.search(text, before_message.end() if before_message else 0)
    while match is not None:
        end = match.end()
        may_be_a_persons = _may_be_a_persons(match["name"], match["sign"], is_of_function=function is not None)
        if (
            may_be_a_persons
            and not _RECORD_IN_VALUE.match(text, end)
            and not _is_of_check(match, text)
            and _is_written(text[end : end + _LOOKED_AT])
        ):
            end = _end_of_free_text(text, end)
            value = text[match.end() : end]
            pieces.append(text[copied_to : match.end()])
            copied_to = end
            if end == len(text) and len(value.split()) >= _SENTENCE_WORDS:
                pieces.append(left_out(len(value) + beyond))
                return "".join(pieces), True
            pieces.append(left_out(len(value)))
        match = _FREE_TEXTS.search(text, end)
    pieces.append(text[copied_to:])
    return "".join(pieces), False


def _is_of_check(name: re.Match[str], text: str) -> bool:
    """Whether a text behind the name of an option is what the check of that option says."""
    return _SETTINGS.fullmatch(name["name"]) is not None and _VALIDATOR_SAYS.match(text, name.end()) is not None


def _may_be_a_persons(name: str, sign: str, *, is_of_function: bool) -> bool:
    """Whether a text without quotes behind a name may have been written by somebody."""
    if _is_option(name):
        return False
    if sign == "=":
        return True
    if "=" in sign:  # llama.cpp writes the facts of a model so
        return not is_of_function
    return name.lower() in _PERSONS_FIELDS or _COMPOUND_NAME.fullmatch(name) is not None


def _is_written(begin: str) -> bool:
    """Whether a text that begins so is a word or a sentence, and no number, time, address or path."""
    if begin[:1].isalpha():
        return True
    value = begin[: _end_of_free_text(begin, 0)]
    return len(_LETTERS.findall(value)) >= _LEAST_WORDS or not value.isascii()


def _end_of_free_text(text: str, begin: int) -> int:
    """End of a text without quotes: at the next field, at a bracket that closes one before it, or with the line."""
    following = _NEXT_FIELD.search(text, begin)
    last = following.start() if following else len(text)
    depth = 0
    for position in range(begin, last):
        character = text[position]
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
            if depth < 0:
                return position
    return last


def _without_lists(text: str, beyond: int) -> tuple[str, bool]:
    """The line without lists of texts under a name that is no field and no option; whether it ends inside of one."""
    pieces: list[str] = []
    copied_to = 0
    for match in _NAMED_LISTS.finditer(text):
        if match.start() < copied_to or _is_option(match["name"]):
            continue
        value = _end_of_brackets(text, match.end() - 1)
        pieces.append(text[copied_to : match.end() - 1])
        copied_to = value.end
        if not value.is_closed:
            pieces.append(left_out(value.end - (match.end() - 1) + beyond))
            return "".join(pieces), True
        pieces.append(left_out(value.end - (match.end() - 1)))
    pieces.append(text[copied_to:])
    return "".join(pieces), False


def without_keys(text: str) -> str:
    """The text without API keys, passwords and tokens."""
    return _without_keys(text)[0]


def _without_keys(text: str) -> tuple[str, bool]:
    """The text without keys; and whether it ends inside of one."""
    in_pem = _PRIVATE_KEY.search(text)
    if in_pem is not None and in_pem["end"] is None:
        return _without_keys(text[: in_pem.start()])[0] + STRUCK, True
    if in_pem is not None:
        text = _PRIVATE_KEY.sub(STRUCK, text)
    pieces: list[str] = []
    copied_to = 0
    ends_inside = False
    for match in _SECRETS.finditer(text):
        if match.start() < copied_to:
            continue
        value = _secret_end(text, match.end(), of_words=match["words"] is not None)
        if value is None:
            continue
        pieces.append(text[copied_to : match.end()])
        pieces.append(STRUCK)
        copied_to = value.end
        ends_inside = not value.is_closed
    pieces.append(text[copied_to:])
    struck = _LIKELY_SECRETS.sub(_struck_likely, _TOKENS.sub(STRUCK, "".join(pieces)))
    return _QUERY_VALUES.sub(_struck_query, struck), ends_inside


def _struck_likely(secret: re.Match[str]) -> str:
    """The name of a value that is likely a key, and `***`."""
    return f"{secret['key']}{STRUCK}"


def _struck_query(parameter: re.Match[str]) -> str:
    """A parameter of a URL without its value, which stays where it is a number or a switch."""
    is_shown = _HARMLESS.fullmatch(parameter["value"]) or parameter["value"] == STRUCK
    return parameter[0] if is_shown else f"{parameter['name']}={STRUCK}"


class _ValueEnd(NamedTuple):
    """End of a value in a line."""

    end: int
    is_closed: bool
    """False: the value goes on in the next line."""


def _secret_end(text: str, begin: int, *, of_words: bool) -> _ValueEnd | None:
    """End of a key's value, which may be `of_words` with names of their own; None if there is none."""
    scheme = _SCHEME.match(text, begin)
    if scheme is not None:
        begin = scheme.end()
    if _NO_VALUE.match(text, begin):
        return None
    words = _WORDS.match(text, begin) if of_words else None
    if words is not None:
        return _ValueEnd(words.end(), is_closed=True)
    value = _value_end(text, begin, unquoted=False)
    if value is not None:
        return value
    bare = _BARE_VALUE.match(text, begin)
    return _ValueEnd(bare.end(), is_closed=True) if bare else None


def _value_end(text: str, begin: int, *, unquoted: bool) -> _ValueEnd | None:
    """End of the value of a name that begins at `begin`; None where it is no text of a user.

    `unquoted`: it may be a text without quotes, which lasts to the end of the record.
    """
    if _HARMLESS.match(text, begin):
        return None
    quote = _QUOTE.match(text, begin)
    if quote is not None:
        return _end_of_string(text, quote.end(), quote["mark"], len(quote["escapes"]))
    call = _CALL.match(text, begin)
    bracket = call.end() if call else begin
    if text[bracket : bracket + 1] in _CLOSING_OF:
        return _end_of_brackets(text, bracket)
    if unquoted and begin < len(text):
        return _ValueEnd(len(text), is_closed=False)
    return None


def _end_of_string(text: str, begin: int, mark: str, escapes: int) -> _ValueEnd:
    """The end of a string; with `escapes` backslashes before its quotes it stands inside of other strings."""
    period = 2 * (escapes + 1)  # backslashes of one escaped backslash at this depth
    backslashes = 0
    for position in range(begin, len(text)):
        character = text[position]
        if character == mark and backslashes % period == escapes:
            return _ValueEnd(position + 1, is_closed=True)
        if character == "\\":
            backslashes += 1
        else:
            backslashes = 0
    return _ValueEnd(len(text), is_closed=False)


def _end_of_brackets(text: str, begin: int) -> _ValueEnd:
    """The end of a list, an object or a call, strings in it passed over."""
    closing: list[str] = []  # brackets that are open, by what closes them
    backslashes = 0
    position = begin
    while position < len(text):
        character = text[position]
        if character in "\"'":
            string = _end_of_string(text, position + 1, character, backslashes)
            if not string.is_closed:
                return string
            position = string.end
            backslashes = 0
            continue
        backslashes = backslashes + 1 if character == "\\" else 0
        if character in _CLOSING_OF:
            closing.append(_CLOSING_OF[character])
        elif closing and character == closing[-1]:
            closing.pop()
            if not closing:
                return _ValueEnd(position + 1, is_closed=True)
        position += 1
    return _ValueEnd(len(text), is_closed=False)
