"""The card of a pushed dataset: its configurations for `load_dataset`, and the texts of the built sets' cards."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import DatasetCard, DatasetCardData

from hfcomp.checksums import with_text_checksum, without_text_checksum
from hfcomp.data.built_sets.files import CARD, DATA, TRAIN, read_manifest, split_of
from hfcomp.data.built_sets.views import part_names, read_views
from hfcomp.data.publishing import DEFAULT, PLACE, UNKNOWN, loading_text, size_category, without_local_paths

_FENCE = re.compile(r"^\s*(`{3,}|~{3,})", re.MULTILINE)
_CONFIG = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class SetFolders:
    """Folders of a dataset's configurations on this machine.

    Attributes:
        configs: Folder of each configuration, or of each part; `load_dataset` loads the first by default.
        whole: Folder of the card that covers all of them, if they are exactly what one build wrote.
    """

    configs: Mapping[str, Path]
    whole: Path | None = None

    @classmethod
    def of(cls, folders: Path | str | Mapping[str, Path | str]) -> SetFolders:
        """Accepts a built set, a set with several configurations or parts in its folder, or sets by configuration."""
        if isinstance(folders, str | Path):
            folder = Path(folders)
            views = read_views(folder)
            if views is not None:
                return cls({part: folder / part for part in part_names(views)}, folder)
            # A set with several configurations has one card that lists them, and a folder for each next to the card.
            names = [entry.get("config_name", DEFAULT) for entry in _stated_configs(folder)]
            several = names and all((folder / name).is_dir() for name in names)
            whole = folder if (folder / CARD).is_file() else None
            return cls({name: folder / name for name in names} if several else {DEFAULT: folder}, whole)
        wrong = [name for name in folders if not _CONFIG.fullmatch(name) or (name == DEFAULT and len(folders) > 1)]
        if wrong or not folders:
            raise ValueError(
                f"config {wrong[0] if wrong else ''!r}: expected a name of letters, digits, - and _ for each folder, "
                f"and not {DEFAULT!r} if there are several folders."
            )
        configs = {name: Path(folder) for name, folder in folders.items()}
        nested = next((name for name, folder in configs.items() if name != DEFAULT and read_views(folder)), None)
        if nested:
            raise ValueError(
                f"config {nested!r}: {configs[nested]} already has several configurations. Push it separately, by its "
                "folder."
            )
        return cls.of(configs[DEFAULT]) if DEFAULT in configs else cls(configs)

    def place(self, config: str) -> str:
        """Folder of a configuration in the repository, ending in a slash; empty (the top) for a single one."""
        return "" if config == DEFAULT else f"{config}/"


def card_path(folder: Path) -> Path | None:
    """The card of a built set: its own or, for a configuration, the card of the whole set. None if it has none."""
    if (folder / CARD).is_file():
        return folder / CARD
    place = folder.resolve()
    known = [entry.get("config_name") for entry in _stated_configs(place.parent)]
    return place.parent / CARD if place.name in known else None


def set_card(folders: SetFolders, repository: str, template: Path | None = None) -> str:
    """The text of a repository's `README.md`."""
    opening = DatasetCard.load(template) if template else None
    if folders.whole:
        card = _load_card(folders.whole / CARD)
        if opening is None:
            return _insert_address(card.content, repository)
        data, parts = card.data.to_dict(), ["## This build", _demote_headings(card.text)]
    else:
        data, parts = _combine_cards(folders)
    text = opening.text.strip() if opening else f"# {repository.rpartition('/')[2]}"
    known = _template_metadata(opening.data) if opening else {}
    if "license" in known:  # its name and link belong to it
        data = {key: value for key, value in data.items() if not key.startswith("license")}
    head = f"---\n{DatasetCardData(**data | known).to_yaml()}\n---"
    return _insert_address("\n\n".join([head, text, *parts]) + "\n", repository)


def _stated_configs(folder: Path) -> list[dict[str, Any]]:
    if not (folder / CARD).is_file():
        return []
    return getattr(DatasetCard.load(folder / CARD).data, "configs", None) or []


def _combine_cards(folders: SetFolders) -> tuple[dict[str, Any], list[str]]:
    """The metadata and the sections of sets that were built separately."""
    cards = {name: _card(folder) for name, folder in folders.configs.items()}
    rows = {name: (read_manifest(folder) or {"rows": 0})["rows"] for name, folder in folders.configs.items()}
    lines = ["| configuration | rows |", "|---|---|", *(f"| `{name}` | {number:,} |" for name, number in rows.items())]
    parts = [
        "## Configurations",
        "\n".join(lines),
        loading_text(list(rows), _split(next(iter(folders.configs.values())))),
    ]
    # Configurations that share a card share its section.
    for text, card in {card.text: card for card in cards.values()}.items():
        parts += _section(card, {name: folders.configs[name] for name in cards if cards[name].text == text})
    return {**_metadata(cards, sum(rows.values())), "configs": _configs(folders)}, parts


def _card(folder: Path) -> DatasetCard:
    path = card_path(folder)
    if path is None:
        raise ValueError(
            f"{folder} has no {CARD}. Repeat the `hfcomp build` command that built the set: it writes the card and "
            "keeps everything else."
        )
    return _load_card(path)


def _load_card(path: Path) -> DatasetCard:
    """Loads a card without its checksum, which covers the whole text."""
    return DatasetCard(without_text_checksum(DatasetCard.load(path).content))


def _section(card: DatasetCard, folders: Mapping[str, Path]) -> list[str]:
    """A card's text below the names of its configurations, without the code that loads each of them."""
    split = _split(next(iter(folders.values())))
    # The card of configurations that were built together uses their folder names, which may differ from the names that
    # they are pushed under.
    inside = {name: folder for name, folder in folders.items() if not (folder / CARD).is_file()}
    parts = [f"## {', '.join(f'`{name}`' for name in folders)}"]
    if inside:
        own = ", ".join(f"`{name}` is `{folder.resolve().name}`" for name, folder in inside.items())
        parts.append(f"Built together with other configurations. The text below covers all of them; in it, {own}.")
    stated = [entry["config_name"] for entry in getattr(card.data, "configs", None) or ()]
    return [*parts, _demote_headings(card.text.replace(loading_text(stated, split), "") if stated else card.text)]


def _configs(folders: SetFolders) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    for name in folders.configs:
        split = _split(folders.configs[name])
        files = [{"split": split, "path": f"{folders.place(name)}{DATA}/{split}-*.parquet"}]
        # With several configurations and no default, `load_dataset` raises until the user names a configuration.
        entries.append({"config_name": name, "data_files": files} | ({} if entries else {"default": True}))
    return entries


def _split(folder: Path) -> str:
    manifest = read_manifest(folder)
    return split_of(manifest) if manifest else TRAIN


def _metadata(cards: Mapping[str, DatasetCard], rows: int) -> dict[str, Any]:
    """The combined metadata of the configurations' cards."""
    keys = ("license", "license_name", "license_link")
    licenses = [{key: card.data.get(key) for key in keys if card.data.get(key)} for card in cards.values()]
    # Different licenses become `other` for the repository; each section states its own license.
    is_shared = all(license_entry == licenses[0] for license_entry in licenses)
    facts: dict[str, Any] = (licenses[0] or {"license": UNKNOWN}) if is_shared else {"license": "other"}
    facts["size_categories"] = [size_category(rows)]
    for key in ("tags", "source_datasets"):
        stated = [value for card in cards.values() for value in getattr(card.data, key, None) or ()]
        if stated:
            facts[key] = list(dict.fromkeys(stated))
    return facts


def _template_metadata(data: DatasetCardData) -> dict[str, Any]:
    return {key: value for key, value in data.to_dict().items() if value and key not in ("configs", "size_categories")}


def _demote_headings(text: str) -> str:
    """Turns a card's text into a section of another card: removes its title and lowers headings by one level."""
    lines, fence = [], ""
    for line in text.strip().splitlines():
        # In a code block, `#` starts a shell or Python comment, not a heading.
        match = _FENCE.match(line)
        if match and not fence:
            fence = match[1]
        elif match and match[1].startswith(fence):
            fence = ""
        elif not fence and line.startswith("# "):
            continue
        elif not fence and re.match(r"#{2,5} ", line):
            line = f"#{line}"
        lines.append(line)
    return "\n".join(lines).strip()


def _insert_address(text: str, repository: str) -> str:
    return with_text_checksum(str(without_local_paths(text.replace(PLACE, repository))))
