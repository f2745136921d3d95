"""Items of benchmarks to look at, as a section of a page: pictures, texts, scores and outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hfcomp.parsing.word_changes import word_changes
from hfcomp.reporting.pages.page import FOLDER, Cell, Thumbnail, Thumbnails, fill

CAPTION, NEGATIVE, POSITIVE = "caption", "not", "also true"
"""What a text of an item is: a true one, a false one, and a further true one."""
DIGITS = 6
"""Of a score."""


@dataclass(frozen=True, kw_only=True)
class PageOptions:
    """The items on a page.

    Attributes:
        items: how many at most; 0 for a page without items.
        thumbnails: whether their pictures are on it.
        side: pixels of the longer side of a picture.
    """

    items: int = 2000
    thumbnails: bool = True
    side: int = 160

    def __post_init__(self) -> None:
        for name, least in (("items", 0), ("side", 16)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} of a page: found {getattr(self, name)}, expected {least} or more.")


DEFAULT_PAGE = PageOptions()


@dataclass(frozen=True)
class ItemText:
    """A text of an item.

    Attributes:
        role: `CAPTION`, `NEGATIVE`, `POSITIVE`, or another word.
        scores: By model, the score with each picture of the item; `None` if there is none.
    """

    role: str
    text: str
    scores: Mapping[str, Sequence[float | None]] = field(default_factory=dict)


@dataclass(frozen=True)
class ItemOutcome:
    """The outcome of an item in one metric for one model: its value, and whether it tied."""

    value: float
    tie: bool = False


@dataclass(frozen=True)
class ShownItem:
    """An item of a benchmark.

    Attributes:
        benchmark: Title of the benchmark.
        outcomes: Outcomes by metric and model.
        pictures: What each picture shows, and the picture.
        hidden: Number of texts left out because there are many.
    """

    benchmark: str
    subset: str
    item: str
    image_id: str
    outcomes: Mapping[str, Mapping[str, ItemOutcome]]
    pictures: Sequence[tuple[str, Cell]] = ()
    texts: Sequence[ItemText] = ()
    hidden: int = 0


@dataclass(frozen=True)
class ItemBrowser:
    """Items of a page.

    Attributes:
        pair: The two models that are shown first, the reference before the other; a single one is shown alone.
        metrics: Metrics by title of each benchmark, the main one first.
        about: How many of how many items are here, and how they were chosen.
        notes: What else a reader has to know about the items.
        tie: What a tie counts: `wrong`, `half` or `win`.
    """

    models: Sequence[str]
    pair: tuple[str, str]
    metrics: Mapping[str, Sequence[str]]
    items: Sequence[ShownItem]
    about: str
    notes: Sequence[str] = ()
    tie: str = "wrong"
    options: PageOptions = DEFAULT_PAGE

    def data(self) -> dict[str, Any]:
        """What the page's script reads, by the id of the element that holds it."""
        distinct: list[Thumbnail] = []
        numbers, number = Thumbnails(distinct), {title: place for place, title in enumerate(self.metrics)}
        rows = [{**self._row(one, numbers), "benchmark": number[one.benchmark]} for one in self.items]
        about = {
            "models": self.models,
            "left": self.models.index(self.pair[0]),
            "right": self.models.index(self.pair[1]),
            "benchmarks": [self._benchmark(title) for title in self.metrics],
            "tie": self.tie,
            "side": self.options.side,
            "thumbnails": self.options.thumbnails and bool(distinct),
        }
        return {"about": about, "pictures": distinct, "item-data": rows}

    def _benchmark(self, title: str) -> dict[str, Any]:
        own, metrics = [one for one in self.items if one.benchmark == title], self.metrics[title]
        # A metric with fractions has no right and wrong items to filter by.
        graded = [
            any(found.value not in (0, 1) for one in own for found in one.outcomes.get(metric, {}).values())
            for metric in metrics
        ]
        subsets = list(dict.fromkeys(one.subset for one in own))
        return {"title": title, "metrics": metrics, "graded": graded, "subsets": subsets}

    def _row(self, one: ShownItem, numbers: Thumbnails) -> dict[str, Any]:
        values, ties = {}, {}
        for place, metric in enumerate(self.metrics[one.benchmark]):
            if metric in one.outcomes:
                found = [one.outcomes[metric].get(model) for model in self.models]
                values[place] = [None if outcome is None else outcome.value for outcome in found]
                # Ties are rare; thousands of items without one would only make the file longer.
                if any(outcome is not None and outcome.tie for outcome in found):
                    ties[place] = [outcome is not None and outcome.tie for outcome in found]
        caption = next((text.text for text in one.texts if text.role == CAPTION), None)
        return {
            **{"subset": one.subset, "item": one.item, "image": one.image_id, "values": values, "ties": ties},
            "pictures": [[title, numbers.number(cell)] for title, cell in one.pictures],
            "texts": [self._text(text, caption) for text in one.texts],
            "hidden": one.hidden,
        }

    def _text(self, text: ItemText, caption: str | None) -> dict[str, Any]:
        found: dict[str, Any] = {"role": text.role, "text": text.text}
        if text.role == NEGATIVE and caption is not None:
            found["changes"] = word_changes(caption, text.text)
        if text.scores:
            found["scores"] = [
                None if own is None else [None if score is None else round(score, DIGITS) for score in own]
                for own in map(text.scores.get, self.models)
            ]
        return found


def items_html(browser: ItemBrowser) -> str:
    """The section of items: texts about them, and if there are items, the controls and the place for the list."""
    return fill(FOLDER / "items.html", browser=browser)
