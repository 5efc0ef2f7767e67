"""Snapshots, plans and reports as text, Markdown and JSON; the exporter, recording rules, manifests, alert commands.

What is known comes in as records of `readings` and `sizing`; nothing is measured here, and nothing outside is asked.
What a name from outside holds is escaped here.
"""
