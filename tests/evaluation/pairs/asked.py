"""Lists of pairs without a benchmark's rows."""

from __future__ import annotations

from collections.abc import Sequence

import datasets

from hfcomp.evaluation.engine import validate
from hfcomp.evaluation.pairs.items import PairList, list_pairs
from hfcomp.evaluation.protocols.caption_choice import KeywordRanking
from hfcomp.evaluation.spec import COMPOSITIONAL, Benchmark, BenchmarkData, Origin
from tests.evaluation.benchmarks import oracle


class Captions(KeywordRanking):
    """Asks for each row's image with its caption."""

    texts = ("caption",)

    def pairs(self, items):
        return [("image", "caption")]


def ask_pairs(pairs: Sequence[tuple[int, str]]) -> PairList:
    """Pairs of the number of a `photo` and a text."""
    benchmark = Benchmark("asked", "Asked", COMPOSITIONAL, Captions(), (), "", "", "")
    rows = datasets.Dataset.from_dict({"caption": [text for _, text in pairs]})
    cells = [{"bytes": oracle.photo(number), "path": None} for number, _ in pairs]
    data = BenchmarkData(rows, Origin("memory"), images={"image": cells})
    return list_pairs(benchmark, validate(benchmark, data), 0)
