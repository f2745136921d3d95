"""Scores of other systems: written lists of pairs, read scores, and what is wrong with them."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import hfcomp
from hfcomp.cli.evaluate import main
from hfcomp.evaluation.benchmarks import find_benchmarks
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.evaluation.evaluation_results import EvaluationResults
from hfcomp.evaluation.loaded import load_benchmark
from hfcomp.evaluation.pairs.items import list_pairs
from hfcomp.evaluation.score_files import ScoreFile
from hfcomp.evaluation.spec import data_folders
from hfcomp.metrics.choice import pair_scores
from tests import tiny
from tests.evaluation import small_sugarcrepe

PLACE = {"device": "cpu", "cache": False}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = small_sugarcrepe.write(tmp_path_factory.mktemp("data"))
    tiny.pairs(12, ragged=False).to_parquet(folder / "own.parquet")
    return folder


@pytest.fixture(scope="module")
def pairs(data, tmp_path_factory):
    """The pairs of SugarCrepe and of a set of one's own, as the command lists them."""
    path = tmp_path_factory.mktemp("pairs") / "pairs.csv"
    own = str(data / "own.parquet")
    main(["--write_pairs", str(path), "--benchmarks", f"sugarcrepe,{own}", "--data_dir", str(data)])
    return pd.read_csv(path, dtype=str, keep_default_na=False)


@pytest.fixture(scope="module")
def scored_pairs(pairs, clip):
    """The same with the cosines of a dual encoder."""
    embedder = Embedder(clip, device="cpu")
    scores = pair_scores(embedder.images(list(pairs["file"])), embedder.texts(list(pairs["text"])).vectors)
    return pairs.assign(score=scores.astype(np.float64))


def write_scores(table, path):
    if path.suffix == ".csv":
        table.to_csv(path, index=False)
    elif path.suffix == ".jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in table.to_dict("records")))
    else:
        table.to_parquet(path)
    return path


def test_the_list_names_every_pair_once_and_where_its_image_is(pairs, data):
    assert list(pairs.columns) == ["benchmark", "subset", "item", "image", "image_id", "file", "text"]
    sugarcrepe = pairs[pairs["benchmark"] == "sugarcrepe"]
    assert len(sugarcrepe) == 2 * 35 and not pairs.duplicated(["benchmark", "subset", "item", "text"]).any()
    first = json.loads((data / "sugarcrepe" / "add_att.json").read_text())["0"]
    texts = sugarcrepe[(sugarcrepe["subset"] == "add_att") & (sugarcrepe["item"] == "0")]["text"]
    assert list(texts) == [first["caption"], first["negative_caption"]]
    assert sugarcrepe["file"].iloc[0].endswith(sugarcrepe["image_id"].iloc[0])
    own = pairs[pairs["benchmark"] != "sugarcrepe"]
    assert len(own) == 24 and all("_images" in file for file in own["file"])  # bytes in the file of rows


def test_the_scores_of_a_dual_encoder_read_back_give_its_results(scored_pairs, data, clip, tmp_path):
    path = write_scores(scored_pairs, tmp_path / "scores.csv")
    results = hfcomp.evaluate(
        [f"clip={clip}"],
        scores={"read": path},
        benchmarks=["sugarcrepe", str(data / "own.parquet")],
        data_dir=data,
        **PLACE,
    )
    table = results.outcomes.table.drop(columns="arm")
    clip_rows, read_rows = (table[results.outcomes.table["arm"] == name] for name in ("clip", "read"))
    kept = clip_rows[~clip_rows["metric"].str.contains("recall")].reset_index(drop=True)
    pd.testing.assert_frame_equal(read_rows.reset_index(drop=True), kept)
    assert 0 < kept["value"].mean() < 1
    for line in results.lines:
        assert line["models"]["read"] == line["models"]["clip"], line["subset"]
    assert results.models["read"]["path"] == str(path) and results.models["read"]["weights"].startswith("sha256:")
    assert any("recall is not scored for read" in note for note in results.notes)


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
def test_every_kind_of_file_holds_the_same_scores(scored_pairs, data, tmp_path, ending):
    loaded = load_benchmark(find_benchmarks(["sugarcrepe"])[0], data_folders(None, data, option="data"))
    pairs = list_pairs(loaded.benchmark, loaded.data, 0)
    first, other = (
        ScoreFile(write_scores(scored_pairs, tmp_path / f"s{suffix}")).score_pairs(pairs)
        for suffix in (".csv", ending)
    )
    np.testing.assert_array_equal(first.values, other.values)


def test_a_file_alone_is_evaluated_by_the_command(scored_pairs, data, tmp_path, capsys):
    path = write_scores(scored_pairs, tmp_path / "scores.csv")
    folder = tmp_path / "out"
    main(
        [
            *("--scores", f"mine={path}", "--benchmarks", "sugarcrepe", "--data_dir", str(data)),
            *("--output_dir", str(folder), "--no_cache", "--device", "cpu"),
        ]
    )
    assert "SugarCrepe: caption choice" in capsys.readouterr().out
    results = EvaluationResults.load(folder)
    assert list(results.models) == ["mine"] and results.models["mine"]["score"] == "read from a file"
    own = data / "own.parquet"
    assert f"{path}: 24 scores of {own} not used: it is not evaluated" in results.notes


def evaluate_scores(table, path, data, benchmarks=("sugarcrepe",)):
    hfcomp.evaluate(scores={"read": write_scores(table, path)}, benchmarks=list(benchmarks), data_dir=data, **PLACE)


@pytest.fixture
def own_scores(scored_pairs):
    return scored_pairs[scored_pairs["benchmark"] == "sugarcrepe"].reset_index(drop=True)


def test_missing_pairs_are_counted_and_the_first_is_named(own_scores, data, tmp_path):
    named = "subset '{subset}', item '{item}', image 'image', text '{text}'".format(**own_scores.loc[3])
    with pytest.raises(ValueError, match="2 of 70 .*sugarcrepe") as error:
        evaluate_scores(own_scores.drop(index=[3, 9]), tmp_path / "s.csv", data)
    assert named in str(error.value) and "--write_pairs" in str(error.value)


def test_repeated_pairs_are_refused_with_both_rows(own_scores, data, tmp_path):
    with pytest.raises(ValueError, match=r"s.csv, row 70: .*row 4: .*: 2\."):
        evaluate_scores(pd.concat([own_scores, own_scores.loc[[4, 7]]]), tmp_path / "s.csv", data)


def test_unknown_pairs_are_refused_with_row_and_count(own_scores, data, tmp_path):
    more = own_scores.loc[[4, 5, 6]].assign(text="something else")
    with pytest.raises(ValueError, match=r"row 70: sugarcrepe .*sugarcrepe: 3\."):
        evaluate_scores(pd.concat([own_scores, more.assign(item=["0", "1", "2"])]), tmp_path / "s.csv", data)


def test_an_unknown_benchmark_is_refused_and_one_not_evaluated_is_noted(own_scores, data, tmp_path):
    wrong = own_scores.assign(benchmark=["sugarcreep", *own_scores["benchmark"][1:]])
    with pytest.raises(ValueError, match=r"row 0: found .*'sugarcreep' \(1 row\).*Did you mean"):
        evaluate_scores(wrong, tmp_path / "s.csv", data)
    file = ScoreFile(write_scores(own_scores, tmp_path / "s.csv"))
    assert file.check([]) == [f"{tmp_path / 's.csv'}: 70 scores of sugarcrepe not used: it is not evaluated"]


def test_a_benchmark_without_scores_is_skipped_by_name(own_scores, clip, data, tmp_path):
    path = write_scores(own_scores, tmp_path / "s.csv")
    results = hfcomp.evaluate(
        [f"clip={clip}"],
        scores={"read": path},
        benchmarks=["sugarcrepe", str(data / "own.parquet")],
        data_dir=data,
        **PLACE,
    )
    (skipped,) = results.skipped
    assert skipped["reason"] == f"read: {path} has no scores for it." and not results.failed


@pytest.mark.parametrize("score", ["", "nan", "inf", "high"])
def test_scores_are_finite_numbers(own_scores, tmp_path, score):
    table = own_scores.assign(score=[*own_scores["score"].astype(str)[:2], score, *own_scores["score"][3:]])
    with pytest.raises(ValueError, match=f"row 2: found .*'{score}', .*: 1\\."):
        ScoreFile(write_scores(table, tmp_path / "s.csv"))


def test_columns_and_kinds_of_files_are_checked(own_scores, tmp_path):
    with pytest.raises(ValueError, match="image, text, score; item"):
        ScoreFile(write_scores(own_scores.drop(columns="item"), tmp_path / "s.csv"))
    path = tmp_path / "s.jsonl"
    path.write_text('{"benchmark": "sugarcrepe"}\n')
    with pytest.raises(ValueError, match=r"s.jsonl, line 1: subset, item, image, text, score .*missing"):
        ScoreFile(path)
    with pytest.raises(ValueError, match=r"\.csv, .jsonl, .parquet"):
        ScoreFile(tmp_path / "s.txt")


def test_a_list_is_not_overwritten_and_takes_no_model(data, pairs, tmp_path, capsys):
    path = tmp_path / "pairs.csv"
    path.write_text("mine")
    with pytest.raises(ValueError, match="exists.*--overwrite"):
        main(["--write_pairs", str(path), "--benchmarks", "sugarcrepe", "--data_dir", str(data)])
    with pytest.raises(ValueError, match="Remove MODEL"):
        main(["some/model", "--write_pairs", str(path), "--benchmarks", "sugarcrepe"])
    with pytest.raises(ValueError, match="folder, expected a file"):
        main(["--write_pairs", str(tmp_path), "--benchmarks", "sugarcrepe", "--data_dir", str(data)])
    assert path.read_text() == "mine"
    main(["--write_pairs", str(path), "--benchmarks", "sugarcrepe", "--data_dir", str(data), "--overwrite"])
    own = pairs[pairs["benchmark"] == "sugarcrepe"]
    parts = f"{own['file'].nunique()} images with {own['text'].nunique()} texts"
    assert f"sugarcrepe: {len(own)} pairs: {parts}" in capsys.readouterr().out


def test_texts_that_begin_like_formulas_are_safe_in_the_list_and_match_in_every_kind_of_file(clip, tmp_path):
    texts = ["=1+1 dogs", "@home", "-2+3", "+1 cat", "'=quoted"]
    rows = tiny.pairs(len(texts), ragged=False).remove_columns("caption").add_column("caption", texts)
    rows.to_parquet(tmp_path / "own.parquet")
    main(["--write_pairs", str(tmp_path / "pairs.csv"), "--benchmarks", str(tmp_path / "own.parquet")])
    table = pd.read_csv(tmp_path / "pairs.csv", dtype=str, keep_default_na=False)
    assert {f"'{text}" for text in texts} <= {*table["text"]}
    assert not any(str(cell).startswith(("=", "+", "-", "@")) for cell in table.to_numpy().ravel())
    scored = table.assign(score=np.arange(len(table)) / 7)
    original = scored.assign(text=[text[1:] if text[1:] in texts else text for text in scored["text"]])
    results = [
        hfcomp.evaluate(
            scores={"read": write_scores(table, tmp_path / name)}, benchmarks=[str(tmp_path / "own.parquet")]
        )
        for table, name in ((scored, "a.csv"), (original, "b.csv"), (scored, "c.jsonl"), (original, "d.parquet"))
    ]
    assert all(list(result.outcomes.table["value"]) == list(results[0].outcomes.table["value"]) for result in results)
