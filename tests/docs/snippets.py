"""Fenced blocks of the pages, and the mark before each: a comment that names its test, or what it needs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for pattern in (
        *("README.md", "CONTRIBUTING.md", "docs/*.md", "docs/*/*.md", "recipes/*/README.md"),
        *("dataset_builders/*/README.md", "model_cards/*.md"),
    )
    for path in ROOT.glob(pattern)
)
BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>[^\n]+) -->\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE
)
RUN_BY, NEEDS = "run by ", "needs "


@dataclass(frozen=True)
class Snippet:
    """A fenced block.

    Attributes:
        page: relative to the repository.
        line: where its code begins.
        language: of the fence; empty if it names none.
        code: between the fences.
        mark: the comment in the line before the fence, or empty.
    """

    page: str
    line: int
    language: str
    code: str
    mark: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def needs(self) -> str:
        """What a block needs that no test has, such as `the Hub`; empty for one that is tested."""
        return self.mark.removeprefix(NEEDS) if self.mark.startswith(NEEDS) else ""

    @property
    def test(self) -> str:
        """The file of the test that runs it, or empty."""
        return self.mark.removeprefix(RUN_BY) if self.mark.startswith(RUN_BY) else ""


def snippets(*languages: str) -> list[Snippet]:
    """The blocks of all pages in these languages, or all."""
    return [snippet for snippet in _all_snippets() if not languages or snippet.language in languages]


@cache
def _all_snippets() -> list[Snippet]:
    entries = []
    for page in PAGES:
        text = page.read_text("utf-8")
        for match in BLOCK.finditer(text):
            line = text.count("\n", 0, match.start("code")) + 1
            entries.append(
                Snippet(str(page.relative_to(ROOT)), line, match["language"], match["code"], match["mark"] or "")
            )
    return entries


def blocks(page: str) -> list[str]:
    """The Python of a page, block by block."""
    return [snippet.code for snippet in snippets("python") if snippet.page == page]


def lines(snippet: Snippet) -> Iterator[list[str]]:
    """The words of each command of a shell block, with its variables filled in and without variables set for it."""
    variables: dict[str, str] = {}
    for line in snippet.code.replace("\\\n", " ").splitlines():
        for name, value in variables.items():
            line = line.replace(f"${name}", value)
        words = shlex.split(line, comments=True)
        while words and (match := re.fullmatch(r"(\w+)=(.*)", words[0])):
            variables[match[1]] = match[2]
            words.pop(0)
        if words:
            yield words
