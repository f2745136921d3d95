"""Trained models on the way to the Hub, as plain repositories; a record of pushes guards what others committed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from transformers import AutoConfig

from hfcomp.checksums import read_checked
from hfcomp.data.publishing import without_local_paths
from hfcomp.evaluation.encoding.cache_files import size_text
from hfcomp.hub.model_files import CARD, RUN_FILES, ModelFolder, check_model, is_model_file, model_files
from hfcomp.hub.options import ModelPushOptions
from hfcomp.hub.repositories import Repository, State, one_line_refusals
from hfcomp.reporting.cards.card import PLACE
from hfcomp.reporting.cards.metadata import card_metadata
from hfcomp.run_folders import METHOD_FOLDER
from hfcomp.writing import write_json

KIND = "model"
# To which transformers' zero-shot pipeline pads the texts of every SigLIP.
PIPELINE_LENGTH = 64
LOADING = f"""from transformers import AutoModel, AutoProcessor

model = AutoModel.from_pretrained("{PLACE}")
processor = AutoProcessor.from_pretrained("{PLACE}")"""
PUSHED_FILE = "pushed.json"
PUSHES = "pushes"
# What a repository has that was made but never pushed to.
EMPTY = {".gitattributes"}
ADVICE = "Pass --force to replace them (the history keeps them), --revision BRANCH for a branch of its own, or "
ADVICE += "another --repo."
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


def pushes_of(folder: Path) -> list[dict[str, str]]:
    """The pushes from a folder: `address` and `branch` of the repository, and the `commit`.

    Raises:
        ValueError: for a damaged record.
    """
    path = folder / PUSHED_FILE
    if not path.is_file():
        return []
    return read_checked(path, "Remove it: the next push needs --force then.")[PUSHES]


def was_pushed(folder: Path, repository: Repository) -> bool:
    """Whether something was pushed from a folder to the branch of an open repository."""
    return any(_is_to(one, repository) for one in pushes_of(folder))


def record_push(folder: Path, repository: Repository, commit: str) -> None:
    """Records a push, by which a later one from the same folder knows that it may replace it.

    Raises:
        OSError: where the folder cannot be written to.
    """
    pushes = [one for one in pushes_of(folder) if not _is_to(one, repository)]
    pushes.append({"address": repository.address, "branch": repository.branch, "commit": commit})
    write_json(folder / PUSHED_FILE, {PUSHES: pushes})


def check_replaceable(
    repository: Repository,
    state: State,
    folder: Path | None = None,
    files: Mapping[str, Path | bytes] | None = None,
    *,
    advice: str = ADVICE,
) -> None:
    """Checks that a repository holds nothing but what was pushed from a folder.

    Args:
        repository: which is open.
        state: of it.
        folder: that is pushed; None before there is one.
        files: that are sent; a repository that has them all is as a push left it whose answer was lost.
        advice: how to go on.

    Raises:
        ValueError: for other commits.
    """
    known = {one["commit"] for one in pushes_of(folder) if _is_to(one, repository)} if folder else set()
    if state.head in known or state.is_as_main or set(state.files) <= EMPTY:
        return
    if files is not None and repository.has(files, state):
        return
    with one_line_refusals(repository.what):
        last = repository.api.list_repo_commits(
            repository.name, repo_type=repository.kind, revision=repository.branch
        )[0]
    others = sorted(set(state.files) - EMPTY)
    raise ValueError(
        f"{repository.what} was not pushed: its branch {repository.branch} has {len(others)} files that did not come "
        f"from {folder or 'this run'} (last commit {last.commit_id[:8]}: {last.title!r}). {advice}"
    )


def _is_to(push: Mapping[str, str], repository: Repository) -> bool:
    return (push["address"], push["branch"]) == (repository.address, repository.branch)
