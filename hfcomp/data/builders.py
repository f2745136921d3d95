"""Built sets as builders of `datasets`, for use in process; on the Hub the same sets are plain Parquet.

docs/building.md has an example.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from datasets import BuilderConfig, DatasetInfo, Features, GeneratorBasedBuilder, SplitGenerator

from hfcomp.checksums import file_hash
from hfcomp.data.built_sets import MANIFEST, checked_shards, read_manifest
from hfcomp.data.features import NEGATIVE_FEATURES
from hfcomp.data.negatives import RATINGS, rated_column
from hfcomp.negatives.concreteness import ConcretenessRatings, concreteness_column

_ROWS = 100


@dataclass
class ConcreteBatchConfig(BuilderConfig):
    """A selection of ConcreteBatch.

    Attributes:
        concreteness_ratings: a file that `ConcretenessRatings.from_file` reads, joined as `negative_concreteness`.
    """

    concreteness_ratings: str | None = None

    def create_config_id(self, config_kwargs: dict[str, Any], custom_features: Features | None = None) -> str:
        """Names the cache by the content of the set and of the ratings, so that a set built anew is prepared anew."""
        paths = [self.folder() / MANIFEST, *([Path(self.concreteness_ratings)] if self.concreteness_ratings else [])]
        hashes = {f"content_{number}": file_hash(path) for number, path in enumerate(paths) if path.is_file()}
        return super().create_config_id({**config_kwargs, **hashes}, custom_features)

    def folder(self) -> Path:
        """The folder of the built set: `data_dir`, or its sub-folder of the configuration's name.

        Raises:
            ValueError: without a `data_dir`, where no set is, or for the folder of another configuration.
        """
        if self.data_dir is None:
            raise ValueError(
                f"config {self.name!r} needs data_dir: the folder of a set of `hfcomp build concretebatch`."
            )
        found = next((one for one in (Path(self.data_dir) / self.name, Path(self.data_dir)) if _is_built(one)), None)
        if found is None:
            raise ValueError(
                f"{self.data_dir}: expected a set of `hfcomp build concretebatch` in it or in its folder "
                f"{self.name}/; neither has a {MANIFEST} of one."
            )
        other = found.resolve().name
        if other != self.name and other in {one.name for one in ConcreteBatch.BUILDER_CONFIGS}:
            raise ValueError(
                f"{found} is the configuration {other!r}, not {self.name!r}. Pass config_name={other!r}, or the "
                f"folder of {self.name} as data_dir."
            )
        return found


class ConcreteBatch(GeneratorBasedBuilder):
    """Pairs of image and caption with a negative caption and a negative image, chosen by concreteness (Slipform).

    Configurations are the paper's selections. `data_dir` is the folder of the built sets; each file is verified
    against its manifest. With `concreteness_ratings` the rows have `negative_concreteness`, which no built set holds,
    as the licence of the ratings forbids it.
    """

    VERSION = "1.0.0"
    BUILDER_CONFIG_CLASS = ConcreteBatchConfig
    BUILDER_CONFIGS = [
        ConcreteBatchConfig(name="high_concreteness", description="keywords among the most concrete of a caption"),
        ConcreteBatchConfig(name="low_concreteness", description="keywords among the least concrete of a caption"),
        ConcreteBatchConfig(name="random", description="any keyword of a caption"),
    ]
    DEFAULT_CONFIG_NAME = "high_concreteness"

    def _info(self) -> DatasetInfo:
        folder = self.config.folder()
        shards = (read_manifest(folder) or {})["shards"]
        features = Features.from_arrow_schema(pq.read_schema(folder / shards[0]["file"]))
        if self.config.concreteness_ratings:
            ConcretenessRatings.from_file(self.config.concreteness_ratings)  # later, `datasets` hides what is wrong
            rated_column(list(features))
            features[RATINGS] = NEGATIVE_FEATURES[RATINGS]
        return DatasetInfo(description=self.config.description, features=features)

    def _split_generators(self, dl_manager: Any) -> list[SplitGenerator]:
        files = list(map(str, checked_shards(self.config.folder()) or ()))
        return [SplitGenerator(name="train", gen_kwargs={"files": files})]

    def _generate_examples(self, files: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        path = self.config.concreteness_ratings
        ratings = ConcretenessRatings.from_file(path) if path else None
        for file in files:
            number = 0
            with pq.ParquetFile(file) as shard:
                for batch in shard.iter_batches(batch_size=_ROWS):
                    for row in batch.to_pylist():
                        if ratings:
                            (row[RATINGS],), _ = concreteness_column([row[rated_column(list(row))]], ratings)
                        yield f"{Path(file).stem} {number}", row
                        number += 1


def _is_built(folder: Path) -> bool:
    return folder.is_dir() and read_manifest(folder) is not None
