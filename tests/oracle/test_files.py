"""The oracle's files agree with each other: what was counted as parameters is what one token was seen to multiply."""

import csv
import json
from pathlib import Path

DATA = Path(__file__).parents[1] / "data" / "oracle"


def read(name: str) -> list[dict[str, str]]:
    with (DATA / name).open() as file:
        return list(csv.DictReader(file))


PARAMETERS = {(row["id"], row["class"]): row for row in read("parameters.csv") if row["params"]}
# What a token multiplies isn't what `active_matmul` says: the reasons stand in `note` of parameters.csv or here.
OTHERWISE = {
    "dory", "ernie4_5_vl_moe", "hrm_text", "inkling2_loop", "longcat_flash", "mllama", "phi4_multimodal",
    "dots3_note",  # MLA with windows: not every layer projects the whole context anew
    "llama4", "llama4_text",  # eager code multiplies every expert
}  # fmt: skip
STEPS = [row for row in read("flops.csv") if row["phase"] == "decode" and row["model_type"] not in OTHERWISE]


def test_every_config_has_its_row() -> None:
    ids = {
        json.loads(line)["id"]
        for name in ("released", "defaults", "variants")
        for line in (DATA / f"{name}.jsonl").read_text().splitlines()
    }
    assert ids == {row["id"] for row in read("parameters.csv")}


def test_a_model_is_counted_or_says_why_not() -> None:
    for row in read("parameters.csv"):
        assert row["params"] or "not counted" in row["note"], row["id"]
    for row in read("flops.csv"):
        assert row["phase"] or "not counted" in row["note"], row["id"]


def test_a_step_multiplies_the_active_weights() -> None:
    for step in STEPS:
        check_weights_of_a_step(step)


def check_weights_of_a_step(step: dict[str, str]) -> None:
    """Each weight once; what MLA projects anew from its cache (`linear_cached`) once per token there.

    dots3's layers with a window project theirs only, so that its mean over all layers is less.
    """
    row = PARAMETERS[step["id"], step["class"]]
    once = sum(int(step[part]) for part in ("linear", "experts", "head"))
    again = int(step["linear_cached"]) / (int(step["context"]) + 1)
    least = 0.95 if step["id"].startswith("dots3_note") else 0.997
    assert least <= (once + again) / 2 / int(row["active_matmul"]) <= 1.003
