"""Time and memory of InfoNCE through the chunked primitive against the plain dense form, forward and backward.

python benchmarks_perf/contrast.py [--rows 16384] [--width 512] [--repeats 3] [--threads 0]
    [--scale 100] [--cosine 0]

Every run is a separate process, so peaks do not mix; the two forms take turns and medians are compared. Memory is the
peak resident size minus the resident size once the inputs exist, so it includes logits, buffers and gradients. The
dense form needs about 16 bytes per logit: 4.3 GB at the default size.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F

TIME_TARGET = 0.7
MEMORY_TARGET = 1 / 20


def dense(image, text, scale):
    logits = scale * image @ text.T
    target = torch.arange(len(image))
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2


def chunked_loss(image, text, scale):
    from hfcomp.losses import info_nce_loss

    return info_nce_loss(image, text, logit_scale=scale)[0]


FORMS = {"dense": dense, "chunked": chunked_loss}


def embeddings(rows: int, width: int, cosine: float) -> list[torch.Tensor]:
    """Random images and texts; the cosine within a pair is about the given one."""
    torch.manual_seed(0)
    image, other = (F.normalize(torch.randn(rows, width), dim=1) for _ in range(2))
    text = F.normalize(cosine * image + (1 - cosine**2) ** 0.5 * other, dim=1)
    return [x.requires_grad_() for x in (image, text)]


def measure(form: str, rows: int, width: int, threads: int, scale: float, cosine: float) -> dict[str, float]:
    """Runs a forward and backward pass in this process."""
    if threads:
        torch.set_num_threads(threads)
    image, text = embeddings(rows, width, cosine)
    scale = torch.tensor(scale, requires_grad=True)
    FORMS[form](image[:64], text[:64], scale).backward()  # loads libraries and starts threads
    image.grad = text.grad = scale.grad = None
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    wall, cpu = time.perf_counter(), time.process_time()
    loss = FORMS[form](image, text, scale)
    loss.backward()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "seconds": wall,
        "cpu_seconds": cpu,
        "megabytes": (peak - resident) / 1e6,
        "loss": loss.item(),
        "gradient": torch.stack([image.grad.norm(), text.grad.norm(), scale.grad]).norm().item(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=16384, help="pairs in the batch")
    parser.add_argument("--width", type=int, default=512, help="embedding size")
    parser.add_argument("--repeats", type=int, default=3, help="runs per form")
    parser.add_argument("--threads", type=int, default=0, help="torch threads, 0 = torch's default")
    parser.add_argument("--scale", type=float, default=100.0, help="scale of the logits")
    parser.add_argument("--cosine", type=float, default=0.0, help="cosine between an image and its text")
    parser.add_argument("--form", choices=FORMS, help="measure this form here and print JSON (used by the script)")
    args = parser.parse_args()
    if args.form:
        print(json.dumps(measure(args.form, args.rows, args.width, args.threads, args.scale, args.cosine)))
        return

    sizes = [f"--{name}={getattr(args, name)}" for name in ("rows", "width", "threads", "scale", "cosine")]
    results = {form: [] for form in FORMS}
    for repeat in range(args.repeats):
        for form in list(FORMS)[:: 1 if repeat % 2 else -1]:
            command = [sys.executable, __file__, f"--form={form}", *sizes]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            results[form].append(json.loads(done.stdout))
            print(form, {key: round(value, 4) for key, value in results[form][-1].items()}, flush=True)
    medians = {
        form: {key: statistics.median(run[key] for run in runs) for key in runs[0]} for form, runs in results.items()
    }
    print(f"\n{args.rows} x {args.width}, medians of {args.repeats}")
    for form, values in medians.items():
        print(
            f"{form:>8}: {values['seconds']:7.2f} s  {values['cpu_seconds']:7.2f} cpu s  {values['megabytes']:8.1f} MB"
        )
    ratio = {key: medians["chunked"][key] / medians["dense"][key] for key in medians["dense"]}
    print(f"time   chunked / dense: {ratio['seconds']:.3f} (cpu {ratio['cpu_seconds']:.3f}; target {TIME_TARGET})")
    print(f"memory chunked / dense: {ratio['megabytes']:.4f} = 1/{1 / ratio['megabytes']:.1f} (target 1/20)")
    # CPU time, because wall time includes other work on the machine
    met = ratio["cpu_seconds"] <= TIME_TARGET and ratio["megabytes"] <= MEMORY_TARGET
    print("targets met" if met else "targets missed")


if __name__ == "__main__":
    main()
