"""The log of an engine of this host: where it is, and its end as it may be shown."""
