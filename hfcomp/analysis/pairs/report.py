"""Report on datasets of pairs: the paper's Table 1, further numbers, differences, correlations and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from hfcomp.analysis.pairs.options import AnalyzeOptions
from hfcomp.analysis.pairs.pictures import FIGURES, GALLERY, GAPS, PICTURES, gallery_png, loess_curves, pair_figures
from hfcomp.analysis.pairs.summary import CORRELATED, COSINE, COUNT, ScoredSet, Summary
from hfcomp.metrics.units import Unit
from hfcomp.reporting.figures import Figure, check_matplotlib
from hfcomp.reporting.format import decimal, interval, with_interval
from hfcomp.reporting.made_tables import facts_table, made_table
from hfcomp.reporting.report import Lines, Part, Picture, Report, Section, Table
from hfcomp.reporting.saving import publish
from hfcomp.statistics.outcomes import write_table
from hfcomp.statistics.results import RESULTS_FILE, package_versions, versions

PAIRS_FILE = "pairs.parquet"
CORRELATION = Unit(1, 3)
CENTRAL = CORRELATED[:4]
"""Correlations shown in the terminal, which are those of the paper's figures."""
HOW = (
    "Brackets show image-clustered bootstrap intervals (95%): studentized for means, percentiles for medians and "
    "correlations. I2T: the image scores its caption strictly higher than the negative caption. T2I: the caption "
    "scores its image strictly higher than the negative image. Ties count as wrong. Logit gaps are in the model's "
    "logits. Pair accuracy: the mean of a pair's four comparisons. Both images / both captions: both comparisons in "
    "that direction are correct. Group: all four are correct."
)
PAPER = (
    'The columns named "paper" show the paper\'s own numbers for reference (Concrete Jungle, Table 1). They come from '
    "its own pairs with PE-Core-L-14-336, DINOv2 and RoBERTa-large and were not computed here."
)
SHARED = "Differences are paired for images that two datasets share, and independent for the others."


@dataclass(frozen=True, eq=False)
class PairResults:
    sets: Mapping[str, ScoredSet]  # by name, with the numbers of every pair
    summary: Summary
    models: Mapping[str, Mapping[str, Any]]  # by name: `path`, `weights` and use
    options: AnalyzeOptions
    notes: Sequence[str]

    def table(self) -> pd.DataFrame:
        """Returns one row per pair with its words, rating and numbers. Columns of a dual encoder have its prefix."""
        parts = []
        for name, scored in self.sets.items():
            columns = {
                f"{model}: {quantity}" if model else quantity: values
                for model, scores in scored.scores.items()
                for quantity, values in scores.values.items()
            }
            own = scored.pairs.items.drop(columns="concreteness").assign(**columns)
            own.insert(0, "set", name)
            parts.append(own)
        return pd.concat(parts, ignore_index=True)

    def save(self, folder: Path, *, shown: bool = True, command: str = "") -> None:
        """Writes `results.json`, `report.md`, figures and `pairs.parquet`. The caller must hold the folder's lock."""
        config = {"command": command, "date": datetime.now(UTC).isoformat(timespec="seconds")}
        write_table(folder / PAIRS_FILE, self.table())
        record = contents(self) | {"config": config, "versions": versions()}
        report = pair_report(self, record, folder)
        for name in PICTURES:  # an earlier run may have drawn figures that this run does not have
            (folder / name).unlink(missing_ok=True)
        publish(report, record, folder / RESULTS_FILE, shown=shown)


def contents(results: PairResults) -> dict[str, Any]:
    summary, notes = results.summary, list(results.notes)
    lines = [{**line, "unit": asdict(line["unit"])} for line in summary.lines()]
    # `overwrite` does not affect the results.
    options = {name: value for name, value in asdict(results.options).items() if name != "overwrite"}
    return {
        "models": results.models,
        "sets": {name: _facts(scored) for name, scored in results.sets.items()},
        "options": options,
        "results": lines,
        "correlations": summary.correlations(),
        "keywords": summary.by_keyword(),
        "categories": summary.categories(),
        "hardness": summary.by_class(GAPS, "DINOScore"),
        "gaps": summary.by_class(GAPS, "concreteness"),
        "curves": loess_curves(results.sets, results.options.loess_share, notes),
        "notes": notes,
    }


def _facts(scored: ScoredSet) -> dict[str, Any]:
    pairs = scored.pairs
    return {
        "path": pairs.source,
        "paper": pairs.config,
        "rows": len(pairs.dataset),
        "pairs": len(pairs.items),
        "images": int(pairs.items["image_id"].nunique()),
    }


def pair_report(results: PairResults, record: Mapping[str, Any], folder: Path) -> Callable[..., Report]:
    """Returns a function that builds the report, brief for the terminal or complete. Figures are drawn only once."""
    notes = list(record["notes"])
    # Draw before rendering anything, because drawing adds notes.
    pictures = {part.name: part for part in _pictures(results, record, notes)}
    names = list(results.sets)

    def report(*, brief: bool) -> Report:
        legend = [HOW, *([PAPER] if any(line["paper"] for line in record["results"]) else [])]
        legend += [SHARED] if len(names) > 1 else []
        closing = {"written to": str(folder)}
        title = f"Hard negative pairs: {', '.join(names)}"
        sections = list(_sections(results, record, pictures, brief=brief))
        return Report(title, results.options.caveat, (), sections, legend, notes, closing)

    return report


def _pictures(results: PairResults, record: Mapping[str, Any], notes: list[str]) -> Iterator[Figure | Picture]:
    """Yields the figures and the gallery, which works without matplotlib. Adds remarks about them to `notes`."""
    options, models = results.options, {model for scored in results.sets.values() for model in scored.models}
    if len(models) > 1:
        first = next(model for scored in results.sets.values() for model in scored.models)
        notes.append(f"figures show only the dual encoder {first}; tables show all")
    try:
        check_matplotlib(FIGURES[0])
        yield from pair_figures(results.sets, record, options.loess_share)
    except ImportError as error:
        notes.append(str(error))
    if options.gallery:
        content = gallery_png(results.sets, options.gallery, options.seed, options.caveat)
        yield Picture(GALLERY, "randomly sampled pairs (Fig. 7)", content)


def _sections(
    results: PairResults, record: Mapping[str, Any], pictures: Mapping[str, Part], *, brief: bool
) -> Iterator[Section]:
    names, lines = list(results.sets), record["results"]

    def figure(name: str) -> list[Part]:
        if brief or name not in pictures:
            return []
        caption = getattr(pictures[name], "caption", "")
        return [pictures[name], Lines([caption] if caption else [])]

    first = [line for line in lines if line["in_table_1"]]
    yield Section("Table 1", [value_table(first, names), *figure("concreteness.png")])
    yield Section("Hardness and words", [value_table([line for line in lines if line not in first], names)])
    compared = first if brief else lines
    yield Section("Differences between datasets", list(difference_tables(compared)))
    yield Section("Ties", [tie_table(lines, names)])
    yield Section("Hardness by image similarity", figure("hardness.png"))
    yield Section("Similarity by concreteness", figure("gap.png"))
    central = [row for row in record["correlations"] if not brief or (row["first"], row["second"]) in CENTRAL]
    yield Section("Correlations", [correlation_table(central), *figure("correlations.png")])
    yield Section("Words of the keyword", [keyword_table(record["keywords"]), *figure("keywords.png")])
    yield Section("Categories", [category_table(record["categories"], names)])
    yield Section("Pairs", figure(GALLERY))
    yield Section("Datasets", [set_table(record["sets"])])
    if not brief:
        yield Section("Models", [facts_table(record["models"])])
        yield Section("How it was made", [made_table(record["config"], record["options"], package_versions())])


def value_table(lines: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Table:
    """Returns one row per number and one column per dataset, plus the paper's numbers for datasets of the paper."""
    papers = [name for name in names if any(name in line["paper"] for line in lines)]
    several = len({line["model"] for line in lines} - {""}) > 1
    rows = []
    for line in lines:
        unit = _unit(line)
        set_cells = [with_interval(line["sets"].get(name), unit) for name in names]
        paper = [decimal(line["paper"].get(name), unit) for name in papers]
        rows.append([_label(line), *([line["model"]] if several else []), *set_cells, *paper])
    header = ["", *(["model"] if several else []), *names, *(f"paper: {name}" for name in papers)]
    return Table("", header, rows, labels=2 if several else 1)


def difference_tables(lines: Sequence[Mapping[str, Any]]) -> Iterator[Table]:
    """Yields a table per pair of datasets: difference of each number, its interval and the number of shared images."""
    pairs = list(
        dict.fromkeys(
            (difference["first"], difference["second"]) for line in lines for difference in line["differences"]
        )
    )
    several = len({line["model"] for line in lines} - {""}) > 1
    for pair in pairs:
        rows = []
        for line in lines:
            for difference in line["differences"]:
                if (difference["first"], difference["second"]) == pair:
                    unit = _unit(line)
                    label = [_label(line), *([line["model"]] if several else [])]
                    numbers = (
                        decimal(difference["value"], unit, "+"),
                        interval(difference, unit, "+"),
                        f"{difference['shared_images']:,}",
                    )
                    rows.append([*label, *numbers])
        header = ["", *(["model"] if several else []), "difference", "95% interval", "shared images"]
        yield Table(f"{pair[0]} minus {pair[1]}", header, rows, labels=2 if several else 1)


def tie_table(lines: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Table:
    """Returns the comparisons with ties, as a percentage and a number of pairs."""
    rows = []
    for line in lines:
        if any(numbers.get("ties") for numbers in line["sets"].values()):
            cells = [line["sets"].get(name, {}) for name in names]
            texts = [f"{decimal(cell.get('tie_rate'), _unit(line))} ({cell.get('ties', 0):,})" for cell in cells]
            rows.append([" ".join(filter(None, (_label(line), line["model"]))), *texts])
    return Table("counted as wrong, percent of pairs (number)", ["", *names], rows)


def correlation_table(correlations: Sequence[Mapping[str, Any]]) -> Table:
    several = len({row["model"] for row in correlations} - {""}) > 1
    rows = []
    for row in correlations:
        model_name = f" ({row['model']})" if several and row["model"] else ""
        kinds = [with_interval(row[kind], CORRELATION) for kind in ("pearson", "spearman")]
        rows.append([f"{row['first']} and {row['second']}{model_name}", row["set"], *kinds, f"{row['items']:,}"])
    return Table("", ["", "set", "Pearson", "Spearman", "pairs"], rows, labels=2)


def keyword_table(groups: Sequence[Mapping[str, Any]]) -> Table:
    rows = [
        [
            *(group["set"], group["words"], decimal(group["share"])),
            with_interval(group.get("BERTScore"), COSINE),
            with_interval(group.get("word edit distance"), COUNT),
        ]
        for group in groups
    ]
    return Table("", ["set", "words", "% of keywords", "BERTScore", "word edit distance"], rows, labels=2)


def category_table(shares: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Table:
    labels = list(dict.fromkeys(row.get("category") or row["kind"] for row in shares))
    share = {(row.get("category") or row["kind"], row["set"]): row["share"] for row in shares}
    rows = [[label, *(decimal(share.get((label, name))) for name in names)] for label in labels]
    return Table("percent of pairs", ["", *names], rows)


def set_table(sets: Mapping[str, Mapping[str, Any]]) -> Table:
    rows = [
        [name, str(facts["path"]), *(f"{facts[key]:,}" for key in ("rows", "pairs", "images"))]
        for name, facts in sets.items()
    ]
    return Table("", ["set", "read from", "rows", "pairs", "images"], rows, labels=2)


def _label(line: Mapping[str, Any]) -> str:
    note = _unit(line).note
    return f"{line['row']} ({note})" if note else str(line["row"])


def _unit(line: Mapping[str, Any]) -> Unit:
    return Unit(**line["unit"])
