"""The files of a trained model that go to the Hub, checked before anything is sent.

Only known files are sent: a folder of a Trainer also holds checkpoints, logs and, of other trainers, a pickle of the
arguments with the token in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml
from transformers import AutoConfig
from transformers.utils import ADAPTER_CONFIG_NAME, CONFIG_NAME

from hfcomp.checksums import read_checked, with_checksum
from hfcomp.data.publishing import TOKEN, is_absolute, is_on_hub, without_local_paths
from hfcomp.modeling import OBJECTIVE_STATE_FILE, load_config, load_processor
from hfcomp.modeling.checkpoints import ADAPTER_FILE
from hfcomp.modeling.sentence_transformers_files import (
    MODULE_CONFIG_FILE,
    MODULES_FILE,
    sentence_transformers_files,
)
from hfcomp.modeling.weight_checks import damage_named, read_tensors
from hfcomp.reading import parse_json, read_yaml
from hfcomp.reporting.run_record import METHOD_FOLDER
from hfcomp.run_folders import CONFIG_FILE, FINISHED_FILE
from hfcomp.statistics.results import RESULTS_FILE
from hfcomp.trainers.stages import CHECKSUMS_FILE, SUMMARY_FILE, damage, is_of_push, read_summary

CARD = "README.md"
WEIGHTS = ("model.safetensors", "model-*-of-*.safetensors", ADAPTER_FILE)
VOCABULARIES = ("tokenizer.json", "vocab.json", "merges.txt", "added_tokens.json")
MODEL_FILES = (
    *(CONFIG_NAME, "generation_config.json", *WEIGHTS, "model.safetensors.index.json", OBJECTIVE_STATE_FILE),
    *(ADAPTER_CONFIG_NAME, "processor_config.json", "preprocessor_config.json", "tokenizer_config.json"),
    *("special_tokens_map.json", *VOCABULARIES, "*.model", MODULES_FILE, MODULE_CONFIG_FILE),
    *("config_sentence_transformers.json", "figure.png", "merge.json", "LICENSE*", ".eval_results/*.yaml"),
)
"""Patterns of the files of a model."""
RUN_FILES = (CARD, RESULTS_FILE, CONFIG_FILE)
"""What a push writes anew: without what is of this machine."""
RESUME = "Give the command that started it again: it resumes."
_TEXT = (".json", ".yaml", ".txt")


@dataclass(frozen=True)
class ModelFolder:
    """A model on this machine.

    Attributes:
        place: what was named: the folder of the run or of the model.
        folder: of the model.
        run: the folder of the finished run that it is of, or None.
    """

    place: Path
    folder: Path
    run: Path | None = None

    @classmethod
    def of(cls, place: Path, model: str | None = None) -> ModelFolder:
        """The model of a run, by default its method, or the model in a folder.

        Args:
            place: of the run or the model.
            model: its folder in that of the run.

        Raises:
            ValueError: for an unfinished run, or a folder without such a model.
        """
        if (place / CONFIG_FILE).is_file() and not _has_model(place):
            if not (place / FINISHED_FILE).is_file():
                raise ValueError(f"{place} is an unfinished run: it has no file {FINISHED_FILE!r}. {RESUME}")
            found = cls(place, place / (model or METHOD_FOLDER), place)
        else:
            if model is not None:
                raise ValueError(
                    f"--model {model} is of the folder of a run, and {place} has no {CONFIG_FILE} of one."
                )
            found = cls(place, place)
        if not _has_model(found.folder):
            raise ValueError(_no_model(place, found.folder))
        return found

    @property
    def is_adapter(self) -> bool:
        """Whether it is a PEFT adapter."""
        return (self.folder / ADAPTER_CONFIG_NAME).is_file()

    def names(self) -> list[str]:
        """The files of the model that are sent as they are."""
        paths = (path for path in sorted(self.folder.rglob("*")) if path.is_file())
        names = (path.relative_to(self.folder).as_posix() for path in paths)
        return [name for name in names if is_model_file(name)]

    def left_out(self) -> list[str]:
        """What else is in the folder."""
        sent = {name.partition("/")[0] for name in self.names()} | {CARD}
        return sorted(path.name for path in self.folder.iterdir() if path.name not in sent)


def is_model_file(name: str) -> bool:
    """Whether a file, by its place in the repository, is one of those of a model."""
    return any(fnmatch(name, pattern) and name.count("/") == pattern.count("/") for pattern in MODEL_FILES)


def check_model(model: ModelFolder) -> None:
    """Checks that a model is whole, loads as it will from the Hub, and that its files name nothing of this machine.

    Raises:
        ValueError: for damaged or pickled weights, those that do not fit, a missing processor, an adapter whose base
            others do not have, and a token or an absolute path in a file.
    """
    folder = model.folder
    if (folder / SUMMARY_FILE).is_file():
        read_summary(folder)
    elif (folder / CHECKSUMS_FILE).is_file() and (reason := damage(folder)):
        raise ValueError(f"{folder} is damaged: {reason}.")
    if not any(fnmatch(name, pattern) for name in model.names() for pattern in WEIGHTS):
        raise ValueError(
            f"{folder} has no weights in safetensors files, and others are not pushed: a pickle runs code where it is "
            "loaded. Load the model and save it with save_pretrained."
        )
    if model.is_adapter:
        _check_adapter(folder)
    else:
        load_config(folder)
        try:
            load_processor(folder, argument="processor")
        except (OSError, ValueError) as error:
            raise ValueError(
                f"{folder} has no processor: {error} Save that of the base model beside it: "
                f"AutoProcessor.from_pretrained(BASE).save_pretrained({str(folder)!r})."
            ) from error
    for name in model.names():
        _check_private(folder / name)


def model_files(model: ModelFolder, card: str) -> dict[str, Path | bytes]:
    """What is sent, by its place in the repository.

    Args:
        model: of which, and with the configuration and results of its run.
        card: the text of its README.md.
    """
    files: dict[str, Path | bytes] = {name: model.folder / name for name in model.names()}
    if not model.is_adapter:
        config = AutoConfig.from_pretrained(model.folder, trust_remote_code=False)
        files = {name: text.encode() for name, text in sentence_transformers_files(config).items()} | files
    files[CARD] = card.encode()
    if model.run is not None:
        files |= dict(_run_files(model.run))
    return files


def _has_model(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (CONFIG_NAME, ADAPTER_CONFIG_NAME))


def _no_model(place: Path, folder: Path) -> str:
    if not place.is_dir():
        return f"{place} is not a folder. Pass the folder of a run or of a model."
    if (place / "manifest.json").is_file():
        return f"{place} is not a model: it has no {CONFIG_NAME}. `hfcomp push-dataset {place}` pushes a built set."
    found = sorted({path.parent for name in (CONFIG_NAME, ADAPTER_CONFIG_NAME) for path in place.glob(f"**/{name}")})
    names = [path.relative_to(place).as_posix() for path in found if not path.name.startswith("checkpoint-")]
    known = f"Models there: {', '.join(names)}." if names else "Pass the folder of a run or of a model."
    return f"{folder} has no {CONFIG_NAME} of a model. {known}"


def _check_adapter(folder: Path) -> None:
    path = folder / ADAPTER_CONFIG_NAME
    base = parse_json(path.read_bytes()).get("base_model_name_or_path")
    if not is_on_hub(base):
        raise ValueError(
            f"{path}: base_model_name_or_path is {base!r}, which others do not have. Push the base and name its id "
            "there, or merge the adapter into the base and push the whole model."
        )
    with damage_named(folder):
        read_tensors(folder / ADAPTER_FILE)


def _check_private(path: Path) -> None:
    """Raises ValueError for a file with a token, or a value that is a place on this machine."""
    if path.suffix not in _TEXT:
        return
    text = path.read_text(encoding="utf-8", errors="replace")
    if TOKEN.search(text):
        raise ValueError(f"{path} holds a token of the Hub. Remove it there, and revoke the token in your settings.")
    if path.suffix != ".json" or path.name in VOCABULARIES:
        return
    for key, value in _texts(parse_json(text.encode())):
        if is_absolute(value) and re.search(r"[/\\]\w", value[1:]):
            raise ValueError(
                f"{path}: {key} is {value!r}, a place on this machine. Remove the entry, or give a Hub id there."
            )


def _texts(content: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """The texts of a JSON file, each with its key."""
    if isinstance(content, str):
        yield key, content
    elif isinstance(content, dict):
        for name, part in content.items():
            yield from _texts(part, f"{key}.{name}" if key else name)
    elif isinstance(content, list):
        for part in content:
            yield from _texts(part, key)


def _run_files(run: Path) -> Iterator[tuple[str, bytes]]:
    """The configuration and results of a run, without paths of this machine and tokens."""
    given = {name: value for name, value in read_yaml(run / CONFIG_FILE).items() if not is_of_push(name)}
    yield CONFIG_FILE, yaml.safe_dump(without_local_paths(given), sort_keys=True, allow_unicode=True).encode()
    if (run / RESULTS_FILE).is_file():
        results = read_checked(run / RESULTS_FILE, f"Remove {run / FINISHED_FILE}. {RESUME}")
        results["config"] = {k: v for k, v in results.get("config", {}).items() if not is_of_push(k)}
        known = {value for _, value in _texts(results.get("models")) if is_absolute(value)}
        content = with_checksum(without_local_paths(results, known={*known, str(run)} - {""}))
        yield RESULTS_FILE, json.dumps(content, indent=2, ensure_ascii=False).encode()
