"""Column names used by other tools, and proposals for `column_names`, which the user copies or corrects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hfcomp.reading import parse_json

KNOWN_NAMES = {
    "image": (
        *("img", "photo", "picture", "jpg", "jpeg", "png", "webp", "filepath", "file_path", "image_path", "img_path"),
        *("file_name", "filename", "image_file", "image_name", "path", "url", "image_url", "coco_url"),
    ),
    "caption": (
        *("captions", "title", "text", "txt", "sentence", "sentences", "raw", "caption_text"),
        *("description", "alt_text", "prompt"),
    ),
    "negative_captions": ("negative_caption", "neg_caption", "neg_captions", "hard_negatives", "negatives"),
    "image_id": ("img_id", "imgid", "coco_id", "cocoid"),
}
"""Names of each column in other tools: open_clip (`filepath`, `title`), img2dataset and WebDataset (`jpg`, `txt`,
`url`), `datasets` (`file_name`), COCO and Karpathy's splits (`cocoid`, `raw`)."""


def proposed_names(dataset: Any, missing: Iterable[str]) -> dict[str, str]:
    from datasets import Image

    features = dataset.features or {}
    own = {_plain(name): name for name in reversed(dataset.column_names)}
    texts = {plain: name for plain, name in own.items() if _may_be_text(features.get(name))}
    images = [name for name, feature in features.items() if isinstance(feature, Image)]
    proposals: dict[str, str] = {}
    for column in missing:
        candidates = own if column == "image_id" else texts
        names = [candidates[name] for name in KNOWN_NAMES.get(column, ()) if name in candidates]
        # A column of type Image is the image column, whatever its name; a name such as `url` fits many columns.
        if column == "image":
            names = images if len(images) == 1 else [name for name in names if not images or name in images]
        names = [name for name in names if name not in proposals.values()]
        others = {*texts.values()} - {*proposals.values(), *images, *KNOWN_NAMES}
        names = names or _by_content(dataset, column, [*others])
        if names:
            proposals[column] = names[0]
    return proposals


def _by_content(dataset: Any, column: str, texts: Sequence[str]) -> list[str]:
    """The text column whose first rows look like image files or URLs (or like sentences), if only one column does."""
    # A wrong proposal is worse than none, so nothing is proposed if there are two candidates.
    from datasets import Dataset

    if column not in _LOOKS or not isinstance(dataset, Dataset):
        return []
    head = dataset.select_columns([*texts]).select(range(min(len(dataset), _SAMPLE_ROWS)))
    cells = {name: [cell for cell in head[name] if isinstance(cell, str) and cell] for name in texts}
    fitting = [name for name in texts if cells[name] and all(map(_LOOKS[column].fullmatch, cells[name]))]
    return fitting if len(fitting) == 1 else []


_SAMPLE_ROWS = 20
_LOOKS = {
    "image": re.compile(r"\w+://\S+|.*\.(jpe?g|png|webp|gif|bmp|tiff?|avif)", re.IGNORECASE),
    "caption": re.compile(r"(?!\w+://)\S+\s+\S.*", re.DOTALL),
}


def column_names_text(names: Mapping[str, str]) -> str:
    pairs = ",".join(f"{ours}={theirs}" for ours, theirs in names.items())
    return f"--column_names {pairs}, in Python column_names={json.dumps(dict(names))}"


def parse_column_names(text: str) -> dict[str, str]:
    """Parses `caption=text,image=photo` or a JSON object into a mapping."""
    expected = """expected HFCOMP=YOURS, for example caption=text, or JSON, for example '{"caption": "text"}'."""
    if text.lstrip().startswith("{"):
        try:
            names = parse_json(text)
        except ValueError as error:
            raise ValueError(f"--column_names: {text!r} is not JSON ({error}); {expected}") from error
        if not all(isinstance(own, str) and own for own in names.values()):
            raise ValueError(f"--column_names: found {text!r}, {expected}")
        return names
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    wrong = ["".join(pair) for pair in pairs if not pair[0].strip() or not pair[2].strip()]
    if wrong:
        raise ValueError(f"--column_names: found {wrong[0]!r}, {expected}")
    return {ours.strip(): theirs.strip() for ours, _, theirs in pairs}


def _plain(name: str) -> str:
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def _may_be_text(feature: Any) -> bool:
    from datasets import Value

    return not isinstance(feature, Value) or "string" in feature.dtype or "binary" in feature.dtype
