"""Files of a frozen text tower's features: what is in them, when they are made again, how batches get them. 3 s."""

from __future__ import annotations

import functools
import pickle

import numpy as np
import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModel, AutoProcessor

from hfcomp.data.collators import CompositionalCollator
from hfcomp.data.loading import TrainingRows
from hfcomp.data.negatives import ShuffledNegatives
from hfcomp.modeling import encode_texts, load_backbone
from hfcomp.trainers._support import reference_text
from hfcomp.trainers._support.reference_text import FOLDER, FrozenText, ReferenceText, WithReferenceText
from hfcomp.trainers.ahnpl import AHNPLTrainer
from hfcomp.trainers.info_nce import InfoNCEConfig
from hfcomp.writing import host
from tests import tolerances
from tests.trainers.runs import build, with_row

COLUMNS = ["image", "caption", "negative_captions", "negative_kinds"]


def reference(model, folder, *, num_negatives=2, **settings) -> ReferenceText:
    defaults = {"output_dir": str(folder), "use_cpu": True, "disable_tqdm": True, "report_to": "none"}
    args = InfoNCEConfig(num_negatives=num_negatives, **{**defaults, **settings})
    return ReferenceText(FrozenText(load_backbone(model), processor_of(model)), args)


def table_of(model, rows, folder, **settings) -> np.ndarray:
    return np.load(reference(model, folder, **settings).feature_file(TrainingRows(rows, COLUMNS)), allow_pickle=False)


@functools.cache
def processor_of(model):
    return AutoProcessor.from_pretrained(model)


@functools.cache
def plain_of(model):
    return AutoModel.from_pretrained(model).eval()


@torch.no_grad()
def embed_by_hand(model, text: str) -> torch.Tensor:
    """One text alone, by the plain model and its own processor."""
    tokenizer, plain = processor_of(model).tokenizer, plain_of(model)
    length = plain.config.text_config.max_position_embeddings
    ids = tokenizer([text], padding="max_length", truncation=True, max_length=length, return_tensors="pt")
    return encode_texts(plain, ids["input_ids"])[0]


@pytest.fixture
def encoded_texts(monkeypatch) -> list[str]:
    """Texts that frozen towers were given."""
    texts: list[str] = []
    encode = FrozenText.encode
    monkeypatch.setattr(FrozenText, "encode", lambda self, part: texts.extend(part) or encode(self, part))
    return texts


# What a file holds


@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_every_text_lies_in_its_place_whatever_its_length(name, request, pairs, tmp_path, monkeypatch):
    """Texts are sorted by length among a few batches of three, of which there are several such parts."""
    monkeypatch.setattr(reference_text, "SORTED_BATCHES", 2)
    model = request.getfixturevalue(name)
    captions = [" ".join([caption] * (1 + 7 * index % 4)) for index, caption in enumerate(pairs["caption"])]
    rows = pairs.remove_columns("caption").add_column("caption", captions)
    table = table_of(model, rows, tmp_path, mini_batch_size=3)
    assert table.shape == (20, 3, table.shape[2]) and table.dtype == np.float32
    for index in (0, 3, 8, 19):
        texts = [rows[index]["caption"], *rows[index]["negative_captions"]]
        for text, vector in zip(texts, table[index], strict=True):
            expected = embed_by_hand(model, text).numpy() if text else np.zeros_like(vector)
            np.testing.assert_allclose(vector, expected, atol=tolerances.embedding())
    assert not table[3, 2].any() and np.count_nonzero(table.any(-1)) == 60 - 4


def test_only_the_first_negatives_are_encoded(clip, pairs, tmp_path, encoded_texts):
    assert table_of(clip, pairs, tmp_path, num_negatives=1).shape[:2] == (20, 2)
    assert sorted(encoded_texts) == sorted([*pairs["caption"], *(texts[0] for texts in pairs["negative_captions"])])


def test_half_precision_around_it_changes_nothing(clip, pairs, tmp_path):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        table = table_of(clip, pairs, tmp_path / "one")
    assert np.array_equal(table, table_of(clip, pairs, tmp_path / "other"))


def test_the_copy_is_frozen_and_has_no_image_tower(clip):
    backbone = load_backbone(clip).train()
    frozen = FrozenText(backbone, processor_of(clip)).backbone
    names = {name for name, _ in frozen.named_parameters()}
    assert names and not [name for name in names if "vision" in name or "visual" in name]
    assert not any(parameter.requires_grad for parameter in frozen.parameters()) and not frozen.training
    assert backbone.training and backbone.vision_model.training
    before = frozen.text_projection.weight.clone()
    with torch.no_grad():
        backbone.text_projection.weight.add_(1)
    assert torch.equal(frozen.text_projection.weight, before)


def test_a_checkpoint_tells_of_its_copy(clip, tmp_path):
    """A new adapter, which changes no feature yet, is taken for the same, as is a checkpoint that tells nothing."""
    frozen = reference(clip, tmp_path).frozen
    frozen.check(tmp_path)
    frozen.sign(tmp_path)
    frozen.check(tmp_path)
    adapter = LoraConfig(r=2, target_modules=["q_proj"])
    FrozenText(get_peft_model(AutoModel.from_pretrained(clip), adapter), processor_of(clip)).check(tmp_path)
    trained = AutoModel.from_pretrained(clip)
    with torch.no_grad():
        trained.text_projection.weight[0, 0] += 1e-2
    with pytest.raises(ValueError, match=f"{tmp_path} .*different model.*resume_from_checkpoint"):
        FrozenText(trained, processor_of(clip)).check(tmp_path)


# When it is made again


def test_a_file_that_is_there_is_not_made_again(clip, pairs, tmp_path, encoded_texts, caplog):
    first = reference(clip, tmp_path)
    rows = TrainingRows(pairs, COLUMNS)
    path = first.feature_file(rows)
    assert path.parent == tmp_path / FOLDER and FOLDER.startswith("_")
    assert "60 texts of 20 rows" in caplog.text
    assert len(encoded_texts) == 60
    assert first.feature_file(rows) == reference(clip, tmp_path).feature_file(TrainingRows(pairs, COLUMNS)) == path
    assert len(encoded_texts) == 60
    path.unlink()
    assert first.feature_file(rows) == path and path.is_file()
    assert len(encoded_texts) == 120


def test_what_changes_a_feature_makes_another_file(clip, siglip, pairs, tmp_path):
    files = {
        "as it is": reference(clip, tmp_path).feature_file(TrainingRows(pairs, COLUMNS)),
        "one negative": reference(clip, tmp_path, num_negatives=1).feature_file(TrainingRows(pairs, COLUMNS)),
        "siglip": reference(siglip, tmp_path).feature_file(TrainingRows(pairs, COLUMNS)),
    }
    for name, columns in {"caption": {"caption": "a"}, "negative": {"negative_captions": ["a", "b"]}}.items():
        files[name] = reference(clip, tmp_path).feature_file(TrainingRows(with_row(pairs, 19, **columns), COLUMNS))
    for name in ("text_projection.weight", "text_model.encoder.layers.0.mlp.fc1.bias"):
        trained = AutoModel.from_pretrained(clip)
        with torch.no_grad():
            trained.get_parameter(name).view(-1)[0] += 1e-3
        frozen = FrozenText(trained, processor_of(clip))
        files[name] = ReferenceText(frozen, reference(clip, tmp_path).args).feature_file(TrainingRows(pairs, COLUMNS))
    processor = AutoProcessor.from_pretrained(clip)
    processor.tokenizer.add_tokens(["cub"])
    processor.tokenizer.backend_tokenizer.normalizer = None
    assert FrozenText(load_backbone(clip), processor).fingerprint != reference(clip, tmp_path).frozen.fingerprint
    assert len(set(files.values())) == len(files) == len(list((tmp_path / FOLDER).iterdir()))


def test_what_changes_no_feature_makes_none(clip, pairs, tmp_path):
    path = reference(clip, tmp_path).feature_file(TrainingRows(pairs, COLUMNS))
    changed = AutoModel.from_pretrained(clip)
    with torch.no_grad():
        changed.visual_projection.weight.add_(1)
        changed.logit_scale.add_(1)
    frozen = FrozenText(changed, processor_of(clip))
    rows = TrainingRows(pairs.remove_columns("negative_kinds"), COLUMNS)
    assert ReferenceText(frozen, reference(clip, tmp_path).args).feature_file(rows) == path


def test_a_file_that_a_machine_lacks_is_made_by_all(clip, pairs, tmp_path, encoded_texts, monkeypatch):
    source = reference(clip, tmp_path)
    rows = TrainingRows(pairs, COLUMNS)
    path = source.feature_file(rows)
    other = (path.name, False)
    monkeypatch.setattr(reference_text, "gather_objects", lambda value: [value, value and other])
    assert source.feature_file(rows) == path
    assert len(encoded_texts) == 120
    monkeypatch.setattr(reference_text, "gather_objects", lambda value: [value, ("other.npy", True)])
    with pytest.raises(ValueError, match="the processes .*texts or weights"):
        source.feature_file(rows)


def test_a_file_is_there_whole_or_not_at_all(clip, pairs, tmp_path, monkeypatch):
    source, rows = reference(clip, tmp_path), TrainingRows(pairs, COLUMNS)
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / f"killed.npy.{host()}-1-0123abcd.part").write_bytes(b"half")

    def full(*args):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(reference_text.np.lib.format, "write_array_header_1_0", full)
        with pytest.raises(OSError, match="written: .*No space "):
            source.feature_file(rows)
    assert list((tmp_path / FOLDER).iterdir()) == []
    assert [source.feature_file(rows)] == list((tmp_path / FOLDER).iterdir())


def test_broken_weights_are_refused(clip, pairs, tmp_path):
    broken = AutoModel.from_pretrained(clip)
    with torch.no_grad():
        broken.text_projection.weight[0] = torch.nan
    frozen = FrozenText(broken, processor_of(clip))
    with pytest.raises(ValueError, match="text features .*NaN"):
        ReferenceText(frozen, reference(clip, tmp_path).args).feature_file(TrainingRows(pairs, COLUMNS))
    assert not list((tmp_path / FOLDER).glob("*.npy"))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"caption": " "}, "'caption', row 7: found ' '"),
        ({"negative_captions": ["a"]}, "'negative_captions', row 7: found 1 .* 2"),
    ],
)
def test_a_wrong_text_is_refused_as_the_collator_does(columns, message, clip, pairs, tmp_path):
    with pytest.raises(ValueError, match=message):
        table_of(clip, with_row(pairs, 7, **columns), tmp_path)


# Batches


class Backwards:
    """A collator of a user's own, which turns the rows round and reads no kinds."""

    def __init__(self, clip) -> None:
        self.inner = CompositionalCollator(
            AutoProcessor.from_pretrained(clip), load_backbone(clip).config, num_negatives=2
        )

    def __call__(self, rows):
        assert set(rows[0]) == {"row", "image_id", *COLUMNS}
        return self.inner(rows[::-1])


def test_an_own_collator_gets_the_features_of_its_rows(clip, pairs, tmp_path):
    trainer = build(AHNPLTrainer, clip, pairs, tmp_path, data_collator=Backwards(clip), margin_start=0.9)
    (batch, *_) = trainer.get_train_dataloader()
    for number, row in enumerate(batch["row"].tolist()):
        actual = batch["reference_text_embeds"][number]
        torch.testing.assert_close(
            actual, embed_by_hand(clip, pairs[row]["caption"]), atol=tolerances.embedding(), rtol=0
        )
    trainer.train()
    assert isinstance(trainer.data_collator, Backwards)


def test_rows_with_negatives_of_others_have_features_of_these(clip, pairs, tmp_path):
    rows = ShuffledNegatives(pairs, np.roll(np.arange(20), 1))
    trainer = build(AHNPLTrainer, clip, rows, tmp_path, margin_start=0.9)
    batch = next(iter(trainer.get_eval_dataloader(rows)))
    partner = pairs[int(np.roll(np.arange(20), 1)[4])]["negative_captions"]
    for vector, text in zip(batch["reference_negative_text_embeds"][4], partner, strict=True):
        torch.testing.assert_close(
            vector, embed_by_hand(clip, text) if text else torch.zeros(16), atol=tolerances.embedding(), rtol=0
        )
    trainer.train()


def test_a_collator_travels_to_workers_without_the_open_file(clip, pairs, tmp_path):
    path = reference(clip, tmp_path).feature_file(TrainingRows(pairs, COLUMNS))
    collator = WithReferenceText(row_numbers, path)
    rows = [{"row": 5}, {"row": 2}]
    expected = collator(rows)
    stored = pickle.dumps(collator)
    assert len(stored) < 1000
    batch = pickle.loads(stored)(rows)
    assert torch.equal(batch["reference_text_embeds"], expected["reference_text_embeds"])
    assert torch.equal(batch["reference_text_embeds"], torch.from_numpy(np.load(path)[[5, 2], 0]))
    assert batch["reference_negative_text_embeds"].shape == (2, 2, 16)


def test_training_works_in_workers(clip, pairs, tmp_path):
    trainer = build(AHNPLTrainer, clip, pairs, tmp_path, margin_start=0.9, dataloader_num_workers=1)
    trainer.train()
    assert trainer.state.global_step == 2


def test_a_column_map_is_followed(clip, pairs, tmp_path):
    named: Dataset = pairs.rename_column("caption", "sentence")
    settings = {"column_names": {"caption": "sentence"}, "eval_dataset": named, "margin_start": 0.9}
    trainer = build(AHNPLTrainer, clip, named, tmp_path, **settings)
    trainer.train()
    trainer.evaluate()
    assert len(list((tmp_path / "run" / FOLDER).iterdir())) == 1


def row_numbers(rows):
    return {"row": torch.tensor([row["row"] for row in rows])}
