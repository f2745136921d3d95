"""HTML fragments for the page. The templates escape every text, because captions, names and errors are untrusted."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from hfcomp.annotate.captions import concept_keywords, editable_keywords
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
        ("S", "go to the reason for skipping"),
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
    """Renders a message of kind `error`, `note` or `done`."""
    return fill(TEMPLATES / "message.html", text=text, kind=kind) if text else ""


def title(item: Item, keyword: str) -> str:
    return fill(TEMPLATES / "title.html", concept=item.concept, keyword=keyword, id=item.id)


def share(part: float) -> str:
    """Describes the share of the image that a mask covers, given as 0 to 1."""
    return f"The mask covers {100 * part:.1f} % of the image. Enlargement is in pixels."


def captions(item: Item, chosen: str) -> str:
    """Renders a numbered list of the captions of an item, with their keywords marked."""
    pairs = zip(item.captions, item.keywords, strict=True)
    marked = [mark_keyword(caption, keyword, item.concept) for caption, keyword in pairs]
    number = item.captions.index(chosen) + 1 if chosen in item.captions else 0
    return fill(TEMPLATES / "captions.html", captions=marked, chosen=number)


def mark_keyword(caption: str, keyword: str, concept: str) -> str:
    """Renders a caption with its keyword marked, if the caption contains it."""
    matches = [*editable_keywords(caption, concept), *concept_keywords(caption, concept)]
    match = next((match for match in matches if match.keyword == keyword), None)
    if match is None:
        return fill(TEMPLATES / "keyword.html", before=caption, keyword="", after="")
    before, word, after = caption[: match.start], caption[match.start : match.end], caption[match.end :]
    return fill(TEMPLATES / "keyword.html", before=before, keyword=word, after=after)


def difference(original: str, caption: str) -> str:
    return fill(TEMPLATES / "difference.html", original=original, caption=caption)


def two_captions(original: str, caption: str) -> str:
    """Renders both captions of an edit and their difference."""
    return fill(TEMPLATES / "pair.html", original=original, caption=caption)


def status(title: str, parts: Iterable[str] = ()) -> str:
    """Renders the line at the top: the title of the page and its progress."""
    return fill(TEMPLATES / "status.html", title=title, parts=parts)


def shortcuts(tab: str) -> str:
    return fill(TEMPLATES / "shortcuts.html", keys=SHORTCUTS[tab])


def report_html(report: Report) -> str:
    return fill(TEMPLATES / "report.html", report=report)
