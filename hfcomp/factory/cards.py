"""The card of a built dataset: its content, how it was made, what was dropped, and examples."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml
from huggingface_hub import DatasetCardData

from hfcomp.checksums import file_hash, with_text_checksum
from hfcomp.data.built_sets.files import CARD, TRAIN, configurations, content_hash, split_of
from hfcomp.data.built_sets.views import read_views, view_configs
from hfcomp.data.publishing import DEFAULT, UNKNOWN, fenced, is_on_hub, loading_text, size_category
from hfcomp.factory.builder import OTHERS, CardText
from hfcomp.factory.manifest import DATA, MANIFEST, SET_ASIDE_FILE, sums
from hfcomp.reporting.report import Table
from hfcomp.reporting.saving import markdown_table
from hfcomp.writing import write_text

# License name in the metadata if the column `license` states a license per row.
PER_ROW = "per-row"
EXAMPLES = 8
LONGEST_EXAMPLE = 200
# Characters that may begin markup or a link. Names with a hyphen, a slash or an underscore inside, and numbers, stay
# as they are.
_MARKUP = re.compile(
    r"[#$&*<>@\[-^`{-~]|(?<![^\W_])_|_(?![^\W_])|:(?=/)|(?<=www)\.|\.(?=[^\W\d_])", flags=re.IGNORECASE
)


@dataclass(frozen=True)
class Source:
    """Source of a built dataset's rows.

    Attributes:
        name: Hub id, folder or file.
        license: License that the source states, or None.
        row_licenses: Whether a column `license` states it row by row.
    """

    name: str
    license: str | None
    row_licenses: bool


def chained_manifest(chain: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The manifest of a chain's last build, with the counts of all its builds."""
    return {**chain[-1], **sums(chain), "rows": chain[-1]["rows"]}


def count_tables(manifest: Mapping[str, Any], text: CardText) -> list[Table]:
    """Tables of counts by kind and reason, and of rows that were set aside."""
    aside = [[name.replace("_", " "), f"{number:,}"] for name, number in manifest["set_aside"].items()]
    counts = manifest["counts"]
    parts = [(group.title, group.column, group.rows(counts)) for group in text.counts]
    # Counts for which the builder names no table are shown too.
    others = {name: number for name, number in counts.items() if not any(group.has(name) for group in text.counts)}
    parts.append((OTHERS.title, OTHERS.column, OTHERS.rows(others)))
    parts.append((f"rows set aside, in {SET_ASIDE_FILE}", "reason", aside))
    return [*(Table(title, [column, "number"], rows) for title, column, rows in parts if rows), *text.tables(manifest)]


def write_card(
    folder: Path,
    sets: Mapping[str, Sequence[Mapping[str, Any]]],
    source: Source,
    kind: CardText,
    command: str,
    facts: Sequence[Table] = (),
) -> None:
    """Writes `README.md`, the same bytes for the same builds.

    Args:
        sets: Manifests by configuration, the default configuration first. Each has the manifests of a chain of builds;
            the last build made the dataset. A single configuration, `default`, is in the folder itself, several are
            in folders of their names.
        command: Command that built the dataset, without paths on this machine; several commands have a line each.
    """
    configs = {
        name: _Configuration.of(folder if name == DEFAULT else folder / name, chain, kind)
        for name, chain in sets.items()
    }
    rows = sum(config.manifest["rows"] for config in configs.values())
    views = read_views(folder)
    data = DatasetCardData(
        **_license_data(source),
        tags=["hfcomp", "compositionality", kind.title.lower().replace(" ", "-")],
        size_categories=[size_category(rows)],
        source_datasets=[source.name] if is_on_hub(source.name) else None,
        configs=[
            _config(name, config, is_default=number == 0 and len(configs) > 1)
            for number, (name, config) in enumerate(configs.items())
        ]
        if views is None
        else view_configs(views, content_hash(folder, views)),
    )
    name = source.name if is_on_hub(source.name) else Path(source.name).name
    first = next(iter(configs.values())).first
    text = [
        f"---\n{data.to_yaml()}\n---",
        f"# {kind.title} of {_plain(name)}",
        f"{rows:,} rows, built by hfcomp {first['hfcomp_version']} from {first['source']['rows']:,} rows of the "
        f"source {_plain(name)}. {kind.about}",
        loading_text(list(views or configs), TRAIN if views else next(iter(configs.values())).split),
        "\n".join(markdown_table(Table("", ["column", "what"], list(kind.columns.items()), labels=2))),
        kind.others,
        " ".join([_license_text(source), *_generator_text(configs.values())]),
        *(["## Content"] if facts or any(config.tables for config in configs.values()) else []),
        *map(_markdown, facts),
        *(part for name, config in configs.items() for part in config.text(name)),
        "## How it was made",
        fenced(command, "bash"),
        f"The stages and their settings. `{MANIFEST}` has the hashes of all files:",
        *(part for name, config in configs.items() for part in config.settings(name)),
    ]
    write_text(folder / CARD, with_text_checksum("\n\n".join(text) + "\n"))


@dataclass(frozen=True)
class _Configuration:
    """One configuration: its folder, the plan of its first build, its stages, and the counts of all its builds."""

    folder: Path
    kind: CardText
    first: Mapping[str, Any]
    stages: Mapping[str, Any]
    manifest: Mapping[str, Any]

    @classmethod
    def of(cls, folder: Path, chain: Sequence[Mapping[str, Any]], kind: CardText) -> _Configuration:
        stages = [stage for manifest in chain for stage in manifest["plan"]["stages"].values()]
        named = {f"{number} {stage['name']}": stage for number, stage in enumerate(stages)}
        return cls(folder, kind, chain[0]["plan"], named, chained_manifest(chain))

    @property
    def tables(self) -> list[Table]:
        return count_tables(self.manifest, self.kind)

    @property
    def split(self) -> str:
        return split_of(self.manifest)

    def text(self, name: str) -> list[str]:
        parts = [*map(_markdown, self.tables), *_examples(self.folder, self.kind)]
        return parts if name == DEFAULT or not parts else [f"### {name}: {self.manifest['rows']:,} rows", *parts]

    def settings(self, name: str) -> list[str]:
        text = fenced(yaml.safe_dump(dict(self.stages), allow_unicode=True, sort_keys=False).strip(), "yaml")
        return [text] if name == DEFAULT else [f"`{name}`:", text]


def _config(name: str, config: _Configuration, *, is_default: bool) -> dict[str, Any]:
    """The entry of the card that `load_dataset` reads.

    `load_dataset` caches rows by the folder's last name and this entry, whatever the files hold. Without the
    description it would return the rows of another folder, or of an earlier build in this folder.
    """
    folder = DATA if name == DEFAULT else f"{name}/{DATA}"
    files = [{"split": config.split, "path": f"{folder}/{config.split}-*.parquet"}]
    default = {"default": True} if is_default else {}
    description = f"sha256:{file_hash(config.folder / MANIFEST)}"
    return {"config_name": name, "data_files": files, **default, "description": description}


def _markdown(table: Table) -> str:
    rows = [[*map(_plain, row[: table.labels]), *row[table.labels :]] for row in table.rows]
    title = f"**{table.title[0].upper()}{table.title[1:]}**"
    return "\n".join([title, "", *markdown_table(replace(table, rows=rows))])


def _license_data(source: Source) -> dict[str, str]:
    if source.row_licenses:
        return {"license": "other", "license_name": PER_ROW}
    stated = source.license or UNKNOWN
    # The Hub accepts only identifiers. Any other wording is in the text of the card.
    return {"license": stated if re.fullmatch(r"[a-z0-9.-]+", stated) else "other"}


def _license_text(source: Source) -> str:
    text = "## License\n\nCaptions derived from the source's captions, and images copied from it, keep its license"
    if source.row_licenses:
        return f"{text}: the column `license` states it row by row."
    if source.license:
        return f"{text}: {_plain(source.license)}."
    return f"{text}. No license of the source was found, so it is unknown. Find out before you publish this dataset."


def _generator_text(configs: Iterable[_Configuration]) -> list[str]:
    """The sentence on the license of generated images; empty without generated images."""
    names = dict.fromkeys(
        stage["pipeline"] for config in configs for stage in config.stages.values() if "pipeline" in stage
    )
    return (
        [f"Negative images were made by {_plain(', '.join(names))}; its license applies to them too."] if names else []
    )


def _examples(folder: Path, kind: CardText) -> list[str]:
    """The table of the first rows with something to show, if any."""
    rows: list[Sequence[str]] = []
    files = [path for place in configurations(folder) for path in sorted((place / DATA).glob("*.parquet"))]
    for path in files if kind.cells else ():
        table = pq.read_table(path, columns=list(kind.reads))
        # A file may have millions of rows. The first ones may show nothing, such as captions without a negative.
        for row in table.slice(0, 100 * EXAMPLES).to_pylist():
            rows += kind.cells(*(row[name] for name in kind.reads))
        if len(rows) >= EXAMPLES:
            break
    table = Table("examples", kind.header, rows[:EXAMPLES], labels=len(kind.header))
    return [_markdown(table)] if rows else []


def _plain(text: str) -> str:
    """A text that Markdown shows literally in one table cell, without links, pictures or HTML."""
    # A dataset's texts are untrusted: control characters are removed, and what may open markup becomes an entity.
    line = " ".join(
        "".join(
            character for character in text if character.isspace() or unicodedata.category(character) != "Cc"
        ).split()
    )
    short = line if len(line) <= LONGEST_EXAMPLE else f"{line[: LONGEST_EXAMPLE - 1]}…"
    return _MARKUP.sub(lambda match: f"&#{ord(match[0])};", short)
