"""Cost of a batch row, and the batch sizes that fit on a GPU of 12, 24 or 80 GB: FLOPs and bytes, counted without one.

python benchmarks_perf/row_cost.py [--models vit_b32,vit_b16,vit_l14] [--text_length 32]

The forward pass of a step (bf16 autocast, fp32 weights) runs on the CPU with one row and with three. What autograd
keeps for the backward pass is counted, each storage once, which gives the bytes per row and the part that does not
depend on rows. Weights, gradients and AdamW's two states in fp32 are added. Further GPU memory use is not counted
(context, workspaces, fragmentation): 1 GB and a tenth of the memory stay free for it, which is our choice. No GPU is
used. With `mini_batch_size` M, a batch of any size needs about the memory of M rows. FLOPs are those of the towers, 2
for a multiply-add; a training step takes three times those of the forward pass, and four times with `mini_batch_size`.
"""

import argparse

import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import CLIPConfig, CLIPModel

from hfcomp.losses import info_nce_loss
from hfcomp.modeling import DualEncoder

GIGABYTE = 1e9
GPUS = (12, 24, 80)
FEW, MANY = 1, 3
COPIES = 4
"""Copies of a weight in fp32: the weight, its gradient, and AdamW's two states."""
LARGE = {
    "text_config": {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12},
    "vision_config": {
        **{"patch_size": 14, "hidden_size": 1024, "intermediate_size": 4096},
        **{"num_hidden_layers": 24, "num_attention_heads": 16},
    },
    "projection_dim": 768,
}
MODELS = {"vit_b32": {}, "vit_b16": {"vision_config": {"patch_size": 16}}, "vit_l14": LARGE}
# Negative texts and negative images per row
ROWS = {"pair": (0, 0), "+ 1 negative text": (1, 0), "+ 5 negative texts": (5, 0), "+ a negative pair": (1, 1)}
FIELDS = ("image_embeds", "text_embeds", "logit_scale", "negative_text_embeds", "negative_image_embeds")


def compute_loss(encoder: DualEncoder, rows: int, negatives: tuple[int, int], length: int) -> torch.Tensor:
    """Computes the loss of a batch. Negative images double it, as in Slipform."""
    texts, images = negatives
    encoder.required_features = FIELDS[: 3 + (texts > 0) + (images > 0)]
    batch = {"pixels": torch.zeros((rows * (1 + images), 3, 224, 224), dtype=torch.uint8)}
    batch["input_ids"] = torch.full((rows, length), 5)
    if texts:
        batch["negative_input_ids"] = torch.full((rows * texts, length), 5)
        batch["negative_text_mask"] = torch.ones((rows, texts), dtype=torch.bool)
    if images:
        batch["negative_image_mask"] = torch.ones(rows, dtype=torch.bool)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        features = encoder(**batch)
    image, text, more = features.image_embeds, features.text_embeds, features.negative_text_embeds
    if images:
        image, text, more = torch.cat([image, features.negative_image_embeds]), torch.cat([text, more[:, 0]]), None
    return info_nce_loss(image, text, logit_scale=features.logit_scale, negative_text=more)[0]


def cost(encoder: DualEncoder, rows: int, negatives: tuple[int, int], length: int) -> tuple[int, int]:
    """Returns the FLOPs of the forward pass, and the bytes kept for the backward pass, without the weights."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in encoder.parameters()}
    stored = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            stored[storage.data_ptr()] = storage.nbytes()
        return tensor

    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        FlopCounterMode(display=False) as flops,
    ):
        loss = compute_loss(encoder, rows, negatives, length)
    assert loss.requires_grad  # keeps the graph, and with it every stored tensor, alive until here
    return flops.get_total_flops(), sum(stored.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help="comma-separated models")
    parser.add_argument("--text_length", type=int, default=32, help="tokens of a batch's longest text")
    args = parser.parse_args()
    sizes = " ".join(f"{f'{size} GB':>7}" for size in GPUS)
    print(f"{'':8} {'per row':19} {'forward':>11} {'memory':>9} {'weights etc.':>13}   rows on {sizes}")
    for name in args.models.split(","):
        encoder = DualEncoder(CLIPModel(CLIPConfig(**MODELS[name]))).train()
        weights = COPIES * sum(parameter.nbytes for parameter in encoder.parameters())
        for kind, negatives in ROWS.items():
            few, many = (cost(encoder, rows, negatives, args.text_length) for rows in (FEW, MANY))
            flops, row = ((more - less) / (MANY - FEW) for less, more in zip(few, many, strict=True))
            fixed = weights + few[1] - FEW * row
            fits = [max(0, int((0.9 * size * GIGABYTE - GIGABYTE - fixed) / row)) for size in GPUS]
            numbers = " ".join(f"{count:>7,}" for count in fits)
            print(
                f"{name:8} {kind:19} {flops / 1e9:5.1f} GFLOP {row / 1e6:6.1f} MB {fixed / GIGABYTE:10.2f} GB"
                f"           {numbers}",
                flush=True,
            )


if __name__ == "__main__":
    main()
