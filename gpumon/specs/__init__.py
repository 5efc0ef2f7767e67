"""GPUs, networks, models and formats: facts that do not change while gpumon runs.

Tables that ship with gpumon, with the source of each row, and what a model's own config or tensors tell. Pure; no
package of gpumon comes in.
"""
