"""An installed Chromium that opens pages; tests of pages are skipped without one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
QUIET = ("--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync")
"""Arguments without which it asks other machines."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless browser; skips the test where none is installed."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip("no Chromium is installed: `make browser` installs one")
    # Chromium's sandbox refuses to run as root, as in a container
    arguments = [*QUIET, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Seen:
    """What a page did, by what it should not: messages and errors of the console, dialogs, and requests."""

    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


def watch(page: Page) -> Seen:
    """Records what a page does from now on; images in the page itself (`data:`) are not requests."""
    seen = Seen()
    page.on("console", lambda message: seen.messages.append(message.text))
    page.on("pageerror", lambda error: seen.messages.append(str(error)))
    page.on("dialog", lambda dialog: (seen.messages.append(dialog.message), dialog.dismiss()))
    page.on(
        "request", lambda request: seen.requests.append(request.url) if not request.url.startswith("data:") else None
    )
    return seen


def overflow(page: Page) -> int:
    """Pixels by which a page is wider than its window."""
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
