"""Answers of language models on disk, by the content of their requests: one request has one answer, for good.

Only answers that are used are kept, and the reasons why others were not used where these led to one that was
(`Refusals`): a server that gave nothing of use is asked again by the next process.

Each answer is a file of its own, `ab/abcdef....json`, that holds its checksum. The first process that has an answer
puts it in place whole; another that asked at the same time reads that one instead of its own, so that all processes,
and a build that is resumed after a kill, have the same bytes also where the server samples at random. A damaged file
counts as missing. The folder may be shared by processes and machines, network file systems included.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from hfcomp.checksums import with_checksum
from hfcomp.factory.writers.requests import Refused, Reply, Request, Unreadable, Writer, content_hash
from hfcomp.store import read_document, remove
from hfcomp.writing import write_first

FIRST_ANSWERS = 50
"""Answers without a usable one among them after which a run stops; our choice."""
_EXAMPLES, _SHOWN = 3, 80


class UnusableAnswers(ValueError):
    """None of the first answers of a language model can be used."""


class NothingToChange(Refused):
    """An answer that says that a caption allows no such change: the model works, the caption does not fit."""


class Refusals:
    """The answers of this process that were not used.

    Such an answer is not kept on disk, and a later process asks again. There are two exceptions, for which the same
    questions have the same answers in every process. An answer is kept if a later one to the same question was used.
    And once the model has given a usable answer at all, an answer is kept if it, or another one to its question, had
    the right form: then the model has answered, however wrongly.

    Args:
        keep: Stores the reason instead of an answer, by the key of the request.
        advise: The advice for a run that stops, from the reasons.
    """

    def __init__(self, keep: Callable[[str, Reply], object], advise: Callable[[Counter[str]], str]) -> None:
        self._keep, self._advise = keep, advise
        self._known: dict[str, str] = {}
        self._waiting: dict[str, list[str]] = {}
        self._readable: set[str] = set()
        self._works = False
        self._reasons: Counter[str] = Counter()
        self._examples: dict[str, None] = {}

    def get(self, key: str) -> Reply | None:
        return Reply(problem=self._known[key]) if key in self._known else None

    def use(self, question: str, *, is_new: bool) -> None:
        """Notes that an answer to a question is used; `is_new` if it comes from the model and not from the disk."""
        self._readable.discard(question)
        waiting = [question]
        if is_new and not self._works:
            self._works = True
            waiting += self._readable
        for one in waiting:
            self._store(one)

    def add(self, key: str, question: str, reply: Reply, reason: Refused) -> None:
        """Notes a new answer that is not used; raises UnusableAnswers after `FIRST_ANSWERS` without a usable one."""
        if reply.is_final:  # a server that failed is asked again
            self._known[key] = str(reason)
            self._waiting.setdefault(question, []).append(key)
            if not isinstance(reason, Unreadable):
                self._readable.add(question)
            if self._works and question in self._readable:
                self._store(question)
        # An answer that finds nothing to change shows that the model works.
        if not self._works and not isinstance(reason, NothingToChange):
            self._count(reply, reason)

    def _store(self, question: str) -> None:
        for key in self._waiting.pop(question, ()):
            self._keep(key, Reply(problem=self._known[key]))

    def _count(self, reply: Reply, reason: Refused) -> None:
        self._reasons[str(reason).partition(":")[0]] += 1
        if not reply.problem and len(self._examples) < _EXAMPLES:
            shown = reply.text[:_SHOWN]
            self._examples[f"{shown!r}{'...' if len(reply.text) > _SHOWN else ''}"] = None
        if (number := self._reasons.total()) >= FIRST_ANSWERS:
            reasons = ", ".join(f"{name} ({count})" for name, count in self._reasons.most_common())
            examples = f" Examples: {', '.join(self._examples)}." if self._examples else ""
            raise UnusableAnswers(
                f"none of the first {number} answers of the language model can be used: {reasons}.{examples} "
                f"{self._advise(self._reasons)}"
            )


Answer = TypeVar("Answer")

ASKED, CACHED = "answers from the model", "answers from the cache"
_SETTLED = "settled"


class AnswerCache:
    """Answers by key."""

    # Each answer is a document of `hfcomp.store`, but written by `write_first`: if a server samples at random, all
    # processes must use the answer that was there first.
    def __init__(self, folder: Path) -> None:
        self._folder = folder.expanduser()

    def get(self, key: str) -> Reply | None:
        match read_document(self._path(key)):
            case None:
                return None
            # A problem that is not settled comes from an earlier hfcomp, which kept all problems.
            case {"text": text, "problem": problem, **more} if problem is None or more.get(_SETTLED):
                return Reply(text, problem)
        self.forget(key)
        return None

    def forget(self, key: str) -> None:
        remove(self._path(key))

    def put(self, key: str, reply: Reply) -> Reply:
        """Keeps a reply unless another process was faster; returns the one that is kept."""
        content = {"text": reply.text, "problem": reply.problem} | ({_SETTLED: True} if reply.problem else {})
        text = json.dumps(with_checksum(content))
        if write_first(self._path(key), text):
            return reply
        if kept := self.get(key):
            return kept
        # `get` removed the other process's file, which was damaged. It can't remove one in a folder of another user:
        # then this reply is used and not stored.
        write_first(self._path(key), text)
        return reply

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.json"


class CachedWriter:
    """A writer whose answers are kept.

    Args:
        advise: The advice for a run that stops as no answer can be used, from the reasons.

    Attributes:
        counts: Number of answers from the model and from the cache, under `ASKED` and `CACHED`.
    """

    def __init__(
        self, writer: Writer, cache: AnswerCache, advise: Callable[[Counter[str]], str] = lambda _: ""
    ) -> None:
        self._writer, self._cache = writer, cache
        self._refusals = Refusals(cache.put, advise)
        self.counts: Counter[str] = Counter()

    def payload(self, request: Request) -> dict[str, Any]:
        return self._writer.payload(request)

    def answers(
        self,
        requests: Sequence[Request],
        read: Callable[[int, Reply], Answer],
        questions: Sequence[str] | None = None,
    ) -> list[Answer | Refused]:
        """Asks; equal requests are asked once.

        Args:
            requests: What to ask.
            read: From the place of a request and its reply to the answer; raises `Refused` if it cannot be used.
            questions: For each request, what it has in common with other attempts; by default its prompt.

        Returns:
            The answers, or why there is none, in the order of the requests.

        Raises:
            UnusableAnswers: after many answers without a usable one.
        """
        places: dict[str, list[int]] = {}
        for place, request in enumerate(requests):
            places.setdefault(content_hash(self.payload(request)), []).append(place)
        questions = questions or [request.prompt for request in requests]
        found: dict[int, Answer | Refused] = {}
        missing = []
        for key, same in places.items():
            known = self._find_answers(key, same, read)
            if known is None:
                missing.append(key)
                continue
            self.counts[CACHED] += 1
            found |= known
            if _is_used(known):
                self._refusals.use(questions[same[0]], is_new=False)
        for number, reply in self._writer.replies([requests[places[key][0]] for key in missing]):
            key = missing[number]
            self.counts[ASKED] += 1
            found |= self._store_answers(key, questions[places[key][0]], places[key], reply, read)
        return [found[place] for place in range(len(requests))]

    def _find_answers(
        self, key: str, places: Sequence[int], read: Callable[[int, Reply], Answer]
    ) -> dict[int, Answer | Refused] | None:
        """The answers to a request that this process or the disk has; None if neither has any."""
        if (refusal := self._refusals.get(key)) is not None:
            return _read_all(refusal, places, read)
        reply = self._cache.get(key)
        if reply is None:
            return None
        found = _read_all(reply, places, read)
        if reply.problem is None and not _is_used(found):  # kept by an earlier hfcomp, which read answers otherwise
            self._cache.forget(key)
            return None
        return found

    def _store_answers(
        self, key: str, question: str, places: Sequence[int], reply: Reply, read: Callable[[int, Reply], Answer]
    ) -> dict[int, Answer | Refused]:
        """Stores a new reply if it is used. If another process stored one first, that one counts."""
        found = _read_all(reply, places, read)
        reasons = [one for one in found.values() if isinstance(one, Refused)]
        if len(reasons) == len(found):
            self._refusals.add(key, question, reply, reasons[0])
            return found
        kept = self._cache.put(key, reply)
        self._refusals.use(question, is_new=True)
        others = found if kept == reply else _read_all(kept, places, read)
        # If the stored answer cannot be used here, this process keeps its own.
        return others if _is_used(others) else found


def _read_all(
    reply: Reply, places: Sequence[int], read: Callable[[int, Reply], Answer]
) -> dict[int, Answer | Refused]:
    found: dict[int, Answer | Refused] = {}
    for place in places:
        try:
            found[place] = read(place, reply)
        except Refused as reason:
            found[place] = reason
    return found


def _is_used(found: Mapping[int, object]) -> bool:
    return not all(isinstance(one, Refused) for one in found.values())
