"""Training of every family of dual encoders: objectives, mini-batches, freezing, interpolation and conversions."""

from __future__ import annotations

import functools

import pytest
import torch
from transformers import AutoModel, CLIPConfig

from hfcomp.convert import convert_checkpoint, export_llava, export_open_clip
from hfcomp.families import family_of
from hfcomp.modeling import encode_images, encode_texts, load_backbone
from hfcomp.modeling.embedding import blank_images
from hfcomp.modeling.interpolation import COUNTER, Interpolation
from hfcomp.trainers import CementTrainer, InfoNCETrainer
from tests import families, tiny
from tests.evaluation.pairs import readers
from tests.trainers.group_rows import add_groups
from tests.trainers.objectives import SETTINGS, trainer_class
from tests.trainers.runs import batch_of, build

NAMES = families.dual_encoders()
NEGATIVES = {"num_negatives": 2, "sigmoid": False}
NEGCLIP = NEGATIVES | {"num_negatives": 1, "draw_negatives": True, "num_neighbors": 1}
OBJECTIVES = {name: settings for name, settings in SETTINGS.items() if name != "C2LIPTrainer"} | {
    "InfoNCETrainer, negatives": NEGATIVES,
    "InfoNCETrainer, NegCLIP": NEGCLIP,
    "TripletClipTrainer, crops": {"random_crop": 0.5, "mini_batch_size": 3},
}
# Each family and each objective at least once; crops where only the processor prepares images.
LONGEST = range(max(len(NAMES), len(OBJECTIVES)))
SAMPLE = {(NAMES[n % len(NAMES)], list(OBJECTIVES)[n % len(OBJECTIVES)]) for n in LONGEST}
SAMPLE |= {("siglip2", "TripletClipTrainer, crops"), ("siglip2", "CementTrainer")}
GRID = [(family, name) for family in NAMES for name in OBJECTIVES]
# By default families with one tensor per image or several, batch norms, one vector per token, a causal tower.
DEFAULT = ("align", "clip", "flava", "siglip2")
SOME = [pytest.param(name, marks=[] if name in DEFAULT else pytest.mark.slow) for name in NAMES]
TEXT_OBJECTIVES = ("HierarCapsTrainer", "TextAlignmentTrainer")


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory):
    """Returns the folder of a family's tiny model, by name."""
    root = tmp_path_factory.mktemp("families")
    return functools.cache(lambda name: families.write_family(root / name, name))


@pytest.fixture(scope="module")
def rows():
    rows = add_groups(tiny.pairs(16))
    return rows.add_column("neighbor_ids", [[f"tiny-{(number + 1) % 16}"] for number in range(16)])


def parameters_of(folder, kind: str) -> set[str]:
    """Returns the parameters on which the embeddings of a tower depend, by their gradients."""
    backbone = load_backbone(folder)
    if kind == "text":
        output = encode_texts(backbone, torch.ones((2, 3), dtype=torch.long))
    else:
        output = encode_images(backbone, blank_images(backbone.config, 2))
    names, parameters = zip(*backbone.named_parameters(), strict=True)
    gradients = torch.autograd.grad(output.sum(), parameters, allow_unused=True)
    return {name for name, gradient in zip(names, gradients, strict=True) if gradient is not None}


@pytest.mark.parametrize(
    ("family", "objective"), [pytest.param(*pair, marks=[] if pair in SAMPLE else pytest.mark.slow) for pair in GRID]
)
def test_every_objective_of_pooled_embeddings_trains(family, objective, folder_of, rows, tmp_path):
    kind = trainer_class(objective.partition(",")[0])
    settings = {"max_steps": 1, "adam_epsilon": 1e-12, **OBJECTIVES[objective]}
    trainer = build(kind, str(folder_of(family)), rows, tmp_path, **settings)
    before = {name: x.detach().clone() for name, x in trainer.model.named_parameters()}
    trainer.train()
    after = dict(trainer.model.named_parameters())
    assert all(x.isfinite().all() for x in after.values())
    moved = {name for name, x in after.items() if not torch.equal(x, before[name])}
    assert moved == {name for name, x in after.items() if x.requires_grad}
    towers = ("text",) if objective in TEXT_OBJECTIVES else ("image", "text")
    expected = {f"backbone.{name}" for tower in towers for name in parameters_of(folder_of(family), tower)}
    assert expected <= moved


@pytest.mark.follows("hfcomp/data/pixels/store.py", "Return PIL images from the dataset's transform.")
def test_images_are_cropped_before_their_own_processor(folder_of, rows, tmp_path):
    trainer = build(CementTrainer, str(folder_of("siglip2")), rows, tmp_path, random_crop=0.3)
    row = trainer.train_dataset[0] | {"crop_box": (0.25, 0.0, 0.75, 0.5)}
    side = tiny.IMAGE_SIZE
    crops = [rows[0][name].crop((side // 4, 0, 3 * side // 4, side // 2)) for name in ("image", "negative_image")]
    expected = trainer.processing_class.image_processor(crops, return_tensors="pt")
    for name, values in trainer.data_collator([row])["pixels"].pixels.items():
        assert torch.equal(values, expected[name])
    with pytest.raises(TypeError, match="row 0: found a tensor, .*Siglip2ImageProcessor"):
        trainer.data_collator([row | {"image": torch.zeros(3, side, side)}])


@pytest.mark.parametrize("family", SOME)
def test_mini_batches_have_the_gradient_of_the_whole_batch(family, folder_of, rows, tmp_path):
    """With negatives and negative images; in float64, though SigLIP 2 resizes its positions in float32."""
    gradients = []
    for size in (None, 3):
        trainer = build(CementTrainer, str(folder_of(family)), rows, tmp_path, mini_batch_size=size)
        trainer.model.double().eval()  # dropout would differ
        trainer.compute_loss(trainer.model, batch_of(trainer, range(8))).backward()
        gradients.append({name: x.grad for name, x in trainer.model.named_parameters() if x.grad is not None})
    whole, parts = gradients
    assert whole.keys() == parts.keys()
    largest = max(x.abs().max().item() for x in whole.values())
    for name, x in whole.items():
        torch.testing.assert_close(parts[name], x, rtol=0, atol=1e-7 * largest)


@pytest.mark.parametrize("family", SOME)
@pytest.mark.parametrize("tower", ["image", pytest.param("text", marks=pytest.mark.slow)])
def test_a_frozen_tower_stays_and_everything_else_moves(tower, family, folder_of, rows, tmp_path):
    settings = {"freeze_towers": [tower], "max_steps": 1, "adam_epsilon": 1e-12}
    trainer = build(InfoNCETrainer, str(folder_of(family)), rows, tmp_path, **settings)
    before = {name: x.clone() for name, x in trainer.model.plain.state_dict().items()}
    trainer.train()
    moved = {name for name, x in trainer.model.plain.state_dict().items() if not torch.equal(x, before[name])}
    towers = {kind: parameters_of(folder_of(family), kind) for kind in ("image", "text")}
    scalars = moved & {"logit_scale", "logit_bias", "temperature"}
    assert scalars
    assert moved == towers["text" if tower == "image" else "image"] - towers[tower] | scalars


@pytest.mark.parametrize(("family", "target"), [("groupvit", "head"), ("siglip2", "pooling"), ("align", "head")])
def test_every_adapter_of_a_named_target_is_trained(family, target, folder_of, rows, tmp_path):
    settings = {"peft": "lora", "lora_targets": [target], "max_steps": 1, "adam_epsilon": 1e-12}
    trainer = build(InfoNCETrainer, str(folder_of(family)), rows, tmp_path, **settings)
    trainer.train()
    # B starts at zero.
    updates = [x for name, x in trainer.model.named_parameters() if ".lora_B" in name]
    assert updates and all(x.any() for x in updates)


@pytest.mark.parametrize("family", NAMES)
def test_interpolated_weights_lie_between_the_ends(family, folder_of, tmp_path):
    base, tuned = (load_backbone(folder_of(family)) for _ in range(2))
    torch.manual_seed(0)
    for name, x in tuned.state_dict().items():
        assert x.is_floating_point() or name.endswith(COUNTER)
        # ChineseCLIP sets the padding token's embedding to 0 when it is loaded, which a factor keeps.
        x.mul_(1 + torch.rand_like(x)) if x.is_floating_point() else x.add_(7)
    interpolation = Interpolation(base, tuned)
    ours, theirs = base.state_dict(), tuned.state_dict()
    for alpha, ends in {0.0: ours, 1.0: theirs}.items():
        for name, x in interpolation.set(alpha).state_dict().items():
            assert torch.equal(x, ends[name]), (name, alpha)
    interpolation.save(tmp_path, 0.5)
    for name, x in AutoModel.from_pretrained(tmp_path).state_dict().items():
        expected = theirs[name] if name.endswith(COUNTER) else (ours[name] + theirs[name]) / 2
        torch.testing.assert_close(x, expected, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("family", SOME)
def test_other_layouts_are_written_or_refused_by_name(family, folder_of, clip, tmp_path):
    backbone = load_backbone(folder_of(family))
    if "to" in family_of(backbone.config).conversions:
        export_open_clip(folder_of(family), tmp_path / "open_clip")
        convert_checkpoint(tmp_path / "open_clip", tmp_path / "back")
        state = load_backbone(tmp_path / "back").state_dict()
        assert all(torch.equal(state[name], x) for name, x in backbone.state_dict().items())
    else:
        with pytest.raises(ValueError, match=f"{type(backbone).__name__}, but only a CLIPModel"):
            export_open_clip(folder_of(family), tmp_path / "open_clip")
    llava = readers.llava(tmp_path / "llava", CLIPConfig.from_pretrained(clip).vision_config)
    with pytest.raises(ValueError, match="its image tower does not match"):
        export_llava(folder_of(family), llava, tmp_path / "out")
