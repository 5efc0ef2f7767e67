"""Snapshots to verdicts and events: what limits each engine, GPU and the host, the evidence, the next action.

Snapshots, their recent past and thresholds come in. Pure: a rule that cannot see what it needs says nothing.
"""
