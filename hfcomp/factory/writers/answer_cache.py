"""Stores language model answers on disk by the content of their requests. A request has one answer, permanently.

Only used answers are stored, and the reasons for rejecting earlier answers if a later answer was used (`Refusals`). If
a server returned nothing usable, the next process asks it again.

Each answer is a separate file, `ab/abcdef....json`, with a checksum. The first process with an answer writes it
atomically; another process that asked at the same time uses the stored answer instead of its own. So all processes,
and a build that resumes after a kill, have the same bytes even if the server samples at random. A damaged file counts
as missing. Processes and machines may share the folder, also on network file systems.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from hfcomp.checksums import with_checksum
from hfcomp.factory.writers.requests import Refused, Reply, Request, Unreadable, Writer, content_hash
from hfcomp.store import cache_folder, read_document, remove
from hfcomp.writing import write_if_missing

FIRST_ANSWERS = 50
"""Number of answers without a usable one after which a run stops. Our choice."""
_EXAMPLES, _SHOWN = 3, 80


class UnusableAnswers(ValueError):
    """None of a language model's first answers can be used."""


class NothingToChange(Refused):
    """The answer says that the caption allows no such change. The model works, but the caption does not fit."""


class Refusals:
    """The rejected answers of this process.

    A rejected answer is not stored on disk, so a later process asks again. There are two exceptions, which ensure that
    the same questions have the same answers in every process. A rejection is stored if a later answer to the same
    question was used. And once the model has given any usable answer, a rejection is stored if this answer or another
    one to its question had the right form, because then the model has answered, however wrongly.

    Args:
        keep: Function that stores the reason instead of an answer, by the key of the request.
        advise: Function from the reasons to advice for a run that stops.
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
        """Records that an answer to a question is used. `is_new` means that it comes from the model, not from disk."""
        self._readable.discard(question)
        waiting = [question]
        if is_new and not self._works:
            self._works = True
            waiting += self._readable
        for text in waiting:
            self._store(text)

    def add(self, key: str, question: str, reply: Reply, reason: Refused) -> None:
        """Records a new rejected answer. Raises UnusableAnswers after `FIRST_ANSWERS` answers without a usable one."""
        if reply.is_final:  # a failed server is asked again
            self._known[key] = str(reason)
            self._waiting.setdefault(question, []).append(key)
            if not isinstance(reason, Unreadable):
                self._readable.add(question)
            if self._works and question in self._readable:
                self._store(question)
        # An answer that finds nothing to change proves that the model works.
        if not self._works and not isinstance(reason, NothingToChange):
            self._count(reply, reason)

    def _store(self, question: str) -> None:
        for key in self._waiting.pop(question, ()):
            self._keep(key, Reply(problem=self._known[key]))

    def _count(self, reply: Reply, reason: Refused) -> None:
        self._reasons[str(reason).partition(":")[0]] += 1
        if not reply.problem and len(self._examples) < _EXAMPLES:
            excerpt = reply.text[:_SHOWN]
            self._examples[f"{excerpt!r}{'...' if len(reply.text) > _SHOWN else ''}"] = None
        if (number := self._reasons.total()) >= FIRST_ANSWERS:
            reasons = ", ".join(f"{name} ({count})" for name, count in self._reasons.most_common())
            examples = f" Examples: {', '.join(self._examples)}." if self._examples else ""
            raise UnusableAnswers(
                f"none of the language model's first {number} answers can be used: {reasons}.{examples} "
                f"{self._advise(self._reasons)}"
            )


Answer = TypeVar("Answer")

ASKED, CACHED = "answers from the model", "answers from the cache"
_SETTLED = "settled"


class AnswerCache:
    """Stored answers by key."""

    # Each answer is a document of `hfcomp.store`, but written by `write_if_missing`: if a server samples at random,
    # all processes must use the first stored answer.
    def __init__(self, folder: Path | str | None) -> None:
        self._folder = Path(folder or cache_folder("answers")).expanduser()

    def get(self, key: str) -> Reply | None:
        match read_document(self._path(key)):
            case None:
                return None
            # A problem that is not settled comes from an earlier hfcomp, which stored all problems.
            case {"text": text, "problem": problem, **more} if problem is None or more.get(_SETTLED):
                return Reply(text, problem)
        self.forget(key)
        return None

    def forget(self, key: str) -> None:
        remove(self._path(key))

    def put(self, key: str, reply: Reply) -> Reply:
        """Stores a reply unless another process was faster, and returns the stored reply."""
        content = {"text": reply.text, "problem": reply.problem} | ({_SETTLED: True} if reply.problem else {})
        text = json.dumps(with_checksum(content))
        if write_if_missing(self._path(key), text):
            return reply
        if kept := self.get(key):
            return kept
        # The other process's file was damaged, so `get` removed it. It cannot remove a file in another user's folder.
        # Then this reply is used but not stored.
        write_if_missing(self._path(key), text)
        return reply

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.json"


class CachedWriter:
    """A writer whose answers are stored.

    Args:
        advise: Function from the reasons to advice for a run that stops because no answer can be used.

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
        self, requests: Sequence[Request], read: Callable[[int, Reply], Answer], questions: Sequence[str] | None = None
    ) -> list[Answer | Refused]:
        """Requests answers. Equal requests are sent once.

        Args:
            requests: Requests to send.
            read: Function from the place of a request and its reply to the answer. It raises `Refused` if the reply
                cannot be used.
            questions: For each request, a text that is the same in all attempts; defaults to its prompt.

        Returns:
            The answers or refusals, in the order of the requests.

        Raises:
            UnusableAnswers: After many answers without a usable one.
        """
        places: dict[str, list[int]] = {}
        for place, request in enumerate(requests):
            places.setdefault(content_hash(self.payload(request)), []).append(place)
        questions = questions or [request.prompt for request in requests]
        answers: dict[int, Answer | Refused] = {}
        missing = []
        for key, same in places.items():
            known = self._find_answers(key, same, read)
            if known is None:
                missing.append(key)
                continue
            self.counts[CACHED] += 1
            answers |= known
            if _is_used(known):
                self._refusals.use(questions[same[0]], is_new=False)
        for number, reply in self._writer.replies([requests[places[key][0]] for key in missing]):
            key = missing[number]
            self.counts[ASKED] += 1
            answers |= self._store_answers(key, questions[places[key][0]], places[key], reply, read)
        return [answers[place] for place in range(len(requests))]

    def _find_answers(
        self, key: str, places: Sequence[int], read: Callable[[int, Reply], Answer]
    ) -> dict[int, Answer | Refused] | None:
        """The answers to a request from this process or the disk; None if there are none."""
        if (refusal := self._refusals.get(key)) is not None:
            return _read_all(refusal, places, read)
        reply = self._cache.get(key)
        if reply is None:
            return None
        answers = _read_all(reply, places, read)
        if reply.problem is None and not _is_used(answers):  # stored by an earlier hfcomp, which parsed differently
            self._cache.forget(key)
            return None
        return answers

    def _store_answers(
        self, key: str, question: str, places: Sequence[int], reply: Reply, read: Callable[[int, Reply], Answer]
    ) -> dict[int, Answer | Refused]:
        """Stores a new reply if it is used. If another process stored a reply first, that reply counts."""
        answers = _read_all(reply, places, read)
        reasons = [answer for answer in answers.values() if isinstance(answer, Refused)]
        if len(reasons) == len(answers):
            self._refusals.add(key, question, reply, reasons[0])
            return answers
        kept = self._cache.put(key, reply)
        self._refusals.use(question, is_new=True)
        others = answers if kept == reply else _read_all(kept, places, read)
        # If the stored answer cannot be used here, this process uses its own.
        return others if _is_used(others) else answers


def _read_all(
    reply: Reply, places: Sequence[int], read: Callable[[int, Reply], Answer]
) -> dict[int, Answer | Refused]:
    answers: dict[int, Answer | Refused] = {}
    for place in places:
        try:
            answers[place] = read(place, reply)
        except Refused as reason:
            answers[place] = reason
    return answers


def _is_used(answers: Mapping[int, object]) -> bool:
    return not all(isinstance(answer, Refused) for answer in answers.values())
