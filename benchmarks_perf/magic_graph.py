"""Time and memory of MAGIC's graph stages, and of similar pairs by blocks against a matrix of all pairs.

python benchmarks_perf/magic_graph.py [--images 113000] [--concepts 30000] [--width 384] [--captions 5]

The data is synthetic: concepts have Zipf-distributed numbers of images and vectors around 1,000 centers; the parents
come from a table, in the blocks of a growing source. `graph` is all of `build_hierarchy`, `captions` computes the
vectors of `CaptionsEncoder` from random words, `cosines` counts the cosines of all pairs of concepts, and `blocks` and
`matrix` compute the pairs above 0.85. Every run is a separate process, so peaks do not mix, with 1 and with 2 threads.
Memory is the peak resident size minus that once the inputs exist. The graph stages, including the captions' vectors,
should take less than 2 minutes.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

LIMIT = 120.0
"""Time limit in seconds, for any number of threads."""
NEGATIVE_SIMILARITY = 0.85


class Points:
    """An encoder and a source with precomputed answers."""

    grows = True

    def __init__(self, vectors: np.ndarray) -> None:
        self.vectors = vectors

    def encode(self, names: Sequence[str]) -> np.ndarray:
        return self.vectors

    def parents(self, level: int, names: Sequence[str], known: Sequence[str]):
        from hfcomp.factory.magic.source import SourceAnswer

        nodes = (None, 281, 113, 87)[level]
        return [SourceAnswer((f"level {level + 1} number {int(name.rpartition(' ')[2]) % nodes}",)) for name in names]

    def facts(self) -> Mapping[str, str]:
        return {}


def inputs(args: argparse.Namespace) -> tuple[dict[str, int], np.ndarray]:
    rng = np.random.default_rng(0)
    share = 1 / np.arange(1, args.concepts + 1)
    images = 1 + rng.multinomial(args.images - args.concepts, share / share.sum())
    points = rng.normal(size=(1_000, args.width))[rng.integers(0, 1_000, args.concepts)]
    points += 0.4 * rng.normal(size=points.shape)
    vectors = (points / np.linalg.norm(points, axis=1, keepdims=True)).astype(np.float32)
    return {f"concept {number:06}": int(images[number]) for number in range(args.concepts)}, vectors


def graph(args: argparse.Namespace, images: dict[str, int], vectors: np.ndarray) -> int:
    from hfcomp.factory.magic.building import build_hierarchy
    from hfcomp.factory.magic.options import GraphSettings

    points = Points(vectors)
    return len(build_hierarchy(images, points, points, GraphSettings(), log=lambda _: None).concepts)


def captions(args: argparse.Namespace, images: dict[str, int], vectors: np.ndarray) -> int:
    from hfcomp.factory.magic.encoders import CaptionsEncoder

    words = np.array([f"{chr(97 + n // 676)}{chr(97 + n // 26 % 26)}{chr(97 + n % 26)}" for n in range(17_576)])
    rng = np.random.default_rng(0)

    def make_captions(name: str) -> list[str]:
        chosen = words[rng.zipf(1.3, (args.captions * images[name], 10)) % len(words)]
        return [" ".join(row) for row in chosen]

    return len(CaptionsEncoder(make_captions).encode(list(images)))


def cosines(args: argparse.Namespace, images: dict[str, int], vectors: np.ndarray) -> int:
    from hfcomp.factory.magic.cosines import Cosines

    return Cosines.between(vectors).pairs.total


def blocks(args: argparse.Namespace, images: dict[str, int], vectors: np.ndarray) -> int:
    from hfcomp.factory.magic.similarity import blocks, similar_pairs

    return sum(len(similar_pairs(vectors, NEGATIVE_SIMILARITY, rows)[0]) for rows in blocks(np.arange(len(vectors))))


def matrix(args: argparse.Namespace, images: dict[str, int], vectors: np.ndarray) -> int:
    cosines = vectors @ vectors.T.copy()  # without a copy OpenBLAS may crash at this size
    np.fill_diagonal(cosines, -1)
    first, second = np.nonzero(cosines > NEGATIVE_SIMILARITY)
    return len(first)


STAGES = {"graph": graph, "captions": captions, "cosines": cosines, "blocks": blocks, "matrix": matrix}


def measure(args: argparse.Namespace) -> dict[str, float]:
    """Runs a stage in this process."""
    images, vectors = inputs(args)
    tiny = argparse.Namespace(captions=args.captions)
    STAGES[args.stage](tiny, dict(list(images.items())[:64]), vectors[:64])  # imports libraries and starts threads
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    wall, cpu = time.perf_counter(), time.process_time()
    number = STAGES[args.stage](args, images, vectors)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"seconds": wall, "cpu": cpu, "megabytes": (peak - resident) / 1e6, "count": number}


def run(args: argparse.Namespace, stage: str, threads: int) -> dict[str, float]:
    sizes = [f"--{name}={getattr(args, name)}" for name in ("images", "concepts", "width", "captions")]
    limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    command = [sys.executable, __file__, f"--stage={stage}", *sizes]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=os.environ | limits)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=113_000, help="images over all concepts")
    parser.add_argument("--concepts", type=int, default=30_000, help="concepts of level 1 before merging")
    parser.add_argument("--width", type=int, default=384, help="embedding size")
    parser.add_argument("--captions", type=int, default=5, help="captions per image")
    parser.add_argument("--stage", choices=STAGES, help="measure this stage here and print JSON (used by the script)")
    args = parser.parse_args()
    if args.stage:
        print(json.dumps(measure(args)))
        return
    print(f"{args.images:,} images, {args.concepts:,} concepts, {args.width} dimensions")
    met = True
    for threads in (1, 2):
        results = {stage: run(args, stage, threads) for stage in STAGES}
        for stage, result in results.items():
            numbers = f"{result['seconds']:7.1f} s  {result['cpu']:7.1f} s of CPU  {result['megabytes']:7.0f} MB"
            print(f"{threads} thread(s) {stage:>8}: {numbers}  {result['count']:,} found", flush=True)
        ratio = {key: results["blocks"][key] / results["matrix"][key] for key in ("cpu", "megabytes")}
        print(f"blocks / matrix: CPU {ratio['cpu']:.2f}, memory {ratio['megabytes']:.3f}")
        met &= results["graph"]["seconds"] + results["captions"]["seconds"] < LIMIT
        met &= results["graph"]["megabytes"] < 1000
    print("targets met" if met else "targets missed")


if __name__ == "__main__":
    main()
