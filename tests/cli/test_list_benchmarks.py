"""The list of benchmarks: all of them, without the libraries that scoring needs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from hfcomp import cli
from hfcomp.evaluation.benchmarks import benchmarks

SLOW = ("torch", "datasets", "transformers", "accelerate", "huggingface_hub", "pandas", "pyarrow", "scipy", "PIL")


def test_the_list_names_every_benchmark(capsys):
    cli.main(["evaluate", "--list"])
    shown = capsys.readouterr().out
    for name in benchmarks():
        prefix, _, own = name.partition("_")
        assert name in shown or (f"{prefix}_..." in shown and own in shown), name
    assert "  Im et al. 2026, Table 3: general mean\n" in shown
    assert "winoground* " in shown and "imagenet1k_probe_lbfgs~" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_a_named_benchmark_shows_where_it_comes_from(capsys):
    cli.main(["evaluate", "--list", "winoground", "--benchmarks", "vtab_dtd"])
    shown = capsys.readouterr().out
    for text in (
        "arXiv:2204.03162",
        "gated on the Hub",
        "hf auth login",
        "--data wds_vtab-dtd=DIR",
        "mean of 19 tasks",
        "part of   Im et al. 2026, Table 2: compositional mean",
        "part of   Im et al. 2026, Table 3: general mean",
    ):
        assert text in shown, text
    with pytest.raises(SystemExit, match="unknown benchmark 'nothing'"):
        cli.main(["evaluate", "--list", "nothing"])


def test_a_named_benchmark_shows_what_is_published_averages_first(capsys):
    cli.main(["evaluate", "--list", "sugarcrepe"])
    shown = capsys.readouterr().out
    joined = " ".join(shown.split())
    assert "published macro of 7 subsets, caption choice C2LIP, Table A3: SigLIP ViT-B/16 224 79.5, CLIP " in joined
    assert "CLIP ViT-B/32 75.38~, NegCLIP 82.50" in joined
    assert "~ Slipform, Table 2: The 75.38" in joined
    assert joined.index("published macro of 7") < joined.index("published replace_obj")
    assert max(map(len, shown[shown.index("  published") :].splitlines())) <= 80


def test_listing_imports_no_slow_library():
    code = (
        "import json, sys; from hfcomp import cli; cli.main(['evaluate', '--list']); "
        "cli.main(['evaluate', '--list', 'sugarcrepe']); print(json.dumps([*sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(SLOW) & set(json.loads(done.stdout.splitlines()[-1]))


def test_a_suite_is_listed_alone_and_an_unknown_option_is_refused(capsys):
    cli.main(["evaluate", "--list", "--suite", "general"])
    out = capsys.readouterr().out
    assert out.startswith("general:") and "compositional:" not in out
    with pytest.raises(SystemExit):
        cli.main(["evaluate", "--list", "--benchmrks", "sugarcrepe"])
    assert "--benchmrks" in capsys.readouterr().err
