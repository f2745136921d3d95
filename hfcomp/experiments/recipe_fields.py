"""Recipe fields: their types and limits, and the spelling of their values in files and on the command line."""

from __future__ import annotations

from argparse import ArgumentError, ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from typing import Annotated, Any, get_origin, get_type_hints

from pydantic import WrapValidator

from hfcomp.data.known_names import parse_column_names
from hfcomp.experiments.experiment_config import ExperimentConfig
from hfcomp.old_names import current_name
from hfcomp.reading import nearest, parse_json
from hfcomp.schemas import convert, members
from hfcomp.trainers.config import Limits, field_limits

# Fields that no recipe may set, with the end of the error message.
REJECTED = {
    "hub_token": "would be written into the run's files. Log in with `hf auth login` or set HF_TOKEN.",
    "draw_captions": "is spelled captions: drawn in a recipe. Set that instead.",
    "per_device_train_batch_size": (
        "is derived from batch_size (the rows of the contrastive batch over all processes). Set batch_size instead."
    ),
    **dict.fromkeys(
        ("trust_remote_code", "revision"),
        "is an option of `hfcomp evaluate`, on its command line only. Training runs no code of a model's repository: "
        "load the model in Python and pass the object to the trainer.",
    ),
    **dict.fromkeys(
        ("hub_strategy", "hub_always_push"), "has no effect: a run is pushed once, when it is finished. Leave it out."
    ),
}

# Fields that a command line may write as OURS=YOURS.
COLUMN_NAMES = ("column_names", "replay_column_names")


@cache
def field_hints(config_class: type) -> dict[str, Any]:
    """The types of all recipe fields by name, from our config and a trainer's config."""
    theirs = get_type_hints(config_class, include_extras=True)
    hints = {member.name: theirs[member.name] for member in fields(config_class) if member.init}
    hints |= {name: Annotated[hints[name], _within(limits)] for name, limits in field_limits(config_class).items()}
    # The trainer also accepts column names as JSON, a recipe only as a mapping.
    ours = get_type_hints(ExperimentConfig, include_extras=True)
    hints |= {"column_names": dict[str, str] | None}
    return hints | {name: ours[name] for name in ExperimentConfig.model_fields}


def _within(limits: Limits) -> WrapValidator:
    """Checks the limits of a value after its type; errors show the value as the user wrote it."""

    def read(value: Any, convert_type: Callable[[Any], Any]) -> Any:
        converted = convert_type(value)
        if converted is not None and (expected := limits.describe_expected(converted)):
            raise ValueError(f"found {value!r}, expected {expected}.")
        return converted

    return WrapValidator(read)


def convert_fields(
    values: Mapping[str, Any], hints: Mapping[str, Any], where: str, *, dashes: str = ""
) -> dict[str, Any]:
    """Converts the values of recipe fields to their types."""
    check_known(values, hints, where)
    converted = {name: convert(value, hints[name], f"{where}: {dashes}{name}") for name, value in values.items()}
    # Whole numbers stay as written: if a file says 1, `config.yaml` says 1 and not 1.0.
    whole = {name: value for name, value in values.items() if type(value) is int and type(converted[name]) is float}
    return converted | whole


def check_known(names: Iterable[str], hints: Mapping[str, Any], where: str) -> None:
    """Raises for unknown fields, suggesting the nearest one, and for fields that no recipe may set."""
    for name in names:
        if name in REJECTED:
            raise ValueError(f"{where}: {name} {REJECTED[name]}")
        if name not in hints:
            raise ValueError(f"{where}: unknown field {name!r}.{nearest(str(name), hints)}")


def split_options(arguments: Sequence[str]) -> tuple[Namespace, list[str]]:
    """Splits a command line into the options of the command and the remaining field words, `--field value`.

    The options are `config`, `objective`, `report`, `search` (its name defaults to `search`), `dry_run`, `rows`,
    `help` and `help_all`.
    """
    parser = ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in ("--config", "--objective", "--report"):
        parser.add_argument(name)
    parser.add_argument("--search", nargs="?", const="search")
    parser.add_argument("--dry_run", "--dry-run", action="store_true")
    parser.add_argument("--rows", type=int)
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("--help-all", "--help_all", action="store_true")
    try:
        return parser.parse_known_args(list(arguments))
    except ArgumentError as error:
        raise ValueError(f"command line: {error}") from error


def read_overrides(arguments: Sequence[str], hints: Mapping[str, Any]) -> dict[str, Any]:
    """Reads the fields that a command line sets, from the words that `split_options` leaves."""
    fields_set: dict[str, list[str]] = {}
    name = ""
    for word in arguments:
        if word.startswith("--"):
            name, joined, value = word[2:].partition("=")
            name = name.replace("-", "_")
            # Other commands call this option --output.
            name = "output_dir" if name == "output" else current_name(name)
            fields_set[name] = [value] if joined else []
        elif not fields_set:
            raise ValueError(
                f"command line: {word!r} does not belong to a field; overrides have the form --field value."
            )
        else:
            fields_set[name].append(current_name(word))
    check_known(fields_set, hints, "command line")
    values = {name: _parse_words(name, words, hints[name]) for name, words in fields_set.items()}
    return convert_fields(values, hints, "command line", dashes="--")


def _split_brackets(word: str) -> list[str]:
    """The entries of a list in brackets, as in help and YAML; any other word is a list with one entry."""
    if not (word.startswith("[") and word.endswith("]")):
        return [word]
    return [entry.strip().strip("\"'") for entry in word[1:-1].split(",") if entry.strip()]


def _parse_words(name: str, words: list[str], hint: Any) -> Any:
    """The value of command-line words; numbers and switches stay strings, which `convert` reads."""
    kinds = [get_origin(kind) or kind for kind in members(hint)]
    # A single word becomes a list only if the field accepts nothing else, because `report_to` may also be one name.
    if words and list in kinds and (len(words) > 1 or kinds == [list]):
        return _split_brackets(words[0]) if len(words) == 1 else words
    if not words and bool in kinds:
        return True
    if len(words) != 1:
        raise ValueError(f"command line: --{name}: found {words or 'nothing'}, expected one value.")
    if dict not in kinds or (str in kinds and not words[0].startswith("{")):
        return words[0]
    try:
        return parse_column_names(words[0]) if name in COLUMN_NAMES else parse_json(words[0])
    except ValueError as error:
        if name in COLUMN_NAMES:
            raise ValueError(f"command line: {error}") from error
        example = """a JSON object in quotes, such as '{"caption": "text"}'"""
        raise ValueError(f"command line: --{name}: found {words[0]!r}, expected {example}: {error}.") from error
