"""The answer of a plan in words, once: rows of text that the panel and `gpumon size` lay out, each in its own width."""
