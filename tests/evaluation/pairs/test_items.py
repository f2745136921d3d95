"""Protocols on scores of pairs: the same outcomes as on the embeddings that these scores come from."""

from __future__ import annotations

from types import SimpleNamespace

import datasets
import numpy as np
import pandas as pd
import pytest

from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.evaluation.engine import run_benchmark, validate
from hfcomp.evaluation.evaluator import Evaluator
from hfcomp.evaluation.loaded import Loaded
from hfcomp.evaluation.pairs.items import PairScores, list_pairs
from hfcomp.evaluation.protocols.caption_choice import CaptionChoice, KeywordRanking, TwoPositiveChoice
from hfcomp.evaluation.protocols.classification import Probe, ZeroShot
from hfcomp.evaluation.protocols.group_match import GroupAndCaption, GroupMatch
from hfcomp.evaluation.protocols.level_choice import LevelChoice, RivalChoice
from hfcomp.evaluation.protocols.retrieval import PairRetrieval, PairsAndNegatives, Retrieval, WordingAgreement
from hfcomp.evaluation.spec import COMPOSITIONAL, Benchmark, BenchmarkData, Origin, Unavailable
from hfcomp.metrics.choice import pair_scores
from tests import tiny
from tests.evaluation.benchmarks import oracle

ROWS = 12


class Cosines:
    """A scorer of pairs that scores as a dual encoder does."""

    def __init__(self, embedder, most_pairs=10_000):
        self.embedder, self.most_pairs = embedder, most_pairs

    def score_pairs(self, pairs, *, progress=False):
        images = self.embedder.images([pairs.cell(number) for number in range(len(pairs.keys))])
        texts = self.embedder.texts(list(pairs.texts)).vectors
        return PairScores(pair_scores(images[pairs.image], texts[pairs.text]), len(pairs))


@pytest.fixture(scope="module")
def embedder(clip):
    return Embedder(clip, device="cpu")


def benchmark(protocol, name="small"):
    return Benchmark(name, name.title(), COMPOSITIONAL, protocol, (), "", "", "")


def rows(protocol, *, lost=(), **columns):
    """Rows with a photograph each, the last one shown twice; `lost` ones have no image."""
    texts = tiny.captions()
    table = {
        "caption": [texts[7 * row] for row in range(ROWS)],
        "captions": [[texts[7 * row], texts[7 * row + 1], texts[3]][: 2 + row % 2] for row in range(ROWS)],
        "positive_captions": [["", texts[7 * row + 2]] for row in range(ROWS)],
        "negative_captions": [[texts[7 * row + 3], texts[7 * row + 4], ""][: 1 + row % 3] for row in range(ROWS)],
        "one_answer": [row % 3 > 0 for row in range(ROWS)],
        **{f"level_{level}": [texts[(row % (2 * level)) * 9] for row in range(ROWS)] for level in range(1, 5)},
        "label": [row % 3 for row in range(ROWS)],
        **columns,
    }
    images = {
        column: [
            None if row in lost else {"bytes": oracle.photo(shift + min(row, ROWS - 2)), "path": None}
            for row in range(ROWS)
        ]
        for column, shift in (("image", 0), ("negative_image", 40))
    }
    data = BenchmarkData(
        datasets.Dataset.from_dict(table),
        Origin("memory"),
        images=images,
        classes=("red", "blue", "green"),
        templates=("a {c} cube", "the {c} ball"),
    )
    return validate(benchmark(protocol), data)


BY_ROW = (CaptionChoice(), GroupMatch(), GroupAndCaption(), KeywordRanking(), TwoPositiveChoice(), PairsAndNegatives())
OF_ALL = (
    *(Retrieval(k=(1, 5)), PairRetrieval(k=(1, 2)), WordingAgreement(), ZeroShot(top=(1,))),
    *(RivalChoice(("level_1", "level_2")), LevelChoice(candidates=(2, 4, "all"))),
)


@pytest.mark.parametrize("protocol", [*BY_ROW, *OF_ALL], ids=lambda protocol: type(protocol).__name__)
def test_pairs_give_the_outcomes_of_the_embeddings(protocol, embedder):
    data = rows(protocol)
    expected = run_benchmark(benchmark(protocol), data, embedder).items
    report = run_benchmark(benchmark(protocol), data, Cosines(embedder))
    metrics = set(report.items["metric"])
    kept = expected[expected["metric"].isin(metrics)].reset_index(drop=True)
    pd.testing.assert_frame_equal(report.items, kept)
    assert 0 < kept["value"].mean() < 1 and report.pairs == report.computed > 0
    beyond = set(expected["metric"]) - metrics
    assert all(protocol.beyond_pairs in metric for metric in beyond) and bool(beyond) == bool(protocol.beyond_pairs)


def test_rows_without_an_image_are_no_pairs(embedder):
    protocol = TwoPositiveChoice()
    data = rows(protocol, lost=(1, 4))
    expected = run_benchmark(benchmark(protocol), data, embedder).items
    report = run_benchmark(benchmark(protocol), data, Cosines(embedder))
    kept = expected[expected["metric"] == "image-to-text"].reset_index(drop=True)
    pd.testing.assert_frame_equal(report.items, kept)
    negatives = sum(1 + (row % 3 > 0) for row in range(ROWS) if row not in (1, 4))
    assert len(kept) == ROWS - 2 and report.pairs == 2 * (ROWS - 2) + negatives


def test_a_photograph_of_two_rows_is_one_image_and_places_name_rows():
    protocol = CaptionChoice()
    pairs = list_pairs(benchmark(protocol), rows(protocol), 0)
    assert len(pairs.keys) == ROWS - 1
    assert [str(pairs.places[place]) for place in (0, ROWS)] == ["column 'image', row 0"] * 2
    assert len(pairs) == ROWS + sum(1 + (row % 3 > 0) for row in range(ROWS))  # captions, and negatives that are there


def test_what_pairs_cannot_do_is_skipped_by_name(embedder):
    retrieval, probe = Retrieval(), Probe(fit=None)
    evaluator = Evaluator(
        lambda line: None,
        [
            Loaded(benchmark(protocol, name), rows(protocol))
            for protocol, name in ((retrieval, "big"), (probe, "probe"))
        ],
    )
    assert list(evaluator.score(Cosines(embedder, most_pairs=200), model="vlm", progress=False)) == []
    big, other = evaluator.skipped
    assert big["benchmark"] == "big" and other["benchmark"] == "probe"
    texts = len({text for own in rows(retrieval).rows["captions"] for text in own})
    counts = f"vlm: it needs the scores of 12 images with {texts} texts: {12 * texts} pairs, more than 200."
    assert big["reason"] == counts
    assert other["reason"] == "vlm: it needs embeddings of single images and texts."


def test_metrics_beyond_pairs_are_noted(embedder):
    lines = []
    evaluator = Evaluator(lines.append, [Loaded(benchmark(TwoPositiveChoice()), rows(TwoPositiveChoice()))])
    list(evaluator.score(Cosines(embedder), model="vlm", progress=False))
    assert any(line.startswith("small: text only is not scored for vlm") for line in lines)


def test_too_many_pairs_are_refused_before_an_image_is_read():
    data = rows(Retrieval())
    broken = BenchmarkData(data.rows, data.origin, images={"image": [b"not an image"] * ROWS})
    with pytest.raises(Unavailable):
        list_pairs(benchmark(Retrieval()), broken, 10)


@pytest.mark.parametrize("scores", [[0.5] * 3, [[0.5]], [float("nan")] * ROWS**2])
def test_scores_are_one_finite_number_per_pair(scores):
    data = rows(PairRetrieval())
    scorer = SimpleNamespace(most_pairs=10_000, score_pairs=lambda pairs, *, progress: scores)
    with pytest.raises(ValueError, match=r"SimpleNamespace.score_pairs: found an array .*expected \[\d+\] finite"):
        run_benchmark(benchmark(PairRetrieval()), data, scorer)


def test_scores_keep_their_precision_as_vectors():
    """Probabilities near 1 that differ in the tenth digit are no tie in retrieval."""

    class Near:
        most_pairs = 10_000

        def score_pairs(self, pairs, *, progress=False):
            right = pairs.image == pairs.text
            return PairScores(1 - 1e-9 - 1e-10 * ~right, len(pairs))

    data = rows(PairRetrieval(), caption=[f"text {min(row, ROWS - 2)}" for row in range(ROWS)])
    items = run_benchmark(benchmark(PairRetrieval()), data, Near()).items
    assert (items["value"] == 1).all() and not items["tie"].any() and np.isfinite(items["chance"]).all()
