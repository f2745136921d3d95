"""Parsing in worker processes: captions out, `Doc`s back as `DocBin`s, one message per batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from spacy.tokens import Doc
    from spacy.vocab import Vocab

# DocBin adds the words and the spaces after them; sentences follow from the heads. `Doc.to_bytes`, by which `nlp.pipe`
# talks with its processes, and user data call srsly once per `Doc`, which searches all installed packages each time.
_ATTRIBUTES = ("TAG", "POS", "MORPH", "LEMMA", "HEAD", "DEP")
# Batches under way per process: one in work, one waiting, and no more, so that captions are not read long before.
_AHEAD = 2


class _Worker(Protocol):
    def parse(self, captions: Iterable[str], *, num_processes: int = 1, batch_size: int = 256) -> Iterator[Doc]: ...


_parser: _Worker | None = None


def check_request(captions: Iterable[str], num_processes: int, batch_size: int) -> None:
    """Raises the errors documented in `Parser.parse`."""
    if isinstance(captions, str):
        raise TypeError(f"captions is the string {captions[:40]!r}; expected several captions, such as [caption].")
    if num_processes < 1 or batch_size < 1:
        raise ValueError(f"num_processes is {num_processes} and batch_size {batch_size}; expected 1 or more of each.")


def _start(parser: _Worker) -> None:
    global _parser
    _parser = parser


def _parse_batch(captions: list[str]) -> bytes:
    from spacy.tokens import DocBin

    if _parser is None:
        raise RuntimeError("the worker process has no parser; only parse_in_processes starts it.")
    docs = _parser.parse(captions, batch_size=len(captions))
    return bytes(DocBin(attrs=_ATTRIBUTES, docs=docs).to_bytes())


def parse_in_processes(
    parser: _Worker, vocab: Vocab, captions: Iterable[str], *, num_processes: int, batch_size: int
) -> Iterator[Doc]:
    """Runs `parser.parse` in worker processes.

    Args:
        parser: Handed to each process once.
        vocab: Of the `Doc`s that come back.
        captions: Read as the processes need them.
        num_processes: At least 1.
        batch_size: Captions per message.

    Returns:
        One `Doc` per caption, in order, with the annotations that `Parser` promises; custom extension attributes are
        not carried over.
    """
    from spacy.tokens import DocBin

    under_way: deque[Future[bytes]] = deque()
    with ProcessPoolExecutor(num_processes, initializer=_start, initargs=(parser,)) as pool:
        remaining = iter(captions)
        while batch := list(islice(remaining, batch_size)):
            under_way.append(pool.submit(_parse_batch, batch))
            if len(under_way) >= _AHEAD * num_processes:
                yield from DocBin().from_bytes(under_way.popleft().result()).get_docs(vocab)
        while under_way:
            yield from DocBin().from_bytes(under_way.popleft().result()).get_docs(vocab)
