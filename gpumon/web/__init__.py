"""The screen in a browser: who may ask the server of `gpumon web`, and the screens behind it.

Requests of strangers come in; each admitted one gets a gpumon of its own in a pseudo-terminal.
"""
