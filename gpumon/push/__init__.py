"""Verdicts to receivers of other people: webhooks of the config, with what waits for them on disk.

Snapshots come in; what a receiver was told, and what it is still owed, outlives this run.
"""
