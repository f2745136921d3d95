"""Time of SugarCrepe with the engine against a plain loop over items, with three forward passes each.

HFCOMP_REAL_DATA=FOLDER python benchmarks_perf/evaluation.py [--items 0] [--repeats 1] [--threads 0]

Both score the same SugarCrepe items with the same ViT-B/32 with random weights, in one process. The loop does what the
benchmark's own script does: for each item it opens, decodes and preprocesses the photograph again, pads the two
captions to 77 tokens, and runs one image and two texts through the model, one by one. The engine runs with an empty
cache, then twice with the embeddings of that run. Imports and loading are not counted; reading and hashing files is.
Random weights measure speed; the scores do not measure quality.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.nn.functional import normalize
from tqdm.auto import tqdm
from transformers import AutoModel, AutoProcessor
from transformers.utils import logging

TARGET, GOAL, CACHED_TARGET = 6, 8, 100
NEAR = 1e-5


def read_items(data: Path, number: int):
    """Returns the benchmark and at most `number` evenly spaced items that have a photograph."""
    from hfcomp.evaluation.benchmarks import find_benchmarks
    from hfcomp.evaluation.engine import validate
    from hfcomp.evaluation.sources import load_items
    from hfcomp.evaluation.spec import Folders

    (benchmark,) = find_benchmarks(["sugarcrepe"])
    folders = Folders(own={"sugarcrepe": data / "sugarcrepe", "val2017": data / "coco" / "open_256"})
    items = validate(benchmark, load_items(benchmark, folders))
    if number:
        from dataclasses import replace

        from hfcomp.evaluation.cells import pick_cells

        rows = np.linspace(0, len(items.rows) - 1, number).astype(int)
        images = {"image": pick_cells(items.images["image"], rows)}
        items = replace(items, rows=items.rows.select(rows), images=images)
    return benchmark, items


def loop(model, processor, items) -> np.ndarray:
    """Returns `[n, 2]` scores, of the caption and of the false one."""
    scores = []
    rows = zip(items.images["image"], items.rows["caption"], items.rows["negative_captions"], strict=True)
    with torch.no_grad():
        for path, caption, (negative,) in tqdm(rows, total=len(items.rows), desc="loop", leave=False):
            pixels = processor(images=Image.open(path).convert("RGB"), return_tensors="pt")
            image = normalize(model.get_image_features(**pixels).pooler_output, dim=-1)
            for text in (caption, negative):
                tokens = processor(
                    text=[text], padding="max_length", max_length=77, truncation=True, return_tensors="pt"
                )
                scores.append(
                    (image * normalize(model.get_text_features(**tokens).pooler_output, dim=-1)).sum().item()
                )
    return np.array(scores).reshape(-1, 2)


def engine(model: Path, benchmark, items, cache: Path, batch_size: int):
    """Returns seconds and the report. The weights are loaded before the clock starts."""
    from hfcomp.evaluation.encoding.cache import EmbeddingCache
    from hfcomp.evaluation.encoding.embed import Embedder
    from hfcomp.evaluation.engine import run_benchmark

    embedder = Embedder(model, device="cpu", batch_size=batch_size, cache=EmbeddingCache(cache))
    embedder.backbone.eval()
    start = time.perf_counter()
    report = run_benchmark(benchmark, items, embedder)
    return time.perf_counter() - start, report


def count_differences(scores: np.ndarray, report) -> int:
    """Prints how many predictions differ and returns the number that should not."""
    own, other = scores.T
    differs = (report.items["value"].to_numpy() == 1) != (own > other)
    far = np.abs(own - other) > NEAR
    print(f"scores more than {NEAR:g} apart: {far.sum()} items, of which {differs[far].sum()} predictions differ")
    print(f"scores nearer than that: {(~far).sum()} items, of which {differs[~far].sum()} predictions differ")
    return int(differs[far].sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=0, help="items to score, 0 = all with a photograph")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each side, in turns; medians are compared")
    parser.add_argument("--threads", type=int, default=0, help="torch threads, 0 = torch's default")
    parser.add_argument("--batch_size", type=int, default=64, help="batch size of the engine")
    args = parser.parse_args()
    data = os.environ.get("HFCOMP_REAL_DATA")
    if not data:
        raise SystemExit("set HFCOMP_REAL_DATA to a folder with sugarcrepe/, coco/open_256/ and clip_tokenizer/")
    if args.threads:
        torch.set_num_threads(args.threads)
    logging.disable_progress_bar()
    from hfcomp.modeling.random_clip import write_random_clip

    benchmark, items = read_items(Path(data), args.items)
    seconds = {"loop": [], "engine": [], "engine, cached": []}
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        write_random_clip(folder / "model", str(Path(data) / "clip_tokenizer"), seed=0)
        model, processor = (
            AutoModel.from_pretrained(folder / "model", trust_remote_code=False).eval(),
            AutoProcessor.from_pretrained(folder / "model", trust_remote_code=False),
        )
        for repeat in range(args.repeats):
            start = time.perf_counter()
            scores = loop(model, processor, items)
            seconds["loop"].append(time.perf_counter() - start)
            cache = folder / f"cache-{repeat}"
            took, report = engine(folder / "model", benchmark, items, cache, args.batch_size)
            seconds["engine"].append(took)
            cached = [engine(folder / "model", benchmark, items, cache, args.batch_size)[0] for _ in range(2)]
            seconds["engine, cached"].append(statistics.median(cached))
            print({name: round(values[-1], 3) for name, values in seconds.items()}, flush=True)

    median = {name: statistics.median(values) for name, values in seconds.items()}
    print(
        f"\n{len(items.rows)} items, {report.images} images, {report.texts} texts; {torch.get_num_threads()} threads"
    )
    for name, value in median.items():
        rate, ratio = len(items.rows) / value, median["loop"] / value
        print(f"{name:16} {value:9.3f} s  {rate:9.1f} items/s  {report.images / value:9.1f} images/s  {ratio:8.1f} x")
    wrong = count_differences(scores, report)
    fast, cached_ratio = median["loop"] / median["engine"], median["loop"] / median["engine, cached"]
    print(f"engine {fast:.1f} times as fast (at least {TARGET}, goal {GOAL})")
    print(f"second run, from cache: {cached_ratio:.0f} times (at least {CACHED_TARGET})")
    if fast < TARGET or cached_ratio < CACHED_TARGET or wrong:
        raise SystemExit("missed")


if __name__ == "__main__":
    main()
