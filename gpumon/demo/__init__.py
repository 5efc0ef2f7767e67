"""A GPU server that does not exist: for `gpumon demo`, for `make triage`, and for tests that need a known truth.

Engines, traffic and GPUs have physics of their own, from first principles: no formula of `efficiency`, no rule of
`triage` and no curve of `sizing` comes in here, so that what gpumon says about the server can be compared with what the
server did. Only the rules of the queue are those of `sizing/simulate/batch.py`: they are vLLM's. Its engines serve real
metrics pages over HTTP, which the ordinary sources read.
"""
