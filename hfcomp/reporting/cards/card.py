"""A model card as data, rendered with the template `model_cards/template.md`."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import yaml
from huggingface_hub import EvalResultEntry, ModelCardData, eval_result_entries_to_yaml
from huggingface_hub.constants import EVAL_RESULTS_FOLDER

from hfcomp.data.publishing import fenced
from hfcomp.reading import read_yaml, shipped_folder
from hfcomp.reporting.cards.metadata import SCORED_WITH
from hfcomp.reporting.cards.methods import MEANINGS, Method, known_method
from hfcomp.reporting.report import Section, Table
from hfcomp.reporting.saving import escape_markdown, markdown_table, section_blocks
from hfcomp.writing import write_text

logger = logging.getLogger(__name__)

CARD = "README.md"
INTERPOLATION = "WiSE-FT"
TEMPLATE = "template.md"
OWN_MARK = "<!-- written by hfcomp, and again when the model is saved or pushed: remove this line to keep changes -->"
# Phrases in cards that peft and transformers generate automatically, without anything from the user.
AUTOMATIC = ("[More Information Needed]", "generated automatically according to the information the Trainer")
PLACE, BASE_PLACE = "<this model's id or folder>", "<its base's id or folder>"

HOW_TO_SCORE = "--suite compositional"
FORGETTING = "Only the abilities in the tables were scored. Fine-tuning forgets, so others may have been lost."
TERMS = "The licenses, terms and biases of the base and the data apply to this model; hfcomp does not check them."


@dataclass(frozen=True)
class Interpolation:
    """A model that was interpolated between a base and a tuned model.

    Attributes:
        method: Idea of the interpolation and its paper.
        facts: Lines about the point and how it was chosen.
    """

    method: Method
    facts: Sequence[str]

    @classmethod
    def of(cls, alpha: float, chosen: Mapping[str, Any] | None) -> Interpolation:
        """Describes a point from 0 (base) to 1 (tuned), set by the user or, with a sweep's facts, chosen by scores."""
        if chosen is None:
            how = ["The user set this point; it was not chosen by scores."]
        else:
            counts = [f"{count:,} images" for count in chosen["images"]]
            pairs = zip((chosen["composition"], chosen["general"]), counts, strict=True)
            how = [
                f"This point was chosen among {len(chosen['points'])} points as the one with {chosen['rule']}.",
                f"Composition is {' and general abilities are '.join(f'{name} ({count})' for name, count in pairs)}.",
                *([f"The points were chosen on {chosen['on']}."] if "on" in chosen else []),
                *([chosen["held_out"]] if "held_out" in chosen else []),
            ]
        return cls(known_method(INTERPOLATION), [f"Alpha is {alpha:g} (0: the base, 1: the tuned model).", *how])


@dataclass(frozen=True)
class Card:
    """The content of a card. Texts are plain and are escaped when the card is rendered.

    Attributes:
        metadata: Metadata for programs, at the top of the file.
        summary: Description of the model in one sentence.
        objective: Class that the model was trained with. Empty if unknown.
        method: Idea and papers of the method. `None` for a user's own objective.
        interpolation: Set for a model interpolated between a base and a tuned model.
        caveat: Limits of everything that the card says.
        verdict: Sentences that a reader must not miss.
        figure: Name of a picture next to the card, and a description of it.
        results: Sections of tables. Empty for a model that was not evaluated.
        legend: Explanation of how to read the numbers.
        evaluate: Command that evaluates the model.
        overlap: Findings of the check for training images that are scored, one per line. Empty without a check.
        provenance: Origin of the model (base, data, seed and similar) as names and values.
        command: Shell or Python code that trains the model again, with the language of its code block.
        values: Table of training values.
        recipe: All fields of the recipe, as YAML.
        environment: Names and versions of libraries.
        limits: Limits of the model or its numbers.
        place: Hub id of the model, for the code that loads it.
        base_place: Hub id of the base, for the code that loads an adapter.
        eval_files: Entries of `.eval_results` by file name.
    """

    metadata: ModelCardData
    title: str
    summary: str
    objective: str
    provenance: Mapping[str, str]
    values: Table
    environment: Mapping[str, Any]
    method: Method | None = None
    interpolation: Interpolation | None = None
    caveat: str = ""
    verdict: Sequence[str] = ()
    figure: tuple[str, str] | None = None
    results: Sequence[Section] = ()
    legend: str = ""
    evaluate: str = ""
    overlap: Sequence[str] = ()
    command: tuple[str, str] | None = None
    recipe: str = ""
    costs: Table | None = None
    limits: Sequence[str] = ()
    notes: Sequence[str] = ()
    place: str = PLACE
    adapter: bool = False
    base_place: str = BASE_PLACE
    eval_files: Mapping[str, Sequence[EvalResultEntry]] = field(default_factory=dict)


def evaluate_command(name: str, place: str, base: str | None) -> str:
    """Returns the command that scores a model, together with its base if the base is on the Hub."""
    return " ".join(["hfcomp evaluate", *([f"base={base}"] if base else []), f'"{name}={place}"', HOW_TO_SCORE])


def render_card(card: Card) -> str:
    template = (shipped_folder("model_cards", TEMPLATE) / TEMPLATE).read_text(encoding="utf-8")
    known = {attribute.name: getattr(card, attribute.name) for attribute in fields(card)}
    text = {"metadata": card.metadata.to_yaml(), "mark": OWN_MARK, "meanings": MEANINGS}
    return _compile(template).render(**known | text)


# Compiling takes longer than everything else about the card of a small training, and a Trainer writes one card per
# checkpoint.
@cache
def _compile(template: str) -> jinja2.Template:
    # No autoescape, which is for HTML: the template's filter `plain` escapes for Markdown. A field that the template
    # misspells is an error, not an empty line.
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters |= {
        "plain": escape_markdown,
        "fenced": fenced,
        "table": _table,
        "pairs": _pairs,
        "section": _section,
    }
    return environment.from_string(template)


def write_card(folder: Path, card: Card) -> bool:
    """Writes `README.md` and `.eval_results/*.yaml` into a folder, and returns whether it did.

    Keeps a card that somebody wrote or changed. Replaces only hfcomp's own cards, which still have their mark, and the
    empty forms written by peft and transformers.
    """
    path = folder / CARD
    if path.is_file() and not _is_replaceable(path.read_text(encoding="utf-8", errors="replace")):
        logger.warning(f"{path} was edited by hand and is kept. Remove it to get a card written by hfcomp.")
        return False
    write_text(path, render_card(card))
    _write_eval_files(folder / EVAL_RESULTS_FOLDER, card.eval_files)
    return True


def _write_eval_files(folder: Path, files: Mapping[str, Sequence[EvalResultEntry]]) -> None:
    # Removes files of an earlier evaluation; otherwise the Hub would show its numbers as this model's. Files from
    # other programs stay, since only hfcomp's entries have its note.
    for path in folder.glob("*.yaml"):
        entries = read_yaml(path)
        if path.name not in files and all(SCORED_WITH in str(entry.get("notes")) for entry in entries):
            path.unlink()
    for name, entries in files.items():
        text = yaml.safe_dump(eval_result_entries_to_yaml(list(entries)), sort_keys=False, allow_unicode=True)
        write_text(folder / name, text)


def _is_replaceable(text: str) -> bool:
    return OWN_MARK in text or any(words in text for words in AUTOMATIC)


def _table(table: Table) -> str:
    return "\n".join(markdown_table(table))


def _pairs(values: Mapping[str, Any]) -> str:
    return _table(Table("", ["name", "value"], [[name, str(value)] for name, value in values.items()], labels=2))


def _section(section: Section) -> str:
    return "\n\n".join(section_blocks(section, level=3))
