"""A command line as everybody may read it: without what may be a secret."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

from gpumon.sources.discovery.command_line import (
    COMMANDS,
    LIST_OPTIONS,
    SHELLS,
    all_names,
    arguments_after,
    is_option,
    option_key,
    words_of,
)
from gpumon.sources.engines.launch_form import LaunchForm
from gpumon.sources.engines.registry import LAUNCH_FORMS

_TUNING: Final = """
--attention-backend --batch-size --block-size --chunked-prefill-size --cache-reuse --cache-type-v -ctv --context-length
--ctx-size -c --cuda-graph-max-bs --cuda-memory-fraction --data-parallel-size-local --decode-context-parallel-size -dcp
--device --disable-cuda-graph --disable-radix-cache --dtype --enable-chunked-prefill --enable-expert-parallel
--enable-prefix-caching --enforce-eager --expert-parallel-size --ep-size --ep --flash-attn -fa --gpu-memory-utilization
--kv-cache-free-gpu-memory-fraction --load-format --log-level --max-batch-prefill-tokens --max-batch-size
--max-batch-tokens --max-batch-total-tokens --max-client-batch-size --max-concurrent-requests --max-input-length
--max-input-tokens --max-model-len --max-num-batched-tokens --max-num-seqs --max-num-tokens --max-prefill-tokens
--max-running-requests --max-seq-len --max-total-tokens --max-waiting-tokens --mem-fraction-static --moe-a2a-backend
--n-gpu-layers -ngl --nnodes --node-rank --num-gpus --page-size --parallel -np --pooling --runner --runtime
--schedule-policy --seed --session-len --speculative-algorithm --speculative-num-draft-tokens --speculative-num-steps
--split-mode --swap-space --task --threads -t --tokenizer-mode --trust-remote-code --ubatch-size -ub
"""
_SHOWN_OPTIONS: Final = frozenset(_TUNING.split()) | all_names(form.options for form in LAUNCH_FORMS)
"""Options of engines that are shown with their values; of all others the names."""
STRUCK: Final = "***"
"""Stands for what may be a secret."""
_MOST_SHOWN_CHARACTERS: Final = 256
"""A longer value of an option is struck out."""
_MOST_VALUES: Final = 256
"""More values than an option of `LIST_OPTIONS` has."""
_SECRET_WORDS: Final = re.compile(
    r"apikeys?|creds?|credentials?|pass|passphrase|passwd|password|pw|secrets?|token|"
    r"(?:key|auth|sign|encrypt|decrypt|licen).*"
)
"""Words of an option's name that speak of a secret."""
_RANDOM: Final = re.compile(
    r"(?=[a-zA-Z]*[0-9])(?=[0-9]*[a-zA-Z])[a-zA-Z0-9]{16,}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)
"""A run of letters and digits as no word has it, or a UUID."""


def shown_command(argv: Sequence[str]) -> str:
    """The command line as everybody may read it: its `shown_words` in one text."""
    return " ".join(shown_words(argv))


def shown_words(argv: Sequence[str]) -> list[str]:
    """The words of a command line that everybody may read: program, script or module, and the names of options.

    Values stand beside the options of known engines that gpumon knows (`_SHOWN_OPTIONS`), unless their name speaks of
    a secret or they look random; whatever else there is becomes `***`.
    """
    if len(argv) == 1:  # a title that the process gave itself
        argv = argv[0].split()
    words = words_of(argv)
    form, arguments = _form_of(words)
    if arguments is None:
        arguments = _unknown_arguments(argv, words)
    program = [strike_secrets(word) for word in argv[: len(argv) - len(arguments)]]
    return _with_shown_arguments(program, form, arguments)


def _with_shown_arguments(program: list[str], form: LaunchForm | None, arguments: Sequence[str]) -> list[str]:
    """The words of a program, and of its arguments those that everybody may read; `form` is None for unknown ones."""
    shown = program
    # Words to come that may be shown: the model, or values of the last option.
    values_left = 1 if form is not None and form.positional else 0
    for word in arguments:
        if is_option(word):
            name, equals, value = word.partition("=")
            is_known = form is not None and _may_be_shown(name)
            shown.append(_shown_option(name, equals, value, is_known=is_known))
            most_values = _MOST_VALUES if option_key(name) in LIST_OPTIONS else 1
            values_left = most_values if is_known and not equals else 0
        elif values_left:
            shown.append(strike_secrets(word))
            values_left -= 1
        elif shown[-1:] != [STRUCK]:
            shown.append(STRUCK)
    return shown


def _form_of(words: Sequence[str]) -> tuple[LaunchForm | None, Sequence[str] | None]:
    """The form of the known program that these words start, and its arguments; None and None for any other."""
    if words:
        for form, command in COMMANDS:
            arguments = arguments_after(words, command)
            if arguments is not None:
                return form, arguments
    return None, None


def _unknown_arguments(argv: Sequence[str], words: Sequence[str]) -> Sequence[str]:
    """The arguments of a program that is not known, behind a shell's script."""
    if words:
        return words[1:]
    arguments = argv[1:]
    is_shell = bool(argv) and PurePosixPath(argv[0].lstrip("-")).name in SHELLS
    if is_shell and arguments and not arguments[0].startswith("-"):
        return arguments[1:]
    return arguments


def _may_be_shown(name: str) -> bool:
    """Whether the value of this option of a known program is no secret."""
    key = option_key(name)
    return key in _SHOWN_OPTIONS and not speaks_of_secret(key)


def speaks_of_secret(name: str) -> bool:
    """Whether the name of an option or a variable hints at a key, a token or a password."""
    parts = re.split(r"[-_.]+", name.lower())
    return any(_SECRET_WORDS.fullmatch(part) for part in parts)


def _shown_option(name: str, equals: str, value: str, *, is_known: bool) -> str:
    """An option with its value, of which what may be a secret is struck out."""
    is_short = not name.startswith("--")
    if is_short and name not in _SHOWN_OPTIONS and len(name) > 2:  # a value may be glued to it
        name = f"{name[:2]}{STRUCK}"
    shown = strike_secrets(name)
    if not equals:
        return shown
    if is_known:
        return f"{shown}={strike_secrets(value)}"
    return f"{shown}={STRUCK}"


def strike_secrets(value: str) -> str:
    """The value, or `***` in the place of what may be a secret in it."""
    if len(value) > _MOST_SHOWN_CHARACTERS or re.search(r"://[^/]*@|[{}\"'\\\s]", value):
        return STRUCK
    return "/".join(STRUCK if _RANDOM.search(part) else part for part in value.split("/"))
