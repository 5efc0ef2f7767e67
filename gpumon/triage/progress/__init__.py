"""Progress of engines and runs: whether tokens or steps come, what GPUs do meanwhile, and the rule on hangs."""
