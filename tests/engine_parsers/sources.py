"""Options in the sources of engines whose parsers are not Python: llama.cpp's and TGI's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

Row = tuple[tuple[str, ...], str]
"""Names of an option, and the number of words it takes: 0, 1, 2, `?` or `*`."""

_LLAMA_OPTION: Final = re.compile(
    r"add_opt\(common_arg\(\s*\{(?P<names>[^}]*)\}\s*,(?P<rest>.*?)\[[^\]]*\]\s*\((?P<arguments>[^)]*)\)", re.DOTALL
)
"""An option of llama.cpp: its names, others that switch it off, hints and texts, and the function for its values."""
_QUOTED: Final = re.compile(r'"(-[^"]*)"')
_OFF_NAMES: Final = re.compile(r"\s*\{([^}]*)\}")
_TGI_FIELD: Final = re.compile(r"#\[clap\((?P<how>[^\]]*)\)\]\s*\n\s*(?P<name>\w+):\s*(?P<type>[\w<>]+),", re.MULTILINE)
_TGI_SHORT: Final = re.compile(r"short(?:\s*=\s*'(\w)')?\b")


def llama_rows(text: str) -> Iterator[Row]:
    """Options of llama.cpp's common/arg.cpp. A value's function has an argument for each word, but for switches."""
    for option in _LLAMA_OPTION.finditer(text):
        names = _QUOTED.findall(option["names"])
        off = _OFF_NAMES.match(option["rest"])
        if off:
            names += _QUOTED.findall(off[1])
        arguments = [argument for argument in option["arguments"].split(",")[1:] if "bool" not in argument]
        if names:
            yield tuple(names), str(len(arguments))


def tgi_rows(text: str) -> Iterator[Row]:
    """Options of TGI's launcher/src/main.rs: fields of its struct `Args`."""
    for field in _TGI_FIELD.finditer(text[text.index("struct Args") :]):
        if "long" not in field["how"]:
            continue
        names = [f"--{field['name'].replace('_', '-')}"]
        short = _TGI_SHORT.search(field["how"])
        if short:
            names.append(f"-{short[1] or field['name'][0]}")
        yield tuple(names), "0" if field["type"] == "bool" else "1"
