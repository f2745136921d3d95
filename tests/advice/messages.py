"""Texts for users, read from the source: every string of several words that is not a docstring or help of an option.

Errors are the most of them. Some are raised where they stand, others are constants, are returned by a function, or are
collected first; so all strings are read, wherever they go.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("hfcomp", "dataset_builders", "recipes")
HELP = {"help", "description", "epilog", "metadata", "metavar"}
HELP_OF_COMMANDS = {"USAGE", "SUMMARY", "INTRODUCTION", "COMMAND_HELP"}
DECLARATIONS = {"option", "command_parser"}
"""Functions that declare a field or a command with its help."""
NOT_SAID = re.compile(r"^Args: |\bArgs: |^(?:CREATE|SELECT|INSERT|UPDATE|DELETE) ")
"""Docstrings that are built from parts, and SQL."""


class Message(NamedTuple):
    """A string: its file from the root of the repository, its line, and the text with `{}` for values."""

    path: str
    line: int
    text: str


def trees(folders: tuple[str, ...] = FOLDERS, *, containing: str = "") -> dict[str, ast.Module]:
    """The syntax trees of the Python files below some folders that contain a text, by path."""
    files = sorted(file for folder in folders for file in (ROOT / folder).rglob("*.py"))
    texts = {file.relative_to(ROOT).as_posix(): file.read_text(encoding="utf-8") for file in files}
    return {path: ast.parse(text) for path, text in texts.items() if containing in text}


def messages(files: dict[str, ast.Module]) -> Iterator[Message]:
    """All strings with a space in them, in the order of files."""
    for path, tree in files.items():
        for node in _strings(tree):
            text = text_of(node)
            if " " in text.strip() and not NOT_SAID.search(" ".join(text.split())):
                yield Message(path, node.lineno, " ".join(text.split()))


def text_of(node: ast.AST) -> str | None:
    """A string as it is written, with `{}` for each value in it; None if the node is not a string."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) or "{}" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = text_of(node.left), text_of(node.right)
        return None if sides == (None, None) else "".join("{}" if side is None else side for side in sides)
    return None


def _strings(node: ast.AST) -> Iterator[ast.AST]:
    """The whole strings below a node, and those in their values."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return  # a docstring
    if text_of(node) is not None:
        yield node
        for part in ast.walk(node):
            if isinstance(part, ast.FormattedValue):
                yield from _strings(part.value)
        return
    if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in HELP_OF_COMMANDS:
        return
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") in DECLARATIONS:
        for keyword in node.keywords:
            if keyword.arg == "limits":  # whose advice ends an error
                yield from _strings(keyword)
        return
    if isinstance(node, ast.Subscript) and getattr(node.value, "id", "") == "Annotated":
        return  # an option and its help, see hfcomp/options.py
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.keyword) and child.arg in HELP):
            yield from _strings(child)
