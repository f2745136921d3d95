"""Follows the advice of refused builds on the command line, from fresh files."""

from __future__ import annotations

import pytest

import hfcomp.factory.command
from hfcomp import cli
from hfcomp.factory.text_negatives import TextNegatives
from hfcomp.factory.writer_options import WriterOptions
from tests.negatives import language_models

follows = pytest.mark.follows
OPTIONS = "hfcomp/factory/options.py"


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory) -> str:
    return str(language_models.gpt2(tmp_path_factory.mktemp("models") / "gpt2"))


@pytest.fixture
def build(tmp_path):
    """Words of `hfcomp build KIND`, into a folder that is new unless one is named."""
    numbers = iter(range(100))

    def words(kind: str, source: object, *more: object, output: str | None = None) -> list[str]:
        place = tmp_path / (output or f"built {next(numbers)}")
        return ["build", kind, "--source", str(source), "--output", str(place), *map(str, more)]

    return words


class Begins(Exception):
    """A build that begins: its options are in order."""


@pytest.fixture
def begins(monkeypatch):
    """Gives words of a build that tests cannot run to its end, and wants its options to pass."""

    def take(options):
        raise Begins

    def begins(words: list[str]) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(hfcomp.factory.command, "build_and_report", take)
            with pytest.raises(Begins):
                cli.main([*words, "--traceback"])

    return begins


NAMES = ("--column_names", "image=file,caption=text")


@follows("hfcomp/options.py", "--{name} needs --{needs.option}")
def test_options_that_belong_together(advice, build, clip, gpt2, photographs, tmp_path):
    margin = ("--false_negative_margin", "0.1")
    advice.command(*build("negatives", photographs, *NAMES, *margin))
    cli.main(build("negatives", photographs, *NAMES, *margin, "--false_negative_model", clip))
    texts = (*NAMES, "--columns", "caption")
    advice.command(*build("negatives", photographs, *texts, "--grammar_tolerance", "1"))
    cli.main(build("negatives", photographs, *texts, "--grammar_tolerance", "1", "--grammar_model", gpt2))
    joined = ("--column_names", "image=file", "--key_column", "text", "--columns", "caption")
    advice.command(*build("negatives", photographs, *joined))
    (tmp_path / "captions.csv").write_text("text,said\na red cube on a blue ball 0,a red ball\n")
    file = ("--captions_file", tmp_path / "captions.csv", "--captions_columns", "text,said")
    cli.main(build("negatives", photographs, *joined, *file))


@follows(OPTIONS, "--{name} needs --kinds to include {generator}.")
@follows(
    "hfcomp/factory/writer_options.py", "--writer endpoint needs --base_url, such as http://127.0.0.1:8000/v1 of vLLM."
)
@follows(OPTIONS, "not with llm. Use --kinds keyword.")
@follows("hfcomp/factory/text_negatives.py", "Pass writer=WriterOptions(base_url='http://127.0.0.1:8000/v1')")
def test_kinds_and_writers(advice, begins, build, photographs):
    given = (*NAMES, "--columns", "caption", "--base_url", "http://127.0.0.1:8000/v1")
    advice.command(*build("negatives", photographs, *given))
    begins(build("negatives", photographs, *given, "--kinds", "llm"))
    advice.command(*build("negatives", photographs, "--kinds", "llm"))
    begins(build("negatives", photographs, "--kinds", "llm", "--writer", "transformers", "--llm", "small"))
    advice.command(*build("negatives", photographs, *NAMES, "--kinds", "llm", "--writer", "substitute"))
    cli.main(build("negatives", photographs, *NAMES, "--kinds", "keyword"))
    advice.of(TextNegatives, kinds=["llm"])
    TextNegatives(kinds=["llm"], writer=WriterOptions(base_url="http://127.0.0.1:8000/v1").writer_settings())
