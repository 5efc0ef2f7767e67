"""A Prometheus as the source: its HTTP API, the queries, and their answers as readings of many hosts."""
