"""Benchmarks by name: single ones, groups, and those of a user."""

from __future__ import annotations

from pathlib import Path

import pytest

from hfcomp.evaluation import benchmarks as registry
from hfcomp.evaluation.benchmarks import benchmarks, find_benchmarks, suite
from hfcomp.evaluation.protocols.classification import ZeroShot
from hfcomp.evaluation.spec import COMPOSITIONAL, GENERAL, Benchmark


def make_benchmark(name: str, suite: str = GENERAL) -> Benchmark:
    return Benchmark(name, name, suite, ZeroShot(), data=(), paper="", license="", obtain="")


OWN = make_benchmark("own")


@pytest.fixture
def known_benchmarks(monkeypatch):
    """A package with a few benchmarks of our own."""
    by_name = {
        name: make_benchmark(name)
        for name in ("pair_one", "pair_two", "pair", "trio_a", "trio_b_c", "tri_o", "lone_one")
    }
    monkeypatch.setattr(registry, "benchmarks", lambda: by_name)
    return by_name


def test_every_benchmark_of_the_package_has_its_own_name():
    by_name = benchmarks()
    assert all(name == benchmark.name for name, benchmark in by_name.items())
    suites = [benchmark.suite for benchmark in by_name.values()]
    assert suites == sorted(suites)


def test_a_suite_is_all_of_its_benchmarks():
    assert {benchmark.suite for benchmark in suite("compositional")} == {COMPOSITIONAL}
    assert len(suite("all")) == len(suite("general")) + len(suite("compositional"))
    costly = {
        name for name, benchmark in benchmarks().items() if benchmark not in suite("all") and not benchmark.synthetic
    }
    assert {"imagenet1k_probe_adamw10", "imagenet1k_probe_lbfgs"} < costly
    costly -= {"coco2017_retrieval", "coco_caption_choice", "hierarcaps_levels"}  # their data once more
    costly -= {"magic_captions", "magic_by_concept", "negbench_retrieval_plain"}
    costly -= {"objectnet", "flickr30k_all"}  # full-size PNG files; for one paper
    older = ("vl_checklist", "crepe_", "eqben")
    assert all(name.startswith(("imagenet1k_probe_", "vtab1k_", *older)) for name in costly)
    with pytest.raises(ValueError, match="suite: found 'compo'"):
        suite("compo")


def test_a_beginning_stands_for_all_that_have_it(known_benchmarks):
    assert [benchmark.name for benchmark in find_benchmarks(["trio"])] == ["trio_a", "trio_b_c"]


def test_a_name_of_its_own_goes_before_the_group(known_benchmarks):
    assert find_benchmarks(["pair"]) == [known_benchmarks["pair"]]


def test_each_is_there_once(known_benchmarks):
    names = [benchmark.name for benchmark in find_benchmarks(["trio_b_c", "trio", "trio_a"])]
    assert names == ["trio_b_c", "trio_a"]


@pytest.mark.parametrize("name", ["lone", "trio_b", "tri", "trio_"])
def test_less_than_a_group_is_refused(known_benchmarks, name):
    with pytest.raises(ValueError, match=f"unknown benchmark {name!r}"):
        find_benchmarks([name])


def test_a_benchmark_of_a_user(known_benchmarks):
    place = f"{__name__}:OWN"
    assert find_benchmarks([place, "pair", place]) == [OWN, known_benchmarks["pair"]]
    with pytest.raises(ValueError, match="function, expected a Benchmark"):
        find_benchmarks([f"{__name__}:make_benchmark"])
    with pytest.raises(ValueError, match="cannot be imported"):
        find_benchmarks(["nowhere_at_all:OWN"])


def test_a_new_benchmark_is_one_file(tmp_path, monkeypatch):
    """A file in a folder of the package has its name and its suite, and nothing else is edited."""
    page = (Path(__file__).parents[3] / "docs/adding_a_benchmark.md").read_text(encoding="utf-8")
    (tmp_path / "new_benchmark.py").write_text(page.partition("```python\n")[2].partition("```")[0])
    monkeypatch.setattr(registry, "__path__", [*registry.__path__, str(tmp_path)])
    monkeypatch.setattr(registry, "benchmarks", lambda: by_name)
    by_name = benchmarks.__wrapped__()
    (mine,) = find_benchmarks(["mine"])
    assert mine.title == "My pairs" and mine in suite("compositional")
