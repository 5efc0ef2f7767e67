"""The table of docs/engines.md: what each adapter gives and when it moves, from the cases of the adapters' contract.

python -m tests.sources.engines.table > table.md         # or --write: into docs/engines.md, between its marks
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from gpumon.readings import quantities as q
from gpumon.readings.frame import Advance
from gpumon.sources.engines.registry import ENGINE_ROWS, EngineRow
from tests.sources.engines.contract import Case, Reader, cases

DOC: Final = Path(__file__).parents[3] / "docs" / "engines.md"
MARKS: Final = ("<!-- table: python -m tests.sources.engines.table --write -->\n", "<!-- end of table -->\n")
COLUMNS: Final = {
    "decode": (q.DECODE_TOKENS, q.DECODE_RATE),
    "prefill": (q.PREFILL_COMPUTED, q.PREFILL_RATE),
    "cached": (q.PREFILL_CACHED,),
    "steps": (q.STEPS,),
    "running": (q.RUNNING,),
    "waiting": (q.WAITING,),
    "KV use": (q.KV_USAGE,),
    "context": (q.USED_TOKENS, q.POOL_TOKENS),
    "TTFT": (q.TTFT,),
    "ITL": (q.ITL,),
    "E2E": (q.E2E,),
    "queue": (q.QUEUE,),
    "per request": (q.TPOT,),
    "lengths": (q.PROMPT_LENGTH,),
    "reasons": (q.STOPPED,),
    "failures": (q.FAILURES,),
}
"""Column -> quantities that fill it, the first that an adapter gives."""
SEEN_LATER: Final = frozenset({q.TTFT, q.ITL, q.E2E, q.QUEUE, q.TPOT, q.PROMPT_LENGTH, q.STOPPED, q.FAILURES})
"""They are of what has happened, so that there is no word for when they move."""
BEST_FIRST: Final = (Advance.LIVE, Advance.PROMPT, Advance.DERIVED, Advance.SAMPLED, Advance.END)
WORDS: Final = {Advance.PROMPT: "at 1st token", Advance.END: "at end"}


def table() -> str:
    """Markdown: a row for each engine, the best that any of its cases gives."""
    head = ["engine", "names from", "checked against", *COLUMNS]
    lines = [_line(head), "|" + "---|" * len(head)]
    lines += [
        _line([row.title, row.names_from, _basis(row), *_cells(row)])
        for row in sorted(ENGINE_ROWS, key=lambda row: row.title.lower())
    ]
    return "\n".join(lines) + "\n"


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _basis(row: EngineRow) -> str:
    return "documentation" if row.adapter.from_documentation else "recordings"


def _cells(row: EngineRow) -> list[str]:
    moves: dict[str, set[Advance]] = {}
    for case in (case for case in cases() if case.row is row):
        for quantity, advance in _moves(case):
            moves.setdefault(quantity, set()).add(advance)
    found = (next((name for name in names if name in moves), "") for names in COLUMNS.values())
    return [_word(name, min(moves[name], key=BEST_FIRST.index)) if name else "–" for name in found]


def _word(quantity: str, advance: Advance) -> str:
    return "yes" if quantity in SEEN_LATER else WORDS.get(advance, advance.value)


def _moves(case: Case) -> list[tuple[str, Advance]]:
    reader = Reader(case.row)
    pages = [reader.read(bodies) for bodies in case.polls][-1]
    return [(name, page.advance.get(name, Advance.LIVE)) for page in pages for name in page.live]


def written(text: str) -> str:
    """The document with the table as it is now."""
    before, _, rest = text.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    return f"{before}{MARKS[0]}{table()}{MARKS[1]}{after}"


if __name__ == "__main__":
    if "--write" in sys.argv:
        DOC.write_text(written(DOC.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(table(), end="")
