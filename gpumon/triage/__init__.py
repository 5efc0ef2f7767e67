"""Derived figures to verdicts and events: what limits each engine, GPU and the host, the evidence, the next action."""
