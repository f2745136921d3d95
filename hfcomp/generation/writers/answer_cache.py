"""Answers of language models on disk, by the content of their requests: one request has one answer, for good.

Only answers that are used are kept, and the reasons why others were not used where these led to one that was
(`refusals.Refusals`): a server that gave nothing of use is asked again by the next process.

Each answer is a file of its own, `ab/abcdef....json`, that holds its checksum. The first process that has an answer
puts it in place whole; another that asked at the same time reads that one instead of its own, so that all processes,
and a build that is resumed after a kill, have the same bytes also where the server samples at random. A damaged file
counts as missing. The folder may be shared by processes and machines, network file systems included.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from huggingface_hub.constants import HF_HOME

from hfcomp.checksums import read_checked, with_checksum
from hfcomp.generation.writers.reading import Refused
from hfcomp.generation.writers.refusals import Refusals
from hfcomp.generation.writers.requests import Reply, Request, Writer, content_hash
from hfcomp.writing import write_first

Answer = TypeVar("Answer")

ASKED, CACHED = "answers from the model", "answers from the cache"
_SETTLED = "settled"
DEFAULT_FOLDER = Path(HF_HOME) / "hfcomp" / "answers"


class AnswerCache:
    """Answers by key.

    Args:
        folder: is made where it is missing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.expanduser()

    def get(self, key: str) -> Reply | None:
        """The reply to a request, or None where there is none yet."""
        try:
            content = read_checked(self._path(key), "It is asked for again.")
            if content["problem"] is None or content.get(_SETTLED):  # else of an earlier hfcomp, which kept all
                return Reply(content["text"], content["problem"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError):  # cut off by a power failure
            pass
        self.forget(key)
        return None

    def forget(self, key: str) -> None:
        """Removes a reply."""
        with suppress(OSError):
            self._path(key).unlink()

    def put(self, key: str, reply: Reply) -> Reply:
        """Keeps a reply unless another process was faster; returns the one that is kept.

        Raises:
            OSError: for a folder that cannot be written to, or a full disk.
        """
        content = {"text": reply.text, "problem": reply.problem} | ({_SETTLED: True} if reply.problem else {})
        if write_first(self._path(key), json.dumps(with_checksum(content))):
            return reply
        return self.get(key) or self.put(key, reply)

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.json"


class CachedWriter:
    """A writer whose answers are kept.

    Args:
        writer: is asked what the cache has not.
        cache: of any number of writers.
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
        """See `Writer`."""
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
        return others if _is_used(others) else found


def _read_all(
    reply: Reply, places: Sequence[int], read: Callable[[int, Reply], Answer]
) -> dict[int, Answer | Refused]:
    """A reply as it is read for each of several equal requests."""
    found: dict[int, Answer | Refused] = {}
    for place in places:
        try:
            found[place] = read(place, reply)
        except Refused as reason:
            found[place] = reason
    return found


def _is_used(found: Mapping[int, object]) -> bool:
    return not all(isinstance(one, Refused) for one in found.values())
