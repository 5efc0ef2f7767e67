"""Parts of the NVML worker, and the two sides of the pipe between it and the monitor."""
