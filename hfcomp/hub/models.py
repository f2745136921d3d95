"""Trained models on the way to the Hub: as plain repositories, which load without hfcomp."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from transformers import AutoConfig

from hfcomp.data.publishing import without_local_paths
from hfcomp.evaluation.encoding.cache_files import size_text
from hfcomp.hub.model_files import CARD, RUN_FILES, ModelFolder, check_model, is_model_file, model_files
from hfcomp.hub.options import ModelPushOptions
from hfcomp.hub.pushed import ADVICE, check_replaceable, record_push
from hfcomp.hub.repositories import Repository
from hfcomp.reporting.cards.card import PLACE
from hfcomp.reporting.cards.metadata import card_metadata
from hfcomp.reporting.run_record import METHOD_FOLDER

KIND = "model"
# To which transformers' zero-shot pipeline pads the texts of every SigLIP.
PIPELINE_LENGTH = 64
LOADING = f"""from transformers import AutoModel, AutoProcessor

model = AutoModel.from_pretrained("{PLACE}")
processor = AutoProcessor.from_pretrained("{PLACE}")"""
Log = Callable[[str], None]


def push_model(
    place: Path | str, options: ModelPushOptions, *, log: Log = print, api: Any = None, advice: str = ADVICE
) -> str:
    """Pushes the model of a finished run, or the model or adapter in a folder.

    It is checked first. All files become visible in one commit, so that nobody sees half a model, and a push that
    breaks is resumed by the same call. A repository that others committed to is refused unless `options.force`.

    Args:
        place: folder of the run, the model or the adapter.
        options: the repository, and which model of a run.
        log: receives lines about what is done.
        api: a `huggingface_hub.HfApi`; by default one with your login.
        advice: how to go on where others committed.

    Returns:
        The address of the repository.

    Raises:
        ValueError: for an unfinished run, a model that is damaged, does not load or names places of this machine, a
            repository with commits of others, or whatever the Hub refuses.
    """
    repository = Repository.of(options, KIND, api)
    model = ModelFolder.of(Path(place), options.model)
    check_model(model)
    log(f"{model.folder}: verified")
    if left := model.left_out():
        log(f"not sent: {', '.join(left)}")
    _log_pipeline(model, log)
    if options.dry_run:
        _log_dry_run(repository, model_files(model, _card(model, options.repo)), log)
        return options.repo
    state = repository.open()
    files = model_files(model, _card(model, repository.name))
    if not options.force:
        check_replaceable(repository, state, model.place, files, advice=advice)
    stale = _stale_files(state.files, files)
    commit = repository.commit(files, stale, f"hfcomp: {model.folder.name}", state)
    _record(model.place, repository, commit, log)
    removed = f", {len(stale)} earlier ones removed" if stale else ""
    log(f"pushed to {repository.address}: {len(files)} files{removed}, commit {commit[:8]}")
    return repository.address


def _card(model: ModelFolder, name: str) -> str:
    """The card of a model: of a run's method that of the run."""
    is_method = model.run is not None and model.folder == model.run / METHOD_FOLDER
    path = (model.run if is_method else model.folder) / CARD
    text = path.read_text(encoding="utf-8") if path.is_file() else _plain_card(model)
    return without_local_paths(text.replace(PLACE, name))


def _plain_card(model: ModelFolder) -> str:
    """The card of a model without one, of which nothing is known."""
    data = card_metadata(None, base=None, adapter=model.is_adapter).to_yaml()
    load = "" if model.is_adapter else f"```python\n{LOADING}\n```\n"
    return f"---\n{data}\n---\n\n# {model.folder.name}\n\nPushed by hfcomp.\n\n{load}"


def _stale_files(there: Collection[str], files: Collection[str]) -> list[str]:
    """Files of an earlier model, which would be read beside the new ones; a licence is nobody's but its author's."""
    others = set(there) - set(files)
    return sorted(
        name for name in others if (is_model_file(name) or name in RUN_FILES) and not name.startswith("LICENSE")
    )


def _record(place: Path, repository: Repository, commit: str, log: Log) -> None:
    try:
        record_push(place, repository, commit)
    except OSError as error:  # it is pushed all the same
        log(f"the push could not be recorded ({error}): the next one from {place} needs --force")


def _log_pipeline(model: ModelFolder, log: Log) -> None:
    if model.is_adapter:
        return
    config = AutoConfig.from_pretrained(model.folder, trust_remote_code=False)
    length = config.text_config.max_position_embeddings
    if config.model_type == "siglip" and length < PIPELINE_LENGTH:
        log(
            f"its texts have at most {length} tokens: transformers' zero-shot pipeline, which pads those of a SigLIP "
            f"to {PIPELINE_LENGTH}, will not run it; AutoModel and sentence-transformers do"
        )


def _log_dry_run(repository: Repository, files: dict[str, Path | bytes], log: Log) -> None:
    sizes = {name: len(file) if isinstance(file, bytes) else file.stat().st_size for name, file in files.items()}
    log(f"would push to {repository.name}{' (private)' * repository.private}, branch {repository.branch}:")
    for name, size in sorted(sizes.items(), key=lambda one: -one[1]):
        log(f"{size_text(size):>10}  {name}")
    log(f"{size_text(sum(sizes.values())):>10}  in {len(sizes)} files")
