"""What GPUs and LLMs are."""
