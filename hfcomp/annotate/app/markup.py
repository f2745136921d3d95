"""Pieces of HTML for the page. Every text goes through `text_html`: captions, names and errors come from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable

from hfcomp.annotate.captions import editable_keywords, keywords_of
from hfcomp.data.annotations.entries import Item
from hfcomp.reporting.pages.page import difference_html, table_html, text_html
from hfcomp.reporting.report import Lines, Report, Table

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
    return f'<div class="message {kind}" role="status">{text_html(text)}</div>' if text else ""


def title(item: Item, keyword: str) -> str:
    """The line above an item: its concept, keyword and id."""
    parts = (text_html(item.concept), text_html(keyword), text_html(item.id))
    return "Concept: <b>{}</b> · keyword: <b>{}</b> · item {}".format(*parts)


def share(part: float) -> str:
    """What part of the image a mask is."""
    return f"The mask is {100 * part:.1f} % of the image. The enlargement is in pixels."


def captions(item: Item, chosen: str) -> str:
    """All captions of an item that hold a keyword, numbered, with their keywords marked."""
    entries = []
    for number, (caption, keyword) in enumerate(zip(item.captions, item.keywords, strict=True), start=1):
        kind = ' class="base"' if caption == chosen else ""
        marked = marked_keyword(caption, keyword, item.concept)
        entries.append(f'<li{kind} data-number="{number}">{marked}</li>')
    return f'<ol class="captions">{"".join(entries)}</ol>'


def marked_keyword(caption: str, keyword: str, concept: str) -> str:
    """A caption with its keyword marked."""
    found = [*editable_keywords(caption, concept), *keywords_of(caption, concept)]
    match = next((one for one in found if one.keyword == keyword), None)
    if match is None:
        return text_html(caption)
    before, word, after = caption[: match.start], caption[match.start : match.end], caption[match.end :]
    return f"<bdi>{text_html(before)}<mark>{text_html(word)}</mark>{text_html(after)}</bdi>"


def difference(original: str, caption: str) -> str:
    """The word difference of a caption to its original."""
    return f'<div class="difference">{difference_html(original, caption)}</div>'


def two_captions(original: str, caption: str) -> str:
    """Both captions of an edit, and their difference."""
    rows = (
        ("Original", text_html(original)),
        ("New", text_html(caption)),
        ("Change", difference_html(original, caption)),
    )
    return f'<dl class="pair">{"".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in rows)}</dl>'


def status(title: str, parts: Iterable[str] = ()) -> str:
    """The line at the top: the title of the page and what is done."""
    cells = "".join(f"<span>{text_html(part)}</span>" for part in parts)
    return f'<div class="status"><h1>{text_html(title)}</h1>{cells}</div>'


def shortcuts(tab: str) -> str:
    """The keyboard shortcuts of a tab."""
    keys = "".join(f"<span><kbd>{text_html(key)}</kbd> {text_html(use)}</span>" for key, use in SHORTCUTS[tab])
    return f'<div class="shortcuts">{keys}</div>'


def report_html(report: Report) -> str:
    """The tables and texts of a report."""
    parts = []
    for section in report.shown():
        parts.append(f"<h3>{text_html(section.title)}</h3>" if section.title else "")
        for part in section.shown():
            if isinstance(part, Table):
                parts.append(f'<div class="wide">{table_html(part)}</div>')
            elif isinstance(part, Lines):
                parts += [f"<p>{text_html(text)}</p>" for text in part.texts]
    parts += [f'<p class="legend">{text_html(text)}</p>' for text in report.legend]
    return f'<div class="report">{"".join(parts)}</div>'
