"""Which texts are equal? A number for each, by which rows of one caption are known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any


def text_key(text: str) -> int:
    """A number for a text, 0 to 2^63 - 1, the same in every process: equal but for upper case and white space."""
    words = " ".join(text.casefold().split())
    # a lone surrogate is refused, with its row, where the text is read
    return int.from_bytes(blake2b(words.encode(errors="surrogatepass"), digest_size=8).digest(), "big") >> 1


def row_text_key(value: Any, row: int) -> int:
    """[`text_key`] of an entry; below 0, and no other row's, where it is no text.

    Args:
        value: the entry.
        row: its index in the data set.
    """
    return text_key(value) if isinstance(value, str) else -1 - row


def rows_with_equal_texts(captions: Sequence[Any]) -> int:
    """How many rows have a caption that another row has too.

    Args:
        captions: the column; a row with a list of captions has one of them in an epoch, any of which counts.
    """
    of_row = [
        set(map(text_key, one)) if isinstance(one, list) else {row_text_key(one, row)}
        for row, one in enumerate(captions)
    ]
    number = Counter(key for keys in of_row for key in keys)
    return sum(any(number[key] > 1 for key in keys) for keys in of_row)
