"""Suggestions: the sentences of error messages that advise a command, option, field or call of ours."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from hfcomp.cli import COMMANDS as COMMANDS_OF_CLI
from hfcomp.trainers.config import CompositionalConfig
from tests.advice.messages import Message, messages, trees

VERBS = (
    "add|annotate|ask|audit|begin|build|cast|crop|pad|number|reduce|call|change|check|choose|close|compare|convert|copy|correct|create|cut|declare|delete|"
    "download|drop|encode|evaluate|exclude|fix|freeze|generate|give|hide|increase|install|keep|leave|limit|load|lower|"
    "make|map|merge|move|name|omit|open|pass|post-process|publish|push|put|raise|re-run|reinstall|reload|remove|"
    "rename|repeat|replace|rescale|restore|resume|rotate|run|save|score|set|shorten|show|split|start|store|switch|train|"
    "try|unset|update|upgrade|use|wait|wrap|write"
)
IMPERATIVE = re.compile(
    rf"(?:^|[,;:.({{}}] |\b(?:or|and|instead|first|then|please|also|do not|else|which) )(?:{VERBS})\b(?![:=_,.]| of )",
    re.IGNORECASE,
)
COMMANDS = r"`hfcomp [^`]*`(?:,? (?:and|or) `hfcomp [^`]*`)*"
IMPLIED = re.compile(
    r"\bneeds? (?:the kind|[a-z]+_[a-z_]+|(?:\w+ )?--)|\bbelong together|\bexpected (?:\w+ ){0,3}--|: --\w+|"
    rf"{COMMANDS} (?:lists?|shows?|says?|takes?|makes?|pushes|compares?)\b"
)
COMMAND = re.compile(
    rf"\bhfcomp (?:{'|'.join(COMMANDS_OF_CLI)}|{{}}|COMMAND|--)|\bmake [a-z-]+`|`[^`]* --|\brecipes/\w+\.py"
)
OPTION = re.compile(r"(?<![\w-])--[a-z{]")
AGAIN = re.compile(
    r"\b(?:(?:give|make|re-run|start) (?:the |\{\})[^.]*\bagain|repeat the command that)\b", re.IGNORECASE
)
"""Advice to repeat a command of ours, which is not named."""
CALL = re.compile(r"\b[A-Za-z_][\w.]*\((?!s\))")
PLAIN_AFTER = r"(?:leave|leave out|omit|set|pass|lower|raise|without|unset|choose) "
PRONOUN = re.compile(
    r"\b(?:leave|omit|remove|lower|raise|correct|pass|set|change|drop|give)(?: out)? (?:it|them|one|another|one of "
    r"\w+|a smaller|fewer|neither|both)\b",
    re.IGNORECASE,
)
NOT_FIELDS = {"it", "one", "both", "own", "default"}
"""Words before a colon that are no fields there."""
SHARED = 8
"""Characters of a sentence that a fragment has at least, if it begins or ends in another one."""
HOLE_FIELD = re.compile(r"\{\}=|--\{\}|\b(?:leave|omit|lower|raise) (?:out )?\{\}", re.IGNORECASE)


class Suggestion(NamedTuple):
    """A sentence to follow, and the message that it stands in."""

    message: Message
    sentence: str

    @property
    def path(self) -> str:
        return self.message.path

    def __str__(self) -> str:
        return f"{self.path}:{self.message.line}: {self.sentence}"

    def covers(self, path: str, fragment: str) -> bool:
        """Whether a fragment of the source, with its values in braces, is in the message and touches this sentence."""
        wanted, whole, sentence = plain(fragment), plain(self.message.text), plain(self.sentence)
        start, place = whole.find(sentence), whole.find(wanted)
        if self.path != path or not wanted or place < 0:
            return False
        shared = min(place + len(wanted), start + len(sentence)) - max(place, start)
        return shared >= min(len(wanted), len(sentence), SHARED)


def plain(text: str) -> str:
    """A text in one line, with `{}` for whatever stands in braces."""
    return " ".join(re.sub(r"\{[^{}]*\}", "{}", text).split())


@cache
def suggestions() -> list[Suggestion]:
    """Every sentence of an error that advises something of ours."""
    files = trees()
    names = _names(files.values())
    return [
        Suggestion(message, part)
        for message in messages(files)
        for part in sentences(message.text)
        if is_suggestion(part, message.text, names)
    ]


def sentences(text: str) -> list[str]:
    """The sentences of a message; a full stop ends one before a capital, a quote, a backtick or an option."""
    ends = r"(?:(?<=[.?!])|(?<=[.?!]['\"`)]))(?<!e\.g\.) (?=[A-Z`{]|--)"
    return [part.strip() for part in re.split(ends, text) if part.strip()]


def is_suggestion(sentence: str, message: str, names: frozenset[str]) -> bool:
    """Whether a sentence advises, and names something of ours, or stands for it by a pronoun."""
    if not (IMPERATIVE.search(sentence) or IMPLIED.search(sentence)):
        return False
    advice = _advising_part(sentence)
    if (
        HOLE_FIELD.search(advice)
        or COMMAND.search(advice)
        or OPTION.search(advice)
        or CALL.search(advice)
        or AGAIN.search(advice)
        or names_field(advice, names)
    ):
        return True
    return bool(PRONOUN.search(advice)) and (
        bool(OPTION.search(message) or HOLE_FIELD.search(message)) or names_field(message, names)
    )


def names_field(text: str, names: frozenset[str]) -> bool:
    """Whether a text names an argument or field of ours: `batch_size`, `peft=lora`, `captions: all`, leave `x` out."""
    unquoted = re.sub(r"'[^']*'", "''", text)
    if any(word in names for word in re.findall(r"(?<![\w/.-])[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b", unquoted)):
        return True
    shown = re.findall(r"\b([a-z]\w*)(?:=|: (?=[a-z{]))", unquoted)
    shown += re.findall(rf"\b{PLAIN_AFTER}([a-z]\w+)(?= out|[.,;]| of the sweep)", unquoted, re.IGNORECASE)
    return any(word in names and word not in NOT_FIELDS for word in shown)


def _advising_part(sentence: str) -> str:
    """A sentence from its first verb of advice: what is before says what was found."""
    start = IMPERATIVE.search(sentence)
    return sentence if IMPLIED.search(sentence) or start is None else sentence[start.start() :]


def _names(files: Iterable[ast.Module]) -> frozenset[str]:
    """Names of parameters and of fields of classes, ours and those of transformers' arguments."""
    names = {field.name for field in dataclasses.fields(CompositionalConfig)}
    for file in files:
        for node in ast.walk(file):
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                names |= {argument.arg for argument in [*node.args.args, *node.args.kwonlyargs]}
            elif isinstance(node, ast.ClassDef):
                names |= {part.target.id for part in node.body if isinstance(part, ast.AnnAssign)}
    return frozenset(names)
