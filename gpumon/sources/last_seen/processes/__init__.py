"""Processes of the engines of this host: where they run, whether they go on, which one starts an engine again.

`server_looks` begins a look beside a tick, `look` takes it in a thread, `process_state` is what the memory gets of it.
All that comes in is read from /proc and the cgroups; no verdict is made here.
"""
