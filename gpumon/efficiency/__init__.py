"""Frames to snapshots: windows over counters, quantiles, FLOPs and bytes, MFU and MBU, sums over a stretch of time.

Readings, specs and goals come in, all with the time at which they were made. Pure: the same frames give the same
snapshots, live, in a replay and in a test. What cannot be known is `Missing` with its reason.
"""
