"""Time of finding images' nearest neighbors: matrix products against FAISS candidates and a plain loop.

python benchmarks_perf/neighbors.py [--rows 20000] [--width 512] [--threads 1]

All of them find the same rows. The embeddings are random directions around a few centers, like images of a few kinds
of scenes. The loop computes the products of one row with all others in single precision and sorts them; it is timed on
the first 500 rows and scaled to all.
"""

import argparse
import os
import time

LOOP_ROWS = 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000, help="number of embeddings")
    parser.add_argument("--width", type=int, default=512, help="embedding size")
    parser.add_argument("--threads", type=int, default=1, help="number of threads")
    options = parser.parse_args()
    # Set before NumPy loads its libraries.
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = str(options.threads)
    import numpy as np

    from hfcomp.negatives.neighbors import default_method, nearest_neighbors

    rng = np.random.default_rng(0)
    centers = rng.normal(size=(50, options.width))
    vectors = centers[rng.integers(50, size=options.rows)] + rng.normal(size=(options.rows, options.width))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)

    def loop() -> np.ndarray:
        neighbors = []
        for row in range(min(LOOP_ROWS, options.rows)):
            similarity = vectors @ vectors[row]
            similarity[row] = -np.inf
            neighbors.append(np.argsort(-similarity, kind="stable")[:3])
        return np.array(neighbors)

    start = time.perf_counter()
    loop_rows = loop()
    seconds = {"loop": (time.perf_counter() - start) * options.rows / len(loop_rows)}
    results = {}
    for method in ("exact", "faiss"):
        start = time.perf_counter()
        results[method] = nearest_neighbors(vectors, number=3, method=method)
        seconds[method] = time.perf_counter() - start
    print(f"{options.rows:,} rows of {options.width}, {options.threads} thread(s)")
    print(f"by default: {default_method(options.rows)}")
    for name, value in seconds.items():
        print(f"{name:6} {value:8.1f} s   {seconds['loop'] / value:5.1f} times the loop")
    print(f"exact and faiss agree: {(results['exact'] == results['faiss']).all()}")
    agreement = (results["exact"][: len(loop_rows)] == loop_rows).all(axis=1).mean()
    print(f"the loop agrees in {agreement:.1%} of its rows")


if __name__ == "__main__":
    main()
