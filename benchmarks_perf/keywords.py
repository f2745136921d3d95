"""Captions per second of keyword permutation against a loop over one compiled `re.sub` pattern per keyword.

HFCOMP_REAL_DATA=FOLDER python benchmarks_perf/keywords.py [--repeats 5] [--loop_captions 4000]

Both give each caption of COCO val2017 one negative of Table 6, on one core, for all four concepts together and for
each separately. The loop is the obvious solution: a compiled `\\bkeyword\\b` for every keyword, longest first, each
tried with one of its replacements, drawn at random, until one changes the caption. It stops there, so it also prefers
some keywords, and writes no columns except the text. Patterns are compiled before the clock starts. Sides take turns
and the best run of each is compared, because other work on the machine only adds time. The loop sees only the first
captions, and the numbers of changed captions refer to these; they differ if a hyphen or bracket touches a keyword,
which `\\b` allows. With few keywords there is little to gain, so the target ratio applies to all concepts together.
"""

import argparse
import json
import os
import random
import re
import time
from pathlib import Path

from hfcomp.negatives.keywords import negative_columns
from hfcomp.negatives.keywords.tables import CONCEPTS, PAPER_TABLE

RATE_TARGET, RATIO_TARGET = 50_000, 5


def patterns(concepts):
    """Returns keyword patterns with their replacements, longest first."""
    pairs = [pair for concept in concepts for pair in PAPER_TABLE.concepts[concept].replacements.items()]
    pairs.sort(key=lambda pair: len(pair[0]), reverse=True)
    return [(re.compile(rf"\b{re.escape(keyword)}\b"), words) for keyword, words in pairs]


def loop(captions, compiled):
    """Returns a negative for each caption, or an empty string."""
    rng = random.Random(0)
    negatives = []
    for caption in captions:
        for pattern, words in compiled:
            text = pattern.sub(rng.choice(words), caption, count=1)
            if text != caption:
                negatives.append(text)
                break
        else:
            negatives.append("")
    return negatives


def package(captions, concepts):
    """Returns hfcomp's negatives."""
    return [texts[0] for texts in negative_columns(captions, concepts=concepts)["negative_captions"]]


def time_per_caption(function, captions, argument):
    """Returns CPU seconds per caption, and the negatives."""
    start = time.process_time()
    negatives = function(captions, argument)
    return (time.process_time() - start) / len(captions), negatives


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--repeats", type=int, default=5, help="runs of each side, in turns; the best runs are compared"
    )
    parser.add_argument("--loop_captions", type=int, default=4000, help="number of captions for the loop, 0 = all")
    args = parser.parse_args()
    data = os.environ.get("HFCOMP_REAL_DATA")
    if not data:
        raise SystemExit("set HFCOMP_REAL_DATA to a folder with coco/captions_val2017.json")
    file = Path(data) / "coco" / "captions_val2017.json"
    captions = [row["caption"] for row in json.loads(file.read_text(encoding="utf-8"))["annotations"]]
    few = captions[: args.loop_captions or len(captions)]
    missed = False
    print(f"{len(captions):,} captions, {len(few):,} for the loop; captions per second of one core")
    print(f"{'concepts':28} {'hfcomp':>9} {'loop':>9} {'ratio':>7}   changed by hfcomp, by the loop")
    for concepts in (CONCEPTS, *((concept,) for concept in CONCEPTS)):
        compiled = patterns(concepts)
        best = {"hfcomp": float("inf"), "loop": float("inf")}
        for _ in range(args.repeats):
            seconds, ours = time_per_caption(package, captions, concepts)
            best["hfcomp"] = min(best["hfcomp"], seconds)
            seconds, theirs = time_per_caption(loop, few, compiled)
            best["loop"] = min(best["loop"], seconds)
        rate, ratio = 1 / best["hfcomp"], best["loop"] / best["hfcomp"]
        changed = f"{sum(map(bool, ours[: len(few)])):,}, {sum(map(bool, theirs)):,}"
        print(f"{' '.join(concepts):28} {rate:9,.0f} {1 / best['loop']:9,.0f} {ratio:7.1f}   {changed}", flush=True)
        missed |= rate < RATE_TARGET or (len(concepts) > 1 and ratio < RATIO_TARGET)
    print(f"targets: {RATE_TARGET:,} per second, and {RATIO_TARGET} times the loop for all concepts together")
    if missed:
        raise SystemExit("missed")


if __name__ == "__main__":
    main()
