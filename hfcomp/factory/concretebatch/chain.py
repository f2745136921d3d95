"""ConcreteBatch (Concrete Jungle, section 2.2): a chain of three builds per configuration.

| step | folder | result for a row |
|---|---|---|
| targets | `steps/CONFIG/targets` | its longest caption, and the words that may change |
| captions | `steps/CONFIG/captions` | the category that balances the dataset, and the negative caption |
| images | `CONFIG` | the edited image: the finished dataset |

Each step resumes where it was killed, and starts when the previous step is complete. Steps may run on different
machines that share the folder: targets need only a CPU, captions a language model server, images GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from datasets import Features, Image, Value

from hfcomp.data.built_sets.files import ONE_LICENSE, StepNames, read_manifest
from hfcomp.data.built_sets.verification import commands_path, read_commands
from hfcomp.data.columns import NEGATIVE_FEATURES
from hfcomp.data.loading import load_training_set
from hfcomp.data.negatives import RATED_WORDS
from hfcomp.factory.build import BuiltSet, add_license_check
from hfcomp.factory.chain import Chain, join_texts
from hfcomp.factory.concretebatch.negative_captions import caption_stage
from hfcomp.factory.concretebatch.options import CONFIGS, STEPS, UNRATED, ConcreteBatchOptions
from hfcomp.factory.concretebatch.targets import (
    KEYWORD_READS,
    balance_targets,
    keyword_stage,
    most_frequent,
    ratings_path,
    target_inputs,
    unrated_words,
)
from hfcomp.factory.images.stage import READS as IMAGE_READS
from hfcomp.factory.images.stage import image_stages
from hfcomp.factory.manifest import begun_plan
from hfcomp.factory.options import command_line
from hfcomp.factory.runner import Build, source_facts
from hfcomp.factory.shards import SOURCE_ROW
from hfcomp.factory.sources import BuildInputs, output_features
from hfcomp.factory.targets.candidates import CATEGORIES
from hfcomp.factory.targets.choice import summarize_targets
from hfcomp.negatives.concreteness import ConcretenessRatings
from hfcomp.negatives.negative import COLUMN_NAMES
from hfcomp.reporting.report import Table
from hfcomp.writing import write_json

CAPTION_FEATURES = Features(
    {
        SOURCE_ROW: Value("int64"),
        "caption": Value("string"),
        **{name: NEGATIVE_FEATURES[name] for name in (*COLUMN_NAMES, RATED_WORDS)},
    }
)


NAMES = StepNames("hfcomp build concretebatch", STEPS)


class ConcreteBatchChain(Chain):
    """Builds ConcreteBatch."""

    names = NAMES
    folders = tuple(NAMES.folder(Path(), config, step) for config in CONFIGS for step in STEPS)
    options: ConcreteBatchOptions

    @staticmethod
    def is_old(column: str) -> bool:
        """Also drops columns that describe earlier negatives."""
        return column.startswith("negative_") or column in ("mask", SOURCE_ROW)

    def run(self) -> BuiltSet:
        """Builds the configurations one after the other."""
        options = self.options
        first = options.configs[0]
        # Later steps are checked now, because a missing model would otherwise be noticed after hours of the first
        # step.
        if options.runs("captions", options.until):
            caption_stage(options, CONFIGS[first])
        if options.runs("images", options.until):
            image_stages(options)
        begun = {config: begun_plan(NAMES.folder(options.output, config, "targets")) for config in CONFIGS}
        others = {config: plan for config, plan in begun.items() if plan and config != first}
        chains = {}
        for config in options.configs:
            inputs = target_inputs(options, CONFIGS[config], self.source, self.log)
            if options.only_adaptable:
                inputs = add_license_check(inputs, self.stated_license)
            if others and config == first:  # reading all captions takes time
                self._check_source(inputs, others)
            place = NAMES.folder(Path(), config, "targets")
            builds = chains[config] = [self.run_step(place, f"{config}: targets,", inputs)]
            for step, run in (("captions", self._captions), ("images", self._images)):
                # The chain ends at a step without rows.
                if options.runs(step, options.until) and builds[-1].manifest["rows"]:
                    builds.append(run(config, builds[-1].folder))
        self._write_common_card()
        built = {config: builds[0].manifest for config, builds in chains.items()}
        return BuiltSet(options.output, self.card, chains, self._unrated_tables(built))

    def _captions(self, config: str, targets: Path) -> Build:
        share = self.options.attribute_share
        balanced, tally = balance_targets(load_training_set(str(targets)), attribute_share=share)
        for line in tally.lines():
            self.log(f"{config}: {line}")
        stages = [keyword_stage(share), caption_stage(self.options, CONFIGS[config])]
        inputs = BuildInputs(balanced, stages, CAPTION_FEATURES, ["caption", *KEYWORD_READS])
        place, uses_gpu = NAMES.folder(Path(), config, "captions"), self.options.writer == "transformers"
        return self.run_step(place, f"{config}: captions,", inputs, uses_gpu=uses_gpu)

    def _images(self, config: str, captions: Path) -> Build:
        # Images are joined only here. Earlier steps hold texts, which are quick to move to a machine with GPUs.
        rows = join_texts(self.source, captions)
        features = output_features(rows.remove_columns(SOURCE_ROW), {"negative_image": Image()})
        inputs = BuildInputs(rows, image_stages(self.options), features, IMAGE_READS)
        return self.run_step(NAMES.folder(Path(), config, "images"), f"{config}: images,", inputs, uses_gpu=True)

    def _check_source(self, inputs: BuildInputs, others: Mapping[str, Mapping[str, Any]]) -> None:
        """Raises ValueError if another configuration in the folder was built from another source."""
        mine = source_facts(inputs.dataset, (*inputs.reads, *inputs.features))
        for other, plan in others.items():
            if plan["source"] != mine:
                raise ValueError(
                    f"{self.options.output / other} was built from a different source, or with a different --limit, "
                    f"--columns or --only_adaptable, than this command: it has {plan['source']['rows']:,} source "
                    f"rows, and this command has {mine['rows']:,}. {ONE_LICENSE} Choose another --output."
                )

    def _write_common_card(self) -> None:
        """Writes the card for all finished configurations with rows in the folder, if any."""
        finished: dict[str, list[dict[str, Any]]] = {}
        for config in CONFIGS:
            # The card describes the whole folder, so configurations of earlier commands are included.
            folders = [NAMES.folder(self.options.output, config, step) for step in STEPS]
            manifests = [read_manifest(folder) if folder.is_dir() else None for folder in folders]
            if all(manifests) and manifests[-1]["rows"]:
                finished[config] = manifests
        if not finished:
            return
        path = ratings_path(self.options.concreteness_ratings, self.options.download_ratings, self.log)
        ratings = ConcretenessRatings.from_file(path)
        rows = [
            [config, *_summary(NAMES.folder(self.options.output, config, "images"), ratings)] for config in finished
        ]
        header = ["configuration", "rows", "mean concreteness", "median", *CATEGORIES]
        targets = {config: manifests[0] for config, manifests in finished.items()}
        facts = [Table("Configurations", header, rows), *self._unrated_tables(targets)]
        self.write_card(self.source, finished, "\n".join(self._commands(list(finished))), facts)

    def _commands(self, configs: Sequence[str]) -> list[str]:
        """The commands that built these configurations, for the card: one command per set of options.

        They are stored next to the steps. A configuration keeps the options of its last build without `--until`.
        """
        path = commands_path(self.options.output)
        known = read_commands(path) if path.is_file() else {}
        if self.options.runs(STEPS[-1], self.options.until):  # otherwise options of later steps may be missing
            known |= dict.fromkeys(self.options.configs, self.options.words())
            write_json(path, known, sort_keys=True)
        # Configurations may have been built on different days with different options. Those with equal options share a
        # command.
        alike: dict[tuple[str, ...], list[str]] = {}
        for config in configs:
            if config in known:  # otherwise it was not built by this command
                alike.setdefault(tuple(known[config]), []).append(config)
        return [command_line([*words, "--configs", ",".join(names)]) for words, names in alike.items()]

    def _unrated_tables(self, targets: Mapping[str, Mapping[str, Any]]) -> list[Table]:
        """The most frequent words without a rating, if any, from the manifests of targets."""
        rows = []
        for config, manifest in targets.items():
            if manifest["rows"] and manifest["counts"].get(UNRATED):
                words = unrated_words(load_training_set(str(NAMES.folder(self.options.output, config, "targets"))))
                rows += [[config, most_frequent(words)]] if words else []
        title = "Most frequent words without a rating, in captions with a target"
        return [Table(title, ["configuration", "words"], rows, labels=2)] if rows else []


def _summary(folder: Path, ratings: ConcretenessRatings) -> list[str]:
    rows = load_training_set(str(folder)).select_columns([RATED_WORDS, "negative_categories"])
    pairs = ((names[0], words[0]) for names, words in zip(rows["negative_categories"], rows[RATED_WORDS], strict=True))
    summary = summarize_targets(pairs, ratings)
    return [f"{summary.targets:,}", *summary.cells()]
