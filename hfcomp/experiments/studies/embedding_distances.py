"""Distances between images, texts, negative texts and perturbed images of held-out rows over training."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from datasets import Dataset
from PIL import Image

from hfcomp.data.image_ids import photographs_or_rows
from hfcomp.data.images import decode_image
from hfcomp.data.loading import undecoded
from hfcomp.data.pair_table import texts_of
from hfcomp.evaluation.cells import image_key
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.losses import perturb_image
from hfcomp.metrics.choice import pair_scores
from hfcomp.metrics.units import PERCENT, Unit
from hfcomp.reporting.figures import Curves, Figure
from hfcomp.reporting.format import decimal, with_interval
from hfcomp.reporting.report import Lines, Part, Picture, Section, Table, figure_title
from hfcomp.statistics import Measure, summarize
from hfcomp.statistics import results as files

IMAGE, TEXT, NEGATIVE, PERTURBED = "image", "text", "negative text", "perturbed image"
PAIRS = {
    f"{first}, {second}": (first, second)
    for first, second in (
        (IMAGE, TEXT),
        (IMAGE, NEGATIVE),
        (IMAGE, PERTURBED),
        (TEXT, NEGATIVE),
        (PERTURBED, TEXT),
        (PERTURBED, NEGATIVE),
    )
}  # the six distances by name
NEAREST = "nearest"
BOUNDS = {**dict.fromkeys(PAIRS, (0.0, 2.0)), NEAREST: (0.0, 1.0)}
BASE_STEP = 0
BENCHMARK = "embeddings"

Tables = dict[int, pd.DataFrame]


@dataclass(frozen=True)
class HeldOutRows:
    """Rows with an image, a caption and at least one negative each."""

    images: list[Any]  # undecoded
    names: list[str]  # photograph of each row from `photographs_or_rows`, which is a bootstrap cluster
    captions: list[str]
    negatives: list[list[str]]  # one or more per row, none empty
    source: str  # description for the report
    digest: str  # hash that identifies these rows

    def __len__(self) -> int:
        return len(self.captions)


def select_rows(rows: Dataset, wanted: int, source: str) -> HeldOutRows:
    """The first rows with an image, a caption and a negative caption."""
    captions = rows["caption"][:]
    negatives = [texts_of(texts) for texts in rows["negative_captions"]]
    usable = [row for row, text in enumerate(captions) if text and text.strip() and negatives[row]]
    cells = undecoded(rows)["image"]
    keys = ((row, image_key(cells[row], f"embeddings: column 'image', row {row}")) for row in usable)
    chosen = dict(islice(((row, key) for row, key in keys if key is not None), wanted))
    if not chosen:
        raise ValueError(
            f"embeddings: none of the {len(rows):,} rows in {source} has an image, a caption and a negative caption. "
            "Choose another evaluation_split or evaluation_dataset, or leave embeddings out of the sweep's file."
        )
    # Bootstrap clusters, because rows of one photograph are not independent.
    names = photographs_or_rows(rows.select([*chosen]))
    captions, own = [captions[row] for row in chosen], [negatives[row] for row in chosen]
    # The digest is part of the stamp, so stored scores of other rows are not reused.
    digest = hashlib.sha256(repr((names, captions, own)).encode() + b"".join(chosen.values()))
    return HeldOutRows([cells[row] for row in chosen], names, captions, own, source, digest.hexdigest()[:16])


def distances(embedder: Embedder, rows: HeldOutRows) -> tuple[pd.DataFrame, int]:
    """Computes the six distances for every row and negative with one model.

    Returns:
        A table with a line per row and negative, and the number of truncated texts. Columns: `row` and `slot`, which
        number rows and negatives, the names in `PAIRS`, each 1 - cosine in 0..2, and `nearer`, whether the image
        scores its text strictly higher than this negative.
    """
    # One line per negative, so the vectors of the row's image and caption are repeated.
    index = np.repeat(np.arange(len(rows)), [len(texts) for texts in rows.negatives])
    flat = [text for texts in rows.negatives for text in texts]
    texts = embedder.texts([*rows.captions, *flat])
    vectors = {
        IMAGE: embedder.images(rows.images)[index],
        TEXT: texts.vectors[: len(rows)][index],
        NEGATIVE: texts.vectors[len(rows) :],
    }
    # Computed from this model's own embeddings, as in Table 5 of the paper, whatever the source of the shift in
    # training.
    image, text, negative = map(torch.from_numpy, vectors.values())
    vectors[PERTURBED] = perturb_image(image, text, negative.unsqueeze(1)).squeeze(1).numpy()
    table = pd.DataFrame({"row": index, "slot": [slot for texts in rows.negatives for slot in range(len(texts))]})
    for name, (first, second) in PAIRS.items():
        cosine = np.einsum("nd,nd->n", vectors[first], vectors[second], dtype=np.float64)
        # Rounding can put the distance of equal embeddings slightly below 0.
        table[name] = np.clip(1 - cosine, 0, 2)
    table["nearer"] = pair_scores(vectors[IMAGE], vectors[TEXT]) > pair_scores(vectors[IMAGE], vectors[NEGATIVE])
    return table, texts.truncated


def summarize_paths(tables: dict[str, Tables], rows: HeldOutRows, examples: int) -> dict[str, Any]:
    """Summarizes distances by variant and step, with image-clustered bootstrap intervals (95%).

    Returns:
        A mapping from variant to `points`, `change` and `examples`. A point has `step`, and `value`, `low` and `high`
        for every name in `PAIRS` and for `nearest` (the fraction of rows whose image is nearer to its text than to all
        of its negatives). The change is the last step minus the base, paired by row. An example has `row`, `image_id`,
        `caption`, `negative_caption` and `points`, each with a step and its six distances.
    """
    return {variant: _summarize_variant(steps, rows, examples) for variant, steps in tables.items()}


def middle_step(steps: list[int]) -> int | None:
    """The scored step nearest to the middle of training, the earlier in a tie; None if only the end was scored."""
    between = [step for step in steps if BASE_STEP < step < steps[-1]]
    return min(between, key=lambda step: (abs(2 * step - steps[-1]), step), default=None)


def by_row(table: pd.DataFrame) -> pd.DataFrame:
    """Averages `distances` over each row's negatives and adds `nearest`, whether its text beats all of them."""
    # All rows have the same weight, whatever their number of negatives.
    grouped = table.groupby("row", sort=True)
    return grouped[list(PAIRS)].mean().assign(**{NEAREST: grouped["nearer"].all().astype(float)})


def _summarize_variant(steps: Tables, rows: HeldOutRows, examples: int) -> dict[str, Any]:
    last, names = list(steps)[-1], list(BOUNDS)
    lines = summarize(
        pd.concat([_outcomes(table, rows).assign(step=step) for step, table in steps.items()]),
        by=("step",),
        measures=[Measure(name, [((BENCHMARK, "all", name),)], bounds=bounds) for name, bounds in BOUNDS.items()],
        contrasts={"change": ([last], [BASE_STEP])},
        images="measure",
        test=False,
    )
    points = [
        {"step": step, **{name: _estimate(line["models"][step]) for name, line in zip(names, lines, strict=True)}}
        for step in steps
    ]
    change = {name: _estimate(line["contrasts"]["change"]) for name, line in zip(names, lines, strict=True)}
    chosen = [_example(steps, rows, row) for row in range(min(examples, len(rows)))]
    return {"points": points, "change": change, "examples": chosen}


def _outcomes(table: pd.DataFrame, rows: HeldOutRows) -> pd.DataFrame:
    # Each distance becomes a metric, so the statistics of the reports apply.
    means = by_row(table).assign(image_id=rows.names).reset_index(names="item")
    return means.melt(["item", "image_id"], var_name="metric").assign(benchmark=BENCHMARK, subset="all", aspect="")


def _estimate(line: dict[str, float]) -> dict[str, float]:
    return {key: line[key] for key in ("value", "low", "high")}


def _example(steps: Tables, rows: HeldOutRows, row: int) -> dict[str, Any]:
    points = []
    for step, table in steps.items():
        line = table[(table["row"] == row) & (table["slot"] == 0)].iloc[0]
        points.append({"step": step, **{name: float(line[name]) for name in PAIRS}})
    texts = {"caption": rows.captions[row], "negative_caption": rows.negatives[row][0]}
    return {"row": row, "image_id": rows.names[row], **texts, "points": points}


SCHEMA_VERSION = 1
FIGURE = "embeddings.png"
EXAMPLE_SIZE = 160  # pixels of the longer side
DISTANCE = Unit(1, 3)
ABOUT = (
    "Mean distances 1 - cosine (0 to 2) over {rows} rows of {source}, each with its negatives; image-clustered "
    "bootstrap intervals (95%). The runs are those of {setting}, seed {seed}; variation between seeds is not shown.",
    "The perturbed image is image + (negative text - text), normalized, computed from each model's own embeddings "
    "(AHNPL, Eqs. 1 and 2; the layout follows its Table 5).",
    "The last line of a table is the percentage of rows whose image is nearer to its text than to each negative.",
    "The run times of these runs include writing checkpoints.",
)
CAPTION = (
    "Means over {rows} rows of {source}, each with its negatives; bands: image-clustered bootstrap intervals (95%). "
    "One run per panel: {setting}, seed {seed}. {caveat}"
)


def report_paths(
    folder: Path, tables: dict[str, Tables], rows: HeldOutRows, about: Mapping[str, Any], *, examples: int, caveat: str
) -> Section:
    """Writes `embeddings.json` and returns the report section with a figure and pictures of the examples."""
    variants = summarize_paths(tables, rows, examples)
    facts = {"setting": about["setting"], "seed": about["seed"], "rows": len(rows), "source": rows.source}
    contents = {**facts, "digest": rows.digest, "plan": about["plan"], "variants": variants}
    files.write_results(folder / "embeddings.json", {"embeddings_schema_version": SCHEMA_VERSION, **contents})
    parts: list[Part] = [Lines([text.format(**facts) for text in ABOUT]), _figure(variants, caveat, facts)]
    parts += [_means_table(variant, summary) for variant, summary in variants.items()]
    for number, example in enumerate(next(iter(variants.values()))["examples"], start=1):
        name = f"embeddings-example-{number}.png"
        parts.append(Picture(name, f"image of example {number}", _small_png(rows, example["row"])))
        texts = {"text": example["caption"], "negative text": example["negative_caption"]}
        parts.append(Lines([f"{kind}: {text}" for kind, text in texts.items()]))
        same_row = {variant: summary["examples"][number - 1] for variant, summary in variants.items()}
        parts.append(_example_table(number, same_row))
    return Section("Embeddings over training", parts)


def _figure(variants: dict[str, Any], caveat: str, facts: dict[str, Any]) -> Figure:
    axes = "training step (0: base)", "mean distance, 1 - cosine"
    panels = []
    for variant, summary in variants.items():
        curves = {name: [(point["step"], point[name]) for point in summary["points"]] for name in PAIRS}
        panels.append(Curves(variant, axes, curves, DISTANCE))
    title = figure_title("Distances between embeddings over training", caveat)
    return Figure(FIGURE, title, panels, CAPTION.format(caveat=caveat, **facts))


def _stages(steps: list[int]) -> dict[str, int]:
    """The steps of a table as in the paper: base, middle and end of training."""
    middle = middle_step(steps)
    between = {} if middle is None else {f"step {middle:,}": middle}
    return {"base": BASE_STEP, **between, f"step {steps[-1]:,} (end)": steps[-1]}


def _means_table(variant: str, summary: dict[str, Any]) -> Table:
    by_step = {point["step"]: point for point in summary["points"]}
    stages = _stages(list(by_step))
    rows = []
    for name in (*PAIRS, NEAREST):
        unit = DISTANCE if name in PAIRS else PERCENT
        values = [with_interval(by_step[step][name], unit) for step in stages.values()]
        label = name if name in PAIRS else "nearest to its text, %"
        rows.append([label, *values, with_interval(summary["change"][name], unit, "+")])
    return Table(f"{variant}: distances", ["pair", *stages, "end minus base"], rows)


def _example_table(number: int, variants: dict[str, dict[str, Any]]) -> Table:
    """The paper's table: one row per pair; columns for the base and then for each variant's stages."""
    header, columns = ["pair"], []
    for variant, example in variants.items():
        by_step = {point["step"]: point for point in example["points"]}
        for stage, step in _stages(list(by_step)).items():
            if step != BASE_STEP or not columns:
                header.append(stage if step == BASE_STEP else f"{variant}, {stage}")
                columns.append(by_step[step])
    rows = [[name, *(decimal(column[name], DISTANCE) for column in columns)] for name in PAIRS]
    return Table(f"Example {number}", header, rows)


def _small_png(rows: HeldOutRows, row: int) -> bytes:
    # Tiny sandbox images are enlarged.
    image = decode_image(rows.images[row])
    factor = EXAMPLE_SIZE / max(image.size)
    size = tuple(max(1, round(factor * side)) for side in image.size)
    content = io.BytesIO()
    image.resize(size, Image.Resampling.NEAREST if factor > 1 else Image.Resampling.LANCZOS).save(content, "PNG")
    return content.getvalue()
