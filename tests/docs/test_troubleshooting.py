"""The messages that the page on troubleshooting quotes are those of the source, and its fields exist."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.docs.snippets import ROOT

PAGE = (ROOT / "docs/troubleshooting.md").read_text()
MESSAGES = re.findall(r"^\| `([^`]+)` \|", PAGE.partition("\n## Messages\n")[2], re.MULTILINE)


@cache
def strings() -> str:
    """Every string of the library, the parts of f-strings with `...` for what is filled in."""
    texts = []
    for path in (ROOT / "hfcomp").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                texts.append("".join(part.value if isinstance(part, ast.Constant) else "..." for part in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return "\n".join(texts)


@pytest.mark.parametrize("message", MESSAGES)
def test_the_library_says_so(message):
    assert message in strings()


def test_there_are_messages():
    assert len(MESSAGES) > 15
