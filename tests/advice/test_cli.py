"""Follows the advice of commands whose options do not go together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hfcomp import cli
from hfcomp import convert as conversion
from hfcomp.annotate import command as annotate
from hfcomp.cli.merge import MergeOptions
from hfcomp.evaluation.encoding.cache import EmbeddingCache
from hfcomp.evaluation.encoding.embed import Embedder
from tests import tiny
from tests.analysis.gallery.pages import held
from tests.evaluation import small_sugarcrepe
from tests.evaluation.evaluations import benchmark_facts, crepe, store_folder
from tests.factory.magic import sets

NAMES = "image=file,caption=text"


@pytest.mark.follows("hfcomp/cli/__init__.py", "`hfcomp --help` lists the commands.")
@pytest.mark.follows("hfcomp/cli/__init__.py", "`hfcomp COMMAND --help` for details; add --traceback")
def test_an_unknown_command(advice, capsys):
    advice.of(cli.main, ["trian"])
    cli.main(["--help"])
    advice.read(capsys.readouterr().out)
    with pytest.raises(SystemExit) as ended:
        cli.main(["cache", "--help"])
    assert ended.value.code == 0
    with pytest.raises(ValueError, match="not a folder"):
        cli.main(["cache", "--cache", "nowhere", "--traceback"])


@pytest.mark.follows("hfcomp/cli/train.py", "`hfcomp train --help` lists the recipes.")
def test_train_without_a_recipe(advice, capsys):
    advice.of(cli.main, ["train"])
    cli.main(["train", "--help"])
    assert "slipform" in capsys.readouterr().out


@pytest.mark.follows(
    "hfcomp/analysis/commands/gallery.py", "--apply writes a new dataset and needs a folder for it: pass --output DIR."
)
@pytest.mark.follows(
    "hfcomp/analysis/commands/gallery.py",
    "--{others[0]} applies only to the page and has no effect with --apply. Remove it.",
)
@pytest.mark.follows(
    "hfcomp/analysis/commands/gallery.py",
    "--allow_outside_files has no effect without --apply, which copies images into a new dataset. Remove it.",
)
def test_gallery(advice, pairs_file, tmp_path):
    page, marks = tmp_path / "page.html", tmp_path / "marks.json"
    whole = ["gallery", str(pairs_file), "--output", str(page)]
    advice.command(*whole, "--allow_outside_files")
    cli.main(whole)
    row = held(page, "data")[0]
    dropped = {"row": row["row"], "id": row["id"], "mark": "drop"}
    marks.write_text(json.dumps(held(page, "about")["set"] | {"marks": [dropped]}))
    apply = ["gallery", str(pairs_file), "--apply", str(marks)]
    advice.command(*apply)
    apply += ["--output", str(tmp_path / "applied")]
    advice.command(*apply, "--rows", "3")
    cli.main(apply)
    assert (tmp_path / "applied").is_dir()


@pytest.mark.follows("hfcomp/annotate/command.py", "to annotate. Add candidates with --source.")
@pytest.mark.follows("hfcomp/annotate/command.py", "or remove these options; --concept limits the page to")
@pytest.mark.follows("hfcomp/annotate/candidates.py", "or pass --any_license if you will not publish")
@pytest.mark.follows("hfcomp/annotate/command.py", "it is not an annotation project. Create one with --source.")
def test_annotate(advice, photographs, tmp_path, monkeypatch):
    served = []
    monkeypatch.setattr(annotate, "_run", lambda project, options, password: served.append(project.folder.name))
    source = ["--source", str(photographs), "--column_names", NAMES]
    new, failed = str(tmp_path / "new"), str(tmp_path / "failed")
    advice.command("annotate", new)
    advice.command("annotate", new, "--any_license")
    advice.command("annotate", failed, *source, "--concepts", "color")
    advice.command("annotate", failed)
    cli.main(["annotate", failed, *source, "--concepts", "color", "--any_license"])
    cli.main(["annotate", failed, "--concept", "color"])
    cli.main(["annotate", new, *source, "--any_license"])
    cli.main(["annotate", new])
    assert served == ["failed", "failed", "new", "new"]


@pytest.mark.follows("hfcomp/cli/cache.py", "Pass --yes to clear it without confirmation.")
def test_cache(advice, clip, tmp_path):
    Embedder(clip, device="cpu", cache=EmbeddingCache(tmp_path / "cache")).texts(["a text"])
    words = ["cache", "clear", "--cache", str(tmp_path / "cache")]
    advice.command(*words)  # checks that it fails with this message, which suggests only options of this command
    assert list((tmp_path / "cache").rglob("*.safetensors"))
    cli.main([*words, "--yes"])
    assert not list((tmp_path / "cache").rglob("*.safetensors"))


@pytest.mark.follows("hfcomp/cli/compare.py", "is one of the compared folders. Pass another --output_dir.")
def test_compare(advice, tmp_path):
    folders = [
        store_folder(tmp_path / name, crepe(name, 0.5), benchmarks=benchmark_facts()) for name in ("one", "two")
    ]
    words = ["compare", *map(str, folders), "--no_page", "--output_dir"]
    advice.command(*words, str(folders[0]))
    cli.main([*words, str(tmp_path / "compared")])


@pytest.mark.follows("hfcomp/cli/merge.py", "Pass either --alpha X or --sweep.")
def test_a_point_or_a_sweep(advice):
    models = {"base": "a", "tuned": "b", "output_dir": Path("out")}
    for wrong in ({}, {"alpha": 0.5, "sweep": True}):
        advice.of(MergeOptions, **models, **wrong)
    assert MergeOptions(**models, alpha=0.5).alpha == 0.5 and MergeOptions(**models, sweep=True).sweep


@pytest.mark.follows("hfcomp/convert/command.py", "--to llava needs --llava MODEL")
@pytest.mark.follows("hfcomp/convert/command.py", "--to dual_encoder needs --text MODEL")
@pytest.mark.follows("hfcomp/convert/command.py", "only applies to open_clip checkpoints, not to {goal}. Remove it.")
@pytest.mark.follows("hfcomp/convert/command.py", "--stretch_positions writes a transformers folder. Remove --to")
def test_convert(advice, old_clip, tmp_path, monkeypatch):
    words = ["convert", str(old_clip), "--output", str(tmp_path / "out"), "--to"]
    advice.command(*words, "open_clip", "--pretrained", "openai")
    cli.main([*words, "open_clip"])
    advice.command(*words, "onnx", "--stretch_positions", "36")
    cli.main([*words[:-1], "--stretch_positions", "36"])
    replaced = []
    for name in ("export_llava", "join_towers"):  # done with whole models in tests/convert
        monkeypatch.setattr(
            conversion, name, lambda *given: replaced.append(given) or {"source": "", "layout": "LLaVA"}
        )
    for layout, option in {"llava": "--llava", "dual_encoder": "--text"}.items():
        advice.command(*words, layout)
        advice.command(*words, "open_clip", option, "big")
        cli.main([*words, layout, option, "big"])
        assert replaced[-1][:2] == (str(old_clip), "big")


@pytest.mark.follows("hfcomp/cli/evaluate.py", "--write_pairs only lists pairs and scores no model. Remove MODEL and")
@pytest.mark.follows("hfcomp/evaluation/score_files.py", "two files are called {name!r}. Give them different names.")
def test_evaluate(advice, clip, tmp_path):
    data = small_sugarcrepe.write(tmp_path / "data")
    pairs, out = tmp_path / "pairs.jsonl", tmp_path / "out"
    words = ["evaluate", "--benchmarks", "sugarcrepe", "--data_dir", str(data)]
    listed = [*words, "--write_pairs", str(pairs)]
    advice.command(*listed, str(clip))
    cli.main(listed)
    scores = [json.loads(line) | {"score": 0.5} for line in pairs.read_text().splitlines()]
    pairs.write_text("\n".join(map(json.dumps, scores)))
    scored = [*words, "--output_dir", str(out), "--no_page", "--scores", f"one={pairs}", "--scores"]
    advice.command(*scored, f"one={pairs}")
    cli.main([*scored, f"two={pairs}"])


@pytest.mark.follows("hfcomp/cli/merge.py", "only applies to --sweep. Remove it, or use --sweep instead of --alpha.")
def test_merge(advice, clip, tmp_path, monkeypatch):
    words = ["merge", str(clip), str(tiny.clip(tmp_path / "tuned", seed=1)), "--output_dir"]
    advice.command(*words, str(tmp_path / "point"), "--alpha", "0.4", "--device", "cpu")
    cli.main([*words, str(tmp_path / "point"), "--alpha", "0.4"])
    swept = []
    monkeypatch.setattr("hfcomp.merging.merge.merge_by_sweep", lambda *given, **options: swept.append(given[2].device))
    cli.main(
        [*words, str(tmp_path / "swept"), "--sweep", "--device", "cpu"]
    )  # whole ones are in tests/cli/test_merge.py
    assert swept == ["cpu"]


@pytest.mark.follows("hfcomp/options.py", "--{name} needs --{needs.option}")
@pytest.mark.follows("hfcomp/factory/publishing.py", "does not build. Remove one of them.")
def test_push_of_a_build(advice, photographs, tmp_path, monkeypatch):
    pushed = []
    monkeypatch.setattr("hfcomp.hub.datasets.check_repository", lambda push: None)
    monkeypatch.setattr("hfcomp.hub.datasets.push_built_sets", lambda folders, push: pushed.append(push.private))
    words = ["build", "concepts", "--source", str(photographs), "--column_names", NAMES, "--parser", "rules"]
    words += ["--output", str(tmp_path / "out")]
    advice.command(*words, "--private")
    cli.main([*words, "--private", "--push_to_hub", "someone/photographs"])
    sets.source(tmp_path / "source")
    words = ["build", "magic", "--source", str(tmp_path / "source"), "--output", str(tmp_path / "magic")]
    words += ["--writer", "taxonomy", "--encoder", "captions", "--taxonomy", str(tmp_path / "taxonomy.yaml")]
    words += ["--negative_quantile", "0.99"]
    advice.command(*words, "--push_to_hub", "someone/magic", "--until", "hierarchy")
    cli.main([*words, "--until", "hierarchy"])
    cli.main([*words, "--push_to_hub", "someone/magic"])
    assert pushed == [True, False]
