"""The page of the glossary: `python -m tests.readings.glossary_table` writes docs/glossary.md."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from gpumon.figures.glossary import glossary_page

PAGE: Final = Path(__file__).parents[2] / "docs" / "glossary.md"


def main() -> None:
    """Write the page."""
    PAGE.write_text(glossary_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
