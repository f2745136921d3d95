"""What points are judged by, on which items, and what a sweep keeps."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from hfcomp.merging.report import front_figure, points_table
from hfcomp.merging.sweep import ALPHAS, choose, few_images_warnings, find_proxies, split_halves
from hfcomp.reporting.figures import draw
from hfcomp.statistics import Outcomes
from tests.evaluation.evaluations import outcomes


def swept_outcomes(items: int = 60) -> Outcomes:
    """Composition rises with alpha, general abilities fall from the middle."""
    generator, tables = np.random.default_rng(0), []
    ranks = generator.permutation(items)
    for alpha in ALPHAS:
        arm = f"alpha {alpha:g}"
        gained = ranks < items * (0.2 + 0.5 * alpha)
        kept = ranks < items * (0.9 - max(0.0, alpha - 0.5))
        tables.append(outcomes(arm, gained, metric="group", chance=1 / 6))
        tables.append(outcomes(arm, gained, metric="caption choice"))
        for benchmark in ("COCO", "Flickr"):
            tables.append(outcomes(arm, kept, benchmark=benchmark, metric="recall@1", aspect="general"))
    return Outcomes(pd.concat(tables, ignore_index=True))


def test_the_strictest_metric_and_the_mean_of_the_general_lines_judge():
    proxies = find_proxies(swept_outcomes(), {})
    assert proxies.composition.lines == [("SugarCrepe", "all", "group")]
    assert proxies.general.lines == [("COCO", "all", "recall@1"), ("Flickr", "all", "recall@1")]
    named = find_proxies(swept_outcomes(), {}, composition="SugarCrepe: caption choice", general="COCO: recall@1")
    assert (named.composition.name, named.general.name) == ("SugarCrepe: caption choice", "COCO: recall@1")


def test_what_is_not_scored_judges_nothing():
    whole = swept_outcomes()
    with pytest.raises(ValueError, match="general ability .*coco2017_retrieval"):
        find_proxies(whole.select(aspect="composition"), {})
    with pytest.raises(ValueError, match="[Nn]o composition .*sugarcrepe"):
        find_proxies(whole.select(aspect="general"), {})
    with pytest.raises(ValueError, match=r"general: 'COCO: recal@1'.*'COCO: recall@1'"):
        find_proxies(whole, {}, general="COCO: recal@1")


def test_the_chosen_point_is_the_furthest_that_keeps_the_general_score():
    whole = swept_outcomes()
    swept = choose(whole, find_proxies(whole, {}))
    assert swept.chosen.alpha == 0.5
    assert [point.alpha for point in swept.points] == list(ALPHAS)
    facts = swept.facts()
    assert facts["alpha"] == 0.5 and facts["items"] == [60, 120]
    assert [point["alpha"] for point in facts["points"] if point["dominated"]] == [0.0, 0.1, 0.2, 0.3, 0.4]
    assert choose(whole, find_proxies(whole, {}), tolerance=0.5).chosen.alpha == 1.0


def test_an_image_is_in_one_half_whatever_the_benchmark():
    chosen, reported = split_halves(swept_outcomes())
    ours, theirs = set(chosen.table["image_id"]), set(reported.table["image_id"])
    assert not ours & theirs and len(ours) + len(theirs) == 60
    assert min(len(ours), len(theirs)) > 15
    assert len(chosen) + len(reported) == len(swept_outcomes())
    again = split_halves(Outcomes(swept_outcomes().table.iloc[::-1]))[0]
    assert set(again.table["image_id"]) == ours


def test_a_photograph_of_coco_is_in_one_half_under_all_its_names():
    table = swept_outcomes().table.copy()
    number = table["image_id"].astype("category").cat.codes + 1
    in_2014 = table["benchmark"] == "COCO"
    names = [f"COCO_val2014_{n:012d}.jpg" if old else f"{n:012d}.jpg" for n, old in zip(number, in_2014, strict=True)]
    chosen, reported = (set(part.table["image_id"]) for part in split_halves(Outcomes(table.assign(image_id=names))))
    assert not {name[-16:] for name in chosen} & {name[-16:] for name in reported}


def test_too_few_images_cannot_be_halved():
    with pytest.raises(ValueError, match="SugarCrepe / all / .*split"):
        split_halves(swept_outcomes(items=1))


@pytest.mark.parametrize(("items", "warnings"), [(60, 2), (120, 0)])
def test_a_point_that_few_images_choose_has_a_warning(items, warnings):
    swept = choose(swept_outcomes(items), find_proxies(swept_outcomes(items), {}))
    messages = few_images_warnings(swept)
    assert len(messages) == warnings == sum(line["images"] < 100 for line in swept.lines)
    assert all("A single image counts for more than one percentage point" in message for message in messages)
    assert all(f"only {swept.lines[0]['images']} images" in message for message in messages)


def test_the_table_and_the_figure_show_the_chosen_point():
    whole = swept_outcomes()
    swept = choose(whole, find_proxies(whole, {}))
    table = points_table("tuned", swept)
    assert [row[0] for row in table.rows if row[-1] == "chosen"] == ["0.5"]
    assert [row[-1] for row in table.rows].count("dominated") == 5
    assert table.rows[0][1].startswith("20.0 [") and table.rows[5][2].startswith("+25.0 [")
    assert points_table("tuned", swept, brief=True).rows[0][1] == "20.0"
    figure = front_figure("figure.png", "title", {"tuned": swept})
    stops = figure.panels[0].paths["tuned"]
    assert [stop.mark for stop in stops] == [""] * 5 + [".5"] + [""] * 5
    assert draw(figure).startswith(b"\x89PNG")
