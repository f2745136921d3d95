"""The machine-readable part of a card: its metadata with `model-index`, and the files in `.eval_results`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from huggingface_hub import EvalResult, EvalResultEntry, ModelCardData

from hfcomp.data.publishing import is_on_hub, without_local_paths
from hfcomp.reporting.lines import Line, models_of

LIBRARY, PEFT = "transformers", "peft"
PIPELINE = "zero-shot-image-classification"
TAGS = ("hfcomp", "compositionality")
# Benchmarks whose name begins with this are synthetic.
SYNTHETIC = "sandbox"
# Name of a user's own dataset in results.
OWN = "own"
DIGITS = 4
SCORED_WITH = "scored with hfcomp"


def card_metadata(
    name: str | None,
    *,
    base: str | None,
    datasets: Sequence[str | None] = (),
    results: Sequence[EvalResult] = (),
    tags: Sequence[str] = (),
    adapter: bool = False,
    **extra: Any,
) -> ModelCardData:
    """Returns the metadata that the Hub uses to search for models.

    Args:
        name: Name of the method, which becomes a tag and the model's name in `model-index`.
        base: Model that was fine-tuned. Left out unless it is a Hub id.
        datasets: Training datasets. Left out unless they are Hub ids.
        results: Results from `eval_results`.
        tags: Additional tags.
        adapter: Whether the repository contains a PEFT adapter.
        extra: Additional entries, such as `license` and `language`.
    """
    # The Hub turns these entries into links. A local path would be a dead link and reveal details of this machine.
    on_hub = is_on_hub(base)
    known = [dataset for dataset in datasets if dataset is not None and is_on_hub(dataset)]
    relation: dict[str, Any] = {"base_model_relation": "adapter" if adapter else "finetune"} if on_hub else {}
    return ModelCardData(
        library_name=PEFT if adapter else LIBRARY,
        pipeline_tag=PIPELINE,
        tags=[*TAGS, *([slug(name)] if name else []), *tags],
        base_model=base if on_hub else None,
        datasets=known or None,
        # `model-index` needs both; without results, the name would become a separate field.
        model_name=name if results else None,
        eval_results=list(results) or None,
        **relation,
        **{key: value for key, value in extra.items() if value is not None},
    )


def slug(text: str) -> str:
    """Returns a text's lowercase letters and digits, with `-` for everything else."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def eval_results(
    lines: Sequence[Line], *, own: str | None, benchmarks: Mapping[str, Mapping[str, Any]]
) -> list[EvalResult]:
    """Returns the values of the last model on all lines, from 0 to 1, for `model-index`.

    Args:
        lines: Lines from `summarize`.
        own: User's own dataset that was scored.
        benchmarks: Facts about the benchmarks, as in `results.json`. Data from the Hub is named by its id and commit.
    """
    places = _hub_data(benchmarks)
    return [_eval_result(line, own, places.get(line["benchmark"])) for line in lines if _value(line) is not None]


def eval_files(
    lines: Sequence[Line], *, benchmarks: Mapping[str, Mapping[str, Any]], version: str
) -> dict[str, list[EvalResultEntry]]:
    """Returns the entries of `.eval_results/*.yaml` by file name, for benchmarks that were read from the Hub.

    The values belong to the last model; `version` is the version of hfcomp.
    """
    # The Hub files a result under a dataset id and one of its tasks. Sandbox scenes and folders have no id.
    places, files = _hub_data(benchmarks), dict[str, list[EvalResultEntry]]()
    for line in lines:
        if line["benchmark"] not in places or _value(line) is None:
            continue
        place, commit = places[line["benchmark"]]
        entry = EvalResultEntry(
            dataset_id=place,
            task_id=slug(f"{line['subset']} {line['metric']}"),
            value=_value(line),
            dataset_revision=commit,
            notes=f"{line['metric']} on {line['subset']}, {line['items']} items, {SCORED_WITH} {version}",
        )
        files.setdefault(f"{slug(place)}.yaml", []).append(entry)
    return files


def _hub_data(benchmarks: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[str, str | None]]:
    """Returns dataset id and commit, by title, of the benchmarks that were read from the Hub."""
    # Looking like an id is not enough, because `data/own` may be a folder. Only data from the Hub has a commit.
    return {
        facts["title"]: (data["place"], data["commit"])
        for facts in benchmarks.values()
        if (data := facts.get("data") or {}).get("commit") and is_on_hub(data["place"])
    }


def _eval_result(line: Line, own: str | None, data: tuple[str, str | None] | None) -> EvalResult:
    benchmark, metric = line["benchmark"], line["metric"]
    kind, name, revision = slug(benchmark), benchmark, None
    # Leaderboards read these entries without the card, so the entry itself must say that drawn scenes are synthetic.
    if benchmark.split()[0].lower() == SYNTHETIC:
        kind, name = f"hfcomp-{kind}", f"{benchmark} (synthetic)"
    elif benchmark == OWN:
        source = own or OWN
        kind, name = source if is_on_hub(source) else OWN, f"{OWN}: {without_local_paths(source)}"
    elif data is not None:
        kind, revision = data
    return EvalResult(
        task_type=_task(line),
        dataset_type=kind,
        dataset_name=name,
        dataset_config=line["subset"],
        dataset_revision=revision,
        metric_type=slug(metric),
        metric_name=metric,
        metric_value=_value(line),
    )


def _value(line: Line) -> float | None:
    value = line["models"][models_of([line])[-1]]["value"]
    return None if value is None else round(float(value), DIGITS)


def _task(line: Line) -> str:
    if line["aspect"] == "composition":
        return "image-text-matching"
    return "image-text-retrieval" if "recall" in line["metric"] else PIPELINE
