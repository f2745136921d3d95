"""The report of sets of pairs: the paper's Table 1, what it leaves out, differences, correlations and figures."""

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
"""Correlations that the terminal shows: those of the paper's figures."""
HOW = (
    "Brackets are image-clustered bootstrap intervals (95%): studentized of means, percentiles of medians and "
    "correlations. I2T: the image scores its caption strictly higher than the negative caption; T2I: the caption "
    "scores its image strictly higher than the negative image; ties are wrong. Logit gaps are in the model's logits. "
    "Pair accuracy: the mean of the four comparisons of a pair; both images, both captions: both comparisons of the "
    "direction hold; group: all four hold."
)
PAPER = (
    'Columns "paper" are the paper\'s own numbers (Concrete Jungle, Table 1), of its own pairs and of '
    "PE-Core-L-14-336, DINOv2 and RoBERTa-large: for reference, not computed here."
)
SHARED = "A difference is paired as far as two sets share images, and independent as far as they do not."


@dataclass(frozen=True, eq=False)
class PairResults:
    sets: Mapping[str, ScoredSet]  # with the numbers of every pair, by name
    summary: Summary
    models: Mapping[str, Mapping[str, Any]]  # `path`, `weights` and use by name
    options: AnalyzeOptions
    notes: Sequence[str]

    def table(self) -> pd.DataFrame:
        """A row for each pair, with its words, rating and all numbers; those of a dual encoder behind its name."""
        parts = []
        for name, one in self.sets.items():
            columns = {
                f"{model}: {quantity}" if model else quantity: values
                for model, scores in one.scores.items()
                for quantity, values in scores.values.items()
            }
            own = one.pairs.items.drop(columns="concreteness").assign(**columns)
            own.insert(0, "set", name)
            parts.append(own)
        return pd.concat(parts, ignore_index=True)

    def save(self, folder: Path, *, shown: bool = True, command: str = "") -> None:
        """Writes `results.json`, `report.md`, figures and `pairs.parquet`; the caller holds the folder's lock."""
        config = {"command": command, "date": datetime.now(UTC).isoformat(timespec="seconds")}
        write_table(folder / PAIRS_FILE, self.table())
        found = contents(self) | {"config": config, "versions": versions()}
        report = pair_report(self, found, folder)
        for name in PICTURES:  # those of an earlier run, of which this one may have no numbers
            (folder / name).unlink(missing_ok=True)
        publish(report, found, folder / RESULTS_FILE, shown=shown)


def contents(results: PairResults) -> dict[str, Any]:
    summary, notes = results.summary, list(results.notes)
    lines = [{**line, "unit": asdict(line["unit"])} for line in summary.lines()]
    # `overwrite` changes no result.
    options = {name: value for name, value in asdict(results.options).items() if name != "overwrite"}
    return {
        "models": results.models,
        "sets": {name: _facts(one) for name, one in results.sets.items()},
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


def _facts(one: ScoredSet) -> dict[str, Any]:
    pairs = one.pairs
    return {
        "path": pairs.source,
        "paper": pairs.config,
        "rows": len(pairs.dataset),
        "pairs": len(pairs.items),
        "images": int(pairs.items["image_id"].nunique()),
    }


def pair_report(results: PairResults, found: Mapping[str, Any], folder: Path) -> Callable[..., Report]:
    """The report, in brief for the terminal or whole; figures are drawn once, and missing libraries noted."""
    notes = list(found["notes"])
    # Drawn before anything is rendered, because drawing adds notes.
    pictures = {part.name: part for part in _pictures(results, found, notes)}
    names = list(results.sets)

    def report(*, brief: bool) -> Report:
        legend = [HOW, *([PAPER] if any(line["paper"] for line in found["results"]) else [])]
        legend += [SHARED] if len(names) > 1 else []
        closing = {"written to": str(folder)}
        title = f"Hard negative pairs: {', '.join(names)}"
        sections = list(_sections(results, found, pictures, brief=brief))
        return Report(title, results.options.caveat, (), sections, legend, notes, closing)

    return report


def _pictures(results: PairResults, found: Mapping[str, Any], notes: list[str]) -> Iterator[Figure | Picture]:
    """Figures and the gallery, which needs no matplotlib; `notes` receive what a reader has to know of them."""
    options, models = results.options, {model for one in results.sets.values() for model in one.models}
    if len(models) > 1:
        first = next(model for one in results.sets.values() for model in one.models)
        notes.append(f"figures show the dual encoder {first}; tables have all")
    try:
        check_matplotlib(FIGURES[0])
        yield from pair_figures(results.sets, found, options.loess_share)
    except ImportError as error:
        notes.append(str(error))
    if options.gallery:
        content = gallery_png(results.sets, options.gallery, options.seed, options.caveat)
        yield Picture(GALLERY, "pairs drawn at random (Fig. 7)", content)


def _sections(
    results: PairResults, found: Mapping[str, Any], pictures: Mapping[str, Part], *, brief: bool
) -> Iterator[Section]:
    names, lines = list(results.sets), found["results"]

    def drawn(name: str) -> list[Part]:
        if brief or name not in pictures:
            return []
        caption = getattr(pictures[name], "caption", "")
        return [pictures[name], Lines([caption] if caption else [])]

    first = [line for line in lines if line["in_table_1"]]
    yield Section("Table 1", [value_table(first, names), *drawn("concreteness.png")])
    yield Section("Hardness and words", [value_table([line for line in lines if line not in first], names)])
    shown = first if brief else lines
    yield Section("Differences of sets", list(difference_tables(shown)))
    yield Section("Ties", [tie_table(lines, names)])
    yield Section("Hardness by similarity of the images", drawn("hardness.png"))
    yield Section("Similarity against concreteness", drawn("gap.png"))
    central = [one for one in found["correlations"] if not brief or (one["first"], one["second"]) in CENTRAL]
    yield Section("Correlations", [correlation_table(central), *drawn("correlations.png")])
    yield Section("Words of the keyword", [keyword_table(found["keywords"]), *drawn("keywords.png")])
    yield Section("Categories", [category_table(found["categories"], names)])
    yield Section("Pairs", drawn(GALLERY))
    yield Section("Sets", [set_table(found["sets"])])
    if not brief:
        yield Section("Models", [facts_table(found["models"])])
        yield Section("How it was made", [made_table(found["config"], found["options"], package_versions())])


def value_table(lines: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Table:
    """A row for each number, a column for each set, and one for the paper's own of each set that is one of its."""
    papers = [name for name in names if any(name in line["paper"] for line in lines)]
    several = len({line["model"] for line in lines} - {""}) > 1
    rows = []
    for line in lines:
        unit = _unit(line)
        own = [with_interval(line["sets"].get(name), unit) for name in names]
        paper = [decimal(line["paper"].get(name), unit) for name in papers]
        rows.append([_label(line), *([line["model"]] if several else []), *own, *paper])
    header = ["", *(["model"] if several else []), *names, *(f"paper: {name}" for name in papers)]
    return Table("", header, rows, labels=2 if several else 1)


def difference_tables(lines: Sequence[Mapping[str, Any]]) -> Iterator[Table]:
    """A table for each two sets: the difference of each number, its interval, and how many images they share."""
    pairs = list(dict.fromkeys((one["first"], one["second"]) for line in lines for one in line["differences"]))
    several = len({line["model"] for line in lines} - {""}) > 1
    for pair in pairs:
        rows = []
        for line in lines:
            for one in line["differences"]:
                if (one["first"], one["second"]) == pair:
                    unit = _unit(line)
                    label = [_label(line), *([line["model"]] if several else [])]
                    numbers = decimal(one["value"], unit, "+"), interval(one, unit, "+"), f"{one['shared_images']:,}"
                    rows.append([*label, *numbers])
        header = ["", *(["model"] if several else []), "difference", "95% interval", "shared images"]
        yield Table(f"{pair[0]} minus {pair[1]}", header, rows, labels=2 if several else 1)


def tie_table(lines: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Table:
    """The comparisons in which pairs tied: percent, and their number."""
    rows = []
    for line in lines:
        if any(one.get("ties") for one in line["sets"].values()):
            cells = [line["sets"].get(name, {}) for name in names]
            shown = [f"{decimal(one.get('tie_rate'), _unit(line))} ({one.get('ties', 0):,})" for one in cells]
            rows.append([" ".join(filter(None, (_label(line), line["model"]))), *shown])
    return Table("counted as wrong, percent of pairs (number)", ["", *names], rows)


def correlation_table(found: Sequence[Mapping[str, Any]]) -> Table:
    several = len({one["model"] for one in found} - {""}) > 1
    rows = []
    for one in found:
        of_model = f" ({one['model']})" if several and one["model"] else ""
        kinds = [with_interval(one[kind], CORRELATION) for kind in ("pearson", "spearman")]
        rows.append([f"{one['first']} and {one['second']}{of_model}", one["set"], *kinds, f"{one['items']:,}"])
    return Table("", ["", "set", "Pearson", "Spearman", "pairs"], rows, labels=2)


def keyword_table(found: Sequence[Mapping[str, Any]]) -> Table:
    rows = [
        [
            *(one["set"], one["words"], decimal(one["share"])),
            with_interval(one.get("BERTScore"), COSINE),
            with_interval(one.get("word edit distance"), COUNT),
        ]
        for one in found
    ]
    return Table("", ["set", "words", "% of keywords", "BERTScore", "word edit distance"], rows, labels=2)


def category_table(found: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Table:
    labels = list(dict.fromkeys(one.get("category") or one["kind"] for one in found))
    share = {(one.get("category") or one["kind"], one["set"]): one["share"] for one in found}
    rows = [[label, *(decimal(share.get((label, name))) for name in names)] for label in labels]
    return Table("percent of pairs", ["", *names], rows)


def set_table(sets: Mapping[str, Mapping[str, Any]]) -> Table:
    rows = [
        [name, str(one["path"]), *(f"{one[key]:,}" for key in ("rows", "pairs", "images"))]
        for name, one in sets.items()
    ]
    return Table("", ["set", "read from", "rows", "pairs", "images"], rows, labels=2)


def _label(line: Mapping[str, Any]) -> str:
    note = _unit(line).note
    return f"{line['row']} ({note})" if note else str(line["row"])


def _unit(line: Mapping[str, Any]) -> Unit:
    return Unit(**line["unit"])
