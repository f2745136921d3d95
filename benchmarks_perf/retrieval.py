"""Time and memory of recall@k in both directions, scored in blocks.

python benchmarks_perf/retrieval.py [--images 40000] [--captions 200000] [--width 512] [--queries 0] [--threads 1]

Vectors are random, because the work does not depend on them. `--queries N` ranks only the first N images and N
captions and extrapolates to all of them: the time grows with their number, the memory does not. Seconds are CPU
seconds; memory is the peak resident size of the process, including the vectors.
"""

import argparse
import os
import time

GIGABYTES = 4


def unit(generator, rows: int, width: int):
    import numpy as np

    vectors = generator.standard_normal((rows, width), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=40_000, help="number of images")
    parser.add_argument("--captions", type=int, default=200_000, help="number of captions")
    parser.add_argument("--width", type=int, default=512, help="embedding size")
    parser.add_argument("--queries", type=int, default=0, help="queries per direction, 0 = all")
    parser.add_argument("--threads", type=int, default=1, help="number of threads")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = str(args.threads)
    import numpy as np
    from memory import peak_gigabytes

    from hfcomp.metrics.retrieval import rank_bounds

    generator = np.random.default_rng(0)
    image, text = unit(generator, args.images, args.width), unit(generator, args.captions, args.width)
    owner = np.arange(args.captions) * args.images // args.captions
    images, captions = np.arange(args.images), np.arange(args.captions)
    print(f"vectors: {peak_gigabytes():.2f} GB")
    total = 0.0
    for name, queries, keys, right in (
        ("text-to-image", text, image, lambda start, stop: owner[start:stop, None] == images),
        ("image-to-text", image, text, lambda start, stop: captions[start:stop][:, None] == owner),
    ):
        number = min(args.queries or len(queries), len(queries))
        start, wall = time.process_time(), time.perf_counter()
        ranks = rank_bounds(queries[:number], keys, right)
        took, wall = time.process_time() - start, time.perf_counter() - wall
        total += took * len(queries) / number
        recall = [float(ranks.within(k).correct.mean()) for k in (1, 5, 10)]
        print(
            f"{name}: {number:,} of {len(queries):,} queries, {took:.1f} CPU s, {wall:.1f} s, recall {recall}",
            flush=True,
        )
        print(
            f"  all of them would take {took * len(queries) / number:,.0f} CPU s; peak {peak_gigabytes():.2f} GB",
            flush=True,
        )
    peak = peak_gigabytes()
    print(f"{args.images:,} images x {args.captions:,} captions, {args.width} dimensions, {args.threads} thread")
    print(f"both directions {total:,.0f} CPU s; peak {peak:.2f} GB (at most {GIGABYTES})")
    if peak > GIGABYTES:
        raise SystemExit("missed")


if __name__ == "__main__":
    main()
