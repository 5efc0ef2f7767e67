"""The [[feed]] tables of the config as sources: metrics pages, and files of a training loop."""

from __future__ import annotations

from gpumon.config.feed_rules import feed_server, shared_sources
from gpumon.config.schema import Config
from gpumon.sources.file_feed import FileFeed
from gpumon.sources.page_feed import PageFeed


def feeds_of(config: Config) -> tuple[list[PageFeed], list[FileFeed]]:
    """The feeds of the config with a url, and those with a file; not started."""
    shared_servers = shared_sources(config)
    pages: list[PageFeed] = []
    files: list[FileFeed] = []
    for feed in config.feed:
        part = feed.name if feed_server(feed) in shared_servers else ""
        if feed.url:
            pages.append(PageFeed(feed, part))
        else:
            files.append(FileFeed(feed, part))
    return pages, files
