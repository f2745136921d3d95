"""A source of concepts from plain settings, in any process, and what of them identifies its answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hfcomp.generation.magic.source import ConceptSource


def make_source(*, writer: str, **settings: Any) -> ConceptSource:
    """The source that the settings of `MagicOptions.source_settings` name.

    Raises:
        ValueError: for a taxonomy that is not as expected.
        ImportError: for a missing package.
        OSError: for a model or file that is missing.
    """
    if writer == "taxonomy":
        from hfcomp.generation.magic.taxonomy import TaxonomySource

        place = settings["taxonomy"]
        return TaxonomySource(None if place is None else Path(place))
    from hfcomp.generation.magic.language_model import LanguageModelSource

    return LanguageModelSource(
        settings["model"], attempts=settings["attempts"], seed=settings["seed"], device=settings["device"]
    )
