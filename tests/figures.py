"""Runs without the cost of their figures."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest


@contextlib.contextmanager
def no_figures() -> Iterator[None]:
    """Files of figures are a few bytes: to draw one takes as long as to train a tiny model."""
    from matplotlib.figure import Figure

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Figure, "savefig", lambda self, content, **_: content.write(b"PNG"))
        yield
