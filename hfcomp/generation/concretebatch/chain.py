"""ConcreteBatch (Concrete Jungle, section 2.2): a chain of three builds for each configuration.

| step | folder | from a row |
|---|---|---|
| targets | `steps/CONFIG/targets` | its longest caption, and the words that may be changed |
| captions | `steps/CONFIG/captions` | the category that balances the set, and the negative caption |
| images | `CONFIG` | the image edited by it: the finished set |

Each resumes where it was killed, and begins when the one before is whole. They may run on machines that share the
folder: the targets need a processor, the captions a language model's server, the images GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, Image, Value

from hfcomp.checksums import read_checked
from hfcomp.data.built_sets import (
    ONE_LICENSE,
    ROWS_PER_SHARD,
    STEPS,
    STEPS_FOLDER,
    Step,
    is_build,
    read_manifest,
    step_folder,
)
from hfcomp.data.features import NEGATIVE_FEATURES
from hfcomp.data.loading import load_training_set
from hfcomp.data.negatives import RATED_WORDS
from hfcomp.data.publishing import LICENSE
from hfcomp.generation.chains import joined
from hfcomp.generation.concretebatch.negative_captions import caption_stage
from hfcomp.generation.concretebatch.options import CONFIGS, ConcreteBatchOptions
from hfcomp.generation.concretebatch.targets import is_old, ratings_path, target_inputs
from hfcomp.generation.concretebatch.text_targets import (
    KEYWORD_READS,
    UNRATED,
    balance_targets,
    drawn_targets,
    keyword_stage,
    most_frequent,
    unrated_words,
)
from hfcomp.generation.images.stage import READS as IMAGE_READS
from hfcomp.generation.images.stage import image_stages
from hfcomp.generation.licenses import license_stages
from hfcomp.generation.manifest import begun_plan, refuse_others
from hfcomp.generation.options import command_line
from hfcomp.generation.runner import Build, run_stages, source_facts
from hfcomp.generation.shards import SET_ASIDE, SOURCE_ROW, Stage
from hfcomp.generation.sources import BuildInputs, Log, output_features, read_captioned_rows
from hfcomp.generation.text_negatives import make_captions
from hfcomp.negatives.concreteness import ConcretenessRatings
from hfcomp.negatives.negative import COLUMN_NAMES
from hfcomp.negatives.targets import (
    CATEGORIES,
    ORDERS,
    PAPER_MEAN_AND_MEDIAN,
    Choice,
    Mode,
    TargetSummary,
    balanced_categories,
    find_candidates,
    summarize_targets,
)
from hfcomp.parsing import cached_parser
from hfcomp.parsing.captions import script_problem
from hfcomp.reporting.report import Table
from hfcomp.writing import LOCK_FILE, write_json

COMMANDS = "commands.json"
MADE = {name: NEGATIVE_FEATURES[name] for name in (*COLUMN_NAMES, RATED_WORDS)}


@dataclass(frozen=True)
class _Chain:
    """One configuration on its way."""

    options: ConcreteBatchOptions
    config: str
    source: Dataset
    stated: str | None  # the licence on the source's card
    log: Log
    progress: bool

    @property
    def mode(self) -> Mode:
        return CONFIGS[self.config]

    def run(self) -> list[Build]:
        """The builds of the steps that are asked for."""
        builds = [self.run_targets()]
        for step, run in (("captions", self._captions), ("images", self._images)):
            if self.options.runs(step) and builds[-1].manifest["rows"]:  # a step without rows is the last
                builds.append(run(builds[-1].folder))
        return builds

    def run_targets(self) -> Build:
        """The first step, which needs captions alone."""
        inputs = self._target_inputs()
        return self._build("targets", inputs.dataset, inputs.stages, inputs.features, inputs.reads)

    def _target_inputs(self) -> BuildInputs:
        found = target_inputs(self.options, self.mode, self.source, self.log)
        if not self.options.only_adaptable:
            return found
        checks = license_stages(found.dataset, self.stated, needed_by="--only_adaptable")
        reads = [*found.reads, *([LICENSE] if checks else [])]
        return found._replace(stages=[*checks, *found.stages], reads=reads)

    def check_source(self) -> None:
        """Raises ValueError where another configuration in the folder is of another source."""
        output = self.options.output
        others = {config: begun_plan(step_folder(output, config, "targets")) for config in CONFIGS}
        others = {config: plan for config, plan in others.items() if plan and config != self.config}
        if not others:
            return  # as reading all captions takes time
        inputs = self._target_inputs()
        mine = source_facts(inputs.dataset, (*inputs.reads, *inputs.features))
        for config, plan in others.items():
            if plan["source"] != mine:
                raise ValueError(
                    f"{output / config} was built from another source, or with other --limit, --columns or "
                    f"--only_adaptable, than this command names: {plan['source']['rows']:,} rows, now "
                    f"{mine['rows']:,}. {ONE_LICENSE} Choose another --output."
                )

    def _captions(self, targets: Path) -> Build:
        share = self.options.attribute_share
        balanced, tally = balance_targets(load_training_set(str(targets)), attribute_share=share)
        for line in tally.lines():
            self.log(f"{self.config}: {line}")
        features = Features({SOURCE_ROW: Value("int64"), "caption": Value("string"), **MADE})
        stages = [keyword_stage(share), self._caption_stage()]
        return self._build("captions", balanced, stages, features, ["caption", *KEYWORD_READS])

    def _caption_stage(self) -> Stage:
        names = ("seed", "attempts", "device", "grammar_model", "grammar_tolerance")
        settings = {name: getattr(self.options, name) for name in names}
        return caption_stage({"mode": self.mode, "writer": self.options.writer_settings(), **settings})

    def check(self) -> None:
        """Raises what later steps would, which may be hours away: for packages, models and pipelines not found."""
        if self.options.runs("captions"):
            self._caption_stage()
        if self.options.runs("images"):
            image_stages(self.options)

    def _images(self, captions: Path) -> Build:
        rows = joined(self.source, captions)
        features = output_features(rows.remove_columns(SOURCE_ROW), {"negative_image": Image()})
        return self._build("images", rows, image_stages(self.options), features, IMAGE_READS)

    def _build(
        self, step: Step, rows: Dataset, stages: Sequence[Stage], features: Features, reads: Sequence[str]
    ) -> Build:
        self.log(f"{self.config}: {step}, {len(rows):,} rows")
        return run_stages(
            rows,
            stages,
            step_folder(self.options.output, self.config, step),
            features=features,
            reads=reads,
            **self.options.running(self.progress) | self._gpus(step),
        )

    def _gpus(self, step: Step) -> dict[str, float]:
        """On Ray, no GPU for a step whose models are elsewhere."""
        uses_gpu = step == "images" or (step == "captions" and self.options.writer == "transformers")
        return {} if uses_gpu or self.options.executor != "ray" else {"gpus_per_worker": 0}


def check_output(folder: Path) -> None:
    """Checks that what a build writes beside its configurations replaces nothing of the user's.

    Raises:
        ValueError: for a folder that is neither empty nor of an earlier build.
    """
    begun = any(is_build(step_folder(folder, config, step)) for config in CONFIGS for step in STEPS)
    names = [] if begun or not folder.is_dir() else sorted(path.name for path in folder.iterdir())
    refuse_others(folder, [name for name in names if name not in (LOCK_FILE, STEPS_FOLDER)])


def concretebatch_source(options: ConcreteBatchOptions, log: Log) -> Dataset:
    """The rows to build from.

    Raises:
        ValueError: for a source without images or captions.
    """
    return read_captioned_rows(options, log, is_old=is_old, needed=["image"], needed_by="concretebatch")


def build_chains(
    options: ConcreteBatchOptions, source: Dataset, stated: str | None, *, log: Log, progress: bool
) -> dict[str, list[Build]]:
    """The builds of each configuration that is asked for; see `hfcomp.generation.build.build_set`.

    Args:
        options: of the whole.
        source: of `concretebatch_source`.
        stated: the licence on the source's card.
        log: receives lines about what is done.
        progress: whether to show bars.

    Raises:
        ImportError: for a missing package, before the first step; so are models and pipelines that are not found.
        ValueError: likewise, where the folder has a configuration of another source.
        StageError: when a stage fails; what is done is kept.
    """
    chains = {config: _Chain(options, config, source, stated, log, progress) for config in options.configs}
    chains[options.configs[0]].check()
    chains[options.configs[0]].check_source()
    return {config: chain.run() for config, chain in chains.items()}


def finished_chains(options: ConcreteBatchOptions) -> dict[str, list[dict[str, Any]]]:
    """The manifests of all configurations in the folder that are finished and have rows, in the order of `CONFIGS`."""
    found: dict[str, list[dict[str, Any]]] = {}
    for config in CONFIGS:
        folders = [step_folder(options.output, config, step) for step in STEPS]
        manifests = [read_manifest(folder) if folder.is_dir() else None for folder in folders]
        if all(manifests) and manifests[-1]["rows"]:
            found[config] = manifests
    return found


def commands(options: ConcreteBatchOptions, configs: Sequence[str]) -> list[str]:
    """The commands that built these configurations, for their card: one for all that have the same options.

    They are kept beside the steps, those of a configuration from the last build of it that had no `--until`.
    """
    path = commands_path(options.output)
    known = read_commands(path) if path.is_file() else {}
    if options.runs(STEPS[-1]):  # else options of later steps may be missing
        known |= dict.fromkeys(options.configs, options.words())
        write_json(path, known, sort_keys=True)
    alike: dict[tuple[str, ...], list[str]] = {}
    for config in configs:
        if config in known:  # else it was built by something else
            alike.setdefault(tuple(known[config]), []).append(config)
    return [command_line([*words, "--configs", ",".join(names)]) for words, names in alike.items()]


def commands_path(folder: Path) -> Path:
    """Where the commands that built the configurations of a set are."""
    return folder / STEPS_FOLDER / COMMANDS


def read_commands(path: Path) -> dict[str, list[str]]:
    """The words of the command that built each configuration.

    Raises:
        ValueError: for a damaged file.
    """
    return read_checked(path, "Delete it: each build writes its own command anew.")


def selection_table(source: Dataset, options: ConcreteBatchOptions, *, log: Log) -> Table:
    """What each order of selection chooses of captions alone, beside the paper's numbers of its own sets.

    Nothing is written. `*` marks the order that a build of the options has.

    Args:
        source: with `caption`, a text or several.
        options: which configurations, and all settings of their targets; the order is each in turn.
        log: receives lines about what is done.
    """
    ratings = ConcretenessRatings.from_file(ratings_path(options, log))
    usual = {config: options.choice(CONFIGS[config]) for config in options.configs}
    choices = [replace(usual[config], order=order) for config in options.configs for order in ORDERS]
    rows = []
    for choice, found in zip(choices, _chosen(source, options, choices, ratings), strict=True):
        config = next(name for name in usual if CONFIGS[name] == choice.mode)
        mark = " *" if choice == usual[config] else ""
        mean, median, *shares = found.cells()
        paper = "{:.2f} / {:.2f}".format(*PAPER_MEAN_AND_MEDIAN[choice.mode])
        numbers = [f"{choice.k}", f"{found.targets:,}", f"{mean} / {median}", paper, *shares]
        rows.append([config, f"{choice.order}{mark}", *numbers, f"{found.expressions:.1%}"])
    header = ["configuration", "order", "k", "targets", "concreteness", "the paper's", *CATEGORIES, "two words"]
    return Table("Mean and median concreteness of the keywords", header, rows, labels=2)


def _chosen(
    source: Dataset, options: ConcreteBatchOptions, choices: Sequence[Choice], ratings: ConcretenessRatings
) -> Iterator[TargetSummary]:
    """What each choice takes of the same candidates."""
    possible: list[list[dict[str, str]]] = [[] for _ in choices]  # of each caption, the rated word by category
    one_caption, parse = make_captions(which=options.captions), cached_parser(options.parser).parse
    for batch in source.select_columns("caption").iter(ROWS_PER_SHARD):
        made = one_caption(batch)
        captions = [text for text, problem in zip(made["caption"], made[SET_ASIDE], strict=True) if problem is None]
        captions = [text for text in captions if script_problem(text) is None]
        for caption, doc in zip(captions, parse(captions), strict=True):
            candidates = find_candidates(doc, ratings, lookup=options.lookup, prepositions=options.prepositions)
            for choice, rows in zip(choices, possible, strict=True):
                drawn = drawn_targets(choice, caption, candidates, options.seed)
                rows.append({one.category: one.rated_word for one in drawn})
    for rows in possible:
        decided = balanced_categories(map(list, rows), attribute_share=options.attribute_share)
        pairs = zip(decided, rows, strict=True)
        yield summarize_targets([(category, words[category]) for category, words in pairs if words], ratings)


def summary_table(options: ConcreteBatchOptions, configs: Sequence[str], log: Log) -> Table:
    """Concreteness and categories of finished configurations."""
    ratings = ConcretenessRatings.from_file(ratings_path(options, log))
    rows = [[config, *_summary(step_folder(options.output, config, "images"), ratings)] for config in configs]
    header = ["configuration", "rows", "mean concreteness", "median", *CATEGORIES]
    return Table("Configurations", header, rows)


def unrated_tables(targets: Mapping[str, Mapping[str, Any]], output: Path) -> list[Table]:
    """The most frequent words without a rating, if there are any.

    Args:
        targets: the manifests of the targets by configuration; a set of another kind has none of these words.
        output: the folder of the set.
    """
    rows = []
    for config, manifest in targets.items():
        if manifest["rows"] and manifest["counts"].get(UNRATED):
            words = unrated_words(load_training_set(str(step_folder(output, config, "targets"))))
            rows += [[config, most_frequent(words)]] if words else []
    title = "Most frequent words without a rating, in captions with a target"
    return [Table(title, ["configuration", "words"], rows, labels=2)] if rows else []


def _summary(folder: Path, ratings: ConcretenessRatings) -> list[str]:
    rows = load_training_set(str(folder)).select_columns([RATED_WORDS, "negative_categories"])
    pairs = ((names[0], words[0]) for names, words in zip(rows["negative_categories"], rows[RATED_WORDS], strict=True))
    found = summarize_targets(pairs, ratings)
    return [f"{found.targets:,}", *found.cells()]
