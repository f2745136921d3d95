"""Phrases that a native writer avoids, counted over code and docs: a budget may be lowered but not raised (about 3 s).

`python -m tests.test_english` prints the counts, `python -m tests.test_english NUMBER` the lines of one pattern. A
match is a request to read the sentence again and to say it as you would to a colleague; swapping words rarely helps.
The rules are in CONTRIBUTING.md, "Style". Budgets above 0 leave room for good sentences and names of other libraries.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
CODE, PAGES = (".py",), (".md",)
ALL = (*CODE, *PAGES, ".yaml")
# Generated cards repeat what the template says, and prompts stay as language models were measured with them.
FOLDERS = ("hfcomp", "recipes", "dataset_builders", "benchmarks_perf", "docs")
EXTERNAL = "transformers|diffusers|open_clip|timm|PyTorch|PEFT|the Hub|Python|matplotlib|Gradio|hfcomp"
THINGS = (
    "models?|pipelines?|processors?|checkpoints?|folders?|(?:data )?sets?|datasets?|tokenizers?|class(?:es)?|errors?"
)
THINGS += "|formats?|ids?|files?|trainers?|layouts?"
PARTICIPLES = "[a-z]+ed|said|drawn|made|shown|seen|given|known|taken|found|kept|chosen|written|left|put|told"
COUNTED = "pairs?|steps?|images?|texts?|captions?|rows?|labels?|lines?|panel|negatives?|questions?"
PER = "row|model|image|item|class|text|query|process|batch|step|epoch|set|dataset|caption|label|line|group|file"
BRITISH = "[Cc]olour|[Ll]icence|[Nn]eighbour|ptimis(?!t)|ormalis|nitialis|okenis|eneralis|ynchronis|nalysed|ehaviour"


class Pattern(NamedTuple):
    """An expression, a line that matches it, the files in which lines are counted, and the most there may be."""

    what: str
    example: str
    expression: str
    files: tuple[str, ...]
    budget: int


PATTERNS = (
    Pattern(
        "an argument that starts with a preposition",
        "    seed: of all draws.",
        r"^ +\w+: ([Oo]f|by|at|to|from|on|that|which|whose) ",
        CODE,
        1,
    ),
    Pattern("a docstring that starts with a preposition", '"""Of a set."""', r'"""(Of|As|By) ', CODE, 0),
    Pattern(
        '"is of"',
        "the option is of models",
        r"\b(is|are|was|were) of (a|an|the|its|this|that|one|two|another|each|any|which|models|data)\b",
        ALL,
        6,
    ),
    Pattern(
        '"is no"',
        "a name that is no id",
        r"\b(that|what|which|it|one) is no (?!longer|more|such|different)[a-z]+",
        ALL,
        0,
    ),
    Pattern("the library behind its noun", "a pipeline of diffusers", rf"\b({THINGS}) of ({EXTERNAL})\b", ALL, 7),
    Pattern(
        '"where there is one"',
        "a GPU where there is one",
        r"\b[Ww]here (there|one|none|some|it has|they have) (is|are|any|one|none|such)\b",
        ALL,
        0,
    ),
    Pattern('"that is there"', "a file that is there", r"\b(that|which) (is|are) (not )?(there|here)\b", ALL, 0),
    Pattern(
        "a docstring that starts with a question",
        '"""What came of it."""',
        r'"""(What|Which|Who|Whose|How|Where|Why) ',
        CODE,
        1,
    ),
    Pattern(
        "a dated word",
        "computed anew",
        r"\b(anew|beforehand|likewise|but for|to the bit|its like|and the like)\b",
        ALL,
        0,
    ),
    Pattern(
        '"alone" for "only"',
        "from captions alone",
        r"\b(of|in|on|by|from|to|for|with|are|is|has) [a-z`' ]{1,24} alone\b",
        ALL,
        1,
    ),
    Pattern('", so that" for a result', "it fails, so that nothing is written", r", so that\b", ALL, 17),
    Pattern(
        '"as" for "such as"',
        "columns, as image=path",
        r"""(, as|\(as) ("|'|[a-z_]+[=:][a-z]|[a-z-]+/[a-z-]+)""",
        ALL,
        0,
    ),
    Pattern('"a row" for "per row"', "one text a row", rf"\b(one|an?|\d+) (\w+ )?({COUNTED}) an? ({PER})\b", ALL, 0),
    Pattern(
        "a passive that ends in a preposition",
        "is looked for",
        r"\b(is|are|be|was|were|been|being) (asked|looked|waited|spoken|thought|accounted) (for|at|about|of)\b",
        ALL,
        6,
    ),
    Pattern("software that refuses", "the loader refuses it", r"\b[Rr]efuse[sd]?\b", PAGES, 5),
    Pattern(
        "a participle as a function's name",
        "def _shown(",
        rf"\bdef _?(?!seed|embed|need|feed|speed)({PARTICIPLES})\(",
        CODE,
        18,
    ),
    Pattern(
        "a preposition as a function's name",
        "def of_rows(",
        r"\bdef _?(of|in|at|on)_(?!train|step|epoch|evaluate|save|log|init|predict|substep)\w+\(",
        CODE,
        3,
    ),
    Pattern('a variable called "one" or "found"', "found = 3", r"\b(for one in|found =) ", CODE, 0),
    Pattern('"data set"', "a data set", r"\bdata sets?\b", ALL, 0),
    # 21: names and words of other files that are still read, word lists, one seed.
    Pattern("British spelling", "its colour", rf"\b\w*({BRITISH}|[Cc]entre[ds]?\b)\w*", ALL, 21),
    Pattern('"95 %"', "95 % of", r"\d %", ALL, 1),
)


@cache
def texts() -> dict[str, list[str]]:
    """The lines of every file that is read, by its name."""
    paths = [*ROOT.glob("*"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))]
    read = {path.relative_to(ROOT).as_posix(): path for path in sorted(paths) if path.suffix in ALL}
    return {name: path.read_text("utf-8").split("\n") for name, path in read.items() if "/prompts/" not in name}


def matches(pattern: Pattern) -> Iterator[str]:
    """The matching lines of a pattern, as `FILE:LINE: TEXT`."""
    expression = re.compile(pattern.expression)
    for name, lines in texts().items():
        if name.endswith(pattern.files):
            yield from (
                f"{name}:{n}: {line.strip()}" for n, line in enumerate(lines, start=1) if expression.search(line)
            )


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.what)
def test_no_turn_of_phrase_gets_more_frequent(pattern):
    lines = list(matches(pattern))
    assert len(lines) <= pattern.budget, f"{len(lines)} lines; read the new ones again:\n" + "\n".join(lines)


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.what)
def test_a_pattern_matches_its_example(pattern):
    assert re.search(pattern.expression, pattern.example)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(*matches(PATTERNS[int(sys.argv[1])]), sep="\n")
    else:
        for number, pattern in enumerate(PATTERNS):
            print(f"{number:2} {sum(1 for _ in matches(pattern)):5} of {pattern.budget:5}  {pattern.what}")
