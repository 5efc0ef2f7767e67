"""One adapter a serving engine: tables from metric names to canonical quantities."""
