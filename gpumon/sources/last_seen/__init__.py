"""Engines and GPUs that were here: what is remembered of them, and how they ended.

`records` and `store`: what is remembered, and its file. `processes`: the processes of engines, as /proc shows them
beside the ticks. `causes`: how a process ended. `memory`: the readings of a tick come in, and go out with what is gone.
`keeper`: holds these together for a collector.
"""
