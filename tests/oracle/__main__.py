"""`python -m tests.oracle [defaults] [variants] [parameters] [runs] [served]`: writes these of tests/data/oracle/."""

import csv
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import transformers

from tests.oracle import configs, parameters, runs, served
from tests.oracle.model import versions

DATA = Path(__file__).parents[1] / "data" / "oracle"


def main(names: list[str]) -> None:
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    for name in names or _PARTS:
        began = time.monotonic()
        _PARTS[name]()
        print(f"{name}: {time.monotonic() - began:.0f} s")
    (DATA / "versions.txt").write_text(versions() + "\n")


class Table:
    """A CSV file, written row by row: what was counted stands on disk should a later model fail."""

    def __init__(self, name: str) -> None:
        self._file = (DATA / name).open("w", newline="")
        self._writer: csv.DictWriter[str] | None = None

    def add(self, rows: Iterable[Mapping[str, object]]) -> None:
        for row in rows:
            if self._writer is None:
                self._writer = csv.DictWriter(self._file, row, lineterminator="\n")
                self._writer.writeheader()
            self._writer.writerow(row)
            self._file.flush()

    def __enter__(self) -> "Table":
        return self

    def __exit__(self, *raised: object) -> None:
        self._file.close()


def _write_parameters() -> None:
    with Table("parameters.csv") as table:
        table.add(parameters.rows(configs.read(DATA)))


def _counts() -> Callable[[configs.Source], object]:
    """Models with the same code and the same counts are one, whatever their names and their quantisation."""
    with (DATA / "parameters.csv").open() as file:
        by_id = {
            row["id"]: (row["text_model_type"], row["params"], row["active"], row["class"])
            for row in csv.DictReader(file)
        }
    return lambda source: by_id[source.id] if by_id[source.id][1] else source.id


def _write_served() -> None:
    with Table("served.csv") as table:
        table.add(served.rows())


def _write_runs() -> None:
    with Table("flops.csv") as flops, Table("caches.csv") as caches:
        for counted, kept in runs.rows(configs.read(DATA), _counts()):
            flops.add(counted)
            caches.add(kept)


_PARTS: dict[str, Callable[[], None]] = {
    "defaults": lambda: configs.write_defaults(DATA / "defaults.jsonl"),
    "variants": lambda: configs.write_variants(DATA / "variants.jsonl"),
    "parameters": _write_parameters,
    "runs": _write_runs,
    "served": _write_served,
}

if __name__ == "__main__":
    main(sys.argv[1:])
