"""Captions to spaCy `Doc`s: by a trained spaCy pipeline or by rules, as asked for, never silently."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from hfcomp.parsing.installed import with_extra
from hfcomp.parsing.parallel import check_request, parse_in_processes
from hfcomp.parsing.rules.parser import RuleParser
from hfcomp.parsing.words import word_set

if TYPE_CHECKING:
    from spacy.tokens import Doc

DEFAULT_PARSER = "spacy:en_core_web_sm"
# What writes nothing that a generator reads; everything else stays, a component of the user's own too.
_UNUSED_FACTORIES = word_set(
    "ner beam_ner entity_linker entity_ruler future_entity_ruler span_ruler span_finder spancat "
    "spancat_singlelabel textcat textcat_multilabel senter sentencizer"
)
_NEEDED = {
    "token.tag": "a tagger",
    "token.pos": "an attribute ruler or a morphologizer",
    "token.dep": "a dependency parser",
    "token.lemma": "a lemmatizer",
}


class Parser(Protocol):
    """Captions in, `Doc`s out. A parser can be pickled, so that it can be handed to worker processes.

    Attributes:
        name: Which parser and which version, to be recorded with whatever is made from its `Doc`s.
    """

    name: str

    def parse(self, captions: Iterable[str], *, num_processes: int = 1, batch_size: int = 256) -> Iterator[Doc]:
        """Parses captions.

        Args:
            captions: Any number of them; they are read as they are needed.
            num_processes: Processes that parse. `Doc`s cost about as much to send as to make, so work that is done
                per caption is better handed to processes whole, with the parser in it and one process here.
            batch_size: Captions that go through the pipeline, or to a process, together.

        Returns:
            One `Doc` per caption, in order; its text is the caption to the character. Its tokens have `pos_`, `tag_`
            (Penn Treebank), `lemma_`, `head`, `dep_` and `idx`, and it has `noun_chunks`.

        Raises:
            TypeError: `captions` is one string.
            ValueError: `num_processes` or `batch_size` is below 1.
        """


def load_parser(spec: str = DEFAULT_PARSER) -> Parser:
    """Loads a parser.

    Args:
        spec: `spacy:NAME`, an installed spaCy pipeline or a folder with one, or `rules`, which needs no model.

    Raises:
        ValueError: The spec has neither form, or the pipeline lacks a component that is needed.
        ModuleNotFoundError: spaCy, or what the rules build on, is not installed.
        OSError: The pipeline is not installed.
    """
    kind, _, name = spec.partition(":")
    if kind == "spacy" and name:
        return with_extra(SpacyParser, name)
    if spec == "rules":
        return with_extra(RuleParser)
    guess = f" Did you mean spacy:{spec}?" if spec.startswith("en_") else ""
    raise ValueError(
        f"parser {spec!r} is not known.{guess} Expected spacy:NAME, an installed spaCy pipeline or a folder with one, "
        f"such as {DEFAULT_PARSER}, or rules, which needs no model."
    )


@lru_cache(maxsize=2)
def cached_parser(spec: str | None = None) -> Parser:
    """`load_parser`, once per process; by default of `DEFAULT_PARSER`."""
    return load_parser(spec or DEFAULT_PARSER)


class SpacyParser:
    """`spacy:NAME`: a trained pipeline, captions in batches, without the components that no generator reads.

    Args:
        pipeline: Name of an installed pipeline, or a folder with one.
    """

    def __init__(self, pipeline: str) -> None:
        import spacy

        self._pipeline = pipeline
        try:
            self._nlp = spacy.load(pipeline)
        except OSError as error:
            raise OSError(
                f"the spaCy pipeline {pipeline!r} is not installed, nor is it a folder with one: "
                f"python -m spacy download {pipeline}   (the parser 'rules' needs no model)"
            ) from error
        meta = self._nlp.meta
        self.name = f"spacy:{meta['lang']}_{meta['name']} {meta['version']}"
        self._check_parts()
        for part, factory in self._factories().items():
            if factory in _UNUSED_FACTORIES:
                self._nlp.remove_pipe(part)

    def __reduce__(self) -> tuple[type[SpacyParser], tuple[str]]:
        return SpacyParser, (self._pipeline,)

    def _factories(self) -> dict[str, str]:
        return {part: self._nlp.get_pipe_meta(part).factory for part in self._nlp.component_names}

    def _check_parts(self) -> None:
        factories = {part: name for part, name in self._factories().items() if part in self._nlp.pipe_names}
        written = {what for part in factories for what in self._nlp.get_pipe_meta(part).assigns}
        if "attribute_ruler" in factories.values():
            written.add("token.pos")
        missing = [part for what, part in _NEEDED.items() if what not in written]
        if missing:
            raise ValueError(
                f"the spaCy pipeline {self._pipeline!r} lacks {' and '.join(missing)}; it has "
                f"{', '.join(factories) or 'no components'}. Expected one that tags, parses and lemmatizes, such as "
                "en_core_web_sm."
            )
        if self._nlp.vocab.get_noun_chunks is None:
            raise ValueError(
                f"the spaCy pipeline {self._pipeline!r} is for the language {self._nlp.lang!r}, for which spaCy has "
                "no noun chunks. Expected one for English, such as en_core_web_sm."
            )

    def parse(self, captions: Iterable[str], *, num_processes: int = 1, batch_size: int = 256) -> Iterator[Doc]:
        """See `Parser.parse`."""
        check_request(captions, num_processes, batch_size)
        if num_processes > 1:
            return parse_in_processes(
                self, self._nlp.vocab, captions, num_processes=num_processes, batch_size=batch_size
            )
        return self._nlp.pipe(captions, batch_size=batch_size)
