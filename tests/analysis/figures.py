"""The texts written in a picture."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text


def texts_of(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list that gets every text of a figure when it is saved."""
    written: list[str] = []
    save = Figure.savefig

    def record_texts(figure: Figure, *arguments, **named) -> None:
        save(figure, *arguments, **named)
        written.extend(text.get_text() for text in figure.findobj(Text))

    monkeypatch.setattr(Figure, "savefig", record_texts)
    return written
