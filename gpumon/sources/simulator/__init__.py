"""A simulated GPU server: engines with physics of their own, served over real HTTP, and the GPUs that they drive."""
