"""The sandbox's own benchmarks: scenes drawn here, held out of its training sets whatever the seed.

`sandbox_benchmarks` is what a run on the sandbox is scored on, `keyword_benchmarks` and `concept_benchmarks` are the
tests of Rösch et al. 2024 on it, and `SANDBOX_LEVELS` asks its levels of abstraction as CLEAR GLASS does, with rivals
of hard-negative groups. At their usual size they have names on the command line; in no suite, as they are synthetic.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from hfcomp.evaluation.benchmarks.papers.keywords import KeywordItems
from hfcomp.evaluation.protocols.caption_choice import KeywordRanking, TwoPositiveChoice
from hfcomp.evaluation.protocols.classification import AttributeZeroShot
from hfcomp.evaluation.protocols.group_match import GroupAndCaption, GroupMatch
from hfcomp.evaluation.protocols.level_choice import LEVELS, LevelChoice, RivalChoice
from hfcomp.evaluation.protocols.retrieval import TEXT_TO_IMAGE, PairRetrieval, WordingAgreement
from hfcomp.evaluation.sources import Adapted
from hfcomp.evaluation.spec import (
    COMPOSITIONAL,
    GENERAL,
    Average,
    Benchmark,
    BenchmarkData,
    Data,
    Folders,
    Origin,
    ScoringProtocol,
    column_values,
)
from hfcomp.negatives.keywords.matching import PAPER, Matching
from hfcomp.negatives.keywords.tables import CONCEPTS, PAPER_TABLE, KeywordTable

if TYPE_CHECKING:
    from datasets import Dataset

ITEMS = 400
MOST_RETRIEVAL_ROWS = 1000
EDITED_CONCEPTS = ("object", "color", "size", "location")
LEVEL_ROWS = 500
FIVE_SUBSETS = (
    ("swap_att",),
    ("swap_obj",),
    ("replace_att", "replace_size", "replace_texture", "replace_count"),
    ("replace_obj",),
    ("replace_rel",),
)
"""Five of SugarCrepe's seven subsets. Kinds that it files under one subset, as the column `negative_kinds` does, are
averaged first. Its two others add something: their true caption fits both images, so they have no group score."""
ADDITIONS = ("add_att", "add_obj", "add_rel")
_ALL_KINDS = tuple((kind,) for group in FIVE_SUBSETS for kind in group) + (("swap_rel",),)
AVERAGES = (
    Average("macro of 5 subsets", FIVE_SUBSETS),
    Average("macro of 9 kinds", _ALL_KINDS),
    Average("macro of 12 kinds", (*_ALL_KINDS, *((kind,) for kind in ADDITIONS))),
)
"""Of the kinds. The first is the primary endpoint of the sandbox's recipes; the last, with additions, has caption
choice alone."""
NOVEL_KINDS = ("swap_att", "replace_att", "replace_obj")
"""Kinds that are also asked with combinations of shape and color that no training image shows."""


@dataclass(frozen=True)
class SandboxData(Data):
    """Rows that a function of `hfcomp.sandbox` draws, each an item by the name of its scene."""

    function: str
    rows: int
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    reshape: Callable[[Dataset], Dataset] | None = None

    layout = "nothing: it is drawn"

    def remote(self, folders: Folders) -> BenchmarkData:
        from hfcomp import sandbox

        # Options are passed as a tuple because the cache needs hashable arguments.
        rows = _rows(self.function, self.rows, self.seed, tuple(self.options.items()))
        options = [f"{name}={value}" for name, value in self.options.items()]
        # Results name the call that draws the same rows again.
        place = f"the sandbox: {self.function}({', '.join(map(str, (self.rows, self.seed, *options)))})"
        prompts = sandbox.zero_shot_prompts() if self.function == "zero_shot_set" else {}
        return BenchmarkData(self.reshape(rows) if self.reshape else rows, Origin(place), prompts=prompts)


@lru_cache(maxsize=16)
def _rows(function: str, number: int, seed: int, options: tuple[tuple[str, Any], ...]) -> Dataset:
    """The rows of `SandboxData`, which several benchmarks share, with their images as they are stored."""
    from hfcomp import sandbox
    from hfcomp.data.loading import undecoded

    # Images stay encoded, because the cache holds up to 16 sets.
    rows = undecoded(getattr(sandbox, function)(number, seed, **dict(options)))
    return rows.add_column("item", column_values(rows, "image_id"))


def sandbox_benchmarks(items: int = ITEMS, seed: int = 0) -> tuple[Benchmark, ...]:
    """What a model makes of the sandbox's held-out scenes: composition by kind, and what it may have forgotten.

    Args:
        items: rows of each kind, of each concept of the edited pairs and of the sets of words and levels. Retrieval is
            among `retrieval_rows(items)`.
        seed: of the scenes and of the rivals on levels.
    """
    # Benchmarks of one set pass equal arguments to `_rows`, so its scenes are drawn once.
    kinds = SandboxData("choice_set", items, seed, reshape=_by_kind)
    novel = replace(kinds, options={"kinds": NOVEL_KINDS, "novel": True})
    pairs = SandboxData("retrieval_set", retrieval_rows(items), seed)
    known = SandboxData("zero_shot_set", items, seed)
    lone = replace(known, options={"novel": True})
    levels = SandboxData("levels_set", items, seed)
    return (
        replace(_benchmark("sandbox_kinds", COMPOSITIONAL, GroupAndCaption(), kinds, "sandbox"), averages=AVERAGES),
        _benchmark("sandbox_two_positives", COMPOSITIONAL, TwoPositiveChoice(), replace(kinds, reshape=_by_form)),
        _benchmark("sandbox_novel", COMPOSITIONAL, GroupMatch(("group",)), novel),
        _edited_images(items, seed),
        _benchmark("sandbox_retrieval", GENERAL, PairRetrieval(), pairs),
        _benchmark("sandbox_wordings", GENERAL, WordingAgreement(), pairs),
        _benchmark("sandbox_detailed", GENERAL, PairRetrieval(), known),
        _benchmark("sandbox_zero_shot", GENERAL, AttributeZeroShot(), known, "sandbox zero-shot"),
        _benchmark("sandbox_novel_zero_shot", GENERAL, AttributeZeroShot(), lone, "sandbox novel zero-shot"),
        _benchmark("sandbox_level_names", GENERAL, RivalChoice(LEVELS, seed=seed), levels, "sandbox levels"),
    )


def keyword_benchmarks(
    concepts: Sequence[str],
    *,
    items: int = ITEMS,
    seed: int = 0,
    table: KeywordTable = PAPER_TABLE,
    matching: Matching = PAPER,
) -> tuple[Benchmark, ...]:
    """A caption that holds a keyword among all its permutations (sections 5.1 and 5.3), each concept a subset.

    "sandbox keywords" asks about the scenes of retrieval; the scenes of "sandbox lone objects" and "sandbox novel
    objects" are other data, the second with shape-color combinations that no training image has.

    Args:
        items: rows of the lone objects; of the others `retrieval_rows(items)`.
    """
    known = SandboxData("zero_shot_set", items, seed)
    sets = {
        "keywords": SandboxData("retrieval_set", retrieval_rows(items), seed),
        "lone_objects": known,
        "novel_objects": replace(known, options={"novel": True}),
    }
    adapt = KeywordItems(tuple(concepts), None, seed, matching, table)
    protocol = KeywordRanking(("top-1",))
    return tuple(
        _benchmark(f"sandbox_{name}", COMPOSITIONAL, protocol, Adapted(data, adapt)) for name, data in sets.items()
    )


def concept_benchmarks(
    concept: str, *, items: int, seed: int, table: KeywordTable, matching: Matching
) -> tuple[Benchmark, ...]:
    """What a model knows of a concept and of retrieval: the tests of Rösch et al. 2024, section 5.

    Args:
        items: as `keyword_benchmarks` has it, and rows of the edited pairs of a concept.

    Returns:
        "sandbox retrieval" by its text-to-image recall@5, "sandbox keywords", "sandbox edited" (Eq. 2) where the set
        has pairs that differ in the concept, and the keywords of the other data.
    """
    pairs = SandboxData("retrieval_set", retrieval_rows(items), seed)
    recall = PairRetrieval(k=(5,), directions=(TEXT_TO_IMAGE,))
    retrieval = _benchmark("sandbox_retrieval", GENERAL, recall, pairs)
    own, *others = keyword_benchmarks([concept], items=items, seed=seed, table=table, matching=matching)
    edited = [_edited_images(items, seed, concept)] if concept in EDITED_CONCEPTS else []
    return (retrieval, own, *edited, *others)


def _edited_images(items: int, seed: int, concept: str | None = None) -> Benchmark:
    data = SandboxData("edited_pairs_set", items, seed, reshape=partial(_as_pairs, concept=concept))
    return _benchmark("sandbox_edited", COMPOSITIONAL, GroupMatch(("image",)), data)


def _as_pairs(rows: Dataset, *, concept: str | None) -> Dataset:
    """InpaintCOCO's columns in the protocol's, of one concept or of all."""
    if concept is not None:
        rows = rows.select([row for row, one in enumerate(rows["concept"]) if one == concept])
    rows = rows.rename_columns({"coco_image": "image", "coco_caption": "caption", "inpaint_image": "negative_image"})
    rows = rows.rename_column("concept", "subset")
    return rows.add_column("negative_captions", [[text] for text in rows["inpaint_caption"]])


def _by_kind(rows: Dataset) -> Dataset:
    """Each kind a subset; the true caption of those that add is true of both images."""
    kinds = column_values(rows, "kind")
    # Both captions are true of the image that shows more, so such a group has no right answer.
    answers = [kind not in ADDITIONS for kind in kinds]
    return rows.add_column("subset", kinds).add_column("one_answer", answers)


def _by_form(rows: Dataset) -> Dataset:
    """Swap, replace and add as subsets."""
    return rows.add_column("subset", [kind.partition("_")[0] for kind in rows["kind"]])


def _benchmark(name: str, suite: str, protocol: ScoringProtocol, data: Data, title: str | None = None) -> Benchmark:
    return Benchmark(
        name=name,
        title=title or name.replace("_", " "),
        suite=suite,
        protocol=protocol,
        data=(data,),
        paper="this package",
        license="as this package",
        obtain="It is drawn when it is asked for.",
        in_suites=False,
        synthetic=True,
    )


def retrieval_rows(items: int) -> int:
    """Rows to retrieve from: 500 for 200 items, at least 20, and at most what the set has to offer."""
    return min(MOST_RETRIEVAL_ROWS, max(20, 5 * items // 2))


SANDBOX = (*sandbox_benchmarks(), *keyword_benchmarks(CONCEPTS))
SANDBOX_LEVELS = _benchmark(
    "sandbox_levels",
    COMPOSITIONAL,
    LevelChoice(("caption", *LEVELS)),
    SandboxData("levels_set", LEVEL_ROWS),
    "sandbox levels, hard",
)
