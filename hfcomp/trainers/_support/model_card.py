"""The card of a model that a trainer saves: what it knows about the training, and that no benchmark was scored."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

from hfcomp.data.loading import read_from_hub
from hfcomp.data.publishing import is_on_hub, without_local_paths
from hfcomp.remote_code import run_code
from hfcomp.reporting.cards.card import BASE_PLACE, PLACE, TERMS, Card, evaluate_command
from hfcomp.reporting.cards.metadata import card_metadata
from hfcomp.reporting.cards.methods import SET, class_names, find_method, is_secret, values_table
from hfcomp.reporting.report import Section, Table
from hfcomp.statistics.results import versions
from hfcomp.trainers._support.replay import replay_line
from hfcomp.trainers._support.transformers_internals import train_batch_size
from hfcomp.trainers.config import default_sources, field_default, objective_fields

# Prefixes of arguments that set where a run writes, what it logs, saves and pushes, and when it evaluates.
PLUMBING = (
    *("output_", "hub_", "push_", "log_", "logging_", "save_", "eval_", "report_", "run_", "disable_", "trackio_"),
    *("project", "dataloader_num_", "dataloader_pin_", "dataloader_pers", "dataloader_pref", "do_", "ddp_"),
    *("local_rank", "load_best_", "metric_for_", "greater_is_", "per_device_eval_", "url_", "use_cpu", "pixel_cache"),
)
PLAIN = (str, int, float, bool, list, dict)
DURING_TRAINING = "Scores during training"
EVALUATION = "eval_"
NOT_SCORED = "Gains over the base model and forgetting are unknown, because the models were not compared."
ROWS = "rows"


@dataclass(frozen=True)
class _Source:
    """Origin of the training data and the base, as far as the trainer knows it.

    `place` is the base's id or folder, and `base` its name for other readers. `data` holds Hub ids, and `commit` and
    `split` belong to the rows.
    """

    place: str
    base: str
    revision: str | None
    data: list[str]
    commit: str | None
    split: str | None


def trainer_card(
    trainer: Any, *, base: str | None = None, datasets: Sequence[str] = (), tags: Sequence[str] = (), **extra: Any
) -> Card:
    """Builds the card of a trainer's model.

    Args:
        base: The fine-tuned base model, if the model does not name it.
        datasets: Hub ids of the training data, if the rows do not name them.
        extra: Further metadata, such as `license` and `language`.
    """
    kind, source = type(trainer), _source(trainer, base, datasets)
    method = find_method(None, class_names(kind))
    name = method.name if method else kind.__name__
    place = next((name for name in (trainer.hub_model_id, trainer.args.hub_model_id) if is_on_hub(name)), PLACE)
    adapter, base_id = trainer.model.is_peft, source.place if is_on_hub(source.place) else None
    values = changed_values(trainer.args)
    data = ", ".join(source.data) or "local data"
    metadata = card_metadata(name, base=source.place, datasets=source.data, tags=tags, adapter=adapter, **extra)
    return Card(
        metadata=metadata,
        title=name,
        summary=f"An image-text dual encoder: {source.base} fine-tuned with {kind.__name__} on {data}.",
        objective=f"{kind.__module__}:{kind.__name__}",
        method=method,
        results=list(_results(trainer.state.log_history)),
        evaluate=evaluate_command(name, place, base_id),
        provenance=_provenance(trainer, source),
        command=(_snippet(trainer, source, values), "python"),
        values=_values(trainer.args, values),
        costs=_costs(trainer),
        environment=versions(),
        limits=[NOT_SCORED, TERMS],
        place=place,
        adapter=adapter,
        base_place=base_id or BASE_PLACE,
    )


def _values(args: Any, changed: Mapping[str, Any]) -> Table:
    unchanged = [member for member in objective_fields(type(args)) if member.name not in changed]
    return values_table(
        changed,
        sources=dict.fromkeys(changed, SET),
        defaults={member.name: field_default(member) for member in unchanged},
        default_sources=default_sources(unchanged),
    )


def changed_values(args: Any) -> dict[str, Any]:
    """Returns the arguments of a training run that differ from their defaults, without plumbing and secrets."""
    values = {}
    for member in fields(args):
        value, default = getattr(args, member.name), field_default(member)
        value = value.value if isinstance(value, Enum) else value
        # transformers fills in empty fields when it creates a config: None becomes False, or an empty list.
        unset = value in (default, [], {}) or (default is None and value is False)
        if member.init and isinstance(value, PLAIN) and not (unset or is_secret(member.name)):
            values[member.name] = value
    return {name: value for name, value in values.items() if not name.startswith(PLUMBING)}


def as_list(value: str | Sequence[str] | None) -> list[str]:
    return [value] if isinstance(value, str) else list(value or ())


def _source(trainer: Any, base: str | None, datasets: Sequence[str]) -> _Source:
    plain, rows = trainer.model.plain, getattr(trainer.train_dataset, "dataset", None)
    place = base or plain.name_or_path or ""
    origin = read_from_hub(rows) if hasattr(rows, "info") else None
    return _Source(
        place=place,
        base=without_local_paths(place) or f"a {type(plain).__name__} created in memory",
        revision=getattr(plain.config, "_commit_hash", None),
        data=list(datasets) or ([origin[0]] if origin else []),
        commit=origin[1] if origin else None,
        split=str(rows.split) if getattr(rows, "split", None) else None,
    )


def _provenance(trainer: Any, source: _Source) -> dict[str, str]:
    args, rows = trainer.args, getattr(trainer.train_dataset, "dataset", None)
    size, fingerprint = len(rows) if hasattr(rows, "__len__") else None, getattr(rows, "_fingerprint", None)
    data = {
        "": ", ".join(source.data),
        "commit ": source.commit,
        "split ": source.split,
        "rows: ": "streamed" if size is None else f"{size:,}",
        "fingerprint ": fingerprint,
    }
    number = args.world_size
    batch = f"{train_batch_size(trainer) * number} {args.batch_unit} on {number} process{'es' * (number > 1)}"
    facts = {
        "base": source.base,
        "base revision": source.revision,
        "model code": run_code(trainer.model.plain),
        "training data": ", ".join(f"{name}{value}" for name, value in data.items() if value) if rows else None,
        "batch": f"{batch}, {trainer.state.global_step:,} steps",
        "replay": replay_line(trainer),
        "seed": args.seed,
    }
    return {name: str(value) for name, value in facts.items() if value is not None}


def _snippet(trainer: Any, source: _Source, values: Mapping[str, Any]) -> str:
    """Returns code that retrains the model."""
    kind, config = type(trainer), type(trainer.args)
    names: dict[str, list[str]] = {}
    for cls in (kind, config):
        module = "hfcomp.trainers" if cls.__module__.startswith("hfcomp.trainers.") else cls.__module__
        names.setdefault(module, []).append(cls.__name__)
    imports = [f"from {module} import {', '.join(sorted(own))}" for module, own in sorted(names.items())]
    rows, before = ROWS, [*imports, "", f"# {ROWS}: a datasets.Dataset with the objective's columns"]
    # Without the commit, `load_dataset` may load different rows.
    if source.data and source.commit:
        options = {"split": source.split, "revision": source.commit}
        extra = "".join(f", {name}={json.dumps(value)}" for name, value in options.items() if value)
        rows, before = f"load_dataset({json.dumps(source.data[0])}{extra})", ["from datasets import load_dataset"]
        before += [*imports, ""]
    sets = f"train_dataset={rows}"
    if replay_line(trainer):
        sets += ", replay_dataset=general"
        before.insert(-1 if before[-1] == "" else len(before), "# general: a datasets.Dataset of images and captions")
    settings = [f"    {name}={without_local_paths(value)!r}," for name, value in values.items()]
    arguments = [f"args = {config.__name__}(", '    output_dir="runs/model",', *settings, ")"]
    run = [f"trainer = {kind.__name__}({json.dumps(source.base)}, args, {sets})", "trainer.train()"]
    return "\n".join([*before, *arguments, *run])


def _results(history: Sequence[Mapping[str, Any]]) -> Iterator[Section]:
    """Returns the last scores during training."""
    line = next((line for line in reversed(history) if any(key.startswith(EVALUATION) for key in line)), None)
    if line is None:
        return
    rows = [
        [key.removeprefix(EVALUATION), f"{value:.4g}"]
        for key, value in line.items()
        if key.startswith(EVALUATION) and isinstance(value, int | float)
    ]
    about = f"step {line.get('step', 0):,}; no intervals and no base model for comparison"
    yield Section(DURING_TRAINING, [Table(about, ["metric", "value"], rows)])


def _costs(trainer: Any) -> Table | None:
    """Returns the images, texts and seconds of the training, if its log has them."""
    history = trainer.state.log_history
    seconds = next((line["train_runtime"] for line in reversed(history) if "train_runtime" in line), None)
    if seconds is None:
        return None
    images, texts = (sum(line.get(key, 0) for line in history) for key in ("images_encoded", "texts_encoded"))
    row = [f"{trainer.state.global_step:,}", f"{images:,.0f}", f"{texts:,.0f}", f"{seconds:,.1f}"]
    return Table("", ["steps", "images", "texts", "seconds"], [row], labels=0)
