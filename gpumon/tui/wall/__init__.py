"""The wall of GPUs: a tile per GPU, coloured by one figure."""
