"""Parsers: pipelines trained here (3 s), gold `Doc`s, processes, and what cannot be loaded. About 15 s."""

from __future__ import annotations

import pickle
import sys
from itertools import islice

import pytest

from hfcomp.parsing import DEFAULT_PARSER, load_parser
from tests.parsing.pipelines import annotations, gold, train_pipeline

CAPTIONS = ["a red dog chases a cat near a blue house", "", "dog", "two  dogs\n\nsit 🐕 naïvely", "a cat watches"]


@pytest.fixture(scope="module")
def trained_pipeline(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pipeline") / "en"
    return folder, train_pipeline(folder)


@pytest.fixture(scope="module")
def parser(trained_pipeline):
    return load_parser(f"spacy:{trained_pipeline[0]}")


def test_gold_docs_have_what_generators_read():
    doc = gold(
        "Two dogs are chasing a cat",
        "CD NNS VBP VBG DT NN",
        "1 3 3 3 5 3",
        "nummod nsubj aux ROOT det dobj",
        "two dog be chase a cat",
    )
    assert doc.text == "Two dogs are chasing a cat"
    assert [chunk.text for chunk in doc.noun_chunks] == ["Two dogs", "a cat"]
    assert [token.pos_ for token in doc] == ["NUM", "NOUN", "AUX", "VERB", "DET", "NOUN"]
    assert doc[3].lemma_ == "chase" and doc[5].head.text == "chasing"


def test_pipeline_finds_its_grammar(trained_pipeline, parser):
    held_out = trained_pipeline[1]
    docs = list(parser.parse([doc.text for doc in held_out]))
    right = [annotations(prediction) == annotations(doc) for prediction, doc in zip(docs, held_out, strict=True)]
    assert sum(right) >= 0.98 * len(right)


def test_pipeline_reads_as_with_all_its_components(trained_pipeline, parser):
    import spacy

    whole = spacy.load(trained_pipeline[0])
    assert "ner" in whole.pipe_names
    captions = [doc.text for doc in trained_pipeline[1][:20]] + CAPTIONS
    docs = list(parser.parse(captions))
    assert list(map(annotations, docs)) == [annotations(whole(caption)) for caption in captions]
    assert not any(doc.ents for doc in docs) and whole(captions[0]).ents


@pytest.mark.parametrize("kind", ["spacy", "rules"])
@pytest.mark.parametrize("num_processes, batch_size", [(1, 1), (2, 3), (2, 1000)])
def test_processes_and_batches_change_nothing(trained_pipeline, parser, kind, num_processes, batch_size):
    parser = parser if kind == "spacy" else load_parser("rules")
    captions = CAPTIONS + [doc.text for doc in trained_pipeline[1][:10]]
    docs = list(parser.parse(iter(captions), num_processes=num_processes, batch_size=batch_size))
    assert [doc.text for doc in docs] == captions
    assert list(map(annotations, docs)) == [annotations(next(parser.parse([caption]))) for caption in captions]


@pytest.mark.parametrize("num_processes", [1, 2])
def test_no_captions_no_docs(num_processes):
    assert list(load_parser("rules").parse([], num_processes=num_processes)) == []


def test_captions_are_read_as_needed():
    taken = []
    endless = (taken.append(n) or f"dog {n}" for n in range(10**9))
    docs = list(islice(load_parser("rules").parse(endless, num_processes=2, batch_size=2), 3))
    assert [doc.text for doc in docs] == ["dog 0", "dog 1", "dog 2"]
    assert len(taken) <= 12


def test_parsers_can_be_pickled(parser):
    for original in (parser, load_parser("rules")):
        again = pickle.loads(pickle.dumps(original))
        assert again.name == original.name
        assert annotations(next(again.parse(CAPTIONS))) == annotations(next(original.parse(CAPTIONS)))


def test_names_hold_parser_and_version(parser):
    from importlib.metadata import version

    assert parser.name == "spacy:en_pipeline 0.0.0"
    assert load_parser("rules").name == f"rules (textblob {version('textblob')}, simplemma {version('simplemma')})"
    assert DEFAULT_PARSER == "spacy:en_core_web_sm"


def test_missing_pipeline_says_how_to_get_it():
    with pytest.raises(OSError, match=r"spacy download en_no_such_model "):
        load_parser("spacy:en_no_such_model")


@pytest.mark.parametrize("spec", ["spacy:en_core_web_sm", "rules"])
def test_missing_spacy_says_how_to_get_it(monkeypatch, spec):
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "hfcomp\[text\]"'):
        load_parser(spec)


def test_missing_textblob_is_found_on_loading(monkeypatch):
    monkeypatch.setitem(sys.modules, "textblob", None)
    monkeypatch.setitem(sys.modules, "textblob.en", None)
    with pytest.raises(ModuleNotFoundError, match="textblob"):
        load_parser("rules")


@pytest.mark.parametrize("spec", ["", "spacy", "spacy:", "rule", "rules:x", "en_core_web_sm"])
def test_unknown_spec(spec):
    with pytest.raises(ValueError, match=r"spacy:NAME.*or rules"):
        load_parser(spec)


def test_pipeline_without_what_is_needed(trained_pipeline, tmp_path):
    import spacy

    nlp = spacy.load(trained_pipeline[0])
    nlp.remove_pipe("parser")
    nlp.to_disk(tmp_path / "part")
    with pytest.raises(ValueError, match="dependency parser; .* tok2vec"):
        load_parser(f"spacy:{tmp_path / 'part'}")
    spacy.blank("en").to_disk(tmp_path / "blank")
    with pytest.raises(ValueError, match="tagger and .* lemmatizer; .*no components"):
        load_parser(f"spacy:{tmp_path / 'blank'}")


@pytest.mark.parametrize("kind", ["spacy", "rules"])
def test_bad_requests(parser, kind):
    parser = parser if kind == "spacy" else load_parser("rules")
    with pytest.raises(TypeError, match="'a dog'"):
        parser.parse("a dog")
    with pytest.raises(ValueError, match="num_processes is 0"):
        parser.parse(["a dog"], num_processes=0)
    with pytest.raises(ValueError, match="batch_size 0"):
        parser.parse(["a dog"], batch_size=0)
