"""From outcomes per item to lines: a mean of every model with its interval, and paired differences."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hfcomp.evaluation.statistics.bootstrap import ImageBootstrap
from hfcomp.evaluation.statistics.multiplicity import correct
from hfcomp.evaluation.statistics.significance import macro_smallest_difference

if TYPE_CHECKING:  # it imports `datasets`, which whoever only reads results need not wait for
    from hfcomp.evaluation.spec import Average

    Averages = Mapping[Any, Sequence[Average]]  # by benchmark, or by (benchmark, metric)

BASE = "base"
LINE = ["benchmark", "subset", "metric"]
COLUMNS = (*LINE, "aspect", "chance", "item", "image_id", "value", "tie", "model")
STRATUM = "stratum"
"""A further column that a table may have: where it is filled, a line is the mean of its strata's means."""
TIE_RULES = {"wrong": 0.0, "half": 0.5, "win": 1.0}
"""What a tie counts, by the name of the rule; see `summarize` for where."""
SIGNED = ("correlation", "kendall", "tau")
"""Words in the names of metrics that go from -1 to 1."""


@dataclass(frozen=True)
class _Scores:
    """The items of a subset: values and ties `[n, M]`, images and chance `[n]`; strata `[n]` where it has any."""

    values: NDArray[np.float64]
    ties: NDArray[np.bool_]
    images: NDArray[Any]
    chance: NDArray[np.float64]
    strata: NDArray[Any] | None = None

    def parts(self) -> list[_Scores]:
        """The items of each stratum."""
        if self.strata is None:
            return [self]
        order = np.argsort(self.strata, kind="stable")
        _, starts = np.unique(self.strata[order], return_index=True)
        return [
            _Scores(self.values[rows], self.ties[rows], self.images[rows], self.chance[rows])
            for rows in np.split(order, starts[1:])
        ]


@dataclass(frozen=True)
class _Mean:
    """What a line is the mean of: its labels, and the subsets with what the mean of each counts."""

    labels: dict[str, Any]
    subsets: list[_Scores]
    weights: list[float]


def summarize(
    items: pd.DataFrame,
    *,
    models: list[str],
    references: list[str],
    subject: list[str] | None = None,
    averages: Averages | None = None,
    tie: str = "wrong",
) -> list[dict[str, Any]]:
    """One line per benchmark, subset and metric, with every model's mean and the paired differences.

    Intervals are of 95 % and draw the images of the whole benchmark; see `hfcomp.evaluation.statistics`.

    Args:
        items: one row per item, metric and model, with the columns `benchmark`, `subset`, `metric`, `aspect`
            (`composition` or `general`), `chance` (NaN where there is none), `item`, `image_id`, `value` (ties are
            wrong), `tie` (whether it would be right if ties were wins, and is not) and `model`. Models beside `models`
            are not read.
        models: in the order of the report.
        references: the models that differences refer to.
        subject: the models that are compared to them; by default all but `base`.
        averages: means over subsets, by benchmark, or by benchmark and metric. Each becomes a line of every metric, or
            of that one. One that names a subset that the metric lacks is left out, see `missing_averages`; so is a
            mean over all subsets where there is but one.
        tie: what a tie counts, see `TIE_RULES`. It counts so only for an item whose value is 0, of a metric of this
            benchmark whose values are all 0 or 1: what a tie could add to a fraction is not known, so there it is
            shown and counts nothing.

    Returns:
        Lines in order of appearance, those of averages before the others of their benchmark: `benchmark`, `subset` (of
        an average its name), `metric`, `aspect`, `average` (whether it is one; then also `groups`, the subsets of each
        group, and `pooled`), `chance` (`None` where an item has none), `items`, `images`, `models` (name to `value`,
        `low`, `high`, `ties`, `tie_rate`) and `differences` (name to reference to `value`, `low`, `high`, `p` of the
        sign-flip test, `q` of `correct`, and `smallest`, the difference that the set would find in 80 % of the cases).
        Bounds are NaN with fewer than two images; of an average, also where that is so of one of its subsets. `ties`
        is a number of items, `tie_rate` is averaged as `value` is.

    Raises:
        ValueError: for a missing column, an unknown model or rule, a value that is not finite, or models whose items
            differ.
    """
    _check(items, models, references, subject)
    if tie not in TIE_RULES:
        raise ValueError(f"tie: found {tie!r}, expected one of {', '.join(TIE_RULES)}.")
    subject = [name for name in models if name != BASE] if subject is None else subject
    compared = {name: [other for other in references if other != name] for name in subject}
    items = items[items["model"].isin(models)]
    lines: dict[tuple[str, ...], dict[str, Any]] = {}
    of_averages: dict[str, list[dict[str, Any]]] = {}
    for name, benchmark in items.groupby("benchmark", sort=False):
        images = np.unique(benchmark["image_id"].to_numpy(), return_inverse=True)[1]
        # numbers in the order of the images' names: quicker than names
        benchmark = benchmark.assign(image=images, value=_credited(benchmark, TIE_RULES[tie]))
        bootstrap = ImageBootstrap(images)
        means = list(_means(benchmark, models, averages or {}))
        found = [_line(mean, models, compared, bootstrap) for mean in means]
        of_averages[name] = [line for line in found if line["average"]]
        lines |= {tuple(line[key] for key in LINE): line for line in found if not line["average"]}
    ordered: list[dict[str, Any]] = []
    for key in items[LINE].drop_duplicates().itertuples(index=False, name=None):
        ordered += [*of_averages.pop(key[0], ()), lines[key]]
    correct(ordered)
    return ordered


def mean_of_lines(
    items: pd.DataFrame,
    lines: Sequence[tuple[str, str, str]],
    *,
    models: list[str],
    references: list[str],
    subject: list[str] | None = None,
) -> dict[str, Any]:
    """The mean of the means of several lines, each with the same weight, of whatever benchmarks.

    Images are drawn for all lines at once: those of one name are the same image.

    Args:
        items: as in `summarize`.
        lines: benchmark, subset and metric of each.
        models: as in `summarize`.
        references: as in `summarize`.
        subject: as in `summarize`.

    Returns:
        As a line of `summarize`, without `benchmark`, `subset` and `metric`; `lines` are those that it is of.
    """
    subject = [name for name in models if name != BASE] if subject is None else subject
    compared = {name: [other for other in references if other != name] for name in subject}
    wanted = pd.MultiIndex.from_tuples(lines)
    items = items[items["model"].isin(models) & pd.MultiIndex.from_frame(items[LINE]).isin(wanted)]
    items = items.assign(image=np.unique(items["image_id"].to_numpy(), return_inverse=True)[1])
    by_line = dict(iter(items.groupby(LINE, sort=False)))
    scores = [_by_model(by_line[key], models, where=" / ".join(key)) for key in lines]
    labels = {"metric": " ".join(dict.fromkeys(key[2] for key in lines)), "average": True}
    mean = _stratified(labels, scores, [1.0] * len(scores))
    line = _line(mean, models, compared, ImageBootstrap(items["image"].to_numpy()))
    del line["metric"]
    return line | {"lines": [list(key) for key in lines]}


def plain_mean(rows: pd.DataFrame, columns: Sequence[str]) -> pd.Series:
    """The mean of one subset and metric of one model; where rows have a stratum, the mean of its strata's means.

    Args:
        rows: as `summarize` takes them.
        columns: which columns to average.
    """
    if STRATUM in rows and len(rows) and rows[STRATUM].notna().all():
        return rows.groupby(STRATUM, sort=False)[list(columns)].mean().mean()
    return rows[list(columns)].mean()


def by_line(items: pd.DataFrame) -> pd.DataFrame:
    """A table by `LINE`, stratum (empty where a line is no mean over strata) and item.

    Args:
        items: of one model, as `summarize` takes them.
    """
    strata: Any = ""
    if STRATUM in items:
        whole = items[STRATUM].notna().groupby([items[name] for name in LINE]).transform("all")
        strata = items[STRATUM].where(whole, "")
    return items.assign(**{STRATUM: strata}).set_index([*LINE, STRATUM, "item"]).sort_index()


def missing_averages(items: pd.DataFrame, averages: Averages) -> list[dict[str, Any]]:
    """The averages that `summarize` leaves out, because items of a subset that they name are not there.

    Args:
        items: as in `summarize`.
        averages: as in `summarize`.

    Returns:
        One entry per average and metric: `benchmark`, `metric`, `average` and `absent`, the names of the subsets.
    """
    found = []
    for name, metric, subsets in _subsets_by_metric(items):
        for average in _averages_of(averages, name, metric):
            absent = _absent(average, subsets)
            if absent:
                found.append({"benchmark": name, "metric": metric, "average": average.name, "absent": absent})
    return found


def _averages_of(averages: Averages, benchmark: str, metric: str) -> list[Average]:
    return [*averages.get(benchmark, ()), *averages.get((benchmark, metric), ())]


def _subsets_by_metric(items: pd.DataFrame) -> Iterator[tuple[str, str, list[str]]]:
    kinds = items[LINE].drop_duplicates()
    for (name, metric), part in kinds.groupby(["benchmark", "metric"], sort=False):
        yield name, metric, part["subset"].tolist()


def _absent(average: Average, subsets: Sequence[str]) -> list[str]:
    named = [subset for group in average.groups or () for subset in group]
    return [subset for subset in dict.fromkeys(named) if subset not in subsets]


def _check(items: pd.DataFrame, models: list[str], references: list[str], subject: list[str] | None) -> None:
    absent = [column for column in COLUMNS if column not in items]
    if absent:
        raise ValueError(f"items: found the columns {list(items.columns)}, expected {absent} too.")
    scored = list(items["model"].unique())
    for name in models:
        if name not in scored:
            raise ValueError(f"models: {name!r} has no items; the table has those of {scored}. Evaluate it first.")
    for argument, names in (("references", references), ("subject", subject or [])):
        for name in names:
            if name not in models:
                raise ValueError(f"{argument}: {name!r} is none of the models {models}. Add it there or drop it.")
    for column in (*LINE, "item", "image_id"):
        if items[column].isna().any():
            row = int(items[column].isna().to_numpy().argmax())
            raise ValueError(f"items: column {column!r}, row {row}: found no value. Every row needs one.")


def _means(benchmark: pd.DataFrame, models: list[str], averages: Averages) -> Iterator[_Mean]:
    """The averages of a benchmark's metrics, then its lines."""
    labels: dict[tuple[str, ...], dict[str, Any]] = {}
    scores: dict[tuple[str, ...], _Scores] = {}
    for key, part in benchmark.groupby(LINE, sort=False):
        labels[key] = dict(zip(LINE, key, strict=True)) | {"aspect": part["aspect"].iloc[0], "average": False}
        scores[key] = _by_model(part, models, where=" / ".join(map(str, key)))
    for name, metric, subsets in _subsets_by_metric(benchmark):
        of_subset = {subset: scores[name, subset, metric] for subset in subsets}
        for average in _averages_of(averages, name, metric):
            groups = average.groups or tuple((subset,) for subset in subsets)
            if _absent(average, subsets) or (average.groups is None and len(subsets) == 1):
                continue
            about = {"subset": average.name, "average": True, "pooled": average.pooled, "groups": groups}
            parts, weights = _averaged(of_subset, groups, average.pooled)
            yield _stratified(labels[name, subsets[0], metric] | about, parts, weights)
    for key, part in scores.items():
        yield _stratified(labels[key], [part], [1.0])


def _stratified(labels: dict[str, Any], subsets: Sequence[_Scores], weights: Sequence[float]) -> _Mean:
    """A mean over subsets, of which those that have strata are means over these."""
    strata = [part.parts() for part in subsets]
    shared = [weight / len(parts) for parts, weight in zip(strata, weights, strict=True) for _ in parts]
    return _Mean(labels, [part for parts in strata for part in parts], shared)


def subset_weights(groups: Sequence[Sequence[str]]) -> dict[str, float]:
    """What each subset of an average counts: one over the groups, times one over the subsets of its group."""
    weights: dict[str, float] = {}
    for group in groups:
        for subset in group:
            weights[subset] = weights.get(subset, 0.0) + 1 / (len(groups) * len(group))
    return weights


def _averaged(
    of_subset: Mapping[str, _Scores], groups: Sequence[Sequence[str]], pooled: bool
) -> tuple[list[_Scores], list[float]]:
    """The subsets of an average and what each counts."""
    weights = subset_weights(groups)
    parts = [of_subset[subset] for subset in weights]
    if not pooled:
        return parts, list(weights.values())
    columns = ["values", "ties", "images", "chance", *(["strata"] if parts[0].strata is not None else [])]
    return [_Scores(*(np.concatenate([getattr(part, name) for part in parts]) for name in columns))], [1.0]


def _credited(benchmark: pd.DataFrame, of_a_tie: float) -> pd.Series:
    """The values, with what ties add to them."""
    value = benchmark["value"].astype(np.float64)
    whole = value.isin([0.0, 1.0]).groupby(benchmark["metric"]).transform("all")
    return value.mask(whole & (value == 0) & benchmark["tie"].astype(bool), of_a_tie)


def _bounds(metric: str, values: Sequence[NDArray[np.float64]]) -> tuple[float, float] | None:
    """What an item can have at least and at most; `None` where some values say that it is something else."""
    low = -1.0 if set(SIGNED) & set(re.findall(r"[a-z]+", metric.lower())) else 0.0
    inside = min(part.min() for part in values) >= low and max(part.max() for part in values) <= 1
    return (low, 1.0) if inside else None


def _line(mean: _Mean, models: list[str], compared: dict[str, list[str]], bootstrap: ImageBootstrap) -> dict[str, Any]:
    values = [part.values for part in mean.subsets]
    images = [part.images for part in mean.subsets]
    bounds = _bounds(mean.labels["metric"], values)
    subsets = list(zip(values, images, strict=True))
    low, high = bootstrap.macro_interval(subsets, weights=mean.weights, bounds=bounds)
    share = _weighted([part.mean(axis=0) for part in values], mean.weights)
    ties = sum(part.ties.sum(axis=0) for part in mean.subsets)
    tie_rate = _weighted([part.ties.mean(axis=0) for part in mean.subsets], mean.weights)
    chance = float(_weighted([part.chance.mean() for part in mean.subsets], mean.weights))
    line = mean.labels | {"chance": None if math.isnan(chance) else chance}
    line |= {"items": sum(map(len, values)), "images": len(np.unique(np.concatenate(images)))}
    line["models"] = {
        name: {
            "value": float(share[index]),
            "low": float(low[index]),
            "high": float(high[index]),
            "ties": int(ties[index]),
            "tie_rate": float(tie_rate[index]),
        }
        for index, name in enumerate(models)
    }
    pairs = [(name, other) for name, others in compared.items() for other in others]
    found = _differences(subsets, mean.weights, models, pairs, bounds, bootstrap) if pairs else {}
    line["differences"] = {name: {other: found[name, other] for other in others} for name, others in compared.items()}
    return line


def _weighted(means: Sequence[Any], weights: Sequence[float]) -> Any:
    """Exact for a single subset, where a product of weights would round."""
    return means[0] if len(means) == 1 else np.tensordot(weights, np.stack(means), axes=1) / sum(weights)


def _differences(
    subsets: Sequence[tuple[NDArray[np.float64], NDArray[Any]]],
    weights: Sequence[float],
    models: list[str],
    pairs: Sequence[tuple[str, str]],
    bounds: tuple[float, float] | None,
    bootstrap: ImageBootstrap,
) -> dict[tuple[str, str], dict[str, float]]:
    one, other = ([models.index(pair[side]) for pair in pairs] for side in (0, 1))
    tables = [(values[:, one] - values[:, other], images) for values, images in subsets]
    columns = bootstrap.macro_difference(tables, weights=weights, bounds=bounds)
    columns["smallest"] = macro_smallest_difference(tables, weights)
    return {pair: {key: float(column[index]) for key, column in columns.items()} for index, pair in enumerate(pairs)}


def _by_model(part: pd.DataFrame, models: list[str], where: str) -> _Scores:
    """The outcomes of all models in the order of the first model's items."""
    of_model = {name: own.set_index("item") for name, own in part.groupby("model", sort=False)}
    for name in models:
        of_model.setdefault(name, part.iloc[:0].set_index("item"))
    first = of_model[models[0]]
    for name in models:
        own = of_model[name]
        if not own.index.is_unique:
            twice = own.index[own.index.duplicated()][0]
            raise ValueError(f"{where}: item {twice!r} of model {name!r} is there twice. Score each item once.")
        if not own.index.equals(first.index):
            _check_subset(first, own, models[0], name, where)
            _check_subset(own, first, name, models[0], where)
            of_model[name] = own.loc[first.index]
    images = first["image"].to_numpy()
    for name in models:
        own = of_model[name]
        moved = own["image"].to_numpy() != images
        bad = ~np.isfinite(own["value"].to_numpy(dtype=np.float64))
        if moved.any():
            item = first.index[moved][0]
            raise ValueError(f"{where}: item {item!r} has another image for {name!r} than for {models[0]!r}.")
        if bad.any():
            raise ValueError(f"{where}: item {first.index[bad][0]!r} of model {name!r} has no finite value.")
    values = np.stack([of_model[name]["value"].to_numpy(dtype=np.float64) for name in models], axis=1)
    ties = np.stack([of_model[name]["tie"].to_numpy(dtype=bool) for name in models], axis=1)
    strata = first[STRATUM].to_numpy() if STRATUM in first and first[STRATUM].notna().all() else None
    return _Scores(values, ties, images, first["chance"].to_numpy(dtype=np.float64), strata)


def _check_subset(table: pd.DataFrame, other: pd.DataFrame, has: str, lacks: str, where: str) -> None:
    absent = table.index.difference(other.index)
    if len(absent):
        raise ValueError(
            f"{where}: item {absent[0]!r} is there for model {has!r} and missing for {lacks!r} ({len(absent):,} such "
            "items). Score all models on the same items."
        )
