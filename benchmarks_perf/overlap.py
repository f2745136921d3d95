"""Time of comparing hashes of training images with those of an evaluation, and how far copies of photographs differ.

python benchmarks_perf/overlap.py [--rows 118000] [--scored 1600] [--photographs FOLDER]

The first part compares random hashes, among them copies with flipped bits, and a plain loop over pairs, which is timed
on the first 20 rows and scaled to all. Given a folder of JPEG files, the second part hashes them and modified copies,
and prints in how many of 256 bits they differ and how many would be found.
"""

import argparse
import io
import time
from pathlib import Path

import numpy as np
from PIL import Image

from hfcomp.data.overlap.image_hashes import MOST_BITS, close_pairs, image_record, looks_alike

LOOP_ROWS = 20
COPIED = 500


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=118_000, help="number of training images")
    parser.add_argument("--scored", type=int, default=1600, help="number of evaluation images")
    parser.add_argument("--photographs", type=Path, metavar="FOLDER", help="folder of JPEG files to copy and compare")
    options = parser.parse_args()
    compare_speed(options.rows, options.scored)
    if options.photographs is not None:
        compare_copies(options.photographs)


def compare_speed(rows: int, scored: int) -> None:
    rng = np.random.default_rng(0)
    hashes, others = (rng.integers(2**64, size=(n, 4), dtype=np.uint64) for n in (rows, scored))
    copied = rng.choice(rows, size=min(COPIED, rows), replace=False)
    hashes[copied] = others[rng.integers(scored, size=len(copied))] ^ np.uint64(0b1011)  # 12 bits
    start = time.perf_counter()
    matches, _, _ = close_pairs(hashes, others, MOST_BITS)
    seconds = time.perf_counter() - start
    plain = (
        [[int(word) for word in row] for row in hashes[:LOOP_ROWS]],
        [[int(word) for word in row] for row in others],
    )
    start = time.perf_counter()
    loop_rows = [
        row
        for row, own in enumerate(plain[0])
        for other in plain[1]
        if sum((a ^ b).bit_count() for a, b in zip(own, other, strict=True)) <= MOST_BITS
    ]
    loop = (time.perf_counter() - start) * rows / LOOP_ROWS
    print(f"{rows:,} training images against {scored:,}: {seconds:.1f} s; a plain loop takes {loop:,.0f} s", end="")
    print(f", {loop / seconds:,.0f} times as long")
    print(f"found: {sorted(set(matches.tolist())) == sorted(copied.tolist())}; the loop agrees: ", end="")
    print(loop_rows == [row for row in matches.tolist() if row < LOOP_ROWS])


def save(image: Image.Image, quality: int) -> Image.Image:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality)
    return Image.open(file).convert("RGB")


def resize(image: Image.Image, short_side: int) -> Image.Image:
    scale = short_side / min(image.size)
    return image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BICUBIC)


def crop(image: Image.Image, share: float) -> Image.Image:
    """Removes this share of width and height, half of it on each side."""
    left, upper = (round(size * share / 2) for size in image.size)
    return image.crop((left, upper, image.width - left, image.height - upper))


COPIES = {
    "JPEG quality 70": lambda image: save(image, 70),
    "JPEG quality 30": lambda image: save(image, 30),
    "short side 512, quality 90": lambda image: save(resize(image, 512), 90),
    "short side 112, quality 75": lambda image: save(resize(image, 112), 75),
    "short side 64, quality 75": lambda image: save(resize(image, 64), 75),
    "224 x 224, quality 90": lambda image: save(image.resize((224, 224), Image.Resampling.BICUBIC), 90),
    "grey": lambda image: image.convert("L").convert("RGB"),
    "2% cropped": lambda image: crop(image, 0.02),
    "4% cropped": lambda image: crop(image, 0.04),
    "6% cropped": lambda image: crop(image, 0.06),
    "10% cropped": lambda image: crop(image, 0.10),
    "mirrored": lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
}


def compare_copies(folder: Path) -> None:
    images = [Image.open(path).convert("RGB") for path in sorted(folder.glob("*.jpg"))]
    records = np.stack([image_record(image) for image in images])
    rows, columns, bits = close_pairs(records["hash"], records["hash"], 256)
    bits = bits[rows < columns]
    print(f"\n{len(images)} photographs, {len(bits):,} pairs: at least {bits.min()} bits, mean {bits.mean():.1f}")
    for name, copy in COPIES.items():
        copies = np.stack([image_record(copy(image)) for image in images])
        nearest, _ = looks_alike(copies, records)
        apart = np.unpackbits((copies["hash"] ^ records["hash"]).view(np.uint8), axis=1).sum(axis=1)
        right = (nearest == np.arange(len(images))).mean()
        wrong = ((nearest >= 0) & (nearest != np.arange(len(images)))).sum()
        print(f"{name:28} 99% {np.quantile(apart, 0.99):4.0f}  max {apart.max():4}", end="")
        print(f"  found {right:7.2%}, another photograph {wrong}")
    quarters = [cut for image in images for cut in four_parts(image)]
    records = np.stack([image_record(image) for image in quarters])
    rows, columns, bits = close_pairs(records["hash"], records["hash"], 256)
    others = rows // 4 < columns // 4
    print(f"{others.sum():,} pairs of quarters of two photographs: at least {bits[others].min()} bits")


def four_parts(image: Image.Image) -> list[Image.Image]:
    width, height = image.width // 2, image.height // 2
    return [image.crop((x, y, x + width, y + height)) for x in (0, width) for y in (0, height)]


if __name__ == "__main__":
    main()
