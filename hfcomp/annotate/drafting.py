"""Automatic drafts: edits that rules or models make, and that people then review."""

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
    """A JSON Lines file with one line per tried item: its outcome, the reasons, and how the edit was made.

    The settings of each line are stored next to it in `settings-<hash>.json`. A line is on disk once `append` returns.
    A line that a killed process left incomplete is ignored.

    Attributes:
        tried: Ids of the items that have a line with these settings.

    The key `before` of a submitted item lists the reasons why earlier edits of it failed.
    """

    def __init__(self, project: Path, settings: Mapping[str, Any]) -> None:
        self._path = project / FOLDER / FILE
        self._path.parent.mkdir(exist_ok=True)
        self._settings = content_hash(settings)[:12]
        write_json(self._path.with_name(f"settings-{self._settings}.json"), settings)
        # A killed process may have left the last line incomplete. Such a line is ignored, and a newline ends it before
        # the next line is written.
        lines = self._path.read_bytes().splitlines(keepends=True) if self._path.is_file() else []
        self._is_cut = bool(lines) and not lines[-1].endswith(b"\n")
        entries = [_parse_log_line(line) for line in lines]
        self.tried = {entry["item"] for entry in entries if entry and entry["settings"] == self._settings}

    def append(self, item: str, outcome: Outcome, **facts: Any) -> None:
        line = {"item": item, "outcome": outcome, "settings": self._settings, **facts}
        start = "\n" if self._is_cut else ""
        append_text(self._path, f"{start}{json.dumps(line, ensure_ascii=False)}\n")
        self._is_cut = False
        self.tried.add(item)


def _parse_log_line(line: bytes) -> Mapping[str, Any] | None:
    try:
        entry = parse_json(line.decode())
        return entry if {"item", "settings"} <= {*entry} else None
    except (ValueError, TypeError):
        return None


UNREADABLE = "the image cannot be read"
# Number of items per request to a language model.
BATCH = 32
# The run ends with the model's error after a model has failed for this many items in a row. Our choice.
MAX_CONSECUTIVE_FAILURES = 3


@dataclass
class DraftCounts:
    """Counts of a drafting run.

    Attributes:
        submitted: Number of items now waiting for review.
        set_aside: Number of items that stay open for people, by reason.
        failed: Number of items for which a model raised an error. The next run tries them again.
    """

    submitted: int = 0
    set_aside: Counter[str] = field(default_factory=Counter)
    failed: int = 0


def draft(
    project: Project, options: DraftOptions, *, log: Callable[[str], None], progress: bool = False
) -> DraftCounts:
    """Drafts edits of open items. Each draft is submitted as `AUTOMATIC` and waits for a person's review.

    For each item in order, an edit is proposed, its region is segmented, and candidates are painted there and composed
    with the original. A candidate is dropped if it changed nothing, or if the dual encoder does not place it closer to
    the new caption than to the original one by the required margin. The best one is submitted with quality "okay". Up
    to `edits` edits are tried per item. An item without a draft stays open for people, and the project's
    `drafts/drafts.jsonl` gives the reasons (`DraftLog`).

    A run may be interrupted at any time. Another call continues with the items that were not tried with these
    settings. The draft of an item depends on the item and the settings, not on other items or their order. Items that
    somebody is working on, and items that a reviewer sent back, are left to people.

    Raises:
        ValueError: If the kind of a model is not supported, or another run is drafting the project.
        ImportError: If a package is missing.
        OSError: If a model cannot be reached or the disk is full. Finished drafts are kept.
        RuntimeError: If a model fails for `MAX_CONSECUTIVE_FAILURES` items in a row.
    """
    # Two concurrent runs would draft the same items twice.
    with locked(project.folder / "drafts"):
        drafter = _Drafter(project, options, log)
        try:
            drafter.run(progress)
        finally:
            project.decisions.release(AUTOMATIC)
    _report(drafter.counts, log)
    return drafter.counts


class _Drafter:
    """A drafting run and the models that it uses."""

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
        self.counts, self._failures = DraftCounts(), 0

    def run(self, progress: bool) -> None:
        names = self._open_items()[: self._options.number]
        self._log(f"trying {len(names):,} open items")
        with tqdm(total=len(names), desc="drafts", unit="items", disable=not progress) as bar:
            # Send many items to a language model at once, but only for first attempts: later attempts depend on their
            # results.
            for chunk in _chunks(names):
                items = [self._project.decisions.item(name) for name in chunk]
                for item, first in zip(items, self._proposer.propose(items, 0), strict=True):
                    self._draft_item_safely(item, first)
                    bar.update()
        for name, number in sorted(self._proposer.counts.items()):
            self._log(f"{name}: {number:,}")

    def _open_items(self) -> list[str]:
        decisions = self._project.decisions
        returned = {entry.item for entry in decisions.log() if entry.action == "send back"}
        # An item that a reviewer sent back waits for a person.
        excluded = returned | self._tried.tried
        names = (item.id for item in decisions.items(state="open", concept=self._options.concept))
        return [name for name in names if name not in excluded]

    def _draft_item_safely(self, item: Item, first: Proposal | Refused) -> None:
        # A person may have taken the item since the open items were listed.
        if not self._project.decisions.take(AUTOMATIC, item.id):
            return
        try:
            self._draft(item, first)
            self._failures = 0
        # A single failure of a model costs only this item. Several failures in a row end the run.
        except RuntimeError as error:
            self.counts.failed, self._failures = self.counts.failed + 1, self._failures + 1
            self._log(f"{item.id}: {error}")
            if self._failures == MAX_CONSECUTIVE_FAILURES:
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
            # Rejected answers count too, so no attempt reuses the seeds of an earlier one.
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
                draft = self._maker.make(original, proposal, seeds)
            except SetAside as reason:
                reasons.append(str(reason))
                continue
            self._submit(item, proposal, draft, reasons)
            return
        self._set_aside(item, reasons)

    def _submit(self, item: Item, proposal: Proposal, draft: Draft, reasons: list[str]) -> None:
        # Painting may take longer than the item's lease. If a person has taken the item in the meantime, that
        # person has priority.
        if not self._project.decisions.renew(AUTOMATIC, item.id):
            self._log(f"{item.id}: the draft was not saved, because somebody else took the item in the meantime")
            return
        options = self._options
        edit = Edit(
            image=self._project.save(draft.image),
            mask=self._project.save(mask_image(draft.mask)),
            **vars(proposal),
            threshold=options.threshold,
            enlarge=(options.enlarge_x, options.enlarge_y),
            is_corrected=False,
            seed=draft.seed,
            quality="okay",
        )
        self._project.decisions.submit(AUTOMATIC, item.id, edit)
        # Log only after the decision is on disk. If the process is killed in between, the item is not drafted again,
        # because it is no longer open.
        self._tried.append(item.id, "submitted", before=reasons, **draft.margins)
        self.counts.submitted += 1

    def _set_aside(self, item: Item, reasons: list[str]) -> None:
        self._tried.append(item.id, "set aside", reasons=reasons)
        self.counts.set_aside[reasons[-1]] += 1


def _report(counts: DraftCounts, log: Callable[[str], None]) -> None:
    log(f"{counts.submitted:,} drafts are waiting for review")
    for reason, number in counts.set_aside.most_common():
        log(f"{number:,} items stay open: {reason}")
    if counts.failed:
        log(f"{counts.failed:,} items stay open: a model failed (see above); the next run tries them again")


def _chunks(names: list[str]) -> Iterator[list[str]]:
    rest = iter(names)
    while chunk := [*islice(rest, BATCH)]:
        yield chunk
