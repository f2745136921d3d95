"""Which tests follow which suggestions, read from the syntax trees of all tests, and their fixture `advice`."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import pytest

from hfcomp import cli
from hfcomp.experiments.recipe_fields import REJECTED, field_hints, split_options
from hfcomp.experiments.recipes import read_file
from tests.advice.find import plain
from tests.advice.messages import text_of, trees
from tests.docs.commands import parser_of


class Marker(NamedTuple):
    """`pytest.mark.follows(path, fragment)` in a test file."""

    test: str
    path: str
    fragment: str


@cache
def markers() -> list[Marker]:
    """Every marker below tests/; their arguments are strings, or constants of the file."""
    entries = []
    for test, tree in trees(("tests",), containing="follows(").items():
        constants = dict(part for node in tree.body if isinstance(node, ast.Assign) for part in _assigned_texts(node))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _name(node.func) == "follows":
                path, fragment = _arguments(node, constants, f"{test}:{node.lineno}")
                entries.append(Marker(f"{test}:{node.lineno}", path, fragment))
    return entries


def _assigned_texts(node: ast.Assign) -> Iterator[tuple[str, Any]]:
    """The texts of an assignment, as of `PATH = "..."`, `PATH, OTHER = "...", "..."` or `BOTH = ("...", "...")`."""
    for target in node.targets:
        several = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
        pairs = zip(target.elts, node.value.elts, strict=True) if several else [(target, node.value)]
        for name, value in pairs:
            if isinstance(name, ast.Name):
                both = [text_of(part) for part in value.elts] if isinstance(value, ast.Tuple) else None
                yield name.id, both or text_of(value)


def _name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _arguments(call: ast.Call, constants: dict[str, Any], place: str) -> list[str]:
    """The texts that a call is given, one by one or as a constant of two: `follows(*ADVICE)`."""
    arguments: list[str] = []
    for node in call.args:
        name = node.value if isinstance(node, ast.Starred) else node
        value = constants.get(name.id) if isinstance(name, ast.Name) else text_of(name)
        arguments += value if isinstance(value, list) else [value]
    if len(arguments) != 2 or not all(arguments):
        raise ValueError(f"{place}: follows() takes texts, or constants of the file")
    return arguments


class Advice:
    """The messages that a test has provoked, compared with its markers."""

    def __init__(self, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]):
        self.left = [marker.args for marker in request.node.iter_markers("follows")]
        assert self.left, "the fixture `advice` needs @pytest.mark.follows(path, fragment)"
        self.capsys = capsys
        self.every = list(self.left)

    def of(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> str:
        """The message of the error that a call ends in: a line of standard error where it is a parser's."""
        with pytest.raises((Exception, SystemExit)) as caught:
            call(*arguments, **options)
        code = getattr(caught.value, "code", None)
        return self.read(self.capsys.readouterr().err if isinstance(code, int) else str(caught.value))

    def command(self, *words: str) -> str:
        """The message that `hfcomp WORDS` ends in, whose options have to be those of that command.

        Those of other commands stand in backticks, with the command.
        """
        message = self.of(cli.main, words)
        own = re.sub(r"`[^`]*`", "", message)
        unknown = {*re.findall(r"(?<![\w-])--[a-z][\w-]*", own)} - options_of(words) - {"--traceback"}
        assert not unknown, f"hfcomp {words[0]} has no {sorted(unknown)}: {message}"
        return message

    def read(self, message: str) -> str:
        """A message, in one line, which has to be what a marker says."""
        message = " ".join(message.split())
        matched = [entry for entry in self.every if pattern(entry[1]).search(message)]
        assert matched, f"expected {[fragment for _, fragment in self.every]} in: {message}"
        self.left = [entry for entry in self.left if entry not in matched]
        return message


def pattern(fragment: str) -> re.Pattern[str]:
    """A fragment as it is read, with anything where it has a value."""
    return re.compile(".*?".join(re.escape(part) for part in plain(fragment).split("{}")))


def options_of(words: Sequence[str]) -> set[str]:
    """The options that the command of these words has."""
    name, *rest = words
    if name == "train":
        options, _ = split_options(rest[1:])
        fields = field_hints(read_file(rest[0], options)[2].config_class)
        known = {*fields} - {*REJECTED} | {"config", "objective", "report", "search", "dry_run", "dry-run", "help"}
        return {f"--{field}" for field in known}
    parser = parser_of(import_module(cli.COMMANDS[name]), rest)
    for action in parser._actions:
        if isinstance(action.choices, dict) and rest and rest[0] in action.choices:
            parser = action.choices[rest[0]]  # of `hfcomp build KIND`
    return {*parser._option_string_actions}
