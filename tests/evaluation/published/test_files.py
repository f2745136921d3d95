"""The files of published numbers: what a mistake in them is called."""

from __future__ import annotations

import pytest
import yaml

from hfcomp.evaluation.published.scores import PublishedModel, read_scores, read_source

LINE = {"benchmark": "sugarcrepe", "subset": "add_obj", "metric": "caption choice"}
MODELS = {"CLIP": PublishedModel()}


def write(folder, columns=(LINE,), values=(77.2,), model="CLIP", **changes):
    table = {"table": "Table 1", "unit": "percent", "decimals": 1, "columns": list(columns)}
    table |= {"models": {model: list(values)}, **changes}
    path = folder / "paper.yaml"
    path.write_text(yaml.safe_dump({"name": "Paper", "source": "Somebody 2026, arXiv:1", "tables": [table]}))
    return path


def test_a_number_is_read_with_its_line_source_and_rounding(tmp_path):
    write(tmp_path, differs="Other images.", rows_differ={"CLIP": "Another run."}, protocol="fp16")
    (one,) = read_scores(tmp_path, MODELS)
    assert one.line == ("SugarCrepe", "add_obj", "caption choice")
    assert (one.value, one.shown, one.rounding) == (pytest.approx(0.772), "77.2", pytest.approx(0.0005))
    assert (one.source, one.reference, one.table) == ("Paper", "Somebody 2026, arXiv:1", "Table 1")
    assert (one.protocol, one.differs) == ("fp16", "Other images. Another run.")


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
    (one,) = read_scores(tmp_path, MODELS)
    assert one.shown == shown and one.rounding == pytest.approx(rounding)


def test_a_correlation_may_be_negative_and_keeps_its_decimals(tmp_path):
    line = {"benchmark": "hierarcaps", "metric": "rank correlation"}
    write(tmp_path, [line], [-0.25], unit="fraction", decimals=2)
    (one,) = read_scores(tmp_path, MODELS)
    assert (one.value, one.shown, one.rounding) == (-0.25, "-0.25", pytest.approx(0.005))


def test_a_cell_without_a_number_is_left_out(tmp_path):
    write(tmp_path, [LINE, {**LINE, "subset": "add_att"}], [None, 68.8])
    assert [one.subset for one in read_scores(tmp_path, MODELS)] == ["add_att"]


def test_a_mean_over_benchmarks_is_a_line(tmp_path):
    write(tmp_path, [{"benchmark": "Im et al. 2026, Table 2", "metric": "compositional mean"}], [47.9])
    (one,) = read_scores(tmp_path, MODELS)
    assert one.line == ("Im et al. 2026, Table 2", "all", "compositional mean")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "CLPI"}, "Table 1: unknown model 'CLPI'. Did you mean 'CLIP'?"),
        (
            {"columns": [{**LINE, "benchmark": "sugarcrep"}]},
            "unknown benchmark 'sugarcrep'. Did you mean 'sugarcrepe'",
        ),
        ({"columns": [{**LINE, "benchmark": "aro"}]}, "'aro' names benchmarks of several titles: ARO "),
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
        read_scores(tmp_path, MODELS)
    assert message in str(raised.value) and str(path) in str(raised.value)


def test_a_source_needs_a_table(tmp_path):
    path = tmp_path / "paper.yaml"
    path.write_text("name: Paper\nsource: Somebody\ntables: []\n")
    with pytest.raises(ValueError, match="tables: .*at least 1"):
        read_source(path)
