"""Pushes trained models to the Hub as plain repositories, which load without hfcomp.

Only known files are uploaded, after checks: a Trainer's output folder also holds checkpoints, logs and, with trainers
other than ours, a pickle of the arguments that contains the token.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml
from transformers.utils import ADAPTER_CONFIG_NAME, CONFIG_NAME

from hfcomp.checksums import read_checked, with_checksum
from hfcomp.data.publishing import TOKEN, is_absolute, is_on_hub, without_local_paths
from hfcomp.hub.options import ModelPushOptions
from hfcomp.hub.repositories import ADVICE, Repository, check_replaceable, record_push
from hfcomp.modeling import OBJECTIVE_STATE_FILE, load_config, load_processor, read_config
from hfcomp.modeling.checkpoints import ADAPTER_FILE, MODULE_CONFIG_FILE, MODULES_FILE, sentence_transformers_files
from hfcomp.modeling.weight_checks import name_damaged_weights, read_tensors
from hfcomp.reading import parse_json, read_yaml
from hfcomp.reporting.cards.card import PLACE
from hfcomp.reporting.cards.metadata import card_metadata
from hfcomp.reporting.run_record import METHOD_FOLDER
from hfcomp.run_folders import CONFIG_FILE, FINISHED_FILE
from hfcomp.statistics.results import RESULTS_FILE
from hfcomp.store import size_text
from hfcomp.trainers.stages import CHECKSUMS_FILE, SUMMARY_FILE, damage, is_push_field, read_summary

KIND = "model"
# Length to which transformers' zero-shot pipeline pads the texts of every SigLIP.
PIPELINE_LENGTH = 64
LOADING = f"""from transformers import AutoModel, AutoProcessor

model = AutoModel.from_pretrained("{PLACE}")
processor = AutoProcessor.from_pretrained("{PLACE}")"""
Log = Callable[[str], None]
CARD = "README.md"
WEIGHTS = ("model.safetensors", "model-*-of-*.safetensors", ADAPTER_FILE)
VOCABULARIES = ("tokenizer.json", "vocab.json", "merges.txt", "added_tokens.json")
MODEL_FILES = (
    *(CONFIG_NAME, "generation_config.json", *WEIGHTS, "model.safetensors.index.json", OBJECTIVE_STATE_FILE),
    *(ADAPTER_CONFIG_NAME, "processor_config.json", "preprocessor_config.json", "tokenizer_config.json"),
    *("special_tokens_map.json", *VOCABULARIES, "*.model", MODULES_FILE, MODULE_CONFIG_FILE),
    *("config_sentence_transformers.json", "figure.png", "merge.json", "LICENSE*", ".eval_results/*.yaml"),
)
"""Name patterns of model files."""
RUN_FILES = (CARD, RESULTS_FILE, CONFIG_FILE)
"""Files that a push rewrites to remove everything specific to this machine."""
RESUME = "Repeat the command that started it to resume."
_TEXT = (".json", ".yaml", ".txt")


@dataclass(frozen=True)
class ModelFolder:
    """A model on this machine.

    Attributes:
        place: Folder that the user passed, of the run or of the model.
        folder: Model folder.
        run: Folder of the finished run that the model belongs to, or None.
    """

    place: Path
    folder: Path
    run: Path | None = None

    @classmethod
    def of(cls, place: Path, model: str | None = None) -> ModelFolder:
        """Finds the model in a folder, or in a run (`model`: its subfolder of the run; defaults to the method)."""
        if (place / CONFIG_FILE).is_file() and not _has_model(place):
            if not (place / FINISHED_FILE).is_file():
                raise ValueError(f"{place} is an unfinished run: it has no file {FINISHED_FILE!r}. {RESUME}")
            model_folder = cls(place, place / (model or METHOD_FOLDER), place)
        else:
            if model is not None:
                raise ValueError(f"--model {model} needs a run folder, but {place} has no {CONFIG_FILE}.")
            model_folder = cls(place, place)
        if not _has_model(model_folder.folder):
            raise ValueError(_no_model(place, model_folder.folder))
        return model_folder

    @property
    def is_adapter(self) -> bool:
        return (self.folder / ADAPTER_CONFIG_NAME).is_file()

    def names(self) -> list[str]:
        """The model files that are uploaded unchanged."""
        paths = (path for path in sorted(self.folder.rglob("*")) if path.is_file())
        names = (path.relative_to(self.folder).as_posix() for path in paths)
        return [name for name in names if is_model_file(name)]

    def left_out(self) -> list[str]:
        sent = {name.partition("/")[0] for name in self.names()} | {CARD}
        return sorted(path.name for path in self.folder.iterdir() if path.name not in sent)


def is_model_file(name: str) -> bool:
    """Whether a file is a model file, judged by its path in the repository."""
    # In fnmatch, `*` also matches slashes: without the count, a file in a checkpoint folder would be a model file.
    return any(fnmatch(name, pattern) and name.count("/") == pattern.count("/") for pattern in MODEL_FILES)


def check_model(model: ModelFolder) -> None:
    """Checks that a model is complete, loads as it will from the Hub, and has no token or local path in its files."""
    folder = model.folder
    if (folder / SUMMARY_FILE).is_file():
        read_summary(folder)
    # A finished stage has the checksums of its files in its summary, a checkpoint in a separate file. Models from
    # other tools have none.
    elif (folder / CHECKSUMS_FILE).is_file() and (reason := damage(folder)):
        raise ValueError(f"{folder} is damaged: {reason}.")
    if not any(fnmatch(name, pattern) for name in model.names() for pattern in WEIGHTS):
        raise ValueError(
            f"{folder} has no weights in safetensors files. Other formats are not pushed, because loading a pickle "
            "runs code. Load the model and save it with save_pretrained."
        )
    if model.is_adapter:
        _check_adapter(folder)
    else:
        load_config(folder)
        try:
            load_processor(folder, argument="processor")
        except (OSError, ValueError) as error:
            raise ValueError(
                f"{folder} has no processor: {error} Save the base model's processor there: "
                f"AutoProcessor.from_pretrained(BASE).save_pretrained({str(folder)!r})."
            ) from error
    for name in model.names():
        _check_private(folder / name)


def model_files(model: ModelFolder, card: str) -> dict[str, Path | bytes]:
    """The files to upload, by their path in the repository."""
    files: dict[str, Path | bytes] = {name: model.folder / name for name in model.names()}
    if not model.is_adapter:
        # The model's own files take precedence; only files that a model saved by another tool lacks are added.
        config = read_config(model.folder)
        files = {name: text.encode() for name, text in sentence_transformers_files(config).items()} | files
    files[CARD] = card.encode()
    if model.run is not None:
        files |= dict(_run_files(model.run))
    return files


def _has_model(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (CONFIG_NAME, ADAPTER_CONFIG_NAME))


def _no_model(place: Path, folder: Path) -> str:
    if not place.is_dir():
        return f"{place} is not a folder. Pass a run folder or a model folder."
    if (place / "manifest.json").is_file():
        return f"{place} is not a model: it has no {CONFIG_NAME}. `hfcomp push-dataset {place}` pushes a built set."
    folders = sorted({path.parent for name in (CONFIG_NAME, ADAPTER_CONFIG_NAME) for path in place.glob(f"**/{name}")})
    names = [path.relative_to(place).as_posix() for path in folders if not path.name.startswith("checkpoint-")]
    advice = f"Models in {place}: {', '.join(names)}." if names else "Pass a run folder or a model folder."
    return f"{folder} is not a model: it has no {CONFIG_NAME}. {advice}"


def _check_adapter(folder: Path) -> None:
    path = folder / ADAPTER_CONFIG_NAME
    base = parse_json(path.read_bytes()).get("base_model_name_or_path")
    if not is_on_hub(base):
        raise ValueError(
            f"{path}: base_model_name_or_path is {base!r}, which other users do not have. Push the base model and set "
            "its Hub id there, or merge the adapter into the base model and push the result."
        )
    with name_damaged_weights(folder):
        read_tensors(folder / ADAPTER_FILE)


def _check_private(path: Path) -> None:
    """Raises ValueError for a file that contains a token or a local path."""
    if path.suffix not in _TEXT:
        return
    text = path.read_text(encoding="utf-8", errors="replace")
    if TOKEN.search(text):
        raise ValueError(f"{path} contains a Hub token. Remove it, and revoke the token in your Hub settings.")
    if path.suffix != ".json" or path.name in VOCABULARIES:
        return
    for key, value in _texts(parse_json(text.encode())):
        if is_absolute(value) and re.search(r"[/\\]\w", value[1:]):
            raise ValueError(
                f"{path}: {key} is {value!r}, a path on this machine. Remove the entry, or replace it with a Hub id."
            )


def _texts(content: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Yields the texts of a JSON file, each with its key."""
    if isinstance(content, str):
        yield key, content
    elif isinstance(content, dict):
        for name, part in content.items():
            yield from _texts(part, f"{key}.{name}" if key else name)
    elif isinstance(content, list):
        for part in content:
            yield from _texts(part, key)


def _run_files(run: Path) -> Iterator[tuple[str, bytes]]:
    """Yields the configuration and results of a run, without local paths and tokens."""
    given = {name: value for name, value in read_yaml(run / CONFIG_FILE).items() if not is_push_field(name)}
    yield CONFIG_FILE, yaml.safe_dump(without_local_paths(given), sort_keys=True, allow_unicode=True).encode()
    if (run / RESULTS_FILE).is_file():
        results = read_checked(run / RESULTS_FILE, f"Remove {run / FINISHED_FILE}. {RESUME}")
        # Drops the push options: a user who runs the recipe again must not push to the author's repository.
        results["config"] = {k: v for k, v in results.get("config", {}).items() if not is_push_field(k)}
        # Model paths also occur inside sentences of the report, so they are replaced everywhere.
        known = {value for _, value in _texts(results.get("models")) if is_absolute(value)}
        content = with_checksum(without_local_paths(results, known={*known, str(run)} - {""}))
        yield RESULTS_FILE, json.dumps(content, indent=2, ensure_ascii=False).encode()


def push_model(
    place: Path | str, options: ModelPushOptions, *, log: Log = print, api: Any = None, advice: str = ADVICE
) -> str:
    """Pushes the model of a finished run, or the model or adapter in a folder.

    The model is checked first. All files become visible in one commit, so nobody ever sees an incomplete model, and
    the same call resumes a failed push. Raises with `advice` if others committed to the repository, unless
    `options.force` is set. Returns the address of the repository.
    """
    repository = Repository.of(options, KIND, api)
    model = ModelFolder.of(Path(place), options.model)
    check_model(model)
    log(f"{model.folder}: verified")
    if left := model.left_out():
        log(f"not uploaded: {', '.join(left)}")
    _log_pipeline(model, log)
    if options.dry_run:
        _log_dry_run(repository, model_files(model, _card(model, options.repo)), log)
        return options.repo
    state = repository.open()
    files = model_files(model, _card(model, repository.name))
    # Checks before uploading anything. `commit` then names the state as its parent, so the Hub rejects the commit if
    # someone else committed in between.
    if not options.force:
        check_replaceable(repository, state, model.place, files, advice=advice)
    stale = _stale_files(state.files, files)
    commit = repository.commit(files, stale, f"hfcomp: {model.folder.name}", state)
    _record(model.place, repository, commit, log)
    removed = f", {len(stale)} earlier ones removed" if stale else ""
    log(f"pushed to {repository.address}: {len(files)} files{removed}, commit {commit[:8]}")
    return repository.address


def _card(model: ModelFolder, name: str) -> str:
    """The card of a model; a run's method gets the card of the run."""
    is_method = model.run is not None and model.folder == model.run / METHOD_FOLDER
    path = (model.run if is_method else model.folder) / CARD
    text = path.read_text(encoding="utf-8") if path.is_file() else _plain_card(model)
    return without_local_paths(text.replace(PLACE, name))


def _plain_card(model: ModelFolder) -> str:
    """A minimal card for a model that has none."""
    data = card_metadata(None, base=None, adapter=model.is_adapter).to_yaml()
    load = "" if model.is_adapter else f"```python\n{LOADING}\n```\n"
    return f"---\n{data}\n---\n\n# {model.folder.name}\n\nPushed by hfcomp.\n\n{load}"


def _stale_files(existing: Collection[str], files: Collection[str]) -> list[str]:
    """Files of an earlier model, which would be read along with the new ones."""
    others = set(existing) - set(files)
    return sorted(
        name
        for name in others
        # A license stays: only its author may remove it.
        if (is_model_file(name) or name in RUN_FILES) and not name.startswith("LICENSE")
    )


def _record(place: Path, repository: Repository, commit: str, log: Log) -> None:
    try:
        record_push(place, repository, commit)
    except OSError as error:  # the push itself succeeded
        log(f"the push was not recorded ({error}); the next one from {place} needs --force")


def _log_pipeline(model: ModelFolder, log: Log) -> None:
    if model.is_adapter:
        return
    config = read_config(model.folder)
    length = config.text_config.max_position_embeddings
    if config.model_type == "siglip" and length < PIPELINE_LENGTH:
        log(
            f"this model takes at most {length} tokens per text. transformers' zero-shot pipeline pads SigLIP texts "
            f"to {PIPELINE_LENGTH} and cannot run it; AutoModel and sentence-transformers can"
        )


def _log_dry_run(repository: Repository, files: dict[str, Path | bytes], log: Log) -> None:
    sizes = {name: len(file) if isinstance(file, bytes) else file.stat().st_size for name, file in files.items()}
    log(f"would push to {repository.name}{' (private)' * repository.private}, branch {repository.branch}:")
    for name, size in sorted(sizes.items(), key=lambda item: -item[1]):
        log(f"{size_text(size):>10}  {name}")
    log(f"{size_text(sum(sizes.values())):>10}  in {len(sizes)} files")
