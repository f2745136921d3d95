"""Options that several commands share."""

from __future__ import annotations

import argparse

Group = argparse.ArgumentParser | argparse._ArgumentGroup


def add_device(group: Group) -> None:
    """Adds `--device`."""
    group.add_argument("--device", help="such as cpu or cuda:1; by default a GPU where there is one")
