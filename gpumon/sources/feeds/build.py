"""The sources of all feeds of the config."""

from __future__ import annotations

from gpumon.config.feed_rules import server, shared
from gpumon.config.schema import Config
from gpumon.sources.feeds.file import FileFeed
from gpumon.sources.feeds.page import PageFeed


def feeds_of(config: Config) -> tuple[list[PageFeed], list[FileFeed]]:
    """Those with a url, and those with a file; not started."""
    several = shared(config)
    pages: list[PageFeed] = []
    files: list[FileFeed] = []
    for feed in config.feed:
        part = feed.name if server(feed) in several else ""
        if feed.url:
            pages.append(PageFeed(feed, part))
        else:
            files.append(FileFeed(feed, part))
    return pages, files
