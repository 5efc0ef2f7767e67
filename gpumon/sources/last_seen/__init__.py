"""Engines that served on this host or at a URL of the config: what is remembered of them when they end."""
