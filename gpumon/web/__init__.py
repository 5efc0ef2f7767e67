"""The server of `gpumon web`: who may ask it, and the screens behind it."""
