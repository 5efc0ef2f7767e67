"""Hosts of a fleet without gpumon: gpumon runs there from a temporary folder, or nvidia-smi is read instead."""
