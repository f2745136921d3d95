"""Whether captions are English, as the parsers, keyword tables and word lists read no other language.

A caption counts as foreign on evidence only: most of its letters are not Latin, or it has no English function word
but one of another language, or a letter that English lacks. "red cube" counts as English. Of COCO's 25,014 validation
captions one counts as foreign, so the threshold leaves room for names and quotations.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hfcomp.parsing.captions import script_problem

FOREIGN_SHARE = 0.2
"""Share of captions in another language from which on a set is reported. Our choice."""
SAMPLED = 1000
"""Captions that are looked at, evenly spaced."""
_WORD = re.compile(r"[^\W\d_]+")
ENGLISH = """
the of with and are his its their this that these there from near next while being two has have into onto who which
standing sitting
"""
"""English words that none of the languages below has."""
OTHERS = """
der das und ein eine einen einem einer mit auf dem im zwei sich ist vor neben über zum zur
le la les une des du et avec dans sur est deux qui devant
el los las una unos unas con en y sobre junto está están dos
um uma os com da dois
il lo gli di della del che nel uno su sono due
een het op naast twee zit staat
och på med og ved som
na się jest oraz
bir ve ile
yang dan dengan sebuah atas
"""
"""Frequent words of German, French, Spanish, Portuguese, Italian, Dutch, Scandinavian languages, Polish, Turkish and
Indonesian. Those that English has too, such as "van", "die" and "met", are left out."""
_ENGLISH, _OTHERS = frozenset(ENGLISH.split()), frozenset(OTHERS.split())


def is_foreign(caption: str) -> bool:
    """Whether a caption shows evidence of another language than English; see the module's words."""
    if script_problem(caption) is not None:
        return True
    words = set(_WORD.findall(caption.lower()))
    if words & _ENGLISH:
        return False
    return bool(words & _OTHERS) or any(not word.isascii() for word in words)


def language_note(captions: Sequence[str]) -> str | None:
    """A line about captions that are not English; None where fewer than `FOREIGN_SHARE` are.

    Args:
        captions: texts, of which `SAMPLED` are looked at.
    """
    step = max(1, len(captions) / SAMPLED)
    looked_at = [captions[int(place * step)] for place in range(min(SAMPLED, len(captions)))]
    found = [caption for caption in looked_at if is_foreign(caption)]
    if not found or len(found) < FOREIGN_SHARE * len(looked_at):
        return None
    short = found[0] if len(found[0]) <= 60 else f"{found[0][:57]}..."
    return (
        f"{len(found):,} of {len(looked_at):,} captions looked at do not read as English, such as {short!r}: parsers, "
        "keywords and word lists read English only, and what they make of other languages is wrong. Translate the "
        "captions first."
    )
