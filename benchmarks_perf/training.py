"""A training step here against other trainers, and each objective against an InfoNCE step that encodes the same.

HFCOMP_REAL_DATA=FOLDER python benchmarks_perf/training.py [--model_size b32] [--batch 32] [--threads 1]
    [--rounds 3] [--steps 3] [--device cpu] [--dtype fp32] [--parts peers objectives] [--only NAME ...]

Peers: one folder of a CLIP with random weights, one list of photographs with a caption each, and for each form the
trainer as its users start it: Hugging Face's `Trainer` on `CLIPModel(return_loss=True)` with texts padded to 77 and to
the longest of the batch, the trainer of sentence-transformers with its symmetric multiple-negatives loss, and
`InfoNCETrainer`. A form that is not installed is skipped by name. Every run is a process of its own, so that peaks of
memory do not mix, and the forms take turns; the first step of a run, in which libraries start, is not counted.

For each form: samples per second over the whole loop (reading, decoding and resizing the images included, no workers),
wall and CPU time of a step once its batch is there, and the process's peak memory while it trains. Ratios are of
runs of one round, as median (smallest to largest): above 1, ours is faster, or smaller. On a machine that does other
work CPU time is the steadier, with --threads 1 above all.

Objectives: see training_objectives.py, whose table this prints after its own.

Photographs and captions are those of COCO if HFCOMP_REAL_DATA names a folder with coco_open_256.jsonl and
clip_tokenizer/; otherwise scenes of hfcomp's sandbox with their captions, and its vocabulary.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from training_objectives import compare_objectives, spread

OURS = "hfcomp"
PEERS = {
    OURS: "InfoNCETrainer",
    "hf-77": "Hugging Face Trainer, padded to 77",
    "hf-longest": "Hugging Face Trainer, padded to the longest",
    "sentence-transformers": "sentence-transformers, symmetric loss",
}
TARGET = 1.0
SIZES = {
    "b32": {},
    "small": {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 6, "num_attention_heads": 4},
    "tiny": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2},
}
MEASURES = ("samples_per_second", "seconds", "cpu_seconds", "megabytes")


def write_model(folder: Path, size: str) -> str:
    """A CLIP with random weights; says whose vocabulary it has."""
    from transformers import CLIPConfig

    from hfcomp.modeling.random_clip import write_random_clip
    from hfcomp.sandbox.bases import base_folder

    data = os.environ.get("HFCOMP_REAL_DATA")
    towers = {"text_config": dict(SIZES[size]), "vision_config": dict(SIZES[size])}
    if data:
        write_random_clip(folder, str(Path(data) / "clip_tokenizer"), seed=0, config=CLIPConfig(**towers))
        return "CLIP's vocabulary"
    shutil.copytree(base_folder(), folder)
    return "the sandbox's own model, whatever --model_size says"


def read_pairs(number: int):
    """Photographs with a caption each, again from the first where they are too few; and what they are."""
    import datasets

    data = os.environ.get("HFCOMP_REAL_DATA")
    if data:
        with (Path(data) / "coco_open_256.jsonl").open(encoding="utf-8") as lines:
            found = [json.loads(line) for line in lines]
        rows = [{"image": str(Path(data) / row["image"]), "caption": row["captions"][0]} for row in found]
        rows = [rows[index % len(rows)] for index in range(number)]
        return datasets.Dataset.from_list(rows).cast_column("image", datasets.Image()), "photographs of COCO val2017"
    from hfcomp.sandbox.datasets import training_set

    return training_set(number, seed=0).select_columns(["image", "caption"]), "scenes of the sandbox"


def now(device: str) -> float:
    """Seconds, once the device has done what it was asked."""
    if device == "cuda":
        import torch

        torch.cuda.synchronize()
    return time.perf_counter()


def cpu_seconds() -> float:
    """CPU seconds of this process so far, of all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def make_watch(device: str):
    """A callback of the Trainer that times steps, and the loop around them."""
    from transformers import TrainerCallback

    class Watch(TrainerCallback):
        """Seconds of each step, CPU seconds, and seconds since the step before; the first step is left out."""

        def __init__(self) -> None:
            self.seconds, self.cpu_seconds, self.loop_seconds = [], [], []
            self.last = None

        def on_step_begin(self, args, state, control, **kwargs) -> None:
            self.start, self.cpu = now(device), cpu_seconds()

        def on_step_end(self, args, state, control, **kwargs) -> None:
            end = now(device)
            if self.last is not None:
                self.seconds.append(end - self.start)
                self.cpu_seconds.append(cpu_seconds() - self.cpu)
                self.loop_seconds.append(end - self.last)
            self.last = end

    return Watch()


def settings_of(args: argparse.Namespace, folder: Path) -> dict:
    """What all trainers are given, in transformers' names."""
    return {
        "output_dir": str(folder / "output"),
        "per_device_train_batch_size": args.batch,
        "max_steps": args.steps + 1,
        "learning_rate": 1e-6,
        "weight_decay": 0.1,
        "max_grad_norm": 1.0,
        "warmup_steps": 0,
        "logging_steps": 1000,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": args.device == "cpu",
        "bf16": args.dtype == "bf16",
        "dataloader_drop_last": True,
    }


def make_trainer(form: str, model: Path, rows, settings: dict):
    """A form's trainer, as its users build it."""
    if form == OURS:
        from hfcomp import InfoNCEConfig, InfoNCETrainer

        return InfoNCETrainer(model, InfoNCEConfig(**settings), train_dataset=rows)
    if form == "sentence-transformers":
        from sentence_transformers import (
            SentenceTransformer,
            SentenceTransformerTrainer,
            SentenceTransformerTrainingArguments,
        )
        from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

        encoder = SentenceTransformer(str(model))
        loss = MultipleNegativesRankingLoss(
            encoder, directions=("query_to_doc", "doc_to_query"), partition_mode="per_direction"
        )
        own = SentenceTransformerTrainingArguments(**settings)
        return SentenceTransformerTrainer(model=encoder, args=own, train_dataset=rows, loss=loss)
    from transformers import CLIPModel, CLIPProcessor, Trainer, TrainingArguments

    processor = CLIPProcessor.from_pretrained(model, trust_remote_code=False)
    padding = "max_length" if form == "hf-77" else "longest"

    def collate(batch):
        images, texts = ([row[name] for row in batch] for name in ("image", "caption"))
        images = [image.convert("RGB") for image in images]
        made = processor(text=texts, images=images, padding=padding, truncation=True, return_tensors="pt")
        return {**made, "return_loss": True}

    clip = CLIPModel.from_pretrained(model, trust_remote_code=False)
    own = TrainingArguments(**settings, remove_unused_columns=False)
    return Trainer(model=clip, args=own, train_dataset=rows, data_collator=collate)


def measure(form: str, args: argparse.Namespace) -> dict:
    """One run of a form in this process."""
    import torch
    from transformers.utils import logging

    from hfcomp.trainers.cost import PeakMemory

    logging.set_verbosity_error()
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as folder:
        rows, _ = read_pairs((args.steps + 2) * args.batch)
        trainer = make_trainer(form, Path(args.folder), rows, settings_of(args, Path(folder)))
        watch = make_watch(args.device)
        trainer.add_callback(watch)
        memory = PeakMemory()
        trainer.train()
        peak = memory.read(trainer.args.device)[0]
    median = {name: statistics.median(getattr(watch, name)) for name in ("seconds", "cpu_seconds", "loop_seconds")}
    return {
        "samples_per_second": args.batch / median["loop_seconds"],
        "seconds": median["seconds"],
        "cpu_seconds": median["cpu_seconds"],
        "megabytes": peak / 1e6,
    }


def run_in_turns(args: argparse.Namespace, folder: Path) -> dict[str, list[dict]]:
    """Each form's results, one for each round."""
    forms = [form for form in PEERS if installed(form)]
    given = {name: getattr(args, name) for name in ("batch", "threads", "steps", "device", "dtype")}
    options = [f"--{name}={value}" for name, value in given.items()]
    results = defaultdict(list)
    for turn in range(args.rounds):
        for form in forms[:: -1 if turn % 2 else 1]:
            command = [sys.executable, __file__, f"--form={form}", f"--folder={folder}", *options]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"{form} failed:\n{done.stderr[-3000:]}")
            results[form].append(json.loads(done.stdout.splitlines()[-1]))
            print(f"round {turn + 1}, {form}: {results[form][-1]}", file=sys.stderr, flush=True)
    return results


def installed(form: str) -> bool:
    """Whether a form can run; says so where it cannot."""
    if form != "sentence-transformers":
        return True
    import importlib.util

    if importlib.util.find_spec("sentence_transformers") is not None:
        return True
    print(f"{form}: skipped, as it is not installed (pip install sentence-transformers)")
    return False


def compare_peers(results: dict[str, list[dict]]) -> bool:
    """Prints the tables, and returns whether ours is as fast as the fastest, in CPU time of a step."""
    print(f"\n{'':24}{'samples/s':>10}{'step s':>9}{'cpu s':>9}{'peak MB':>9}")
    for form, runs in results.items():
        one = {name: statistics.median(run[name] for run in runs) for name in MEASURES}
        print(
            f"{form:24}{one['samples_per_second']:10.2f}{one['seconds']:9.2f}{one['cpu_seconds']:9.2f}"
            f"{one['megabytes']:9.0f}"
        )
    print("\nTheirs over ours (samples/s: ours over theirs), by rounds: median (smallest to largest)")
    print(f"{'':24}{'samples/s':>20}{'step':>20}{'cpu':>20}{'peak memory':>20}")
    lowest = float("inf")
    for form, runs in results.items():
        if form == OURS:
            continue
        pairs = list(zip(results[OURS], runs, strict=True))
        ratios = {name: [its[name] / own[name] for own, its in pairs] for name in MEASURES[1:]}
        ratios["samples_per_second"] = [own["samples_per_second"] / its["samples_per_second"] for own, its in pairs]
        lowest = min(lowest, statistics.median(ratios["cpu_seconds"]))
        print(f"{form:24}" + "".join(f"{spread(ratios[name]):>20}" for name in MEASURES))
    print(f"\nfastest peer over ours, CPU time of a step: {lowest:.3f}; at least {TARGET} is asked for")
    return lowest >= TARGET


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_size", choices=SIZES, default="b32", help="ViT-B/32, or smaller towers")
    parser.add_argument("--batch", type=int, default=32, help="pairs in a batch")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each form, in turns")
    parser.add_argument("--steps", type=int, default=3, help="steps of a run that are counted")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=("fp32", "bf16"), default="fp32", help="bf16: autocast")
    parser.add_argument("--parts", nargs="+", choices=("peers", "objectives"), default=["peers", "objectives"])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="of the objectives, these")
    parser.add_argument("--form", choices=PEERS, help="measure this form here and print JSON (used by the script)")
    parser.add_argument("--folder", help="of the model (used by the script)")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    if args.form:
        print(json.dumps(measure(args.form, args)))
        return
    met = True
    with tempfile.TemporaryDirectory() as folder:
        vocabulary = write_model(Path(folder) / "model", args.model_size)
        what = read_pairs(1)[1]
        print(f"{args.model_size}, batch {args.batch}, {args.dtype}, {args.device}, {args.threads} threads")
        print(f"{what}, {vocabulary}; {args.rounds} rounds of {args.steps} steps; load {os.getloadavg()[0]:.1f}")
        if "peers" in args.parts:
            met = compare_peers(run_in_turns(args, Path(folder) / "model"))
        if "objectives" in args.parts:
            pairs = read_pairs(12 * args.batch)[0]
            met = compare_objectives(args, Path(folder) / "model", pairs) and met
    print(f"load {os.getloadavg()[0]:.1f} at the end")
    if args.model_size != "b32" and "peers" in args.parts:
        print("towers this small say nothing about the target of peers: much of a step is overhead")
    elif not met:
        raise SystemExit("missed")


if __name__ == "__main__":
    main()
