"""What of the models that `make oracle` counted is right and what is refused: the table of docs/models.md.

python -m tests.specs.oracle_table            prints it
python -m tests.specs.oracle_table --write    puts it into docs/models.md
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

from tests.specs import oracle
from tests.specs.oracle import Row

DOCS: Final = Path(__file__).parents[2] / "docs" / "models.md"
BEGIN, END = "<!-- counted -->", "<!-- /counted -->"
ASKED: Final = frozenset((Path(__file__).parents[1] / "data" / "oracle_asked.txt").read_text("utf-8").split())
"""Text architectures of transformers 5.19, which the shares of `test_oracle` are promised of."""


def section() -> str:
    """The part of docs/models.md between its marks."""
    counted = [row for row in oracle.rows("parameters") if row["params"]]
    lines = []
    for kind, title in (("released", "Released models"), ("defaults", "Architectures at their default sizes")):
        of_kind = [row for row in counted if row["kind"] == kind]
        refused = {row["id"]: oracle.refusal(row) for row in of_kind if oracle.refusal(row)}
        right = {row["id"] for row in of_kind if row["id"] not in refused and oracle.right(row, oracle.spec(row))}
        wrong = {row["id"] for row in of_kind} - right - set(refused)
        lines += [
            f"**{title}**: {len(right)} of {len(right) + len(wrong) + len(refused)} right, {len(refused)} refused, "
            f"{len(wrong)} wrong.",
            "",
            ", ".join(f"`{name}`" for name in sorted(right, key=str.lower)) + ".",
            "",
        ]
        lines += _refused(refused)
    return "\n".join((BEGIN, "", *lines, END))


def _refused(refused: dict[str, str]) -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for name, why in refused.items():
        unknown = re.fullmatch(r"model_type '.*' is not a known architecture", why)
        reason = "no row for its model_type" if unknown else re.sub(r"^model_type '\S+' is not modelled: ", "", why)
        by_reason.setdefault(reason, []).append(name)
    if not by_reason:
        return []
    table = ["| refused | why |", "|---|---|"]
    table += [
        f"| {', '.join(f'`{name}`' for name in sorted(names))} | {reason} |"
        for reason, names in sorted(by_reason.items())
    ]
    return [*table, ""]


def write() -> None:
    """Puts the table into the docs, between its marks."""
    text = DOCS.read_text("utf-8")
    begin, end = text.index(BEGIN), text.index(END) + len(END)
    DOCS.write_text(text[:begin] + section() + text[end:], "utf-8")


if __name__ == "__main__":
    write() if "--write" in sys.argv else print(section())

__all__ = ["ASKED", "DOCS", "Row", "section"]
