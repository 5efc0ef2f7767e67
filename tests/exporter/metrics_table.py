"""The table of all metrics for docs/serve-metrics.md: `python -m tests.exporter.metrics_table` writes it there."""

from __future__ import annotations

from pathlib import Path

from gpumon.readings.exported import EXPORTED_METRICS

DOCS = Path(__file__).parents[2] / "docs" / "serve-metrics.md"
BEGIN, END = "<!-- metrics -->\n", "<!-- end of metrics -->\n"


def table() -> str:
    """Every metric with its labels and help, as Markdown."""
    lines = ["| metric | kind | labels | what |\n", "|---|---|---|---|\n"]
    for metric in EXPORTED_METRICS:
        labels = ", ".join(metric.labels)
        lines.append(f"| `{metric.sample}` | {metric.kind} | {labels} | {metric.help.replace('|', '/')} |\n")
    return "".join(lines)


def main() -> None:
    """Put the table in its place."""
    text = DOCS.read_text(encoding="utf-8")
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    DOCS.write_text(f"{before}{BEGIN}{table()}{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
