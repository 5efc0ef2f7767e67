"""From targets to instances, GPUs and servers, and single requests against engines (`simulate`).

Workloads, goals, specs, and points that were measured, imported or typed come in. Pure: imported files are text here.
An answer says what it rests on.
"""
