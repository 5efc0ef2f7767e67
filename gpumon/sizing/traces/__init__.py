"""Traces of requests as people have them: files of Azure, BurstGPT, Mooncake, ShareGPT, load tests, and tables."""
