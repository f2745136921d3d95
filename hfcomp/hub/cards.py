"""Model cards: the table, results as metadata, and how the model was trained."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCardData

from hfcomp.data.publishing import fenced, is_absolute, is_on_hub, without_local_paths
from hfcomp.writing import write_bytes, write_text

PLACE = "<this model's id or folder>"
"""In a card, what a push replaces by the id of the repository."""
USE = f"""```python
from transformers import AutoModel, AutoProcessor

model = AutoModel.from_pretrained("{PLACE}")
processor = AutoProcessor.from_pretrained("{PLACE}")
```"""
PIPELINE_TAG = "zero-shot-image-classification"
FIGURE = "figure.png"
FIGURE_TEXT = "composition and general abilities of every model of the run, with 95 % intervals"
# Benchmarks whose name begins so are synthetic.
SYNTHETIC = "sandbox"
# What a set of the user's own is called in results.
OWN = "own"


def write_model_card(
    folder: Path, *, report: str, facts: dict[str, Any], lines: Sequence[dict[str, Any]], method_folder: str = "method"
) -> None:
    """Writes `README.md` for the run and for the folder of its method, so that pushing either brings its card.

    Absolute paths are cut to their last part and tokens taken out: a card is read by others. A `figure.png` of the run
    is shown, and copied to the method's folder for its card.

    Args:
        folder: of the run.
        report: the text of `report.md`.
        facts: `method`, `config` (what the recipe and the command line set), `hfcomp_version`, and where known
            `models` (name to place, or to a mapping with `path`) and `overlap` (a list with a `note` each).
        lines: as `hfcomp.statistics.results` makes them; the last model's values become `model-index`.
        method_folder: of the plain model, inside `folder`.
    """
    config = without_local_paths({key: value for key, value in facts["config"].items() if "token" not in key})
    data = card_data(facts, lines).to_yaml()
    values = yaml.safe_dump(config, sort_keys=True, allow_unicode=True).strip()
    report = without_local_paths(report, known=_local_places(facts)).strip()
    rest = ["## Use", "A plain model, without code of hfcomp:", USE, "## Training"]
    rest += [html.escape(without_local_paths(found["note"]), quote=False) for found in facts.get("overlap", ())]
    rest += [f"Trained with hfcomp {facts['hfcomp_version']}; the recipe:", fenced(values, "yaml")]
    for place in (folder, folder / method_folder):
        picture = _figure(folder / FIGURE, place)
        parts = [f"---\n{data}\n---", _with_figure(report, picture), *rest]
        write_text(place / "README.md", "\n\n".join(parts) + "\n")


def plain_card(folder: Path, *, run: Path | None = None) -> str:
    """The card of a model that has none of its own, such as a control.

    Args:
        folder: of the model.
        run: the folder of the run that it is of.
    """
    data = ModelCardData(library_name="transformers", pipeline_tag=PIPELINE_TAG, tags=["hfcomp", "compositionality"])
    name = folder.name if run is None else folder.relative_to(run).as_posix()
    text = (
        "Trained with hfcomp." if run is None else f"`{name}` of a run of hfcomp; its `results.json` has the numbers."
    )
    return "\n\n".join([f"---\n{data.to_yaml()}\n---", f"# {name}", text, "## Use", USE]) + "\n"


def card_data(facts: dict[str, Any], lines: Sequence[dict[str, Any]]) -> ModelCardData:
    """The metadata of a card: what the Hub searches by, and the method's results.

    Args:
        facts: `method` and `config`.
        lines: as `hfcomp.statistics.results` makes them.
    """
    config = facts["config"]
    model, dataset = config.get("model"), config.get("dataset")
    results = [_eval_result(line, config) for line in lines]
    return ModelCardData(
        library_name="transformers",
        pipeline_tag=PIPELINE_TAG,
        tags=["hfcomp", "compositionality", _slug(facts["method"])],
        base_model=model if is_on_hub(model) else None,
        datasets=[dataset] if is_on_hub(dataset) else None,
        model_name=facts["method"] if results else None,
        eval_results=results or None,
    )


def _local_places(facts: dict[str, Any]) -> set[str]:
    """Absolute paths among the values of the configuration and the places of the models."""
    models = [place.get("path") if isinstance(place, dict) else place for place in facts.get("models", {}).values()]
    places = [*facts["config"].values(), *models]
    return {str(place) for place in places if isinstance(place, str | Path) and is_absolute(str(place))}


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _eval_result(line: dict[str, Any], config: dict[str, Any]) -> EvalResult:
    """The value of the last model on a line, from 0 to 1."""
    benchmark, metric = line["benchmark"], line["metric"]
    kind, name = _slug(benchmark), benchmark
    if benchmark.split()[0].lower() == SYNTHETIC:
        kind, name = f"hfcomp-{kind}", f"{benchmark} (synthetic)"
    elif benchmark == OWN:
        source = config.get("evaluation_dataset") or config.get("dataset") or OWN
        kind = source if is_on_hub(source) else OWN
        name = f"{OWN}: {without_local_paths(source)}"
    return EvalResult(
        task_type=_task(line),
        dataset_type=kind,
        dataset_name=name,
        dataset_config=line["subset"],
        metric_type=_slug(metric),
        metric_name=metric,
        metric_value=round(list(line["models"].values())[-1]["value"], 4),
    )


def _task(line: dict[str, Any]) -> str:
    if line["aspect"] == "composition":
        return "image-text-matching"
    return "image-text-retrieval" if "recall" in line["metric"] else "zero-shot-image-classification"


def _figure(drawn: Path, place: Path) -> bool:
    """Copies the run's figure next to a card and removes that of an earlier run."""
    own = place / FIGURE
    if drawn.is_file():
        if own != drawn:
            write_bytes(own, drawn.read_bytes())
        return True
    own.unlink(missing_ok=True)
    return False


def _with_figure(report: str, shown: bool) -> str:
    """The report with the picture before its first table."""
    if not shown:
        return report
    head, heading, tables = report.partition("\n## ")
    return f"{head.rstrip()}\n\n![{FIGURE_TEXT}]({FIGURE})\n{heading}{tables}".rstrip()
