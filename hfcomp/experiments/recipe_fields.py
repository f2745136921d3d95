"""The fields of a recipe: their types and limits, and how a file and a command line spell their values."""

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

# Fields that no recipe may set, and the advice.
REFUSED = {
    "hub_token": "would be written into the run's files. Log in with `hf auth login` or set HF_TOKEN.",
    "draw_captions": "is captions: drawn in a recipe. Set that instead.",
    "per_device_train_batch_size": (
        "is batch_size, the rows of the contrastive batch over all processes, by their number: set batch_size instead."
    ),
    **dict.fromkeys(
        ("hub_strategy", "hub_always_push"), "has no meaning: a run is pushed once, when it is finished. Leave it out."
    ),
}

# Fields that a command line may write as OURS=YOURS.
COLUMN_NAMES = ("column_names", "replay_column_names")


@cache
def field_hints(config_class: type) -> dict[str, Any]:
    """The type of every field of a recipe, by name: those of our config and of a trainer's."""
    theirs = get_type_hints(config_class, include_extras=True)
    hints = {member.name: theirs[member.name] for member in fields(config_class) if member.init}
    hints |= {name: Annotated[hints[name], _within(limits)] for name, limits in field_limits(config_class).items()}
    # The trainer accepts names as JSON too, a recipe only as a mapping.
    ours = get_type_hints(ExperimentConfig, include_extras=True)
    hints |= {"column_names": dict[str, str] | None}
    return hints | {name: ours[name] for name in ExperimentConfig.model_fields}


def _within(limits: Limits) -> WrapValidator:
    """Checks a value that its type allows, and shows it as it was written."""

    def read(value: Any, convert_type: Callable[[Any], Any]) -> Any:
        found = convert_type(value)
        if found is not None and (expected := limits.describe_expected(found)):
            raise ValueError(f"found {value!r}, expected {expected}.")
        return found

    return WrapValidator(read)


def convert_fields(
    values: Mapping[str, Any], hints: Mapping[str, Any], where: str, *, dashes: str = ""
) -> dict[str, Any]:
    """Values of a recipe's fields, of their types."""
    check_known(values, hints, where)
    found = {name: convert(value, hints[name], f"{where}: {dashes}{name}") for name, value in values.items()}
    # Whole numbers stay as written: if a file says 1, `config.yaml` says 1 and not 1.0.
    whole = {name: value for name, value in values.items() if type(value) is int and type(found[name]) is float}
    return found | whole


def check_known(names: Iterable[str], hints: Mapping[str, Any], where: str) -> None:
    """Raises for unknown fields, naming the nearest, and for those that no recipe sets."""
    for name in names:
        if name not in hints:
            raise ValueError(f"{where}: unknown field {name!r}.{nearest(str(name), hints)}")
        if name in REFUSED:
            raise ValueError(f"{where}: {name} {REFUSED[name]}")


def split_options(arguments: Sequence[str]) -> tuple[Namespace, list[str]]:
    """Takes the options of the command out of a command line, and leaves the words of the fields: `--field value`.

    The options are `config`, `objective`, `report`, `search` (without a name `search`), `dry_run`, `help` and
    `help_all`.
    """
    parser = ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in ("--config", "--objective", "--report"):
        parser.add_argument(name)
    parser.add_argument("--search", nargs="?", const="search")
    parser.add_argument("--dry_run", "--dry-run", action="store_true")
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("--help-all", "--help_all", action="store_true")
    try:
        return parser.parse_known_args(list(arguments))
    except ArgumentError as error:
        raise ValueError(f"command line: {error}") from error


def read_overrides(arguments: Sequence[str], hints: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that a command line sets, as `split_options` leaves them."""
    found: dict[str, list[str]] = {}
    name = ""
    for word in arguments:
        if word.startswith("--"):
            name, joined, value = word[2:].partition("=")
            name = name.replace("-", "_")
            # Other commands call it --output.
            name = "output_dir" if name == "output" else current_name(name)
            found[name] = [value] if joined else []
        elif not found:
            raise ValueError(f"command line: {word!r} belongs to no field; overrides are --field value.")
        else:
            found[name].append(current_name(word))
    check_known(found, hints, "command line")
    values = {name: _spelled(name, words, hints[name]) for name, words in found.items()}
    return convert_fields(values, hints, "command line", dashes="--")


def _bracketed(word: str) -> list[str]:
    """The entries of a list in brackets, as help and YAML show it; another word is a list of its own."""
    if not (word.startswith("[") and word.endswith("]")):
        return [word]
    return [entry.strip().strip("\"'") for entry in word[1:-1].split(",") if entry.strip()]


def _spelled(name: str, words: list[str], hint: Any) -> Any:
    """The value that words of the command line spell; numbers and switches stay texts, which `convert` reads."""
    kinds = [get_origin(kind) or kind for kind in members(hint)]
    # A single word is a list of one only if the field accepts nothing else: `report_to` may be a single name, too.
    if words and list in kinds and (len(words) > 1 or kinds == [list]):
        return _bracketed(words[0]) if len(words) == 1 else words
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
        example = """a JSON object in quotes, as '{"caption": "text"}'"""
        raise ValueError(f"command line: --{name}: found {words[0]!r}, expected {example}: {error}.") from error
