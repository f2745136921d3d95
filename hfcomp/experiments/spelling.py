"""Names of fields in errors, spelled as a recipe and its command line have them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

# What messages of trainers name, as they are called in Python, and how the command line spells it.
SPELLINGS = {
    r"\bper_device_train_batch_size\b": "batch_size",
    r"\bset num_negatives=(\d+)": r"pass --num_negatives \1",
    r"\bdraw_captions=True\b": "captions=drawn",
    r"\bdraw_captions\b": "captions",
    r"(?<!\w)--split\b": "--dataset_split, --evaluation_split",
    r"\bcolumn_names=\{'(\w+)': '([^']*)'\}": r"--column_names \1='\2'",
}


@contextmanager
def recipe_spelling() -> Iterator[None]:
    """Lets errors name fields as a recipe and its command line have them: the advice is followed there."""
    try:
        yield
    except (ValueError, OSError) as error:
        if len(error.args) == 1 and isinstance(error.args[0], str):
            text = error.args[0]
            for pattern, spelling in SPELLINGS.items():
                text = re.sub(pattern, spelling, text)
            error.args = (text,)
        raise
