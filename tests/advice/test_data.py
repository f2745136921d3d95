"""What errors of rows, captions and streams advise, done in Python; on the command line in test_recipe_data.py."""

from __future__ import annotations

import datasets
import numpy as np
import pytest
import torch
from transformers import AutoProcessor, CLIPModel

from hfcomp.data.collators import CompositionalCollator
from hfcomp.data.columns import rename_columns
from hfcomp.data.concepts.columns import concept_columns, noun_phrase_extractor, with_concepts
from hfcomp.data.concepts.spans import with_spans
from hfcomp.data.formats.caption_files import with_captions_of
from hfcomp.data.image_ids import shared_rows
from hfcomp.data.images import decode_image
from hfcomp.data.loading import TrainingRows, load_training_set, load_training_stream
from hfcomp.data.negatives import rated_column
from hfcomp.data.pair_table import every_caption
from hfcomp.data.pixels.transform import PixelTransform
from hfcomp.data.sampling.draws import check_drawn_captions
from hfcomp.data.sampling.groups import GroupOrder, Groups, rows_per_process
from hfcomp.data.sampling.neighbors import NeighborOrder, Neighbors
from hfcomp.data.sampling.streaming import StreamedRows, check_names
from hfcomp.data.urls import UrlAccess
from hfcomp.factory.builder import find_builder
from hfcomp.parsing import load_parser
from tests import tiny
from tests.hub.built import write_build

COLLATORS, DRAWN = "hfcomp/data/collators.py", "hfcomp/data/sampling/draws.py"
IMAGES, STREAMING = "hfcomp/data/images.py", "hfcomp/data/sampling/streaming.py"


@pytest.fixture
def collate(clip):
    """Batches all rows of a dataset."""

    def collate(dataset: datasets.Dataset, **settings) -> dict:
        collator = CompositionalCollator(
            AutoProcessor.from_pretrained(clip), CLIPModel.from_pretrained(clip).config, **settings
        )
        return collator([{"row": number, **row} for number, row in enumerate(dataset)])

    return collate


def rows(**columns) -> datasets.Dataset:
    values = {"image": [tiny.image(0), tiny.image(1)], "caption": ["a red cube", "a blue ball"]} | columns
    return datasets.Dataset.from_dict(values)


@pytest.mark.follows(COLLATORS, "choose one in Python: dataset.map(lambda row: {'caption': row['caption'][0]}).")
@pytest.mark.follows(COLLATORS, "dataset.filter(lambda row: row['caption'] and row['caption'].strip()).")
def test_captions(advice, collate):
    dataset = rows(caption=[["a cube", "cubes"], ["a ball"]])
    advice.of(collate, dataset)
    collate(dataset.map(lambda row: {"caption": row["caption"][0]}))
    dataset = rows(caption=["a cube", " "])
    advice.of(collate, dataset)
    collate(dataset.filter(lambda row: row["caption"] and row["caption"].strip()))


@pytest.mark.follows(COLLATORS, " or set num_negatives={found}")
@pytest.mark.follows(COLLATORS, "or remove it in Python with dataset.filter().")
@pytest.mark.follows(
    COLLATORS, "Wrap it in a list; in Python: dataset.map(lambda row: {'{column}': [row['{column}']]})."
)
def test_negatives(advice, collate):
    dataset = rows(negative_captions=[["a cone"], ["a ring"]])
    message = advice.of(collate, dataset, num_negatives=2)
    collate(dataset, num_negatives=int(message.partition("num_negatives=")[2].rstrip(".")))
    collate(rows(negative_captions=[["a cone", ""], ["a ring", ""]]), num_negatives=2)
    dataset = rows(negative_captions=["a cone", "a ring"])
    advice.of(collate, dataset, num_negatives=1)
    collate(dataset.map(lambda row: {"negative_captions": [row["negative_captions"]]}), num_negatives=1)

    class Surrogates(list):
        """Rows as of a dataset of another library: Arrow has no such texts."""

    bad = Surrogates(
        {**row, "negative_captions": [text]} for row, text in zip(rows(), ["\ud800", "a ring"], strict=True)
    )
    advice.of(collate, bad, num_negatives=1)
    collate(bad[1:], num_negatives=1)
    bad = Surrogates({**row, "caption": text} for row, text in zip(rows(), ["\ud800", "a ring"], strict=True))
    advice.of(collate, bad)
    collate(bad[1:])


@pytest.mark.follows(
    "hfcomp/data/concepts/columns.py", "Map the caption column with column_names, or choose another parser."
)
@pytest.mark.follows("hfcomp/data/concepts/columns.py", "Map another column with column_names, or remove streaming.")
def test_concepts(advice):
    dataset = datasets.Dataset.from_dict({"caption": ["...", "!!!"], "text": ["a red cube", "a ball"]})
    advice.of(with_concepts, dataset, "rules", print)
    named = rename_columns(dataset, {"caption": "text"})
    assert with_concepts(named, "rules", print)["concepts"][:] == [["a red cube"], ["a ball"]]
    lists = rows(caption=[["a cube"], ["a ball"]], text=["a cube", "a ball"]).remove_columns("image")
    advice.of(with_concepts, lists.to_iterable_dataset(), "rules", print)
    streamed = rename_columns(lists.to_iterable_dataset(), {"caption": "text"})
    assert next(iter(with_concepts(streamed, "rules", print)))["concepts"] == ["a cube"]


@pytest.mark.follows(
    "hfcomp/data/concepts/spans.py", "Create both columns with hfcomp.data.concepts.columns.concept_columns, or"
)
def test_spans(advice, collate):
    caption = "a red cube"
    advice.of(with_spans, ["a red cube"], [[[0, 99]]], caption=caption, row=0)
    made, _ = concept_columns([caption], noun_phrase_extractor(load_parser("rules")), max_concepts=None)
    assert with_spans(made["concepts"][0], made["concept_spans"][0], caption=caption, row=0)
    wrong = rows(concepts=[["a red cube"], ["a blue ball"]], concept_spans=[[[[0, 99]]], [[[0, 99]]]])
    advice.of(collate, wrong, max_concepts=2, concept_tokens=True)
    collate(wrong, max_concepts=2, concept_tokens=False)  # as concept_source='phrase' does


@pytest.mark.follows(DRAWN, "Remove the option, or use column_names to map the column that has the lists.")
@pytest.mark.follows(DRAWN, "Pad with empty strings (they are masked), or lower num_negatives.")
@pytest.mark.follows(DRAWN, "Use a list with one entry per caption, remove the column, or use one caption")
@pytest.mark.follows(DRAWN, "Use one caption (captions: longest), or an objective without negative images.")
@pytest.mark.follows("hfcomp/data/pair_table.py", "Remove the row, add a caption, or exclude such rows")
def test_drawn_captions(advice):
    dataset = rows(texts=[["a cube", "cubes"], ["a ball", "balls"]])
    advice.of(check_drawn_captions, dataset, ["caption"])
    check_drawn_captions(rename_columns(dataset, {"caption": "texts"}), ["caption"])
    several = rows(caption=dataset["texts"][:])
    few = [[["a cone"], ["cones"]], [["a ring"], []]]
    with_negatives = several.add_column("negative_captions", few)
    advice.of(check_drawn_captions, with_negatives, ["negative_captions"], num_negatives=1)
    padded = several.add_column("negative_captions", [few[0], [["a ring"], [""]]])
    check_drawn_captions(padded, ["negative_captions"], num_negatives=1)
    check_drawn_captions(with_negatives, ["negative_captions"], num_negatives=0)
    flat = several.add_column("negative_captions", [["a cone"], ["a ring"]])
    advice.of(check_drawn_captions, flat, ["negative_captions"])
    check_drawn_captions(flat.remove_columns("negative_captions"), ["caption"])
    images = rows(caption=dataset["texts"][:], negative_image=[tiny.image(2), tiny.image(3)])
    advice.of(check_drawn_captions, images, ["negative_image"])
    check_drawn_captions(images.remove_columns("negative_image"), ["caption"])
    empty = rows(caption=[["a cube", "cubes"], []])
    advice.of(check_drawn_captions, empty, ["caption"])
    check_drawn_captions(empty.filter(lambda row: bool(row["caption"])), ["caption"])
    check_drawn_captions(rows(caption=[["a cube", "cubes"], ["a ball"]]), ["caption"])


@pytest.mark.follows("hfcomp/data/pair_table.py", "Remove captions=all, or use column_names to map")
@pytest.mark.follows("hfcomp/data/pair_table.py", "exclude such rows with dataset_filter.")
def test_every_caption(advice):
    dataset = rows(texts=[["a cube", "cubes"], ["a ball"]])
    advice.of(every_caption, dataset, print)
    assert len(every_caption(rename_columns(dataset, {"caption": "texts"}), print)) == 4
    empty = rows(caption=[["a cube"], []])
    advice.of(every_caption, empty, print)
    every_caption(rows(caption=[["a cube"], ["a ball"]]), print)
    every_caption(empty.select([0]), print)


@pytest.mark.follows(
    "hfcomp/data/formats/caption_files.py", "but captions_file provides captions. Remove one of the two."
)
@pytest.mark.follows(
    "hfcomp/data/formats/caption_files.py", "Set key_column (dataset) and captions_columns (file) to matching"
)
@pytest.mark.follows(
    "hfcomp/data/formats/caption_files.py",
    "Set captions_columns to the key and caption columns, such as 'url,caption'.",
)
def test_captions_of_a_file(advice, tmp_path):
    file = tmp_path / "captions.csv"
    file.write_text("url,caption,name\nhttp://a,a red cube,first\nhttp://b,a ball,second\n")
    dataset = rows(__key__=["x", "y"], name=["first", "second"], url=["http://a", "http://b"])

    def join(**settings):
        settings = {"key_column": None, "file_columns": None, "log": print} | settings
        return with_captions_of(dataset, file, **settings)

    advice.of(join)
    advice.of(join, file_columns="url,caption")
    assert join(key_column="url", file_columns="url,caption")["caption"][:] == ["a red cube", "a ball"]
    assert join(key_column="name", file_columns="name,caption")["caption"][:] == ["a red cube", "a ball"]
    advice.of(join, key_column="url", file_columns="url,caption", column_names={"caption": "name"})
    join(key_column="url", file_columns="url,caption", column_names={"image": "picture"})
    assert rename_columns(dataset.remove_columns("caption"), {"caption": "name"})["caption"][0] == "first"


@pytest.mark.follows("hfcomp/data/sampling/groups.py", "Lower groups_per_batch.")
@pytest.mark.follows(
    "hfcomp/data/sampling/groups.py", "Set it to a multiple of {processes}, such as {multiple}, or start fewer"
)
@pytest.mark.follows("hfcomp/data/sampling/neighbors.py", "Lower {setting} to")
def test_orders(advice):
    groups = Groups.from_columns(["a", "a", "b", "b"], [["b"], ["b"], ["a"], ["a"]])
    settings = {"pairs_per_group": 1, "seed": 0}
    advice.of(GroupOrder, groups, groups_per_batch=3, **settings)
    assert len(list(GroupOrder(groups, groups_per_batch=2, **settings))) >= 2
    message = advice.of(rows_per_process, 3, 2, 2)
    assert rows_per_process(int(message.partition("such as ")[2].partition(",")[0]), 2, 2) == 4
    assert rows_per_process(3, 2, 1) == 6
    neighbors = Neighbors.from_columns([["b"], ["c"], ["a"]], ["a", "b", "c"], ["x", "y", "z"])
    settings = {"number": 1, "seed": 0}
    advice.of(NeighborOrder, range(3), neighbors, batch_size=2, **settings)
    NeighborOrder(range(3), neighbors, batch_size=1, **settings)


@pytest.mark.follows("hfcomp/data/image_ids.py", "Correct it in the file, or in Python: dataset.remove_columns(")
def test_image_ids(advice, collate):
    dataset = rows(image_id=[1.5, 2.5])
    advice.of(shared_rows, dataset["image_id"][:])
    collate(dataset.remove_columns("image_id"))
    shared_rows([1, 2])
    shared_rows(["x", "y"])


@pytest.mark.follows(IMAGES, "If a format is set on the dataset, remove it with dataset.with_format(None).")
@pytest.mark.follows(IMAGES, "Expected 'bytes' or 'path'; store it as datasets.Image().")
@pytest.mark.follows(IMAGES, "raise max_image_pixels of the trainer or collator (max_pixels of decode_image).")
@pytest.mark.follows(IMAGES, "Scale it to 0..255 and cast it with .astype(numpy.uint8).")
@pytest.mark.follows(IMAGES, "If the channels come first, use array.transpose(1, 2, 0).")
@pytest.mark.follows(
    "hfcomp/data/urls.py", "Embed the images in the dataset or, if you trust it, pass allow_urls (--allow_urls)."
)
def test_images(advice, collate, monkeypatch):
    formatted = rows().with_format("torch")
    advice.of(decode_image, formatted[0]["image"])
    decode_image(formatted.with_format(None)[0]["image"])
    stored = {"content": b"", "name": "x"}
    advice.of(decode_image, stored)
    decode_image(
        datasets.Dataset.from_dict(
            {"image": [tiny.image(0)]}, features=datasets.Features({"image": datasets.Image()})
        )[0]["image"]
    )
    advice.of(collate, rows(), max_image_pixels=1000)
    collate(rows(), max_image_pixels=2000)
    advice.of(decode_image, tiny.image(0), max_pixels=1000)
    decode_image(tiny.image(0), max_pixels=2000)
    pixels = np.random.default_rng(0).random((3, 8, 8))
    advice.of(decode_image, pixels.transpose(1, 2, 0))
    scaled = (255 * pixels).astype(np.uint8)
    decode_image(scaled.transpose(1, 2, 0))
    wide = np.zeros((3, 8, 8), np.uint8)
    advice.of(decode_image, wide)
    decode_image(wide.transpose(1, 2, 0))
    monkeypatch.setattr("hfcomp.data.urls._from_web", lambda url, access: tiny_png())
    advice.of(decode_image, "http://example.org/a.png")
    decode_image("http://example.org/a.png", urls=UrlAccess())


def tiny_png() -> bytes:
    import io

    stream = io.BytesIO()
    tiny.image(0).save(stream, "PNG")
    return stream.getvalue()


@pytest.mark.follows("hfcomp/data/pixels/transform.py", "crop it or, if you trust its source, raise max_image_pixels.")
@pytest.mark.follows(
    "hfcomp/data/pixels/transform.py", "set do_center_crop=True with a crop_size, or size={'height': H, 'width': W}."
)
def test_pixels(advice, clip):
    processor = AutoProcessor.from_pretrained(clip).image_processor
    long = tiny.image(0, (1, 400))
    advice.of(PixelTransform.from_processor(processor, max_pixels=2000), [long])
    PixelTransform.from_processor(processor, max_pixels=10**6)([long])
    processor.do_center_crop = False
    advice.of(PixelTransform.from_processor, processor)
    processor.size = {"height": 32, "width": 32}
    PixelTransform.from_processor(processor)
    processor.size, processor.do_center_crop = {"shortest_edge": 32}, True
    PixelTransform.from_processor(processor)


@pytest.mark.follows(
    "hfcomp/data/loading.py", "or a folder of WebDataset shards or Parquet files. Load it without streaming."
)
@pytest.mark.follows("hfcomp/data/loading.py", "are unknown before it is read. Load it without streaming.")
@pytest.mark.follows("hfcomp/data/loading.py", "must be read as a whole. Load it without streaming=True.")
@pytest.mark.follows(
    STREAMING, "Declare them with map(..., features=datasets.Features({...})) or dataset.cast(features)."
)
@pytest.mark.follows(STREAMING, "but the dataset is streamed. Load it without streaming.")
@pytest.mark.follows(STREAMING, "Lower batch_size or dataloader_num_workers.")
@pytest.mark.follows(STREAMING, "Lower batch_size.")
def test_streams(advice, tmp_path, monkeypatch):
    dataset = tiny.pairs(4)
    dataset.to_parquet(tmp_path / "rows.parquet")
    file = str(tmp_path / "rows.parquet")
    advice.of(load_training_stream, file)
    whole = load_training_set(file)
    stream = load_training_stream(str(tmp_path))
    with monkeypatch.context() as patch:
        unknown = stream.map(lambda row: row)
        patch.setattr("hfcomp.data.loading.load_source", lambda *_, **__: unknown)
        advice.of(load_training_stream, str(tmp_path))
    advice.of(TrainingRows, stream, ["caption"])
    assert len(TrainingRows(whole, ["caption"])) == 4
    advice.of(check_names, unknown)
    check_names(stream.map(lambda row: row, features=stream.features))
    check_names(unknown.cast(stream.features))
    settings = {"seed": 0, "buffer": 1}
    advice.of(StreamedRows(stream, ["caption"], batch_size=2, **settings).column, "caption")
    assert len(TrainingRows(whole, ["caption"]).column("caption")) == 4
    few = StreamedRows(stream, ["caption"], batch_size=8, **settings)
    advice.of(next, iter(few))
    next(iter(StreamedRows(stream, ["caption"], batch_size=4, **settings)))
    shards = dataset.to_iterable_dataset(num_shards=2)

    def first(batch_size: int, workers: int):
        given = StreamedRows(shards, ["caption"], batch_size=batch_size, **settings)
        return next(
            iter(torch.utils.data.DataLoader(given, batch_size=batch_size, num_workers=workers, collate_fn=list))
        )

    advice.of(first, 4, 2)
    assert len(first(2, 2)) == 2 and len(first(4, 1)) == 4


@pytest.mark.follows(
    "hfcomp/data/negatives.py", "Set keyword_negatives (object, color, location, size), map the column with"
)
def test_ratings(advice, train_begins, splits):
    advice.of(rated_column, ["caption"])
    ratings = splits.parent / "ratings.txt"
    ratings.write_text("Word\tConc.M\tDom_Pos\ndog\t4.85\tNoun\nred\t3.0\tAdjective\n")
    words = ["slipform", "--batch_size", "8", "--use_cpu", "true", "--dataset", str(splits), "--evaluation", "sandbox"]
    words += ["--evaluation_items", "2", "--concreteness_ratings"]
    rows = datasets.load_from_disk(splits).remove_columns("negative_concreteness")
    rows.save_to_disk(splits.parent / "unrated")
    words[words.index(str(splits))] = str(splits.parent / "unrated")
    advice.command("train", *words, str(ratings))
    train_begins(*words[:-1])
    train_begins(*words, ratings, "--column_names", "negative_keywords=negative_kinds")


@pytest.mark.follows(
    "hfcomp/data/built_sets/builders.py", "Pass config_name={other!r}, or the folder of {self.name} as data_dir."
)
@pytest.mark.follows(
    "hfcomp/data/built_sets/builders.py",
    "needs data_dir: the folder of a dataset built by `hfcomp build {self.kind}`.",
)
def test_builders(advice, tmp_path):
    for name in ("high_concreteness", "random"):
        write_build(tmp_path / name, rows=3)

    def folder(**settings):
        return (
            find_builder("concretebatch")
            .dataset_class()(cache_dir=str(tmp_path / "cache"), **settings)
            .config.folder()
        )

    advice.of(folder)
    assert folder(data_dir=str(tmp_path)) == tmp_path / "high_concreteness"
    advice.of(folder, data_dir=str(tmp_path / "random"))
    assert folder(data_dir=str(tmp_path / "random"), config_name="random") == tmp_path / "random"
    assert folder(data_dir=str(tmp_path / "high_concreteness")) == tmp_path / "high_concreteness"
