"""A source of snapshots with its start, stop and cadence: this host, a recording, a host of a fleet, a fleet.

Config and options come in; here the sources, the collector and the past are put together for a screen or a command.
"""
