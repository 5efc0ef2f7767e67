"""GPU drivers that may hang or crash: read in a process of their own, each GPU in a thread of its own."""
