"""Serving engines that are found without configuration: from GPU processes to the page with their metrics."""
