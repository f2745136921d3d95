"""Time and memory of CLEAR GLASS's pairwise loss against its plain form, forward and backward.

python benchmarks_perf/group_loss.py [--groups 8] [--members 64] [--width 512] [--repeats 3] [--passes 10]

The plain form follows Eqs. 1 to 4: all joint vectors [G, N, N, D] as one tensor, their mean and their cosines with the
centroids. Every run is a separate process, so peaks do not mix; medians are compared. A run's first pass gives the
memory, the peak resident size minus the resident size once the inputs exist: joint vectors or chunks, logits and
gradients. Its time is the median of the passes after it, as in training. Loss and gradients of the two are compared by
the norm of their difference.

With an accelerator, both run there too, at --gpu_groups and --gpu_members, and memory is what torch allocated in
addition to the inputs.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F

TIME_TARGET = 1 / 10
MEMORY_TARGET = 1 / 10
ERROR_TARGET = 1e-5
SETTINGS = {"temperature": 0.1, "inner_temperature": 0.07, "alpha": 0.7}


def plain(image, text, temperature, inner_temperature, alpha):
    groups = torch.arange(len(image), device=image.device)
    logits = torch.einsum("gid,hjd->gihj", image, text) / temperature
    to_text, to_image = logits.logsumexp(3), logits.permute(2, 3, 0, 1).logsumexp(3)  # [G, N, G]
    outer = (
        sum(F.cross_entropy(x.flatten(0, 1), groups.repeat_interleave(x.shape[1])) for x in (to_text, to_image)) / 2
    )
    joint = image.unsqueeze(2) * text.unsqueeze(1)
    centroid = F.normalize(joint.mean((1, 2)), dim=1)
    cosines = F.normalize(joint, dim=3).flatten(0, 2) @ centroid.T
    inner = F.cross_entropy(cosines / inner_temperature, groups.repeat_interleave(image.shape[1] ** 2))
    return alpha * inner + (1 - alpha) * outer


def chunked_loss(image, text, **settings):
    from hfcomp.losses import pairwise_group_loss

    return pairwise_group_loss(image, text, **settings)[0]


FORMS = {"plain": plain, "chunked": chunked_loss}


def memory(device: str) -> tuple[int, int]:
    """Returns the bytes held now, and the peak."""
    if device == "cuda":
        return torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    return resident, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def finish(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def time_pass(args: argparse.Namespace, image: torch.Tensor, text: torch.Tensor) -> dict[str, float]:
    """Returns the seconds of a forward and backward pass."""
    image.grad = text.grad = None
    start, cpu = time.perf_counter(), time.process_time()
    loss = FORMS[args.form](image, text, **SETTINGS)
    finish(args.device)
    forward = time.perf_counter() - start
    loss.backward()
    finish(args.device)
    return {"wall": time.perf_counter() - start, "forward": forward, "cpu": time.process_time() - cpu}


def measure(args: argparse.Namespace) -> dict[str, float]:
    """Runs forward and backward passes in this process and writes loss and gradients to args.out."""
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    sizes = (args.groups, args.members, args.width)
    image, text = (F.normalize(torch.randn(sizes), dim=2).to(args.device).requires_grad_() for _ in range(2))
    few = [x[:2, :8].detach().requires_grad_() for x in (image, text)]
    FORMS[args.form](*few, **SETTINGS).backward()  # loads libraries and starts threads
    finish(args.device)
    held, _ = memory(args.device)
    if args.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    loss = FORMS[args.form](image, text, **SETTINGS)
    loss.backward()
    finish(args.device)
    memory_use = {"megabytes": (memory(args.device)[1] - held) / 1e6}
    torch.save({"loss": loss.detach(), "image": image.grad, "text": text.grad}, args.out)
    passes = [time_pass(args, image, text) for _ in range(args.passes)]
    return memory_use | {key: statistics.median(times[key] for times in passes) for key in passes[0]}


def compare(args: argparse.Namespace, device: str, groups: int, members: int) -> bool:
    """Runs both forms, prints them and returns whether every target is met."""
    sizes = [f"--groups={groups}", f"--members={members}", f"--width={args.width}"]
    sizes += [f"--threads={args.threads}", f"--passes={args.passes}", f"--device={device}"]
    results = {form: [] for form in FORMS}
    with tempfile.TemporaryDirectory() as folder:
        out = {form: Path(folder) / f"{form}.pt" for form in FORMS}
        for _ in range(args.repeats):
            for form in FORMS:
                command = [sys.executable, __file__, f"--form={form}", f"--out={out[form]}", *sizes]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                results[form].append(json.loads(done.stdout))
        expected, actual = (torch.load(out[form], map_location="cpu") for form in FORMS)
    errors = {name: float((actual[name] - x).norm() / x.norm()) for name, x in expected.items()}
    medians = {
        form: {key: statistics.median(run[key] for run in runs) for key in runs[0]} for form, runs in results.items()
    }
    print(f"{device}: {groups} groups of {members} x {args.width}, {args.repeats} run(s)")
    for form, value in medians.items():
        times = "  ".join(f"{name} {value[name]:8.4f} s" for name in ("wall", "forward", "cpu"))
        print(f"{form:>8}: {times}  {value['megabytes']:8.1f} MB")
    ratio = {key: medians["chunked"][key] / medians["plain"][key] for key in medians["plain"]}
    print(f"time   1/{1 / ratio['wall']:.1f} (cpu 1/{1 / ratio['cpu']:.1f}; target 1/10)")
    print(f"memory 1/{1 / ratio['megabytes']:.1f} (target 1/10)")
    print("relative difference:", ", ".join(f"{name} {error:.1e}" for name, error in errors.items()), "(target 1e-5)")
    fast, lean = ratio["wall"] <= TIME_TARGET, ratio["megabytes"] <= MEMORY_TARGET
    return fast and lean and max(errors.values()) <= ERROR_TARGET


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=8, help="groups in the batch")
    parser.add_argument("--members", type=int, default=64, help="pairs per group")
    parser.add_argument("--width", type=int, default=512, help="embedding size")
    parser.add_argument("--gpu_groups", type=int, default=16, help="groups on an accelerator")
    parser.add_argument("--gpu_members", type=int, default=128, help="pairs per group on an accelerator")
    parser.add_argument("--repeats", type=int, default=3, help="runs per form")
    parser.add_argument("--passes", type=int, default=10, help="timed passes per run")
    parser.add_argument("--threads", type=int, default=2, help="torch threads, 0 = torch's default")
    parser.add_argument("--form", choices=FORMS, help="measure this form here and print JSON (used by the script)")
    parser.add_argument("--device", default="cpu", help="device to measure on (used by the script)")
    parser.add_argument("--out", help="output file for loss and gradients (used by the script)")
    args = parser.parse_args()
    if args.form:
        print(json.dumps(measure(args)))
        return
    met = compare(args, "cpu", args.groups, args.members)
    if torch.cuda.is_available():
        met &= compare(args, "cuda", args.gpu_groups, args.gpu_members)
    print("targets met" if met else "targets missed")


if __name__ == "__main__":
    main()
