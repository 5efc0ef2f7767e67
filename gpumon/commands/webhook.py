"""`gpumon webhook`: the webhooks of the config, and test messages to them."""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING, Final

from gpumon.commands.options import add_config
from gpumon.commands.settings import settings
from gpumon.commands.streams import EXIT_FAILED, EXIT_OK, colour, width, write
from gpumon.config.errors import ConfigError

if TYPE_CHECKING:
    from gpumon.config.schema import Webhook
    from gpumon.push.delivery import Attempt

_NO_WEBHOOK: Final = "there is no [[webhook]] in the config (docs/alerts.md): gpumon config --example shows one"
MOST_BODY_CHARACTERS: Final = 4000
"""Characters of a body that are printed."""


def options(parser: argparse.ArgumentParser) -> None:
    """Add options: the config, the webhook, and whether to send."""
    parser.add_argument("name", metavar="NAME", nargs="?", default="", help="webhook (default: all)")
    add_config(parser)
    parser.add_argument("--test", action="store_true", help="send a test message; print what was sent and the answer")


def run(chosen: argparse.Namespace) -> int:
    """Print the webhooks, or send a test message; exit code 1: one fails."""
    loaded, _ = settings(chosen)
    webhooks = loaded.config.webhook
    if not webhooks:
        raise ConfigError(_NO_WEBHOOK)
    from gpumon.push.webhooks import webhook_names
    from gpumon.readings.text import clean

    names = webhook_names(webhooks)
    if chosen.name and chosen.name not in names:
        raise ConfigError(f"no webhook is called {clean(chosen.name, 60)!r}; known: {', '.join(names)}")
    if not chosen.test:
        return _print_state(webhooks, chosen.name)
    code = EXIT_OK
    for webhook, name in zip(webhooks, names, strict=True):
        if chosen.name in ("", name) and not asyncio.run(_send_test(webhook, name)):
            code = EXIT_FAILED
    return code


def _print_state(webhooks: tuple[Webhook, ...], name: str) -> int:
    """Print the checks of one webhook, or of all (no name); returns the exit code."""
    from gpumon.outputs.doctor import any_failed, report
    from gpumon.push.checks import webhook_checks

    shown = [check for check in webhook_checks(webhooks) if name in ("", check.name)]
    write(report(shown, colour=colour(), width=width()))
    if any_failed(shown):
        return EXIT_FAILED
    return EXIT_OK


async def _send_test(webhook: Webhook, name: str) -> bool:
    """Send a test message and print it with its answer; returns whether it arrived."""
    from gpumon.push.checks import test_messages
    from gpumon.push.delivery import DeliveryResult

    attempts = await test_messages(webhook, name)
    for attempt in attempts:
        write(_attempt_text(name, webhook.kind, attempt))
    # It ends with the first that fails, so that the others arrived.
    return attempts[-1].result is DeliveryResult.DELIVERED


def _attempt_text(name: str, kind: str, attempt: Attempt) -> str:
    """The request that was sent, if any, and its answer."""
    from gpumon.readings.text import clean
    from gpumon.sources.api_key import SENT_UNVERIFIED

    lines = []
    if attempt.sent:
        lines.append(f"{name} ({kind}): POST {clean(attempt.shown_url, 200)}")
        lines.append(clean(attempt.sent.decode(), MOST_BODY_CHARACTERS))
    lines.append(f"{name}: {attempt.text}")
    if attempt.unverified:
        lines.append(f"{name}: {SENT_UNVERIFIED.format(secret='URL or key')}")
    return "\n".join(lines) + "\n"
