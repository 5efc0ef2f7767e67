"""`python -m tests.engine_parsers FOLDER`: see the docstring of the package."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shlex
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.engine_parsers.sources import Row, llama_rows, tgi_rows
from tests.engine_parsers.stand_in import stand_in_for

HERE: Final = Path(__file__).parent
TABLE: Final = HERE.parents[1] / "gpumon" / "specs" / "data" / "engine_parsers.tsv"
_TODAY: Final = time.strftime("%Y-%m-%d")
ANSWERS: Final = HERE.parent / "data" / "engine_parsers.jsonl"
_KEPT: Final = (
    "model", "model_tag", "model_path", "host", "port", "served_model_name", "tensor_parallel_size", "tp_size",
    "pipeline_parallel_size", "pp_size", "data_parallel_size", "dp_size", "quantization", "kv_cache_dtype", "dtype",
    "max_num_seqs", "max_running_requests", "enforce_eager", "enable_prefix_caching", "api_key",
)  # fmt: skip
"""Values of the real parsers that are compared."""


def main(folder: Path) -> None:
    """Writes the table and the answers, engine by engine: each real parser is built in a process of its own."""
    rows = _old_rows()
    answers: list[str] = []
    for wheel in sorted(folder.glob("*.whl")):
        engine = wheel.name.split("-")[0]
        with tempfile.TemporaryDirectory() as unpacked:
            _unpack(wheel, Path(unpacked))
            command = [sys.executable, "-m", "tests.engine_parsers", "--parser", engine, unpacked]
            out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        made = json.loads(out.splitlines()[-1])
        version = wheel.name.split("-")[1]
        rows[engine] = [f"# {engine} {version}, its wheel's argparse, read {_TODAY}", *made["rows"]]
        answers += made["answers"]
    for sdist in folder.glob("llama_cpp_python-*.tar.gz"):
        with tarfile.open(sdist) as archive:
            member = next(name for name in archive.getnames() if name.endswith("/common/arg.cpp"))
            text = archive.extractfile(member).read().decode()  # type: ignore[union-attr]
        name = f"# llamacpp as in {sdist.name.removesuffix('.tar.gz')}, common/arg.cpp, read {_TODAY}"
        rows["llamacpp"] = [name, *_lines("llamacpp", llama_rows(text))]
    source = folder / "tgi.rs"
    if source.exists():
        rows["tgi"] = [
            f"# tgi 3.3.6-dev0 (db931fcf), launcher/src/main.rs, read {_TODAY}",
            *_lines("tgi", tgi_rows(source.read_text())),
        ]
    TABLE.write_text("".join(f"{line}\n" for engine in sorted(rows) for line in rows[engine]))
    if answers:
        ANSWERS.write_text("".join(f"{line}\n" for line in answers))


def _old_rows() -> dict[str, list[str]]:
    """The lines of the table by engine."""
    rows: dict[str, list[str]] = {}
    for line in TABLE.read_text().splitlines() if TABLE.exists() else ():
        engine = line.removeprefix("# ").split("\t")[0].split(" ")[0]
        rows.setdefault(engine, []).append(line)
    return rows


def _unpack(wheel: Path, folder: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.endswith((".py", "METADATA", ".json"))])


def _lines(engine: str, rows: Iterator[Row]) -> list[str]:
    return [f"{engine}\t{' '.join(names)}\t{arity}" for names, arity in rows]


def _actions(parser: argparse.ArgumentParser) -> Iterator[Row]:
    for action in parser._actions:
        if action.option_strings:
            arity = 1 if action.nargs is None else action.nargs
            yield tuple(action.option_strings), str(arity)


def print_parser(engine: str, folder: str) -> None:
    """Prints the rows of an engine's argparse, and what it makes of the lines."""
    stand_in_for(folder)
    os.environ.update(VLLM_TARGET_DEVICE="cpu", VLLM_LOGGING_LEVEL="ERROR")
    parser, first = _vllm() if engine == "vllm" else _sglang()
    serving = parser if engine != "vllm" else parser._subparsers._group_actions[0].choices["serve"]  # type: ignore
    answers = []
    for line in (HERE / "lines.txt").read_text().splitlines():
        words = shlex.split(line)
        if words[0] == engine:
            answers.append(json.dumps({"line": line, "values": _parsed(parser, words[first:])}))
    print(json.dumps({"rows": _lines(engine, _actions(serving)), "answers": answers}))


def _parsed(parser: argparse.ArgumentParser, words: list[str]) -> dict[str, Any] | None:
    """What the parser makes of these words; None where it stops."""
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            values = vars(parser.parse_args(words))
    except (SystemExit, ValueError):
        return None
    return {name: values[name] for name in _KEPT if values.get(name) is not None and _plain(values[name])}


def _plain(value: object) -> bool:
    return isinstance(value, (str, int, float, bool)) or (isinstance(value, list) and all(map(_plain, value)))


def _vllm() -> tuple[argparse.ArgumentParser, int]:
    from vllm.entrypoints.cli.serve import ServeSubcommand
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser()
    ServeSubcommand().subparser_init(parser.add_subparsers(dest="subparser"))
    return parser, 1


def _sglang() -> tuple[argparse.ArgumentParser, int]:
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    return parser, 1


if __name__ == "__main__":
    if sys.argv[1] == "--parser":
        print_parser(*sys.argv[2:])
    else:
        main(Path(sys.argv[1]))
