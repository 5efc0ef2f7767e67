"""The `web` command: the screen in a browser, through textual-serve."""

from gpumon.web.command import web_command as web_command
