"""Parses captions to spaCy `Doc`s with the requested parser, a trained spaCy pipeline or rules, without fallback."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from functools import lru_cache
from importlib.metadata import version
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from hfcomp.parsing.rules.heads import parse_words
from hfcomp.parsing.rules.tags import penn_tags
from hfcomp.parsing.rules.words import lemma
from hfcomp.parsing.tokens import pieces, with_extra
from hfcomp.parsing.words import word_set

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc
    from spacy.vocab import Vocab

DEFAULT_PARSER = "spacy:en_core_web_sm"
# Components whose output no generator reads. All others are kept, including the user's own.
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
# DocBin adds words and the spaces after them; sentences follow from the heads. `Doc.to_bytes` (which `nlp.pipe` uses
# between processes) and user data call srsly once per `Doc`, and srsly searches all installed packages each time.
_ATTRIBUTES = ("TAG", "POS", "MORPH", "LEMMA", "HEAD", "DEP")
# Pending batches per process: one in progress and one waiting. With more, captions would be read long before use.
_AHEAD = 2


class Parser(Protocol):
    """Parses captions to `Doc`s. A parser can be pickled and passed to worker processes.

    Attributes:
        name: Name and version of the parser, to be recorded with everything built from its `Doc`s.
    """

    name: str

    def parse(self, captions: Iterable[str], *, num_processes: int = 1, batch_size: int = 256) -> Iterator[Doc]:
        """Parses captions.

        Args:
            captions: Any number of captions; they are read lazily.
            num_processes: Number of parsing processes. Sending a `Doc` costs about as much as creating it, so work per
                caption is better run as a whole in other processes, each with the parser and one process here.
            batch_size: Number of captions per batch for the pipeline or a process.

        Returns:
            One `Doc` per caption, in order, whose text is exactly the caption. Its tokens have `pos_`, `tag_` (Penn
            Treebank), `lemma_`, `head`, `dep_` and `idx`, and it has `noun_chunks`.

        Raises:
            TypeError: If `captions` is a single string.
            ValueError: If `num_processes` or `batch_size` is below 1.
        """


def load_parser(spec: str = DEFAULT_PARSER) -> Parser:
    """Loads a parser.

    Args:
        spec: `spacy:NAME`, with an installed spaCy pipeline or a folder that contains one, or `rules`, which needs no
            model.

    Raises:
        ValueError: If the spec has neither form, or the pipeline lacks a required component.
        ModuleNotFoundError: If spaCy or a package that the rules require is not installed.
        OSError: If the pipeline is not installed.
    """
    kind, _, name = spec.partition(":")
    if kind == "spacy" and name:
        return with_extra(SpacyParser, name)
    if spec == "rules":
        return with_extra(RuleParser)
    guess = f" Did you mean spacy:{spec}?" if spec.startswith("en_") else ""
    raise ValueError(
        f"parser {spec!r} is unknown.{guess} Expected spacy:NAME with an installed spaCy pipeline or its folder, such "
        f"as {DEFAULT_PARSER}, or rules, which needs no model."
    )


@lru_cache(maxsize=2)
def cached_parser(spec: str | None = None) -> Parser:
    """Calls `load_parser` once per process and spec. Defaults to `DEFAULT_PARSER`."""
    return load_parser(spec or DEFAULT_PARSER)


class _ProcessParser:
    """Checks a request and parses in this process or in workers; subclasses define how a single process parses."""

    _nlp: Language

    def _parse_here(self, captions: Iterable[str], batch_size: int) -> Iterator[Doc]:
        raise NotImplementedError

    def parse(self, captions: Iterable[str], *, num_processes: int = 1, batch_size: int = 256) -> Iterator[Doc]:
        if isinstance(captions, str):
            raise TypeError(
                f"captions is the string {captions[:40]!r}; expected a sequence of captions, such as [caption]."
            )
        if num_processes < 1 or batch_size < 1:
            raise ValueError(
                f"num_processes is {num_processes} and batch_size {batch_size}; expected 1 or more of each."
            )
        if num_processes > 1:
            return _parse_in_processes(self, self._nlp.vocab, captions, num_processes, batch_size)
        return self._parse_here(captions, batch_size)


class SpacyParser(_ProcessParser):
    """`spacy:NAME`: an installed pipeline or its folder, without the components whose output no generator reads."""

    def __init__(self, pipeline: str) -> None:
        import spacy

        self._pipeline = pipeline
        try:
            self._nlp = spacy.load(pipeline)
        except OSError as error:
            raise OSError(
                f"the spaCy pipeline {pipeline!r} is neither installed nor a pipeline folder. Install it with: "
                f"python -m spacy download {pipeline}   (the parser 'rules' needs no model)"
            ) from error
        meta = self._nlp.meta
        self.name = f"spacy:{meta['lang']}_{meta['name']} {meta['version']}"
        # Check before removing components, because the message lists what the user's pipeline has.
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
        # Use what components declare to write, not their names, which users may choose.
        written = {what for part in factories for what in self._nlp.get_pipe_meta(part).assigns}
        if "attribute_ruler" in factories.values():
            # The attribute ruler declares nothing, because it can write anything.
            written.add("token.pos")
        missing = [part for what, part in _NEEDED.items() if what not in written]
        if missing:
            raise ValueError(
                f"the spaCy pipeline {self._pipeline!r} lacks {' and '.join(missing)}; it has "
                f"{', '.join(factories) or 'no components'}. Use a pipeline that tags, parses and lemmatizes, such as "
                "en_core_web_sm."
            )
        if self._nlp.vocab.get_noun_chunks is None:
            raise ValueError(
                f"the spaCy pipeline {self._pipeline!r} is for the language {self._nlp.lang!r}, for which spaCy has "
                "no noun chunks. Use an English pipeline such as en_core_web_sm."
            )

    def _parse_here(self, captions: Iterable[str], batch_size: int) -> Iterator[Doc]:
        return self._nlp.pipe(captions, batch_size=batch_size)


class RuleParser(_ProcessParser):
    """`--parser rules`: for machines that cannot get a spaCy model. Its accuracy is in docs/parsing.md."""

    def __init__(self) -> None:
        import spacy

        self.name = f"rules (textblob {version('textblob')}, simplemma {version('simplemma')})"
        # Load the dictionaries. If they are not installed, this fails here instead of at the first caption.
        penn_tags(["a"])
        lemma("dogs", "NNS")
        self._nlp = spacy.blank("en")

    def __reduce__(self) -> tuple[type[RuleParser], tuple[()]]:
        return RuleParser, ()

    def _parse_here(self, captions: Iterable[str], batch_size: int) -> Iterator[Doc]:
        return map(self._parse_caption, captions)

    def _parse_caption(self, caption: str) -> Doc:
        from spacy.tokens import Doc

        tokens = [token for piece in pieces(caption) for token in self._nlp.make_doc(piece)]
        words = [token.text for token in tokens]
        spaces = [bool(token.whitespace_) for token in tokens]
        annotations: dict[str, Any] = parse_words(words)
        return Doc(self._nlp.vocab, words=words, spaces=spaces, **annotations)


# Parser of a worker process. It is set once when the process starts, because loading a pipeline takes seconds.
_parser: _ProcessParser | None = None


def _start(parser: _ProcessParser) -> None:
    global _parser
    _parser = parser


def _parse_batch(captions: list[str]) -> bytes:
    from spacy.tokens import DocBin

    if _parser is None:
        raise RuntimeError("the worker process has no parser. Start workers only with _parse_in_processes.")
    docs = _parser.parse(captions, batch_size=len(captions))
    return bytes(DocBin(attrs=_ATTRIBUTES, docs=docs).to_bytes())


def _parse_in_processes(
    parser: _ProcessParser, vocab: Vocab, captions: Iterable[str], num_processes: int, batch_size: int
) -> Iterator[Doc]:
    # `_ATTRIBUTES` covers everything that `Parser` promises. Custom extension attributes of `Doc`s are not
    # transferred.
    from spacy.tokens import DocBin

    pending: deque[Future[bytes]] = deque()
    with ProcessPoolExecutor(num_processes, initializer=_start, initargs=(parser,)) as pool:
        remaining = iter(captions)
        while batch := list(islice(remaining, batch_size)):
            pending.append(pool.submit(_parse_batch, batch))
            # Wait for the oldest batch instead of the first finished one, so results keep the order of the captions.
            if len(pending) >= _AHEAD * num_processes:
                yield from DocBin().from_bytes(pending.popleft().result()).get_docs(vocab)
        while pending:
            yield from DocBin().from_bytes(pending.popleft().result()).get_docs(vocab)
