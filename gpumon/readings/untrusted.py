"""Text of others (hosts, engines, pages, logs, files of other users), and the gates that let it into a command."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Mapping
from typing import Final, NoReturn

from gpumon.readings.frame import FILE_LOG
from gpumon.readings.text import clean

MOST_URL: Final = 512
"""Characters of a URL in a line of a config."""
# Parts of the forms below.
_NAME: Final = r"[A-Za-z0-9][A-Za-z0-9_.@:-]{0,127}"
_OPTION: Final = r"--?[A-Za-z][A-Za-z0-9_-]*"
_VARIABLE: Final = r"[A-Z][A-Z0-9_]+"
_ENTRY: Final = r"[a-z][a-z0-9]*(?:[_.][a-z0-9]+)+"
_VALUE: Final = r"[A-Za-z0-9_.]+"
_WITH_VALUE: Final = rf"--?[A-Za-z][A-Za-z0-9_-]*[ =]{_VALUE}"
_WORD: Final = r"[A-Za-z0-9_./:=@,+-]+"
_QUOTED: Final = r"(?:[A-Za-z0-9_./:=@,+-]|'[^'\x00-\x1f\x7f]*'|\"'\")+"
"""A word as `shlex.quote` writes it."""
_STRUCK: Final = r"(?:[A-Za-z0-9_./:=@,+-]|'[^'\x00-\x1f\x7f]*'|\"'\"|\*\*\*)+"
"""The same, with `***` in the place of secrets."""
_PATH: Final = r"/[^\x00-\x1f\x7f]{1,512}"
FORMS: Final[Mapping[str, re.Pattern[str]]] = {
    name: re.compile(pattern, re.ASCII)
    for name, pattern in {
        "gpus": r"\d{1,5}(?:,\d{1,5}){0,63}",
        "pid": r"[1-9]\d{0,9}",
        "pids": r"[1-9]\d{0,9}(?: [1-9]\d{0,9}){0,15}",
        "listed_pids": r"(?:pids? )?\d{1,10}(?:, \d{1,10}){0,15}(?: and \d{1,6} more)?",
        "runtime": r"docker|podman|crictl",
        "bus": r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]",
        "container": r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}",
        "name": _NAME,
        "path": _PATH,
        "host": r"[A-Za-z0-9][A-Za-z0-9._:-]{0,252}",
        "ssh_host": r"(?:[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}@)?[A-Za-z0-9_][A-Za-z0-9_.:%-]{0,252}",
        "argument": r"[^-].{0,4095}",
        "url": r"https?://[A-Za-z0-9_.:\[\]-]{1,253}(?:/[A-Za-z0-9_./~%-]{0,200})?",
        "option": rf"{_OPTION}|{_VARIABLE}|{_ENTRY}",
        "setting": rf"{_WITH_VALUE}(?: {_WITH_VALUE})*|{_VARIABLE}={_VALUE}|{_ENTRY}: {_VALUE}",
        "share": r"0\.\d{1,2}",
        "log_command": (
            rf"kubectl logs(?: -n {_NAME})? {_NAME} --previous --tail=100|docker logs --tail 100 {_NAME}"
            rf"|journalctl(?: --user)? -u {_NAME} -n 100"
        ),
        "start_command": rf"docker start {_NAME}|systemctl(?: --user)? start {_NAME}",
        "restart_command": (
            rf"docker restart {_NAME}|systemctl(?: --user)? restart {_NAME}|kubectl delete pod(?: -n {_NAME})? {_NAME}"
        ),
        "unfreeze_command": rf"docker unpause {_NAME}|systemctl(?: --user)? thaw {_NAME}",
        "relaunch": rf"(?:cd {_QUOTED} && )?(?:[A-Z][A-Z0-9_]*={_QUOTED} )*{_WORD}(?: {_QUOTED})+",
        "struck_relaunch": rf"(?:cd {_QUOTED} && )?(?:[A-Z][A-Z0-9_]*={_STRUCK} )*{_WORD}(?: {_STRUCK})+",
        "command_line": rf"{_WORD}(?: {_WORD})+",
        "plain_path": r"/[A-Za-z0-9_./@+-]{0,250}",
        "word": r"[A-Za-z0-9_][A-Za-z0-9_.:@/+-]{0,119}",
        "names": r"[A-Za-z0-9_][A-Za-z0-9_.:@/+,() -]{0,199}",
    }.items()
}
"""Name of a form -> the texts that are of it. One word is no command line: a peer could say any program.

An argument is a path or a name: it is no option."""
_SEVERAL_WORDS: Final = frozenset(
    {
        *("log_command", "start_command", "restart_command", "unfreeze_command", "command_line", "relaunch"),
        "struck_relaunch",
        *("setting", "pids", "listed_pids"),
    }
)
"""Forms whose text is several words of a shell, of which none is one that a shell would interpret."""


class Untrusted:
    """A text of others. It is no `str`, and formats as none: it gets into a command through a gate or not at all."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def one_of(self, words: Collection[str]) -> str:
        """The text if it is one of these words; else empty."""
        return self._text if self._text in words else ""

    def of_form(self, form: str) -> str:
        """The text as a shell reads it, if it is of the form (`FORMS`) and a terminal interprets none of it; else
        empty: in another form it would be another text."""
        if FORMS[form].fullmatch(self._text) is None or clean(self._text, len(self._text)) != self._text:
            return ""
        return self._text if form in _SEVERAL_WORDS else shlex.quote(self._text)

    def in_config(self, most: int) -> str:
        """The text, cut, as a string of a config file, in quotes: what no terminal shows is a number there."""
        whole = self._text[:most].encode(errors="replace").decode()
        quoted = json.dumps(whole, ensure_ascii=False)
        return "".join(sign if sign.isprintable() else f"\\U{ord(sign):08X}" for sign in quoted)

    def shown(self, most: int) -> str:
        """The text for a sentence without a command: without what a terminal interprets, and cut."""
        return clean(self._text, most)

    def __str__(self) -> NoReturn:
        raise TypeError("text of others goes into a command by a gate alone")

    def __format__(self, spec: str) -> NoReturn:
        raise TypeError("text of others goes into a command by a gate alone")

    def __repr__(self) -> str:
        return "Untrusted(...)"


def ssh_host(address: str) -> str:
    """A host's address in a command with `ssh`; `HOST`, to be filled in, where it could be anything else there."""
    return Untrusted(address).of_form("ssh_host") or "HOST"


def log_command(text: str) -> str:
    """The command that shows a log, as an engine that ended has it, for a shell; empty where it is of no such form."""
    if text.startswith(FILE_LOG):
        path = Untrusted(text.removeprefix(FILE_LOG)).of_form("path")
        return f"{FILE_LOG}{path}" if path else ""
    return Untrusted(text).of_form("log_command")
