"""Distances between embeddings through training as `embeddings.json` and a section of a report."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from hfcomp.analysis.embedding_distances import (
    BASE_STEP,
    NEAREST,
    PAIRS,
    HeldOutRows,
    Tables,
    middle_step,
    summarize_paths,
)
from hfcomp.data.images import decode_image
from hfcomp.metrics.units import PERCENT, Unit
from hfcomp.reporting.figures import Curves, Figure
from hfcomp.reporting.format import decimal, with_interval
from hfcomp.reporting.report import Lines, Part, Picture, Section, Table, titled
from hfcomp.statistics import results as files

SCHEMA_VERSION = 1
FIGURE = "embeddings.png"
EXAMPLE_SIZE = 160  # pixels of the longer side
DISTANCE = Unit(1, 3)
ABOUT = (
    "Mean distances 1 - cosine (0 to 2) over {rows} rows of {source}, each with its negatives; image-clustered "
    "bootstrap intervals (95 %). These are the runs of {setting}, seed {seed}; what another seed would change is not "
    "shown.",
    "The perturbed image is image + (negative text - text), normalised, of each model's own embeddings (AHNPL, Eqs. 1 "
    "and 2; the form is that of its Table 5).",
    "The last line of a table is the percentage of rows whose image is nearer to its text than to each negative.",
    "The seconds that these runs took include the writing of checkpoints.",
)
CAPTION = (
    "Means over {rows} rows of {source}, each with its negatives; bands: image-clustered bootstrap intervals (95 %). "
    "One run a panel: {setting}, seed {seed}. {caveat}"
)


def report_paths(
    folder: Path, tables: dict[str, Tables], rows: HeldOutRows, about: Mapping[str, Any], *, examples: int, caveat: str
) -> Section:
    """Writes `embeddings.json` and returns the section of a report, with a figure and images of the examples.

    Args:
        folder: that is written to.
        tables: `distances` by variant and step.
        rows: that they are of.
        about: `setting`, `seed` and `plan` of the runs that were followed.
        examples: rows that are shown one by one, the first ones.
        caveat: of a single run, below the figure.
    """
    variants = summarize_paths(tables, rows, examples)
    facts = {"setting": about["setting"], "seed": about["seed"], "rows": len(rows), "source": rows.source}
    contents = {**facts, "digest": rows.digest, "plan": about["plan"], "variants": variants}
    files.write_results(folder / "embeddings.json", {"embeddings_schema_version": SCHEMA_VERSION, **contents})
    parts: list[Part] = [Lines([text.format(**facts) for text in ABOUT]), _figure(variants, caveat, facts)]
    parts += [_means(variant, found) for variant, found in variants.items()]
    for number, example in enumerate(next(iter(variants.values()))["examples"], start=1):
        name = f"embeddings-example-{number}.png"
        parts.append(Picture(name, f"image of example {number}", _small_png(rows, example["row"])))
        texts = {"text": example["caption"], "negative text": example["negative_caption"]}
        parts.append(Lines([f"{kind}: {text}" for kind, text in texts.items()]))
        parts.append(_example(number, {variant: one["examples"][number - 1] for variant, one in variants.items()}))
    return Section("Embeddings through training", parts)


def _figure(variants: dict[str, Any], caveat: str, facts: dict[str, Any]) -> Figure:
    axes = "training step (0: base)", "mean distance, 1 - cosine"
    panels = []
    for variant, found in variants.items():
        curves = {name: [(point["step"], point[name]) for point in found["points"]] for name in PAIRS}
        panels.append(Curves(variant, axes, curves, DISTANCE))
    title = titled("Distances between embeddings through training", caveat)
    return Figure(FIGURE, title, panels, CAPTION.format(caveat=caveat, **facts))


def _stages(steps: list[int]) -> dict[str, int]:
    """The steps of a table as the paper's: base, middle and end of training."""
    middle = middle_step(steps)
    between = {} if middle is None else {f"step {middle:,}": middle}
    return {"base": BASE_STEP, **between, f"step {steps[-1]:,} (end)": steps[-1]}


def _means(variant: str, found: dict[str, Any]) -> Table:
    by_step = {point["step"]: point for point in found["points"]}
    stages = _stages(list(by_step))
    rows = []
    for name in (*PAIRS, NEAREST):
        unit = DISTANCE if name in PAIRS else PERCENT
        values = [with_interval(by_step[step][name], unit) for step in stages.values()]
        label = name if name in PAIRS else "nearest to its text, %"
        rows.append([label, *values, with_interval(found["change"][name], unit, "+")])
    return Table(f"{variant}: distances", ["pair", *stages, "end minus base"], rows)


def _example(number: int, variants: dict[str, dict[str, Any]]) -> Table:
    """The paper's table: a row per pair, the base once and then each variant's stages."""
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
    """The sandbox's tiny images are enlarged."""
    image = decode_image(rows.images[row])
    factor = EXAMPLE_SIZE / max(image.size)
    size = tuple(max(1, round(factor * side)) for side in image.size)
    content = io.BytesIO()
    image.resize(size, Image.Resampling.NEAREST if factor > 1 else Image.Resampling.LANCZOS).save(content, "PNG")
    return content.getvalue()
