"""CPU time from encoded photographs to pixels: Hugging Face's processor, hfcomp's reader, and its pixel store.

HFCOMP_REAL_DATA=FOLDER python benchmarks_perf/pixels.py [--images 192] [--rounds 5] [--threads 1] [--workers 0,1,2]

All of them read the same JPEG files from memory, in batches of 32, in turns. `transformers` decodes each with Pillow
and calls CLIPImageProcessorPil, like a transformers collator: float pixels, normalized. `hfcomp` returns uint8, which
the model normalizes on its device. The script prints how far pixels differ: not at all, except with `reduced_jpeg`.
`store` is a store as built by `hfcomp build pixels`, in a temporary folder, whose images are found by their content.
With workers, a DataLoader does the same in separate processes, and CPU time is that of all processes.

If torchvision is installed, CLIPImageProcessor, which resizes with it, takes turns too, and hfcomp's reader with that
processor is compared with it. Times are CPU seconds, not wall time, because a busy machine changes them little. Ratios
are within a round, and their spread is over rounds. `--short_side 480` first enlarges the photographs: those in
`HFCOMP_REAL_DATA` have a short side of 256, and half of it is less than the model's 224. Enlarged photographs are
smoother than real ones of that size.
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
from transformers import CLIPImageProcessor
from transformers.utils import is_torchvision_available

from hfcomp.data.pixels import PixelTransform
from hfcomp.data.pixels.store import ImageKeys, ImageReader, PixelStore
from hfcomp.data.pixels.store_writer import StoreWriter
from hfcomp.modeling.image_processors import CLIPImageProcessorPil

BATCH = 32
TORCHVISION = ", torchvision"
GOAL = 1.0
"""Maximum ratio to the CPU time of transformers."""


def read_photographs(folder: Path, number: int, short_side: int | None) -> list[bytes]:
    """Reads encoded photographs, resized if `short_side` is given."""
    paths = sorted((folder / "coco" / "open_256").glob("*.jpg"))[:number]
    return [path.read_bytes() if short_side is None else resize_file(path, short_side) for path in paths]


def resize_file(path: Path, short_side: int) -> bytes:
    """Returns a photograph with the given shorter side, as a JPEG file of quality 90."""
    image = Image.open(path).convert("RGB")
    scale = short_side / min(image.size)
    size = (round(scale * image.width), round(scale * image.height))
    file = io.BytesIO()
    image.resize(size, Image.Resampling.LANCZOS).save(file, "JPEG", quality=90)
    return file.getvalue()


def read_with_transformers(processor: Any, files: Sequence[bytes]) -> torch.Tensor:
    images = [Image.open(io.BytesIO(file)).convert("RGB") for file in files]
    return processor(images=images, return_tensors="pt")["pixel_values"]


def peer_name(name: str) -> str:
    return f"transformers{TORCHVISION if name.endswith(TORCHVISION) else ''}"


def read_with_hfcomp(reader: ImageReader, files: Sequence[bytes]) -> torch.Tensor:
    return reader(files, ["an image"] * len(files)).pixels


def write_store(folder: Path, transform: PixelTransform, files: Sequence[bytes]) -> None:
    reader = ImageReader(transform)
    with StoreWriter(folder, transform) as writer:
        for file in files:
            key = ImageKeys(file).content_key()
            writer.add([key], read_with_hfcomp(reader, [file])[0].numpy(), tiny=False)


def cpu_seconds() -> float:
    """CPU seconds of this process and of its ended child processes."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def time_pass(
    read: Callable[[Sequence[bytes]], torch.Tensor], files: Sequence[bytes], workers: int
) -> tuple[float, float]:
    """Returns the CPU and wall seconds of a pass over the files."""
    loader = DataLoader(files, batch_size=BATCH, num_workers=workers, collate_fn=read)
    cpu, wall = cpu_seconds(), time.perf_counter()
    for _ in loader:
        pass
    del loader
    return cpu_seconds() - cpu, time.perf_counter() - wall


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=192, help="number of photographs")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds")
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    parser.add_argument("--workers", type=numbers, default=[0, 1, 2], help="numbers of workers (default: 0,1,2)")
    parser.add_argument("--short_side", type=int, help="shorter side to enlarge the photographs to")
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
            "transformers": partial(read_with_transformers, processor),
            "hfcomp": partial(read_with_hfcomp, ImageReader(transform)),
            "hfcomp, reduced_jpeg": partial(
                read_with_hfcomp, ImageReader(transform, shortest_side=max(transform.size))
            ),
            "hfcomp, store": partial(read_with_hfcomp, ImageReader(transform, store=store)),
        }
        if is_torchvision_available():
            other = CLIPImageProcessor()
            readers[f"transformers{TORCHVISION}"] = partial(read_with_transformers, other)
            reader = ImageReader(PixelTransform.from_processor(other))
            readers[f"hfcomp{TORCHVISION}"] = partial(read_with_hfcomp, reader)
        compare(readers, transform, files)
        runs = {(name, workers): [] for workers in args.workers for name in readers}
        for _ in range(args.rounds):
            for name, workers in runs:
                runs[name, workers].append(time_pass(readers[name], files, workers))
    report(runs, len(files), args.threads)


def compare(readers: dict[str, Any], transform: PixelTransform, files: Sequence[bytes]) -> None:
    """Prints how far pixels differ from transformers', in steps of 1/255."""
    mean, std = (torch.tensor(values)[:, None, None] for values in (transform.mean, transform.std))
    for name in [name for name in readers if name != peer_name(name)]:
        expected = (readers[peer_name(name)](files) * std + mean) * 255
        difference = (readers[name](files).float() - expected).abs()
        print(f"{name}: pixels differ by {difference.mean():.3f} of 255 on average, at most {difference.max():.1f}")


def report(runs: dict[tuple[str, int], list[tuple[float, float]]], number: int, threads: int) -> None:
    """Prints the table and exits with an error if the goal is missed."""
    print(f"\n{number} photographs, batches of {BATCH}, {threads} thread{'s' * (threads > 1)}, medians over rounds")
    print(
        "reader                    workers  CPU ms  images/CPU s  images/s (wall)  x transformers' CPU time (spread)"
    )
    missed = False
    for (name, workers), rounds in runs.items():
        cpu = statistics.median(seconds for seconds, _ in rounds) / number
        wall = statistics.median(seconds for _, seconds in rounds) / number
        ratios = [own / base for (own, _), (base, _) in zip(rounds, runs[peer_name(name), workers], strict=True)]
        ratio = statistics.median(ratios)
        missed |= name in ("hfcomp", f"hfcomp{TORCHVISION}") and ratio > GOAL
        spread = f"{ratio:5.2f} ({np.min(ratios):.2f} to {np.max(ratios):.2f})"
        print(f"{name:26}{workers:6}{1000 * cpu:10.2f}{1 / cpu:14.0f}{1 / wall:17.0f}{spread:>27}")
    if missed:
        raise SystemExit("missed")


if __name__ == "__main__":
    main()
