"""Origin of all readings: the driver's worker, engines' pages, /proc, files, a Prometheus, other hosts.

The only code that reads the outside. What it says is taken for text of a stranger: bounded in time and size, checked,
and a failure is a state with its reason, never an exception.
"""
