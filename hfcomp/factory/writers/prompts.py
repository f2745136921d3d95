"""Prompts for language models, read from the data files in `prompts/`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal, TypeVar, get_args

from hfcomp.checksums import file_hash
from hfcomp.reading import read_yaml
from hfcomp.schemas import Strict, parse

FOLDER = Path(__file__).parent / "prompts"
KEYWORD_FILE, NEGATIVES_FILE, EDITS_FILE, PHRASES_FILE = (
    FOLDER / f"{name}.yaml" for name in ("keyword", "negatives", "edits", "phrases")
)
_SLOT = "{}"
Prompts = TypeVar("Prompts", bound=Strict)

Part = Literal["replace_obj", "replace_att", "replace_rel", "swap_obj", "swap_att", "add_obj", "add_att"]
# Changes of the kind `llm`. Each is also a value of `negative_kinds`.
PARTS: tuple[Part, ...] = get_args(Part)


class _KeywordPrompt(Strict):
    template: str
    examples: dict[Literal["attribute", "relation", "object", "random"], str]


class _Part(Strict):
    instruction: str
    shots: str


class _NegativesPrompt(Strict):
    template: str
    examples: dict[Part, _Part]


class _EditPrompts(Strict):
    template: str
    examples: dict[Literal["object", "color", "size"], str]


class _PhrasesPrompt(Strict):
    template: str


def phrases_prompt(caption: str) -> str:
    return _fill(_read_prompts(_PhrasesPrompt, PHRASES_FILE).template, (one_line(caption),))


def edit_prompt(captions: Sequence[str], concept: str, choices: Mapping[str, Sequence[str]]) -> str:
    """Our prompt for an edit of an image."""
    prompts = _read_prompts(_EditPrompts, EDITS_FILE)
    if concept not in prompts.examples:
        raise ValueError(f"concept {concept!r}: expected one of {', '.join(prompts.examples)}.")
    listed = "\n".join(f"- {keyword}: {', '.join(words)}" for keyword, words in choices.items())
    return _fill(prompts.template, (concept, prompts.examples[concept], list_captions(captions), listed))


def keyword_prompt(caption: str, keyword: str, examples: str) -> str:
    """The paper's prompt for one keyword.

    Args:
        caption: Caption. Its white space becomes single spaces, so it cannot imitate a separate turn.
        keyword: Text to replace, as in the caption.
        examples: `attribute`, `object` or `relation`, or `random` for a keyword drawn independently of concreteness.
    """
    prompt = _read_prompts(_KeywordPrompt, KEYWORD_FILE)
    if examples not in prompt.examples:
        raise ValueError(f"examples: found {examples!r}, expected one of {', '.join(prompt.examples)}.")
    return _fill(prompt.template, (prompt.examples[examples], one_line(caption), one_line(keyword)))


def part_prompt(caption: str, part: Part) -> str:
    prompt = _read_prompts(_NegativesPrompt, NEGATIVES_FILE)
    chosen = prompt.examples[part]
    return _fill(prompt.template, (chosen.instruction, chosen.shots, one_line(caption)))


def prompt_facts(file: Path) -> str:
    """A manifest's entry for a prompt file."""
    return f"{file.name} sha256:{file_hash(file)}"


@cache
def _read_prompts(kind: type[Prompts], file: Path) -> Prompts:
    return parse(kind, read_yaml(file), str(file))


def list_captions(captions: Sequence[str]) -> str:
    """Lists captions in a line each, so none can imitate a separate turn."""
    return "\n".join(f"- {one_line(caption)}" for caption in captions)


def one_line(text: str) -> str:
    return " ".join(text.split())


def _fill(template: str, values: tuple[str, ...]) -> str:
    """Fills the slots of a template. Braces in a value are not changed."""
    pieces = template.split(_SLOT)
    return pieces[0] + "".join(value + piece for value, piece in zip(values, pieces[1:], strict=True))
