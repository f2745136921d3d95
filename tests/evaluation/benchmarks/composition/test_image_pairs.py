"""Benchmarks of two images and a caption of each."""

from __future__ import annotations

import json
from pathlib import Path

import datasets
import pytest

from hfcomp.evaluation import hub
from hfcomp.evaluation.benchmarks.composition.image_pairs import (
    BIVLC,
    COCO_COUNTERFACTUALS,
    COLA,
    COLA_FILE,
    COLA_WEB,
    COLORSWAP,
    COUNTERFACTUALS_AT,
    COUNTERFACTUALS_REPO,
    MMVP_VLM,
    VISMIN,
    WINOGROUND,
)
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.evaluation.engine import EMPTY_CAPTION, NO_IMAGE, run_benchmark
from hfcomp.evaluation.sources import load_items
from hfcomp.evaluation.spec import Unavailable
from tests.evaluation.benchmarks import groups, oracle
from tests.evaluation.encoders import (
    Sighted,
    check_chance,
    check_folder_and_hub,
    check_known_scorers,
    hub_folder,
    items,
    photos,
    repositories,
    scores,
)

COMMIT = "b400e173549071916ad1b3d449293bc8d8b4b763"
WEB = f"https://huggingface.co/datasets/facebook/winoground/resolve/{COMMIT}/data"
TAGS = ("Object", "Relation", "Relation", "Both")
TRUE = groups.true_of(len(TAGS))


def columns() -> dict[str, list]:
    """The columns on the Hub; item k has the images 2k and 2k + 1."""
    number = len(TAGS)
    more = {"tag": ["Noun"] * number, "secondary_tag": [""] * number, "num_main_preds": [1] * number}
    return groups.columns(number, id=list(range(number)), collapsed_tag=list(TAGS), **more)


def on_hub(folder: Path, **changes: list) -> Path:
    return hub_folder(folder, "test", columns() | changes, images=["image_0", "image_1"])


def raw(folder: Path) -> Path:
    """The authors' examples and a folder of images."""
    names = [(f"ex_{row}_img_0", f"ex_{row}_img_1") for row in range(len(TAGS))]
    more = {name: values for name, values in columns().items() if not name.startswith(("image", "caption"))}
    return groups.examples(folder, names, **more)


def pack(folder: Path) -> Path:
    """The same with the images in an archive."""
    return groups.pack(raw(folder))


@pytest.mark.parametrize("layout", [on_hub, raw, pack])
def test_known_scorers_on_every_layout(tmp_path, layout):
    rows = items(WINOGROUND, layout(tmp_path / "winoground"))
    assert rows.rows["subset"][:] == list(TAGS) and rows.rows["item"][:] == ["0", "1", "2", "3"]
    check_known_scorers(WINOGROUND, rows, TRUE)


@pytest.mark.parametrize(
    "benchmark",
    [WINOGROUND, BIVLC, COLORSWAP, VISMIN, COCO_COUNTERFACTUALS, MMVP_VLM, COLA],
    ids=lambda benchmark: benchmark.name,
)
def test_a_random_scorer_is_at_chance(benchmark):
    check_chance(benchmark, groups.TEXTS)


def test_scores_by_tag_and_of_all(tmp_path):
    """Item 0's second caption fits both images: its text score is lost, its image score and all others are not."""
    encoder = Sighted(oracle.knowing(TRUE | {0: ["caption 0", "caption 1"]}))
    values = scores(WINOGROUND, run_benchmark(WINOGROUND, items(WINOGROUND, on_hub(tmp_path / "w")), encoder))
    assert values["Object", "text"] == values["Object", "image"] == values["Object", "group"] == 0
    assert values["Relation", "group"] == values["Both", "group"] == 1
    assert values["all items", "group"] == 3 / 4


def test_from_the_hub_at_the_pinned_commit(tmp_path, monkeypatch):
    hub = oracle.HubOnDisk(monkeypatch, **{"facebook/winoground": on_hub(tmp_path / "w")})
    rows = items(WINOGROUND, None)
    assert hub.asked == [("facebook/winoground", {"split": "test", "revision": COMMIT})]
    assert rows.origin.commit == COMMIT


def test_a_loading_script_leads_to_the_files_beside_it(tmp_path, monkeypatch):
    def script(name, **options):
        raise RuntimeError("Dataset scripts are no longer supported, but found winoground.py")

    monkeypatch.setattr(hub, "load_dataset", script)
    asked = repositories(monkeypatch, {WEB: pack(tmp_path / "w")})
    rows = items(WINOGROUND, None)
    assert asked == [(WEB, ("examples.jsonl", "images.zip"))] and rows.origin.commit == COMMIT
    check_known_scorers(WINOGROUND, rows, TRUE)


@pytest.mark.parametrize(
    ("benchmark", "repo"), [(WINOGROUND, "facebook/winoground"), (COLORSWAP, "stanfordnlp/colorswap")]
)
def test_without_consent_it_says_where_to_give_it(benchmark, repo, monkeypatch):
    def raise_gated(name, **options):
        raise datasets.exceptions.DatasetNotFoundError(f"'{repo}' is a gated dataset on the Hub.")

    monkeypatch.setattr(hub, "load_dataset", raise_gated)
    monkeypatch.setattr(hub, "_newest", lambda repo: None)
    repositories(monkeypatch, {})
    with pytest.raises(Unavailable, match=f"gated.*https://huggingface.co/datasets/{repo}"):
        load_items(benchmark)


def test_what_is_missing_is_left_out_or_named(tmp_path):
    texts = ["caption 0", "", "caption 4", "caption 6"]
    images = [oracle.photo(1), oracle.photo(3), None, oracle.photo(7)]
    rows = items(WINOGROUND, on_hub(tmp_path / "holes", caption_0=texts, image_1=images))
    assert rows.left_out == {EMPTY_CAPTION: 1, NO_IMAGE: 1}
    with pytest.raises(ValueError, match="'Relation/1' in rows 1 and 2"):
        items(WINOGROUND, on_hub(tmp_path / "twice", id=[0, 1, 1, 3]))
    place = raw(tmp_path / "raw")
    (place / "images" / "ex_2_img_1.png").unlink()
    assert items(WINOGROUND, place).left_out == {NO_IMAGE: 1}
    (place / "examples.jsonl").write_text('{"id": 0}\n')
    with pytest.raises(ValueError, match="examples.jsonl, line 1: .*'image_0'"):
        items(WINOGROUND, place)
    cut = pack(tmp_path / "packed")
    (cut / "images.zip").write_bytes((cut / "images.zip").read_bytes()[:100])
    with pytest.raises(ValueError, match=r"images.zip .*Download"):
        items(WINOGROUND, cut)


def test_a_real_model_reads_all_three_layouts_alike(tmp_path, clip):
    embedder = Embedder(clip)
    tables = [
        run_benchmark(WINOGROUND, items(WINOGROUND, layout(tmp_path / layout.__name__)), embedder).items["value"]
        for layout in (on_hub, raw, pack)
    ]
    assert tables[0].tolist() == tables[1].tolist() == tables[2].tolist()


KINDS = (("replace", "obj"), ("replace", "obj"), ("swap", "att"), ("add", "obj"))
BIVLC_TRUE = groups.true_of(len(KINDS))


def bivlc_on_hub(folder: Path, **changes: list) -> Path:
    """Item k has the images 2k and 2k + 1."""
    rows = range(len(KINDS))
    columns = {
        "image": [oracle.photo(2 * row) for row in rows],
        "caption": [f"caption {2 * row}" for row in rows],
        "negative_caption": [f"caption {2 * row + 1}" for row in rows],
        "negative_image": [oracle.photo(2 * row + 1) for row in rows],
        "type": [kind for kind, _ in KINDS],
        "subtype": [part for _, part in KINDS],
    }
    return hub_folder(folder, "test", columns | changes, images=["image", "negative_image"], named=False)


def test_known_scorers_of_bivlc_in_a_folder_and_on_the_hub(tmp_path, monkeypatch):
    check_folder_and_hub(BIVLC, bivlc_on_hub(tmp_path / "bivlc"), "imirandam/BiVLC", BIVLC_TRUE, monkeypatch)


def test_subsets_have_sugarcrepe_s_names_and_a_caption_of_both_images_loses_both_directions(tmp_path):
    encoder = Sighted(oracle.knowing(BIVLC_TRUE | {4: ["caption 4", "caption 5"]}))
    values = scores(BIVLC, run_benchmark(BIVLC, items(BIVLC, bivlc_on_hub(tmp_path / "b")), encoder))
    assert [values["swap_att", metric] for metric in ("text", "image", "group")] == [0, 0, 0]
    assert values["replace_obj", "group"] == values["add_obj", "group"] == 1
    assert values["all items", "group"] == 3 / 4
    assert values["macro of subsets", "group"] == pytest.approx(2 / 3)


def test_what_bivlc_lacks_is_left_out_or_named(tmp_path):
    texts, images = (
        ["caption 1", "", "caption 5", "caption 7"],
        [oracle.photo(0), oracle.photo(2), None, oracle.photo(6)],
    )
    assert items(BIVLC, bivlc_on_hub(tmp_path / "holes", negative_caption=texts, image=images)).left_out == {
        EMPTY_CAPTION: 1,
        NO_IMAGE: 1,
    }
    other = hub_folder(tmp_path / "other", "test", {"caption": ["a"], "image": [oracle.photo(0)]}, images=["image"])
    with pytest.raises(ValueError, match="no column 'negative_image', 'negative_caption', 'type', 'subtype'"):
        items(BIVLC, other)


GROUPS = 3
COLORSWAP_TRUE = groups.true_of(GROUPS)


def colorswap_on_hub(folder: Path, **changes: list) -> Path:
    more = {"id": list(range(GROUPS)), "image_source": ["dalle3"] * GROUPS, "caption_source": ["human"] * GROUPS}
    columns = groups.columns(GROUPS, 1, **more) | changes
    return hub_folder(folder, "test", columns, images=["image_1", "image_2"], named=False)


def test_known_scorers_of_colorswap(tmp_path):
    rows = items(COLORSWAP, colorswap_on_hub(tmp_path / "c"))
    assert rows.rows["item"][:] == ["0", "1", "2"] and set(rows.rows["subset"]) == {"all"}
    check_known_scorers(COLORSWAP, rows, COLORSWAP_TRUE)


def test_from_the_hub_the_test_split_alone(tmp_path, monkeypatch):
    hub_stub = oracle.HubOnDisk(
        monkeypatch, **{"stanfordnlp/colorswap": colorswap_on_hub(tmp_path / "c", caption_2=["", "b", "c"])}
    )
    assert items(COLORSWAP, None).left_out == {EMPTY_CAPTION: 1}
    assert hub_stub.asked == [("stanfordnlp/colorswap", {"split": "test", "revision": None})]


VISMIN_KINDS = ("object", "counting", "counting", "relation")
VISMIN_TRUE = groups.true_of(len(VISMIN_KINDS))


def vismin_on_hub(folder: Path, **changes: list) -> Path:
    """Item k has the images 2k and 2k + 1; questions for generative models are not read."""
    rows = range(len(VISMIN_KINDS))
    columns = {
        "image_0": [oracle.photo(2 * row) for row in rows],
        "text_0": [f"caption {2 * row}" for row in rows],
        "image_1": [oracle.photo(2 * row + 1) for row in rows],
        "text_1": [f"caption {2 * row + 1}" for row in rows],
        "text_question_0": ["Which?"] * len(VISMIN_KINDS),
        "category": list(VISMIN_KINDS),
    }
    return hub_folder(folder, "test", columns | changes, images=["image_0", "image_1"], named=False)


def test_known_scorers_of_vismin_in_a_folder_and_on_the_hub(tmp_path, monkeypatch):
    check_folder_and_hub(VISMIN, vismin_on_hub(tmp_path / "vismin"), "mair-lab/vismin-bench", VISMIN_TRUE, monkeypatch)


def test_each_kind_of_change_counts_once(tmp_path):
    encoder = Sighted(oracle.knowing(VISMIN_TRUE | {2: []}))
    values = scores(VISMIN, run_benchmark(VISMIN, items(VISMIN, vismin_on_hub(tmp_path / "v")), encoder))
    assert [values[kind, "group"] for kind in ("object", "counting", "relation")] == [1, 1 / 2, 1]
    assert values["macro of categories", "group"] == pytest.approx(5 / 6)
    assert values["all items", "group"] == 3 / 4


def test_what_vismin_lacks_is_left_out_or_named(tmp_path):
    holes = vismin_on_hub(tmp_path / "holes", text_1=["caption 1", "caption 3", "", "caption 7"])
    assert items(VISMIN, holes).left_out == {EMPTY_CAPTION: 1}
    images = [None, *(oracle.photo(2 * row) for row in range(1, 4))]
    assert items(VISMIN, vismin_on_hub(tmp_path / "none", image_0=images)).left_out == {NO_IMAGE: 1}
    other = hub_folder(tmp_path / "other", "test", {"image_0": [oracle.photo(0)], "text_0": ["a"]}, images=["image_0"])
    with pytest.raises(ValueError, match="no column 'image_1', 'text_1', 'category'"):
        items(VISMIN, other)


NAMES = ["236308_0", "236308_1", "9891_0"]
COCO_COUNTERFACTUALS_TRUE = groups.true_of(len(NAMES))


def raw_counterfactuals(folder: Path) -> Path:
    return groups.examples(folder, [(f"{n}_img_0", f"{n}_img_1") for n in NAMES], ending=".jpg", id=list(NAMES))


@pytest.mark.parametrize("layout", [raw_counterfactuals, lambda folder: groups.pack(raw_counterfactuals(folder))])
def test_known_scorers_on_both_layouts(tmp_path, layout):
    rows = items(COCO_COUNTERFACTUALS, layout(tmp_path / "c"))
    assert rows.rows["item"][:] == NAMES
    # both edits of one caption of COCO are one photograph in intervals
    assert rows.rows["image_id"][:] == ["236308", "236308", "9891"]
    check_known_scorers(COCO_COUNTERFACTUALS, rows, COCO_COUNTERFACTUALS_TRUE)


def test_coco_counterfactuals_from_the_hub_at_the_pinned_commit(tmp_path, monkeypatch):
    groups.pack(raw_counterfactuals(tmp_path / COUNTERFACTUALS_AT / "data"))
    asked = {}

    def download(repo, **how):
        asked.update(how, repo=repo)
        return str(tmp_path / COUNTERFACTUALS_AT)

    monkeypatch.setattr(hub, "snapshot_download", download)
    rows = items(COCO_COUNTERFACTUALS, None)
    assert (asked["repo"], asked["revision"]) == (COUNTERFACTUALS_REPO, COUNTERFACTUALS_AT)
    assert {"data/examples.jsonl", "data/images.zip"} <= set(asked["allow_patterns"])
    assert rows.origin.commit == COUNTERFACTUALS_AT
    check_known_scorers(COCO_COUNTERFACTUALS, rows, COCO_COUNTERFACTUALS_TRUE)


def test_an_image_that_the_archive_lacks_is_left_out(tmp_path):
    (raw_counterfactuals(tmp_path / "c") / "images" / "9891_0_img_1.jpg").unlink()
    assert items(COCO_COUNTERFACTUALS, groups.pack(tmp_path / "c")).left_out == {NO_IMAGE: 1}


PATTERNS = ("Orientation", "Camera Perspective")
PAIRS = 2  # in each pattern
MMVP_VLM_TRUE = {number: [f"a photo of thing {number}, seen"] for number in range(2 * PAIRS * len(PATTERNS))}


def raw_mmvp(folder: Path) -> Path:
    """Image n of the set, which counts from 1, is photo n - 1."""
    lines = ["Question ID,Type,Statement"]
    for number in MMVP_VLM_TRUE:
        pattern = PATTERNS[number // (2 * PAIRS)]
        photos(folder / "MLLM_VLM Images" / pattern, {f"{number + 1}.jpg": number})
        lines.append(f'{number + 1},{pattern},"thing {number}, seen"')
    (folder / "Questions.csv").write_text("\n".join(lines) + "\n")
    return folder


def test_known_scorers_of_mmvp_vlm(tmp_path):
    rows = items(MMVP_VLM, raw_mmvp(tmp_path))
    assert rows.rows["subset"][:] == ["Orientation"] * PAIRS + ["Camera Perspective"] * PAIRS
    check_known_scorers(MMVP_VLM, rows, MMVP_VLM_TRUE)


def test_the_score_of_the_paper_comes_first(tmp_path):
    """A statement that fits both images loses the image score of the script, and not the text score of the other."""
    both = MMVP_VLM_TRUE | {1: [*MMVP_VLM_TRUE[0], *MMVP_VLM_TRUE[1]]}
    report = run_benchmark(MMVP_VLM, items(MMVP_VLM, raw_mmvp(tmp_path)), Sighted(oracle.knowing(both)))
    assert report.items["metric"].iloc[0] == "image"
    values = scores(MMVP_VLM, report)
    assert values["Orientation", "image"] == 0.5 and values["Camera Perspective", "image"] == 1
    assert values["mean of 9 patterns", "image"] == 0.75


def test_mmvp_vlm_from_the_hub_at_the_pinned_commit(tmp_path, monkeypatch):
    asked = {}
    folder = raw_mmvp(tmp_path / MMVP_VLM.data[0].revision)
    monkeypatch.setattr(hub, "snapshot_download", lambda repo, **how: asked.update(how, repo=repo) or str(folder))
    rows = items(MMVP_VLM, None)
    assert (asked["repo"], asked["revision"]) == ("MMVP/MMVP_VLM", folder.name)
    assert {"Questions.csv", "MLLM_VLM Images/*"} <= set(asked["allow_patterns"])
    assert (rows.origin.place, rows.origin.commit) == ("MMVP/MMVP_VLM", folder.name)


def test_what_mmvp_vlm_lacks_is_left_out_or_named(tmp_path):
    (raw_mmvp(tmp_path) / "MLLM_VLM Images" / "Orientation" / "2.jpg").unlink()
    assert items(MMVP_VLM, tmp_path).left_out == {NO_IMAGE: 1}
    lines = (tmp_path / "Questions.csv").read_text().splitlines(keepends=True)

    def write_folder(changed: list[str]) -> Path:
        (tmp_path / "Questions.csv").write_text("".join(changed))
        return tmp_path

    with pytest.raises(ValueError, match="Questions.csv: found 7 lines"):
        items(MMVP_VLM, write_folder(lines[:-1]))
    with pytest.raises(ValueError, match="entries 2 and 3 .*'Orientation' and 'Camera Per"):
        items(MMVP_VLM, write_folder([*lines[:4], *lines[5:8]]))
    with pytest.raises(ValueError, match="Questions.csv, line 3: found 2 fields, .*3"):
        items(MMVP_VLM, write_folder([*lines[:2], "2,Orientation\n"]))
    with pytest.raises(ValueError, match="Questions.csv, line 2: .*'Type'; .*'Question ID', 'Pattern'"):
        items(MMVP_VLM, write_folder([lines[0].replace("Type", "Pattern"), *lines[1:]]))


COLA_PAIRS = ((0, 1), (2, 3), (4, 1))  # two of them share a photograph
COLA_TRUE = {number: [f"caption {number}"] for number in range(5)}
ADDRESS = "https://example.org/vg_gqa_images/{}.jpg"


def write(folder: Path, entries: list) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / COLA_FILE).write_text(json.dumps(entries))
    return folder


@pytest.fixture
def folder(tmp_path) -> Path:
    pairs = [[ADDRESS.format(a), f"caption {a}", ADDRESS.format(b), f"caption {b}"] for a, b in COLA_PAIRS]
    photos(tmp_path / "cola" / "visual_genome", {f"{number}.jpg": number for number in range(5)})
    return write(tmp_path / "cola", pairs)


def test_known_scorers_of_cola(folder):
    rows = items(COLA, folder)
    assert rows.rows["image_id"][:] == ["0.jpg", "2.jpg", "4.jpg"]
    check_known_scorers(COLA, rows, COLA_TRUE)


def test_the_paper_s_score_comes_first_and_asks_for_the_image_of_each_caption(folder):
    """Photograph 1 fits every caption, so that both captions of its two pairs have no answer."""
    every = [text for texts in COLA_TRUE.values() for text in texts]
    report = run_benchmark(COLA, items(COLA, folder), Sighted(oracle.knowing(COLA_TRUE | {1: every})))
    assert list(report.items["metric"].unique()) == ["image", "group", "text"]
    assert scores(COLA, report)["all", "image"] == pytest.approx(1 / 3)


def test_the_file_of_the_repository_and_a_folder_of_photographs(folder, monkeypatch):
    asked = repositories(monkeypatch, {COLA_WEB: folder})
    images = (folder / "visual_genome").rename(folder.with_name("photographs"))
    assert len(items(COLA, None, visual_genome=images).rows) == 3 and asked == [(COLA_WEB, (COLA_FILE,))]
    with pytest.raises(Unavailable, match="visual_genome .*missing"):
        load_items(COLA)


def test_gaps_are_left_out_and_errors_named(folder):
    (folder / "visual_genome" / "3.jpg").unlink()
    assert items(COLA, folder).left_out == {NO_IMAGE: 1}
    write(folder, [["0.jpg", "a", "1.jpg", ""], ["0.jpg", "a", "1.jpg", "b"]])
    assert items(COLA, folder).left_out == {EMPTY_CAPTION: 1}
    write(folder, [["0.jpg", "a", "1.jpg"]])
    with pytest.raises(ValueError, match="entry 0: .*image, caption, other image, other caption"):
        items(COLA, folder)
