"""Prompts of `hfcomp build magic`: two shipped sets, or a YAML file in the same form."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from hfcomp.factory.writers.prompts import FOLDER, list_captions, one_line
from hfcomp.reading import read_yaml
from hfcomp.schemas import Strict, parse

SHIPPED = {name: FOLDER / f"concepts_{name}.yaml" for name in ("released", "ours")}
_SLOT = re.compile(r"\{(\w*)\}")
# The slots that each prompt may have.
_SLOTS = {
    "concept": {"captions"},
    "parent": {"captions", "concept", "concepts", "known", "level"},
    "caption": {"caption", "captions", "concept", "concepts"},
    "known": {"names"},
}


class ConceptPrompts(Strict):
    """Prompts for concepts, their parents and generalized captions, with slots such as `{captions}`.

    Attributes:
        concept: Asks for the first-level concept of an image.
        parent: Asks for the parent of a concept; `{captions}` are those of an image of the concept, `{concepts}` the
            names from level 1 up to the concept.
        levels: Text for `{level}`, by the level of the concept.
        caption: Asks for a more general version of `{caption}`, or of all captions.
        known: Text for `{known}` if there are known parents, which are its `{names}`.
    """

    concept: str
    parent: str
    levels: dict[Literal[1, 2, 3], str]
    caption: str
    known: str = ""

    def parent_has(self, slot: str) -> bool:
        """Whether the prompt for parents has a slot."""
        return slot in _SLOT.findall(self.parent)

    def concept_prompt(self, captions: Sequence[str]) -> str:
        """The question for the concept of an image."""
        return _fill(self.concept, {"captions": list_captions(captions)})

    def parent_prompt(self, level: int, path: Sequence[str], captions: Sequence[str], known: Sequence[str]) -> str:
        """The question for the parent of a concept on level 1 to 3, the last one of a path from level 1."""
        values = {
            "captions": list_captions(captions),
            "concept": one_line(path[-1]),
            "concepts": _join(path),
            "known": _fill(self.known, {"names": ", ".join(known)}) if known else "",
            "level": self.levels[level],
        }
        return _fill(self.parent, values)

    def caption_prompt(self, caption: str, captions: Sequence[str], chain: Sequence[str]) -> str:
        """The question for a generalized caption of an image, whose concepts are a chain from level 1 to 4."""
        values = {
            "caption": one_line(caption),
            "captions": list_captions(captions),
            "concept": one_line(chain[0]),
            "concepts": _join(chain),
        }
        return _fill(self.caption, values)


def concept_prompts_file(name: str) -> Path:
    """The file of a shipped set, or the user's own.

    Raises:
        ValueError: If the name is neither that of a shipped set nor of a file.
    """
    path = SHIPPED.get(name, Path(name))
    if not path.is_file():
        raise ValueError(f"--prompts: found {name!r}, expected {', '.join(SHIPPED)} or an existing YAML file.")
    return path


def read_concept_prompts(file: Path) -> ConceptPrompts:
    """Reads and checks prompts.

    Raises:
        ValueError: For a missing or unknown key or slot. The message names the file and the key.
    """
    prompts = parse(ConceptPrompts, read_yaml(file), str(file))
    slots = {key: {*_SLOT.findall(getattr(prompts, key))} for key in _SLOTS}
    needed = {"concept": {"captions"}, "parent": {"concept", "level"}, "caption": {"captions"}, "known": set()}
    if prompts.known or "known" in slots["parent"]:  # neither has an effect without the other
        needed |= {"parent": {*needed["parent"], "known"}, "known": {"names"}}
    for key, possible in _SLOTS.items():
        if not needed[key] <= slots[key] <= possible:
            raise ValueError(
                f"{file}, {key}: found {_braces(slots[key])}, expected {_braces(needed[key])}; possible are "
                f"{_braces(possible)}. Correct the words in braces."
            )
    if len(prompts.levels) < 3:
        raise ValueError(f"{file}, levels: found {', '.join(map(str, prompts.levels)) or 'none'}, expected 1, 2, 3.")
    return prompts


def _join(names: Sequence[str]) -> str:
    return " < ".join(map(one_line, names))


def _braces(slots: set[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in sorted(slots)) or "none"


def _fill(template: str, values: Mapping[str, str]) -> str:
    """Fills the slots of a template. Braces in a value are not changed."""
    return _SLOT.sub(lambda match: values[match[1]], template)
