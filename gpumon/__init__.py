"""gpumon: busy next to efficient for GPU servers that run LLMs."""

__version__ = "0.3.0"
