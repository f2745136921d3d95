"""Peak memory and CPU time of every loss, forward and backward, as the batch grows.

python benchmarks_perf/loss_memory.py [--rows 2048 8192 32768] [--width 64] [--losses NAME ...] [--threads 1]
    [--device cpu] [--limit 3]

`rows` are pairs; a loss with a hard negative per pair (Cement, TripletCLIP) has twice as many images and texts. Every
run is a separate process. Memory on the CPU is the peak resident size minus the resident size once the inputs exist;
on an accelerator it is the peak of what PyTorch has allocated, including inputs. Both include buffers and gradients. A
loss stops at the first size that takes more than `--limit` GB; nothing is extrapolated.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import torch
from loss_cases import LOSSES, Batch
from memory import peak_gigabytes

NAMES = {function.__name__: make for function, make in LOSSES.items()}


def measure(name, rows, width, threads, device):
    """Runs a forward and backward pass in this process."""
    if threads:
        torch.set_num_threads(threads)
    NAMES[name](Batch(64, width, device))()[0].backward()  # loads libraries and starts threads
    compute_loss = NAMES[name](Batch(rows, width, device))
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e9
    wall, cpu = time.perf_counter(), time.process_time()
    compute_loss()[0].backward()
    if device == "cpu":
        gigabytes = peak_gigabytes() - resident
    else:
        torch.cuda.synchronize()
        gigabytes = torch.cuda.max_memory_allocated() / 1e9
    return {
        "seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - cpu,
        "gigabytes": gigabytes,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[2048, 8192, 32768], help="pairs in the batch")
    parser.add_argument("--width", type=int, default=64, help="embedding size")
    parser.add_argument(
        "--losses", nargs="+", choices=NAMES, default=list(NAMES), help="losses to measure (default: all)"
    )
    parser.add_argument("--threads", type=int, default=1, help="torch threads, 0 = torch's default")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--limit", type=float, default=3.0, help="GB at which a loss stops")
    parser.add_argument(
        "--here", action="store_true", help="measure one loss here and print JSON (used by the script)"
    )
    args = parser.parse_args()
    if args.here:
        print(json.dumps(measure(args.losses[0], args.rows[0], args.width, args.threads, args.device)))
        return
    if args.device != "cpu" and not torch.cuda.is_available():
        raise SystemExit("not run: no CUDA device is available")
    same = [f"--{name}={getattr(args, name)}" for name in ("width", "threads", "device")]
    print(f"width {args.width}, {args.device}\n{'loss':32} {'rows':>7} {'MB':>8} {'CPU s':>8} {'s':>8}")
    for name in args.losses:
        for rows in sorted(args.rows):
            command = [sys.executable, __file__, "--here", "--losses", name, "--rows", str(rows), *same]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            measures = json.loads(done.stdout)
            numbers = f"{measures['gigabytes'] * 1e3:8.0f} {measures['cpu_seconds']:8.2f} {measures['seconds']:8.2f}"
            print(f"{name:32} {rows:7} {numbers}", flush=True)
            if measures["gigabytes"] > args.limit:
                break


if __name__ == "__main__":
    main()
