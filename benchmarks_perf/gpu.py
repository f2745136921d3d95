"""Pairs per second on a GPU: ViT-B/32 in bf16, plain and Slipform, from decoded pixels.

python benchmarks_perf/gpu.py [--batch 1024] [--steps 20] [--warm_up 5] [--compile] [--text_tokens 24]

The pixels are uint8 `[N, 3, 224, 224]` in pinned memory, as from a pixel cache; every step copies them to the device,
normalizes and encodes them. Texts have `--text_tokens` tokens each (COCO captions padded to the longest of 1,024 have
30 on average, in batches of similar length 14). A step is what the Trainer runs: forward, loss, backward, gradient
norm, fused update. Weights are random, which does not change the speed.

The script prints pairs per second over the steps after the warm-up, FLOPs per step by torch's counter, and their share
of the GPU's half-precision peak. A Slipform pair is a positive with its negative pair: two images and two texts.
Without a GPU, the script says so and measures nothing.
"""

import argparse
import tempfile
import time
from pathlib import Path

import torch

GOALS = {"plain": 8000, "slipform": 4500}
"""Pairs per second at batch 1,024 on an H200."""
VOCABULARY, START, END = 49408, 49406, 49407


def make_batch(size: int, tokens: int, *, negatives: bool) -> dict:
    """Creates a batch like the collator's, with noise instead of photographs and captions."""
    from hfcomp.data.pixels import PixelBatch

    generator = torch.Generator().manual_seed(0)
    images = size * (2 if negatives else 1)
    pixels = torch.randint(0, 256, (images, 3, 224, 224), generator=generator, dtype=torch.uint8)

    def texts() -> torch.Tensor:
        ids = torch.randint(0, START, (size, tokens), generator=generator)
        ids[:, 0], ids[:, -1] = START, END
        return ids.cuda()

    batch = {"row": torch.arange(size).cuda(), "input_ids": texts(), "pixels": PixelBatch(pixels.pin_memory())}
    if negatives:
        valid = torch.ones(size, dtype=torch.bool).cuda()
        batch |= {"negative_input_ids": texts(), "negative_image_mask": valid}
        batch |= {"negative_text_mask": valid.unsqueeze(1), "negative_concreteness": torch.full((size, 1), 3.0).cuda()}
    return batch


def make_trainer(form: str, args: argparse.Namespace, folder: Path):
    """Creates the trainer of a form, ready for steps."""
    from transformers import CLIPConfig, CLIPModel

    from hfcomp import CementConfig, CementTrainer, InfoNCEConfig, InfoNCETrainer

    trainer_class, config_class = {
        "plain": (InfoNCETrainer, InfoNCEConfig),
        "slipform": (CementTrainer, CementConfig),
    }[form]
    config = config_class(
        output_dir=str(folder),
        per_device_train_batch_size=args.batch,
        bf16=True,
        torch_compile=args.compile,
        learning_rate=1e-6,
        report_to="none",
        disable_tqdm=True,
    )
    text = {"bos_token_id": START, "eos_token_id": END, "pad_token_id": END}
    model = CLIPModel(CLIPConfig(text_config={"vocab_size": VOCABULARY, **text})).cuda()
    trainer = trainer_class(model, config, processing_class=make_processor(folder))
    trainer.current_gradient_accumulation_steps = 1  # set by the Trainer's own loop
    trainer.create_optimizer()
    trainer.model_wrapped, trainer.optimizer = trainer.accelerator.prepare(trainer.model, trainer.optimizer)
    return trainer


def make_processor(folder: Path):
    """Creates a processor whose tokenizer has CLIP's size; it never reads a text."""
    from transformers import CLIPProcessor, CLIPTokenizer

    from hfcomp.modeling.image_processors import CLIPImageProcessorPil

    words = [f"w{index}" for index in range(START)]
    vocabulary = {word: index for index, word in enumerate([*words, "<|startoftext|>", "<|endoftext|>"])}
    tokenizer = CLIPTokenizer(vocab=vocabulary, merges=[], model_max_length=77)
    return CLIPProcessor(image_processor=CLIPImageProcessorPil(), tokenizer=tokenizer)


def step(trainer, batch: dict) -> None:
    """Runs what the Trainer's loop does with a batch."""
    trainer.training_step(trainer.model_wrapped, dict(batch))
    trainer.accelerator.clip_grad_norm_(trainer.model.parameters(), float("inf"))
    trainer.optimizer.step()
    trainer.callback_handler.on_optimizer_step(trainer.args, trainer.state, trainer.control)
    trainer.model.zero_grad()


def measure(form: str, args: argparse.Namespace) -> bool:
    """Prints a form's line and returns whether its goal is reached."""
    from hfcomp.trainers.profiling import FlopReader, peak_flops

    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(form, args, Path(folder))
        batch = make_batch(args.batch, args.text_tokens, negatives=form == "slipform")
        for _ in range(args.warm_up):
            step(trainer, batch)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        for _ in range(args.steps):
            step(trainer, batch)
        torch.cuda.synchronize()
        seconds = (time.perf_counter() - start) / args.steps
        peak_memory = torch.cuda.max_memory_allocated() / 1e9
        reader = FlopReader()
        reader.begin()
        reader.enter("encode")
        step(trainer, batch)
        reader.enter(None)
        reader.end()
    rate, peak = reader.flops["encode"] / seconds, peak_flops(torch.cuda.get_device_name())
    share = f"{rate / peak:.1%} of its peak" if peak else "hfcomp's table has no peak for it"
    pairs = args.batch / seconds
    print(
        f"{form:9} {pairs:9,.0f} pairs/s (goal {GOALS[form]:,} on an H200)  {seconds * 1000:7.1f} ms per step  "
        f"{rate / 1e12:6.0f} TFLOP/s, {share}  {peak_memory:.1f} GB",
        flush=True,
    )
    return pairs >= GOALS[form]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=1024, help="pairs per batch")
    parser.add_argument("--steps", type=int, default=20, help="measured steps")
    parser.add_argument("--warm_up", type=int, default=5, help="steps before the measured ones")
    parser.add_argument("--text_tokens", type=int, default=24, help="tokens per text")
    parser.add_argument("--compile", action="store_true", help="use torch_compile")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        goals = ", ".join(f"{form} ({goal:,} pairs/s)" for form, goal in GOALS.items())
        print(f"no GPU is visible, so nothing was measured. On an H200 the goals are {goals} at batch {args.batch:,}.")
        return
    print(f"{torch.cuda.get_device_name()}, ViT-B/32, bf16, batch {args.batch:,}, compiled: {args.compile}")
    met = [measure(form, args) for form in GOALS]
    if not all(met) and "H200" in torch.cuda.get_device_name():
        raise SystemExit("missed")


if __name__ == "__main__":
    main()
