"""The card of a run of a recipe, from what its folder holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import ModelCardData

from hfcomp.checksums import read_checked
from hfcomp.data.publishing import is_absolute, is_on_hub, without_local_paths
from hfcomp.reporting import tables
from hfcomp.reporting.cards.card import (
    BASE_PLACE,
    FORGETTING,
    PLACE,
    TERMS,
    Card,
    Interpolation,
    evaluate_command,
    write_card,
)
from hfcomp.reporting.cards.metadata import card_metadata, eval_files, eval_results
from hfcomp.reporting.cards.methods import find_method, values_table, without_secrets
from hfcomp.reporting.lines import Line, as_last, general_of, models_of, of_aspect, standing
from hfcomp.reporting.report import Lines, Section, Table
from hfcomp.run_folders import (
    ADAPTER_FOLDER,
    CONTROLS_FOLDER,
    METHOD_FOLDER,
    guarded_folder,
    unguarded_name,
)
from hfcomp.statistics.results import RESULTS_FILE
from hfcomp.statistics.summary import BASE
from hfcomp.writing import write_bytes

MERGED = "The results are those of the model that this adapter makes of its base: they differ by rounding only."
FIGURE = "figure.png"
FIGURE_TEXT = "composition and general abilities of every model of the run, with 95 % intervals"
LOST = "Rerun the recipe: its finished stages are kept."
OVERLAP = "overlap: "
CONTROL = "InfoNCETrainer"
BASES = {
    "sandbox": "hfcomp's sandbox CLIP",
    "sandbox-siglip": "hfcomp's sandbox SigLIP",
    "vit_b32": "a CLIP ViT-B/32 with random weights",
    "vit_tiny": "a tiny CLIP with random weights",
}
SANDBOX, SANDBOX_DATA = "sandbox", "the sandbox's drawn scenes"
SEED = 42
"""Of transformers' `TrainingArguments`."""


def write_run_cards(folder: Path, *, place: str = PLACE) -> list[Path]:
    """Writes the cards of a run: for its folder, its method, the adapter of that and what its forgetting guard chose.

    So pushing any of them brings one.

    They are made of `results.json` alone, so that a run may get new ones at any time.

    Args:
        folder: of the run.
        place: the id on the Hub that the model will have, for the code that loads it.

    Returns:
        The folders whose card was written; one whose card was changed by hand keeps it.

    Raises:
        ValueError: for a damaged `results.json`.
        FileNotFoundError: where the run has none, as it is not finished.
    """
    results = read_checked(folder / RESULTS_FILE, LOST)
    adapter = folder / METHOD_FOLDER / ADAPTER_FOLDER
    own = [folder, adapter.parent, *([adapter] if adapter.is_dir() else [])]
    models: dict[Path, str | None] = dict.fromkeys(own)
    for name in results.get("guard", {}).get("models", ()):
        trained = unguarded_name(name)
        trained_folder = METHOD_FOLDER if trained == results["method"] else f"{CONTROLS_FOLDER}/{trained}"
        models[guarded_folder(folder / trained_folder)] = name
    written = []
    for where, model in models.items():
        drawn = copy_figure(folder / FIGURE, where)
        card = run_card(results, place=place, figure=drawn, adapter=where == adapter, model=model)
        if write_card(where, card):
            written.append(where)
    return written


def run_card(
    results: Mapping[str, Any],
    *,
    place: str = PLACE,
    figure: bool = False,
    adapter: bool = False,
    model: str | None = None,
) -> Card:
    """The card of a model of a run.

    Places on this machine are cut to their last part and tokens taken out: a card is read by others.

    Args:
        results: the content of its `results.json`.
        place: the model's id on the Hub, where it is known.
        figure: whether the run's figure is beside the card.
        adapter: whether it is the card of the method's adapter, not of the merged model.
        model: its name in the results: the method (the default), or what the forgetting guard chose.
    """
    name, base_id = model or results["method"], results["config"].get("model")
    base_id = base_id if is_on_hub(base_id) else None
    results = _with_last(results, model)
    # before places are cut: what is left of one has the form of an id
    metadata = _metadata(results, name, adapter=adapter)
    results = without_local_paths(dict(results), known=_local_places(results))
    config, lines = results["config"], results["results"]
    base = config.get("model") or BASES[config.get("fresh_model", SANDBOX)]
    return Card(
        metadata=metadata,
        title=name,
        **_made(results, name, base),
        caveat=results["caveat"],
        verdict=results.get("verdict", ()),
        figure=(FIGURE, FIGURE_TEXT) if figure else None,
        results=[*result_sections(lines, results.get("general_average")), *_models(results.get("meanings", {}))],
        legend=tables.legend(lines, adjusted=tables.ADJUSTED_IN_RUNS),
        evaluate=evaluate_command(name, place, base_id),
        overlap=[found["note"].removeprefix(OVERLAP) for found in results.get("overlap", ())],
        provenance=_provenance(results, base, name, adapter=adapter),
        command=(results["command"], "bash") if results.get("command") else None,
        values=_values(results),
        recipe=yaml.safe_dump(without_secrets(config), sort_keys=True, allow_unicode=True).strip(),
        costs=tables.costs(tables.mean_stages(results.get("stages", ()))),
        environment=results.get("versions", {}),
        limits=list(_limits(results)),
        notes=[MERGED] * adapter + [note for note in results["notes"] if not note.startswith(OVERLAP)],
        place=place,
        adapter=adapter,
        base_place=base_id or BASE_PLACE,
        eval_files=eval_files(lines, benchmarks=results.get("benchmarks", {}), version=results["hfcomp_version"]),
    )


def _metadata(results: Mapping[str, Any], name: str, *, adapter: bool) -> ModelCardData:
    config, benchmarks = results["config"], results.get("benchmarks", {})
    own = config.get("evaluation_dataset") or config.get("dataset")
    return card_metadata(
        name,
        base=config.get("model"),
        datasets=[config.get("dataset"), results.get("data", {}).get("replay", {}).get("dataset")],
        results=eval_results(results["results"], own=own, benchmarks=benchmarks),
        adapter=adapter,
    )


def _values(results: Mapping[str, Any]) -> Table:
    return values_table(
        without_secrets(results["config"]),
        sources=results.get("sources", {}),
        defaults=results.get("defaults"),
        default_sources=results.get("default_sources"),
    )


def result_sections(lines: Sequence[Line], average: Line | None) -> list[Section]:
    """Values of every model; differences of the last one, on the lines that stand for others.

    Args:
        lines: as `summarize` makes them.
        average: the mean of general abilities, where it is known.
    """
    models = models_of(lines)
    reference = BASE if models[:1] == [BASE] and len(models) > 1 else None
    compared = [*standing(of_aspect(lines, "composition")), *standing(of_aspect(lines, "general"))]

    def pairs(line: Line) -> list[tuple[str, str]]:
        if line not in compared:
            return []
        others = models[:-1] if line["aspect"] == "composition" else [one for one in models[:1] if reference]
        return [(models[-1], other) for other in others]

    general = general_of(lines, average)
    return [
        section
        for section in tables.sections_of_lines(lines, pairs, reference=reference, general=general, edges=True)
        if section.shown()
    ]


def _with_last(results: Mapping[str, Any], model: str | None) -> dict[str, Any]:
    """Results with a model in the last column, as the method is."""
    if model is None:
        return dict(results)
    average = results.get("general_average")
    general = {"general_average": as_last([average], model)[0]} if average else {}
    return {**results, "results": as_last(results["results"], model), **general}


def _made(results: Mapping[str, Any], name: str, base: str) -> dict[str, Any]:
    """By what a model was made: its summary, objective, method and interpolation."""
    trained, guard = unguarded_name(name), results.get("guard", {})
    chosen = guard.get("models", {}).get(name)
    known = {"objective": results["config"].get("objective", ""), "classes": results.get("trainer_classes", ())}
    if trained != results["method"]:
        known = {"objective": CONTROL, "classes": [CONTROL]}
    tuned = f"fine-tuned with {trained} on {_data(results['config'])}"
    what = f"a point between {base} and the same model {tuned}" if chosen else f"{base}, {tuned}"
    return {
        "summary": f"A dual encoder of images and texts: {what}.",
        "objective": known["objective"],
        "method": find_method(trained, known["classes"]),
        "interpolation": Interpolation.of(chosen["alpha"], {**chosen, "on": guard["items"]}) if chosen else None,
    }


def _models(meanings: Mapping[str, str]) -> list[Section]:
    lines = [f"{name}: {meaning}" for name, meaning in meanings.items()]
    return [Section("Models", [Lines(lines)])] if lines else []


def _provenance(results: Mapping[str, Any], base: str, name: str, *, adapter: bool) -> dict[str, str]:
    """What was trained from what."""
    config, data = results["config"], results.get("data", {}).get("training", {})
    models = results.get("models", {})
    stages = {stage["name"]: stage for stage in results.get("stages", ())}
    steps, processes = stages.get(unguarded_name(name), {}).get("steps"), results.get("processes")
    parts = [f"{config['batch_size']} rows" if "batch_size" in config else ""]
    parts += [f"{steps:,} steps" if steps else ""]
    parts += [f"{processes} process{'es' * (processes > 1)}" if processes else ""]
    found = {
        "base": base,
        "weights of the base": models.get(BASE, {}).get("weights"),
        "training data": ", ".join(_training(data, config)),
        "replay": ", ".join(_replay(results.get("data", {}).get("replay", {}))),
        "batch": ", ".join(part for part in parts if part),
        "seed": _seeds(config)[0],
        "recipe": results.get("recipe"),
        "evaluation": "; ".join(_evaluation(results)),
        f"weights of {'the merged' if adapter else 'this'} model": models.get(name, {}).get("weights"),
    }
    return {name: str(value) for name, value in found.items() if value not in (None, "")}


def _training(data: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[str]:
    yield _data(config)
    yield from (f"{key} {data[key]}" for key in ("config", "split", "commit") if data.get(key))
    if "rows" in data:
        yield f"{data['rows']:,} rows"
    yield from (f"{key} {data[key]}" for key in ("captions",) if data.get(key))


def _replay(data: Mapping[str, Any]) -> Iterator[str]:
    """The general set whose rows joined every batch; nothing without one."""
    if data:
        yield SANDBOX_DATA if data["dataset"] == SANDBOX else str(data["dataset"])
        yield from (f"{key} {data[key]}" for key in ("config", "split", "commit") if data.get(key))
        yield f"{data['rows']:,} rows, {data['rows_per_batch']:,} in each batch beside those of the task"


def _evaluation(results: Mapping[str, Any]) -> Iterator[str]:
    """Each benchmark with its version and the commit that its data was read at."""
    for facts in results.get("benchmarks", {}).values():
        data = facts.get("data") or {}
        where = f", {data['place']} at {data['commit']}" if data.get("commit") else ""
        yield f"{facts['title']} (version {facts['version']}{where})"


def _seeds(config: Mapping[str, Any]) -> list[int]:
    return config.get("seeds") or [config.get("seed", SEED)]


def _data(config: Mapping[str, Any]) -> str:
    return SANDBOX_DATA if config.get("dataset") == SANDBOX else str(config.get("dataset"))


def _limits(results: Mapping[str, Any]) -> Iterator[str]:
    config = results["config"]
    if config.get("dataset") == SANDBOX:
        yield "It was trained on drawn scenes with a tiny model and does not work on photographs."
    first, *others = _seeds(config)
    if others:
        seeds = ", ".join(map(str, (first, *others)))
        yield f"The numbers are means over training runs with the seeds {seeds}; this model is that of seed {first}."
    else:
        yield (
            f"One training run (seed {first}): intervals say what other evaluation images would change, not other "
            "seeds."
        )
    yield FORGETTING
    yield "Scores on hard negatives do not show that other sentences, styles or languages are understood."
    cut = max((stage.get("truncated_text_share") or 0 for stage in results.get("stages", ())), default=0)
    if cut:
        yield f"{cut:.1%} of the training texts were longer than the text tower reads and were cut."
    for one in results.get("skipped", ()):
        yield f"Not scored: {one['benchmark']}, {one['reason']}"
    yield TERMS


def _local_places(results: Mapping[str, Any]) -> set[str]:
    """Absolute paths among the values of the configuration and the places of the models, blanks in them included."""
    models = [place.get("path") if isinstance(place, dict) else place for place in results.get("models", {}).values()]
    places = [*results["config"].values(), *models]
    return {str(place) for place in places if isinstance(place, str | Path) and is_absolute(str(place))}


def copy_figure(drawn: Path, place: Path) -> bool:
    """Copies the run's figure next to a card and removes that of an earlier run."""
    own = place / FIGURE
    if drawn.is_file():
        if own != drawn:
            write_bytes(own, drawn.read_bytes())
        return True
    own.unlink(missing_ok=True)
    return False
