"""Draws rows of a training set: images, masks, captions and negatives as the trainer will read them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets import Image as ImageFeature
from PIL import Image, ImageChops, ImageDraw, ImageFilter, ImageFont

from hfcomp.data.columns import require_columns
from hfcomp.data.images import decode_image
from hfcomp.data.pair_table import entry
from hfcomp.parsing.word_changes import changed_words
from hfcomp.writing import replacing

LONGEST = 300
"""Maximum number of characters shown per value."""
_NEGATIVE = (
    ("negative_kinds", ""),
    ("negative_categories", ""),
    ("negative_keywords", "keyword "),
    ("negative_concreteness", "concreteness "),
)
_SHOWN_ELSEWHERE = ("caption", "positive_captions", "negative_captions", "image_id", *(name for name, _ in _NEGATIVE))
_OFFSETS = ("negative_spans", "concept_spans")
FONT_SIZE = 15
LINE = 20  # pixels from one line of text to the next
GAP = 12
BETWEEN = 36  # pixels between dataset rows that are drawn side by side
# Photographs are shown with this longest side; smaller images are enlarged by the largest integer factor within it.
PANEL = 224
MOST_NEGATIVES = 4
WHITE, BLACK, GRAY, RED, PALE = "#FFFFFF", "#1A1A1A", "#6A6A6A", "#B02418", "#EDEDED"
MARKED = "#FFE08A"  # behind the words that differ
# The inside is faint, because an edit may be a change of color; the outline shows its place.
TINT, TINT_SHARE = (255, 64, 32), 0.15
# Titles of the panels by column.
TITLES = {"image": "image", "mask": "mask", "negative_image": "negative image"}


def negative_facts(row: Mapping[str, Any], place: int) -> str:
    """Returns a negative's kind, category, keyword and concreteness, if given; `place` counts from 0."""
    facts = []
    for column, title in _NEGATIVE:
        value = entry(row, column, place)
        if value not in (None, ""):
            facts.append(title + (f"{value:.2f}" if isinstance(value, float) else str(value)))
    return ", ".join(facts)


def other_facts(row: Mapping[str, Any], columns: Sequence[str]) -> list[tuple[str, str]]:
    """Names and values of the row's other columns, such as concepts, groups and levels, without empty ones."""
    others = (name for name in columns if name not in _SHOWN_ELSEWHERE + _OFFSETS)
    values = ((name, _text(row[name])) for name in others)
    return [(name, value) for name, value in values if value]


def _text(value: Any) -> str:
    if value is None or value in ("", [], {}):
        return ""
    if isinstance(value, list) and all(isinstance(part, str | int | float) for part in value):
        text = ", ".join(map(str, value))
    elif isinstance(value, list | dict):
        text = json.dumps(value, ensure_ascii=False, default=str)
    else:
        text = str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


@dataclass(frozen=True)
class _Text:
    """A text that is not wrapped yet, its color, and the positions of the words to mark."""

    text: str
    color: str
    marked: frozenset[int] = frozenset()


@dataclass(frozen=True)
class _Cell:
    """One row of the dataset: its titled panels and its texts."""

    panels: list[tuple[str, Image.Image]]
    texts: list[_Text]


def draw_gallery(
    dataset: Any,
    path: str | Path,
    *,
    rows: Sequence[int],
    columns: int = 2,
    scale: int | None = None,
    labels: Sequence[str] | None = None,
    heading: str = "",
) -> Path:
    """Draws rows of a training set whose columns follow the column contract of `hfcomp.data.columns`.

    For each row, draws the image, the mask (tinted, with an outline) over the negative image, and the negative image.
    Below them are the caption, positive captions, and each negative caption with kind, category, keyword and
    concreteness. Marks the words in which a negative differs; in the caption, marks those of the first negative.
    Columns that the dataset does not have are left out; null images are drawn as a gray panel. The font has only Latin
    letters.

    Args:
        dataset: A `datasets.Dataset` with at least `image` and `caption`.
        path: PNG file to write.
        rows: Numbers of the rows to draw, in this order.
        columns: Number of dataset rows to draw side by side.
        scale: Integer enlargement factor for every image, with nearest-neighbor resampling. By default the largest
            factor that fits in 224 pixels; larger images are shrunk to 224 pixels.
        labels: Text below the images of each of `rows`; defaults to its number and `image_id`.
        heading: Text at the top.

    Returns:
        `path`.

    Raises:
        ValueError: If there are no rows, a row or column does not exist, or `columns` or `scale` is below 1.
    """
    _check(dataset, rows, columns, scale)
    # Images stay bytes until `decode_image` opens them, because it has limits for untrusted files and its errors name
    # the column and the row.
    for name, feature in dataset.features.items():
        if isinstance(feature, ImageFeature):
            dataset = dataset.cast_column(name, ImageFeature(decode=False))
    font = ImageFont.load_default(FONT_SIZE)
    shown = [name for name in TITLES if name in dataset.column_names]
    if labels is None:
        labels = [_label(row, dataset[row].get("image_id")) for row in rows]
    cells = [_cell(dataset[row], row, label, shown, scale, font) for row, label in zip(rows, labels, strict=True)]
    # All rows have the same width to align them in columns.
    width = max(sum(_stride(*panel, font) for panel in cell.panels) for cell in cells)
    sheets = [_draw_cell(cell, width, font) for cell in cells]
    picture = _arrange(sheets, columns, heading, font)
    path = Path(path)
    with replacing(path) as part:
        picture.save(part, format="PNG")
    return path


def _check(dataset: Any, rows: Sequence[int], columns: int, scale: int | None) -> None:
    require_columns(dataset, ("image", "caption"), needed_by="draw_gallery")
    outside = [row for row in rows if not 0 <= row < len(dataset)]
    if outside or not len(rows):
        problem = f"{outside[:5]}, which do not exist" if outside else "none"
        raise ValueError(f"rows: found {problem}; expected row numbers from 0 to {len(dataset) - 1}.")
    for name, value in (("columns", columns), ("scale", 1 if scale is None else scale)):
        if value < 1:
            raise ValueError(f"{name}: found {value}, expected a whole number, at least 1.")


def _label(row: int, image: Any) -> str:
    return f"row {row}" + (f", {image}" if image else "")


def _cell(row: Mapping[str, Any], index: int, label: str, shown: Sequence[str], scale: int | None, font: Any) -> _Cell:
    images = {
        name: decode_image(row[name], where=f"column '{name}', row {index}") for name in shown if row[name] is not None
    }
    sized = {name: _resize(image, scale) for name, image in images.items() if name != "mask"}
    # The mask shows where the negative image was edited, so it is drawn over that image.
    if "mask" in images:
        below = "negative_image" if "negative_image" in images else "image"
        sized["mask"] = _highlight_mask(sized[below], images["mask"])
    panels = [(TITLES[name], sized.get(name) or _absent(sized["image"].size, font)) for name in shown]
    return _Cell(panels, _texts(row, label))


def _resize(image: Image.Image, scale: int | None) -> Image.Image:
    longest = max(image.size)
    if scale is None and longest > PANEL:
        size = [max(1, round(side * PANEL / longest)) for side in image.size]
        return image.resize(size, Image.Resampling.LANCZOS)
    # Drawn scenes are small; an integer enlargement factor keeps their sharp edges.
    factor = scale or PANEL // longest
    return image.resize([side * factor for side in image.size], Image.Resampling.NEAREST)


def _highlight_mask(image: Image.Image, mask: Image.Image) -> Image.Image:
    # Nearest neighbor, because a mask has no intermediate values.
    area = mask.convert("L").resize(image.size, Image.Resampling.NEAREST).point(lambda value: 255 * (value > 127))
    tinted = Image.composite(Image.blend(image, Image.new("RGB", image.size, TINT), TINT_SHARE), image, area)
    outline = ImageChops.subtract(area.filter(ImageFilter.MaxFilter(5)), area)
    return Image.composite(Image.new("RGB", image.size, TINT), tinted, outline)


def _stride(title: str, panel: Image.Image, font: Any) -> int:
    # A narrow image takes the width of its title.
    return max(panel.width, math.ceil(font.getlength(title))) + GAP


def _absent(size: tuple[int, int], font: Any) -> Image.Image:
    panel = Image.new("RGB", size, PALE)
    ImageDraw.Draw(panel).text((panel.width / 2, panel.height / 2), "none", fill=GRAY, font=font, anchor="mm")
    return panel


def _texts(row: Mapping[str, Any], label: str) -> list[_Text]:
    caption = row["caption"]
    captions = [caption] if isinstance(caption, str) else list(caption or [])
    negatives = [(place, text) for place, text in enumerate(row.get("negative_captions") or []) if text]
    texts = [_Text(label, GRAY)]
    # With several captions, it is unknown which of them a negative was made from, so no words are marked.
    first = negatives[0][1] if negatives and len(captions) == 1 else None
    texts += [_Text(text, BLACK, frozenset() if first is None else changed_words(text, first)) for text in captions]
    texts += [_Text(f"also true: {text}", BLACK) for text in row.get("positive_captions") or []]
    for place, text in negatives[:MOST_NEGATIVES]:
        marked = changed_words(text, captions[0]) if len(captions) == 1 else ()
        # "not:" is the first word of the text.
        texts.append(_Text(f"not: {text}", RED, frozenset(number + 1 for number in marked)))
        facts = negative_facts(row, place)
        texts += [_Text(facts, GRAY)] if facts else []
    if len(negatives) > MOST_NEGATIVES:
        texts.append(_Text(f"and {len(negatives) - MOST_NEGATIVES} more negative captions", GRAY))
    if "negative_captions" in row and not negatives:
        texts.append(_Text("no negative caption", GRAY))
    return texts


def _wrap(text: str, width: int, font: Any) -> list[list[tuple[int, str]]]:
    """Wraps a text into lines of numbered words, at most `width` pixels wide; breaks only words longer than a line."""
    lines: list[list[tuple[int, str]]] = [[]]
    for number, word in enumerate(text.split()):
        if font.getlength(_join([*lines[-1], (number, word)])) > width and lines[-1]:
            lines.append([])
        while font.getlength(word) > width and len(word) > 1:
            fits = next(end for end in range(len(word) - 1, 0, -1) if end == 1 or font.getlength(word[:end]) <= width)
            lines[-1].append((number, word[:fits]))
            lines.append([])
            word = word[fits:]
        lines[-1].append((number, word))
    return lines


def _join(line: Sequence[tuple[int, str]]) -> str:
    return " ".join(word for _, word in line)


def _draw_cell(cell: _Cell, width: int, font: Any) -> Image.Image:
    lines = [(line, text) for text in cell.texts for line in _wrap(text.text, width - GAP, font)]
    top = LINE + 2
    below = top + max(panel.height for _, panel in cell.panels) + GAP // 2
    sheet = Image.new("RGB", (width, below + LINE * len(lines) + GAP), WHITE)
    draw = ImageDraw.Draw(sheet)
    x = 0
    for title, panel in cell.panels:
        draw.text((x, 0), title, fill=GRAY, font=font)
        sheet.paste(panel, (x, top))
        x += _stride(title, panel, font)
    for number, (line, text) in enumerate(lines):
        y = below + LINE * number
        _mark(draw, line, text.marked, y, font)
        draw.text((0, y), _join(line), fill=text.color, font=font)
    return sheet


def _mark(draw: Any, line: Sequence[tuple[int, str]], marked: frozenset[int], y: int, font: Any) -> None:
    # A word starts at the width of all words before it including spaces, because the line is drawn as a whole and
    # letters are kerned.
    for place, (number, word) in enumerate(line):
        if number in marked:
            before = _join([*line[:place], (0, "")]) if place else ""
            left = font.getlength(before)
            draw.rectangle((left, y, left + font.getlength(word), y + LINE - 2), fill=MARKED)


def _arrange(sheets: Sequence[Image.Image], columns: int, heading: str, font: Any) -> Image.Image:
    """Arranges sheets in a grid below the heading; each grid row is as high as its highest sheet."""
    columns = min(columns, len(sheets))
    grid = [sheets[start : start + columns] for start in range(0, len(sheets), columns)]
    heights = [max(sheet.height for sheet in line) for line in grid]
    width = sheets[0].width
    whole = columns * (width + BETWEEN) - BETWEEN
    above = [_join(line) for line in _wrap(heading, whole, font)] if heading else []
    y = GAP + LINE * len(above)
    picture = Image.new("RGB", (whole + 2 * GAP, sum(heights) + GAP * len(grid) + y), WHITE)
    draw = ImageDraw.Draw(picture)
    for number, text in enumerate(above):
        draw.text((GAP, GAP // 2 + LINE * number), text, fill=RED, font=font)
    for line, height in zip(grid, heights, strict=True):
        for place, sheet in enumerate(line):
            picture.paste(sheet, (GAP + place * (width + BETWEEN), y))
        y += height + GAP
    return picture
