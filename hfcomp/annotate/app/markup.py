"""Pieces of HTML for the page, by templates that escape every text: captions, names and errors come from others."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from hfcomp.annotate.captions import editable_keywords, keywords_of
from hfcomp.data.annotations.entries import Item
from hfcomp.reporting.pages.page import fill
from hfcomp.reporting.report import Report

TEMPLATES = Path(__file__).parent / "templates"

SHORTCUTS: dict[str, tuple[tuple[str, str], ...]] = {
    "Annotate": (
        ("P", "paint candidates"),
        ("N", "new candidates"),
        ("1 2 3", "choose a candidate"),
        ("V / O", "very good / okay"),
        ("M", "go to the mask prompt"),
        ("I", "go to the inpainting prompt"),
        ("C", "go to the caption"),
        ("B", "brush"),
        ("Ctrl+Enter", "submit, also while typing"),
        ("S", "go to the reason for a skip"),
        ("U", "undo the last decision"),
    ),
    "Review": (
        ("V / O", "very good / okay"),
        ("M", "outline of the mask"),
        ("A", "accept"),
        ("R", "go to the reason for sending back"),
        ("U", "undo the last decision"),
    ),
}


def message(text: str, kind: str) -> str:
    """A message: kind `error`, `note` or `done`."""
    return fill(TEMPLATES / "message.html", text=text, kind=kind) if text else ""


def title(item: Item, keyword: str) -> str:
    return fill(TEMPLATES / "title.html", concept=item.concept, keyword=keyword, id=item.id)


def share(part: float) -> str:
    """The part of the image that a mask covers, 0 to 1, in words."""
    return f"The mask is {100 * part:.1f} % of the image. The enlargement is in pixels."


def captions(item: Item, chosen: str) -> str:
    """All captions of an item that hold a keyword, numbered, with their keywords marked."""
    pairs = zip(item.captions, item.keywords, strict=True)
    marked = [marked_keyword(caption, keyword, item.concept) for caption, keyword in pairs]
    number = item.captions.index(chosen) + 1 if chosen in item.captions else 0
    return fill(TEMPLATES / "captions.html", captions=marked, chosen=number)


def marked_keyword(caption: str, keyword: str, concept: str) -> str:
    """A caption with its keyword marked, if it is found."""
    found = [*editable_keywords(caption, concept), *keywords_of(caption, concept)]
    match = next((one for one in found if one.keyword == keyword), None)
    if match is None:
        return fill(TEMPLATES / "keyword.html", before=caption, keyword="", after="")
    before, word, after = caption[: match.start], caption[match.start : match.end], caption[match.end :]
    return fill(TEMPLATES / "keyword.html", before=before, keyword=word, after=after)


def difference(original: str, caption: str) -> str:
    return fill(TEMPLATES / "difference.html", original=original, caption=caption)


def two_captions(original: str, caption: str) -> str:
    """Both captions of an edit, and their difference."""
    return fill(TEMPLATES / "pair.html", original=original, caption=caption)


def status(title: str, parts: Iterable[str] = ()) -> str:
    """The line at the top: the title of the page and what is done."""
    return fill(TEMPLATES / "status.html", title=title, parts=parts)


def shortcuts(tab: str) -> str:
    return fill(TEMPLATES / "shortcuts.html", keys=SHORTCUTS[tab])


def report_html(report: Report) -> str:
    return fill(TEMPLATES / "report.html", report=report)
