"""Measures what MAGIC's thresholds keep with an encoder, on names from the captions of COCO val2017.

HFCOMP_REAL_DATA=/data python -m dataset_builders.magic.calibration --encoder sentence-transformers/all-MiniLM-L6-v2

| `names` | a name for each image |
|---|---|
| `taxonomy` | its concept in our taxonomy, such as "giraffe herd" |
| `verb object` | the first verb of its captions with an object, such as "ride wave" |
| `paper` | not for images: example names of the paper and of the prompts in its released code, such as "Breakfast" |

`--encoder captions` compares the words of the captions, so it has no row `paper`.

Columns: names; those with fewer than 5 images that are merged above 0.9; those kept; the median cosine of a kept name
and the nearest other one, and the number of names for which it is above 0.85; the thresholds of `--negative_quantile`
0.95, 0.99 and 0.999, and the number of names for which it is above the second.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

import numpy as np

from dataset_builders.factories import real_data
from hfcomp.factory.magic.cosines import Cosines
from hfcomp.factory.magic.encoders import CaptionsEncoder, open_encoder
from hfcomp.factory.magic.merging import merge_small
from hfcomp.factory.magic.options import BY_CAPTIONS, DEFAULT_ENCODER, GraphSettings, MagicOptions
from hfcomp.factory.magic.taxonomy import TaxonomySource
from hfcomp.parsing import load_parser
from hfcomp.parsing.phrases import verbs
from hfcomp.parsing.rules.words import lemma
from hfcomp.reading import read_json
from hfcomp.reporting.report import Report, Section, Table
from hfcomp.reporting.terminal import render_terminal

PAPER = """
aesthetics, birthday, breakfast, business, business attire, career, celebration, conference, cultural heritage,
development, domestic scene, economy, ecosystem, education, employment, environment, family, farming, food, food
preparation, food production, health, hobby, home design, home life, human activity, human behavior, human environment,
human growth, human interaction, infrastructure, innovation, learning, leisure, life, living space, meal, mobility,
national security, nature, navigation, nutrition, parenting, personal development, personal space, productivity,
protection, public transport, recreation, relationship, safety, service industry, social gathering, society, sport,
teamwork, technology, tradition, transportation, urban development, urban nightlife, urban planning, urban regulation,
urbanization, wedding, well-being, wildlife
""".replace("\n", " ")
QUANTILES = (0.95, 0.99, 0.999)
HEADER = ["names", "number", "merged", "kept", "nearest", ">0.85", *(f"q{share}" for share in QUANTILES), ">q0.99"]


def main(arguments: Sequence[str]) -> None:
    """Prints a row for each kind of names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", default=DEFAULT_ENCODER, help="as in `hfcomp build magic`")
    parser.add_argument("--encoder_url", help="as in `hfcomp build magic`")
    options = MagicOptions(source="", output="", writer="taxonomy", **vars(parser.parse_args(arguments)))
    captions = read_captions()
    kinds = {"taxonomy": _concepts(captions), "verb object": _verbs_with_objects(captions)}
    if options.encoder != BY_CAPTIONS:
        kinds["paper"] = {name.strip(): name.strip() for name in PAPER.split(",")}
    rows = [_row(kind, names, options, captions) for kind, names in kinds.items()]
    render_terminal(Report(options.encoder, sections=[Section("", [Table("", HEADER, rows)])]))


def read_captions() -> dict[str, list[str]]:
    """Returns the captions of each image."""
    captions: dict[str, list[str]] = {}
    for entry in read_json(real_data() / "coco" / "captions_val2017.json")["annotations"]:
        captions.setdefault(str(entry["image_id"]), []).append(entry["caption"])
    return captions


def _concepts(captions: Mapping[str, Sequence[str]]) -> dict[str, str]:
    answers = TaxonomySource().concepts(list(captions.values()))
    return {image: answer.text for image, answer in zip(captions, answers, strict=True) if answer.text}


def _verbs_with_objects(captions: Mapping[str, Sequence[str]]) -> dict[str, str]:
    texts = [(image, text) for image, own in captions.items() for text in own]
    names: dict[str, str] = {}
    for (image, _), doc in zip(texts, load_parser("rules").parse(text for _, text in texts), strict=True):
        for verb in (doc[part.head] for part in verbs(doc)):
            for noun in (token for token in doc if token.dep_ == "dobj" and token.head == verb):
                names.setdefault(image, f"{lemma(verb.text, verb.tag_)} {lemma(noun.text, noun.tag_)}".lower())
    return names


def _row(
    kind: str, names: Mapping[str, str], options: MagicOptions, captions: Mapping[str, Sequence[str]]
) -> list[str]:
    of_name: dict[str, list[str]] = {}
    for image, name in names.items():
        of_name.setdefault(name, []).append(image)
    images = {name: len(own) for name, own in of_name.items()}
    if options.encoder == BY_CAPTIONS:
        encoder = CaptionsEncoder(lambda name: (text for image in of_name[name] for text in captions[image]))
    else:
        encoder = open_encoder(options.encoder, server=options.encoder_settings(), log=print)
    ordered = sorted(images)
    vectors = encoder.encode(ordered)
    # Each name of the paper is for no image, and stays.
    merged = merge_small(images, ordered, vectors, GraphSettings(min_images=1 if kind == "paper" else 5))
    kept = np.array([name in merged.images for name in ordered])
    cosines = Cosines.between(vectors[kept])
    thresholds = [cosines.pairs.threshold(1 - quantile) for quantile in QUANTILES]
    cells = [kind, f"{len(ordered):,}", f"{len(merged.merges):,}", f"{kept.sum():,}"]
    cells += [f"{cosines.nearest.quantile(0.5):.2f}", f"{cosines.nearest.above(0.85):,}"]
    return [*cells, *(f"{threshold:.3f}" for threshold in thresholds), f"{cosines.nearest.above(thresholds[1]):,}"]


if __name__ == "__main__":
    main(sys.argv[1:])
