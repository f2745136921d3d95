"""The objectives of training.py: each step against an InfoNCE step that encodes the same images and texts.

All trainers share one model and each has one batch, prepared in advance. A step is what the Trainer runs per batch:
forward, loss, backward, clipped gradients, optimizer. The matched step uses the same trainer, batch and features, so
the towers do the same work, and computes InfoNCE over all of them instead of the objective: negative images with their
captions are further pairs, and all other texts are further negatives. The two take turns, in alternating order. The
script prints the ratio of CPU and wall time to the matched step, as median (smallest to largest) over turns, and what
the towers encode. The learning rate is 0, so every step has the same weights.

The rows are those of training.py with rule-based negatives (swaps and keywords), a negative image (the next row's),
the noun phrases of the caption and a group of ten. With towers below ViT-B/32, the loss is a larger part of a step.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from types import MethodType

import torch

NEGATIVES, CONCEPTS = 5, 4
# Name, trainer and settings. AHNPL's paper has 5 negatives.
OBJECTIVES = {
    "InfoNCE": ("InfoNCETrainer", {}),
    "HN (1 negative)": ("InfoNCETrainer", {"num_negatives": 1}),
    "NegCLIP (drawn)": ("InfoNCETrainer", {"num_negatives": 1, "draw_negatives": True}),
    "Cement": ("CementTrainer", {}),
    "TripletCLIP": ("TripletClipTrainer", {}),
    "CE-CLIP": ("CEClipTrainer", {"num_negatives": NEGATIVES}),
    "AHNPL": ("AHNPLTrainer", {"num_negatives": NEGATIVES}),
    "AHNPL released": ("AHNPLReleasedTrainer", {"num_negatives": NEGATIVES}),
    "DCL": ("DCLTrainer", {"num_negatives": NEGATIVES}),
    "Replaced": ("ReplacedNegativesTrainer", {"num_negatives": NEGATIVES}),
    "C2LIP": ("C2LIPTrainer", {"max_concepts": CONCEPTS}),
    "CLEAR GLASS": ("ClearGlassTrainer", {"groups_per_batch": 2}),
    "CLEAR GLASS released": ("ClearGlassReleasedTrainer", {"groups_per_batch": 2}),
    "text alignment": ("TextAlignmentTrainer", {"allow_levels": True}),
    "HierarCaps": ("HierarCapsTrainer", {"chain_columns": ["generalized_caption", "caption"]}),
    "sigmoid": ("InfoNCETrainer", {"sigmoid": True}),
    "Cement, sigmoid": ("CementTrainer", {}),
}
WITH_BIAS = ("sigmoid", "Cement, sigmoid")
OBJECTIVE_TARGET = 1.05


def make_rows(pairs, batch: int):
    """Creates rows with everything that an objective reads."""
    from ahnpl import captions_with_negatives
    from datasets import Dataset, Features, Image, List, Value

    from hfcomp.data.concepts.columns import concept_columns, noun_phrase_extractor
    from hfcomp.parsing import load_parser

    usable, images = [], pairs.cast_column("image", Image(decode=False))["image"][:]
    for place, caption in enumerate(pairs["caption"]):
        for text, negatives, kinds in captions_with_negatives([caption], NEGATIVES):
            usable.append({"image": images[place], "caption": text, "negative_captions": negatives})
            usable[-1] |= {"negative_kinds": kinds, "negative_concreteness": [3.0] * len(kinds)}
        if len(usable) == batch:
            break
    rows = [dict(usable[index % len(usable)]) for index in range(batch)]
    columns, _ = concept_columns(
        [row["caption"] for row in rows], noun_phrase_extractor(load_parser("rules")), max_concepts=None
    )
    for index, row in enumerate(rows):
        row["negative_image"] = rows[(index + 1) % batch]["image"]
        row |= {name: values[index] for name, values in columns.items()}
        group = index * 2 // batch
        row |= {"group": f"group {group}", "hard_negative_groups": [f"group {1 - group}"]}
        row["generalized_caption"] = " ".join(row["caption"].split()[:4])
    text, texts = Value("string"), List(Value("string"))
    features = {"image": Image(), "negative_image": Image(), "caption": text, "negative_captions": texts}
    features |= {"negative_concreteness": List(Value("float32")), "negative_kinds": texts}
    features |= {"concepts": texts, "concept_spans": List(List(List(Value("int32"))))}
    features |= {"group": text, "hard_negative_groups": texts, "generalized_caption": text}
    return Dataset.from_list(rows, features=Features(features))


def matched_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
    """Computes InfoNCE over all features that the trainer's own objective gets."""
    from hfcomp.losses import info_nce_loss

    f = self.gather_features(model, inputs)
    if "image_embeds" not in f:  # texts only
        image, text = f.text_embeds.unflatten(0, (-1, 2)).unbind(1)
        further, negatives = [], None
    else:
        image, text, negatives = f.image_embeds, f.text_embeds, f.negative_text_embeds
        further = [f.concept_embeds.unflatten(0, (len(image), -1))] if f.concept_embeds is not None else []
    if f.negative_image_embeds is not None and negatives is not None:
        image, text = torch.cat([image, f.negative_image_embeds]), torch.cat([text, negatives[:, 0]])
        negatives = negatives[:, 1:] if negatives.shape[1] > 1 else None
    further += [negatives] if negatives is not None else []
    extra = torch.cat(further, dim=1) if further else None
    scale = f.logit_scale if f.logit_scale is not None else image.new_tensor(14.3)
    loss, metrics = info_nce_loss(image, text, logit_scale=scale, negative_text=extra)
    return self.reduce_loss(loss + 0 * sum_learned(f), metrics, f, return_outputs)


def sum_learned(f) -> torch.Tensor | float:
    """Sums what the objective learns in addition to the towers, which needs a gradient for the same update."""
    learned = [*(f.learned or {}).values(), *([f.logit_bias] if f.logit_bias is not None else [])]
    return sum(value.sum() for value in learned) if learned else 0.0


def make_pair(name: str, model, processor, rows, args: argparse.Namespace, folder: Path):
    """Creates a trainer and its matched one, each with the batch."""
    from ahnpl import Form

    import hfcomp.trainers as trainers

    kind, own = OBJECTIVES[name]
    trainer_class = getattr(trainers, kind)
    settings = {"output_dir": str(folder), "learning_rate": 0.0, "max_grad_norm": 1.0, "report_to": "none"}
    settings |= {"disable_tqdm": True, "log_level": "error", "use_cpu": args.device == "cpu"}
    settings |= {"bf16": args.dtype == "bf16", **own}
    if "groups_per_batch" in own:
        settings["pairs_per_group"] = args.batch // own["groups_per_batch"]
    else:
        settings["per_device_train_batch_size"] = args.batch
    forms = []
    for matched in (False, True):
        config = trainer_class.config_class(**settings)
        trainer = trainer_class(model, config, train_dataset=rows, processing_class=processor)
        if matched:
            trainer.compute_loss = MethodType(matched_loss, trainer)
        batch = forms[0].batch if forms else next(iter(trainer.get_train_dataloader()))
        trainer.current_gradient_accumulation_steps = 1
        trainer.create_optimizer()
        trainer.model_wrapped, trainer.optimizer = trainer.accelerator.prepare(trainer.model, trainer.optimizer)
        forms.append(Form(trainer, batch))
    return forms


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def compare_objectives(args: argparse.Namespace, folder: Path, pairs: list) -> bool:
    """Prints a line per objective and returns whether all stay within the target."""
    from transformers import AutoModel, AutoProcessor
    from transformers.utils import logging

    logging.set_verbosity_error()
    torch.set_num_threads(args.threads)
    rows = make_rows(pairs, args.batch)
    processor = AutoProcessor.from_pretrained(folder, trust_remote_code=False)
    print(f"\n{'':22}{'cpu vs matched':>22}{'step vs matched':>22}{'cpu s':>8}{'images':>8}{'texts':>7}")
    missed = []
    for name in args.only or OBJECTIVES:
        with tempfile.TemporaryDirectory() as output:
            model = AutoModel.from_pretrained(folder, trust_remote_code=False, dtype=torch.float32)
            if name in WITH_BIAS:
                model.logit_bias = torch.nn.Parameter(torch.tensor(-10.0))
            own, matched = make_pair(name, model, processor, rows, args, Path(output))
            for turn in range(args.rounds * args.steps):
                for form in (own, matched)[:: -1 if turn % 2 else 1]:
                    form.time_step()
        cpu, wall = (
            [mine / other for mine, other in zip(getattr(own, measure), getattr(matched, measure), strict=True)]
            for measure in ("cpu_seconds", "seconds")
        )
        ratio = statistics.median(own.cpu_seconds) / statistics.median(matched.cpu_seconds)
        missed += [name] if ratio > OBJECTIVE_TARGET else []
        images = len(own.batch["pixels"]) if "pixels" in own.batch else 0
        texts = sum(len(own.batch[key]) for key in own.batch if key.endswith("input_ids"))
        seconds = statistics.median(own.cpu_seconds)
        print(f"{name:22}{spread(cpu):>22}{spread(wall):>22}{seconds:8.2f}{images:8}{texts:7}", flush=True)
        del own, matched, model
    print(f"above {OBJECTIVE_TARGET} in CPU time: {', '.join(missed) or 'none'}", file=sys.stdout)
    return not missed
