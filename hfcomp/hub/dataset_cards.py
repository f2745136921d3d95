"""The card of a pushed data set: its configurations for `load_dataset`, and what the card of each built set says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import DatasetCard, DatasetCardData

from hfcomp.data.built_sets import DATA, read_manifest
from hfcomp.data.publishing import without_local_paths
from hfcomp.generation.cards import CARD, UNKNOWN, size_category

DEFAULT = "default"
PLACE = "<this data set's id or folder>"
_FENCE = re.compile(r"^\s*(`{3,}|~{3,})", re.MULTILINE)


def folder_in_repository(config: str) -> str:
    """Where a configuration's files are, with a slash at the end: those of the only one at the top."""
    return "" if config == DEFAULT else f"{config}/"


def set_card(folders: Mapping[str, Path], repository: str, template: Path | None = None) -> str:
    """The text of the `README.md` of a repository.

    Args:
        folders: of the built sets, by configuration; the first is what `load_dataset` takes by default.
        repository: its id.
        template: a card whose text comes first and whose metadata counts where both state something.
    """
    cards = {name: DatasetCard.load(folder / CARD) for name, folder in folders.items()}
    opening = DatasetCard.load(template) if template else None
    if opening is None and set(folders) == {DEFAULT}:
        return _addressed(cards[DEFAULT].content, repository)
    rows = {name: (read_manifest(folder) or {"rows": 0})["rows"] for name, folder in folders.items()}
    data = _metadata(cards, rows) | (_known(opening.data) if opening else {})
    text = opening.text.strip() if opening else f"# {repository.rpartition('/')[2]}"
    parts = [f"---\n{DatasetCardData(**data | {'configs': _configs(folders)}).to_yaml()}\n---", text]
    parts += ["## Configurations", *_overview(rows, repository)] if set(folders) != {DEFAULT} else []
    for name, card in cards.items():
        title = "## This build" if name == DEFAULT else f"## `{name}`"
        parts += [title, _demoted(card.text)]
    return _addressed("\n\n".join(parts) + "\n", repository)


def _configs(folders: Mapping[str, Path]) -> list[dict[str, Any]]:
    """The first is marked: without it `load_dataset` would ask for one of several."""
    entries = []
    for name in folders:
        files = [{"split": "train", "path": f"{folder_in_repository(name)}{DATA}/train-*.parquet"}]
        entries.append({"config_name": name, "data_files": files} | ({} if entries else {"default": True}))
    return entries


def _metadata(cards: Mapping[str, DatasetCard], rows: Mapping[str, int]) -> dict[str, Any]:
    """What the cards of the configurations state together."""
    licenses = {str(card.data.license or UNKNOWN) for card in cards.values()}
    facts: dict[str, Any] = {
        "license": licenses.pop() if len(licenses) == 1 else "other",
        "size_categories": [size_category(sum(rows.values()))],
    }
    for key in ("tags", "source_datasets"):
        stated = [one for card in cards.values() for one in getattr(card.data, key, None) or ()]
        if stated:
            facts[key] = list(dict.fromkeys(stated))
    return facts


def _known(data: DatasetCardData) -> dict[str, Any]:
    return {key: value for key, value in data.to_dict().items() if value and key not in ("configs", "size_categories")}


def _overview(rows: Mapping[str, int], repository: str) -> list[str]:
    lines = ["| configuration | rows |", "|---|---|", *(f"| `{name}` | {number:,} |" for name, number in rows.items())]
    load = f'load_dataset("{repository}", "{next(iter(rows))}", split="train")'
    return ["\n".join(lines), f"```python\nfrom datasets import load_dataset\n\nrows = {load}\n```"]


def _demoted(text: str) -> str:
    """A card's text as a section of another: without its title, headings a level down, blocks of code as they are."""
    lines, fence = [], ""
    for line in text.strip().splitlines():
        found = _FENCE.match(line)
        if found and not fence:
            fence = found[1]
        elif found and found[1].startswith(fence):
            fence = ""
        elif not fence and line.startswith("# "):
            continue
        elif not fence and re.match(r"#{2,5} ", line):
            line = f"#{line}"
        lines.append(line)
    return "\n".join(lines).strip()


def _addressed(text: str, repository: str) -> str:
    return str(without_local_paths(text.replace(PLACE, repository)))
