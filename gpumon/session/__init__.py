"""Snapshots of this host, of a recording or of a fleet, as a screen or a command is attached to them."""
