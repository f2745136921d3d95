"""From followed embeddings to `embeddings.json`, `embeddings.png` and their part of a sweep's report."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from PIL import Image

from hfcomp.data.images import decode_image
from hfcomp.evaluation import results as files
from hfcomp.experiments.comparison import Unit, percent, points, with_interval
from hfcomp.experiments.embedding_distances import BASE_STEP, NEAREST, PAIRS, middle_step, summarize_paths
from hfcomp.experiments.embedding_paths import EmbeddingPaths
from hfcomp.experiments.embedding_paths_figure import draw_paths
from hfcomp.experiments.embedding_rows import HeldOutRows
from hfcomp.experiments.sheets import Sheet, escaped, markdown_table
from hfcomp.experiments.sweep_results import SweepPlan
from hfcomp.writing import write_bytes

SCHEMA_VERSION = 1
FIGURE = "embeddings.png"
EXAMPLE_SIZE = 160  # pixels of the longer side
DISTANCE = Unit(1, 3)
LEGEND = (
    "Mean distances 1 - cosine (0 to 2) over {rows} rows of {source}, each with its negatives; intervals of 95 % "
    "draw whole images. These are the runs of {setting}, seed {seed}; what another seed would change is not "
    "shown. The perturbed image is image + (negative text - text), normalised, of each model's own embeddings (AHNPL, "
    "Eqs. 1 and 2; the form is that of its Table 5). The last line of a table is no distance but the percentage of "
    "rows whose image is nearer to its text than to each of its negatives. The seconds that these runs took include "
    "the writing of checkpoints."
)
CAPTION = (
    "Means over {rows} rows of {source}, each with its negatives; bands: 95 % intervals that draw whole images.\n"
    "One run a panel: {setting}, seed {seed}. {caveat}"
)


def write_paths(paths: EmbeddingPaths, plan: SweepPlan, caveat: str) -> list[str]:
    """Writes `embeddings.json`, with matplotlib `embeddings.png`, and the examples' images `embeddings-example-1.png`.

    Args:
        paths: whose variants are trained and scored.
        plan: of the sweep.
        caveat: of a single run, below the figure.

    Returns:
        Lines of Markdown for the sweep's report.
    """
    variants = summarize_paths(paths.tables, paths.rows, paths.plan.examples)
    facts = {"setting": plan.settings[0], "seed": plan.seeds[0], "rows": len(paths.rows), "source": paths.rows.source}
    contents = {**facts, "digest": paths.rows.digest, "plan": paths.plan.model_dump(), "variants": variants}
    files.write_results(paths.folder / "embeddings.json", {"embeddings_schema_version": SCHEMA_VERSION, **contents})
    lines = ["## Embeddings through training", "", escaped(LEGEND.format(**facts)), ""]
    if draw_paths(paths.folder / FIGURE, variants, CAPTION.format(caveat=caveat, **facts)):
        lines += [f"![distances between embeddings, one panel a variant]({FIGURE})", ""]
    for variant, found in variants.items():
        sheet = _means(variant, found)
        lines += [f"### {escaped(sheet.title)}", "", *markdown_table(sheet), ""]
    examples = next(iter(variants.values()))["examples"]
    for number, example in enumerate(examples, start=1):
        image = f"embeddings-example-{number}.png"
        _write_image(paths.folder / image, paths.rows, example["row"])
        sheet = _example(number, {variant: found["examples"][number - 1] for variant, found in variants.items()})
        lines += [f"### {sheet.title}", "", f"![image of example {number}]({image})", ""]
        lines += [f"- text: {escaped(example['caption'])}", f"- negative text: {escaped(example['negative_caption'])}"]
        lines += ["", *markdown_table(sheet), ""]
    return lines


def _stages(steps: list[int]) -> dict[str, int]:
    """The steps of a table as the paper's: base, middle and end of training."""
    middle = middle_step(steps)
    between = {} if middle is None else {f"step {middle:,}": middle}
    return {"base": BASE_STEP, **between, f"step {steps[-1]:,} (end)": steps[-1]}


def _means(variant: str, found: dict[str, Any]) -> Sheet:
    by_step = {point["step"]: point for point in found["points"]}
    stages = _stages(list(by_step))
    rows = []
    for name in (*PAIRS, NEAREST):
        unit = DISTANCE if name in PAIRS else Unit(100, 1)
        values = [with_interval(by_step[step][name], unit) for step in stages.values()]
        rows.append(
            [name if name in PAIRS else "nearest to its text, %", *values, points(found["change"][name], unit)]
        )
    return Sheet(f"{variant}: distances", ["pair", *stages, "end minus base"], rows)


def _example(number: int, variants: dict[str, dict[str, Any]]) -> Sheet:
    """The paper's table: a row per pair, the base once and then each variant's stages."""
    header, columns = ["pair"], []
    for variant, example in variants.items():
        by_step = {point["step"]: point for point in example["points"]}
        for stage, step in _stages(list(by_step)).items():
            if step != BASE_STEP or not columns:
                header.append(stage if step == BASE_STEP else f"{variant}, {stage}")
                columns.append(by_step[step])
    rows = [[name, *(percent(column[name], DISTANCE) for column in columns)] for name in PAIRS]
    return Sheet(f"Example {number}", header, rows)


def _write_image(path: Path, rows: HeldOutRows, row: int) -> None:
    """A small PNG; the sandbox's tiny images are enlarged."""
    image = decode_image(rows.images[row])
    share = EXAMPLE_SIZE / max(image.size)
    size = tuple(max(1, round(share * side)) for side in image.size)
    content = io.BytesIO()
    image.resize(size, Image.Resampling.NEAREST if share > 1 else Image.Resampling.LANCZOS).save(content, "PNG")
    write_bytes(path, content.getvalue())
