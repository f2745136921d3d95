"""Answers of language models on disk, by the content of their requests: one request has one answer, for good.

Each answer is a file of its own, `ab/abcdef....json`, that holds its checksum. The first process that has an answer
puts it in place whole; another that asked at the same time reads that one instead of its own, so that all processes,
and a build that is resumed after a kill, have the same bytes also where the server samples at random. A damaged file
counts as missing. The folder may be shared by processes and machines, network file systems included.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from huggingface_hub.constants import HF_HOME

from hfcomp.checksums import read_checked, with_checksum
from hfcomp.generation.writers.requests import Reply, Request, Writer, content_hash
from hfcomp.writing import write_first

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
        path = self._path(key)
        try:
            content = read_checked(path, "It is asked for again.")
            return Reply(content["text"], content["problem"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError):  # cut off by a power failure
            with suppress(OSError):
                path.unlink()
            return None

    def put(self, key: str, reply: Reply) -> Reply:
        """Keeps a reply unless another process was faster; returns the one that is kept.

        Raises:
            OSError: for a folder that cannot be written to, or a full disk.
        """
        content = with_checksum({"text": reply.text, "problem": reply.problem})
        if write_first(self._path(key), json.dumps(content)):
            return reply
        return self.get(key) or self.put(key, reply)

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.json"


class CachedWriter:
    """A writer whose answers are kept.

    Args:
        writer: is asked what the cache has not.
        cache: of any number of writers.
    """

    def __init__(self, writer: Writer, cache: AnswerCache) -> None:
        self._writer, self._cache = writer, cache

    def payload(self, request: Request) -> dict[str, Any]:
        """See `Writer`."""
        return self._writer.payload(request)

    def replies(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """See `Writer`; equal requests are asked once."""
        places: dict[str, list[int]] = {}
        for place, request in enumerate(requests):
            places.setdefault(content_hash(self.payload(request)), []).append(place)
        missing = []
        for key, same in places.items():
            found = self._cache.get(key)
            if found is None:
                missing.append(key)
            else:
                yield from ((place, found) for place in same)
        asked = [requests[places[key][0]] for key in missing]
        for number, reply in self._writer.replies(asked):
            key = missing[number]
            kept = self._cache.put(key, reply) if reply.is_final else reply
            yield from ((place, kept) for place in places[key])

    def answers(self, requests: Sequence[Request]) -> list[Reply]:
        """The replies in the order of the requests."""
        found = dict(self.replies(requests))
        return [found[place] for place in range(len(requests))]
