"""The sandbox's benchmarks: every line of them by its base model, and what a blind scorer gets."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hfcomp.evaluation.benchmarks import find_benchmarks, suite
from hfcomp.evaluation.benchmarks.papers.keywords import NoKeyword
from hfcomp.evaluation.benchmarks.sandbox import (
    SANDBOX,
    concept_benchmarks,
    keyword_benchmarks,
    retrieval_rows,
    sandbox_benchmarks,
)
from hfcomp.evaluation.blind.encoders import BLIND
from hfcomp.evaluation.encoding.cache import EmbeddingCache
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.evaluation.engine import Encoder, run_benchmark, validate
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import Benchmark
from hfcomp.negatives.keywords.matching import PAPER
from hfcomp.negatives.keywords.tables import CONCEPTS, PAPER_TABLE, Concept, KeywordTable
from hfcomp.sandbox import KINDS
from hfcomp.sandbox.bases import base_folder

ITEMS = 12
LINES = json.loads(Path(__file__).with_name("sandbox_lines.json").read_text())


def outcomes(benchmarks: Iterable[Benchmark], encoder: Encoder) -> pd.DataFrame:
    tables = [
        run_benchmark(benchmark, validate(benchmark, load_items(benchmark)), encoder).items for benchmark in benchmarks
    ]
    return pd.concat(tables, ignore_index=True)


def lines(table: pd.DataFrame) -> dict[str, list[Any]]:
    """Of each line its aspect, chance, number of items, right ones and ties, and a digest of items and images."""
    facts = {}
    for names, rows in table.groupby(["benchmark", "subset", "metric"], sort=False):
        (aspect,) = set(rows["aspect"])
        counts = [len(rows), int(rows["value"].sum()), int(rows["tie"].sum())]
        digest = hashlib.sha256("\n".join(rows["item"] + " " + rows["image_id"]).encode()).hexdigest()[:8]
        facts[" | ".join(names)] = [aspect, round(float(rows["chance"].mean()), 9), *counts, digest]
    return facts


@pytest.fixture(scope="module")
def base() -> Embedder:
    return Embedder(base_folder(), device="cpu", cache=EmbeddingCache())


def test_what_a_run_is_scored_on(base):
    """In this order, with these answers of the shipped base."""
    facts = lines(outcomes(sandbox_benchmarks(ITEMS, 0), base))
    assert facts == LINES["sandbox_benchmarks"] and list(facts) == list(LINES["sandbox_benchmarks"])


def test_keywords(base):
    assert lines(outcomes(keyword_benchmarks(CONCEPTS, items=ITEMS), base)) == LINES["keyword_benchmarks"]


def test_a_concept(base):
    how = {"items": ITEMS, "seed": 0, "table": PAPER_TABLE, "matching": PAPER}
    facts = lines(outcomes(concept_benchmarks("color", **how), base))
    assert facts == LINES["concept_benchmarks"] and list(facts) == list(LINES["concept_benchmarks"])


def test_a_concept_that_no_caption_names():
    table = KeywordTable({"animal": Concept({"zebra": ("horse",)}, "other", "object")})
    with pytest.raises(NoKeyword, match="animal"):
        outcomes(keyword_benchmarks(["animal"], items=2, table=table), BLIND["random"][1]())


def test_a_blind_scorer_gets_nothing_but_ties():
    items = outcomes(sandbox_benchmarks(ITEMS, 0), BLIND["constant"][1]())
    scored = items[~items["metric"].str.contains("same image")]
    assert scored["metric"].str.contains("recall").any()
    assert not scored["value"].any() and scored["tie"].all()
    assert not items.duplicated(["benchmark", "metric", "subset", "item"]).any()


def test_kinds_that_add_have_a_choice_and_no_match_of_groups():
    items = outcomes(sandbox_benchmarks(2, 0)[:1], BLIND["random"][1]())
    assert list(items[items["metric"] == "caption choice"]["subset"].unique()) == list(KINDS)
    assert list(items[items["metric"] == "group"]["subset"].unique()) == [k for k in KINDS if not k.startswith("add_")]


def test_retrieval_is_among_two_and_a_half_times_the_items():
    assert [retrieval_rows(items) for items in (2, 12, 200, 4000)] == [20, 30, 500, 1000]


def test_they_have_names_and_are_in_no_suite():
    benchmarks = find_benchmarks(["sandbox"])
    names = {benchmark.name for benchmark in benchmarks}
    assert names == {benchmark.name for benchmark in SANDBOX} | {"sandbox_levels"}
    assert all(benchmark.synthetic for benchmark in benchmarks) and not names & {
        benchmark.name for benchmark in suite("all")
    }
