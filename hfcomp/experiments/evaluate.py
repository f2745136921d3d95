"""Outcomes per item of a model: on the sandbox's held-out scenes, on benchmarks, or on a set of the user's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from datasets import Dataset
from numpy.typing import NDArray

from hfcomp.data.columns import nearest, rename_columns, require_columns
from hfcomp.data.loading import load_training_set, undecoded
from hfcomp.data.overlap import ScoredImages
from hfcomp.evaluation.benchmarks import find_benchmarks
from hfcomp.evaluation.cells import PooledImages
from hfcomp.evaluation.embed import Embedder
from hfcomp.evaluation.engine import checked, run_benchmark
from hfcomp.evaluation.protocols import caption_choice as choice
from hfcomp.evaluation.remarks import cut_remark, remarks
from hfcomp.evaluation.scored_images import scored_images
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import Average, Items, Unavailable
from hfcomp.experiments.benchmark_data import check_used, data_folders
from hfcomp.experiments.data import Tell, longest_caption
from hfcomp.experiments.experiment_config import SANDBOX, ExperimentConfig
from hfcomp.experiments.items import COMPOSITION, choice_table, retrieval_table
from hfcomp.experiments.overlap import check_own_split
from hfcomp.experiments.sandbox_concepts import SandboxConcepts
from hfcomp.experiments.sandbox_evaluation import SandboxEvaluation, retrieval_rows
from hfcomp.negatives.keywords import MATCHINGS, PAPER_TABLE, read_keyword_table


@dataclass(frozen=True)
class Evaluation:
    """A function from an embedder (and for concepts more) to outcomes, and the images that it scores.

    Attributes:
        score: the function.
        images: other than the sandbox's own scenes, which are held out of its training sets by how they are drawn.
    """

    score: Callable[..., pd.DataFrame]
    images: list[ScoredImages] = field(default_factory=list)

    def __call__(self, *arguments: Any) -> pd.DataFrame:
        """One row per item and metric."""
        return self.score(*arguments)


ConceptEvaluation = Evaluation


def prepare_evaluation(config: ExperimentConfig, *, column_names: Any, seed: int, tell: Tell) -> Evaluation:
    """Loads the items before anything is trained, so that a missing file costs no training.

    Args:
        config: the experiment.
        column_names: contract name to the data set's own, for `own`.
        seed: of the sandbox's scenes.
        tell: receives what was left out.

    Returns:
        A function from an embedder to one row per item and metric, with the columns of `item_table`, and the images
        that it scores.
    """
    parts: list[Evaluation] = []
    if config.evaluation == "own":
        check_own_split(config, tell)
        parts.append(_own(config, column_names, tell))
    if config.evaluation.startswith(SANDBOX):
        parts += _sandbox(config, seed)
    if config.evaluation.endswith("benchmarks"):
        parts.append(_benchmarks(config, tell))
    images = [one for part in parts for one in part.images]
    return Evaluation(lambda embedder: pd.concat([part(embedder) for part in parts], ignore_index=True), images)


def declared_averages(config: ExperimentConfig) -> dict[str, tuple[Average, ...]]:
    """The averages in use of the benchmarks that an experiment is scored on, by title."""
    if not config.evaluation.endswith("benchmarks"):
        return {}
    return {one.title: one.averages for one in find_benchmarks(config.evaluation_benchmarks)}


def _sandbox(config: ExperimentConfig, seed: int) -> list[Evaluation]:
    """The sandbox's sets, and where its rows have keyword negatives those of the keywords."""
    parts = [Evaluation(SandboxEvaluation(config.evaluation_items, seed))]
    if config.dataset == SANDBOX and config.keyword_negatives:
        keywords = _sandbox_concepts(config, seed)
        parts.append(Evaluation(lambda embedder: keywords.keywords(embedder, config.keyword_negatives)))
    return parts


def prepare_concepts(
    config: ExperimentConfig, concepts: tuple[str, ...], *, main: tuple[str, ...], seed: int, tell: Tell
) -> ConceptEvaluation:
    """Loads the items of an evaluation of concepts, one at a time.

    Args:
        config: the experiment.
        concepts: all that will be asked for.
        main: benchmarks, as tables call them, that are scored when a brief evaluation is asked for.
        seed: of the sandbox's scenes.
        tell: receives what was left out.

    Returns:
        A function from an embedder, a concept and whether to be brief to one row per item and metric: that concept's
        items where a benchmark has such, else all of its items.

    Raises:
        ValueError: for an evaluation that has no concepts, or a concept that the keywords do not have.
    """
    if config.evaluation == SANDBOX:
        asked = _sandbox_concepts(config, seed)
        asked.check(concepts)
        return Evaluation(lambda embedder, concept, brief: asked(embedder, concept, brief=brief))
    if config.evaluation != "benchmarks":
        raise ValueError(
            f"evaluation={config.evaluation!r} has no concepts. Use sandbox, or benchmarks with keywords_*."
        )
    titles = [one.title for one in find_benchmarks(config.evaluation_benchmarks)]
    for name in main:
        if name not in titles:
            raise ValueError(f"{name!r} is none of evaluation_benchmarks: {'; '.join(titles)}.{nearest(name, titles)}")
    evaluate = _benchmarks(config, tell, main)
    return Evaluation(
        lambda embedder, concept, brief: evaluate(embedder, main if brief else None, concept), evaluate.images
    )


def _sandbox_concepts(config: ExperimentConfig, seed: int) -> SandboxConcepts:
    return SandboxConcepts(
        items=config.evaluation_items,
        retrieval=retrieval_rows(config.evaluation_items),
        seed=seed,
        table=read_keyword_table(config.keyword_table) if config.keyword_table else PAPER_TABLE,
        matching=MATCHINGS[config.keyword_matching],
    )


def same_image_or_caption(images: Sequence[str], captions: Sequence[str]) -> NDArray[np.bool_]:
    """Which image is right for which caption, where rows share images or captions.

    A caption is right for every image that has it in some row; so the rows that share an image or a caption are right
    for each other, and a copy of a right image is never a wrong one.

    Args:
        images: name of each row's image.
        captions: of each row.

    Returns:
        `[n, n]`: row i's caption for row j's image. It takes n * n bytes.
    """
    image = np.unique(np.asarray(images, dtype=object), return_inverse=True)[1]
    caption = np.unique(np.asarray(captions, dtype=object), return_inverse=True)[1]
    together = np.zeros((caption.max() + 1, image.max() + 1), dtype=bool)
    together[caption, image] = True
    return together[caption[:, None], image[None, :]]


def _own_rows(config: ExperimentConfig, column_names: Any, tell: Tell) -> Dataset:
    """The set of the user's own, with one caption in each row."""
    source = config.evaluation_dataset or config.dataset
    rows = load_training_set(source, split=config.evaluation_split, config=config.dataset_config)
    rows = rename_columns(rows, column_names)
    require_columns(rows, ("image", "caption"), needed_by="evaluation: own")
    rows = longest_caption(rows, lambda note: tell(f"evaluation: {note}"))
    for row, text in enumerate(rows["caption"]):
        if not isinstance(text, str) or not text.strip():
            raise ValueError(
                f"evaluation: own: {source} ({config.evaluation_split}), column 'caption', row {row}: expected a "
                f"text, found {text!r}. Remove the row or give it a caption."
            )
    if not len(rows):
        raise ValueError(f"evaluation: own: {source} ({config.evaluation_split}) has no rows.")
    return undecoded(rows)


def _own(config: ExperimentConfig, column_names: Any, tell: Tell) -> Evaluation:
    source = config.evaluation_dataset or config.dataset
    rows = _own_rows(config, column_names, tell)
    captions, items = list(rows["caption"]), [str(index) for index in range(len(rows))]
    named = rows["image_id"] if "image_id" in rows.column_names else items
    clusters = [f"row {index}" if name is None else str(name) for index, name in enumerate(named)]
    positive = same_image_or_caption(clusters, captions)
    listed = rows["negative_captions"] if "negative_captions" in rows.column_names else [[]] * len(rows)
    negatives = [next(filter(None, texts or []), "") for texts in listed]
    chosen = [index for index, text in enumerate(negatives) if text]
    tell(f"evaluation: {len(rows):,} rows of {source} ({config.evaluation_split}), {len(chosen):,} with a negative")
    tell_cut = _once(tell)

    def evaluate(embedder: Embedder) -> pd.DataFrame:
        image = embedder.images(rows["image"], progress=True)
        texts = embedder.texts([*captions, *(negatives[index] for index in chosen)])
        if texts.truncated:
            tell_cut(f"evaluation: {cut_remark(texts.truncated, texts.merged)}")
        text, negative = texts.vectors[: len(rows)], texts.vectors[len(rows) :]
        tables = [retrieval_table("own", image, text, items=items, images=clusters, positive=positive)]
        if chosen:
            outcome = choice.caption_choice(image[chosen], text[chosen], negative)
            tables.insert(
                0,
                choice_table(
                    "own",
                    "caption choice",
                    outcome,
                    aspect=COMPOSITION,
                    chance=choice.CHANCE,
                    subsets="all",
                    items=[items[index] for index in chosen],
                    images=[clusters[index] for index in chosen],
                ),
            )
        return pd.concat(tables)

    sources = rows["source"][:] if "source" in rows.column_names else None
    return Evaluation(evaluate, [ScoredImages("own evaluation set", rows["image"], list(named), sources)])


def _once(tell: Tell) -> Tell:
    """Tells the first line only: the models of a run share a tokenizer, and each would tell the same."""
    told: list[str] = []

    def tell_first(note: str) -> None:
        if not told:
            told.append(note)
            tell(note)

    return tell_first


def _benchmarks(config: ExperimentConfig, tell: Tell, needed: Sequence[str] = ()) -> Evaluation:
    """A function from an embedder to all items; where wanted, of some benchmarks by title, or of a concept.

    A benchmark whose data is unavailable is skipped with a note, unless its title is `needed`.
    """
    folders = data_folders(config.evaluation_data, option="evaluation_data")
    items, chosen = {}, []
    for benchmark in find_benchmarks(config.evaluation_benchmarks):
        try:
            items[benchmark.name] = checked(benchmark, load_items(benchmark, folders))
        except Unavailable as error:
            said = f"{benchmark.name} is unavailable: {error} In a recipe that option is --evaluation_data."
            if benchmark.title in needed:
                raise ValueError(f"evaluation: {said}") from error
            tell(f"evaluation: {said} It is skipped.")
            continue
        chosen.append(benchmark)
        for remark in remarks(benchmark, items[benchmark.name]):
            tell(remark)
    check_used(folders, option="evaluation_data")
    if not chosen:
        raise ValueError(f"evaluation: none of {', '.join(config.evaluation_benchmarks)} is available; see above.")
    tell_cut = {benchmark.name: _once(tell) for benchmark in chosen}

    def evaluate(
        embedder: Embedder, titles: tuple[str, ...] | None = None, concept: str | None = None
    ) -> pd.DataFrame:
        tables = []
        for benchmark in (one for one in chosen if titles is None or one.title in titles):
            report = run_benchmark(benchmark, _of_concept(items[benchmark.name], concept), embedder, progress=True)
            if report.truncated:
                tell_cut[benchmark.name](f"{benchmark.name}: {cut_remark(report.truncated, report.merged)}")
            tables.append(report.items)
        return pd.concat(tables)

    return Evaluation(evaluate, [image for one in chosen for image in scored_images(one, items[one.name])])


def _of_concept(items: Items, concept: str | None) -> Items:
    """The items of a concept where there are such, else all: another concept's texts need not be encoded."""
    chosen = np.flatnonzero(np.asarray(items.rows["subset"][:]) == concept)
    if not len(chosen):
        return items
    images = {name: PooledImages(cells, chosen) for name, cells in items.images.items()}
    return replace(items, rows=items.rows.select(chosen), images=images)
