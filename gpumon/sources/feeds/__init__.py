"""Servers and training runs that the user describes in the config: metrics pages and files of JSON lines."""
