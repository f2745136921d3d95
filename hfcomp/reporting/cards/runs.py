"""Model cards for recipe runs, built from the record in the run folder."""

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
from hfcomp.reporting.lines import Line, general_of, models_of, select_aspect, standing
from hfcomp.reporting.report import Lines, Section, Table
from hfcomp.reporting.run_record import ADJUSTED, RunRecord, unguarded_name
from hfcomp.run_folders import ADAPTER_FOLDER
from hfcomp.statistics.summary import BASE
from hfcomp.writing import write_bytes

MERGED = "The results were computed with this adapter merged into its base; they differ only by rounding."
FIGURE = "figure.png"
FIGURE_TEXT = "composition and general abilities of every model in the run, with 95% intervals"
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
    """Writes the cards of a run: for its folder, its method, the method's adapter and the guarded models.

    Args:
        folder: Folder of a finished run.
        place: Hub id that the model will have, for the code that loads it.

    Returns:
        The folders whose card was written; a card that was edited by hand is kept.
    """
    # Uses only the record, so cards can be rewritten at any time.
    record = RunRecord.read(folder)
    adapter = folder / record.model_folder(record.method) / ADAPTER_FOLDER
    # Each folder that may be pushed has its own card.
    own = [folder, adapter.parent, *([adapter] if adapter.is_dir() else [])]
    models: dict[Path, str | None] = dict.fromkeys(own)
    models |= {folder / record.model_folder(name): name for name in record.guarded_points}
    written = []
    for where, model in models.items():
        has_figure = copy_figure(folder / FIGURE, where)
        card = run_card(record, place=place, figure=has_figure, adapter=where == adapter, model=model)
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
    """Builds the card of a model of a run.

    Args:
        record: Record of the run.
        place: Hub id of the model, if known.
        figure: Whether the run's figure is next to the card.
        adapter: Whether this is the card of the method's adapter, not of the merged model.
        model: Name of the model in the results: the method (the default), or a model that the forgetting guard chose.
    """
    name, base_id = model or record.method, record.config.get("model")
    base_id = base_id if is_on_hub(base_id) else None
    record = _with_last(record, model)
    # Before paths are shortened, because the result "LOCAL/folder" looks like a Hub id.
    metadata = _metadata(record, name, adapter=adapter)
    # Other people read a card: local paths mean nothing to them, and tokens must not reach them.
    record = RunRecord.of(without_local_paths(record.contents(), known=_local_places(record)))
    config, lines = record.config, record.results
    base = config.get("model") or BASES[config.get("fresh_model", SANDBOX)]
    return Card(
        metadata=metadata,
        title=name,
        **_origin(record, name, base),
        caveat=record.caveat,
        verdict=record.verdict or (),
        figure=(FIGURE, FIGURE_TEXT) if figure else None,
        results=[*result_sections(lines, record.general_average), *_models(record.meanings or {})],
        legend=tables.legend(lines, adjusted=ADJUSTED, seeds=len(_seeds(config))),
        evaluate=evaluate_command(name, place, base_id),
        overlap=[facts["note"].removeprefix(OVERLAP) for facts in record.overlap or ()],
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
    """Sections with the values of every model, and the differences of the last model on representative lines.

    Args:
        lines: Lines from `summarize`.
        average: Mean of general abilities, if known.
    """
    models = models_of(lines)
    reference = BASE if models[:1] == [BASE] and len(models) > 1 else None
    compared = [*standing(select_aspect(lines, "composition")), *standing(select_aspect(lines, "general"))]

    def pairs(line: Line) -> list[tuple[str, str]]:
        if line not in compared:
            return []
        # Gains of a method are compared with every control, forgetting only with its base.
        others = models[:-1] if line["aspect"] == "composition" else [model for model in models[:1] if reference]
        return [(models[-1], other) for other in others]

    general = general_of(lines, average)
    return [
        section
        for section in tables.sections_of_lines(lines, pairs, reference=reference, general=general, edges=True)
        if section.nonempty_parts()
    ]


def _with_last(record: RunRecord, model: str | None) -> RunRecord:
    """Returns the record with a model moved to the last column, where the method is otherwise."""
    if model is None:
        return record
    average = record.general_average and as_last([record.general_average], model)[0]
    return replace(record, results=as_last(record.results, model), general_average=average)


def _origin(record: RunRecord, name: str, base: str) -> dict[str, Any]:
    """Returns summary, objective, method and interpolation of a model."""
    trained, chosen = unguarded_name(name), record.guarded_points.get(name)
    known = {"objective": record.config.get("objective", ""), "classes": record.trainer_classes or ()}
    # The guard may have chosen a point of a control, which was not trained with the run's objective.
    if trained != record.method:
        known = {"objective": CONTROL, "classes": [CONTROL]}
    tuned = f"fine-tuned with {trained} on {_data(record.config)}"
    what = f"interpolated between {base} and the same model {tuned}" if chosen else f"{base}, {tuned}"
    return {
        "summary": f"A dual encoder for images and texts: {what}.",
        "objective": known["objective"],
        "method": find_method(trained, known["classes"]),
        "interpolation": Interpolation.of(chosen["alpha"], chosen) if chosen else None,
    }


def _models(meanings: Mapping[str, str]) -> list[Section]:
    lines = [f"{name}: {meaning}" for name, meaning in meanings.items()]
    return [Section("Models", [Lines(lines)])] if lines else []


def _provenance(record: RunRecord, base: str, name: str, *, adapter: bool) -> dict[str, str]:
    """Returns base, data, batch, seed and weights of a model, by name."""
    config, data, models = record.config, record.data or {}, record.models or {}
    stages = {stage["name"]: stage for stage in record.stages or ()}
    steps, processes = stages.get(unguarded_name(name), {}).get("steps"), record.processes
    parts = [f"{config['batch_size']} rows" if "batch_size" in config else ""]
    parts += [f"{steps:,} steps" if steps else ""]
    parts += [f"{processes} process{'es' * (processes > 1)}" if processes else ""]
    facts = {
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
    return {name: str(value) for name, value in facts.items() if value not in (None, "")}


def _training(data: Mapping[str, Any], config: Mapping[str, Any]) -> Iterator[str]:
    yield _data(config)
    yield from (f"{key} {data[key]}" for key in ("config", "split", "commit") if data.get(key))
    if "rows" in data:
        yield f"{data['rows']:,} rows"
    yield from (f"{key} {data[key]}" for key in ("captions",) if data.get(key))


def _replay(data: Mapping[str, Any]) -> Iterator[str]:
    """Yields facts about the general dataset whose rows joined every batch, if any."""
    if data:
        yield SANDBOX_DATA if data["dataset"] == SANDBOX else str(data["dataset"])
        yield from (f"{key} {data[key]}" for key in ("config", "split", "commit") if data.get(key))
        yield f"{data['rows']:,} rows, {data['rows_per_batch']:,} in each batch in addition to the task's rows"


def _evaluation(benchmarks: Mapping[str, Any]) -> Iterator[str]:
    """Yields each benchmark with its version and the commit of its data."""
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
        yield "This tiny model was trained on drawn scenes and does not work on photographs."
    first, *others = _seeds(config)
    if others:
        seeds = ", ".join(map(str, (first, *others)))
        yield f"The numbers are means over training runs with the seeds {seeds}; this model was trained with {first}."
    else:
        yield (
            f"There is one training run (seed {first}): intervals cover variation between evaluation images, not "
            "between seeds."
        )
    yield FORGETTING
    yield "Scores on hard negatives do not show that the model understands other sentences, styles or languages."
    truncated = max((stage.get("truncated_text_share") or 0 for stage in record.stages or ()), default=0)
    if truncated:
        yield f"{truncated:.1%} of the training texts exceeded the text tower's maximum length and were truncated."
    for skipped in record.skipped or ():
        yield f"Not scored: {skipped['benchmark']}, {skipped['reason']}"
    yield TERMS


def _local_places(record: RunRecord) -> set[str]:
    """Returns absolute paths in the configuration and in the models' locations."""
    # A complete path can be replaced inside a sentence even if it contains spaces.
    models = [place.get("path") if isinstance(place, dict) else place for place in (record.models or {}).values()]
    places = [*record.config.values(), *models]
    return {str(place) for place in places if isinstance(place, str | Path) and is_absolute(str(place))}


def copy_figure(figure: Path, place: Path) -> bool:
    """Copies the run's figure next to a card, or removes the figure of an earlier run."""
    own = place / FIGURE
    if figure.is_file():
        if own != figure:
            write_bytes(own, figure.read_bytes())
        return True
    own.unlink(missing_ok=True)
    return False
