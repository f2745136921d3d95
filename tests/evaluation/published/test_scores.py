"""The files of published numbers and the lines that they become."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import pytest
import yaml

from hfcomp.cli.reproduce import BENCHMARKS, MODELS
from hfcomp.evaluation.benchmarks import benchmarks, find_benchmarks
from hfcomp.evaluation.published import scores
from hfcomp.evaluation.published.scores import (
    PublishedModel,
    published_model,
    published_models,
    published_scores,
    read_scores,
    read_source,
)

LINE = {"benchmark": "sugarcrepe", "subset": "add_obj", "metric": "caption choice"}
CLIP_ALONE = {"CLIP": PublishedModel()}


def write(folder, columns=(LINE,), values=(77.2,), model="CLIP", **changes):
    table = {"table": "Table 1", "unit": "percent", "decimals": 1, "columns": list(columns)}
    table |= {"models": {model: list(values)}, **changes}
    path = folder / "paper.yaml"
    path.write_text(yaml.safe_dump({"name": "Paper", "source": "Somebody 2026, arXiv:1", "tables": [table]}))
    return path


def test_a_number_is_read_with_its_line_source_and_rounding(tmp_path):
    write(tmp_path, differs="Other images.", rows_differ={"CLIP": "Another run."}, protocol="fp16")
    (score,) = read_scores(tmp_path, CLIP_ALONE)
    assert score.line == ("SugarCrepe", "add_obj", "caption choice")
    assert (score.value, score.shown, score.rounding) == (pytest.approx(0.772), "77.2", pytest.approx(0.0005))
    assert (score.source, score.reference, score.table) == ("Paper", "Somebody 2026, arXiv:1", "Table 1")
    assert (score.protocol, score.differs) == ("fp16", "Other images. Another run.")


@pytest.mark.parametrize(
    ("unit", "decimals", "metric", "printed", "shown", "rounding"),
    [
        ("fraction", 4, "caption choice", 0.6332, "63.32", 0.00005),
        ("fraction", 2, "caption choice", 0.56, "56", 0.005),
        ("fraction", 1, "caption choice", 0.6, "60", 0.05),
        ("percent", 0, "caption choice", 77, "77", 0.005),
    ],
)
def test_decimals_of_a_fraction_are_those_of_its_percentage(
    tmp_path, unit, decimals, metric, printed, shown, rounding
):
    write(tmp_path, [{**LINE, "metric": metric}], [printed], unit=unit, decimals=decimals)
    (score,) = read_scores(tmp_path, CLIP_ALONE)
    assert score.shown == shown and score.rounding == pytest.approx(rounding)


def test_a_correlation_may_be_negative_and_keeps_its_decimals(tmp_path):
    line = {"benchmark": "hierarcaps", "metric": "rank correlation"}
    write(tmp_path, [line], [-0.25], unit="fraction", decimals=2)
    (score,) = read_scores(tmp_path, CLIP_ALONE)
    assert (score.value, score.shown, score.rounding) == (-0.25, "-0.25", pytest.approx(0.005))


def test_a_cell_without_a_number_is_left_out(tmp_path):
    write(tmp_path, [LINE, {**LINE, "subset": "add_att"}], [None, 68.8])
    assert [score.subset for score in read_scores(tmp_path, CLIP_ALONE)] == ["add_att"]


def test_a_mean_over_benchmarks_is_a_line(tmp_path):
    write(tmp_path, [{"benchmark": "Im et al. 2026, Table 2", "metric": "compositional mean"}], [47.9])
    (score,) = read_scores(tmp_path, CLIP_ALONE)
    assert score.line == ("Im et al. 2026, Table 2", "all", "compositional mean")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "CLPI"}, "Table 1: unknown model 'CLPI'. Did you mean 'CLIP'?"),
        (
            {"columns": [{**LINE, "benchmark": "sugarcrep"}]},
            "unknown benchmark 'sugarcrep'. Did you mean 'sugarcrepe'",
        ),
        ({"columns": [{**LINE, "benchmark": "aro"}]}, "'aro' stands for several benchmarks: ARO "),
        (
            {"columns": [{**LINE, "subset": "add_objects"}]},
            "sugarcrepe: subset: found 'add_objects', expected one of ",
        ),
        ({"columns": [{**LINE, "metric": "accuracy"}]}, "sugarcrepe: metric: found 'accuracy', expected one of capt"),
        ({"columns": [{**LINE, "metrik": "x"}]}, "columns: entry 1: unknown key 'metrik'"),
        ({"values": [101.0]}, "CLIP: found 101.0 in percent of caption choice, expected 0 to 100."),
        ({"values": [0.772], "unit": "percent"}, "CLIP: found 0.772, expected at most 1 decimals."),
        ({"values": [77.2], "unit": "fraction"}, "found 77.2 in fraction of caption choice, expected 0 to 1."),
        ({"values": [77.2, 1.0]}, "Table 1, CLIP: found 2 values, expected 1."),
        ({"values": ["77.2"]}, "expected"),
        ({"rows_differ": {"CLIPS": "x"}}, "rows_differ names 'CLIPS', which is not among its models"),
        ({"unit": "points"}, "unit: found 'points', expected one of percent, fraction"),
    ],
)
def test_a_mistake_is_refused_with_its_place(tmp_path, changes, message):
    path = write(tmp_path, **changes)
    with pytest.raises(ValueError) as raised:
        read_scores(tmp_path, CLIP_ALONE)
    assert message in str(raised.value) and str(path) in str(raised.value)


def test_a_source_needs_a_table(tmp_path):
    path = tmp_path / "paper.yaml"
    path.write_text("name: Paper\nsource: Somebody\ntables: []\n")
    with pytest.raises(ValueError, match="tables: .*at least 1"):
        read_source(path)


def test_every_number_has_a_model_a_source_and_a_place():
    numbers = published_scores()
    assert {number.model for number in numbers} == set(published_models())
    assert all(number.reference and number.table and number.rounding > 0 for number in numbers)
    twice = [
        key
        for key, count in Counter((number.model, number.line, number.place) for number in numbers).items()
        if count > 1
    ]
    assert not twice


ROOT = Path(__file__).resolve().parents[3]
# printed averages that the printed columns do not give, whatever was rounded
MISPRINTS = {("AHNPL, Table 2", "CLIP ViT-B/32", "REPLACE")}


def test_averages_of_a_table_are_the_means_of_its_own_columns():
    """A number in the wrong column or row shows: columns and average are rounded, which moves both by half a digit."""
    rows = defaultdict(dict)
    for score in published_scores("sugarcrepe"):
        rows[score.place, score.model][score.subset] = score
    checked, wrong = 0, set()
    averages = [
        average
        for average in benchmarks()["sugarcrepe"].averages
        if not average.pooled and average.name != "macro of 3 groups"
    ]
    for (place, model), row in rows.items():
        for average in (mean for mean in averages if mean.name in row and set(mean.parts) <= set(row)):
            mean = sum(row[part].value for part in average.parts) / len(average.parts)
            checked += 1
            if abs(mean - row[average.name].value) > 2 * row[average.name].rounding + 1e-9:
                wrong.add((place, model, average.name))
    assert checked == 4 * 21 + 3 * 4 + 3 * 2 + 7 and wrong == MISPRINTS


def test_the_mean_over_benchmarks_is_that_of_the_paper_s_other_columns():
    row = {
        score.line: score.value
        for score in published_scores()
        if (score.model, score.source) == ("Slipform", "Slipform")
    }
    crepe = row["SugarCrepe", "macro of 7 subsets", "caption choice"]
    ours = [row["SugarCrepe++", "macro of 5 subsets", metric] for metric in ("image-to-text", "text only")]
    group = [row["Winoground", "all items", metric] for metric in ("text", "image", "group")]
    mean = (crepe + sum(ours) / 2 + sum(group) / 3) / 3
    assert row["Im et al. 2026, Table 2", "all", "compositional mean"] == pytest.approx(mean, abs=1e-4)


def test_numbers_are_found_by_the_name_and_by_the_title_of_a_benchmark():
    assert published_scores("winoground") == published_scores("Winoground")
    assert {score.benchmark for score in published_scores("vtab_dtd")} == {"VTAB"}
    assert published_scores("own.parquet") == ()
    clip = [
        score.shown
        for score in published_scores("winoground")
        if "Thrush" in score.reference and score.metric == "group"
    ]
    assert clip[0] == "8.00"


PINNED = yaml.safe_load((Path(__file__).parent / "pinned.yaml").read_text())


@pytest.mark.parametrize("source", PINNED)
def test_every_entry_of_pinned_results_has_its_row_or_a_reason(source):
    entries = PINNED[source]
    assert Counter(entries["models"].values()) == Counter(
        {score.model for score in published_scores() if score.source == source}
    )
    left_out = [name for names in entries["left_out"].values() for name in names]
    assert not {*left_out} & {*entries["models"]} and len({*left_out}) == len(left_out)
    if source == "MTEB":  # whose entries are Hub ids
        models = {name: published_model(name) for name in [*entries["models"], *left_out]}
        assert models == entries["models"] | dict.fromkeys(left_out)


@pytest.mark.parametrize(
    ("given", "model"),
    [
        ("Mayfull/READ-CLIP", "READ-CLIP"),
        ("kakaobrain/align-base", "ALIGN base"),
        ("Salesforce/blip-itm-large-coco", "BLIP ITM large COCO"),
        ("facebook/metaclip-h14-fullcc2.5b", "MetaCLIP ViT-H/14 2.5B"),
        ("apple/DFN5B-CLIP-ViT-H-14-378", "DFN ViT-H/14 378"),
        ("TripletCLIP/CC12M_TripletCLIP_ViTB12", None),  # not the checkpoint whose numbers there are
        ("openai/clip-vit-base-patch32", "CLIP ViT-B/32"),
        ("OpenAI/CLIP-ViT-base-patch32", "CLIP ViT-B/32"),
        ("clip vit-b/32", "CLIP ViT-B/32"),
        ("CLIP B/32", "CLIP ViT-B/32"),
        ("negclip", "NegCLIP"),
        ("ce_clip", "CE-CLIP"),
        ("TSVLC+", "TSVLC+"),
        ("tsvlc", "TSVLC"),
        ("clip", None),
        ("openai/clip-vit-base-patch3", None),
    ],
)
def test_a_model_is_found_by_hub_id_or_name(given, model):
    assert published_model(given) == model


def test_the_first_name_that_is_known_decides():
    assert published_model("runs/folder", "NegCLIP") == "NegCLIP"
    assert published_model("google/siglip-base-patch16-224", "NegCLIP") == "SigLIP ViT-B/16 224"
    assert published_model(None, "") is None


def test_a_hub_id_of_two_models_is_refused(monkeypatch):
    monkeypatch.setattr(scores, "read_models", lambda: dict.fromkeys("AB", PublishedModel(hub=["x/y"])))
    with pytest.raises(ValueError, match="models.yaml: 'x/y' .*'A' and 'B'"):
        published_models.__wrapped__()


def test_what_make_reproduce_scores_has_published_numbers_by_our_protocol():
    titles = {benchmark.title for benchmark in find_benchmarks(BENCHMARKS)}
    for model in map(published_model, MODELS):
        own = [score for score in published_scores() if score.model == model and not score.differs]
        assert titles <= {score.benchmark for score in own}, model
    assert not any(benchmark.gated for benchmark in find_benchmarks(BENCHMARKS))


def test_the_page_states_what_there_is():
    page, numbers = (ROOT / "docs" / "published.md").read_text(), published_scores()
    titles = f"{len({number.benchmark for number in numbers})} benchmarks"
    hub = sum(bool(model.hub) for model in published_models().values())
    assert (
        f"{len(numbers):,} numbers of {len(published_models())} models, {hub} of them with a Hub id, on {titles}"
        in page
    )
    rows = [
        line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ") and line.count("|") == 6
    ]
    stated = {row[0]: tuple(map(int, row[2:])) for row in rows if row[2].isdigit()}
    counted = {
        source: (len({number.model for number in own}), len(own), sum(bool(number.differs) for number in own))
        for source in {number.source for number in numbers}
        for own in [[number for number in numbers if number.source == source]]
    }
    assert stated == counted
