"""`python -m tests.oracle [defaults] [parameters] [caches] [flops]`: writes tests/data/oracle/, all of it by default."""

import csv
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import transformers

from tests.oracle import configs, parameters
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


def _write(name: str, rows: Iterable[Mapping[str, object]]) -> None:
    """Row by row, so that what was counted stands on disk should a later model fail."""
    with (DATA / name).open("w", newline="") as file:
        writer: csv.DictWriter[str] | None = None
        for row in rows:
            if writer is None:
                writer = csv.DictWriter(file, row, lineterminator="\n")
                writer.writeheader()
            writer.writerow(row)
            file.flush()


_PARTS: dict[str, Callable[[], None]] = {
    "defaults": lambda: configs.write_defaults(DATA / "defaults.jsonl"),
    "parameters": lambda: _write("parameters.csv", parameters.rows(configs.read(DATA))),
}

if __name__ == "__main__":
    main(sys.argv[1:])
