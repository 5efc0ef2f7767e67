"""Screens that lie over the monitor."""
