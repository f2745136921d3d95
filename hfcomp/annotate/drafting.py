"""The automatic mode: drafts of edits, made without a person, for people to review."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from tqdm.auto import tqdm

from hfcomp.annotate.edits import (
    NO_MORE,
    Draft,
    DraftMaker,
    LanguageModelProposer,
    Proposal,
    Proposer,
    RuleProposer,
    SetAside,
)
from hfcomp.annotate.models import load_inpainter, load_segmenter
from hfcomp.annotate.options import DraftOptions
from hfcomp.data.annotations.entries import AUTOMATIC, Edit, Item
from hfcomp.data.annotations.masks import mask_image
from hfcomp.data.annotations.project import Project
from hfcomp.data.publishing import without_local_paths
from hfcomp.evaluation.encoding.embed import Embedder
from hfcomp.evaluation.encoding.identity import identity
from hfcomp.factory.writers.requests import Refused, content_hash
from hfcomp.negatives.negative import caption_rng
from hfcomp.reading import parse_json
from hfcomp.writing import append_text, locked, write_json

FOLDER, FILE = "drafts", "drafts.jsonl"
Outcome = Literal["submitted", "set aside"]


class DraftLog:
    """A file of JSON lines, one for each item that was tried: its outcome, why, and how the edit was made.

    The settings of each line are in a file `settings-<hash>.json` beside it. A line is on the disk when `append`
    returns. What a killed process left of a line is not read.

    Attributes:
        tried: ids of the items that have a line with these settings.
    """

    def __init__(self, project: Path, settings: Mapping[str, Any]) -> None:
        self._path = project / FOLDER / FILE
        self._path.parent.mkdir(exist_ok=True)
        self._settings = content_hash(settings)[:12]
        write_json(self._path.with_name(f"settings-{self._settings}.json"), settings)
        # A kill may have cut off the last line. It is ended before the next line is written, and is not read.
        lines = self._path.read_bytes().splitlines(keepends=True) if self._path.is_file() else []
        self._is_cut = bool(lines) and not lines[-1].endswith(b"\n")
        found = [_read(line) for line in lines]
        self.tried = {line["item"] for line in found if line and line["settings"] == self._settings}

    def append(self, item: str, outcome: Outcome, **facts: Any) -> None:
        """Writes a line."""
        line = {"item": item, "outcome": outcome, "settings": self._settings, **facts}
        start = "\n" if self._is_cut else ""
        append_text(self._path, f"{start}{json.dumps(line, ensure_ascii=False)}\n")
        self._is_cut = False
        self.tried.add(item)


def _read(line: bytes) -> Mapping[str, Any] | None:
    try:
        found = parse_json(line.decode())
        return found if {"item", "settings"} <= {*found} else None
    except (ValueError, TypeError):
        return None


UNREADABLE = "image cannot be read"
# Number of items in one request to a language model.
BATCH = 32
# Number of consecutive items at which a model raises before the run ends with its error. Our choice.
MOST_FAILURES = 3


@dataclass
class Drafts:
    """Result of a run.

    Attributes:
        submitted: items that wait for a review now.
        set_aside: items that stay open for people, by reason.
        failed: items at which a model raised; the next run tries them again.
    """

    submitted: int = 0
    set_aside: Counter[str] = field(default_factory=Counter)
    failed: int = 0


def draft(project: Project, options: DraftOptions, *, log: Callable[[str], None], progress: bool = False) -> Drafts:
    """Makes drafts of open items: each is submitted as `AUTOMATIC` and waits for a person's review.

    For each item, in their order: an edit is proposed, its place segmented, candidates painted there and composed with
    the original, and those set aside that changed nothing or that the dual encoder does not find nearer to the new
    caption. The best one is submitted with quality "okay". Up to `edits` edits of an item are tried. One without a
    draft stays open for people; why is in `drafts/drafts.jsonl` of the project (`DraftLog`).

    Called again, it goes on with the items that were not tried with these settings; so a run may be interrupted at any
    moment. What is drafted of an item depends on the item and the settings, not on the others or their order. Items
    that somebody works on and those that a reviewer sent back are left to people.

    Raises:
        ValueError: for a model that is not as expected, or a project that another run drafts.
        ImportError: for a missing package.
        OSError: for a model that is out of reach, or a full disk. What is done is kept.
        RuntimeError: where a model fails at `MOST_FAILURES` items in a row.
    """
    # Two runs at once would draft the same items twice.
    with locked(project.folder / "drafts"):
        drafter = _Drafter(project, options, log)
        try:
            drafter.run(progress)
        finally:
            project.decisions.release(AUTOMATIC)
    _report(drafter.drafts, log)
    return drafter.drafts


class _Drafter:
    """A run with its models."""

    def __init__(self, project: Project, options: DraftOptions, log: Callable[[str], None]) -> None:
        self._project, self._options, self._log = project, options, log
        self._proposer: Proposer = RuleProposer(options.seed)
        if options.writer != "rules":
            settings = options.writer_settings()
            self._proposer = LanguageModelProposer(settings, seed=options.seed, device=options.device)
        segmenter, inpainter = load_segmenter(options), load_inpainter(options)
        embedder = Embedder(options.clip_model, device=options.device) if options.has_clip_model else None
        self._maker = DraftMaker(options, segmenter, inpainter, embedder)
        models = {"segmenter": segmenter.identity, "inpainter": inpainter.identity}
        if embedder is not None:
            models["clip_model"] = identity(options.clip_model)
        for role, name in models.items():
            project.add_model(role, name)
        settings = without_local_paths(options.result_settings())
        self._tried = DraftLog(project.folder, {**settings, **self._proposer.facts(), "models": models})
        self.drafts, self._failures = Drafts(), 0

    def run(self, progress: bool) -> None:
        names = self._open_items()[: self._options.number]
        self._log(f"{len(names):,} open items are tried")
        with tqdm(total=len(names), desc="drafts", unit="items", disable=not progress) as bar:
            # A language model gets many items at once, but only for first attempts: later ones depend on the results
            # of these.
            for chunk in _chunks(names):
                items = [self._project.decisions.item(name) for name in chunk]
                for item, first in zip(items, self._proposer.propose(items, 0), strict=True):
                    self._try(item, first)
                    bar.update()
        for name, number in sorted(self._proposer.counts.items()):
            self._log(f"{name}: {number:,}")

    def _open_items(self) -> list[str]:
        decisions = self._project.decisions
        returned = {entry.item for entry in decisions.log() if entry.action == "send back"}
        # An item that a reviewer sent back waits for a person.
        left = returned | self._tried.tried
        found = (item.id for item in decisions.items(state="open", concept=self._options.concept))
        return [name for name in found if name not in left]

    def _try(self, item: Item, first: Proposal | Refused) -> None:
        # A person may have taken the item since the list of open items was made.
        if not self._project.decisions.take(AUTOMATIC, item.id):
            return
        try:
            self._draft(item, first)
            self._failures = 0
        # A model that fails at one image costs this item. A model that fails at several in a row ends the run.
        except RuntimeError as error:
            self.drafts.failed, self._failures = self.drafts.failed + 1, self._failures + 1
            self._log(f"{item.id}: {error}")
            if self._failures == MOST_FAILURES:
                raise
        finally:
            self._project.decisions.release(AUTOMATIC)

    def _draft(self, item: Item, first: Proposal | Refused) -> None:
        reasons: list[str] = []
        try:
            original = self._project.read(item.image)
        except (OSError, ValueError):
            self._set_aside(item, [UNREADABLE])
            return
        edits = refused = 0
        while edits < self._options.edits and refused < self._options.attempts:
            self._project.decisions.renew(AUTOMATIC, item.id)
            # Rejected answers count too, so no attempt draws the seeds of an earlier one.
            attempt = edits + refused
            proposal = self._proposer.propose([item], attempt)[0] if attempt else first
            if isinstance(proposal, Refused):
                refused += 1
                if str(proposal) != NO_MORE or not reasons:
                    reasons.append(str(proposal))
                continue
            edits += 1
            rng = caption_rng(self._options.seed, item.id, "candidates", str(attempt))
            seeds = [rng.getrandbits(31) for _ in range(self._options.candidates)]
            try:
                found = self._maker.make(original, proposal, seeds)
            except SetAside as reason:
                reasons.append(str(reason))
                continue
            self._submit(item, proposal, found, reasons)
            return
        self._set_aside(item, reasons)

    def _submit(self, item: Item, proposal: Proposal, found: Draft, reasons: list[str]) -> None:
        # Painting takes longer than a lease, and whoever holds the item now goes first.
        if not self._project.decisions.renew(AUTOMATIC, item.id):
            self._log(f"{item.id}: somebody else was given it meanwhile, so its draft was not saved")
            return
        options = self._options
        edit = Edit(
            image=self._project.save(found.image),
            mask=self._project.save(mask_image(found.mask)),
            caption=proposal.caption,
            original=proposal.original,
            mask_prompt=proposal.mask_prompt,
            threshold=options.threshold,
            enlarge=(options.enlarge_x, options.enlarge_y),
            is_corrected=False,
            inpaint_prompt=proposal.inpaint_prompt,
            seed=found.seed,
            quality="okay",
        )
        self._project.decisions.submit(AUTOMATIC, item.id, edit)
        # Logged once the decision is on disk. A kill in between repeats nothing, because the item is no longer open.
        self._tried.append(item.id, "submitted", before=reasons, **found.margins)
        self.drafts.submitted += 1

    def _set_aside(self, item: Item, reasons: list[str]) -> None:
        self._tried.append(item.id, "set aside", reasons=reasons)
        self.drafts.set_aside[reasons[-1]] += 1


def _report(drafts: Drafts, log: Callable[[str], None]) -> None:
    log(f"{drafts.submitted:,} drafts wait for a review")
    for reason, number in drafts.set_aside.most_common():
        log(f"{number:,} items stay open: {reason}")
    if drafts.failed:
        log(f"{drafts.failed:,} items stay open: a model failed, see above; the next run tries them again")


def _chunks(names: list[str]) -> Iterator[list[str]]:
    rest = iter(names)
    while chunk := [*islice(rest, BATCH)]:
        yield chunk
