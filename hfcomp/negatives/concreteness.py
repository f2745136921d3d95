"""Concreteness ratings of words and two-word expressions, from 1 (abstract) to 5 (concrete).

Source: Brysbaert, Warriner, Kuperman, "Concreteness ratings for 40 thousand generally known English word lemmas",
Behavior Research Methods 46 (2014), 904-911, doi:10.3758/s13428-013-0403-5: mean ratings of 37,058 words and 2,896
two-word expressions, all known by at least 85% of the raters.

The ratings are listed under CC BY-NC-ND, which forbids distributing modified copies. This package therefore does not
include them: the user passes a file, and the ratings are joined when a training set is loaded and never written to a
dataset that is pushed.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from hfcomp.checksums import file_hash
from hfcomp.writing import write_bytes

WORD, RATING, PART_OF_SPEECH = "Word", "Conc.M", "Dom_Pos"
MINIMUM, MAXIMUM = 1.0, 5.0
MAX_NAMED_WORDS = 40
"""Maximum number of unrated words named in a log line; more than the number of keywords in the sandbox."""
HOW_TO_GET = (
    "Get the supplementary table of doi:10.3758/s13428-013-0403-5 (39,954 rows) and save it as tab-separated UTF-8 "
    "text; its license (CC BY-NC-ND) does not allow this package to include it."
)

URL = "http://crr.ugent.be/papers/Concreteness_ratings_Brysbaert_et_al_BRM.txt"
"""The authors' page (Center for Reading Research, Ghent University)."""
SHA256 = "0b4082dbd38585b0ee1fd258145b7a50592f8d0d98e5fc6b6844ceef3cd8ecc8"
"""Hash of the table of 39,954 rows used in tests. The address is not encrypted, so the hash is checked."""
FILE = "Concreteness_ratings_Brysbaert_et_al_BRM.txt"
LICENSE = (
    "Concreteness ratings: Brysbaert, Warriner, Kuperman 2014, doi:10.3758/s13428-013-0403-5. Their license is listed "
    "as CC BY-NC-ND 3.0 (https://creativecommons.org/licenses/by-nc-nd/3.0/): credit the authors, no commercial use, "
    "no distribution of modified copies. hfcomp writes no ratings to the datasets that it builds."
)
TIMEOUT = 60.0
"""Time limit in seconds for downloading the whole file (1.6 MB)."""
_MAX_BYTES = 16 * 1024**2

# The last word of "in front of" or "look up" is not a head: its rating is unrelated to the expression.
_NOT_A_HEAD = frozenset(
    {
        *("Adverb", "Article", "Conjunction", "Determiner", "Ex", "Interjection"),
        *("Letter", "Not", "Number", "Preposition", "Pronoun", "To"),
    }
)


@dataclass(frozen=True)
class RatingMatch:
    """A rating and how it was found.

    Attributes:
        rating: 1 (abstract) to 5 (concrete).
        entry: The matching entry of the table, in lower case.
        source: `surface`, `lemma`, `head` or `head_lemma`, see `ConcretenessRatings.match`; `expression` if a parse
            determines which words belong together.
    """

    rating: float
    entry: str
    source: str


@dataclass(frozen=True)
class Coverage:
    """Number of keywords with a rating. Empty keywords (masked negatives) are counted separately, not as missing.

    Attributes:
        sources: Number of rated keywords by source; see `ConcretenessRatings.match`.
        missing: Number of occurrences of each keyword without a rating.
        empty: Number of empty keywords.
    """

    sources: Mapping[str, int]
    missing: Mapping[str, int]
    empty: int

    @property
    def num_rated(self) -> int:
        return sum(self.sources.values())

    @property
    def num_missing(self) -> int:
        return sum(self.missing.values())

    def __str__(self) -> str:
        total = self.num_rated + self.num_missing
        text = f"{self.num_rated} of {total} keywords have a concreteness rating"
        if self.sources:
            text += " (" + ", ".join(f"{name} {count}" for name, count in sorted(self.sources.items())) + ")"
        if self.missing:
            most = sorted(self.missing.items(), key=lambda item: (-item[1], item[0]))[:MAX_NAMED_WORDS]
            text += "; missing: " + ", ".join(f"{word!r} {count}" for word, count in most)
            others = len(self.missing) - len(most)
            text += f" and {others:,} rarer words" if others else ""
        return f"{text}; {self.empty} empty keywords"


class ConcretenessRatings:
    """Looks up ratings by expression.

    Args:
        ratings: Rating by expression. Case and extra spaces are ignored.
        parts_of_speech: Dominant part of speech by expression, in the terms of the table's `Dom_Pos` column. An
            expression without one can be a head; see `match`.

    Raises:
        ValueError: If two expressions differ only in case and spaces, or a rating is not between 1 and 5.
    """

    def __init__(self, ratings: Mapping[str, float], parts_of_speech: Mapping[str, str] | None = None):
        self._ratings: dict[str, float] = {}
        for expression, rating in ratings.items():
            entry = _fold(expression)
            if entry in self._ratings:
                raise ValueError(f"expression {entry!r} is rated twice; expected one rating per expression.")
            if not MINIMUM <= rating <= MAXIMUM:
                raise ValueError(f"the rating of {expression!r} is {rating}; expected {MINIMUM:g} to {MAXIMUM:g}.")
            self._ratings[entry] = rating
        self._not_heads = {_fold(word) for word, part in (parts_of_speech or {}).items() if part in _NOT_A_HEAD}

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> ConcretenessRatings:
        """Reads the published table: tab-separated UTF-8 text with a header line and nine columns.

        Only the columns `Word`, `Conc.M` and `Dom_Pos` are used. They are located by name.

        Args:
            path: The user's copy of the table.

        Raises:
            FileNotFoundError: If the file does not exist. The error explains how to get it.
            ValueError: If the file is not text, lacks a column, or has a row with the wrong number of columns, a
                rating that is not a number from 1 to 5, or a repeated expression. The error names file, row and value.
        """
        ratings: dict[str, float] = {}
        parts: dict[str, str] = {}
        for line, (word, rating, part) in _read_rows(Path(path)):
            entry = _fold(word)
            if entry in ratings:
                raise ValueError(f"{path}, line {line}: {word!r} is rated twice; expected one row per expression.")
            ratings[entry] = _rating(rating, word=word, where=f"{path}, line {line}")
            parts[entry] = part
        return cls(ratings, parts)

    def __len__(self) -> int:
        return len(self._ratings)

    def match(self, expression: str) -> RatingMatch | None:
        """Looks up an expression and records how it was found.

        Returns the first of the following forms that is in the table, each in lower case. (Concrete Jungle, the paper
        that weights by these ratings, does not say how it looks up words; the order is our choice.)

        1. `surface`: the whole expression as it is, one or more words ("dogs", "fire hydrant").
        2. `lemma`: the expression with its last word in the singular ("buses", "fire hydrants"). Covers only regular
            plurals: -ies to -y, then without -s (not -ss), then without -es; no verb forms, no "knives".
        3. `head`: the last word of a multi-word expression ("stop sign" as "sign"), because an English noun compound
            or noun phrase is a kind of its last noun. It is not used if the table lists the word as a preposition, an
            adverb or similar, so "in front of" has no rating.
        4. `head_lemma`: the head in the singular ("stop signs").

        Args:
            expression: One or more words, separated by spaces.

        Returns:
            The match, or None if there is no rating.
        """
        folded = _fold(expression)
        head = folded.rpartition(" ")[2]
        candidates = [("surface", folded), *(("lemma", form) for form in _singulars(folded))]
        if head != folded and head not in self._not_heads:
            candidates += [("head", head), *(("head_lemma", form) for form in _singulars(head))]
        return self.first(candidates)

    def first(self, forms: Iterable[tuple[str, str]]) -> RatingMatch | None:
        """Looks up the first form that is in the table unchanged.

        Args:
            forms: Pairs of a `RatingMatch.source` and a form, in lower case with single spaces.

        Returns:
            The match, or None if no form is in the table.
        """
        # Forms are sorted by reliability: the word itself comes before forms derived from it.
        for source, entry in forms:
            if entry in self._ratings:
                return RatingMatch(rating=self._ratings[entry], entry=entry, source=source)
        return None

    def lookup(self, expression: str) -> float | None:
        """Returns the rating of an expression, looked up as in `match`.

        Args:
            expression: One or more words, separated by spaces.

        Returns:
            1 (abstract) to 5 (concrete), or None if there is no rating.
        """
        match = self.match(expression)
        return None if match is None else match.rating


def concreteness_column(
    keywords: Iterable[Sequence[str]], ratings: ConcretenessRatings, *, column: str = "negative_keywords"
) -> tuple[list[list[float | None]], Coverage]:
    """Builds `negative_concreteness` from `negative_keywords` or `negative_rated_words`, entry by entry.

    Join the column when you load the dataset and do not push it: see the license in the module's docstring.

    Args:
        keywords: Keywords of each row. An empty string stands for a masked negative or a keyword without an entry.
        ratings: Ratings, for example from `ConcretenessRatings.from_file`.
        column: Name of the keyword column, for errors.

    Returns:
        The column, aligned with the keywords and therefore with `negative_captions`, with None if a keyword is empty
        or has no rating; and the coverage, for the log.

    Raises:
        TypeError: If a row is not a list of strings. The error names the row.
    """
    values: list[list[float | None]] = []
    sources: Counter[str] = Counter()
    missing: Counter[str] = Counter()
    empty = 0
    for row, words in enumerate(keywords):
        # A string is also a sequence of strings and would be rated letter by letter.
        if isinstance(words, str) or words is None or not all(isinstance(word, str) for word in words):
            raise TypeError(f"column {column!r} has {words!r} in row {row}; expected a list of strings.")
        matches = [ratings.match(word) if word else None for word in words]
        for word, match in zip(words, matches, strict=True):
            if match is not None:
                sources[match.source] += 1
            elif word:
                missing[word] += 1
            else:
                empty += 1
        values.append([None if match is None else match.rating for match in matches])
    return values, Coverage(sources=dict(sources), missing=dict(missing), empty=empty)


def _fold(expression: str) -> str:
    return " ".join(expression.lower().split())


def _singulars(expression: str) -> list[str]:
    # The table decides which forms are words: "buses" gives "buse", which it lacks, so the next form is tried.
    forms = []
    if expression.endswith("ies"):
        forms.append(expression[:-3] + "y")
    if expression.endswith("s") and not expression.endswith("ss"):
        forms.append(expression[:-1])
    if expression.endswith("es"):
        forms.append(expression[:-2])
    return forms


def _read_rows(path: Path) -> Iterable[tuple[int, tuple[str, str, str]]]:
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist, expected concreteness ratings. {HOW_TO_GET}")
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start}). {HOW_TO_GET}") from error
    header = lines[0].split("\t")
    missing = [name for name in (WORD, RATING, PART_OF_SPEECH) if name not in header]
    if missing:
        raise ValueError(
            f"{path} lacks the column {', '.join(map(repr, missing))}; its first line, split at tabs, is {header}. "
            f"{HOW_TO_GET}"
        )
    # Locate columns by name, because a copy may have additional columns in any order.
    columns = header.index(WORD), header.index(RATING), header.index(PART_OF_SPEECH)
    for number, line in enumerate(lines[1:], start=2):
        if not line:
            continue
        cells = line.split("\t")
        if len(cells) != len(header):
            raise ValueError(
                f"{path}, line {number} has {len(cells)} columns; expected {len(header)} as in the header."
            )
        yield number, (cells[columns[0]], cells[columns[1]], cells[columns[2]])


def _rating(text: str, *, word: str, where: str) -> float:
    # Text that is not a number becomes NaN, which fails the comparison, so a single message covers both cases.
    try:
        rating = float(text)
    except ValueError:
        rating = float("nan")
    if not MINIMUM <= rating <= MAXIMUM:
        raise ValueError(
            f"{where}: the {RATING} of {word!r} is {text!r}; expected a number from {MINIMUM:g} to {MAXIMUM:g}."
        )
    return rating


def download_ratings(
    folder: Path, *, log: Callable[[str], None], url: str = URL, sha256: str = SHA256, timeout: float = TIMEOUT
) -> Path:
    """Downloads the table of ratings to a folder unless it already exists. Logs the license first.

    Call this only if the user has asked for the download.

    Also logs the address and the path. A file with another `sha256` is not kept. `timeout` is the time limit in
    seconds for the whole file. Returns the path, for `ConcretenessRatings.from_file`.

    Raises:
        OSError: If the file cannot be downloaded.
        ValueError: If the file does not have this hash.
    """
    path = folder / FILE
    log(LICENSE)
    if path.is_file():
        if file_hash(path) == sha256:
            log(f"the ratings are in {path}")
            return path
        log(f"{path} is damaged: its hash is not {sha256}. Downloading it again.")
    log(f"downloading {url} to {path}")
    content = _fetch(url, timeout)
    actual = hashlib.sha256(content).hexdigest()
    if actual != sha256:
        raise ValueError(
            f"{url}: expected the table with sha256 {sha256}, found {len(content):,} bytes with {actual}. The file "
            f"was not kept. {HOW_TO_GET} Then pass the file as concreteness_ratings."
        )
    write_bytes(path, content)
    return path


def _fetch(url: str, timeout: float) -> bytes:
    # Import this (with http and ssl) here, because only a download needs it.
    import urllib.request

    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url!r}: expected an address that starts with http:// or https://.")
    # The `timeout` of urlopen applies to a single read: a server that sends occasional bytes could stall it forever.
    deadline, content = time.monotonic() + timeout, bytearray()
    try:
        with urllib.request.urlopen(url, timeout=timeout) as response:
            while piece := response.read1(1 << 16):
                content += piece
                # A download cut off here has a wrong hash, which the caller reports.
                if len(content) > _MAX_BYTES:
                    break
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the download took more than {timeout:g} s")
    except (OSError, ValueError) as error:
        raise OSError(
            f"{url} could not be downloaded: {error}. {HOW_TO_GET} Then pass the file as concreteness_ratings."
        ) from error
    return bytes(content)
