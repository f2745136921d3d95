"""The card of a pushed dataset: its configurations for `load_dataset`, and what the cards of the built sets say."""

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
    """Where the configurations of a dataset are on this machine.

    Attributes:
        configs: the folder of each, or of each part; the first is what `load_dataset` takes by default.
        whole: the folder of the card of all of them, if they were built together and are all that was.
    """

    configs: Mapping[str, Path]
    whole: Path | None = None

    @classmethod
    def of(cls, folders: Path | str | Mapping[str, Path | str]) -> SetFolders:
        """One built set, one with several configurations or parts in its folder, or several sets by configuration."""
        if isinstance(folders, str | Path):
            folder = Path(folders)
            views = read_views(folder)
            if views is not None:
                return cls({part: folder / part for part in part_names(views)}, folder)
            # A set with several configurations has one card that names them, and a folder for each next to it.
            names = [entry.get("config_name", DEFAULT) for entry in _stated_configs(folder)]
            several = names and all((folder / name).is_dir() for name in names)
            whole = folder if (folder / CARD).is_file() else None
            return cls({name: folder / name for name in names} if several else {DEFAULT: folder}, whole)
        wrong = [name for name in folders if not _CONFIG.fullmatch(name) or (name == DEFAULT and len(folders) > 1)]
        if wrong or not folders:
            raise ValueError(
                f"config {wrong[0] if wrong else ''!r}: expected a name of letters, digits, - and _ for each folder, "
                f"other than {DEFAULT!r} where there are several."
            )
        found = {name: Path(folder) for name, folder in folders.items()}
        several = next((name for name, folder in found.items() if name != DEFAULT and read_views(folder)), None)
        if several:
            raise ValueError(
                f"config {several!r}: {found[several]} has configurations of its own. Push it alone, by its folder."
            )
        return cls.of(found[DEFAULT]) if DEFAULT in found else cls(found)

    def place(self, config: str) -> str:
        """Where a configuration's files are in the repository, with a slash at the end; the only one's at the top."""
        return "" if config == DEFAULT else f"{config}/"


def card_path(folder: Path) -> Path | None:
    """The card of a built set: its own, or that of the set which it is a configuration of, or None."""
    if (folder / CARD).is_file():
        return folder / CARD
    place = folder.resolve()
    known = [entry.get("config_name") for entry in _stated_configs(place.parent)]
    return place.parent / CARD if place.name in known else None


def set_card(folders: SetFolders, repository: str, template: Path | None = None) -> str:
    """The text of the `README.md` of a repository."""
    opening = DatasetCard.load(template) if template else None
    if folders.whole:
        card = _loaded(folders.whole / CARD)
        if opening is None:
            return _addressed(card.content, repository)
        data, parts = card.data.to_dict(), ["## This build", _demoted(card.text)]
    else:
        data, parts = _together(folders)
    text = opening.text.strip() if opening else f"# {repository.rpartition('/')[2]}"
    known = _known(opening.data) if opening else {}
    if "license" in known:  # its name and link go with it
        data = {key: value for key, value in data.items() if not key.startswith("license")}
    head = f"---\n{DatasetCardData(**data | known).to_yaml()}\n---"
    return _addressed("\n\n".join([head, text, *parts]) + "\n", repository)


def _stated_configs(folder: Path) -> list[dict[str, Any]]:
    if not (folder / CARD).is_file():
        return []
    return getattr(DatasetCard.load(folder / CARD).data, "configs", None) or []


def _together(folders: SetFolders) -> tuple[dict[str, Any], list[str]]:
    """The metadata and the sections of sets that were built one by one."""
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
            f"{folder} has no {CARD}. Give the `hfcomp build` command that made the set again: it writes the card "
            "and keeps everything else."
        )
    return _loaded(path)


def _loaded(path: Path) -> DatasetCard:
    """A card without its checksum, which is of the whole text."""
    return DatasetCard(without_text_checksum(DatasetCard.load(path).content))


def _section(card: DatasetCard, folders: Mapping[str, Path]) -> list[str]:
    """A card's text below the names of its configurations, without how they are loaded one by one."""
    split = _split(next(iter(folders.values())))
    # The card of a set built together calls a configuration by its folder's name, which may not be the name that it is
    # pushed under.
    inside = {name: folder for name, folder in folders.items() if not (folder / CARD).is_file()}
    parts = [f"## {', '.join(f'`{name}`' for name in folders)}"]
    if inside:
        own = ", ".join(f"`{name}` is `{folder.resolve().name}`" for name, folder in inside.items())
        parts.append(f"Built together with other configurations. In the text about all of them, {own}.")
    stated = [entry["config_name"] for entry in getattr(card.data, "configs", None) or ()]
    return [*parts, _demoted(card.text.replace(loading_text(stated, split), "") if stated else card.text)]


def _configs(folders: SetFolders) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    for name in folders.configs:
        split = _split(folders.configs[name])
        files = [{"split": split, "path": f"{folders.place(name)}{DATA}/{split}-*.parquet"}]
        # Without a default `load_dataset` of several configurations raises until the user names one.
        entries.append({"config_name": name, "data_files": files} | ({} if entries else {"default": True}))
    return entries


def _split(folder: Path) -> str:
    manifest = read_manifest(folder)
    return split_of(manifest) if manifest else TRAIN


def _metadata(cards: Mapping[str, DatasetCard], rows: int) -> dict[str, Any]:
    """What the cards of the configurations state together."""
    keys = ("license", "license_name", "license_link")
    licenses = [{key: card.data.get(key) for key in keys if card.data.get(key)} for card in cards.values()]
    # Several licenses make `other` for the repository; each section states its own.
    is_one = all(one == licenses[0] for one in licenses)
    facts: dict[str, Any] = (licenses[0] or {"license": UNKNOWN}) if is_one else {"license": "other"}
    facts["size_categories"] = [size_category(rows)]
    for key in ("tags", "source_datasets"):
        stated = [one for card in cards.values() for one in getattr(card.data, key, None) or ()]
        if stated:
            facts[key] = list(dict.fromkeys(stated))
    return facts


def _known(data: DatasetCardData) -> dict[str, Any]:
    return {key: value for key, value in data.to_dict().items() if value and key not in ("configs", "size_categories")}


def _demoted(text: str) -> str:
    """A card's text as a section of another: without its title, headings a level down."""
    lines, fence = [], ""
    for line in text.strip().splitlines():
        # A `#` in a block of code is a comment of shell or Python, not a heading.
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
    return with_text_checksum(str(without_local_paths(text.replace(PLACE, repository))))
