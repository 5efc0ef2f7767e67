"""Snapshots to text and JSON."""
