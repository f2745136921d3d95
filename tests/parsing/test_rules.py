"""The rule-based parser, on captions of our own and on COCO captions annotated by hand. About 5 s.

`annotated_captions.jsonl` holds 170 COCO captions (val2017, drawn with seed 5) without their text: 60 for development,
which were looked at while the rules were written, and 110 held out, annotated before the parser first ran and never
looked at since. Per token of spaCy's English tokenizer: universal tag, head, noun chunks. Conventions are those of
spaCy's English pipelines: a preposition is the head of its noun; the copula is the head of its clause; each conjunct
attaches to the one before it, "and" to the one before it too; all modifiers of a noun phrase attach to its last noun
("[stainless] [steel] appliances"). Beyond that:

* A participle or other adjective form before a noun is ADJ ("a fenced area"); the first noun of a compound is NOUN,
  in -ing too ("living room"). The verb of "there is" is VERB, the copula AUX; "next" in "next to" is ADV, a particle
  ADP.
* A participle attaches to the noun that does it, of "a group of people" to "people", of a coordination to its first
  noun; without such a noun, and after a verb with the same subject, to the verb.
* A phrase that can be read in two ways is attached as the picture is most likely meant.
* Misspelt words are annotated as meant ("filled will fruit": ADP).

Tags and heads are counted over all tokens but punctuation and white space. The annotator also wrote the rules: where
the grammar leaves a choice both choose alike, so a stranger's annotation would agree less.
"""

from __future__ import annotations

import hashlib
import random

import pytest

from hfcomp.parsing import load_parser
from hfcomp.parsing.rules.words import lemma
from tests.parsing.pipelines import annotated_captions

# Measured: 98.2%, 95.7%, 98.0%; textblob's tagger alone has 93.9% of the tags.
FLOORS = {"tags": 0.97, "heads": 0.94, "chunks": 0.965}


@pytest.fixture(scope="module")
def parser():
    return load_parser("rules")


@pytest.fixture(scope="module")
def parse(parser):
    return lambda caption: next(parser.parse([caption]))


def scores(parser, rows) -> dict[str, float]:
    tags, heads, both, actual, expected = [], [], 0, 0, 0
    docs = parser.parse(caption for caption, _ in rows)
    for doc, (_, row) in zip(docs, rows, strict=True):
        for token, pos, head in zip(doc, row["pos"], row["heads"], strict=True):
            if head is not None:
                tags.append(token.pos_ == pos)
                heads.append(token.head.i == head)
        chunks = {(chunk.start, chunk.end) for chunk in doc.noun_chunks}
        right = set(map(tuple, row["chunks"]))
        both, actual, expected = both + len(chunks & right), actual + len(chunks), expected + len(right)
    return {"tags": sum(tags) / len(tags), "heads": sum(heads) / len(heads), "chunks": 2 * both / (actual + expected)}


@pytest.mark.parametrize("split, number", [("development", 60), ("held-out", 110)])
def test_accuracy_on_annotated_captions(parser, split, number):
    rows = annotated_captions(split)
    if not rows:
        pytest.skip("HFCOMP_REAL_DATA is not set; it names a folder with coco/captions_val2017.json")
    assert len(rows) == number
    for caption, row in rows:
        assert hashlib.sha256(caption.encode()).hexdigest()[:12] == row["sha256"]
    measured = scores(parser, rows)
    assert all(measured[what] >= floor for what, floor in FLOORS.items()), measured


def tags_of(doc) -> str:
    return " ".join(token.tag_ for token in doc)


@pytest.mark.parametrize(
    "caption, tags",
    [
        ("A dog chases a cat", "DT NN VBZ DT NN"),
        ("Two dogs chase a cat", "CD NNS VBP DT NN"),
        ("Woman rides a horse.", "NN VBZ DT NN ."),
        ("A man and woman walk down a road", "DT NN CC NN VBP IN DT NN"),
        ("Horses graze in a field", "NNS VBP IN DT NN"),
        ("A boy likes to swing a bat", "DT NN VBZ TO VB DT NN"),
        ("A bear by a stop sign", "DT NN IN DT NN NN"),
        ("A living room and a dining table", "DT NN NN CC DT NN NN"),
        ("A glass dining table on a cobblestone parking lot", "DT NN NN NN IN DT NN NN NN"),
        ("A broken chair in a fenced yard", "DT JJ NN IN DT JJ NN"),
        ("A cat on top of the left shelf", "DT NN IN NN IN DT JJ NN"),
        ("The car that is parked outside", "DT NN WDT VBZ VBN RB"),
        ("A man sits next to that horse", "DT NN VBZ RB IN DT NN"),
        ("A MAN RIDES A HORSE", "DT NN VBZ DT NN"),
        ("A Man Rides A Horse", "DT NN VBZ DT NN"),
        ("The girl's hat", "DT NN POS NN"),
        ("A man holding a white sheep", "DT NN VBG DT JJ NN"),
        ("A man feeding sheep", "DT NN VBG NNS"),
        ("A bathroom with toilet, sink and mirror", "DT NN IN NN , NN CC NN"),
        ("A set of knives set on a table", "DT NN IN NNS VBN IN DT NN"),
        ("The bridge stretches over a river", "DT NN VBZ IN DT NN"),
        ("A man watches as he rides a horse", "DT NN VBZ IN PRP VBZ DT NN"),
        ("Two slices of pizza sit on a plate", "CD NNS IN NN VBP IN DT NN"),
        ("A person is opening a box", "DT NN VBZ VBG DT NN"),
        ("People visit and eat food", "NNS VBP CC VBP NN"),
        ("A skier about to head down the slope", "DT NN IN TO VB IN DT NN"),
        ("A giraffe eating leaves in a room with two sinks", "DT NN VBG NNS IN DT NN IN CD NNS"),
    ],
)
def test_tags(parse, caption, tags):
    assert tags_of(parse(caption)) == tags


def heads_of(doc) -> dict[str, str]:
    return {token.text: token.head.text for token in doc}


def test_sentence(parse):
    doc = parse("A small dog with a red ball is chasing two cats in the park.")
    heads = heads_of(doc)
    assert (heads["dog"], heads["is"], heads["cats"], heads["in"]) == ("chasing", "chasing", "chasing", "chasing")
    assert (heads["with"], heads["ball"], heads["red"]) == ("dog", "with", "ball")
    assert [(token.text, token.dep_) for token in doc if token.head.text == "chasing" and token.dep_ != "punct"] == [
        ("dog", "nsubj"),
        ("is", "aux"),
        ("chasing", "ROOT"),
        ("cats", "dobj"),
        ("in", "prep"),
    ]
    assert [chunk.text for chunk in doc.noun_chunks] == ["A small dog", "a red ball", "two cats", "the park"]


def test_noun_phrase_with_participle(parse):
    doc = parse("A group of people in hats sitting on a bench")
    heads = heads_of(doc)
    assert doc[:].root.text == "group"
    assert (heads["sitting"], heads["on"], heads["bench"]) == ("people", "sitting", "on")


@pytest.mark.parametrize(
    "caption, word, head",
    [
        ("There is a cat lying on a mat", "lying", "cat"),
        ("A man stands on a beach holding a kite", "holding", "stands"),
        ("A bowl filled with fruit", "filled", "bowl"),
        ("A man and a woman riding bikes", "riding", "man"),
        ("A man that is eating a pizza sits down", "eating", "man"),
        ("A dog runs while a boy throws a ball", "throws", "runs"),
        ("A man sits and a woman stands", "stands", "sits"),
        ("A man sits and a woman stands", "woman", "stands"),
        ("A boy with a bat and a girl with a ball", "girl", "boy"),
        ("A plate with a fork, a knife and a spoon", "spoon", "knife"),
        ("A cake sits on top of the oven in the kitchen", "in", "sits"),
        ("A cat sits next to a dog", "next", "sits"),
        ("In the field a horse runs", "In", "runs"),
    ],
)
def test_attachment(parse, caption, word, head):
    doc = parse(caption)
    assert next(token.head.text for token in doc if token.text == word) == head


def test_coordinated_adjectives_are_in_the_chunk(parse):
    doc = parse("A large white, red and blue plane near a man's house")
    assert [chunk.text for chunk in doc.noun_chunks] == ["A large white, red and blue plane", "a man's house"]
    assert [token.dep_ for token in doc[3:7]] == ["punct", "conj", "cc", "conj"]


def test_passive_and_existential(parse):
    assert [token.dep_ for token in parse("A car is parked")] == ["det", "nsubjpass", "auxpass", "ROOT"]
    doc = parse("There are dogs that are wet")
    assert [token.pos_ for token in doc] == ["PRON", "VERB", "NOUN", "PRON", "AUX", "ADJ"]


def test_every_sentence_has_its_root(parse):
    doc = parse("A dog runs. A cat sits!  Two birds...")
    assert [sentence.text.strip() for sentence in doc.sents] == ["A dog runs.", "A cat sits!", "Two birds..."]
    assert [sentence.root.text for sentence in doc.sents] == ["runs", "sits", "birds"]


@pytest.mark.parametrize(
    "word, tag, expected",
    [
        ("building", "NN", "building"),
        ("building", "VBG", "build"),
        ("sitting", "VBG", "sit"),
        ("Riding", "VBG", "ride"),
        ("snowboarding", "VBG", "snowboard"),
        ("left", "JJ", "left"),
        ("left", "VBD", "leave"),
        ("women", "NNS", "woman"),
        ("ties", "NNS", "tie"),
        ("poles", "NNS", "pole"),
        ("bus", "NN", "bus"),
        ("people", "NNS", "people"),
        ("larger", "JJR", "large"),
        ("are", "VBP", "be"),
        ("Madison", "NNP", "Madison"),
    ],
)
def test_lemmas(word, tag, expected):
    assert lemma(word, tag) == expected


WORDS = """
    a the dog dogs man very red to in of that who while as is are has not there sitting parked ride his 's ' " ( ) -
    😀 é naïve 3% next left like they it where when & / ... ? 12:30 don't A MAN @ # , . and been with 日本
"""
PIECES = [*WORDS.split(), "\n", "\t", "\u200b"]


def check(doc, caption: str) -> None:
    assert doc.text == caption
    assert len(list(doc.noun_chunks)) <= len(doc)
    for token in doc:
        assert token.pos_ and token.tag_ and token.lemma_
        assert (token.dep_ == "ROOT") == (token.head.i == token.i)
        above, steps = token, 0
        while above.head.i != above.i:
            above, steps = above.head, steps + 1
            assert steps <= len(doc), f"a cycle at {token.text!r} in {caption!r}"
    for sentence in doc.sents:
        assert sum(token.dep_ == "ROOT" for token in sentence) == 1


@pytest.mark.parametrize(
    "caption",
    ["", " ", "\n", "dog", "🐕", "...", "and", "to", "A dog  on\ta\n mat.\n", "&slash; a/b", "naïve Ünïcödé 犬"],
)
def test_any_caption_is_kept_to_the_character(parse, caption):
    check(parse(caption), caption)


def test_long_caption(parse):
    caption = " ".join(["a dog and a cat that sit near the red house,"] * 30)
    check(parse(caption), caption)


def test_random_captions(parser):
    rng = random.Random(0)
    captions = [
        "".join(rng.choice(PIECES) + rng.choice((" ", " ", "", "  ")) for _ in range(rng.randrange(14)))
        for _ in range(1000)
    ]
    for caption, doc in zip(captions, parser.parse(captions), strict=True):
        check(doc, caption)
