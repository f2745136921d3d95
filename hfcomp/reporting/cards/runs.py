"""The card of a run of a recipe, from the record in its folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import ModelCardData

from hfcomp.data.publishing import is_absolute, is_on_hub, without_local_paths
from hfcomp.reporting import made_tables, tables
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
from hfcomp.reporting.line_values import as_last
from hfcomp.reporting.lines import Line, general_of, models_of, of_aspect, standing
from hfcomp.reporting.report import Lines, Section, Table
from hfcomp.reporting.run_record import ADJUSTED, RunRecord, unguarded_name
from hfcomp.run_folders import ADAPTER_FOLDER
from hfcomp.statistics.summary import BASE
from hfcomp.writing import write_bytes

MERGED = "The results are those of the model that this adapter makes of its base: they differ by rounding only."
FIGURE = "figure.png"
FIGURE_TEXT = "composition and general abilities of every model of the run, with 95% intervals"
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
"""The default of transformers' `TrainingArguments`."""


def write_run_cards(folder: Path, *, place: str = PLACE) -> list[Path]:
    """Writes the cards of a run: for its folder, its method, the method's adapter and what its forgetting guard chose.

    Args:
        folder: Folder of a finished run.
        place: Hub id that the model will have, for the code that loads it.

    Returns:
        The folders whose card was written; a card that was changed by hand stays.
    """
    # Written only from the record, so a run can get new cards at any time.
    record = RunRecord.read(folder)
    adapter = folder / record.model_folder(record.method) / ADAPTER_FOLDER
    # Each folder that may be pushed has a card of its own.
    own = [folder, adapter.parent, *([adapter] if adapter.is_dir() else [])]
    models: dict[Path, str | None] = dict.fromkeys(own)
    models |= {folder / record.model_folder(name): name for name in record.guarded}
    written = []
    for where, model in models.items():
        drawn = copy_figure(folder / FIGURE, where)
        card = run_card(record, place=place, figure=drawn, adapter=where == adapter, model=model)
        if write_card(where, card):
            written.append(where)
    return written


def run_card(
    record: RunRecord,
    *,
    place: str = PLACE,
    figure: bool = False,
    adapter: bool = False,
    model: str | None = None,
) -> Card:
    """The card of a model of a run.

    Args:
        record: Record of the run.
        place: Hub id of the model, if it is known.
        figure: Whether the run's figure is next to the card.
        adapter: Whether it is the card of the method's adapter, not of the merged model.
        model: Name of the model in the results: the method (the default), or what the forgetting guard chose.
    """
    name, base_id = model or record.method, record.config.get("model")
    base_id = base_id if is_on_hub(base_id) else None
    record = _with_last(record, model)
    # Before paths are cut: "LOCAL/folder", which is left of one, has the form of a Hub id.
    metadata = _metadata(record, name, adapter=adapter)
    # A card is read by others, for whom paths mean nothing and tokens are not meant.
    record = RunRecord.of(without_local_paths(record.contents(), known=_local_places(record)))
    config, lines = record.config, record.results
    base = config.get("model") or BASES[config.get("fresh_model", SANDBOX)]
    return Card(
        metadata=metadata,
        title=name,
        **_made(record, name, base),
        caveat=record.caveat,
        verdict=record.verdict or (),
        figure=(FIGURE, FIGURE_TEXT) if figure else None,
        results=[*result_sections(lines, record.general_average), *_models(record.meanings or {})],
        legend=tables.legend(lines, adjusted=ADJUSTED),
        evaluate=evaluate_command(name, place, base_id),
        overlap=[found["note"].removeprefix(OVERLAP) for found in record.overlap or ()],
        provenance=_provenance(record, base, name, adapter=adapter),
        command=(record.command, "bash") if record.command else None,
        values=_values(record),
        recipe=yaml.safe_dump(without_secrets(config), sort_keys=True, allow_unicode=True).strip(),
        costs=made_tables.costs(made_tables.mean_stages(record.stages or ())),
        environment=record.versions or {},
        limits=list(_limits(record)),
        notes=[MERGED] * adapter + [note for note in record.notes if not note.startswith(OVERLAP)],
        place=place,
        adapter=adapter,
        base_place=base_id or BASE_PLACE,
        eval_files=eval_files(lines, benchmarks=record.benchmarks or {}, version=record.hfcomp_version),
    )


def _metadata(record: RunRecord, name: str, *, adapter: bool) -> ModelCardData:
    config = record.config
    own = config.get("evaluation_dataset") or config.get("dataset")
    return card_metadata(
        name,
        base=config.get("model"),
        datasets=[config.get("dataset"), (record.data or {}).get("replay", {}).get("dataset")],
        results=eval_results(record.results, own=own, benchmarks=record.benchmarks or {}),
        adapter=adapter,
    )


def _values(record: RunRecord) -> Table:
    return values_table(
        without_secrets(record.config),
        sources=record.sources or {},
        defaults=record.defaults,
        default_sources=record.default_sources,
    )


def result_sections(lines: Sequence[Line], average: Line | None) -> list[Section]:
    """Values of every model; differences of the last one, on the lines that stand for others.

    Args:
        lines: Lines of `summarize`.
        average: The mean of general abilities, if it is known.
    """
    models = models_of(lines)
    reference = BASE if models[:1] == [BASE] and len(models) > 1 else None
    compared = [*standing(of_aspect(lines, "composition")), *standing(of_aspect(lines, "general"))]

    def pairs(line: Line) -> list[tuple[str, str]]:
        if line not in compared:
            return []
        # What a method gains is compared with every control; what it forgets, with the base it came from.
        others = models[:-1] if line["aspect"] == "composition" else [one for one in models[:1] if reference]
        return [(models[-1], other) for other in others]

    general = general_of(lines, average)
    return [
        section
        for section in tables.sections_of_lines(lines, pairs, reference=reference, general=general, edges=True)
        if section.shown()
    ]


def _with_last(record: RunRecord, model: str | None) -> RunRecord:
    """The record with a model in the last column, as the method is."""
    if model is None:
        return record
    average = record.general_average and as_last([record.general_average], model)[0]
    return replace(record, results=as_last(record.results, model), general_average=average)


def _made(record: RunRecord, name: str, base: str) -> dict[str, Any]:
    """How a model was made: its summary, objective, method and interpolation."""
    trained, chosen = unguarded_name(name), record.guarded.get(name)
    known = {"objective": record.config.get("objective", ""), "classes": record.trainer_classes or ()}
    # The guard may have chosen a point of a control, which was not trained with the run's objective.
    if trained != record.method:
        known = {"objective": CONTROL, "classes": [CONTROL]}
    tuned = f"fine-tuned with {trained} on {_data(record.config)}"
    what = f"a point between {base} and the same model {tuned}" if chosen else f"{base}, {tuned}"
    return {
        "summary": f"A dual encoder of images and texts: {what}.",
        "objective": known["objective"],
        "method": find_method(trained, known["classes"]),
        "interpolation": Interpolation.of(chosen["alpha"], chosen) if chosen else None,
    }


def _models(meanings: Mapping[str, str]) -> list[Section]:
    lines = [f"{name}: {meaning}" for name, meaning in meanings.items()]
    return [Section("Models", [Lines(lines)])] if lines else []


def _provenance(record: RunRecord, base: str, name: str, *, adapter: bool) -> dict[str, str]:
    """What was trained from what."""
    config, data, models = record.config, record.data or {}, record.models or {}
    stages = {stage["name"]: stage for stage in record.stages or ()}
    steps, processes = stages.get(unguarded_name(name), {}).get("steps"), record.processes
    parts = [f"{config['batch_size']} rows" if "batch_size" in config else ""]
    parts += [f"{steps:,} steps" if steps else ""]
    parts += [f"{processes} process{'es' * (processes > 1)}" if processes else ""]
    found = {
        "base": base,
        "weights of the base": models.get(BASE, {}).get("weights"),
        "training data": ", ".join(_training(data.get("training", {}), config)),
        "replay": ", ".join(_replay(data.get("replay", {}))),
        "batch": ", ".join(part for part in parts if part),
        "seed": _seeds(config)[0],
        "recipe": record.recipe,
        "evaluation": "; ".join(_evaluation(record.benchmarks or {})),
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


def _evaluation(benchmarks: Mapping[str, Any]) -> Iterator[str]:
    """Each benchmark with its version and the commit that its data was read at."""
    for facts in benchmarks.values():
        data = facts.get("data") or {}
        where = f", {data['place']} at {data['commit']}" if data.get("commit") else ""
        yield f"{facts['title']} (version {facts['version']}{where})"


def _seeds(config: Mapping[str, Any]) -> list[int]:
    return config.get("seeds") or [config.get("seed", SEED)]


def _data(config: Mapping[str, Any]) -> str:
    return SANDBOX_DATA if config.get("dataset") == SANDBOX else str(config.get("dataset"))


def _limits(record: RunRecord) -> Iterator[str]:
    config = record.config
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
    cut = max((stage.get("truncated_text_share") or 0 for stage in record.stages or ()), default=0)
    if cut:
        yield f"{cut:.1%} of the training texts were longer than the text tower reads and were cut."
    for one in record.skipped or ():
        yield f"Not scored: {one['benchmark']}, {one['reason']}"
    yield TERMS


def _local_places(record: RunRecord) -> set[str]:
    """Absolute paths among the values of the configuration and the places of the models."""
    # Paths that are known as a whole can be replaced inside sentences even if they contain blanks.
    models = [place.get("path") if isinstance(place, dict) else place for place in (record.models or {}).values()]
    places = [*record.config.values(), *models]
    return {str(place) for place in places if isinstance(place, str | Path) and is_absolute(str(place))}


def copy_figure(drawn: Path, place: Path) -> bool:
    """Copies the run's figure next to a card, or removes that of an earlier run."""
    own = place / FIGURE
    if drawn.is_file():
        if own != drawn:
            write_bytes(own, drawn.read_bytes())
        return True
    own.unlink(missing_ok=True)
    return False
