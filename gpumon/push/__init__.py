"""Verdicts to receivers of other people: webhooks of the config, with what waits for them on disk."""
