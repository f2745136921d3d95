"""`datasets` builders for built datasets, for use in process; on the Hub the same datasets are plain Parquet files.

See docs/building.md for an example.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.parquet as pq
from datasets import BuilderConfig, DatasetInfo, Features, GeneratorBasedBuilder, SplitGenerator

from hfcomp.checksums import file_hash
from hfcomp.data.built_sets.files import MANIFEST, checked_shards, content_hash, read_manifest, split_of, view_files
from hfcomp.data.built_sets.views import View, choose_view, read_views
from hfcomp.data.columns import NEGATIVE_FEATURES
from hfcomp.data.negatives import RATINGS, rated_column
from hfcomp.negatives.concreteness import ConcretenessRatings, concreteness_column

_ROWS = 100


@dataclass
class BuiltConfig(BuilderConfig):
    """A configuration of a built dataset.

    Attributes:
        concreteness_ratings: File for `ConcretenessRatings.from_file`; its ratings become `negative_concreteness`.
    """

    kind: ClassVar[str]
    configs: ClassVar[Mapping[str, str]]
    concreteness_ratings: str | None = None

    def create_config_id(self, config_kwargs: dict[str, Any], custom_features: Features | None = None) -> str:
        # `datasets` names its cache by the arguments only. A dataset rebuilt in the same folder would be read from the
        # old cache, so hashes of the dataset and of the ratings become part of the name.
        folder, ratings = self.folder(), Path(self.concreteness_ratings or "")
        views = read_views(folder)
        hashes = {"content_0": file_hash(folder / MANIFEST) if views is None else content_hash(folder, views)}
        if ratings.is_file():
            hashes["content_1"] = file_hash(ratings)
        return super().create_config_id({**config_kwargs, **hashes}, custom_features)

    def folder(self) -> Path:
        """The folder of the built dataset: `data_dir`, or its subfolder with the configuration's name."""
        if self.data_dir is None:
            raise ValueError(
                f"config {self.name!r} needs data_dir: the folder of a dataset built by `hfcomp build {self.kind}`."
            )
        places = (Path(self.data_dir) / self.name, Path(self.data_dir))
        chosen = next(filter(_is_built, places), None)
        if chosen is None:
            raise ValueError(
                f"{self.data_dir}: expected a dataset built by `hfcomp build {self.kind}` in this folder or in its "
                f"subfolder {self.name}/, but neither has the {MANIFEST} of a built dataset."
            )
        other = chosen.resolve().name
        if other != self.name and other in self.configs:
            raise ValueError(
                f"{chosen} is the configuration {other!r}, not {self.name!r}. Pass config_name={other!r}, or the "
                f"folder of {self.name} as data_dir."
            )
        return chosen

    def view(self) -> View | None:
        """The view, if the dataset is stored in parts; None for any other dataset."""
        views = read_views(self.folder())
        return None if views is None else choose_view(self.folder(), views, self.name)

    def files(self) -> dict[str, list[Path]]:
        folder, view = self.folder(), self.view()
        if view is None:
            return {split_of(read_manifest(folder) or {"plan": {}}): checked_shards(folder) or []}
        return {split: view_files(folder, view, split) for split, parts in view.splits.items() if parts}


class BuiltDataset(GeneratorBasedBuilder):
    """Yields the rows of a built dataset; `builder_class` makes a class for each kind of dataset.

    `data_dir` is the folder of the built dataset; each file is verified against its manifest. With
    `concreteness_ratings`, the rows have the column `negative_concreteness`. No built dataset contains it, because the
    license of the ratings forbids that.
    """

    VERSION = "1.0.0"
    BUILDER_CONFIG_CLASS = BuiltConfig

    def _info(self) -> DatasetInfo:
        view = self.config.view()
        first = next(iter(self.config.files().values()))[0]
        features = Features.from_arrow_schema(pq.read_schema(first))
        if view is not None:
            features = Features({name: features[name] for name in view.columns})
        if self.config.concreteness_ratings:
            ConcretenessRatings.from_file(self.config.concreteness_ratings)  # `datasets` would hide a later error
            rated_column(list(features))
            features[RATINGS] = NEGATIVE_FEATURES[RATINGS]
        return DatasetInfo(description=self.config.description, features=features)

    def _split_generators(self, dl_manager: Any) -> list[SplitGenerator]:
        return [
            SplitGenerator(name=split, gen_kwargs={"files": list(map(str, files))})
            for split, files in self.config.files().items()
        ]

    def _generate_examples(self, files: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        path, columns = self.config.concreteness_ratings, [name for name in self.info.features if name != RATINGS]
        ratings = ConcretenessRatings.from_file(path) if path else None
        for place, file in enumerate(files):
            number = 0
            with pq.ParquetFile(file) as shard:
                for batch in shard.iter_batches(batch_size=_ROWS, columns=columns):
                    for row in batch.to_pylist():
                        if ratings:
                            (row[RATINGS],), _ = concreteness_column([row[rated_column(list(row))]], ratings)
                        yield f"{place} {Path(file).stem} {number}", row
                        number += 1


def builder_class(title: str, kind: str, about: str, configs: Mapping[str, str]) -> type[BuiltDataset]:
    """Makes the builder class for a kind of dataset.

    Args:
        title: Name of the dataset, from which the class name is derived.
        kind: Name of the kind in `hfcomp build`.
        about: Description of the dataset.
        configs: Descriptions of the configurations by name, the default one first; empty if the kind has none.
    """
    config = type("Config", (BuiltConfig,), {"kind": kind, "configs": configs})
    known = [config(name=name, description=description) for name, description in configs.items()]
    names = {
        "BUILDER_CONFIG_CLASS": config,
        "BUILDER_CONFIGS": known,
        "DEFAULT_CONFIG_NAME": next(iter(configs), None),
    }
    own = {"__doc__": f"{about}\n\n{BuiltDataset.__doc__}", "__module__": __name__}
    return type(title.title().replace(" ", "") if " " in title else title, (BuiltDataset,), names | own)


def _is_built(folder: Path) -> bool:
    return folder.is_dir() and (read_views(folder) is not None or read_manifest(folder) is not None)
