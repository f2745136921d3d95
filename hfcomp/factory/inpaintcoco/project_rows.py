"""Accepted items of an annotation project in the columns of InpaintCOCO, and the stage that checks them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, Image, List, Value

from hfcomp.data.annotations.decisions import Decisions, Entry
from hfcomp.data.annotations.entries import AUTOMATIC, QUALITIES, Accepted, Quality, State
from hfcomp.data.annotations.masks import FEATHER, LEAST_CHANGE
from hfcomp.data.annotations.project import DATABASE, project_models
from hfcomp.data.annotations.project import IMAGES as IMAGE_FOLDER
from hfcomp.data.image_ids import IMAGE_ID
from hfcomp.data.publishing import LICENSE
from hfcomp.factory.inpaintcoco.agreement import KAPPA, rating_agreement, standing_decisions
from hfcomp.factory.inpaintcoco.checks import CHANGED_OUTSIDE, IMAGES, PairCheck, check_pairs, pseudonyms
from hfcomp.factory.inpaintcoco.options import PAIRS, InpaintCocoOptions
from hfcomp.factory.shards import COUNTS, SET_ASIDE, Batch, Stage
from hfcomp.factory.sources import BuildInputs, Log
from hfcomp.metrics.units import PERCENT
from hfcomp.reporting.format import with_interval
from hfcomp.reporting.report import Table

SOURCE = "source"
_TEXT, _NUMBER = Value("string"), Value("int64")
DETAILS = {"captions": List(_TEXT), "height": _NUMBER, "id": _TEXT, "image_license": _TEXT, "width": _NUMBER}
EDIT = {
    "prompt": _TEXT,
    "seed": _NUMBER,
    "mask_prompt": _TEXT,
    "threshold": Value("float64"),
    "enlarge": List(_NUMBER),
    "is_corrected": Value("bool"),
    "quality": _TEXT,
    "reviewer": _TEXT,
    "reviewed_quality": _TEXT,
}
# Columns of the dataset, in the order of the published one.
FEATURES = Features(
    {
        "concept": _TEXT,
        "coco_caption": _TEXT,
        "coco_image": Image(),
        "inpaint_caption": _TEXT,
        "inpaint_image": Image(),
        "mask": Image(),
        "worker": _TEXT,
        "coco_details": DETAILS,
        "inpaint_details": EDIT,
        LICENSE: _TEXT,
        SOURCE: _TEXT,
    }
)


def project_inputs(options: InpaintCocoOptions, log: Log) -> BuildInputs:
    """The rows of an annotation project."""
    folder = Path(options.source)
    decisions = Decisions(folder / DATABASE)
    try:
        entries, states, every = list(decisions.log()), decisions.counts(), list(decisions.accepted())
    finally:
        decisions.close()
    chosen = _select_items(every, options)
    log(f"{len(chosen):,} of {len(every):,} accepted items from {folder}")
    if not chosen:
        items = ", ".join(f"{number:,} {state}" for state, number in states.items())
        others = ", or remove --quality and --concepts" if every else ""
        raise ValueError(
            f"{folder} has no accepted item to build from; its items: {items}. Annotate and review some{others}."
        )
    # The dataset may be published, so rows, tables and reasons contain no person's name.
    names = pseudonyms(entry.person for entry in entries)
    rows = [_row(pair, folder / IMAGE_FOLDER, names) for pair in chosen]
    # Rows name files of the project; the runner embeds their bytes.
    features = Features(
        {name: Image(decode=False) if name in IMAGES else feature for name, feature in FEATURES.items()}
    )
    dataset = Dataset.from_list(rows, features=features)
    facts = {"feather": FEATHER, "least_change": LEAST_CHANGE}
    reads = [*IMAGES, "concept", "coco_caption", "inpaint_caption", "coco_details", "inpaint_details"]
    tables = [*decision_tables(entries, states, names), *pair_tables(chosen, names)]
    if models := project_models(folder):
        tables.append(Table("models of the edits", ["role", "model"], list(map(list, models)), labels=2))
    return BuildInputs(dataset, [Stage("pairs", make_pair_check, {}, facts)], FEATURES, reads, "test", tables)


def lower_quality(pair: Accepted) -> Quality:
    """The lower of the annotator's and the reviewer's rating."""
    # `QUALITIES` starts with the best one.
    return max(pair.edit.quality, pair.reviewed_quality, key=QUALITIES.index)


def _select_items(every: list[Accepted], options: InpaintCocoOptions) -> list[Accepted]:
    known = {pair.item.concept for pair in every}
    unknown = [name for name in options.concepts if name not in known]
    if unknown and every:
        raise ValueError(
            f"--concepts: found {unknown[0]!r}; the accepted items of {options.source} have the concepts "
            f"{', '.join(sorted(known))}."
        )
    chosen = [pair for pair in every if not options.concepts or pair.item.concept in options.concepts]
    chosen = [pair for pair in chosen if options.quality in (None, lower_quality(pair))]
    return chosen[: options.limit]


def _row(pair: Accepted, images: Path, names: Mapping[str, str]) -> dict[str, Any]:
    item, edit = pair.item, pair.edit
    license = item.facts.get(LICENSE)
    return {
        "concept": item.concept,
        "coco_caption": edit.original,
        "inpaint_caption": edit.caption,
        **{
            name: {"path": str(images / file), "bytes": None}
            for name, file in zip(IMAGES, (item.image, edit.image, edit.mask), strict=True)
        },
        "worker": names[pair.annotator],
        "coco_details": {
            "captions": list(item.captions),
            # The check of pairs decodes the images and fills in height and width.
            "height": None,
            "id": str(item.facts.get(IMAGE_ID, item.id)),
            "image_license": license,
            "width": None,
        },
        "inpaint_details": {
            "prompt": edit.inpaint_prompt,
            "seed": edit.seed,
            "mask_prompt": edit.mask_prompt,
            "threshold": edit.threshold,
            "enlarge": list(edit.enlarge),
            "is_corrected": edit.is_corrected,
            "quality": edit.quality,
            "reviewer": names[pair.reviewer],
            "reviewed_quality": pair.reviewed_quality,
        },
        LICENSE: license,
        SOURCE: item.facts.get(SOURCE),
    }


def make_pair_check() -> Callable[[Batch], Batch]:
    """The stage that sets invalid pairs aside and adds the size of each image."""

    def pairs(batch: Batch) -> Batch:
        rest, checked = check_pairs(batch)
        problems = [_problem(check) for _, check in checked]
        return rest | {
            "coco_details": [row["coco_details"] | check.size for row, check in checked],
            SET_ASIDE: problems,
            COUNTS: [
                {} if problem else {_count_name(row): 1} for (row, _), problem in zip(checked, problems, strict=True)
            ],
        }

    return pairs


def _problem(check: PairCheck) -> str | None:
    """The first problem of a row."""
    problem = next(iter(check.problems), check.unreadable)
    return f"{CHANGED_OUTSIDE}: {check.outside:.1%} of them" if problem is None and check.outside else problem


def _count_name(row: dict[str, Any]) -> str:
    details = row["inpaint_details"]
    quality = max(details["quality"], details["reviewed_quality"], key=QUALITIES.index)
    return PAIRS(f"{row['concept']}, {quality}")


MOST_REASONS = 20


def decision_tables(entries: Sequence[Entry], states: Mapping[State, int], names: Mapping[str, str]) -> list[Table]:
    """Tables of item states and of the reasons for skipping and sending back, without undone decisions."""
    reasons = {
        title: Counter(
            _replace_names(str(entry.content["reason"]), names)
            for entry in standing_decisions(entries)
            if entry.action == action
        )
        for action, title in (("skip", "items skipped"), ("send back", "edits sent back"))
    }
    tables = [Table("items of the project", ["state", "items"], [[name, f"{n:,}"] for name, n in states.items()])]
    return tables + [_reason_table(title, counts) for title, counts in reasons.items() if counts]


def pair_tables(pairs: Sequence[Accepted], names: Mapping[str, str]) -> list[Table]:
    """Tables of the people, of the agreement of annotators and reviewers, and of the masks."""
    edits = Counter(names[pair.annotator] for pair in pairs)
    reviews = Counter(names[pair.reviewer] for pair in pairs)
    people = [name for name in names.values() if edits[name] or reviews[name]]
    thresholds = Counter(f"threshold {pair.edit.threshold:.2f}" for pair in pairs if pair.edit.mask_prompt)
    masks = {
        **dict(sorted(thresholds.items())),
        "without a segmentation": sum(not pair.edit.mask_prompt for pair in pairs),
        "corrected or drawn by hand": sum(pair.edit.is_corrected for pair in pairs),
        "enlarged": sum(any(pair.edit.enlarge) for pair in pairs),
    }
    return [
        Table(
            "people",
            ["who", "edits", "reviews"],
            [[name, f"{edits[name]:,}", f"{reviews[name]:,}"] for name in people],
        ),
        *_agreement_tables(pairs),
        Table("masks", ["how", "pairs"], [[name, f"{number:,}"] for name, number in masks.items() if number]),
    ]


def _agreement_tables(pairs: Sequence[Accepted]) -> list[Table]:
    """Tables of annotators' against reviewers' ratings, which are blind. Automatic ratings are not opinions."""
    both = [(pair.edit.quality, pair.reviewed_quality) for pair in pairs if pair.annotator != AUTOMATIC]
    if not both:
        return []
    counts = Counter(both)
    rows = [[own, *(f"{counts[own, other]:,}" for other in QUALITIES)] for own in QUALITIES]
    equal, kappa = rating_agreement(*zip(*both, strict=True))
    kappa_text = "undefined: all ratings are the same" if kappa.value is None else with_interval(asdict(kappa), KAPPA)
    measures = [["equal ratings, in percent", with_interval(asdict(equal), PERCENT)], ["Cohen's kappa", kappa_text]]
    return [
        Table("ratings of annotators, and of reviewers", ["annotator", *QUALITIES], rows),
        Table("agreement, with 95% intervals over pairs", ["measure", "value"], measures),
    ]


def _replace_names(text: str, names: Mapping[str, str]) -> str:
    """Replaces names by pseudonyms, the longest names first."""
    # Otherwise "Ann" would be replaced within "Annette".
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(name, names[name])
    return text


def _reason_table(title: str, counts: Counter[str]) -> Table:
    rows = [[reason, f"{number:,}"] for reason, number in counts.most_common(MOST_REASONS)]
    left = sum(counts.values()) - sum(number for _, number in counts.most_common(MOST_REASONS))
    return Table(title, ["reason", "number"], [*rows, *([["other reasons", f"{left:,}"]] if left else [])])
