"""Facts of GPUs and LLMs."""
