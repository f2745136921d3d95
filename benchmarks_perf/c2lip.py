"""Time and memory of C2LIP's cross-attended concept loss against a loop over concepts, forward and backward.

python benchmarks_perf/c2lip.py [--images 96] [--concepts 384] [--tokens 196] [--width 768] [--repeats 1] [--threads 2]

The loop follows Eqs. 6 and 7: for each concept a softmax over the tokens of every image, their weighted sum as a
batched product, its L2 norm and a column of logits. Every run is a separate process, so peaks do not mix; medians are
compared. Memory is the peak resident size minus the resident size once the inputs exist: scores, buffers and
gradients. Loss and gradients of the two are compared by the norm of their difference. The loop takes minutes at the
default size.

With an accelerator, both run there too, at --gpu_images and --gpu_concepts, and memory is what torch allocated in
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
MEMORY_TARGET = 1 / 4
ERROR_TARGET = 1e-5


def loop(tokens, concepts, owner, scale, bias):
    image = torch.arange(len(tokens), device=tokens.device)
    total = 0.0
    for concept, own in zip(concepts, owner, strict=True):
        weights = (tokens @ concept).softmax(1)
        attended = F.normalize(torch.bmm(weights.unsqueeze(1), tokens).squeeze(1), dim=1)
        sign = torch.where(image == own, 1.0, -1.0)
        total = total - F.logsigmoid(sign * (scale * attended @ concept + bias)).sum()
    return total / len(concepts)


def chunked_loss(tokens, concepts, owner, scale, bias):
    from hfcomp.losses.c2lip import cross_attended_concept_loss

    return cross_attended_concept_loss(tokens, concepts, owner, logit_scale=scale, logit_bias=bias)[0]


FORMS = {"loop": loop, "chunked": chunked_loss}


def memory(device: str) -> tuple[int, int]:
    """Returns the bytes held now, and the peak."""
    if device == "cuda":
        return torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    return resident, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def finish(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def measure(args: argparse.Namespace) -> dict[str, float]:
    """Runs a forward and backward pass in this process and writes loss and gradients to args.out."""
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    tokens = F.normalize(torch.randn(args.images, args.tokens, args.width), dim=2).to(args.device).requires_grad_()
    concepts = F.normalize(torch.randn(args.concepts, args.width), dim=1).to(args.device).requires_grad_()
    scale, bias = (torch.tensor(value, device=args.device, requires_grad=True) for value in (100.0, -10.0))
    owner, inputs = torch.arange(args.concepts, device=args.device) % args.images, (tokens, concepts, scale, bias)
    few = [x[:2].detach().requires_grad_() for x in (tokens, concepts)]
    torch.autograd.grad(FORMS[args.form](*few, owner[:2], scale, bias), few)  # loads libraries and starts threads
    finish(args.device)
    held, _ = memory(args.device)
    if args.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    start, cpu = time.perf_counter(), time.process_time()
    loss = FORMS[args.form](tokens, concepts, owner, scale, bias)
    finish(args.device)
    forward = time.perf_counter() - start
    loss.backward()
    finish(args.device)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    measures = {"wall": seconds, "forward": forward, "cpu": cpu}
    measures["megabytes"] = (memory(args.device)[1] - held) / 1e6
    names = ("tokens", "concepts", "scale", "bias")
    torch.save({"loss": loss.detach()} | {n: x.grad for n, x in zip(names, inputs, strict=True)}, args.out)
    return measures


def compare(args: argparse.Namespace, device: str, images: int, concepts: int) -> bool:
    """Runs both forms, prints them and returns whether every target is met."""
    sizes = [f"--tokens={args.tokens}", f"--width={args.width}", f"--threads={args.threads}"]
    sizes += [f"--images={images}", f"--concepts={concepts}", f"--device={device}"]
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
    print(
        f"{device}: {images} images x {concepts} concepts x {args.tokens} tokens x {args.width}, {args.repeats} run(s)"
    )
    for form, value in medians.items():
        times = "  ".join(f"{name} {value[name]:8.3f} s" for name in ("wall", "forward", "cpu"))
        print(f"{form:>8}: {times}  {value['megabytes']:8.1f} MB")
    ratio = {key: medians["chunked"][key] / medians["loop"][key] for key in medians["loop"]}
    print(f"time   1/{1 / ratio['wall']:.1f} (cpu 1/{1 / ratio['cpu']:.1f}; target 1/10)")
    print(f"memory 1/{1 / ratio['megabytes']:.1f} (target 1/4)")
    print("relative difference:", ", ".join(f"{name} {error:.1e}" for name, error in errors.items()), "(target 1e-5)")
    fast, lean = ratio["wall"] <= TIME_TARGET, ratio["megabytes"] <= MEMORY_TARGET
    return fast and lean and max(errors.values()) <= ERROR_TARGET


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=96, help="images in the batch")
    parser.add_argument("--concepts", type=int, default=384, help="concepts in the batch")
    parser.add_argument("--tokens", type=int, default=196, help="tokens per image")
    parser.add_argument("--width", type=int, default=768, help="embedding size")
    parser.add_argument("--gpu_images", type=int, default=768, help="images on an accelerator")
    parser.add_argument("--gpu_concepts", type=int, default=3072, help="concepts on an accelerator")
    parser.add_argument("--repeats", type=int, default=1, help="runs per form")
    parser.add_argument("--threads", type=int, default=2, help="torch threads, 0 = torch's default")
    parser.add_argument("--form", choices=FORMS, help="measure this form here and print JSON (used by the script)")
    parser.add_argument("--device", default="cpu", help="device to measure on (used by the script)")
    parser.add_argument("--out", help="output file for loss and gradients (used by the script)")
    args = parser.parse_args()
    if args.form:
        print(json.dumps(measure(args)))
        return
    met = compare(args, "cpu", args.images, args.concepts)
    if torch.cuda.is_available():
        met &= compare(args, "cuda", args.gpu_images, args.gpu_concepts)
    print("targets met" if met else "targets missed")


if __name__ == "__main__":
    main()
