"""MAGIC (CLEAR GLASS, section 3.1): from captioned images to groups of abstract concepts, in four steps.

| step | place | what |
|---|---|---|
| concepts | `steps/concepts` | the first-level concept of each image, from all its captions |
| hierarchy | `hierarchy.json` | small concepts merged or removed, parents up to level 4, hard negatives |
| captions | `steps/captions` | a generalized caption of each image, and the names of its concepts |
| parts | `image_..._concept_...` | the source's rows with these texts, in four parts by both splits |

Each step resumes where it was killed, and starts when the previous step is complete. Configurations are views of the
parts (`hfcomp.data.built_sets.views`), so no image is stored twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from datasets import Dataset, Features, List, Value, concatenate_datasets
from numpy.typing import NDArray

from hfcomp.checksums import file_hash
from hfcomp.data.built_sets.files import HIERARCHY, MANIFEST, SET_ASIDE_FILE, STEPS_FOLDER, StepNames, checked_shards
from hfcomp.data.built_sets.views import View, write_views
from hfcomp.data.concepts.level_names import LEVELS
from hfcomp.data.image_ids import IMAGE_ID
from hfcomp.data.loading import load_training_set
from hfcomp.data.publishing import DEFAULT
from hfcomp.factory.build import BuiltSet, add_license_check
from hfcomp.factory.chain import Chain, join_columns
from hfcomp.factory.magic.building import build_hierarchy, check_hard_negatives, draw_test_images
from hfcomp.factory.magic.encoders import CaptionsEncoder, ConceptEncoder, open_encoder
from hfcomp.factory.magic.hierarchy import Concept, Hierarchy, hierarchy_tables, read_hierarchy, write_hierarchy
from hfcomp.factory.magic.image_rows import CAPTION, ImageRows, image_rows
from hfcomp.factory.magic.options import BY_CAPTIONS, MagicOptions
from hfcomp.factory.magic.stages import CONCEPT, GENERALIZED, make_concepts, make_generalized, make_source
from hfcomp.factory.manifest import check_plan, sums
from hfcomp.factory.options import command_line
from hfcomp.factory.runner import Build
from hfcomp.factory.shards import SOURCE_ROW, Stage
from hfcomp.factory.sources import BuildInputs, make_image_check, output_features

GROUP, HARD_NEGATIVE_GROUPS = "group", "hard_negative_groups"
# Columns of the dataset in addition to those of its source.
TEXTS = Features(
    {
        IMAGE_ID: Value("string"),
        GENERALIZED: Value("string"),
        GROUP: Value("string"),
        HARD_NEGATIVE_GROUPS: List(Value("string")),
        **dict.fromkeys(LEVELS, Value("string")),
    }
)

SPLITS = ("train", "test")
# Folder of each part, by its splits by image and by concept.
PARTS = {(image, concept): f"image_{image}_concept_{concept}" for image in SPLITS for concept in SPLITS}


class MagicChain(Chain):
    """Builds MAGIC."""

    names = StepNames("hfcomp build magic", ("concepts", "captions"))
    folders = tuple(map(Path, (*(f"{STEPS_FOLDER}/{step}" for step in names.steps), *PARTS.values())))
    always_kept = (IMAGE_ID,)
    options: MagicOptions

    @staticmethod
    def is_old(column: str) -> bool:
        """Also drops columns that describe earlier concepts."""
        return column in (SOURCE_ROW, CONCEPT) or (column in TEXTS and column != IMAGE_ID)

    def run(self) -> BuiltSet:
        """Runs the requested steps."""
        # Missing packages and models are detected now, not after hours of the first step.
        self._answers.facts()
        if self.options.encoder != BY_CAPTIONS and self.options.runs("hierarchy", self.options.until):
            self._model_encoder.facts()
        self._part_inputs  # noqa: B018
        chain, facts = [self._concepts()], []
        parts: Mapping[str, Build] = {}
        if self.options.runs("hierarchy", self.options.until):
            hierarchy = self._hierarchy(chain[0])
            if self.options.runs("captions", self.options.until):
                check_hard_negatives(hierarchy, self.options)
                chain.append(self._captions(chain[0].folder, hierarchy))
            if self.options.runs("parts", self.options.until) and chain[-1].manifest["rows"]:
                parts = self._parts(chain[-1].folder, hierarchy)
                chain.append(_join_parts(parts))
            facts = hierarchy_tables(hierarchy, sum(_pairs(part.folder) for part in parts.values()))
        if parts:
            sets = {DEFAULT: [build.manifest for build in chain]}
            self.write_card(self.source, sets, command_line(self.options.words()), facts)
        return BuiltSet(self.options.output, self.card, {DEFAULT: chain}, facts)

    @cached_property
    def _rows(self) -> ImageRows:
        return image_rows(self.source)

    @cached_property
    def _answers(self) -> Any:
        return make_source(**self.options.source_settings())

    @cached_property
    def _model_encoder(self) -> ConceptEncoder:
        options = self.options
        return open_encoder(options.encoder, device=options.device, server=options.encoder_settings(), log=self.log)

    @cached_property
    def _texts(self) -> Features:
        several = {GENERALIZED: List(Value("string"))} if self.options.captions_per_image > 1 else {}
        return Features({**TEXTS, **several})

    @cached_property
    def _part_inputs(self) -> BuildInputs:
        """The inputs of the parts, except for their own rows."""
        stages, features = [Stage("images", make_image_check)], output_features(self.source, self._texts)
        inputs = BuildInputs(self.source, stages, features, ["image"])
        return add_license_check(inputs, self.stated_license) if self.options.only_adaptable else inputs

    def _concepts(self) -> Build:
        stage = Stage("concepts", make_concepts, self.options.source_settings(), self._answers.facts())
        features = Features({SOURCE_ROW: Value("int64"), IMAGE_ID: Value("string"), CONCEPT: Value("string")})
        return self._step("concepts", BuildInputs(self._rows.images, [stage], features, [CAPTION]))

    def _step(self, step: str, inputs: BuildInputs) -> Build:
        uses_gpu = self.options.writer == "transformers"
        return self.run_step(f"{STEPS_FOLDER}/{step}", f"{step}:", inputs, uses_gpu=uses_gpu)

    def _hierarchy(self, concepts: Build) -> Hierarchy:
        """The hierarchy of the concepts, read from disk if its inputs are the same, because questions cost time."""
        if not concepts.manifest["rows"]:
            raise ValueError(
                f"no image has a concept. The reasons, row by row, are in {concepts.folder / SET_ASIDE_FILE}."
            )
        image_concepts, settings = load_training_set(str(concepts.folder)), self.options
        images_of: dict[str, list[int]] = {}
        for name, row in zip(image_concepts[CONCEPT][:], image_concepts[SOURCE_ROW][:], strict=True):
            images_of.setdefault(name, []).append(row)
        encoder = self._model_encoder if settings.encoder != BY_CAPTIONS else self._captions_encoder(images_of)
        parts = {"settings": settings.facts(), "encoder": encoder.facts(), "source": self._answers.facts()}
        # The facts cover everything that determines the hierarchy.
        facts = {**parts, "concepts": f"sha256:{file_hash(concepts.folder / MANIFEST)}"}
        if (self.options.output / HIERARCHY).is_file():
            before = read_hierarchy(self.options.output)
            # An earlier hfcomp stored no cosines, which the advice needs if no concept has a hard negative.
            is_complete = before.cosines.pairs.total or any(concept.hard_negatives for concept in before.concepts)
            if before.facts == facts and is_complete:
                return before
            if (self.options.output / self.folders[1]).exists():  # captions keep the hierarchy that they belong to
                check_plan(self.options.output, before.facts, facts)
        images = {name: len(rows) for name, rows in images_of.items()}
        self.log(f"hierarchy: {len(images):,} concepts of {len(image_concepts):,} images")
        # For questions about a concept, the captions of its first image.
        first = {"captions_of": lambda name: self._rows.images[images_of[name][0]][CAPTION]}
        source = make_source(**settings.source_settings(), **first)
        built = build_hierarchy(images, source, encoder, settings, log=self.log, progress=self.progress)
        for name, number in sorted(source.counts.items()):
            self.log(f"hierarchy: {name}: {number:,}")
        if not built.concepts:
            reasons = Counter(removal.reason for removal in built.removed).most_common()
            raise ValueError(
                f"no concept is left of {len(images):,}: {', '.join(f'{reason} ({n:,})' for reason, n in reasons)}. "
                "Use more images, or a smaller --min_images."
            )
        built = replace(built, facts=facts)
        write_hierarchy(self.options.output, built)
        return built

    def _captions_encoder(self, images_of: Mapping[str, Sequence[int]]) -> ConceptEncoder:
        captions = self._rows.images[CAPTION][:]
        return CaptionsEncoder(lambda name: (text for row in images_of[name] for text in captions[row]))

    def _captions(self, concepts: Path, hierarchy: Hierarchy) -> Build:
        """Builds captions of the images whose concept is in the hierarchy. Other images are counted by reason."""
        image_concepts = load_training_set(str(concepts))
        names = image_concepts[CONCEPT][:]
        places = {name: hierarchy.place(name) for name in dict.fromkeys(names)}
        left = Counter(places[name] for name in names if isinstance(places[name], str))
        for reason, number in sorted(left.items()):
            self.log(f"{number:,} images are left out: {reason}")
        kept = [(row, place) for row, name in enumerate(names) if isinstance(place := places[name], Concept)]
        rows = image_concepts.with_format("numpy")[SOURCE_ROW][:][[row for row, _ in kept]]
        texts = [_concept_texts(place) for _, place in kept]
        columns = {name: [row_texts[name] for row_texts in texts] for name in (GROUP, HARD_NEGATIVE_GROUPS, *LEVELS)}
        named = Features({SOURCE_ROW: Value("int64"), **{name: TEXTS[name] for name in columns}})
        images = self._rows.images.select(rows).flatten_indices()
        columns = Dataset.from_dict({SOURCE_ROW: rows, **columns}, features=named)
        images = concatenate_datasets([images, columns], axis=1)
        settings, facts = self.options.source_settings(), {**self._answers.facts()}
        if self.options.captions_per_image > 1:  # omitted otherwise, so builds of an earlier hfcomp still resume
            facts["captions_per_image"] = self.options.captions_per_image
        stage = Stage("generalized captions", make_generalized, settings, facts)
        features = Features({SOURCE_ROW: Value("int64"), **self._texts})
        return self._step("captions", BuildInputs(images, [stage], features, [CAPTION, *LEVELS]))

    def _parts(self, captions: Path, hierarchy: Hierarchy) -> dict[str, Build]:
        captioned = load_training_set(str(captions))
        image_of = np.full(len(self._rows.images), -1)  # for each image, its row among the captions
        image_of[captioned.with_format("numpy")[SOURCE_ROW][:]] = np.arange(len(captioned))
        caption_of = image_of[self._rows.image_of]  # for each row of the source
        rows = np.flatnonzero(caption_of >= 0)
        texts = captioned.remove_columns(SOURCE_ROW).select(caption_of[rows]).add_column(SOURCE_ROW, rows)
        whole = join_columns(self.source, texts, rows)
        # Both splits apply to images. A row of the source takes the splits of its image.
        in_test = self._test_flags(captioned, hierarchy)[:, caption_of[rows]]
        parts = {}
        for (image, concept), name in PARTS.items():
            is_image, is_concept = in_test == np.array([[image == "test"], [concept == "test"]])
            chosen = np.flatnonzero(is_image & is_concept)
            # A part without rows is not built, and no view refers to it.
            if len(chosen):
                inputs = self._part_inputs._replace(dataset=whole.select(chosen))
                parts[name] = self.run_step(name, f"{name}:", inputs)
        # Views are written last, because they refer only to parts with rows.
        write_views(self.options.output, magic_views(parts))
        return parts

    def _test_flags(self, made: Dataset, hierarchy: Hierarchy) -> NDArray[np.bool_]:
        """`[2, images]`: whether each image, and its concept, belongs to the test split."""
        groups: dict[str, list[str]] = {}
        for name, image in zip(made[GROUP][:], made[IMAGE_ID][:], strict=True):
            groups.setdefault(name, []).append(image)
        tested = draw_test_images(groups, self.options.test_share, self.options.seed)
        unseen = {concept.name for concept in hierarchy.concepts if concept.unseen}
        return np.array(
            [[image in tested for image in made[IMAGE_ID][:]], [name in unseen for name in made[GROUP][:]]]
        )


def _join_parts(parts: Mapping[str, Build]) -> Build:
    """Combines parts into one build, for counts and cards."""
    builds = list(parts.values())
    manifest = {"plan": builds[0].manifest["plan"], **sums([build.manifest for build in builds])}
    return Build(
        builds[0].folder.parent, manifest, sum(build.kept for build in builds), sum(build.made for build in builds)
    )


def _pairs(part: Path) -> int:
    """Number of pairs of an image and a generalized caption in a part: what the paper's pairs are."""
    columns = (pq.read_table(file, columns=[GENERALIZED]).column(0) for file in checked_shards(part) or ())
    texts = (pc.list_flatten(column) if pa.types.is_list(column.type) else column for column in columns)
    return sum(pc.count(column).as_py() for column in texts)  # nulls are not counted


def _concept_texts(concept: Concept) -> dict[str, Any]:
    return {
        GROUP: concept.name,
        HARD_NEGATIVE_GROUPS: list(concept.hard_negatives),
        **dict(zip(LEVELS, concept.chain, strict=True)),
    }


def magic_views(parts: Mapping[str, Build]) -> dict[str, View]:
    """The configurations of a dataset: captions and levels, each split by image and by concept."""
    built = {name: part for name, part in parts.items() if part.manifest["rows"]}
    names = list(next(iter(parts.values())).manifest["plan"]["columns"])
    # Names of levels are for evaluation. In training they would give the answer away.
    without = tuple(name for name in names if name not in LEVELS)
    views = {}
    for by, suffix in ((0, ""), (1, "_by_concept")):
        splits = {
            split: tuple(name for key, name in PARTS.items() if key[by] == split and name in built) for split in SPLITS
        }
        views |= {f"captions{suffix}": View(splits, without), f"levels{suffix}": View(splits, tuple(names))}
    return {name: views[name] for name in ("captions", "levels", "captions_by_concept", "levels_by_concept")}
