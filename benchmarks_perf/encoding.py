"""CPU time of SugarCrepe with the engine against batched scripts over distinct images and texts.

HFCOMP_REAL_DATA=FOLDER python benchmarks_perf/encoding.py [--items 735] [--repeats 1] [--batch_size 128] [--threads 1]

All of them score the same items with the same ViT-B/32 with random weights in one process, in turns, and their
outcomes are compared. The scripts do what a careful transformers user writes: each distinct image and text once, in
batches of the processor, with texts padded to 77 tokens, to the longest of a batch, or to the longest of a batch after
sorting by length. The engine also hashes images, checks items and builds the table of outcomes. Seconds are CPU
seconds; memory is the peak resident size of the process so far. Random weights measure speed; the scores do not
measure quality.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from evaluation import read_items
from memory import peak_gigabytes
from PIL import Image
from torch.nn.functional import normalize
from transformers import AutoModel, AutoProcessor
from transformers.utils import logging

SORTED = "script, longest, sorted"
SCRIPTS = {
    "script, padded to 77": ("max_length", False),
    "script, longest": ("longest", False),
    SORTED: ("longest", True),
}
SLACK = 1.05
"""Allowed slowdown compared with the best script: the variation between runs of the same program."""
NEAR = 1e-5


@torch.no_grad()
def script(model, processor, items, batch_size: int, padding: str, by_length: bool) -> np.ndarray:
    """Returns `[n, 2]` cosines, of the caption and of the false one."""
    paths, captions = list(items.images["image"]), items.rows["caption"][:]
    negatives = [negative for (negative,) in items.rows["negative_captions"][:]]
    images = list(dict.fromkeys(paths))
    texts = list(dict.fromkeys([*captions, *negatives]))
    if by_length:
        texts.sort(key=len)
    parts = []
    for start in range(0, len(images), batch_size):
        opened = [Image.open(path).convert("RGB") for path in images[start : start + batch_size]]
        pixels = processor(images=opened, return_tensors="pt")
        parts.append(normalize(model.get_image_features(**pixels).pooler_output, dim=-1))
    image = dict(zip(images, torch.cat(parts), strict=True))
    parts = []
    for start in range(0, len(texts), batch_size):
        part = texts[start : start + batch_size]
        tokens = processor(text=part, padding=padding, max_length=77, truncation=True, return_tensors="pt")
        parts.append(normalize(model.get_text_features(**tokens).pooler_output, dim=-1))
    text = dict(zip(texts, torch.cat(parts), strict=True))
    rows = zip(paths, captions, negatives, strict=True)
    return np.array([[float(image[path] @ text[caption]) for caption in pair] for path, *pair in rows])


def engine(folder: Path, benchmark, items, batch_size: int):
    """Returns a function that scores the items; the weights are loaded here."""
    from hfcomp.evaluation.encoding.embed import Embedder
    from hfcomp.evaluation.engine import run_benchmark

    embedder = Embedder(folder, device="cpu", batch_size=batch_size)
    embedder.backbone.eval()
    return lambda: run_benchmark(benchmark, items, embedder, keep_scores=True)


def time_call(call):
    start = time.process_time()
    result = call()
    return time.process_time() - start, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=735, help="items to score, 0 = all with a photograph")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each side, in turns; medians are compared")
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    parser.add_argument("--batch_size", type=int, default=128, help="images or texts per batch")
    args = parser.parse_args()
    data = os.environ.get("HFCOMP_REAL_DATA")
    if not data:
        raise SystemExit("set HFCOMP_REAL_DATA to a folder with sugarcrepe/, coco/open_256/ and clip_tokenizer/")
    torch.set_num_threads(args.threads)
    logging.disable_progress_bar()
    from hfcomp.modeling.random_clip import write_random_clip

    benchmark, items = read_items(Path(data), args.items)
    seconds: dict[str, list[float]] = {name: [] for name in ("engine", *SCRIPTS)}
    with tempfile.TemporaryDirectory() as folder:
        write_random_clip(Path(folder), str(Path(data) / "clip_tokenizer"), seed=0)
        model = AutoModel.from_pretrained(folder, trust_remote_code=False).eval()
        processor = AutoProcessor.from_pretrained(folder, trust_remote_code=False)
        for _ in range(args.repeats):
            took, report = time_call(engine(Path(folder), benchmark, items, args.batch_size))
            seconds["engine"].append(took)
            print(f"engine {took:.1f} CPU s, peak {peak_gigabytes():.2f} GB", flush=True)
            for name, options in SCRIPTS.items():
                took, scores = time_call(
                    lambda options=options: script(model, processor, items, args.batch_size, *options)
                )
                seconds[name].append(took)
                print(f"{name} {took:.1f} CPU s, peak {peak_gigabytes():.2f} GB", flush=True)
    median = {name: statistics.median(values) for name, values in seconds.items()}
    print(f"\n{len(items.rows)} items, {report.images} images, {report.texts} texts, batches of {args.batch_size}")
    print(f"{args.threads} thread{'s' * (args.threads > 1)}")
    for name, value in median.items():
        print(f"{name:26} {value:8.1f} CPU s  {value / median['engine']:6.2f} x the engine's")
    near = np.abs(scores[:, 0] - scores[:, 1]) <= NEAR
    wrong = int(((report.items["value"].to_numpy() == 1) != (scores[:, 0] > scores[:, 1]))[~near].sum())
    print(f"{wrong} outcomes differ among items whose cosines are more than {NEAR:g} apart")
    if wrong or median["engine"] > SLACK * median[SORTED]:
        raise SystemExit("missed")


if __name__ == "__main__":
    main()
