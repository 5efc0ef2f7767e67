"""The sizing panel and its pictures."""
