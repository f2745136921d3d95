"""The options of commands by which URLs inside data are fetched."""

from __future__ import annotations

import argparse
from typing import Any

from hfcomp.data.urls import DEFAULT_TIMEOUT


def add_url_options(group: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Adds `--allow_urls` and `--url_timeout`."""
    group.add_argument(
        "--allow_urls", action="store_true", help="fetch images that the data names by URL; only for data you trust"
    )
    group.add_argument(
        "--url_timeout", type=float, default=DEFAULT_TIMEOUT, metavar="S", help=f"for one image ({DEFAULT_TIMEOUT:g})"
    )


def url_settings(options: argparse.Namespace) -> dict[str, Any]:
    """What was asked for, under the names that trainers have for it."""
    return {"allow_urls": options.allow_urls, "url_timeout": options.url_timeout}
