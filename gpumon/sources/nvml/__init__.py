"""NVIDIA's driver library, by its own binding pynvml."""
