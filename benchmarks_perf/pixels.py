"""CPU time from encoded photographs to pixels: Hugging Face's processor, hfcomp's reader, and its store of pixels.

HFCOMP_REAL_DATA=FOLDER python benchmarks_perf/pixels.py [--images 192] [--rounds 5] [--threads 1] [--workers 0,1,2]

All read the same JPEG files from memory, in batches of 32, in turns. `transformers` decodes each with Pillow and calls
CLIPImageProcessorPil, as a collator of transformers does: float pixels, normalized. `hfcomp` gives uint8, which the
model normalizes on its device; how far pixels differ is printed: not at all, except `reduced_jpeg`. `store` is one
as `hfcomp build pixels` makes it, in a temporary folder, whose images are found by their content. With workers, a
DataLoader does the same in processes of its own, and CPU time is that of all processes.

Where torchvision is installed, CLIPImageProcessor, which resizes by it, takes turns too, and hfcomp's reader with that
processor is compared with it. CPU seconds, not wall time: a busy machine changes them little. Ratios are of the same
round, their spread is over rounds. `--short_side 480` enlarges the photographs first: those of `HFCOMP_REAL_DATA` have
a short side of 256, and half of it is less than the model's 224. Enlarged photographs are smoother than real ones of
that size.
"""

from __future__ import annotations

import argparse
import io
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader
from transformers import CLIPImageProcessor, CLIPImageProcessorPil
from transformers.utils import is_torchvision_available

from hfcomp.data.pixels import PixelTransform
from hfcomp.data.pixels.store import ImageKeys, ImageReader, PixelStore
from hfcomp.data.pixels.store_writer import StoreWriter

BATCH = 32
TORCHVISION = ", torchvision"
GOAL = 1.0
"""Of the CPU time of transformers, at most."""


def read_photographs(folder: Path, number: int, short_side: int | None) -> list[bytes]:
    """Encoded photographs, of another size where asked for."""
    paths = sorted((folder / "coco" / "open_256").glob("*.jpg"))[:number]
    return [path.read_bytes() if short_side is None else enlarged(path, short_side) for path in paths]


def enlarged(path: Path, short_side: int) -> bytes:
    """A photograph with another shorter side, as a JPEG file of quality 90."""
    image = Image.open(path).convert("RGB")
    scale = short_side / min(image.size)
    size = (round(scale * image.width), round(scale * image.height))
    file = io.BytesIO()
    image.resize(size, Image.Resampling.LANCZOS).save(file, "JPEG", quality=90)
    return file.getvalue()


def by_transformers(processor: Any, files: Sequence[bytes]) -> torch.Tensor:
    images = [Image.open(io.BytesIO(file)).convert("RGB") for file in files]
    return processor(images=images, return_tensors="pt")["pixel_values"]


def peer_of(name: str) -> str:
    return f"transformers{TORCHVISION if name.endswith(TORCHVISION) else ''}"


def by_reader(reader: ImageReader, files: Sequence[bytes]) -> torch.Tensor:
    return reader(files, ["an image"] * len(files)).pixels


def write_store(folder: Path, transform: PixelTransform, files: Sequence[bytes]) -> None:
    reader = ImageReader(transform)
    with StoreWriter(folder, transform) as writer:
        for file in files:
            key = ImageKeys(file).content_key()
            writer.add([key], by_reader(reader, [file])[0].numpy(), tiny=False)


def cpu_seconds() -> float:
    """Of this process and of its processes that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def timed(
    read: Callable[[Sequence[bytes]], torch.Tensor], files: Sequence[bytes], workers: int
) -> tuple[float, float]:
    """CPU and wall seconds of a pass over the files."""
    loader = DataLoader(files, batch_size=BATCH, num_workers=workers, collate_fn=read)
    cpu, wall = cpu_seconds(), time.perf_counter()
    for _ in loader:
        pass
    del loader
    return cpu_seconds() - cpu, time.perf_counter() - wall


def numbers(text: str) -> list[int]:
    return [int(one) for one in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=192)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--workers", type=numbers, default=[0, 1, 2], help="numbers of workers (default: 0,1,2)")
    parser.add_argument("--short_side", type=int, help="enlarge the photographs to it")
    args = parser.parse_args()
    data = os.environ.get("HFCOMP_REAL_DATA")
    if not data:
        raise SystemExit("set HFCOMP_REAL_DATA to a folder with coco/open_256/")
    torch.set_num_threads(args.threads)
    files = read_photographs(Path(data), args.images, args.short_side)
    processor = CLIPImageProcessorPil()
    transform = PixelTransform.from_processor(processor)
    with tempfile.TemporaryDirectory() as folder:
        write_store(Path(folder) / "store", transform, files)
        store = PixelStore(Path(folder) / "store", transform)
        readers = {
            "transformers": partial(by_transformers, processor),
            "hfcomp": partial(by_reader, ImageReader(transform)),
            "hfcomp, reduced_jpeg": partial(by_reader, ImageReader(transform, shortest_side=max(transform.size))),
            "hfcomp, store": partial(by_reader, ImageReader(transform, store=store)),
        }
        if is_torchvision_available():
            other = CLIPImageProcessor()
            readers[f"transformers{TORCHVISION}"] = partial(by_transformers, other)
            reader = ImageReader(PixelTransform.from_processor(other))
            readers[f"hfcomp{TORCHVISION}"] = partial(by_reader, reader)
        compare(readers, transform, files)
        runs = {(name, workers): [] for workers in args.workers for name in readers}
        for _ in range(args.rounds):
            for name, workers in runs:
                runs[name, workers].append(timed(readers[name], files, workers))
    report(runs, len(files), args.threads)


def compare(readers: dict[str, Any], transform: PixelTransform, files: Sequence[bytes]) -> None:
    """Prints how far pixels differ from those of transformers, in steps of 1/255."""
    mean, std = (torch.tensor(values)[:, None, None] for values in (transform.mean, transform.std))
    for name in [name for name in readers if name != peer_of(name)]:
        expected = (readers[peer_of(name)](files) * std + mean) * 255
        found = (readers[name](files).float() - expected).abs()
        print(f"{name}: pixels differ by {found.mean():.3f} of 255 on average, {found.max():.1f} at most")


def report(runs: dict[tuple[str, int], list[tuple[float, float]]], number: int, threads: int) -> None:
    """Prints the table, and ends with an error where the goal is missed."""
    print(f"\n{number} photographs, batches of {BATCH}, {threads} thread{'s' * (threads > 1)}, medians over rounds")
    print(
        "reader                    workers  CPU ms  images/CPU s  images/s (wall)  of transformers' CPU time (spread)"
    )
    missed = False
    for (name, workers), rounds in runs.items():
        cpu = statistics.median(one for one, _ in rounds) / number
        wall = statistics.median(one for _, one in rounds) / number
        ratios = [own / base for (own, _), (base, _) in zip(rounds, runs[peer_of(name), workers], strict=True)]
        ratio = statistics.median(ratios)
        missed |= name in ("hfcomp", f"hfcomp{TORCHVISION}") and ratio > GOAL
        spread = f"{ratio:5.2f} ({np.min(ratios):.2f} to {np.max(ratios):.2f})"
        print(f"{name:26}{workers:6}{1000 * cpu:10.2f}{1 / cpu:14.0f}{1 / wall:17.0f}{spread:>27}")
    if missed:
        raise SystemExit("missed")


if __name__ == "__main__":
    main()
