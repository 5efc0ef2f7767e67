"""Single requests against engines with continuous batching: arrivals, router, scheduler, and what they come to.

Requests and the time of a step come in, and time is simulated: no clock. The same arguments give the same answer.
"""
