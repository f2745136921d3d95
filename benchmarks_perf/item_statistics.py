"""Time and memory of a large evaluation's statistics: means, intervals, tests, the hash and the files.

python benchmarks_perf/item_statistics.py [--items 200000] [--models 2] [--images 50000] [--threads 1]

Items lie in seven subsets that share images, like SugarCrepe's, with a macro average and a micro average. Models are
right in 60 to 70% of the items, correlated by image. Seconds are CPU seconds. Memory is the peak resident size of the
process, including imports and items.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path

SECONDS, GIGABYTES = 20, 2
SUBSETS = ("add_att", "add_obj", "replace_att", "replace_obj", "replace_rel", "swap_att", "swap_obj")


def outcomes(items: int, models: int, images: int):
    """Creates a table of outcomes with `items` rows per model."""
    import numpy as np
    import pandas as pd

    generator = np.random.default_rng(0)
    image = generator.integers(images, size=items)
    subset = generator.integers(len(SUBSETS), size=items)
    shared = {
        "benchmark": "SugarCrepe",
        "subset": np.array(SUBSETS, dtype=object)[subset],
        "metric": "caption choice",
        "aspect": "composition",
        "chance": 0.5,
        "item": [str(number) for number in range(items)],
        "image_id": [f"{number:012d}.jpg" for number in image],
        "tie": False,
    }
    hard = generator.random(images)[image]
    tables = []
    for model in range(models):
        right = 0.5 * hard + 0.5 * generator.random(items) < 0.6 + 0.1 * model / models
        tables.append(pd.DataFrame(shared).assign(arm=f"model {model}", value=right.astype(float)))
    return pd.concat(tables, ignore_index=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=200_000, help="items per model")
    parser.add_argument("--models", type=int, default=2, help="number of models")
    parser.add_argument("--images", type=int, default=50_000, help="number of images")
    parser.add_argument("--threads", type=int, default=1, help="number of threads")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = str(args.threads)
    from memory import peak_gigabytes

    from hfcomp.statistics import Outcomes, summarize
    from hfcomp.statistics.average import Average

    table = outcomes(args.items, args.models, args.images)
    before, took = peak_gigabytes(), {}
    averages = {"SugarCrepe": [Average("macro", tuple((name,) for name in SUBSETS)), Average("micro", pooled=True)]}
    names = list(dict.fromkeys(table["arm"]))

    def time_call(name, call):
        start = time.process_time()
        result = call()
        took[name] = time.process_time() - start
        print(f"{name:28} {took[name]:7.2f} CPU s, peak {peak_gigabytes():.2f} GB", flush=True)
        return result

    results = time_call("table", lambda: Outcomes(table))
    lines = time_call(
        "means, intervals and tests", lambda: summarize(results, references=names[:1], averages=averages)
    )
    time_call("hash of the items", lambda: results.digest)
    with tempfile.TemporaryDirectory() as folder:
        time_call("items.parquet", lambda: results.write(Path(folder) / "items.parquet"))
    total, peak = sum(took.values()), peak_gigabytes()
    sizes = f"{args.items:,} items from {args.images:,} images, {args.models} models, {len(lines)} lines"
    print(f"{sizes}, {args.threads} thread{'s' * (args.threads > 1)}")
    print(f"total {total:.1f} CPU s (at most {SECONDS})")
    print(f"peak {peak:.2f} GB (at most {GIGABYTES}), of which the table and imports are {before:.2f}")
    if total > SECONDS or peak > GIGABYTES:
        raise SystemExit("missed")


if __name__ == "__main__":
    main()
