"""Sets of tar archives: what is read, from where, and what is refused."""

from __future__ import annotations

import tarfile

import numpy as np
import pytest
from huggingface_hub import errors

from hfcomp.evaluation.engine import validate
from hfcomp.evaluation.protocols.classification import ZeroShot
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import GENERAL, Benchmark, Folders, Unavailable
from hfcomp.evaluation.webdataset import WebDatasetData
from tests.evaluation.webdatasets import CLASS_NAMES, TEST, encode_image, write_set, write_split, write_tar

REPO = "clip-benchmark/wds_shapes"
COMMIT = "c" * 40
LABELS = [0, 3, 1, 2, 2]


def read(folder, **options):
    return WebDatasetData(REPO, **options).local(folder, Folders())


def benchmark(**options) -> Benchmark:
    data = (WebDatasetData(REPO, **options),)
    words = {"paper": "", "license": "", "obtain": "Get it.", "folder": data[0].name}
    return Benchmark("shapes", "Shapes", GENERAL, ZeroShot(), data, **words)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Stands for the Hub: one repository; what it was asked for."""
    asked = []

    def download(repo, **options):
        asked.append((repo, options))
        return str(tmp_path / COMMIT)

    monkeypatch.setattr("hfcomp.evaluation.hub.snapshot_download", download)
    write_set(tmp_path / COMMIT, LABELS, LABELS)
    return asked


@pytest.mark.parametrize("ending", ["png", "webp"])
def test_images_labels_and_words_are_read_as_they_are(tmp_path, ending):
    items = read(write_set(tmp_path, LABELS, ending=ending))
    assert items.rows["label"][:] == LABELS
    assert items.rows["item"][:] == items.rows["image_id"][:] == [f"s{row:07d}" for row in range(5)]
    assert items.images["image"][3] == {"bytes": encode_image(2, 3, TEST, ending), "path": "s0000003"}
    assert items.classes == CLASS_NAMES and items.templates == ("a {c} here", "one {c}")
    assert items.train is None and items.origin.place == str(tmp_path) and items.origin.commit is None


def test_archives_are_read_in_the_order_of_their_numbers(tmp_path):
    labels = [row % 4 for row in range(24)]
    write_set(tmp_path, labels)
    write_split(tmp_path / "test", labels, TEST, shards=12)
    assert read(tmp_path).rows["label"][:] == labels


def test_endings_may_differ_from_sample_to_sample_and_folders_are_part_of_the_key(tmp_path):
    write_set(tmp_path, LABELS)
    members = {"./a/s0.JPEG": encode_image(1, 0), "./a/s0.cls": b"1\n", "b/s0.webp": encode_image(2, 1, TEST, "webp")}
    write_tar(tmp_path / "test" / "1.tar", members | {"b/s0.cls": b"2", "b/._s0.webp": b"of a Mac", "b/s0.txt": b"?"})
    items = read(tmp_path)
    assert items.rows["item"][3:] == ["a/s0", "b/s0"] and items.rows["label"][3:] == [1, 2]
    assert items.images["image"][4]["bytes"] == encode_image(2, 1, TEST, "webp")


def test_a_changed_folder_is_seen(tmp_path):
    assert read(write_set(tmp_path, LABELS)).rows["label"][:] == LABELS
    write_split(tmp_path / "test", LABELS[::-1], TEST)
    assert read(tmp_path).rows["label"][:] == LABELS[::-1]


def test_an_empty_class_name_keeps_its_line(tmp_path):
    items = read(write_set(tmp_path, LABELS, classes=("a", " b ", "", "d")))
    assert items.classes == ("a", "b", "", "d")


def test_a_test_image_that_is_missing_is_left_out_and_counted(tmp_path):
    write_set(tmp_path, LABELS)
    write_tar(tmp_path / "test" / "1.tar", {"s3.png": encode_image(2, 3), "s3.cls": b"2", "s4.cls": b"2"})
    items = validate(benchmark(), read(tmp_path))
    assert len(items.rows) == len(items.images["image"]) == 4 and items.left_out == {"image missing": 1}


def test_one_key_twice_is_refused(tmp_path):
    write_set(tmp_path, LABELS)
    write_tar(tmp_path / "test" / "1.tar", {"s0000000.png": encode_image(2, 3), "s0000000.cls": b"2"})
    with pytest.raises(ValueError, match="'all/s0000000' in rows 0 and 3"):
        validate(benchmark(), read(tmp_path))


def test_training_images_are_read_when_asked_for(tmp_path):
    items = read(write_set(tmp_path, LABELS, LABELS[:3]), train=True)
    assert items.train.rows["label"][:] == LABELS[:3] and len(items.train.images["image"]) == 3
    assert items.classes == CLASS_NAMES and items.templates == ()


def test_labels_are_merged_into_bins_of_neighbors(tmp_path):
    items = read(write_set(tmp_path, [0, 1, 2, 3, 4], [4, 3, 2, 1, 0], classes="abcde"), train=True, bins=2)
    assert items.rows["label"][:] == [0, 0, 0, 1, 1] and items.train.rows["label"][:] == [1, 1, 0, 0, 0]
    assert items.classes == ()


def test_a_set_without_training_images_cannot_be_had(tmp_path):
    with pytest.raises(Unavailable, match="no training images .* train/0.tar"):
        read(write_set(tmp_path, LABELS), train=True)


def test_another_folder_is_none(tmp_path):
    assert read(tmp_path) is None
    with pytest.raises(ValueError, match=r"not contain .*clip-benchmark/wds_shapes"):
        load_items(benchmark(), Folders(own={"shapes": tmp_path}))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("test/nshards.txt", None, "nshards.txt .*missing: "),
        ("test/nshards.txt", b"two", "found 'two', .*number"),
        ("test/nshards.txt", b"4", "2 of 4 archives .* 2.tar"),
        ("test/1.tar", b"version https://git-lfs", r"1.tar .*not a complete .* `git lfs pull`"),
        ("classnames.txt", None, "classnames.txt .*missing"),
        ("classnames.txt", b"a\nb\n", "'s0000001' .* 3,.* 0 to 1"),
        ("zeroshot_classification_templates.txt", None, "templates.txt .*missing: .*{c}"),
        ("zeroshot_classification_templates.txt", b"{c}\na photo\n", "line 2: found 'a photo'"),
        ("zeroshot_classification_templates.txt", b"\n", "templates.txt .*empty"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, name, content, message):
    path = write_set(tmp_path, LABELS) / name
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read(tmp_path)


@pytest.mark.parametrize("label", [None, b"", b"cat", b"-1"])
def test_a_sample_without_a_number_for_its_class_is_refused(tmp_path, label):
    write_set(tmp_path, LABELS)
    members = {"s3.png": encode_image(2, 3)} | ({} if label is None else {"s3.cls": label})
    write_tar(tmp_path / "test" / "1.tar", members)
    with pytest.raises(ValueError, match=r"1.tar: s3.cls .* .*, expected a class index"):
        read(tmp_path)


def test_half_an_archive_is_refused(tmp_path):
    path = write_set(tmp_path, LABELS) / "test" / "0.tar"
    path.write_bytes(path.read_bytes()[:1600])
    with pytest.raises(ValueError, match="0.tar .*not a complete"):
        read(tmp_path)


def test_a_cut_at_any_byte_is_an_error_or_changes_nothing(tmp_path):
    path = write_set(tmp_path, LABELS) / "test" / "0.tar"
    whole, expected = path.read_bytes(), read(tmp_path)
    with tarfile.open(path) as archive:
        end = max(member.offset_data + 512 for member in archive)  # each of these files fills one block
    blocks = range(0, len(whole), 512)
    cuts = sorted({*blocks, *(at + odd for at in blocks for odd in (1, 255, 511))})
    scored = []
    for cut in cuts:
        path.write_bytes(whole[:cut])
        try:
            items = read(tmp_path)
        except ValueError as error:
            assert "0.tar is not a complete" in str(error), cut
        else:
            assert items.rows["item"][:] == expected.rows["item"][:]
            assert list(items.images["image"]) == list(expected.images["image"])
            scored.append(cut)
    # only zeros after the mark of its end were lost, and whole blocks of them, as some programs leave them out
    assert len(whole) == 10240 and scored == list(range(end + 1024, len(whole), 512))


def test_a_damaged_header_and_joined_archives_are_refused(tmp_path):
    path = write_set(tmp_path, LABELS) / "test" / "0.tar"
    whole = path.read_bytes()
    with tarfile.open(path) as archive:
        third = archive.getmembers()[2].offset
    path.write_bytes(whole[:third] + b"?" + whole[third + 1 :])
    with pytest.raises(ValueError, match=rf"0.tar .* byte {third:,}\)"):
        read(tmp_path)
    path.write_bytes(whole + whole)
    with pytest.raises(ValueError, match=r"0.tar .*\(data after .* byte 6,144"):
        read(tmp_path)


def test_more_archives_than_their_number_says_are_refused(tmp_path):
    write_set(tmp_path, LABELS)
    (tmp_path / "test" / "nshards.txt").write_text("1")
    with pytest.raises(ValueError, match=r"nshards.txt: found 1, but 1.tar "):
        read(tmp_path)


def test_a_training_image_that_is_missing_is_refused(tmp_path):
    write_set(tmp_path, LABELS, LABELS)
    write_tar(tmp_path / "train" / "1.tar", {"s3.cls": b"2"})
    with pytest.raises(ValueError, match="'s3' .*no image"):
        read(tmp_path, train=True)


def test_only_what_is_read_is_fetched_from_the_hub(hub):
    data = WebDatasetData(REPO, revision="abc")
    items = data.remote(Folders())
    assert (items.origin.place, items.origin.commit) == (REPO, COMMIT)
    assert items.rows["label"][:] == LABELS
    (repo, options), *_ = hub
    assert repo == REPO and options["repo_type"] == "dataset" and options["revision"] == "abc"
    assert options["allow_patterns"] == ["classnames.txt", "zeroshot_classification_templates.txt", "test/*"]
    WebDatasetData(REPO, train=True).remote(Folders())
    assert hub[1][1]["allow_patterns"][-1] == "train/*" and hub[1][1]["revision"] is None


def test_a_folder_named_as_the_repository_serves_every_benchmark(tmp_path, hub):
    write_set(tmp_path / "wds_shapes", LABELS[:2])
    items = load_items(benchmark(), Folders(root=tmp_path))
    assert len(items.rows) == 2 and items.origin.place == str(tmp_path / "wds_shapes") and not hub
    write_set(tmp_path / "own", LABELS)
    assert len(load_items(benchmark(), Folders(root=tmp_path, own={"shapes": tmp_path / "own"})).rows) == 5
    with pytest.raises(ValueError, match="test .*not contain .*clip-benchmark/wds_shap"):
        load_items(benchmark(), Folders(own={"wds_shapes": tmp_path / "own" / "test"}))


class _Response:
    headers: dict = {}
    request = None
    status_code = 403


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (errors.GatedRepoError("no", response=_Response()), ".*gated: .*terms"),
        (errors.RepositoryNotFoundError("no", response=_Response()), ".*revision, or private"),
        (errors.RevisionNotFoundError("no", response=_Response()), ".*revision, or private"),
        (errors.LocalEntryNotFoundError("no"), r".*\(LocalEntryNotFoundError"),
        (errors.HTTPError("no"), r".*\(HTTPError"),
    ],
)
def test_what_cannot_be_had_is_said_with_the_reason(monkeypatch, error, reason):
    def download(*_, **__):
        raise error

    monkeypatch.setattr("hfcomp.evaluation.hub.snapshot_download", download)
    with pytest.raises(Unavailable, match=f"{REPO} {reason}") as raised:
        load_items(benchmark())
    assert raised.value.how_to_fix.startswith("Get it. Or pass --data wds_shapes=DIR, a folder with the files of")


def test_images_are_read_one_by_one(tmp_path):
    images = read(write_set(tmp_path, LABELS)).images["image"]
    assert len(images) == 5
    assert [cell["bytes"] for cell in images] == [encode_image(label, row) for row, label in enumerate(LABELS)]
    assert images[np.int64(1)]["bytes"] == encode_image(3, 1)
