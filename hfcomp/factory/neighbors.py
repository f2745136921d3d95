"""Nearest images as the columns `image_id` and `neighbor_ids`, for hard negatives in a batch (NegCLIP)."""

from __future__ import annotations

from collections.abc import Callable

from hfcomp.data.images import SKIP_ADVICE, DamagedImage
from hfcomp.data.loading import undecoded
from hfcomp.evaluation.cells import damaged_images
from hfcomp.evaluation.encoding.cache import open_cache
from hfcomp.evaluation.encoding.neighbors import FEATURES, with_neighbors
from hfcomp.factory.build import DatasetBuild
from hfcomp.factory.shards import Batch, Stage
from hfcomp.factory.sources import BuildInputs, kept_columns, model_facts, output_features, read_source


class NeighborBuild(DatasetBuild):
    """Finds the nearest images of each image."""

    def inputs(self) -> BuildInputs:
        """Rows with `image_id` and `neighbor_ids`, and a stage that records their origin.

        The search compares all images with each other, so it is not a stage. Embeddings and neighbors are kept in the
        cache of `hfcomp evaluate`, from which an interrupted build resumes.
        """
        options, log = self.options, self.log
        facts = {"model": model_facts(options.model), "number": options.number, "by": options.by}
        dataset = read_source(options, log)
        reads_images = options.skip_damaged and "image" in dataset.column_names
        damaged = damaged_images(undecoded(dataset)["image"], "image", progress=True) if reads_images else ()
        settings = {"number": options.number, "by": options.by, "device": options.device, "damaged": damaged}
        try:
            cache = open_cache()
            dataset = with_neighbors(dataset, place=options.model, log=log, cache=cache, **settings)
        except DamagedImage as error:
            raise DamagedImage(f"{error} {SKIP_ADVICE}") from error
        dataset = dataset.select_columns(list(dict.fromkeys([*kept_columns(dataset, options.columns), *FEATURES])))
        return BuildInputs(
            dataset, [Stage("neighbors", make_unchanged, {}, facts)], output_features(dataset, {}), list(FEATURES)
        )


def make_unchanged() -> Callable[[Batch], Batch]:
    """The stage that returns every batch as it is."""
    return lambda batch: batch
