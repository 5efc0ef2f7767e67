"""Memory of engines and GPUs: readings of a tick in, readings with those that start, hang, or are gone, out.

`engines` and `gpus` are the two memories; the rest judges one side of an engine each: its last answers (`seen_engine`),
its starts (`attempts`), its processes (`parts`), its silence (`silent`). Times come in as arguments; `hardware` alone
reads files.
"""
