"""The card of a built data set: what is in it, how it was made, what was dropped, and some of its rows."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml
from huggingface_hub import DatasetCard, DatasetCardData

from hfcomp.checksums import file_hash, with_text_checksum
from hfcomp.data.built_sets import CARD, TRAIN, configurations, content_hash, split_of
from hfcomp.data.publishing import fenced, is_on_hub
from hfcomp.data.views import read_views, view_configs
from hfcomp.generation.card_kinds import KINDS, Kind
from hfcomp.generation.concretebatch.text_targets import CANDIDATES, UNRATED
from hfcomp.generation.images.options import IMAGE_COUNT
from hfcomp.generation.inpaintcoco.checks import FLAG, PAIR
from hfcomp.generation.manifest import DATA, MANIFEST, SET_ASIDE_FILE, totals
from hfcomp.generation.text_concepts import CONCEPTS, LEFT_OUT
from hfcomp.generation.text_negatives import ANSWERS, CAPTION_COUNT, DROPPED, FILLS, FLAGGED, MADE
from hfcomp.generation.without_negative import without_negative
from hfcomp.reporting.report import Table
from hfcomp.reporting.saving import markdown_table
from hfcomp.writing import write_text

DEFAULT = "default"
"""The name of the only configuration of a set."""
UNKNOWN, PER_ROW = "unknown", "per-row"
"""Names of the licence in the metadata: where none is known, and where the column `license` states it."""
PLACE = "<this data set's id or folder>"
"""Stands in a card where the place of the set is not known yet."""
EXAMPLES = 8
LONGEST_EXAMPLE = 200
SIZES = (
    (1_000, "n<1K"),
    (10_000, "1K<n<10K"),
    (100_000, "10K<n<100K"),
    (1_000_000, "100K<n<1M"),
    (10_000_000, "1M<n<10M"),
    (100_000_000, "10M<n<100M"),
)
# What may begin markup or a link: names with a hyphen, a slash or an underscore inside, and numbers, stay as they are.
_MARKUP = re.compile(
    r"[#$&*<>@\[-^`{-~]|(?<![^\W_])_|_(?![^\W_])|:(?=/)|(?<=www)\.|\.(?=[^\W\d_])", flags=re.IGNORECASE
)


@dataclass(frozen=True)
class Source:
    """Where a built set's rows come from.

    Attributes:
        name: Hub id, folder or file.
        license: as the source states it, or None.
        row_licenses: whether a column `license` states it row by row.
    """

    name: str
    license: str | None
    row_licenses: bool


def source_license(name: str) -> str | None:
    """The licence that a source's own card states, on disk or on the Hub, or None where it states none."""
    try:
        place = Path(name) / CARD
        if Path(name).exists() and not place.is_file():
            return None
        stated = DatasetCard.load(place if place.is_file() else name).data.license
    except Exception:  # a card that is missing, broken or out of reach states nothing
        return None
    return ", ".join(stated) if isinstance(stated, list) else stated


def size_category(rows: int) -> str:
    """What the Hub calls a set of so many rows."""
    return next((name for limit, name in SIZES if rows < limit), "n>100M")


def chained_manifest(chain: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The manifest of a chain's last build, with the counts of all of them."""
    counts, aside = (totals(one[name] for one in chain) for name in ("counts", "set_aside"))
    return {**chain[-1], "counts": counts, "set_aside": aside}


def count_tables(manifest: Mapping[str, Any]) -> list[Table]:
    """What was made and not made, by kind and reason, and rows that were set aside."""
    counts = manifest["counts"]
    parts = [
        ("negatives", "kind", _strip_prefix(counts, MADE)),
        ("pairs", "concept", _strip_prefix(counts, PAIR)),
        ("pairs flagged, not left out", "flag", _strip_prefix(counts, FLAG)),
        ("negatives flagged, not dropped", "reason", _strip_prefix(counts, FLAGGED)),
        ("words that may change", "category", _strip_prefix(counts, CANDIDATES) | _unrated(counts)),
        ("concepts", "concepts", _strip_prefix(counts, CONCEPTS)),
        ("captions", "captions", _strip_prefix(counts, CAPTION_COUNT)),
        ("images", "images", _strip_prefix(counts, IMAGE_COUNT)),
        ("phrases left out", "reason", _strip_prefix(counts, LEFT_OUT)),
        ("texts dropped", "reason", _strip_prefix(counts, DROPPED)),
        ("fills of masks refused, counted each time", "reason", _strip_prefix(counts, FILLS)),
        ("answers of a language model refused, counted each time", "reason", _strip_prefix(counts, ANSWERS)),
        (f"rows set aside, in {SET_ASIDE_FILE}", "reason", manifest["set_aside"]),
    ]
    tables = [
        Table(title, [of, "number"], [[name.replace("_", " "), f"{number:,}"] for name, number in found.items()])
        for title, of, found in parts
        if found
    ]
    share = without_negative(manifest)
    row = [] if share is None else [[f"{share.without:,} of {share.captions:,} captions", f"{share.value:.1%}"]]
    return [*tables, *([Table("without a negative", ["captions", "share"], row)] if row else [])]


def write_card(
    folder: Path,
    sets: Mapping[str, Sequence[Mapping[str, Any]]],
    source: Source,
    *,
    what: str,
    command: str,
    facts: Sequence[Table] = (),
) -> None:
    """Writes `README.md`, the same bytes for the same builds.

    Args:
        folder: of the data set.
        sets: the manifests by configuration, the first of which is the default: those of a chain of builds, of which
            the last made the set. The only one, `default`, is in the folder itself, others in folders of their names.
        source: what they were made of.
        what: was built, one of `hfcomp.generation.kinds.KINDS`.
        command: that made it, without what is of this machine; several are a line each.
        facts: tables about what is in it.
    """
    kind = KINDS[what]
    made = {name: _Made.of(_place(folder, name), chain) for name, chain in sets.items()}
    rows = sum(one.manifest["rows"] for one in made.values())
    views = read_views(folder)
    data = DatasetCardData(
        **_license_data(source),
        tags=["hfcomp", "compositionality", kind.title.lower().replace(" ", "-")],
        size_categories=[size_category(rows)],
        source_datasets=[source.name] if is_on_hub(source.name) else None,
        configs=[
            _config(name, one, is_default=number == 0 and len(made) > 1)
            for number, (name, one) in enumerate(made.items())
        ]
        if views is None
        else view_configs(views, content_hash(folder, views)),
    )
    name = source.name if is_on_hub(source.name) else Path(source.name).name
    first = next(iter(made.values())).first
    text = [
        f"---\n{data.to_yaml()}\n---",
        f"# {kind.title} of {_plain(name)}",
        f"{rows:,} rows, made from {first['source']['rows']:,} rows of {_plain(name)} by hfcomp "
        f"{first['hfcomp_version']}. {kind.about}",
        loading_text(list(views or made), TRAIN if views else next(iter(made.values())).split),
        "\n".join(markdown_table(Table("", ["column", "what"], list(kind.columns.items()), labels=2))),
        kind.others,
        " ".join([_license_text(source), *_generator_text(made.values())]),
        *(["## What is in it"] if facts or any(one.tables for one in made.values()) else []),
        *map(_markdown, facts),
        *(part for name, one in made.items() for part in one.text(name, kind)),
        "## How it was made",
        fenced(command, "bash"),
        f"The stages with their settings; the hashes of all files are in `{MANIFEST}`:",
        *(part for name, one in made.items() for part in one.settings(name)),
    ]
    write_text(folder / CARD, with_text_checksum("\n\n".join(text) + "\n"))


def _place(folder: Path, name: str) -> Path:
    return folder if name == DEFAULT else folder / name


@dataclass(frozen=True)
class _Made:
    """One configuration: its folder, the plan of its first build, its stages, and the counts of all its builds."""

    folder: Path
    first: Mapping[str, Any]
    stages: Mapping[str, Any]
    manifest: Mapping[str, Any]

    @classmethod
    def of(cls, folder: Path, chain: Sequence[Mapping[str, Any]]) -> _Made:
        stages = [stage for one in chain for stage in one["plan"]["stages"].values()]
        named = {f"{number} {stage['name']}": stage for number, stage in enumerate(stages)}
        return cls(folder, chain[0]["plan"], named, chained_manifest(chain))

    @property
    def tables(self) -> list[Table]:
        return list(count_tables(self.manifest))

    @property
    def split(self) -> str:
        return split_of(self.manifest)

    def text(self, name: str, kind: Kind) -> list[str]:
        found = [*map(_markdown, self.tables), *_examples(self.folder, kind)]
        return found if name == DEFAULT or not found else [f"### {name}: {self.manifest['rows']:,} rows", *found]

    def settings(self, name: str) -> list[str]:
        text = fenced(yaml.safe_dump(dict(self.stages), allow_unicode=True, sort_keys=False).strip(), "yaml")
        return [text] if name == DEFAULT else [f"`{name}`:", text]


def loading_text(names: Sequence[str], split: str = TRAIN) -> str:
    """How a split of a set of these configurations is loaded, the first of them with its code."""
    config = "" if names == [DEFAULT] else f'"{names[0]}", '
    others = [f"The other configurations: {', '.join(f'`{name}`' for name in names[1:])}."] if names[1:] else []
    code = f'rows = load_dataset("{PLACE}", {config}split="{split}")'
    return "\n\n".join([f"```python\nfrom datasets import load_dataset\n\n{code}\n```", *others])


def _config(name: str, made: _Made, *, is_default: bool) -> dict[str, Any]:
    """What `load_dataset` reads of the card.

    It caches the rows of a folder by the folder's last name and this entry, whatever the files hold. Without the
    description it would return those of another folder, or of an earlier build in this one.
    """
    folder = DATA if name == DEFAULT else f"{name}/{DATA}"
    files = [{"split": made.split, "path": f"{folder}/{made.split}-*.parquet"}]
    default = {"default": True} if is_default else {}
    described = f"sha256:{file_hash(made.folder / MANIFEST)}"
    return {"config_name": name, "data_files": files, **default, "description": described}


def _strip_prefix(counts: Mapping[str, int], prefix: str) -> dict[str, int]:
    return {name.removeprefix(prefix): number for name, number in counts.items() if name.startswith(prefix)}


def _unrated(counts: Mapping[str, int]) -> dict[str, int]:
    return {"of these, without a rating": counts[UNRATED]} if UNRATED in counts else {}


def _markdown(table: Table) -> str:
    rows = [[*map(_plain, row[: table.labels]), *row[table.labels :]] for row in table.rows]
    title = f"**{table.title[0].upper()}{table.title[1:]}**"
    return "\n".join([title, "", *markdown_table(replace(table, rows=rows))])


def _license_data(source: Source) -> dict[str, str]:
    """The licence as the Hub's metadata state it."""
    if source.row_licenses:
        return {"license": "other", "license_name": PER_ROW}
    stated = source.license or UNKNOWN
    return {"license": stated if re.fullmatch(r"[a-z0-9.-]+", stated) else "other"}


def _license_text(source: Source) -> str:
    text = "## Licence\n\nCaptions that are made from captions, and images that are copied, keep the source's licence"
    if source.row_licenses:
        return f"{text}: the column `license` states it row by row."
    if source.license:
        return f"{text}: {_plain(source.license)}."
    return f"{text}. The source states none that was found: it is unknown. Find it out before you publish this set."


def _generator_text(made: Iterable[_Made]) -> list[str]:
    """What applies to images that a pipeline made, if any were."""
    names = dict.fromkeys(stage["pipeline"] for one in made for stage in one.stages.values() if "pipeline" in stage)
    return (
        [f"Negative images were made by {_plain(', '.join(names))}: its licence applies to them too."] if names else []
    )


def _examples(folder: Path, kind: Kind) -> list[str]:
    """The table of the first rows that have something to show, if any."""
    rows: list[Sequence[str]] = []
    files = [path for place in configurations(folder) for path in sorted((place / DATA).glob("*.parquet"))]
    for path in files if kind.cells else ():
        table = pq.read_table(path, columns=list(kind.reads))
        for row in table.slice(0, 100 * EXAMPLES).to_pylist():
            rows += kind.cells(*(row[name] for name in kind.reads))
        if len(rows) >= EXAMPLES:
            break
    table = Table("examples", kind.header, rows[:EXAMPLES], labels=len(kind.header))
    return [_markdown(table)] if rows else []


def _plain(text: str) -> str:
    """A text that Markdown shows literally, in one table cell: without links, pictures or HTML."""
    line = " ".join("".join(one for one in text if one.isspace() or unicodedata.category(one) != "Cc").split())
    short = line if len(line) <= LONGEST_EXAMPLE else f"{line[: LONGEST_EXAMPLE - 1]}…"
    return _MARKUP.sub(lambda found: f"&#{ord(found[0])};", short)
