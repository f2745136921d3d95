"""The metrics as modules of `evaluate`: how they are loaded and fed, what they return and what their cards say."""

from __future__ import annotations

import ast
import doctest
import importlib
import json
import math
import re
import runpy
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import yaml
from evaluate.naming import camelcase_to_snakecase

from hfcomp.metrics.modules import MODULES, module_path
from tests import processes
from tests.metrics import module_rows
from tests.metrics.evaluate_cache import evaluate
from tests.metrics.module_rows import LOWEST, columns_and_options, rows_of, scorers

ROOT = Path(__file__).resolve().parents[2]
CHOICES = [name for name in MODULES if name != "hierarchy"]
SCORES = {"true_score": [0.9, 0.4, 0.5], "other_scores": [[0.1], [0.3, 0.6], [0.5]]}


def metric(name: str, *arguments, **options):
    """In memory, for one whose computation fails keeps the lock of its file."""
    return evaluate.load(str(module_path(name)), *arguments, keep_in_memory=True, **options)


def info_columns(name: str) -> list[str]:
    return list(metric(name).info.features)


def card(name: str) -> str:
    return (module_path(name) / "README.md").read_text(encoding="utf-8")


def test_every_folder_is_listed_and_an_unknown_name_is_refused():
    folders = {path.name for path in module_path("hierarchy").parent.iterdir() if (path / "README.md").is_file()}
    assert folders == set(MODULES)
    with pytest.raises(ValueError, match="'accuracy' .* caption_choice"):
        module_path("accuracy")


def test_the_list_of_modules_loads_without_evaluate():
    code = "import sys, hfcomp.metrics.modules; sys.exit('evaluate' in sys.modules or 'datasets' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize(("scorer", "expected"), [("perfect", 1.0), ("inverted", 0.0), ("constant", 0.0)])
def test_known_scorers(name, scorer, expected):
    result = metric(name).compute(**rows_of(name, scorers()[scorer], rows=40))
    assert {key: result[key] for key in LOWEST[name]} == dict.fromkeys(LOWEST[name], expected)
    ties = {value for key, value in result.items() if key.endswith("tie_rate")}
    assert ties == {1.0 if scorer == "constant" else 0.0}
    if name == "keyword_ranking" and scorer == "constant":
        assert result["reciprocal_rank"] == 0.0
    if name == "brittleness":
        assert result["brittleness"] == 0.0


@pytest.mark.parametrize("name", CHOICES)
def test_a_random_scorer_is_at_the_chance_that_is_returned(name):
    result = metric(name).compute(**rows_of(name, scorers()["random"]))
    pairs = [(key, re.sub(r"(accuracy|recall)$", "chance", key)) for key in LOWEST[name]]
    if name == "brittleness":
        pairs.append(("brittleness", "brittleness_chance"))
    for key, chance in pairs:
        spread = math.sqrt(result[chance] * (1 - result[chance]) / module_rows.ROWS)
        assert abs(result[key] - result[chance]) < 4 * spread, key


def test_a_constant_scorer_gets_nothing_on_the_hierarchy():
    rows = module_rows.hierarchy_rows()
    rows["text"] = np.tile(rows["text"][0][0], (30, 4, 1)).tolist()
    result = metric("hierarchy").compute(**rows)
    assert result["precision"] == result["recall"] == result["rank_correlation"] == 0.0 and result["tie_rate"] == 1.0


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize(("tie", "expected"), [("half", 0.5), ("win", 1.0)])
def test_what_a_tie_is_worth(name, tie, expected):
    result = metric(name).compute(**rows_of(name, scorers()["constant"], rows=8), tie=tie)
    assert {result[key] for key in LOWEST[name]} == {expected}
    assert result.get("brittleness", 0.0) == 0.0
    with pytest.raises(ValueError, match="tie: found 'lose'.* wrong, half, win"):
        metric(name).compute(**rows_of(name, scorers()["constant"], rows=8), tie="lose")


@pytest.mark.parametrize("name", MODULES)
def test_rows_in_pieces_are_rows_at_once(name):
    columns, options = columns_and_options(name)
    expected = metric(name).compute(**columns, **options)
    assert expected["num_items"] == 30
    batches, single = evaluate.load(str(module_path(name))), metric(name)
    for start in (0, 1, 8):
        batches.add_batch(**{key: column[start : {0: 1, 1: 8}.get(start)] for key, column in columns.items()})
    for row in range(30):
        single.add(**{key: column[row] for key, column in columns.items()})
    assert batches.compute(**options) == single.compute(**options) == expected


@pytest.mark.parametrize("name", MODULES)
def test_arrays_are_taken_and_plain_numbers_returned(name):
    columns, options = columns_and_options(name, rows=5)
    expected = metric(name).compute(**columns, **options)
    arrays = {
        key: column if isinstance(column[0], list) and key != "image" else np.array(column)
        for key, column in columns.items()
    }
    values = metric(name).compute(**arrays, **options)
    assert values == expected
    assert {type(value) for value in values.values()} <= {int, float}
    assert json.loads(json.dumps(values)) == values


def test_metrics_are_combined():
    paths = [str(module_path(name)) for name in ("caption_choice", "keyword_ranking", "brittleness")]
    combined = evaluate.combine([evaluate.load(path) for path in paths])
    scores = SCORES | {"caption": [0.9, 0.9, 0.2], "hard_positive": [0.8, 0.3, 0.6], "hard_negative": [0.5, 0.5, 0.4]}
    combined.add_batch(**scores)
    result = combined.compute(tie="half")
    assert result["caption_choice_accuracy"] == result["keyword_ranking_accuracy"] == 0.5
    assert result["mean_rank"] == pytest.approx(5 / 3) and result["brittleness"] == pytest.approx(2 / 3)
    # by path, with the same columns at once
    assert evaluate.combine(paths[:2]).compute(**SCORES)["keyword_ranking_chance"] == pytest.approx(4 / 9)


def test_two_processes_are_one(tmp_path):
    words = ["-m", "tests.metrics.two_processes", tmp_path]
    started = [processes.start([*words, number, 2], errors=True) for number in range(2)]
    printed = [process.communicate(timeout=100)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0]
    values = json.loads(printed[0].splitlines()[-1])
    for name in MODULES:
        columns, options = columns_and_options(name)
        assert values[name] == pytest.approx(metric(name).compute(**columns, **options)), name


def test_one_score_of_two_positive_choice():
    columns = {"caption": [0.9, 0.9], "paraphrase": [0.8, 0.2], "negative": [0.3, 0.3]}
    values = metric("two_positive_choice", "image_to_text").compute(**columns)
    assert values["image_to_text_accuracy"] == 0.5 and not [key for key in values if key.startswith("text_only")]
    names = ("caption_paraphrase", "caption_negative", "paraphrase_negative")
    values = metric("two_positive_choice", "text_only").compute(**dict(zip(names, columns.values(), strict=True)))
    assert values["text_only_accuracy"] == 1.0 and not [key for key in values if key.startswith("image")]
    with pytest.raises(ValueError, match="'both'.* image_to_text, text_only"):
        metric("two_positive_choice", "both")
    with pytest.raises(TypeError, match="ties: .* tie"):
        metric("two_positive_choice", "image_to_text").compute(**columns, ties="half")


def test_recall_of_several_right_keys_at_several_k():
    scores, right = [[0.1, 0.6, 0.2, 0.9], [0.5, 0.4, 0.3, 0.2]], [[1, 2], [3]]
    first, second = (metric("recall_at_k").compute(scores=scores, right=right, k=k) for k in (1, 2))
    assert (first["recall"], second["recall"]) == (0.0, 0.5)
    assert second["chance"] == pytest.approx((1 - 2 / 4 * 1 / 3 + 2 / 4) / 2) and second["k"] == 2
    with pytest.raises(ValueError, match="query 0 .*k=3"):
        metric("recall_at_k").compute(scores=scores, right=right, k=3)
    with pytest.raises(ValueError, match="k: found 0, expected .*at least 1"):
        metric("recall_at_k").compute(scores=scores, right=right, k=0)
    with pytest.raises(ValueError, match=r"query 1 .*4 scores.*\[4\].* 0 to 3"):
        metric("recall_at_k").compute(scores=scores, right=[[1], [4]])
    with pytest.raises(ValueError, match="query 1 .*positive"):
        metric("recall_at_k").compute(scores=scores, right=[[1], []])


@pytest.mark.parametrize("name", MODULES)
def test_no_rows_are_refused(name):
    _, options = columns_and_options(name)
    with pytest.raises(ValueError, match=r"no items|have \[\] captions"):
        metric(name).compute(**dict.fromkeys(info_columns(name), []), **options)


def test_rows_that_cannot_be_scored_are_refused():
    with pytest.raises(ValueError, match="item 1 .*other"):
        metric("caption_choice").compute(true_score=[0.1, 0.2], other_scores=[[0.1], []])
    with pytest.raises(ValueError, match=r"compute\(\) needs root="):
        metric("hierarchy").compute(**columns_and_options("hierarchy")[0])
    columns, options = columns_and_options("hierarchy")
    columns["captions"][3] = ["a", "b"]
    with pytest.raises(ValueError, match=r"captions: .*\[2, 4\] captions, expected 4"):
        metric("hierarchy").compute(**columns, **options)


def test_nan_is_refused_with_its_row():
    for true, others in (([0.5, math.nan], [[0.1], [0.1]]), ([0.5, 0.5], [[0.1], [0.1, math.nan]])):
        with pytest.raises(ValueError, match="row 1: .*NaN"):
            metric("caption_choice").compute(true_score=true, other_scores=others)


@pytest.mark.parametrize("name", MODULES)
def test_the_card_s_example_is_true(name):
    parsed = doctest.DocTestParser().get_doctest(re.sub(r"```\w*", "", card(name)), {}, name, None, 0)
    assert len(parsed.examples) > 3
    told: list[str] = []
    doctest.DocTestRunner().run(parsed, out=told.append)
    assert not told, "".join(told)


@pytest.mark.parametrize("name", MODULES)
def test_cards_and_help_name_every_input_and_output(name):
    columns, options = columns_and_options(name)
    result = metric(name).compute(**columns, **options)
    named = {*columns, *options, *result} | (set() if name == "hierarchy" else {"tie"})
    info = metric(name).info
    assert bool(info.citation) == (name != "recall_at_k") and info.citation[:1] in ("", "@")
    assert info.module_name == name and info.description[-1] == "." and "|" not in info.description
    assert set(info.features) == set(columns)
    for word in named:
        assert f"`{word}`" in card(name), word
        assert re.search(rf"\b{re.escape(word)}\b", info.inputs_description), word


@pytest.mark.parametrize("name", MODULES)
def test_a_space_finds_what_it_needs(name):
    front = yaml.safe_load(card(name).split("---\n")[1])
    assert front["sdk"] == "gradio" and front["tags"] == ["evaluate", "metric"] and front["title"]
    assert (module_path(name) / front["app_file"]).is_file()
    assert (module_path(name) / "requirements.txt").read_text() == "hfcomp[eval]\n"


@pytest.mark.parametrize("name", MODULES)
def test_evaluate_can_read_the_imports(name):
    """It takes one module a line, and the first class that is a metric."""
    tree = ast.parse((module_path(name) / f"{name}.py").read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert all(len(node.names) == 1 for node in imports if isinstance(node, ast.Import))
    assert not [node for node in imports if isinstance(node, ast.ImportFrom) and node.level]
    script = importlib.import_module(f"hfcomp.metrics.modules.{name}.{name}")
    classes = [
        member for member in vars(script).values() if isinstance(member, type) and issubclass(member, evaluate.Metric)
    ]
    assert [camelcase_to_snakecase(metric_class.__name__) for metric_class in classes] == [name]


@pytest.fixture
def gradio(monkeypatch) -> types.ModuleType:
    """Stands in for Gradio: keeps what it is given."""
    module = types.ModuleType("gradio")
    module.Textbox = module.JSON = types.SimpleNamespace
    module.made = []

    def interface(**given):
        module.made.append(types.SimpleNamespace(launch=lambda: None, **given))
        return module.made[-1]

    module.Interface = interface
    module.Error = type("Error", (Exception,), {})
    monkeypatch.setitem(sys.modules, "gradio", module)
    return module


@pytest.mark.parametrize("name", MODULES)
def test_a_page_computes_its_example(name, gradio):
    runpy.run_path(str(module_path(name) / "app.py"), run_name="__main__")
    (made,) = gradio.made
    texts = [box.value for box in made.inputs]
    assert made.fn(*texts) == metric(name).compute(**metric(name).example)
    assert made.fn(*texts)["num_items"] == len(json.loads(texts[0]))
    assert made.article.lstrip().startswith("# ") and "sdk: gradio" not in made.article
    with pytest.raises(gradio.Error, match="not JSON"):
        made.fn("0.5 0.6", *texts[1:])
    with pytest.raises(gradio.Error, match=r"no items|no rows|have \[\] captions"):
        made.fn(*["[]"] * len(info_columns(name)), *texts[len(info_columns(name)) :])
