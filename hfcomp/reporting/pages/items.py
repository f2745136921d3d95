"""The item browser of a page: benchmark items with pictures, texts, scores and outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hfcomp.parsing.word_changes import word_changes
from hfcomp.reporting.pages.page import FOLDER, Cell, Thumbnail, Thumbnails, fill

CAPTION, NEGATIVE, POSITIVE = "caption", "not", "also true"
"""Roles of an item's texts: the true text, a false text, and an additional true text."""
DIGITS = 6
"""Decimal digits of scores."""


@dataclass(frozen=True, kw_only=True)
class PageOptions:
    """Options for the items on a page.

    Attributes:
        items: Maximum number of items; 0 for a page without items.
        thumbnails: Whether to include pictures of the items.
        side: Longer side of a picture, in pixels.
    """

    items: int = 2000
    thumbnails: bool = True
    side: int = 160

    def __post_init__(self) -> None:
        for name, least in (("items", 0), ("side", 16)):
            if getattr(self, name) < least:
                raise ValueError(f"page option {name}: found {getattr(self, name)}, expected {least} or more.")


DEFAULT_PAGE = PageOptions()


@dataclass(frozen=True)
class ItemText:
    """A text of an item.

    Attributes:
        role: `CAPTION`, `NEGATIVE`, `POSITIVE`, or another word.
        scores: Scores with each picture of the item, by model; `None` if there is no score.
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
        pictures: Title and content of each picture.
        hidden: Number of texts left out because there are too many.
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
    """The items of a page.

    Attributes:
        pair: Two models to show first, the reference before the other; the same model twice to show only one.
        metrics: Metrics by benchmark title, the main metric first.
        about: Sentence on how many items are included and how they were chosen.
        notes: Additional remarks about the items.
        tie: Rule for ties: `wrong`, `half` or `win`.
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
        """Returns the data for the page's script, by the id of the element that holds it."""
        distinct: list[Thumbnail] = []
        numbers, number = Thumbnails(distinct), {title: place for place, title in enumerate(self.metrics)}
        rows = [{**self._row(item, numbers), "benchmark": number[item.benchmark]} for item in self.items]
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
        own, metrics = [item for item in self.items if item.benchmark == title], self.metrics[title]
        # A metric with fractional values has no right and wrong items to filter by.
        graded = [
            any(outcome.value not in (0, 1) for item in own for outcome in item.outcomes.get(metric, {}).values())
            for metric in metrics
        ]
        subsets = list(dict.fromkeys(item.subset for item in own))
        return {"title": title, "metrics": metrics, "graded": graded, "subsets": subsets}

    def _row(self, item: ShownItem, numbers: Thumbnails) -> dict[str, Any]:
        values, ties = {}, {}
        for place, metric in enumerate(self.metrics[item.benchmark]):
            if metric in item.outcomes:
                outcomes = [item.outcomes[metric].get(model) for model in self.models]
                values[place] = [None if outcome is None else outcome.value for outcome in outcomes]
                # Ties are rare; storing their absence for thousands of items would only make the file larger.
                if any(outcome is not None and outcome.tie for outcome in outcomes):
                    ties[place] = [outcome is not None and outcome.tie for outcome in outcomes]
        caption = next((text.text for text in item.texts if text.role == CAPTION), None)
        return {
            **{"subset": item.subset, "item": item.item, "image": item.image_id, "values": values, "ties": ties},
            "pictures": [[title, numbers.number(cell)] for title, cell in item.pictures],
            "texts": [self._text(text, caption) for text in item.texts],
            "hidden": item.hidden,
        }

    def _text(self, text: ItemText, caption: str | None) -> dict[str, Any]:
        entry: dict[str, Any] = {"role": text.role, "text": text.text}
        if text.role == NEGATIVE and caption is not None:
            entry["changes"] = word_changes(caption, text.text)
        if text.scores:
            entry["scores"] = [
                None if own is None else [None if score is None else round(score, DIGITS) for score in own]
                for own in map(text.scores.get, self.models)
            ]
        return entry


def items_html(browser: ItemBrowser) -> str:
    """Returns the HTML of the item section: texts, the controls if there are items, and an empty list."""
    return fill(FOLDER / "items.html", browser=browser)
