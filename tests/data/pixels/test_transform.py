"""Cutting to size and batching: pixels equal the processor's own, and nothing moves a batch before its time."""

from __future__ import annotations

import json
import multiprocessing
import pickle

import numpy as np
import pytest
import torch
from accelerate.utils import find_batch_size, recursively_apply, send_to_device
from PIL import Image
from torch.distributed.utils import _recursive_to
from torch.utils.data import DataLoader
from torch.utils.data._utils.pin_memory import pin_memory
from transformers import AutoImageProcessor, BatchFeature, Trainer
from transformers.trainer_pt_utils import find_batch_size as trainer_find_batch_size

from hfcomp.data.images import decode_image
from hfcomp.data.pixels import PixelBatch, PixelTransform
from hfcomp.modeling.image_processors import CLIPImageProcessorPil, SiglipImageProcessorPil
from tests import tolerances


def noise(height: int, width: int, channels: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


# PixelTransform

PROCESSORS = {
    "clip": lambda: CLIPImageProcessorPil(),
    "clip_small": lambda: CLIPImageProcessorPil(size={"shortest_edge": 40}, crop_size={"height": 32, "width": 36}),
    "clip_padded": lambda: CLIPImageProcessorPil(size={"shortest_edge": 20}, crop_size={"height": 32, "width": 32}),
    "siglip": lambda: SiglipImageProcessorPil(),
    "siglip_unnormalized": lambda: SiglipImageProcessorPil(do_normalize=False),
    "siglip_offset": lambda: SiglipImageProcessorPil(rescale_factor=1 / 127.5, image_mean=1.0, image_std=1.0),
    "siglip_raw": lambda: SiglipImageProcessorPil(do_normalize=False, do_rescale=False),
    "clip_unrescaled": lambda: CLIPImageProcessorPil(do_rescale=False, image_mean=[120.0] * 3, image_std=[60.0] * 3),
}
SIZES = [(120, 160), (160, 120), (50, 50), (33, 400), (224, 224), (3, 3), (1, 1), (1, 7), (7, 1)]


def pictures() -> list[Image.Image]:
    grey = decode_image(noise(30, 44, 1))
    return [decode_image(noise(*size, seed=index)) for index, size in enumerate(SIZES)] + [grey]


@pytest.mark.parametrize("name", PROCESSORS)
def test_pixels_equal_the_processors_own(name):
    processor = PROCESSORS[name]()
    transform = PixelTransform.from_processor(processor)
    images = pictures()
    pixels = transform(images)
    assert pixels.dtype == torch.uint8 and pixels.is_contiguous()
    assert pixels.shape == (len(images), 3, *transform.size)
    own = processor(images=images, return_tensors="pt")["pixel_values"]
    torch.testing.assert_close(transform.normalize(pixels), own.float(), rtol=0, atol=tolerances.normalized_pixels())
    mean, std = (torch.tensor(values)[:, None, None] for values in (transform.mean, transform.std))
    torch.testing.assert_close(
        (pixels * transform.rescale_factor - mean) / std, own.float(), rtol=0, atol=tolerances.normalized_pixels()
    )
    assert len(transform.mean) == len(transform.std) == 3


@pytest.mark.parametrize("name", ["CLIPImageProcessor", "SiglipImageProcessor"])
def test_pixels_equal_those_of_the_torchvision_processors(name):
    pytest.importorskip("torchvision")
    import transformers

    processor = getattr(transformers, name)()
    assert processor.backend == "torchvision"
    transform = PixelTransform.from_processor(processor)
    images = pictures()
    own = processor(images=images, return_tensors="pt")["pixel_values"]
    torch.testing.assert_close(
        transform.normalize(transform(images)), own, rtol=0, atol=tolerances.normalized_pixels()
    )


@pytest.mark.parametrize("kind", ["CLIP", "Siglip"])
def test_an_old_preprocessor_config(kind, tmp_path):
    config = {
        "feature_extractor_type": f"{kind}FeatureExtractor",
        "do_resize": True,
        # SigLIP never had a feature extractor's int: there it would mean the short edge, as in CLIP.
        "size": 224 if kind == "CLIP" else {"height": 224, "width": 224},
        "resample": 3,
        "do_center_crop": kind == "CLIP",
        "crop_size": 224,
        "do_normalize": True,
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
    }
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(config))
    processor = AutoImageProcessor.from_pretrained(tmp_path)
    transform = PixelTransform.from_processor(processor)
    assert transform.size == (224, 224) and transform.mean == tuple(config["image_mean"])
    own = processor(images=pictures()[:2], return_tensors="pt")["pixel_values"]
    torch.testing.assert_close(
        transform.normalize(transform(pictures()[:2])), own, rtol=0, atol=tolerances.normalized_pixels()
    )


def test_a_processor_around_an_image_processor_will_do():
    class Wrapper:
        image_processor = SiglipImageProcessorPil()

    assert PixelTransform.from_processor(Wrapper()).size == (224, 224)


@pytest.mark.parametrize("name", PROCESSORS)
def test_an_image_of_the_right_size_skips_a_processor_that_would_leave_it(name, monkeypatch):
    transform = PixelTransform.from_processor(PROCESSORS[name]())
    ready = decode_image(noise(*transform.size))
    mixed = [ready, decode_image(noise(50, 60)), ready]
    expected = torch.from_numpy(
        np.stack(transform.image_processor(images=mixed, do_rescale=False, do_normalize=False)["pixel_values"])
    )
    assert torch.equal(transform(mixed), expected)
    assert transform.keeps_ready_images == (name not in ("clip_small", "clip_padded"))
    monkeypatch.setattr(transform, "image_processor", None)
    if transform.keeps_ready_images:
        monkeypatch.setattr("hfcomp.data.pixels.transform.check_resized", lambda *_: None)
        assert torch.equal(transform([ready]), expected[:1])


@pytest.mark.parametrize("name", PROCESSORS)
def test_pillow_alone_gives_the_pixels_where_it_is_used(name, monkeypatch):
    transform = PixelTransform.from_processor(PROCESSORS[name]())
    assert (transform.direct is None) == (name == "clip_padded")
    sizes = [(3 * edge + 1, 5 * edge + 2) for edge in range(9, 60, 7)]
    images = [decode_image(noise(*size[::step], seed=size[0])) for size in sizes for step in (1, -1)]
    expected = np.stack(transform.image_processor(images=images, do_rescale=False, do_normalize=False)["pixel_values"])
    if transform.direct is not None:
        monkeypatch.setattr(transform, "image_processor", None)
        monkeypatch.setattr("hfcomp.data.pixels.transform.check_resized", lambda *_: None)
    assert np.array_equal(transform(images), expected)


def test_a_processor_with_a_resize_of_its_own_does_it_itself():
    class Reducing(CLIPImageProcessorPil):
        def resize(self, image, size, resample=None, **kwargs):
            return super().resize(image, size, resample, reducing_gap=1, **kwargs)

    class Shifted(CLIPImageProcessorPil):
        def center_crop(self, image, size, **kwargs):
            return super().center_crop(np.roll(image, 1, axis=-1), size, **kwargs)

    images = [decode_image(noise(700, 500)), decode_image(noise(90, 70))]
    for processor in (Shifted(), Reducing(size={"shortest_edge": 20}, crop_size={"height": 20, "width": 20})):
        transform = PixelTransform.from_processor(processor)
        own = processor(images=images, do_rescale=False, do_normalize=False)["pixel_values"]
        assert transform.direct is None and np.array_equal(transform(images), np.stack(own))


def test_no_images_give_an_empty_batch():
    assert PixelTransform.from_processor(CLIPImageProcessorPil())([]).shape == (0, 3, 224, 224)


@pytest.mark.parametrize("options", [{"do_center_crop": False}, {"do_resize": False, "do_center_crop": False}])
def test_a_processor_without_one_size_is_refused(options):
    with pytest.raises(ValueError, match="CLIPImageProcessor(Pil)? .*sizes .*do_center_crop=True"):
        PixelTransform.from_processor(CLIPImageProcessorPil(**options))


def test_a_naflex_processor_is_refused():
    from hfcomp.modeling.image_processors import Siglip2ImageProcessorPil

    with pytest.raises(ValueError, match=r"Expected \[3, H, W\].*NaFlex"):
        PixelTransform.from_processor(Siglip2ImageProcessorPil())


def test_a_processor_that_does_something_else_is_refused():
    class Inverting(SiglipImageProcessorPil):
        def rescale(self, image, scale, **kwargs):
            return 1 - super().rescale(image, scale, **kwargs)

    class Early(CLIPImageProcessorPil):
        def resize(self, image, *args, **kwargs):
            return super().resize(image, *args, **kwargs).astype(np.float32)

    with pytest.raises(ValueError, match="Inverting"):
        PixelTransform.from_processor(Inverting())
    with pytest.raises(ValueError, match=r"Early .*torch.float32"):
        PixelTransform.from_processor(Early())
    with pytest.raises(TypeError, match="found a str.*image processor"):
        PixelTransform.from_processor("openai/clip-vit-base-patch32")


def test_images_the_transform_cannot_take_are_named():
    transform = PixelTransform.from_processor(CLIPImageProcessorPil())
    good = Image.new("RGB", (8, 8))
    with pytest.raises(ValueError, match="image 1 .*mode L"):
        transform([good, Image.new("L", (8, 8))])
    with pytest.raises(ValueError, match="row 17 .*1 x 100,000 .* 224"):
        transform([good, Image.new("RGB", (1, 100_000))], where=["row 16", "row 17"])


def test_the_limit_of_a_resize_can_be_set():
    processor, image = CLIPImageProcessorPil(), Image.new("RGB", (1, 20))
    assert PixelTransform.from_processor(processor)([image]).shape == (1, 3, 224, 224)
    small = PixelTransform.from_processor(processor, max_pixels=100)
    with pytest.raises(ValueError, match="802,816 pixels.*max_image_pixels"):
        small([image])
    # whatever the limit, ordinary shapes pass
    assert small([Image.new("RGB", (1, 16))]).shape == (1, 3, 224, 224)
    large, long = PixelTransform.from_processor(processor, max_pixels=1_100_000), Image.new("RGB", (1, 22))
    assert large([image]).shape == (1, 3, 224, 224)
    with pytest.raises(ValueError, match="exceed 1,100,000 pixels"):
        large([long])


def test_the_transform_pickles():
    transform = PixelTransform.from_processor(CLIPImageProcessorPil())
    again = pickle.loads(pickle.dumps(transform))
    assert torch.equal(again(pictures()[:2]), transform(pictures()[:2]))


# PixelBatch


def a_batch(count: int = 4) -> PixelBatch:
    return PixelBatch(torch.from_numpy(noise(count, 3 * 5 * 6, 1)).reshape(count, 3, 5, 6))


def test_a_batch_knows_its_length_and_slices():
    batch = a_batch()
    assert len(batch) == 4 and "[4, 3, 5, 6]" in repr(batch)
    part = batch.slice_to(1, 3, torch.device("cpu"))
    assert part.dtype == torch.uint8 and torch.equal(part, batch.pixels[1:3])
    assert batch.slice_to(0, 4, "meta").device.type == "meta"
    assert PixelBatch(torch.zeros(2, 3, 4, 4, dtype=torch.bfloat16)).slice_to(0, 1, "cpu").dtype == torch.bfloat16


def test_a_batch_of_something_else_is_refused():
    with pytest.raises(ValueError, match=r"shape \[2, 4, 4, 3\].*Expected a tensor \[M, 3, H, W\]"):
        PixelBatch(torch.zeros(2, 4, 4, 3))
    with pytest.raises(ValueError, match="a ndarray"):
        PixelBatch(np.zeros((2, 3, 4, 4)))
    with pytest.raises(TypeError, match=r"torch.int64"):
        PixelBatch(torch.zeros(2, 3, 4, 4, dtype=torch.int64))


def test_nothing_moves_or_opens_a_batch():
    batch = a_batch()
    inputs = {"input_ids": torch.ones(4, 7, dtype=torch.long), "pixels": batch}
    sent = send_to_device(inputs, torch.device("meta"))
    assert sent["input_ids"].device.type == "meta" and sent["pixels"] is batch
    assert send_to_device(BatchFeature(inputs), torch.device("cpu"))["pixels"] is batch
    assert recursively_apply(lambda tensor: tensor + 1, inputs)["pixels"] is batch
    assert _recursive_to(inputs, torch.device("meta"), False)[0]["pixels"] is batch

    class Bare(Trainer):
        def __init__(self):
            self.args = type("Args", (), {"device": torch.device("meta")})()
            self.is_deepspeed_enabled = False

    prepared = Bare()._prepare_inputs(inputs)
    assert prepared["input_ids"].device.type == "meta" and prepared["pixels"] is batch
    assert batch.pixels.device.type == "cpu"


def test_the_key_order_that_batch_sizes_need():
    batch, tokens = a_batch(), torch.ones(4, 7)
    assert find_batch_size({"input_ids": tokens, "pixels": batch}) == 4
    with pytest.raises(TypeError):
        find_batch_size({"pixels": batch, "input_ids": tokens})
    assert trainer_find_batch_size({"pixels": batch, "input_ids": tokens}) == 4


def test_pinning_reaches_the_pixels(monkeypatch):
    batch = a_batch()
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self, *device: self.clone())
    pinned = pin_memory({"pixels": batch, "input_ids": torch.ones(2)})["pixels"]
    assert isinstance(pinned, PixelBatch) and pinned is not batch and torch.equal(pinned.pixels, batch.pixels)


class Collate:
    """Decoding and cutting inside a worker, as the collators do it."""

    def __init__(self, transform: PixelTransform) -> None:
        self.transform = transform

    def __call__(self, rows: list[bytes]) -> dict:
        images = [decode_image(row, where=f"row {index}") for index, row in enumerate(rows)]
        return {"index": torch.arange(len(rows)), "pixels": PixelBatch(self.transform(images))}


def test_through_a_data_loader_with_two_workers():
    processor = CLIPImageProcessorPil(size={"shortest_edge": 24}, crop_size={"height": 24, "width": 24})
    collate = Collate(PixelTransform.from_processor(processor))
    rows = [noise(20, 30, seed=index) for index in range(6)]
    context = "fork" if "fork" in multiprocessing.get_all_start_methods() else None
    loader = DataLoader(rows, batch_size=2, num_workers=2, collate_fn=collate, multiprocessing_context=context)
    batches = list(loader)
    assert [len(batch["pixels"]) for batch in batches] == [2, 2, 2]
    expected = collate(rows)["pixels"].pixels
    assert torch.equal(torch.cat([batch["pixels"].slice_to(0, 2, "cpu") for batch in batches]), expected)
