"""Options that several commands share."""

from __future__ import annotations

import argparse

Group = argparse.ArgumentParser | argparse._ArgumentGroup


def add_device(group: Group) -> None:
    """Adds `--device`."""
    group.add_argument("--device", help="such as cpu or cuda:1; by default a GPU where there is one")


def add_url_options(group: Group) -> None:
    """Adds `--allow_urls` and `--url_timeout`."""
    from hfcomp.data.urls import DEFAULT_TIMEOUT

    group.add_argument(
        "--allow_urls", action="store_true", help="fetch images that the data names by URL; only for data you trust"
    )
    group.add_argument(
        "--url_timeout", type=float, default=DEFAULT_TIMEOUT, metavar="S", help=f"for one image ({DEFAULT_TIMEOUT:g})"
    )


def add_tie(group: Group, default: str | None, shown: str) -> None:
    """Adds `--tie`."""
    from hfcomp.statistics.summary import TIE_RULES

    group.add_argument("--tie", choices=list(TIE_RULES), default=default, help=f"what a tie counts (default: {shown})")


def names_of(text: str) -> list[str]:
    """The names in a text such as `a,b`."""
    return [name for name in map(str.strip, text.split(",")) if name]
