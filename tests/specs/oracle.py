"""What `make oracle` counted in the real model code, beside what gpumon makes of the same configs."""

from __future__ import annotations

import csv
import json
from functools import cache
from pathlib import Path
from typing import Any, Final

from gpumon.specs.llm import LlmSpec
from gpumon.specs.llm_config import llm_from_config

DATA: Final = Path(__file__).parents[1] / "data" / "oracle"
FILES: Final = ("released", "defaults", "variants")

Row = dict[str, str]


@cache
def configs() -> dict[tuple[str, str], dict[str, Any]]:
    """By file and id; ModelOpt's own file is put into the config, as the reader of folders does."""
    found = {}
    for name in FILES:
        for line in (DATA / f"{name}.jsonl").read_text("utf-8").splitlines():
            entry = json.loads(line)
            config = entry["config"]
            other = (entry.get("hf_quant_config") or {}).get("quantization")
            if other and not config.get("quantization_config"):
                config["quantization_config"] = {"quant_method": "modelopt", **other}
            found[name, entry["id"]] = config
    return found


@cache
def rows(name: str) -> tuple[Row, ...]:
    """The lines of one of the CSV files."""
    with (DATA / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


def number(row: Row, column: str) -> float:
    """A count; what was not counted is 0."""
    return float(row[column] or 0)


def spec(row: Row) -> LlmSpec:
    """The spec of the class that was counted (with or without an LM head). ValueError where it is refused."""
    return _spec(row["kind"], row["id"], row["class"])


@cache
def _spec(kind: str, name: str, class_name: str) -> LlmSpec:
    architectures = [class_name] if class_name else None
    return llm_from_config({**configs()[kind, name], "architectures": architectures}, name, "oracle")


def refusal(row: Row) -> str:
    """Why a model is refused; empty where it is not."""
    try:
        spec(row)
    except ValueError as error:
        return str(error).removeprefix("config.json: ")
    return ""


def right(row: Row, found: LlmSpec) -> bool:
    """All parameters within 1%, those multiplied per token within 3%, the routed experts' within 1%."""
    return (
        abs(found.params / number(row, "params") - 1.0) <= 0.01
        and abs(found.matmul_params / number(row, "active_matmul") - 1.0) <= 0.03
        and abs(found.experts * found.expert_params - number(row, "experts_routed"))
        <= 0.01 * number(row, "experts_routed")
    )
